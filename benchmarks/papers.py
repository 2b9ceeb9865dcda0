"""Every table and figure of the papers from stored rows: ours beside theirs, and whether their orders hold here.

Rows come from `python -m benchmarks.sweep GRID.toml`, some figures from what a benchmark stored with `--save`; nothing
here decodes. The manifest has both ways of counting, both protocols side by side, what was not run, and the command
that runs it; the page Papers shows the same.
"""

import argparse
import json
from collections import Counter
from pathlib import Path

import torch

from decoding.common.errors import ExperimentError, run_main
from decoding.common.files import utc_stamp, write_whole
from decoding.experiments.command import add_counting_argument, print_table, write_json
from decoding.experiments.estimates import FEWEST
from decoding.experiments.experiment import RESULTS, all_experiments
from decoding.experiments.rows import all_rows
from decoding.papers import CONTENTS, PAPER_RESULTS, not_shown
from decoding.papers.explained import EXPLAINED
from decoding.papers.judge import (
    EQUAL,
    MODELLED,
    JudgedClaim,
    Reproduction,
    claim_words,
    judge,
    number_of_paper,
    places_of,
    undecided,
    words_of,
)
from decoding.papers.paper_result import Entry, PaperResult, compared
from decoding.trace.metrics import COUNTINGS, Counting

GAP, GOAL = 0.05, 0.25  # of claims with a larger gap in the paper at most this share should not be decided
Both = dict[Counting, Reproduction]


def chosen(only: list[str]) -> list[PaperResult]:
    """The paper results that were named, or all.

    Raises:
        ExperimentError: a name fits none.
    """
    known = [paper_result.key for paper_result in PAPER_RESULTS]
    for name in only:
        if not any(key.startswith(name) for key in known):
            raise ExperimentError(f"There is no paper result {name!r}: choose {', '.join(known)}.")
    return [paper_result for paper_result in PAPER_RESULTS if paper_result.key.startswith(tuple(only) or "")]


def show(both: Both, counting: Counting) -> None:
    """A paper result as a table counted in one way, with the verdicts on what the paper claims in both."""
    outcome = both[counting]
    paper_result = outcome.paper_result
    print(f"\n{paper_result.key}: {paper_result.paper}, {paper_result.title}\n  paper: {paper_result.protocol}")
    elsewhere = f"\n  kept too, not counted: {'; '.join(outcome.elsewhere)}" if outcome.elsewhere else ""
    if not outcome.run:
        needs = f"\n  it needs {paper_result.needs}" if paper_result.needs else ""
        print(f"  not run: {paper_result.command}{needs}{elsewhere}")
        return
    print(f"  here: {outcome.here}\n  {'; '.join(filter(None, (outcome.counted, *outcome.bases)))}{elsewhere}")
    header = ["entry", *([paper_result.axis or "at"] if paper_result.by else []), "runs", paper_result.unit]
    header += ["best settings"] if outcome.best else []
    for figure in paper_result.figures:
        header += [figure.words, "paper"]
    once = {True: list(outcome.values[:1]), False: places_of(outcome)}  # one that is the same everywhere is shown once
    print_table(header, [_row(outcome, way, value) for way in paper_result.ways for value in once[way.flat]])
    other: Counting = "whole" if counting == "loop_free" else "loop_free"
    for each, also in _claims(outcome, both[other]):
        paper = "" if each.paper is None else f", paper {each.paper:+.1%}"
        same = also is None or also.verdict == each.verdict
        beside = "" if same else f"; {both[other].counted}: {also.verdict}{_gain(also)}"
        why = f". {each.reason}" if each.reason else ""
        print(f"  {claim_words(each)}: {each.verdict}{_gain(each)}{paper}{beside}{why}")


def _claims(outcome: Reproduction, other: Reproduction) -> list[tuple[JudgedClaim, JudgedClaim | None]]:
    """Each claim beside the same counted in the other way; None at a place where no run holds that."""
    beside = {claim_words(each): each for each in other.judged}
    return [(each, beside.get(claim_words(each))) for each in outcome.judged]


def _gain(claim: JudgedClaim) -> str:
    if (found := claim.gain) is None:
        return ""
    few = found.prompts < FEWEST
    return f" {found.value:+.1%} ({f'n = {found.prompts}' if few else f'{found.low:+.1%} to {found.high:+.1%}'})"


def _row(outcome: Reproduction, way: Entry, value: object) -> list[object]:
    paper_result, key = outcome.paper_result, (way.words, value)
    at = "all" if way.flat else value
    units = f"{outcome.units[key]:,.0f}" if key in outcome.units else "-"
    cells: list[object] = [way.words, *([at] if paper_result.by else []), outcome.runs.get(key, 0), units]
    cells += [outcome.best.get(key, "")] if outcome.best else []
    for figure in paper_result.figures:
        paper = number_of_paper(way, figure, value)
        ours = outcome.ours.get((key, figure.column))
        cells.append("-" if ours is None and key in outcome.runs else words_of(figure, ours))
        cells.append("" if paper is None else f"{paper:g}")
    return cells


def verdicts_of(outcomes: list[Both]) -> dict[Counting, dict]:
    """How many claims have which verdict, and how many with a large gap in the paper are not decided, both ways."""
    found: dict[Counting, dict] = {}
    for way in COUNTINGS:
        claims = [each for both in outcomes for each in both[way].judged]
        counts = Counter(each.verdict for each in claims)
        found[way] = {"verdicts": dict(counts), "undecided": undecided(claims, GAP)}
    return found


def manifest(outcomes: list[Both]) -> dict:
    """Every paper result with both protocols, our figures, the verdicts counted in both ways, and what was not run."""
    return {
        "written": utc_stamp(),
        "rule": f"docs/experiments.md: equal within {EQUAL:.0%}, else by the 95% interval",
        "not decided": {
            way: undecided([each for both in outcomes for each in both[way].judged], GAP) | {"goal": GOAL}
            for way in COUNTINGS
        },
        "paper results": {both["whole"].paper_result.key: _result(both) for both in outcomes},
        "explained": {
            each.key: {"title": f"{each.paper}, {each.title}", "words": each.words, "page": each.page}
            for each in EXPLAINED
        },
        "not run": {
            both["whole"].paper_result.key: _command(both["whole"]) for both in outcomes if not both["whole"].run
        },
        "not shown": {paper: numbers for paper in CONTENTS if (numbers := not_shown(paper))},
    }


def _command(outcome: Reproduction) -> dict[str, str]:
    paper_result, modelled = outcome.paper_result, any(each.startswith(MODELLED) for each in outcome.bases)
    found = {"command": paper_result.command, "needs": paper_result.needs}
    found["command for times that are measured whole"] = paper_result.wide_command if modelled else ""
    return {name: words for name, words in found.items() if words}


def _protocol(outcome: Reproduction) -> list[dict]:
    paper_result = outcome.paper_result
    return [each._asdict() for each in compared(paper_result.protocol, outcome.here, bool(paper_result.grid))]


def _result(both: Both) -> dict:
    whole, free = both["whole"], both["loop_free"]
    paper_result = whole.paper_result
    return {
        "title": f"{paper_result.paper}, {paper_result.title}",
        "numbers": paper_result.numbers,
        **_command(whole),
        "run": whole.run,
        "took_s": whole.took_s,
        "protocol": _protocol(whole) if whole.run else [],
        "note": paper_result.protocol.note,
        "statistics": [figure.words for figure in paper_result.figures],
        "counted": {
            way: {"texts": outcome.counting, "runs": sum(outcome.runs.values()), "left out": outcome.one_way,
                  "where": outcome.where, "figures": outcome.bases}
            for way, outcome in both.items()
        },
        "entries": [
            {"entry": way.words, "at": value,
             paper_result.unit: [each.units.get((way.words, value)) for each in (whole, free)],
             **({"best settings": [each.best.get((way.words, value)) for each in (whole, free)]} if way.best else {}),
             "figures": {
                 figure.words: {"paper": number_of_paper(way, figure, value),
                                **{name: _written(each, way, value, figure.column) for name, each in both.items()}}
                 for figure in paper_result.figures}}
            for way in paper_result.ways for value in places_of(whole)
        ],
        "claims": [
            {"claim": claim_words(one), "statistic": one.ordering.figure.words, "paper": one.paper,
             **{way: {"verdict": each.verdict, "here": None if each.gain is None else vars(each.gain),
                      "figures": each.basis, "cause": each.reason}
                for way, each in (("whole", one), ("loop_free", other)) if each is not None}}
            for one, other in _claims(whole, free)
        ],
    }  # fmt: skip


def _written(outcome: Reproduction, way: Entry, value: object, column: str) -> dict[str, float] | None:
    found = outcome.ours.get(((way.words, value), column))
    return None if found is None else vars(found)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.papers", description=__doc__.splitlines()[0])
    parser.add_argument(
        "only", nargs="*", metavar="RESULT", help="such as dynatree/table-1, or dynatree (default: all)"
    )
    parser.add_argument("--rows", type=Path, nargs="+", metavar="DIR", help="experiments (default: all that are kept)")
    parser.add_argument("--manifest", type=Path, metavar="FILE", help="write all of it, and what was not run")
    parser.add_argument("--save", action="store_true", help="save how many claims hold, for docs/results.md")
    add_counting_argument(parser, "whole")
    args = parser.parse_args()
    if args.save and (args.only or args.rows):
        parser.error("--save keeps the verdicts on all that is stored: name no results or rows")
    rows = all_rows(args.rows or all_experiments())
    if len(rows):  # two grids may have a reference in common
        rows = rows.drop_duplicates(["experiment", "pair", "machine", "key"])
    outcomes: list[Both] = [{way: judge(each, rows, way) for way in COUNTINGS} for each in chosen(args.only)]
    for both in outcomes:
        show(both, args.counted)
    run = sum(both["whole"].run for both in outcomes)
    print(f"\n{run} of {len(outcomes)} tables and figures are run, from {len(rows):,} rows")
    found = verdicts_of(outcomes)
    for way, words in COUNTINGS.items():
        counts = ", ".join(f"{name} {count}" for name, count in found[way]["verdicts"].items())
        open_ = found[way]["undecided"]
        print(f"{words}: {counts or 'no claims'}; not decided of those with a gap above {GAP:.0%} in the paper: "
              f"{open_['not decided']} of {open_['claims']}, goal at most {GOAL:.0%}")  # fmt: skip
    if args.save:
        kept = {"run": run, "paper_results": len(outcomes), "rows": len(rows), "claims": found}
        write_json(RESULTS / "papers-cpu.json", "papers", kept, torch.device("cpu"))
    if args.manifest:
        written = json.dumps(manifest(outcomes), indent=1, default=str) + "\n"
        write_whole(args.manifest, written.encode(), "choose another --manifest")
    return 0


if __name__ == "__main__":
    run_main(main)

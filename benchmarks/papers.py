"""Every table and figure of the papers from stored rows: ours beside theirs, and whether the ordering holds here.

Rows come from `python -m benchmarks.sweep GRID.toml`, some figures from what a benchmark stored with
`--save`; nothing here decodes. The manifest tells which exhibits were run, on what and when.
"""

import argparse
import json
import time
from pathlib import Path

from decoding.common.errors import ExperimentError, run_main
from decoding.experiments.command import print_table
from decoding.experiments.estimates import FEWEST
from decoding.experiments.experiment import all_experiments
from decoding.experiments.rows import all_rows
from decoding.papers import PAPER_RESULTS
from decoding.papers.judge import Reproduction, claim_words, judge, words_of
from decoding.papers.paper_result import Entry, PaperResult


def chosen(only: list[str]) -> list[PaperResult]:
    """The exhibits that were named, or all.

    Raises:
        ExperimentError: a name fits none.
    """
    for name in only:
        if not any(paper_result.key.startswith(name) for paper_result in PAPER_RESULTS):
            known = ", ".join(paper_result.key for paper_result in PAPER_RESULTS)
            raise ExperimentError(f"There is no exhibit {name!r}: choose {known}.")
    return [
        paper_result
        for paper_result in PAPER_RESULTS
        if not only or any(paper_result.key.startswith(name) for name in only)
    ]


def show(outcome: Reproduction) -> None:
    """An exhibit as a table, with the verdicts on what the paper claims."""
    paper_result = outcome.paper_result
    print(f"\n{paper_result.key}: {paper_result.paper}, {paper_result.title}\n  paper: {paper_result.protocol}")
    if not outcome.run:
        print(
            f"  not run: {paper_result.command}" + (f"\n  it needs {paper_result.needs}" if paper_result.needs else "")
        )
        return
    print("  here: " + "; ".join(outcome.where))
    if outcome.elsewhere:
        print(f"  kept too, not counted: {'; '.join(outcome.elsewhere)}")
    header = ["way", *([paper_result.axis or "at"] if paper_result.by else []), "runs"]
    for figure in paper_result.figures:
        header += [figure.words, "paper"]
    once = {True: outcome.values[:1], False: outcome.values}  # a way that is the same everywhere is reported once
    print_table(header, [_row(outcome, way, value) for way in paper_result.ways for value in once[way.flat]])
    for each in outcome.judged:
        gain = ""
        if (found := each.gain) is not None:
            few = found.prompts < FEWEST
            gain = (
                f" {found.value:+.1%} ({f'n = {found.prompts}' if few else f'{found.low:+.1%} to {found.high:+.1%}'})"
            )
        paper = "" if each.paper is None else f", paper {each.paper:+.1%}"
        print(f"  {claim_words(each)}: {each.verdict}{gain}{paper}" + (f". {each.reason}" if each.reason else ""))


def _row(outcome: Reproduction, way: Entry, value: object) -> list[object]:
    paper_result, key = outcome.paper_result, (way.words, value)
    at = "all" if way.flat else value
    cells: list[object] = [way.words, *([at] if paper_result.by else []), outcome.runs.get(key, 0)]
    for figure in paper_result.figures:
        paper = way.paper.get(figure.column if value is None else (figure.column, value))
        ours = outcome.ours.get((key, figure.column))
        cells.append("-" if ours is None and key in outcome.runs else words_of(figure, ours))
        cells.append("" if paper is None else f"{paper:g}")
    return cells


def manifest(outcomes: list[Reproduction]) -> dict:
    """Which exhibits were run, on what, when, and what came of their orderings."""
    return {
        "written": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "exhibits": {
            outcome.paper_result.key: {
                "title": f"{outcome.paper_result.paper}, {outcome.paper_result.title}",
                "command": outcome.paper_result.command,
                "run": outcome.run,
                "runs": sum(outcome.runs.values()),
                "where": outcome.where,
                "orderings": [
                    {"better": each.ordering.better, "worse": each.ordering.worse, "in": each.ordering.figure.column,
                     "at": each.value, "verdict": each.verdict, "paper": each.paper,
                     "here": None if each.gain is None else vars(each.gain), "reason": each.reason}
                    for each in outcome.judged
                ],
            }
            for outcome in outcomes
        },
    }  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.papers", description=__doc__.splitlines()[0])
    parser.add_argument(
        "only", nargs="*", metavar="EXHIBIT", help="such as dynatree/table-1, or dynatree (default: all)"
    )
    parser.add_argument("--rows", type=Path, nargs="+", metavar="DIR", help="experiments (default: all that are kept)")
    parser.add_argument("--manifest", type=Path, metavar="FILE", help="write what was run, on what and when")
    args = parser.parse_args()
    rows = all_rows(args.rows or all_experiments())
    if len(rows):  # two grids may have a reference in common
        rows = rows.drop_duplicates(["experiment", "pair", "machine", "key"])
    outcomes = [judge(paper_result, rows) for paper_result in chosen(args.only)]
    for outcome in outcomes:
        show(outcome)
    verdicts = [each.verdict for outcome in outcomes for each in outcome.judged]
    counts = ", ".join(f"{name} {verdicts.count(name)}" for name in dict.fromkeys(verdicts))
    run = sum(outcome.run for outcome in outcomes)
    print(f"\n{run} of {len(outcomes)} tables and figures are run, from {len(rows):,} rows; "
          f"orderings: {counts or 'none'}")  # fmt: skip
    if args.manifest:
        args.manifest.write_text(json.dumps(manifest(outcomes), indent=1, default=str) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    run_main(main)

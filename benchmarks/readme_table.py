"""`python -m benchmarks.readme_table`: write every measured figure of the docs from decoding/experiments/results.

A short table goes into the README, all of them into docs/results.md. `--check` writes nothing and ends with code 1
where one of the two holds something else. A table of contestants is
what `benchmarks.methods` stores: `figures`, and lines on what is reached in `goals`; `benchmarks.gpu` stores one such
part for each sampling, and its first contact one for each number of prompts. `setup` or `pair` says what was measured.
"""

import argparse
import json
import re
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path

import pandas as pd

from benchmarks.markdown import between, table, write_page
from benchmarks.modelled_times import WITHIN
from benchmarks.papers import GAP, GOAL
from benchmarks.selector_tables import selector_goal
from decoding.common.files import ROOT
from decoding.common.formats import long_duration
from decoding.experiments.estimates import counted, estimate
from decoding.experiments.experiment import RESULTS, SHIPPED
from decoding.experiments.rows import RowStore
from decoding.heads.store import SHIPPED as HEADS_HOME
from decoding.heads.store import equal_time, read_card, same_windows
from decoding.methods.methods import METHODS
from decoding.models.embedded import embedded_weights
from decoding.models.presets import MODEL_SHAPES, wide_words, widened_words
from decoding.papers import PAPER_RESULTS
from decoding.papers.measured.verifier_grid import TOKENS_FROM
from decoding.papers.rows import separated
from decoding.papers.stored import stored_records
from decoding.papers.stored import took as measured_in
from decoding.trace.metrics import COUNTINGS
from decoding.training.head_suite import BASE, COMPARED, MEMBERS

README, LONG = ROOT / "README.md", ROOT / "docs" / "results.md"
BEGIN = "<!-- performance: written by python -m benchmarks.readme_table -->"
END = "<!-- performance: end -->"
TABLES = {
    "methods": "Chains, fixed trees, DynaTree, EAGLE-2 and hardware-aware trees",
    "gpu": "On a GPU",
    "first-contact-ratios": "First measurements on a GPU",
}
LINES = {
    "identity": "Greedy output against `generate`", "random_runs": "Random calls",
    "roofline": "Passes beside their limits", "scaling": "Cost against size", "recording": "Cost of recording",
    "offload": "A target mostly off the device", "kinds_of_text": "A real pair, by kind of text",
}  # fmt: skip
DRAFTERS_GRID = "heads_that_pay"
HEADER = (
    "method",
    "tok/s",
    "quartiles",
    "x HF generate",
    "x HF assisted",
    "speed-up over plain decoding",
    "tokens per iteration",
)
# Of the README's table: the columns of each pair, and the contestants, in this order where they were measured.
SHORT_COLUMNS = ("tokens per iteration", "tokens/s", "speed-up over plain decoding")
SHORT = (
    "HF generate", "HF assisted", "autoregressive (ours)", "linear, tuned", "DynaTree, tuned", "EAGLE-2 beam, tuned",
    "hardware-aware",
)  # fmt: skip
BASES = ("hf_generate", "hf_assisted", "autoregressive")
HARDWARE = (("python", "Python"), ("torch", "torch"), ("transformers", "transformers"))


def load_results(folder: Path) -> dict[str, list[dict]]:
    """Stored results by benchmark, one per kind of device."""
    found: dict[str, list[dict]] = {}
    for path in sorted(folder.glob("*.json"), key=lambda path: path.stem):  # a pair before its widened forms
        record = json.loads(path.read_text(encoding="utf-8"))
        found.setdefault(record["benchmark"], []).append(record)
    return found


WIDE, LIKE = re.compile(r"target (\d)× as wide"), re.compile("widened-([^ ]+)")


def widened_sentence(setup: str) -> str:
    """What a widened pair is, where a setup names one; else empty."""
    if wide := WIDE.search(setup):
        return f"It {wide_words(int(wide[1]))}."
    like = LIKE.search(setup)
    shapes = [shape for name, shape in MODEL_SHAPES.items() if like and name.endswith(like[1])]
    return f"It {widened_words(shapes[0].parameters)}." if shapes else ""


def section(results: dict[str, list[dict]]) -> str:
    """All that was measured, as Markdown."""
    blocks = []
    for name, heading in TABLES.items():
        if name == "gpu" and name not in results and "first-contact-ratios" in results:
            continue  # what it showed first stands below
        blocks.append(f"### {heading}")
        for record in results.get(name, ()):
            setup = record.get("setup") or record["pair"]
            if isinstance(setup, dict):
                setup = f"{setup['name']}, greedy"
            blocks.append(" ".join(filter(None, (f"{setup}.", widened_sentence(setup)))))
            # What holds a table, by heading: the record itself, or its parts.
            held = list(record["ratios"].items())[-1:] if "ratios" in record else record.items()  # on the most prompts
            parts = {name: part for name, part in held if isinstance(part, dict) and "figures" in part}
            for title, part in ({"": record} if "figures" in record else parts).items():
                figures = part["figures"]
                blocks += ([f"**{title}**"] if title else []) + [_table(figures)]
                looping, tokens = (sum(f[key] for f in figures) for key in ("looping_tokens", "tokens"))
                if looping:
                    blocks.append(f"{looping:,} of {tokens:,} tokens were in loops and are left out.")
                blocks.append("\n".join(f"* {line}" for line in part["goals"]))
            blocks.append(f"{_source(record)}.")
        if name not in results:
            blocks.append(f"This is {_not_measured(name)}.")
    times = results.get("modelled_times", ()), results.get("verifier_grid", ())
    blocks += [_judged(record, *times) for record in results.get("papers", ())]
    blocks.append(_drafters(RowStore(SHIPPED / DRAFTERS_GRID).frame()))
    blocks.append(_worth_of_draws(stored_records("draft_acceptance")))
    kept = {record["benchmark"] for records in results.values() for record in records if TOKENS_FROM in record}
    grids = {file.parent.name: RowStore(file.parent).frame() for file in SHIPPED.glob("*/grid.json")}
    blocks.append(_durations(grids, kept))
    blocks.append(_heads(HEADS_HOME))
    blocks += [_selectors(record) for record in results.get("selector", ())]
    blocks += [_modelled(record) for record in results.get("roofline_published", ())]
    blocks += [_batches(record) for record in results.get("batch", ())]
    lines = []
    for name, heading in LINES.items():
        said = ((record.get("goals") or [record.get("summary", "")], record) for record in results.get(name, ()))
        reported = [f"{'; '.join(each)} ({_source(record)})" for each, record in said if any(each)]
        lines += [f"* {heading}: {line}" for line in reported or [_not_measured(name)]]
    return "\n\n".join([*blocks, "\n".join(lines)])


def _judged(record: dict, times: Iterable[dict], grids: Iterable[dict]) -> str:
    """How many orderings hold in stored rows, in both ways of counting; how far off modelled times were, those of
    `modelled_times` and those of `verifier_grid`.
    """
    names = ("holds", "equal within 3%", "does not hold", "not decided", "not run")
    rows, goals = [], []
    for way, words in COUNTINGS.items():
        claims, open_ = record["claims"][way]["verdicts"], record["claims"][way]["undecided"]
        rows.append((words, *(str(claims.get(name, 0)) for name in names)))
        reached = "reached" if open_["share"] <= GOAL else "missed"
        goals.append(
            f"* goal {reached}, {words}: of {open_['claims']} claims with a gap above {GAP:.0%} in the paper "
            f"{open_['not decided']} are not decided, {open_['share']:.1%}; goal {GOAL:.0%}"
        )
    for each in times:
        whole, methods = each["modelled"], [found["value"] for found in each["by_method"].values()]
        reached = "reached" if abs(whole["value"] - 1) <= WITHIN else "missed"
        words = COUNTINGS[each.get("counted", "whole")]
        goals.append(
            f"* goal {reached}: times modelled from measured passes are {whole['value']:.2f} ({whole['low']:.2f} to "
            f"{whole['high']:.2f}) of those of {each['runs']} whole runs, {words}, goal within {WITHIN:.0%}; by method "
            f"{min(methods):.2f} to {max(methods):.2f}; passes measured between the runs. {_source(each)}"
        )
    for each in grids:
        values = [estimate(shares).value for shares in each["time_shares"].values()]
        whole = estimate([share for shares in each["time_shares"].values() for share in shares])
        reached = "reached" if abs(whole.value - 1) <= WITHIN else "missed"
        goals.append(
            f"* goal {reached}: modelled times of verifiers are {whole} of those of {whole.prompts} whole runs, goal "
            f"within {WITHIN:.0%}; by verifier {min(values):.2f} to {max(values):.2f}; "
            f"passes measured between the runs. {_source(each)}"
        )
    return (
        "### Do the papers' orderings hold\n\n"
        f"{record['run']} of {record['paper_results']} tables and figures are run, from {record['rows']:,} stored "
        "runs; the rule is in [experiments.md](experiments.md).\n\n"
        + table(("counted", *names), rows, 1) + "\n\n" + "\n".join(goals)
        + f"\n\n{record['created'][:10]}: `python -m benchmarks.papers --save`."
    )  # fmt: skip


def _drafters(rows: pd.DataFrame) -> str:
    """Every drafter with the draft model and with a head, in its fastest settings, fastest first; of one machine."""
    command = f"`python -m benchmarks.sweep decoding/experiments/grids/{DRAFTERS_GRID}.toml`"
    rows = rows[rows["weights"] == embedded_weights()]
    if rows.empty:
        return f"### Which drafter is the fastest\n\nThis is not measured yet: run {command}."
    rows = separated(rows)[0].rows
    rows = counted(rows, "loop_free").assign(draft=rows["settings.draft_head"].fillna(""))
    found = []
    for (method, draft), here in rows.groupby(["method", "draft"]):
        speeds = here.groupby(["label", "prompt"])["throughput"].median().unstack("prompt")
        label = speeds.mean(axis=1).idxmax()
        runs = here[here["label"] == label]
        parts = {name: (runs[name] / runs["iterations"]).mean() for name in ("draft_forwards", "draft_s", "verify_s")}
        parts["tokens"] = runs["tokens_per_iteration"].mean()
        found.append((estimate(speeds.loc[label].dropna()), label, parts, (method, draft)))
    found.sort(key=lambda each: -each[0].value)
    first, last = (rows["started"].agg(end)[:10] for end in ("min", "max"))
    heads = ("drafter in its fastest settings", "tokens/s", "tokens per iteration", "draft forwards",
             "drafting, ms", "target pass, ms")  # fmt: skip
    cells = [
        (label, f"{speed.value:.0f} ({speed.low:.0f} to {speed.high:.0f})", f"{parts['tokens']:.2f}",
         f"{parts['draft_forwards']:.2f}", f"{1000 * parts['draft_s']:.1f}", f"{1000 * parts['verify_s']:.1f}")
        for speed, label, parts, _ in found
    ]  # fmt: skip
    return (
        "### Which drafter is the fastest\n\n"
        f"{', '.join(rows['pair'].unique())}, {', '.join(rows['machine'].unique())}, greedy, "
        f"{rows['prompt'].nunique()} prompts x {rows['asked_tokens'].max()} tokens, loops left out; means over prompts "
        f"with 95% intervals, times and forwards per iteration. Settings are chosen on these prompts.\n\n"
        f"{table(heads, cells, 1)}\n\n{_head_goal(found)}\n\n"
        f"{command}, {first if first == last else f'{first} to {last}'}."
    )


def _head_goal(found: list[tuple]) -> str:
    """Whether SALF with the TALF head is the fastest, and the measured cause where it is not."""
    if found[0][1].startswith("SALF + TALF"):
        return "* goal reached: SALF with the TALF head is the fastest"
    said = "* goal missed: SALF with the TALF head is the fastest"
    salf = [(draft, parts) for _, _, parts, (method, draft) in found if method == "salf"]
    model = next((parts for draft, parts in salf if not draft), None)
    head = next((parts for draft, parts in salf if draft), None)
    if model is None or head is None:
        return said
    each, its = (1000 * parts["draft_s"] / parts["draft_forwards"] for parts in (model, head))
    return (
        f"{said}. Measured cause: with the draft model SALF commits {model['tokens']:.2f} tokens per iteration and "
        f"drafts for {each:.1f} ms a forward, with the head {head['tokens']:.2f} and {its:.1f} ms; the head is as wide "
        "as the target"
    )


def _worth_of_draws(tests: pd.DataFrame) -> str:
    """How often drawn nodes are accepted, by their draft probability: DySpec takes the two for equal.

    Args:
        tests: what `benchmarks.draft_acceptance` stored; empty where it was not run.
    """
    heading = "### Why DySpec's trees are worth less at temperature 0.6"
    if tests.empty:
        return f"{heading}\n\nThis is {_not_measured('draft_acceptance')}."
    accepted = (tests["accepted"] * tests["tested"]).groupby([tests["draft_probability"], tests["line"].astype(float)])
    tested = tests["tested"].groupby([tests["draft_probability"], tests["line"].astype(float)]).sum()
    shares = (accepted.sum() / tested).unstack()
    rows = [(f"{middle:.2f}", *(f"{share:.1%}" for share in row)) for middle, row in shares.iterrows()]
    heads = ("draft probability", *(f"accepted at temperature {temperature:g}" for temperature in shares))
    accepted_words = " and ".join(f"{share:.1%} at temperature {each:g}" for each, share in shares.iloc[0].items())
    return (
        f"{heading}\n\nDySpec draws where a node's path probability times what is left of the draft's distribution is "
        "largest: it takes a draft probability for the chance of acceptance. Of draws with a probability of about "
        f"{shares.index[0]:.2f}, {accepted_words} are accepted: a sampled target takes much of what the draft found "
        "unlikely, and below such a node DySpec hardly goes on. The shapes of Sequoia and SpecInfer do not depend on "
        "probabilities.\n\n"
        f"{table(heads, rows, 0)}\n\nDySpec trees of 64 nodes, draft temperature 0.6, {tested.sum():,.0f} tests, "
        f"{COUNTINGS['whole']}, "
        f"{', '.join(tests['pair'].unique())}, {tests['started'].max()[:10]}: "
        "`python -m benchmarks.draft_acceptance --save`."
    )


def _heads(home: Path) -> str:
    """What heads of several losses reach that go on from one head for equal numbers of steps, and for equal times."""
    heading, at_16 = "### Losses of draft heads", COMPARED["tokens at 16 nodes"]
    suite = "python -m decoding.training.head_suite"
    cards = {name: read_card(home / name, name) for name in MEMBERS}
    timed, same = equal_time(cards["talf"].pair["target"], home), same_windows(cards.values(), home)
    if timed is None or same is None:
        missing = "--evaluate --corpus TEXTS" if same is None else "--minutes 3"
        return f"{heading}\n\nNot measured yet: run `{suite} {missing} --ship`."
    first, last = (end(card.created for card in cards.values())[:10] for end in (min, max))

    def row(name: str, figures: Mapping[str, float]) -> tuple[str, ...]:
        label, took = (cards[name].label, f"{figures['trained_s']:.0f}") if name in cards else ("all go on from it", "")
        return label, f"{figures['steps']:,.0f}", took, f"{figures[COMPARED['accepted, depth 3']]:.3f}"

    equal_steps, equal_times = [], []
    for name, card in cards.items():
        each = same["heads"][name]
        gained = f"{each['gained']:+.4f} ± {each['gained_error']:.4f}" if "gained" in each else ""
        equal_steps.append((*row(name, card.figures), f"{each['tokens']:.3f} ± {each['error']:.3f}", gained))
    for name, figures in timed["heads"].items():
        equal_times.append((*row(name, figures), f"{figures[at_16]:.3f} ± {figures[f'{at_16}_error']:.3f}"))
    heads = ("head", "steps", "seconds", "accepted, depth 3", "tokens at 16 nodes, exact")
    return (
        f"{heading}\n\nHeld-out text, temperature 1; tokens of optimal trees with their standard error over windows, "
        f"and the difference to the {cards['eagle'].label} on each of the same {same['heads']['eagle']['windows']:.0f} "
        "windows, its mean with its standard error: windows differ far more than heads do. These heads come with the "
        f"program.\n\n{table((*heads, 'minus the EAGLE head'), equal_steps, 1)}\n\n"
        f"Trained {first if first == last else f'{first} to {last}'}, compared {same['created']}: "
        f"`{suite} --evaluate {same['asked_windows']} --corpus TEXTS --ship`.\n\n"
        f"Heads trained for equal times, {timed['minutes']:g} minutes each, that go on from a first head of their own. "
        "They were not kept: their tokens are over the few windows that their trainings held out, unpaired.\n\n"
        f"{table(heads, equal_times, 1)}\n\n"
        f"{timed['hardware']['processor']}, {timed['hardware']['cores']} cores, {timed['created']}: "
        f"`{suite} --base-steps {timed['heads'][BASE]['steps']:.0f} --steps 0 --minutes {timed['minutes']:g} --ship`."
    )


GAINS = {
    "measured": "measured", "selector": "modelled", "choice": "modelled, asking left out",
    "oracle": "best shape of each root, found by other trees", "same_trees": "found by the same trees",
}  # fmt: skip


def _selectors(record: dict) -> str:
    """What a selector of delayed trees wins over the best fixed shape, and what could be won at most."""

    def cell(gain: dict | None) -> str:
        return "" if gain is None else f"{gain['value']:+.1%} ({gain['low']:+.1%} to {gain['high']:+.1%})"

    rows = [(METHODS["delayed"].with_settings(verifier=name).verifier.label, *(cell(gains.get(how)) for how in GAINS))
            for name, gains in record["possible"].items()]  # fmt: skip
    return (
        "### How much a selector wins, and could win\n\n"
        f"Tokens per second over those of the best fixed shape (K, L1, L2) of the sampling, {record['prompts']} "
        f"{record['prompts_are']}, {record['roots']:.0f} roots outside loops; measured on "
        f"{COUNTINGS[record['counted']]}. What the best shape of each root would win, modelled, lies between the last "
        "two columns: a few other trees do not always find it, and judged by the trees that it was found by it is too "
        "good.\n\n"
        f"{table(('verifier', *GAINS.values()), rows, 1)}\n\n* {selector_goal(record['possible'])}\n\n"
        f"{_source(record)}."
    )


def _durations(grids: dict[str, pd.DataFrame], kept: set[str]) -> str:
    """How long what the papers' tables and figures are read from took to run, longest first, and where.

    `kept`: benchmarks that took a part of their figures over from an earlier run.
    """
    took = [
        (name, f"{len(rows):,} runs, {rows['new_tokens'].sum() / 1000:,.0f}k tokens", rows["wall_s"].sum(),
         rows["machine"].str.partition(",")[0].unique())
        for name, rows in grids.items() if len(rows)
    ]  # fmt: skip
    for name in sorted({each.stored for each in PAPER_RESULTS if each.stored}):
        if (known := measured_in(name)) is not None:
            what = "a benchmark, a part of it kept from an earlier run" if name in kept else "a benchmark"
            took.append((name, what, known[0], [known[1]]))
    took.sort(key=lambda each: -each[2])
    cells = [(f"`{name}`", what, ", ".join(sorted(where)), long_duration(took_s)) for name, what, took_s, where in took]
    total = long_duration(sum(took_s for _, _, took_s, _ in took))
    return (
        "### How long the papers' experiments take\n\n"
        f"All of it took {total}: of grids the time of decoding, of benchmarks the whole of it. A grid goes on where "
        "it was stopped (`python -m benchmarks.sweep GRID.toml --save`), so it may be run in pieces.\n\n"
        f"{table(('grid or benchmark', 'what is stored', 'on', 'time'), cells, 3)}"
    )


def _modelled(record: dict) -> str:
    """By source, how far modelled costs are from published ones."""
    heads = ("source", "of", "figures", "median error", "largest")
    rows = [
        (each["source"], each["of"], str(each["figures"]), f"{each['median']:+.0%}", f"{each['largest']:+.0%}")
        for each in record["by_source"]
    ]
    return (
        "### Modelled costs beside published ones\n\nHow much faster `draftscope roofline` is than what was measured; "
        "above 0 it is too optimistic. Figures that its defaults were read off are left out.\n\n"
        f"{table(heads, rows, 2)}\n\n"
        f"`{record['command']}`, {record['created'][:10]}; every figure is in the stored file."
    )


def _batches(record: dict) -> str:
    """Speed-up over plain decoding of the best chain and tree by batch size, and how far the roofline is from it."""
    heads, rows = ("sequences", "plain, tok/s", "best chain", "K", "best tree", "nodes"), []
    for point in record["points"]:
        chain, tree = point["chain"], point["tree"]
        rows.append((str(point["batch"]), f"{point['plain_tokens_per_s']:.0f}", f"{chain['speedup']:.2f}x",
                     str(chain["nodes"]), f"{tree['speedup']:.2f}x", str(tree["nodes"])))  # fmt: skip
    errors = [max(abs(each["error"]) for each in record[part]) for part in ("gains", "checked")]
    counts = COUNTINGS[record.get("counted", "whole")]
    return (
        f"### When speculation stops paying: {record['pair']}, {_device(record['hardware'])}\n\n"
        f"Modelled from measured passes over batches and measured acceptance, {counts}.\n\n{table(heads, rows, 0)}\n\n"
        "Speed-ups of passes alone, computed by the roofline of this machine, are at most "
        f"{errors[0]:.0%} off those of the measured passes; at a batch of one, real runs of four methods are at most "
        f"{errors[1]:.0%} off what is modelled of their trees. {_source(record)}."
    )


def summary(results: dict[str, list[dict]]) -> str:
    """A few contestants on each pair that was measured in float32 on the first kind of device, and what they ran on."""
    records = [each for each in results.get("methods", []) if ", float32" in each["setup"]]
    if not records:
        return f"This is {_not_measured('methods')}."
    records = [each for each in records if _device(each["hardware"]) == _device(records[0]["hardware"])]
    found = [{f["label"]: f for f in record["figures"] if f.get("throughput")} for record in records]
    pairs = [record["setup"].partition(f", {record['hardware']['device']}")[0] for record in records]
    shown = [pair.removeprefix(pairs[0]).removeprefix(", ") for pair in pairs]
    titles = [f"{pair}: {what}" if pair else what for pair in shown for what in SHORT_COLUMNS]
    rows = []
    for label in SHORT:
        measured = [figures.get(label) for figures in found]
        if any(measured):
            rows.append([label, *(cell for f in measured for cell in _short_cells(f))])
    sources = "\n".join(f"{_source(record)}." for record in records)
    return "\n\n".join([f"{records[0]['setup']}.", table(("method", *titles), rows, 1), sources])


def _short_cells(figures: dict | None) -> tuple[str, ...]:
    """What `SHORT_COLUMNS` names of one contestant; empty where it was not measured."""
    if figures is None:
        return ("",) * len(SHORT_COLUMNS)
    ratio, speed = figures.get("ratio_to_autoregressive"), figures["throughput"]["median"]
    return f"{figures['tokens_per_iteration']:.2f}", f"{speed:.0f}", f"{ratio['median']:.2f}" if ratio else ""


def _not_measured(name: str) -> str:
    module, _, part = name.partition("first-contact-")
    command = f"gpu --first-contact {part}" if part else module
    where = " on a CUDA machine" if command.startswith("gpu") else ""
    return f"not measured yet: run `python -m benchmarks.{command} --save`{where}"


def _table(figures: list[dict]) -> str:
    rows = []
    for f in figures:
        speed = f.get("throughput")
        cells = ["not measured", *[""] * (len(HEADER) - 2)]
        if speed is not None:
            ratios = [f.get(f"ratio_to_{base}") for base in BASES]
            cells = [f"{speed['median']:.1f}", f"{speed['low']:.1f} to {speed['high']:.1f}"]
            cells += [f"{ratio['median']:.2f}" if ratio else "" for ratio in ratios]
            cells.append(f"{f['tokens_per_iteration']:.2f}")
        rows.append((f["label"], *cells))
    return table(HEADER, rows, 1)


def _device(hardware: dict) -> str:
    return hardware.get("gpu") or hardware["processor"]


def _source(record: dict) -> str:
    """Hardware, versions, commit, date and command."""
    hardware = record["hardware"]
    device = f"{hardware['gpu']}, " if "gpu" in hardware else ""
    versions = ", ".join(f"{label} {hardware[key]}" for key, label in HARDWARE)
    commit, _, dirty = (record["commit"] or "unknown").partition("-")
    return (
        f"{device}{hardware['processor']}, {hardware['cores']} cores, torch threads {hardware['threads']}; {versions}; "
        f"commit {commit[:10]}{' with changes' if dirty else ''}, {record['created'][:10]}: `{record['command']}`"
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true", help="write nothing; end with code 1 where a page differs")
    args = parser.parse_args()
    results, differs = load_results(RESULTS), False
    for path, make in ((README, summary), (LONG, section)):
        present = path.read_text(encoding="utf-8")
        wanted = between(present, BEGIN, END, make(results))
        differs |= present != wanted
        if args.check:
            print(f"{path.name} {'is up to date' if present == wanted else 'differs: run it without --check'}")
        elif present != wanted:
            write_page(path, wanted)
            print(f"{path.name} written")
    return int(args.check and differs)


if __name__ == "__main__":
    sys.exit(main())

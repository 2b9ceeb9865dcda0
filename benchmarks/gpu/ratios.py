"""Part *ratios*: our own loop, trees with their iterations on device and host, `generate` and assisted, interleaved."""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial

from benchmarks.gpu.measuring import contestants_for, graphs_of, loaded_pair, measure
from benchmarks.gpu.measuring import report as tell_figures
from benchmarks.gpu.report import Kind, Report, Step
from decoding.compare.comparison import Comparison
from decoding.compare.identity import HALF_PRECISION_MARGIN
from decoding.engines.graphs import Graphs
from decoding.experiments.command import encoded_prompts
from decoding.models.pair import Pair
from decoding.sampling.sampling import Sampling

# Taken as they are: to tune is for the benchmark itself.
TUNED = {"linear, tuned": "linear:length=5", "tree, tuned": "eagle2:node_budget=63,beam_width=8,max_depth=6"}
PROMPTS, TOKENS, REPEATS = 3, 128, 2
FEW_TOKENS = 24
LARGER = {"beam of 128": "eagle2:node_budget=127,beam_width=10,max_depth=7"}


@dataclass
class KnownRatio:
    """What the steps have found out so far.

    Attributes:
        asked: labels of the contestants, in order.
        ran: those of them that were measured in any step.
        failures: why contestants could not run, by label.
        reported: sentences of the step in which most of them ran, and how many those were.
    """

    asked: tuple[str, ...] = ()
    ran: set[str] = field(default_factory=set)
    failures: dict[str, str] = field(default_factory=dict)
    reported: tuple[int, list[tuple[Kind, str]]] = (0, [])


def steps(report: Report) -> Iterator[Step]:
    """The steps of this part; the pair is loaded once for all."""
    with loaded_pair(report) as pair:
        known = KnownRatio()
        yield "one prompt", partial(ratios, pair=pair, known=known, prompts=1, repeats=1, share=0.45)
        yield "more prompts", partial(ratios, pair=pair, known=known, prompts=PROMPTS, repeats=REPEATS, share=0.95)
        not_measured(report, known)  # no step, as it is due even where no time is left


def ratios(report: Report, pair: Pair, known: KnownRatio, prompts: int, repeats: int, share: float) -> None:
    """Every contestant on some prompts. One prompt comes first, so that something is known of all of them early."""
    if not report.cuda and prompts > 1:
        return
    tokens = TOKENS if report.cuda else FEW_TOKENS
    chosen = encoded_prompts(pair, report.args.prompts, prompts)
    contestants = contestants_for(Sampling(), TUNED | LARGER)
    known.asked = tuple(contestant.label for contestant in contestants)
    budget = report.budget.share(share)
    comparison = measure(pair, contestants, chosen, tokens, repeats, Sampling(), budget, known.failures)
    figures = tell_figures(pair, comparison, len(chosen[0][1]) + tokens // 2, report.args.counted)
    graphs = graphs_of(pair)
    figures["graphs"] = {name: {"captured": g.captured, "cold": g.cold, "evicted": g.evicted, "failure": g.failure}
                         for name, g in graphs.items()}  # fmt: skip
    report.figures.setdefault("ratios", {})[f"prompts: {prompts}"] = figures
    tell(report, known, figures, [*differing(comparison, pair.target.info.dtype), *of_graphs(graphs), *goals(figures)])


def tell(report: Report, known: KnownRatio, figures: dict, sentences: list[tuple[Kind, str]]) -> None:
    """Note the sentences of a step in the place of those before it, unless fewer contestants ran in it."""
    ran = {f["label"] for f in figures["figures"] if "throughput" in f}
    on = f"{len(ran)} of {len(known.asked)} contestants ran on {len(figures['prompts'])} prompts"
    most, before = known.reported
    if len(ran) < most:
        sentences = [("slow", f"only {on}: the ratios are those of fewer prompts"),
                     *(each for each in sentences if each[0] == "wrong")]  # fmt: skip
    else:
        report.forget(before)
        sentences = [("works", on), *sentences]
        known.reported = len(ran), sentences
    for kind, sentence in sentences:
        report.judge(kind, sentence)
    known.failures |= {f["label"]: f["failures"][0] for f in figures["figures"] if f["failures"]}
    known.ran |= ran


def not_measured(report: Report, known: KnownRatio) -> None:
    """Contestants that ran in no step: wrong where something failed, slow where there was no time."""
    for label in known.asked:
        if label in known.ran:
            continue
        if label in known.failures:
            report.wrong(f"{label} could not run: {known.failures[label]}")
        else:
            report.slow(f"{label} was not measured: no time was left")


def differing(comparison: Comparison, dtype: str) -> Iterator[tuple[Kind, str]]:
    """Outputs that are not the reference's: those that rounding explains in one sentence, each other in its own."""
    margin, rounded = HALF_PRECISION_MARGIN if dtype in ("bfloat16", "float16") else 0.0, []
    for contestant, prompt, difference in comparison.differences:
        if difference.near_tie or difference.margin < margin:
            rounded.append(difference.margin)
            continue
        name, where = comparison.contestants[contestant].label, comparison.prompts[prompt]
        yield "wrong", f"{name} on {where}: {difference.explanation}"
    if rounded:
        yield "works", (f"{len(rounded)} outputs part from the reference where the target's two best logits lie at "
                        f"most {max(rounded):.2g} apart, which is rounding in {dtype}")  # fmt: skip


def of_graphs(graphs: dict[str, Graphs]) -> Iterator[tuple[Kind, str]]:
    """What was captured, failed and was given up."""
    yield "works", f"graphs captured: {', '.join(f'{one.captured} of the {name}' for name, one in graphs.items())}"
    for name, one in graphs.items():
        if one.failure:
            yield "wrong", f"a graph of the {name} could not be captured: {one.failure}"
        if one.evicted:
            yield "slow", f"{one.evicted} graphs of the {name} were given up for others"


def goals(figures: dict) -> Iterator[tuple[Kind, str]]:
    """Contestants that were measured while graphs were made, and the goals, those of the device first."""
    for f in figures["figures"]:
        if f["cold_passes"]:
            yield "slow", f"{f['label']} was measured while graphs were made ({f['cold_passes']} passes)"
    for line in sorted(figures["goals"], key=lambda line: "iterations of" not in line):
        verdict, _, words = line.partition(": ")
        brief = re.sub(r"(, goal [\d.]+[x%]) \(.*", r"\1", words)  # what it consists of stands above
        if verdict in ("goal reached", "goal MISSED"):
            yield ("works" if verdict == "goal reached" else "slow"), brief
        else:
            yield "slow", f"{verdict.removeprefix('goal ')}: {brief}"

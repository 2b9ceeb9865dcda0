"""What a comparison allows to say, and where its methods part: what a tree lost to the chain, and the chain to it."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import combinations
from types import MappingProxyType

import streamlit as st

import decoding
from decoding.analysis.batch import iterations_speedup
from decoding.analysis.bottom_line import BottomLine, Option, bottom_line, paired
from decoding.analysis.slowdown import Slowdown, Stretch, slowdown, stretches
from decoding.common.cost_model import CostModel
from decoding.compare.comparison import Score, without_prefill
from decoding.compare.contestants import Contestant
from decoding.methods.methods import settings_words
from decoding.replay.stored_state import method_of
from decoding.trace.engine_limits import MeasuredChain
from decoding.trace.metrics import Spread
from decoding.trace.records import RunTrace
from pages.ui import PAGES
from pages.ui.common.errors import escape_markdown
from pages.ui.common.state import RunRequest
from pages.ui.compare.plan import ComparisonResult, Step
from pages.ui.engine.config import measured_chain
from pages.ui.widgets.costs import busy_words
from pages.ui.widgets.prompts import OWN_TEXT, prompt_words
from viz.explain.bottom_line import need_words, stretch_words
from viz.formats import plural

LINES = 3
CHAIN = "linear"


def is_plain(entry: Score) -> bool:
    """Whether a contestant is plain decoding, the baseline of the others."""
    return entry.contestant.baseline == "hf_generate" or (
        entry.contestant.method is not None and entry.contestant.method.name == "autoregressive"
    )


def over_plain(entry: Score) -> Spread | None:
    """Speed over plain decoding in the same repeat."""
    return entry.over_autoregressive or entry.over_hf


def plain_of(scores: Sequence[Score]) -> Score | None:
    """What the others are compared with: our autoregressive loop, else that of Hugging Face."""
    measured = [entry for entry in scores if entry.measured and is_plain(entry)]
    return next((entry for entry in measured if entry.run), measured[0] if measured else None)


def decided(
    prompts: Sequence[Sequence[Score]], batches: Mapping[str, Mapping[int, CostModel]] = MappingProxyType({})
) -> BottomLine | None:
    """The bottom line of a comparison, over the scores of each prompt; None where nothing that drafts was measured.

    Args:
        batches: costs by batch size where they are measured, by name of the draft head ("" for the draft model).
    """
    plains = [plain_of(scores) for scores in prompts]
    plain = next((each for each in plains if each), None)
    base = None if plain is None else _speeds(plains)
    options = []
    for mine in zip(*prompts, strict=True):
        speeds = _speeds(mine)
        if not speeds or (base is not None and not speeds.keys() & base.keys()):
            continue
        entry = next(each for each in mine if each.measured)
        alone = plain is not None and len(prompts) == 1
        slow, later = (_against_plain(entry, plain), without_prefill(entry, plain)) if alone else (None, None)
        options.append(
            Option(
                entry.contestant.label, paired(speeds, base), _settings(entry.contestant, entry.run),
                not is_plain(entry), speeds, slow, later, entry.contestant.draft_model, _by_batch(mine, batches),
            )
        )  # fmt: skip
    return bottom_line(options, plain.contestant.label if plain else "")


def _by_batch(scores: Sequence[Score], batches: Mapping[str, Mapping[int, CostModel]]) -> dict[int, float]:
    """Modelled speed-up of a contestant's trees by batch size."""
    method = scores[0].contestant.method
    costs = batches.get(method.draft_head, {}) if method is not None and method.drafter.drafts else {}
    iterations = [each for entry in scores if entry.run is not None for each in entry.run.iterations]
    gains = ((batch, iterations_speedup(iterations, each)) for batch, each in costs.items())
    return {batch: gain for batch, gain in gains if gain is not None}


def needs_by_kind(prompts: Sequence[tuple[Score, ...]], names: Sequence[str]) -> list[str]:
    """Whether a draft model is needed for each kind of text, where the prompts are of several."""
    kinds: dict[str, list[tuple[Score, ...]]] = {}
    for name, scores in zip(names, prompts, strict=True):
        kinds.setdefault(name.rpartition("/")[0], []).append(scores)
    said = []
    for kind, of_kind in kinds.items():
        line = decided(of_kind) if len(kinds) > 1 else None
        if line is not None and line.draft_model is not None:
            called = f"{prompt_words(kind or OWN_TEXT)} ({plural(len(of_kind), 'prompt')})"
            said.append(f"{called} · {need_words(line.draft_model)}")
    return said


def _settings(contestant: Contestant, run: RunTrace | None) -> str:
    """Every setting of a method that drafts, with the verifier that decided; empty for others."""
    if contestant.method is None or run is None or not contestant.method.drafter.drafts:
        return ""
    return ", ".join(settings_words(method_of(run)))


def best_chain(prompts: Sequence[Sequence[Score]], best: str) -> MeasuredChain | None:
    """The fastest contestant that drafts chains, with its speed over that of the best one; None without any.

    Args:
        best: label of a contestant.
    """
    across = {mine[0].contestant.label: mine for mine in zip(*prompts, strict=True)}
    base, found = _speeds(across.pop(best)), []
    for label, mine in across.items():
        speeds, run = _speeds(mine), mine[0].run
        if run is not None and speeds.keys() & base.keys():
            found.append(measured_chain(label, run, paired(speeds, base)))
    return max(filter(None, found), key=lambda chain: chain.speed, default=None)


def _speeds(scores: Sequence[Score | None]) -> dict[tuple[int, int], float]:
    """Tokens per second of one contestant by prompt and repeat."""
    calls = ((prompt, entry.calls) for prompt, entry in enumerate(scores) if entry is not None)
    return {(prompt, at): call.throughput for prompt, each in calls for at, call in each.items() if call.throughput}


def _against_plain(entry: Score, plain: Score) -> Slowdown | None:
    """An iteration of a method against one of plain decoding, whose first one reads the prompt."""
    if entry.run is None or plain.run is None or len(plain.run.iterations) < 2:
        return None
    return slowdown(entry.run, replace(plain.run, iterations=plain.run.iterations[1:]))


def rivals(scores: Sequence[Score]) -> tuple[Score, Score] | None:
    """The fastest tree and the fastest chain, None where one of them was not measured."""
    drafted = [entry for entry in scores if entry.run is not None and any(i.drafted for i in entry.run.iterations)]
    drafted.sort(key=lambda entry: -entry.spread_of("throughput").median)
    tree = next((entry for entry in drafted if entry.contestant.method.name != CHAIN), None)
    chain = next((entry for entry in drafted if entry.contestant.method.name == CHAIN), None)
    return None if tree is None or chain is None else (tree, chain)


def steady(entry: Score, outcome: ComparisonResult) -> RunTrace:
    """The run of a method with each iteration from the repeat in which it took its median time.

    Other work on the machine slows single iterations; repeats that took other steps leave the median repeat as it is.
    """
    runs = [call.run for call in outcome.comparison.of(outcome.comparison.contestants.index(entry.contestant))]
    steps = [tuple(each.committed_ids for each in run.iterations) for run in runs if run is not None]
    if len(steps) < len(runs) or any(each != steps[0] for each in steps):
        return entry.run
    middle = (len(runs) - 1) // 2
    same = zip(*(run.iterations for run in runs), strict=True)
    typical = [sorted(each, key=lambda iteration: iteration.times.total_s)[middle] for each in same]
    return replace(entry.run, iterations=tuple(typical[: len(entry.run.iterations)]))


def losses(slower: RunTrace, faster: RunTrace) -> list[Stretch]:
    """Where one run took longer than the other for the same tokens by other steps, most time first.

    Where both made the same iterations, times differ mostly by what else the machine did at the moment.
    """
    found = [stretch for stretch in stretches(slower, faster) if stretch.lost_s > 0 and stretch.parts]
    return sorted(found, key=lambda stretch: -stretch.lost_s)


def draw_partings(scores: Sequence[Score], outcome: ComparisonResult, go_to: Callable[[RunRequest, int], None]) -> None:
    """Where the fastest tree lost most time to the fastest chain, and the other way round.

    Args:
        go_to: has Step through decode a request up to an iteration; a callback.
    """
    both = rivals(scores)
    if both is None:
        return
    trees = [entry for entry in scores if entry.run is not None and entry.contestant.method.name != CHAIN]
    trees = [entry for entry in trees if any(each.drafted for each in entry.run.iterations)]
    if len(trees) > 1:
        labels, fastest = [entry.contestant.label for entry in trees], both[0].contestant.label
        named = st.selectbox(
            "Tree compared with the fastest chain, token by token", labels, labels.index(fastest),
            key=f"compared_tree_{fastest}", width=420,
        )  # fmt: skip
        both = trees[labels.index(named)], both[1]
    for place, slower, faster in zip(st.columns(2, gap="medium"), both, both[::-1], strict=True):
        with place:
            names = slower.contestant.label, faster.contestant.label
            st.markdown(escape_markdown(f"Where {names[0]} lost to {names[1]}").join(("**", "**")))
            found = losses(steady(slower, outcome), steady(faster, outcome))
            if not found:
                st.caption(nowhere_words(names, slower.output_ids == faster.output_ids))
            for stretch in found[:LINES]:
                _draw_stretch(stretch, slower, faster, outcome, go_to)
    unrest = busy_words(widest_spread([entry for entry in scores if entry.measured]))
    if unrest:
        st.warning(
            f"{unrest} A cause that is a time may be its doing; tokens, settings and gates are not.",
            icon=":material/warning:",
        )
    st.caption(
        "Compared are stretches of the same text that both began and ended with an iteration. Times are medians over "
        "the repeats, without prefill. Open an iteration to see the setting or gate that ended its path."
    )


def nowhere_words(names: tuple[str, str], same_text: bool) -> str:
    """That one run never was the slower one for the same tokens, or that they have too few tokens in common."""
    if not same_text:
        return f"{names[0]} and {names[1]} wrote different texts, and in what they share {names[0]} was never slower."
    return f"{names[0]} was nowhere slower than {names[1]} for the same tokens."


def widest_spread(measured: Sequence[Score]) -> float:
    """How far apart the repeats of one method lie, of the one where they differ most, as a ratio of speeds."""
    spreads = [entry.spread_of("throughput") for entry in measured]
    return max((found.high / found.low for found in spreads), default=1.0)


def places(scores: Sequence[Score]) -> list[int]:
    """Numbers of output tokens after which two methods that draft take different steps, in order."""
    runs = [entry.run for entry in scores if entry.run is not None and any(i.drafted for i in entry.run.iterations)]
    both = (stretches(mine, other) for mine, other in combinations(runs, 2))
    return sorted({stretch.start for found in both for stretch in found if stretch.parts})


def _draw_stretch(
    stretch: Stretch,
    slower: Score,
    faster: Score,
    outcome: ComparisonResult,
    go_to: Callable[[RunRequest, int], None],
) -> None:
    text = "".join(outcome.texts[token] for token in slower.output_ids[stretch.start : stretch.end])
    both, plan = (slower, faster), outcome.plan
    names = slower.contestant.label, faster.contestant.label
    known = outcome.ended.get(outcome.comparison.contestants.index(slower.contestant), {})
    ended = known.get(Step.of(slower.run.iterations[stretch.mine[0]]), "")
    *causes, spent = map(escape_markdown, stretch_words(stretch, (slower.run, faster.run), names, text, ended))
    with st.container(gap="small"):
        for cause in causes:
            st.markdown(cause)
        st.caption(spent)
    with st.container(horizontal=True, gap="medium"):
        for entry, place in zip(both, (stretch.mine[0], stretch.other[0]), strict=True):
            method, label = entry.contestant.method, entry.contestant.label
            asked = RunRequest(plan.prompt, method, plan.sampling, plan.max_new_tokens)
            named = decoding.METHODS[method.name].label
            if st.button(
                f"{named}, iteration {place + 1}", key=f"parting_{names[0]}_{stretch.start}_{label}", type="tertiary",
                icon=":material/footprint:", on_click=go_to, args=(asked, place),
                help=escape_markdown(f"Decode {label} up to here on Step through"),
            ):  # fmt: skip
                st.switch_page(PAGES["Step through"], query_params={})

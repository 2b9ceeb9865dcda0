"""What a comparison found: its bottom line, sentences on each method, where tree and chain part and what that cost."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import combinations
from types import MappingProxyType

import streamlit as st

import decoding
from decoding.analysis.batch import iterations_speedup
from decoding.analysis.bottom_line import FEWEST, BottomLine, Option, bottom_line, paired
from decoding.analysis.slowdown import Slowdown, Stretch, slowdown, stretches
from decoding.common.cost_model import CostModel
from decoding.common.formats import duration, plural
from decoding.compare.comparison import Comparison, Contestant, Score, without_prefill
from decoding.compare.hf_generate import single_row_words
from decoding.methods.methods import settings_words
from decoding.replay.stored_state import method_of
from decoding.trace.engine_limits import MeasuredChain
from decoding.trace.metrics import Spread, decoded
from decoding.trace.records import RunTrace
from pages.ui import PAGES
from pages.ui.common.errors import escape_markdown
from pages.ui.common.state import RunRequest
from pages.ui.compare.plan import ComparisonResult, Step
from pages.ui.engine.config import measured_chain
from pages.ui.widgets.costs import busy_words
from pages.ui.widgets.prompts import OWN_TEXT, prompt_words
from viz.explain.bottom_line import need_words, stretch_words
from viz.explain.iteration import why_not_faster

LINES = 3
CHAIN = "linear"
EVEN = 0.005  # a speed-up this close to 1 is none
APART = 0.02  # two ratios that differ less are not worth a sentence


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
    """An iteration of a method against one of plain decoding; None where one of them only read the prompt."""
    if entry.run is None or plain.run is None or not all(decoded(one.run.iterations) for one in (entry, plain)):
        return None
    return slowdown(entry.run, plain.run)


def times_words(ratio: Spread) -> str:
    """A speed-up; if there is none, it says so, with one more digit."""
    even = abs(ratio.median - 1) < EVEN
    return f"about even ({ratio.median:.3f}×)" if even else f"{ratio.median:.2f}×"


def findings(scores: tuple[Score, ...]) -> list[str]:
    """Sentences: how far to trust the figures, why methods are no faster than plain decoding, what was not measured."""
    plain = plain_of(scores)
    ours = [s for s in scores if s.measured]
    said = [*filter(None, [unrest_words(ours)]), *single_rows(ours), *two_medians_words(ours, plain)]
    for entry in scores:
        if entry.failure:
            said.append(entry.failure)
        elif not entry.measured:
            loops = "its output repeats itself from the first iteration" if entry.output_ids else "it was not measured"
            said.append(f"{entry.contestant.label} has no figures: {loops}.")
        elif plain is not None and not is_plain(entry):
            said += slower_words(entry, plain)
    return said


def two_medians_words(measured: list[Score], plain: Score | None) -> list[str]:
    """Why a median of ratios is not the ratio of the medians shown beside it, for the method where they differ most."""
    if plain is None:
        return []
    base = plain.spread_of("throughput").median
    found = []
    for entry in measured:
        ratio = entry.over_autoregressive if plain.run else entry.over_hf
        if ratio is not None and not is_plain(entry):
            found.append((entry, ratio.median, entry.spread_of("throughput").median / base))
    apart = max(found, key=lambda each: abs(each[1] / each[2] - 1), default=None)
    orders = [sorted(found, key=lambda each, place=place: -each[place]) for place in (1, 2)]
    if apart is None or (abs(apart[1] / apart[2] - 1) < APART and orders[0] == orders[1]):
        return []
    entry, paired_ratio, of_medians = apart
    return [
        f"{entry.contestant.label}: {paired_ratio:.2f}× is the median of the ratios within each repeat, while its "
        f"median tokens/s are {of_medians:.2f}× those of {plain.contestant.label}: the machine's speed drifted between "
        "repeats. The ratios within repeats count."
    ]


def unrest_words(measured: Sequence[Score]) -> str:
    """A warning where repeats of one call differ so much that the machine is too busy to measure; empty if none do."""
    spreads = [entry.spread_of("throughput") for entry in measured]
    return busy_words(max((found.high / found.low for found in spreads), default=1.0))


def single_rows(measured: Sequence[Score]) -> list[str]:
    """What to know of ratios to Hugging Face generate, where it was measured and its single rows may be slow."""
    target = next((entry.run.pair.target for entry in measured if entry.run), None)
    if target is None or all(entry.over_hf is None for entry in measured):
        return []
    return single_row_words(target.device, target.dtype)


def slower_words(entry: Score, plain: Score) -> list[str]:
    """Why a contestant is not faster than plain decoding, from its measured phases; nothing if it is."""
    ratio = entry.over_autoregressive if plain.run else entry.over_hf
    if ratio is None or ratio.median > 1:
        return []
    if ratio.count < FEWEST:
        repeats = plural(ratio.count, "repeat")
        said = f"{entry.contestant.label} was not faster in {repeats} ({ratio.median:.2f}× {plain.contestant.label})"
    elif abs(ratio.median - 1) < EVEN:
        said = f"{entry.contestant.label} is about even with {plain.contestant.label} ({ratio.median:.3f}×)"
    else:
        said = f"{entry.contestant.label} is not faster ({ratio.median:.2f}× {plain.contestant.label})"
    if ratio.high > 1:
        said += ", though the repeats lie on both sides of 1"
    if entry.run is None:
        return [f"{said}; an outside baseline does not report its phases."]
    said += f". {why_not_faster(entry.run)}"
    later = without_prefill(entry, plain) or ratio.median
    if later >= 1 + EVEN:
        prefill = duration(entry.typical.prefill_s)
        return [f"{said} Without prefill it is faster ({later:.2f}×): prefilling both models takes {prefill}."]
    reached = entry.typical.tokens_per_iteration
    if abs(1 - later) < EVEN:
        return [f"{said} Without prefill it is also about even ({later:.3f}×)."]
    digits = 2 if 1 - later > 0.01 else 3  # enough of them to tell both numbers apart
    needed = f"{reached / later:.{digits}f} tokens; it commits {reached:.{digits}f}"
    return [f"{said} To break even, an iteration must commit {needed}."]


def same_words(entry: Score, comparison: Comparison) -> str:
    """The result of the identity check, or why there is none."""
    place = comparison.contestants.index(entry.contestant)
    reference = comparison.reference_of(place)
    if not entry.measured:
        return "–"
    if reference == place:
        return "reference"
    if reference is None:
        return "another distribution (window of attention)"
    if not comparison.sampling.greedy:
        theirs = next((each.output_ids for each in comparison.of(reference) if not each.failure), None)
        return f"same distribution, {'same text with this seed' if entry.output_ids == theirs else 'another text'}"
    if entry.same_output is None:
        return "–"
    if entry.same_output:
        return "✓ identical"
    kind = "≈ near tie" if entry.difference.near_tie else "✗ differs"
    return f"{kind} at token {entry.difference.position + 1}"


def sampled_words(outcome: ComparisonResult, number: int) -> str:
    """What is comparable of a sampled output: its tokens per pass, and their mean over all draws of the verifier."""
    reference = outcome.comparison.contestants[outcome.comparison.reference].label
    said = f"Every method samples from the distribution of {reference} with the same seed. Their texts may agree or "
    said += "differ: neither proves anything."
    luck = outcome.expected.get(number)
    if luck is None:
        return said
    passes = len(luck.tokens)
    return (
        f"{said} Compare the tokens per pass: {luck.happened / passes:.2f} came, {luck.mean / passes:.2f} ± "
        f"{luck.deviation / passes:.2f} expected (exact, over all draws of the verifier)."
    )


def rivals(scores: Sequence[Score]) -> tuple[Score, Score] | None:
    """The fastest tree and the fastest chain, None where one of them was not measured."""
    drafted = sorted(_drafting(scores), key=lambda entry: -entry.spread_of("throughput").median)
    tree = next((entry for entry in drafted if entry.contestant.method.name != CHAIN), None)
    chain = next((entry for entry in drafted if entry.contestant.method.name == CHAIN), None)
    return None if tree is None or chain is None else (tree, chain)


def _drafting(scores: Sequence[Score]) -> list[Score]:
    return [entry for entry in scores if entry.run is not None and any(i.drafted for i in entry.run.iterations)]


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
    trees = [entry for entry in _drafting(scores) if entry.contestant.method.name != CHAIN]
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
                said = f"{names[0]} was nowhere slower than {names[1]} for the same tokens."
                if slower.output_ids != faster.output_ids:
                    said = f"{names[0]} and {names[1]} wrote different texts, and in what they share"
                    said += f" {names[0]} was never slower."
                st.caption(said)
            for stretch in found[:LINES]:
                _draw_stretch(stretch, slower, faster, outcome, go_to)
    if unrest := unrest_words([entry for entry in scores if entry.measured]):
        st.warning(
            f"{unrest} A cause that is a time may be its doing; tokens, settings and gates are not.",
            icon=":material/warning:",
        )
    st.caption(
        "Compared are stretches of the same text that both began and ended with an iteration. Times are medians over "
        "the repeats, without prefill. Open an iteration to see the setting or gate that ended its path."
    )


def places(scores: Sequence[Score]) -> list[int]:
    """Numbers of output tokens after which two methods that draft take different steps, in order."""
    both = (stretches(mine.run, other.run) for mine, other in combinations(_drafting(scores), 2))
    return sorted({stretch.start for found in both for stretch in found if stretch.parts})


def _draw_stretch(
    stretch: Stretch, slower: Score, faster: Score, outcome: ComparisonResult, go_to: Callable[[RunRequest, int], None]
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

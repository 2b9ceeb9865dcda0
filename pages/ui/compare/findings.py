"""What a comparison found, in sentences: how far to trust it, why a method is no faster, what is the same."""

from decoding.analysis.bottom_line import FEWEST
from decoding.compare.comparison import Comparison, Score, without_prefill
from decoding.trace.metrics import Spread
from pages.ui.compare.bottom_line import is_plain, plain_of, widest_spread
from pages.ui.compare.plan import ComparisonResult
from pages.ui.widgets.costs import busy_words
from viz.explain.iteration import why_not_faster
from viz.formats import duration, plural

EVEN = 0.005  # a speed-up this close to 1 is none
APART = 0.02  # two ratios that differ less are not worth a sentence


def times_words(ratio: Spread) -> str:
    """A speed-up; if there is none, it says so, with one more digit."""
    even = abs(ratio.median - 1) < EVEN
    return f"about even ({ratio.median:.3f}×)" if even else f"{ratio.median:.2f}×"


def findings(scores: tuple[Score, ...]) -> list[str]:
    """Sentences: how far to trust the figures, why methods are no faster than plain decoding, what was not measured."""
    plain = plain_of(scores)
    ours = [s for s in scores if s.measured]
    said = [*unrest_words(ours), *two_medians_words(ours, plain)]
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


def unrest_words(measured: list[Score]) -> list[str]:
    """A warning where repeats of the same call differ so much that the machine is too busy to measure."""
    return [said] if (said := busy_words(widest_spread(measured))) else []


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

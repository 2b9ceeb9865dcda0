"""What the measurements of a comparison say in sentences; pure functions of the scores."""

from collections.abc import Sequence

from decoding.compare.comparison import Contestant
from decoding.compare.scoreboard import Score, without_prefill
from decoding.trace.metrics import Spread
from pages.ui.compare.plan import Outcome, Plan
from pages.ui.widgets.controls import prompt_words, sampling_words
from viz.explain.iteration import why_not_faster
from viz.formats import duration, plural

UNREST = 1.5
EVEN = 0.005
"""A speed-up this close to 1 is none."""
PAIRED = (
    "× is the median over the repeats of this method's tokens/s over those of plain decoding in the same repeat, so "
    "that drift of the machine cancels. It need not be the ratio of the two medians drawn as bars."
)


def label_of(entry: Score) -> str:
    """What the screen calls a contestant."""
    return entry.contestant.label


def is_plain(entry: Score) -> bool:
    """Whether a contestant is one that the others are measured against."""
    return entry.contestant.baseline == "hf_generate" or (
        entry.contestant.method is not None and entry.contestant.method.name == "autoregressive"
    )


def times_words(ratio: Spread) -> str:
    """A speed-up; where it is none, so said, with one digit more."""
    even = abs(ratio.median - 1) < EVEN
    return f"about even ({ratio.median:.3f}×)" if even else f"{ratio.median:.2f}×"


def changed_words(outcome: Outcome, plan: Plan, contestants: Sequence[Contestant]) -> str:
    """What was set when the figures were measured, where something else is set by now; empty if nothing is."""
    old, methods = outcome.plan, outcome.comparison.contestants
    said = []
    if list(map(_way, methods)) != list(map(_way, contestants)):
        said.append(", ".join(contestant.label for contestant in methods))
    if old.prompt != plan.prompt:
        said.append(prompt_words(old.prompt.name))
    if (old.max_new_tokens, old.repeats, old.warmup) != (plan.max_new_tokens, plan.repeats, plan.warmup):
        said.append(f"{old.max_new_tokens} tokens × {plural(old.repeats, 'repeat')} after {old.warmup} warm-up")
    if old.sampling != plan.sampling:
        said.append(f"{sampling_words(old.sampling)}, seed {old.sampling.seed}")
    if not said:
        return ""
    return f"These figures were measured with another setting ({'; '.join(said)}): press Compare to measure again."


def _way(contestant: Contestant) -> tuple:
    """What a contestant does, whatever it is called."""
    method = contestant.method
    return contestant.baseline, contestant.engine, method and (method.name, method.settings())


def findings(scores: tuple[Score, ...]) -> list[str]:
    """Sentences: who is fastest, why others are not faster than plain decoding, what could not be measured."""
    plain = next((s for s in scores if s.measured and s.run and is_plain(s)), None)
    plain = plain or next((s for s in scores if s.measured and is_plain(s)), None)
    ours = [s for s in scores if s.measured]
    said = unrest_words(ours)
    if len(ours) > 1:
        best = max(ours, key=lambda s: s.spread_of("throughput").median)
        ratios = [
            f"{times_words(ratio)} {name}"
            for ratio, name in ((best.over_autoregressive, "autoregressive"), (best.over_hf, "Hugging Face generate"))
            if ratio
        ]
        against = f": {' and '.join(ratios)}" if ratios and not is_plain(best) else ""
        fastest = f"{label_of(best)} is fastest at {best.spread_of('throughput').median:.1f} tokens/s{against}."
        said.append(f"{fastest}{doubt_words(best, ours)}")
    for entry in scores:
        if entry.failure:
            said.append(entry.failure)
        elif not entry.measured:
            loops = (
                "its output repeats itself from the first iteration on" if entry.output_ids else "it was not reached"
            )
            said.append(f"{label_of(entry)} has no figures: {loops}.")
        elif plain is not None and not is_plain(entry):
            said += slower_words(entry, plain)
    return said


def doubt_words(best: Score, measured: list[Score]) -> str:
    """Which contestants may be as fast as the fastest one, because some of their repeats were; empty for none."""
    slowest = min(call.throughput for call in best.calls.values())
    rivals = [
        label_of(entry)
        for entry in measured
        if entry is not best and max(call.throughput for call in entry.calls.values()) >= slowest
    ]
    if not rivals or len(best.calls) < 2:
        return ""
    named = " and ".join([", ".join(rivals[:-1]), rivals[-1]] if rivals[1:] else rivals)
    return f" Its repeats overlap with those of {named}: their order is not certain."


def unrest_words(measured: list[Score]) -> list[str]:
    """A warning where repeats of the same call differ so much that figures say more about the machine."""
    spreads = [entry.spread_of("throughput") for entry in measured]
    widest = max((found.high / found.low for found in spreads), default=1.0)
    if widest < UNREST:
        return []
    return [
        f"Repeats of the same call differ by up to {widest:.1f}×: other work disturbs this machine. End it or raise "
        "the repeats before trusting small differences."
    ]


def slower_words(entry: Score, plain: Score) -> list[str]:
    """Why a contestant is not faster than plain decoding, from its measured phases; nothing if it is."""
    ratio = entry.over_autoregressive if plain.run else entry.over_hf
    if ratio is None or ratio.median > 1:
        return []
    if abs(ratio.median - 1) < EVEN:
        said = f"{label_of(entry)} is about even with {label_of(plain)} ({ratio.median:.3f}×)"
    else:
        said = f"{label_of(entry)} is not faster ({ratio.median:.2f}× {label_of(plain)})"
    if ratio.high > 1:
        said += ", though the quartiles of the repeats reach both sides of 1"
    if entry.run is None:
        return [f"{said}; an outside baseline does not report its phases."]
    said += f". {why_not_faster(entry.run)}"
    later = without_prefill(entry, plain) or ratio.median
    if later > 1:
        prefill = duration(entry.typical.prefill_s)
        return [f"{said} Without prefill it is faster ({later:.2f}×): the prefill of both models takes {prefill}."]
    reached = entry.typical.tokens_per_iteration
    if 1 - later < EVEN:
        return [f"{said} Without prefill it is even as well ({later:.3f}×)."]
    digits = 2 if 1 - later > 0.01 else 3  # enough of them to tell both numbers apart
    needed = f"{reached / later:.{digits}f} tokens; it commits {reached:.{digits}f}"
    return [f"{said} To break even, an iteration has to commit {needed}."]


def memory_words(outcome: Outcome) -> str:
    """What the row of peak memory counts on this device."""
    if outcome.pair.target.device.startswith("cuda"):
        return "Peak memory: the most bytes allocated on the GPU during the call, both models' weights included."
    return (
        "Peak memory on this device counts weights and key/value caches of the models that the method uses; "
        "what Hugging Face allocates inside its own calls is not known."
    )


def same_words(entry: Score) -> str:
    """The identity check in a few words."""
    if entry.same_output is None:
        return "reference" if entry.measured else "–"
    if entry.same_output:
        return "✓ identical"
    kind = "≈ near tie" if entry.difference.near_tie else "✗ differs"
    return f"{kind} at token {entry.difference.position + 1}"

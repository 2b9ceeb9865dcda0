"""What the measurements of a comparison say in sentences; pure functions of the scores."""

from decoding.scoreboard import Score, without_prefill
from pages.ui.compare import Outcome
from viz.explain import why_not_faster
from viz.tokens import milliseconds

UNREST = 1.5


def label_of(entry: Score) -> str:
    """What the screen calls a contestant."""
    return entry.contestant.label


def is_plain(entry: Score) -> bool:
    """Whether a contestant is one that the others are measured against."""
    return entry.contestant.baseline == "hf_generate" or (
        entry.contestant.method is not None and entry.contestant.method.name == "autoregressive"
    )


def findings(scores: tuple[Score, ...]) -> list[str]:
    """Sentences: who is fastest, why others are not faster than plain decoding, what could not be measured."""
    plain = next((s for s in scores if s.measured and s.run and is_plain(s)), None)
    plain = plain or next((s for s in scores if s.measured and is_plain(s)), None)
    ours = [s for s in scores if s.measured]
    said = unrest_words(ours)
    if len(ours) > 1:
        best = max(ours, key=lambda s: s.spread_of("throughput").median)
        ratios = [
            f"{ratio.median:.2f}× {name}"
            for ratio, name in ((best.over_autoregressive, "autoregressive"), (best.over_hf, "Hugging Face generate"))
            if ratio
        ]
        against = f": {' and '.join(ratios)}" if ratios and not is_plain(best) else ""
        said.append(f"{label_of(best)} is fastest at {best.spread_of('throughput').median:.1f} tokens/s{against}.")
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
    said = f"{label_of(entry)} is not faster ({ratio.median:.2f}× {label_of(plain)})"
    if ratio.high > 1:
        said += ", though the quartiles of the repeats reach both sides of 1"
    if entry.run is None:
        return [f"{said}; an outside baseline does not report its phases."]
    said += f". {why_not_faster(entry.run)}"
    later = without_prefill(entry, plain) or ratio.median
    if later > 1:
        prefill = milliseconds(entry.typical.prefill_s)
        return [f"{said} Without prefill it is faster ({later:.2f}×): the prefill of both models takes {prefill}."]
    reached = entry.typical.tokens_per_iteration
    return [f"{said} To break even, an iteration has to commit {reached / later:.2f} tokens; it commits {reached:.2f}."]


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

"""What one setting did on a prefix or in a whole generation, in words and as points of the chart."""

from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING

from decoding.trace.records import IterationTrace
from pages.ui.widgets.trained import DRAFT_HEAD
from viz.charts.methods import ITERATION, WHOLE, Tried
from viz.formats import duration, plural

if TYPE_CHECKING:
    from decoding.methods.method import Method


@dataclass(eq=False)
class Trial:
    """What one setting does on the prefix. `seconds`: measured repeats, empty until measured."""

    number: int
    method: "Method"
    iteration: IterationTrace
    seconds: tuple[float, ...] = ()

    @property
    def median_s(self) -> float | None:
        """Measured time of the iteration, None until measured."""
        return median(self.seconds) if self.seconds else None


def first_difference(first: tuple[int, ...], second: tuple[int, ...]) -> int | None:
    """Where two outputs part, None if they agree as far as the shorter one goes."""
    pairs = zip(first, second, strict=False)
    return next((place for place, (one, other) in enumerate(pairs) if one != other), None)


def changed_words(method: "Method") -> str:
    """What differs from the paper's defaults: `D_max 10, τ 0.02`; empty for the defaults themselves."""
    from decoding.methods.methods import METHODS

    defaults = METHODS[method.name].with_settings(verifier=method.verifier.name).all_settings()
    defaults["verifier"] = METHODS[method.name].verifier.name
    parts = []
    for name, value in method.all_settings().items():
        if value != defaults[name] and name != DRAFT_HEAD:  # the label tells it
            shown = ("on" if value else "off") if isinstance(value, bool) else f"{value:g}" if _number(value) else value
            parts.append(f"{method.infos[name].short} {str(shown).replace('_', ' ')}")
    return ", ".join(parts)


def label_of(method: "Method") -> str:
    """A method and what differs from its defaults, in one line."""
    unchanged = "the paper’s defaults" if any(info.paper for info in method.infos.values()) else "its defaults"
    return f"{method.label} · {changed_words(method) or unchanged}"


def iteration_point(trial: Trial) -> Tried:
    """The point that one iteration leaves on the chart."""
    iteration = trial.iteration
    tokens, accepted = len(iteration.committed_ids), len(iteration.accepted)
    details = (
        f"{accepted} of {plural(iteration.drafted, 'drafted node')} accepted, {plural(tokens, 'token')} committed in "
        f"{duration(trial.median_s)} (median of {len(trial.seconds)})"
    )
    share = accepted / iteration.drafted if iteration.drafted else 0.0
    return Tried(label_of(trial.method), tokens / trial.median_s, share, ITERATION, details)


def whole_point(method: "Method", metrics, loops: int) -> Tried:
    """The point that a whole generation leaves on the chart."""
    details = (
        f"whole generation: {metrics.new_tokens} tokens in {metrics.iterations} iterations, "
        f"{metrics.accepted or 0} of {plural(metrics.drafted or 0, 'drafted node')} accepted"
        + (f", {plural(loops, 'iteration')} in a loop" if loops else "")
    )
    return Tried(label_of(method), metrics.decode_throughput, metrics.acceptance_drafted or 0.0, WHOLE, details)


def whole_words(method: "Method", metrics, loops: int, parted: int | None) -> str:
    """The last whole generation in words."""
    parts = [
        f"{label_of(method)}: {metrics.decode_throughput:,.0f} tokens/s without prefill, "
        f"{metrics.throughput:,.0f} with it; {metrics.new_tokens} tokens in {plural(metrics.iterations, 'iteration')}, "
        f"{metrics.tokens_per_iteration:.2f} tokens each."
    ]
    parts.append("It averages over all of them; “tokens / s here” is one iteration, at one place.")
    if loops:
        parts.append(f"{plural(loops, 'iteration')} inside a repeated passage flatter{'s' if loops == 1 else ''} it.")
    if parted is None:
        parts.append("Same text as the prefix comes from.")
    else:
        parts.append(f"Its text parts from the prefix's at token {parted + 1}: Compare shows by what margin.")
    return " ".join(parts)


def _number(value) -> bool:
    return isinstance(value, int | float)

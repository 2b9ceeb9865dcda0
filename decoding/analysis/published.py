"""How far modelled gains are from published ones, and which acceptance was published: the stored comparison, read.

    band = error_band(8, 8)             # of the published gains at batches of 4 to 16
    band.of(1.27)                       # what is left of a modelled gain: (low, high)

`python -m benchmarks.roofline_published --save` writes what is read here.
"""

import json
from dataclasses import dataclass
from functools import lru_cache
from statistics import median

from decoding.common.files import ROOT

STORED = ROOT / "decoding" / "experiments" / "results" / "roofline_published-cpu.json"
APART = 2  # a published batch counts for those up to twice as large or half as large


@dataclass(frozen=True)
class Published:
    """A published gain: of what, at which batch, K and mean acceptance length, and how far above it the model is."""

    what: str
    source: str
    batch: int
    length: int
    tokens: float
    error: float
    fitted: bool


@dataclass(frozen=True)
class ErrorBand:
    """The smallest and the largest error of `count` modelled gains at batches from `first` to `last`."""

    low: float
    high: float
    count: int
    first: int
    last: int

    def of(self, gain: float) -> tuple[float, float]:
        """A modelled gain with the largest and with the smallest of these errors taken off."""
        return gain / (1 + self.high), gain / (1 + self.low)


@lru_cache
def published_gains() -> tuple[Published, ...]:
    """Every published gain of the stored comparison."""
    figures = json.loads(STORED.read_text(encoding="utf-8"))["figures"]
    names = Published.__dataclass_fields__
    return tuple(Published(**{name: each[name] for name in names}) for each in figures if each["unit"] == "x")


def error_band(first: int, last: int) -> ErrorBand:
    """Of the figures near these batches, or near the largest one that was published; those that the model was fitted
    to are left out.
    """
    judged = [each for each in published_gains() if not each.fitted]
    largest = max(each.batch for each in judged)
    low, high = min(first, largest) / APART, min(last, largest) * APART
    chosen = [each for each in judged if low <= each.batch <= high]
    errors, batches = [each.error for each in chosen], [each.batch for each in chosen]
    return ErrorBand(min(errors), max(errors), len(chosen), min(batches), max(batches))


def caution() -> str:
    """How far all published gains that the model was not fitted to are from it, in a sentence."""
    errors = sorted(each.error for each in published_gains() if not each.fitted)
    return (
        f"Modelled is what the hardware permits: {len(errors)} published gains of EAGLE heads in vLLM and SGLang are "
        f"{abs(1 / (1 + median(errors)) - 1):.0%} below it in the median, from {1 / (1 + errors[0]) - 1:+.0%} to "
        f"{1 / (1 + errors[-1]) - 1:+.0%}."
    )


def published_lengths(length: int) -> dict[str, float]:
    """Mean acceptance lengths published for drafts of so many tokens, by what drafted and the source."""
    found: dict[str, Published] = {}
    for each in published_gains():
        if each.length == length:  # of gains with another's length, the one that published it stands first
            found.setdefault(each.what.split(",")[0], each)
    return {f"{what} ({each.source})": each.tokens for what, each in found.items()}


def least_first() -> float:
    """The lowest first position that a published mean length of K = 2 leaves room for: half of what it accepts."""
    return min((each.tokens - 1) / 2 for each in published_gains() if each.length == 2)

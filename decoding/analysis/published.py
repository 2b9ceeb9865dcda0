"""How far modelled gains are from published ones, and which acceptance was published: the stored comparison, read.

    1.27 * gain_band().middle           # a modelled gain as the median of published ones has it

`python -m benchmarks.roofline_published --save` writes what is read here.
"""

import json
from dataclasses import dataclass
from functools import lru_cache
from statistics import median

from decoding.common.files import ROOT

STORED = ROOT / "decoding" / "experiments" / "results" / "roofline_published-cpu.json"


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
class GainBand:
    """The smallest, the middle and the largest of `count` published gains over modelled ones."""

    low: float
    middle: float
    high: float
    count: int


@lru_cache
def published_gains() -> tuple[Published, ...]:
    """Every published gain of the stored comparison."""
    figures = json.loads(STORED.read_text(encoding="utf-8"))["figures"]
    names = Published.__dataclass_fields__
    return tuple(Published(**{name: each[name] for name in names}) for each in figures if each["unit"] == "x")


def gain_band() -> GainBand:
    """Of all published gains but those that the model was fitted to."""
    over = [1 / (1 + each.error) for each in published_gains() if not each.fitted]
    return GainBand(min(over), median(over), max(over), len(over))


def caution() -> str:
    """How far published gains are from modelled ones, in a sentence."""
    band = gain_band()
    side = "below" if band.middle < 1 else "above"
    return (
        f"Modelled is what the hardware permits: {band.count} published gains of EAGLE heads in vLLM and SGLang are "
        f"{abs(band.middle - 1):.0%} {side} it in the median, from {band.low - 1:+.0%} to {band.high - 1:+.0%}. None "
        "was found of a draft model."
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

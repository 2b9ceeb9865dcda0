"""The bottom line of a measurement: whether to speculate and with what, by how much, how sure, what would decide it.

    line = bottom_line([Option("DynaTree", paired(tree_speeds, plain_speeds))], plain="Autoregressive")
    line.verdict                     # "speculate", "plain" or "open"

It takes measured figures alone, whatever measured them. `viz.explain.bottom_line` puts it into words.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import exp, log, sqrt
from statistics import fmean, median, stdev
from typing import Literal

from decoding.analysis.slowdown import Slowdown

FEWEST = 3  # repeats, prompts or other samples: fewer have no interval and decide nothing
CONFIDENCE = 0.95
MOST = 100  # repeats that are worth advising
Verdict = Literal["speculate", "plain", "open"]
Need = Literal["yes", "no", "open"]


@dataclass(frozen=True, slots=True)
class Interval:
    """A measured figure, and the 95% interval of its mean over repeats or prompts."""

    value: float  # the median over the repeats of one prompt, the mean over several prompts
    # low, high: the interval; with fewer than `FEWEST` of `count`, just the range
    low: float
    high: float
    count: int
    per: Literal["repeat", "prompt"] = "repeat"  # what `count` counts

    @property
    def decides(self) -> bool:
        """Whether there is enough for an interval."""
        return self.count >= FEWEST

    def apart(self, other: "Interval") -> bool:
        """Whether both have an interval, and these do not overlap."""
        return self.decides and other.decides and (self.low > other.high or other.low > self.high)

    def half(self, count: int) -> float:
        """Half the width of the interval's logarithm with another count, at the same spread."""
        now = log(self.high / self.low) / 2
        return now * _per_deviation(count) / _per_deviation(self.count)


@dataclass(frozen=True, slots=True)
class Option:
    """One way to decode with what was measured of it."""

    # label: its name; `settings`: what the name does not say of them, as text
    label: str
    # Speed over that of plain decoding in the same repeat; tokens per second where that was not measured
    figure: Interval
    settings: str = ""
    # speculates: whether it drafts. draft_model: whether it needs a draft model to do so.
    speculates: bool = True
    # What the figure is made of, by prompt and repeat
    speeds: Mapping[tuple[int, int], float] = field(default_factory=dict)
    # One of its runs against plain decoding, None where the phases of one are not known
    slowdown: Slowdown | None = None
    # The same ratio as `figure` with the prefills left out; None where there is none
    without_prefill: float | None = None
    draft_model: bool = True
    # Modelled speed-up of its own trees by the number of sequences decoded at once; empty where unknown
    batches: Mapping[int, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class DraftModelNeed:
    """Whether a draft model pays beside what drafts without one."""

    # `yes` where an option with one is faster than each without, plain decoding among them; `no` the other way round;
    # else `open`
    verdict: Need
    best: Option  # the option that decides it; where it is open, the one with the best figure
    other: Option  # the best one of the other kind; where it is open, of those that may be as fast
    ratio: Interval  # speed of `best` over that of `other` in the same repeat


@dataclass(frozen=True, slots=True)
class BottomLine:
    """What the figures allow to say."""

    # `speculate` where a way to speculate is faster than plain decoding, `plain` where all are slower, else `open`: too
    # little was measured, or the intervals reach both sides
    verdict: Verdict
    best: Option  # the option to take, or the one with the best figure where none is decided
    rivals: tuple[Option, ...]  # options that may be as fast as the best one
    plain: str  # name of plain decoding; empty where it was not measured
    # Repeats that would decide what is open, at the spread measured; None where not even `MOST` would
    needed: int | None
    # Whether a draft model is needed; None where not both kinds of drafting were measured
    draft_model: DraftModelNeed | None = None

    @property
    def winner(self) -> Option | None:
        """The one option that is faster than all others; None where the figures do not tell."""
        settled = self.verdict == "speculate" or not self.plain
        return self.best if settled and self.best.figure.decides and not self.rivals else None


def paired(mine: Mapping[tuple[int, int], float], other: Mapping[tuple[int, int], float] | None = None) -> Interval:
    """A speed over another one, each pair measured in the same repeat, so that drift of the machine cancels.

    Both are tokens per second by prompt and repeat; without `other`, the speed itself. Raises `ValueError` where both
    have no repeat in common.
    """
    by_prompt: dict[int, list[float]] = {}
    for (prompt, repeat), speed in mine.items():
        base = 1.0 if other is None else other.get((prompt, repeat))
        if base:
            by_prompt.setdefault(prompt, []).append(speed / base)
    if not by_prompt:
        raise ValueError("no repeat was measured with both.")
    if len(by_prompt) > 1:
        values = [median(ratios) for ratios in by_prompt.values()]
        return _interval(values, fmean(values), "prompt")
    (values,) = by_prompt.values()
    return _interval(values, median(values), "repeat")


def bottom_line(options: Sequence[Option], plain: str = "") -> BottomLine | None:
    """What to decode with; None where no option speculates. `plain` names plain decoding if figures are ratios over it.

    A winner has to be faster than each other one in the same repeats, or on the same prompts: what all options share, a
    drifting machine or texts that differ, cancels. Where only figures are known, its interval has to lie above theirs.
    """
    drafting = sorted((each for each in options if each.speculates), key=lambda each: -each.figure.value)
    if not drafting:
        return None
    known = [each for each in drafting if each.figure.decides]
    faster = [each for each in known if not plain or each.figure.low > 1]
    best = (faster or drafting)[0]
    verdict: Verdict = "speculate" if plain and faster else "open"
    if plain and len(known) == len(drafting) and all(each.figure.high < 1 for each in known):
        verdict = "plain"
    others = drafting if plain else sorted(options, key=lambda each: -each.figure.value)
    rivals = tuple(each for each in others if each is not best and not _slower(each, best))
    return BottomLine(verdict, best, rivals, plain, _needed(verdict, best, rivals, plain), draft_model_need(options))


def draft_model_need(options: Sequence[Option]) -> DraftModelNeed | None:
    """Whether one of the options that need a draft model is faster than all others; see `DraftModelNeed`."""
    kinds = [[each for each in options if (each.speculates and each.draft_model) is kind] for kind in (True, False)]
    with_one, without = kinds
    shared = set.intersection(*(set(each.speeds) for each in options))
    if not (shared and with_one and any(each.speculates for each in without)):
        return None
    tops = [max(kind, key=lambda each: each.figure.value) for kind in kinds]
    sides: list[tuple[Need, list[Option], list[Option]]] = [("yes", with_one, without), ("no", without, with_one)]
    for verdict, mine, others in sides:
        sure = [each for each in mine if all(_sure(paired(each.speeds, other.speeds)) for other in others)]
        if sure:
            best, other = max(sure, key=lambda each: each.figure.value), tops[mine is with_one]
            return DraftModelNeed(verdict, best, other, paired(best.speeds, other.speeds))
    best = max(options, key=lambda each: each.figure.value)
    rivals = without if best in with_one else with_one
    doubtful = [each for each in rivals if not _sure(paired(best.speeds, each.speeds))]
    other = max(doubtful, key=lambda each: each.figure.value)
    return DraftModelNeed("open", best, other, paired(best.speeds, other.speeds))


def _sure(ratio: Interval) -> bool:
    return ratio.decides and ratio.low > 1


def _slower(option: Option, best: Option) -> bool:
    if ratio := between(best, option):
        return _sure(ratio)
    return option.figure.apart(best.figure) and option.figure.value < best.figure.value


def between(best: Option, other: Option) -> Interval | None:
    """Speed of one option over another's in the same repeats, None where they have none in common."""
    return paired(best.speeds, other.speeds) if best.speeds.keys() & other.speeds.keys() else None


def _needed(verdict: Verdict, best: Option, rivals: Sequence[Option], plain: str) -> int | None:
    if not best.figure.decides or not all(each.figure.decides for each in rivals):
        return FEWEST
    first = best.figure
    # The intervals that have to get as narrow as the logarithm of the ratio that they are of.
    pairs: list[tuple[float, tuple[Interval, ...]]] = [
        (ratio.value, (ratio,))
        if (ratio := between(best, each))
        else (first.value / each.figure.value, (first, each.figure))
        for each in rivals
    ]
    if verdict == "open" and plain:
        pairs = [(first.value, (first,))]
    for count in range(first.count + 1, MOST + 1):
        if all(sum(each.half(count) for each in parts) < abs(log(ratio)) for ratio, parts in pairs):
            return count
    return None


def _interval(values: Sequence[float], middle: float, per: Literal["repeat", "prompt"]) -> Interval:
    """Student's t on the logarithms: speeds have no lower bound but 0, and three repeats that agree by chance still
    have a wide one. It always holds the middle.
    """
    if len(values) < FEWEST:
        return Interval(middle, min(values), max(values), len(values), per)
    logs = [log(value) for value in values]
    half = stdev(logs) * _per_deviation(len(logs))
    low, high = exp(fmean(logs) - half), exp(fmean(logs) + half)
    return Interval(middle, min(low, middle), max(high, middle), len(values), per)


def _per_deviation(count: int) -> float:
    """Half the width of a 95% interval of a mean, in standard deviations of its `count` values."""
    from scipy.special import stdtrit

    return float(stdtrit(count - 1, (1 + CONFIDENCE) / 2)) / sqrt(count)

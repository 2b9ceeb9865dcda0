"""Why one run takes longer per token than another: the factors that multiply to the ratio, from measured phases."""

import math
from dataclasses import dataclass

from decoding.trace.records import PHASES, RunTrace

# Phases with a reason of their own; the others are bookkeeping.
DRAFT, VERIFY, REBUILD, REST, TOKENS = "draft", "verify", "rebuild", "rest", "tokens"
REASONS: tuple[str, ...] = (DRAFT, VERIFY, REBUILD, REST, TOKENS)


@dataclass(frozen=True)
class PhaseMeans:
    """Means over the iterations of a run."""

    # Seconds per iteration by reason (`REASONS` without `tokens`); what no phase claims is in `rest`
    seconds: dict[str, float]
    tokens: float  # committed tokens per iteration (block efficiency)

    @property
    def token_s(self) -> float:
        """Seconds of a committed token, prefill left out."""
        return sum(self.seconds.values()) / self.tokens


@dataclass(frozen=True)
class Slowdown:
    """A run against another one."""

    ratio: float  # seconds per token over those of the other run; above 1 the run is slower
    factors: dict[str, float]  # what each reason contributes; their product is the ratio
    # mine, other: the means that they come from
    mine: PhaseMeans
    other: PhaseMeans

    @property
    def reason(self) -> str:
        """The reason with the largest factor."""
        return max(self.factors, key=self.factors.__getitem__)


def phase_means(run: RunTrace) -> PhaseMeans:
    """Means of a run that has iterations and committed something."""
    count = len(run.iterations)
    total = sum(each.times.total_s for each in run.iterations) / count
    phase = {name: sum(each.phase_s[name] for each in run.iterations) / count for name in PHASES}
    own = {name: phase[name] for name in (DRAFT, VERIFY, REBUILD)}
    own[REST] = max(0.0, total - sum(own.values()))
    return PhaseMeans(own, sum(len(each.committed_ids) for each in run.iterations) / count)


def slowdown(run: RunTrace, other: RunTrace) -> Slowdown:
    """How much slower a run is per token, split into factors.

    The seconds of an iteration are a sum, so their ratio is split by the logarithmic mean: a phase that adds
    s - s' seconds contributes exp((s - s') / L) with L = (S - S') / ln(S / S'). The tokens of an iteration divide.
    """
    mine, theirs = phase_means(run), phase_means(other)
    total, base = sum(mine.seconds.values()), sum(theirs.seconds.values())
    mean = total if math.isclose(total, base) else (total - base) / math.log(total / base)
    factors = {name: math.exp((mine.seconds[name] - theirs.seconds[name]) / mean) for name in mine.seconds}
    factors[TOKENS] = theirs.tokens / mine.tokens
    return Slowdown(mine.token_s / theirs.token_s, factors, mine, theirs)

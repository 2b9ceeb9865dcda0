"""Why one run takes longer per token than another: the factors that multiply to the ratio, from measured phases."""

import math
from dataclasses import dataclass, replace
from itertools import accumulate, pairwise

from decoding.trace.metrics import decoded, shared_tokens
from decoding.trace.records import PHASES, RunTrace

# Phases with a reason of their own; the others are bookkeeping.
DRAFT, VERIFY, REBUILD, REST, TOKENS = "draft", "verify", "rebuild", "rest", "tokens"
REASONS: tuple[str, ...] = (DRAFT, VERIFY, REBUILD, REST, TOKENS)


@dataclass(frozen=True)
class PhaseMeans:
    """Means over the iterations of a run after its prompt was read."""

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
    """Means of a run that has `decoded` iterations and committed something in them."""
    iterations = decoded(run.iterations)
    count = len(iterations)
    total = sum(each.times.total_s for each in iterations) / count
    phase = {name: sum(each.phase_s[name] for each in iterations) / count for name in PHASES}
    own = {name: phase[name] for name in (DRAFT, VERIFY, REBUILD)}
    own[REST] = max(0.0, total - sum(own.values()))
    return PhaseMeans(own, sum(len(each.committed_ids) for each in iterations) / count)


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


@dataclass(frozen=True)
class Stretch:
    """Output tokens `start` to `end` (0-based, the last left out) that two runs committed, each in its own iterations.

    Both begin an iteration at its start and at its end, and nowhere else in it.
    """

    start: int
    end: int
    # mine, other: indices of the iterations of both runs
    mine: tuple[int, ...]
    other: tuple[int, ...]
    lost: Slowdown  # mine against the other; its ratio is above 1 where mine took longer

    @property
    def parts(self) -> bool:
        """Whether both went there in different steps."""
        return len(self.mine) + len(self.other) > 2

    @property
    def lost_s(self) -> float:
        """Seconds that mine took longer."""
        return (self.lost.mine.token_s - self.lost.other.token_s) * (self.end - self.start)


def stretches(run: RunTrace, other: RunTrace) -> tuple[Stretch, ...]:
    """Two runs of the same text side by side, in order, as far as their texts are equal.

    A stretch in which an iteration of one of them reads the prompt is left out.
    """
    ends = [[0, *accumulate(len(each.committed_ids) for each in one.iterations)] for one in (run, other)]
    same = shared_tokens(run.output_ids, other.output_ids)
    shared = sorted(end for end in {*ends[0]} & {*ends[1]} if end <= same)
    reads_prompt = any(len(decoded(one.iterations)) < len(one.iterations) for one in (run, other))
    found = []
    for start, end in pairwise(shared):
        if reads_prompt and start == 0:
            continue
        mine, theirs = (tuple(range(each.index(start), each.index(end))) for each in ends)
        cut = [replace(one, iterations=tuple(one.iterations[place] for place in places))
               for one, places in ((run, mine), (other, theirs))]  # fmt: skip
        found.append(Stretch(start, end, mine, theirs, slowdown(*cut)))
    return tuple(found)

"""What is strange in an engine's figures, and what to know of them, in one plain sentence each."""

import math
from collections.abc import Iterator, Sequence
from itertools import pairwise

from decoding.trace.engine_counts import Counted

FEW = 0.02  # standard error of a rate above which the passes are few


def oddities(counted: Counted, marginal: Sequence[float]) -> list[str]:
    """Rates that rise, means that disagree, rates of exactly 0 or 1, and too few passes.

    Args:
        marginal: acceptance by position, `[positions]`, each from 0 to 1.
    """
    found = [*_rising(counted, marginal), *_disagreeing(counted, marginal), *_extreme(counted, marginal)]
    return [*counted.odd, *found, *_few(counted.passes, marginal)]


def _rising(counted: Counted, marginal: Sequence[float]) -> Iterator[str]:
    for place, (before, now) in enumerate(pairwise(marginal), 2):
        if now > before + 2 * counted.rate_step:
            yield (
                f"The rate of position {place} ({now:.4g}) is above that of position {place - 1} ({before:.4g}): "
                "marginal rates cannot rise, so these may be conditional ones, or the counts are damaged."
            )
            return


def _disagreeing(counted: Counted, marginal: Sequence[float]) -> Iterator[str]:
    """Where a mean is further from the rates or the counts than rounding explains."""
    room = counted.mean_step + len(marginal) * counted.rate_step
    implied = 1 + sum(marginal)
    if counted.mean is not None and marginal and abs(counted.mean - implied) > room:
        yield (
            f"The engine's mean acceptance length is {counted.mean:.4g}, but its rates add up to {implied:.4g}: that "
            "is more than rounding explains."
        )
    elif counted.mean is not None and counted.accepted is not None and counted.passes and not marginal:
        implied = 1 + counted.accepted / counted.passes
        if counted.passes_exact and abs(counted.mean - implied) > room:
            yield (
                f"The engine's mean acceptance length is {counted.mean:.4g}, but its counts give {implied:.4g}: that "
                "is more than rounding explains."
            )
    if marginal and counted.reached and counted.accepted not in (None, sum(counted.reached)):
        yield (
            f"The positions add up to {sum(counted.reached)} accepted draft tokens, but {counted.accepted} are given "
            "in all: scrapes of a running server can differ by the last pass."
        )


def _extreme(counted: Counted, marginal: Sequence[float]) -> Iterator[str]:
    """Rates of exactly 0 and 1."""
    passes = counted.passes
    bound = f": with {passes:,} passes the rate may still be {{}} (95%)" if passes else ""
    far = min(1.0, 3 / passes) if passes else 0.0
    never = [place for place, rate in enumerate(marginal, 1) if rate == 0]
    always = [place for place, rate in enumerate(marginal, 1) if rate == 1]
    same = "a draft that equals the target, or acceptance that is simulated, looks like this"
    if never:
        yield f"{_places(never)} accepted in no pass{bound.format(f'up to {far:.2g}')}."
    if always:
        yield f"{_places(always)} accepted in every pass{bound.format(f'as low as {1 - far:.4g}')}; {same}."
    if not marginal and counted.drafted and counted.accepted == 0:
        yield f"None of {counted.drafted:,} draft tokens was accepted."
    if not marginal and counted.drafted and counted.accepted == counted.drafted:
        yield f"All of {counted.drafted:,} draft tokens were accepted; {same}."


def _places(places: Sequence[int]) -> str:
    if len(places) == 1:
        return f"Position {places[0]} was"
    if list(places) == list(range(places[0], places[-1] + 1)):
        return f"Positions {places[0]} to {places[-1]} were"
    return f"Positions {', '.join(map(str, places[:8]))}{' and more' if len(places) > 8 else ''} were"


def _few(passes: int | None, marginal: Sequence[float]) -> Iterator[str]:
    """Where the standard error of a rate is large."""
    if passes is None:
        return
    errors = [(math.sqrt(rate * (1 - rate) / passes), place, rate) for place, rate in enumerate(marginal, 1)]
    error, place, rate = max(errors, default=(0.5 / math.sqrt(passes), 0, 0.5))
    if error > FEW:
        which = f"the rate of position {place} is {rate:.3f} with" if marginal else "a rate near 0.5 has"
        yield (
            f"{passes:,} passes are few: {which} a binomial standard error of {error:.3f}, and more where passes of "
            "one text resemble each other."
        )


def remarks(counted: Counted, marginal: Sequence[float], length: int | None) -> Iterator[str]:
    """What the figures leave open."""
    if marginal:
        yield (
            f"The engine drafts at most {len(marginal)} tokens in a pass, so what later positions would accept was "
            "never seen: for a larger K there are only bounds."
        )
        yield "For a smaller K the figures hold where its draft is the beginning of the engine's, as in a chain."
    elif not counted.rates and not counted.reached:
        yield "The engine gives no acceptance by position here, so what another K would give cannot be computed."
    if counted.passes is None:
        yield "The engine does not say how many passes it counted, so standard errors cannot be given."
    elif not counted.passes_exact:
        yield "The number of passes is computed from figures that the engine rounded."
    if counted.passes and counted.drafted and length and counted.passes_exact and counted.engine != "sglang":
        mean = counted.drafted / counted.passes
        if mean < length - 1e-9:
            yield (
                f"A pass had {mean:.2f} draft tokens on average and {length} at most: positions that were not drafted "
                "count as not accepted."
            )

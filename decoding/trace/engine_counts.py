"""What inference engines count of their speculative decoding, in one form: how it adds up, and what is odd in it."""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, pairwise, zip_longest
from typing import TypeVar

from decoding.common.errors import EngineMetricsError
from decoding.trace.engine_fields import METRIC_SOURCES

_Number = TypeVar("_Number", int, float)
MAX_RECORDS, MAX_POSITIONS = 250_000, 1024
EXACT = 1e-6  # room for rounding of a figure that an engine gives with all its digits
EXPECTED = (
    "expected vLLM's /metrics, log or responses, SGLang's responses or /server_info, TensorRT-LLM's iteration "
    "statistics, llama-server's responses or log, AIPerf's profile_export.jsonl, or a speculation_profile.json"
)


@dataclass(frozen=True, slots=True)
class Counted:
    """What an engine says of its speculative decoding; None and () where it does not say.

    Attributes:
        engine: key in `METRIC_SOURCES`.
        form: what was read, in words.
        records: records that hold such figures; `added`: how they were added up, a sentence, empty for one.
        passes: verification passes that had a draft; `passes_exact`: whether the engine counted them, else they are
            computed from figures that it rounded.
        drafted, accepted: draft tokens.
        reached: passes that accepted at least i + 1 draft tokens, `[positions]`.
        rates: the same as shares where there are no counts, each known to within `rate_step`.
        draft_length: the most draft tokens of a pass (K).
        mean: mean acceptance length as the engine gives it, the bonus token counted, known to within `mean_step`.
        completion: tokens of whole responses, the first one counted.
        requests: passes and accepted draft tokens of each request, where records are requests.
        request_mean: mean over requests of their mean acceptance lengths, as the engine gives it.
        seconds: that the records span; `generated`: tokens per second of all requests; `running`: requests that ran,
            each time that it was written.
        devices: that share each layer (tensor parallelism).
        odd, notes: sentences on what does not fit together in the records, and on what to know of them.
    """

    engine: str
    form: str
    records: int = 1
    added: str = ""
    passes: int | None = None
    passes_exact: bool = True
    drafted: int | None = None
    accepted: int | None = None
    reached: tuple[int, ...] = ()
    rates: tuple[float, ...] = ()
    rate_step: float = 0.0
    draft_length: int | None = None
    mean: float | None = None
    mean_step: float = EXACT
    completion: int | None = None
    requests: tuple[tuple[int, int], ...] = ()
    request_mean: float | None = None
    seconds: float | None = None
    generated: float | None = None
    running: tuple[int, ...] = ()
    devices: int | None = None
    odd: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


def by_histogram(
    engine: str, form: str, histogram: dict[int, int], passes: int, accepted: int | None, length: int | None
) -> Counted:
    """One request's passes by how many draft tokens they accepted.

    Raises `EngineMetricsError` where a number of tokens is negative or too large to be one.
    """
    if histogram and not 0 <= min(histogram) <= max(histogram) <= MAX_POSITIONS:
        raise EngineMetricsError(
            f"A pass with {max(histogram, key=abs)} accepted draft tokens cannot be: write these statistics again."
        )
    deepest = max((each for each, count in histogram.items() if count), default=0)
    odd = []
    if length is not None and deepest > length:
        odd.append("Some passes accepted more draft tokens than a pass can have.")
    if histogram and sum(histogram.values()) != passes:
        odd.append("The histogram of accepted draft tokens does not add up to the number of passes.")
    total = sum(each * count for each, count in histogram.items())
    if accepted is not None and histogram and total != accepted:
        odd.append("The histogram of accepted draft tokens does not add up to the number of accepted ones.")
    counts = [histogram.get(each, 0) for each in range(max(deepest, length or 0), 0, -1)]
    return Counted(
        engine,
        form,
        passes=passes,
        accepted=total if accepted is None else accepted,
        reached=tuple(accumulate(counts))[::-1],
        draft_length=length or None,
        requests=((passes, total if accepted is None else accepted),),
        odd=tuple(odd),
    )


def added_up(records: Sequence[Counted]) -> Counted:
    """Records of one engine as one: counts are added, rates and means weighted by their passes.

    Raises `EngineMetricsError` where there is no record, there are those of several engines, or no pass was counted.
    """
    if not records:
        raise EngineMetricsError(f"This holds no figures of speculative decoding: {EXPECTED}.")
    forms = sorted({(record.engine, record.form) for record in records})
    if len(forms) > 1:
        mixed = " with ".join(f"{form} ({METRIC_SOURCES[engine].label})" for engine, form in forms[:2])
        raise EngineMetricsError(f"This mixes {mixed}: give a file for each.")
    lengths = sorted({each.draft_length for each in records if each.draft_length and (each.rates or each.reached)})
    if len(lengths) > 1 and records[0].engine != "llama.cpp":  # whose drafts have no fixed length
        mixed = " and ".join(map(str, lengths[:2]))
        raise EngineMetricsError(f"This mixes drafts of {mixed} tokens (K): give the figures of one K at a time.")
    total = records[0] if len(records) == 1 else _sum(records)
    if total.passes == 0 or total.drafted == 0:
        raise EngineMetricsError("The engine has counted no pass with a draft yet: send it requests, then read again.")
    return total


def _sum(records: Sequence[Counted]) -> Counted:
    passes, drafted = (_total(records, of) for of in (lambda each: each.passes, lambda each: each.drafted))
    weights, weighed = [1] * len(records), "count alike"
    if passes:
        weights, weighed = [each.passes or 0 for each in records], "are weighted by their passes"
    elif drafted:
        weights, weighed = [each.drafted or 0 for each in records], "are weighted by their draft tokens"
    rates: tuple[float, ...] = ()
    if all(each.rates for each in records):
        columns = zip_longest(*(each.rates for each in records), fillvalue=0.0)
        rates = tuple(_weighted(column, weights) for column in columns)
    reached: tuple[int, ...] = ()
    if all(each.reached for each in records):
        reached = tuple(map(sum, zip_longest(*(each.reached for each in records), fillvalue=0)))
    means = [each.mean for each in records if each.mean is not None]
    whole = len(means) == len(records)
    lengths = [each.draft_length for each in records if each.draft_length]
    counts = passes is not None or drafted is not None
    rounded = bool(rates) or (whole and not counts)
    added = f"The counts of {len(records):,} records were added up" if counts else f"There are {len(records):,} records"
    added += f"; their rates and means {weighed}." if rounded else "."
    requests = [request for each in records for request in each.requests]
    speeds = [each.generated for each in records if each.generated is not None]
    return replace(
        records[0],
        records=len(records),
        added=added,
        passes=passes,
        passes_exact=all(each.passes_exact for each in records),
        drafted=drafted,
        accepted=_total(records, lambda each: each.accepted),
        reached=reached,
        rates=rates,
        draft_length=max(lengths, default=None),
        mean=_weighted(means, weights) if whole else None,
        mean_step=_weighted([each.mean_step for each in records], weights),
        completion=_total(records, lambda each: each.completion),
        requests=tuple(requests) if len(requests) == len(records) else (),
        request_mean=None,
        seconds=_total(records, lambda each: each.seconds),
        generated=sum(speeds) / len(speeds) if speeds else None,
        running=tuple(count for each in records for count in each.running),
        odd=tuple(dict.fromkeys(sentence for each in records for sentence in each.odd)),
        notes=tuple(dict.fromkeys(sentence for each in records for sentence in each.notes)),
    )


def _total(records: Sequence[Counted], of: Callable[[Counted], _Number | None]) -> _Number | None:
    """Sum of a count, None where a record does not have it."""
    values = [of(each) for each in records]
    known = [value for value in values if value is not None]
    return sum(known) if len(known) == len(values) else None


def _weighted(values: Sequence[float], weights: Sequence[int]) -> float:
    whole = sum(weights)
    return sum(value * weight for value, weight in zip(values, weights, strict=True)) / whole if whole else 0.0


SHORTER = 0.95  # of K: drafts that are shorter on average are so by plan, not at ends of texts
FEW = 0.02  # standard error of a rate above which the passes are few


def contradictions(counted: Counted, marginal: Sequence[float]) -> list[str]:
    """Marginal rates, `[positions]`, that rise and means that disagree: at least one of the figures is wrong."""
    return [*counted.odd, *_rising(counted, marginal), *_disagreeing(counted, marginal)]


def oddities(counted: Counted, marginal: Sequence[float], length: int | None) -> list[str]:
    """Drafts of several lengths, rates of exactly 0 or 1, and too few passes."""
    shorter, _ = _shorter(counted, length)
    return [*shorter, *_differing(counted), *_extreme(counted, marginal), *_few(counted.passes, marginal)]


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


def _differing(counted: Counted) -> Iterator[str]:
    if counted.reached and counted.accepted not in (None, sum(counted.reached)):
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
    yield from _shorter(counted, length)[1]


def _shorter(counted: Counted, length: int | None) -> tuple[list[str], list[str]]:
    """A sentence where drafts were shorter than K: what is odd where that is more than ends of texts, else a note."""
    if not (counted.passes and counted.drafted and length) or counted.engine == "sglang":
        return [], []
    mean = counted.drafted / counted.passes
    said = (
        f"A pass had {mean:.2f} draft tokens on average and {length} at most: positions that were not drafted count as "
        "not accepted."
    )
    if mean < SHORTER * length:
        return [f"{said} The rates of later positions are therefore too low."], []
    return [], [said] if counted.passes_exact and mean < length - 1e-9 else []

"""What an inference engine says about its speculative decoding, as one record of figures with one definition each.

Marginal acceptance at position i: the share of passes whose first i draft tokens were all accepted. Conditional
acceptance: of the passes that accepted the first i - 1, the share that accepted the next one, too.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Literal

from decoding.common.errors import EngineMetricsError, SettingsError
from decoding.trace.draft_figures import draft_figures
from decoding.trace.engine_counts import EXPECTED, MAX_POSITIONS, Counted, added_up, contradictions, oddities, remarks
from decoding.trace.engine_fields import METRIC_SOURCES
from decoding.trace.engine_json import json_records
from decoding.trace.engine_text import text_records
from decoding.trace.records import RunTrace

MAX_BYTES = 64 * 2**20
FURTHER = 16  # positions beyond K for which bounds are given, at most


@dataclass(frozen=True, slots=True)
class Position:
    """Acceptance at one position of a draft, the first being 1.

    Attributes:
        marginal, conditional: shares; `conditional` is None where no pass came to the position, or its marginal rate is
            above that of the one before.
        marginal_error, conditional_error: binomial standard errors; None where the number of passes is not known.
    """

    position: int
    marginal: float
    marginal_error: float | None
    conditional: float | None
    conditional_error: float | None


@dataclass(frozen=True, slots=True)
class Definition:
    """A figure by one of its definitions, and what engines and papers call it.

    Attributes:
        name, formula: in words.
        kind: tokens (`length`) or a share (`rate`).
        bonus: whether the token that the target adds in every pass is counted.
        weight: what counts alike in the mean: every pass (token-weighted), or every request.
        called: who calls it what.
        value: None where the engine's figures do not give it.
    """

    name: str
    formula: str
    kind: Literal["length", "rate"]
    bonus: bool
    weight: Literal["pass", "request"]
    called: tuple[tuple[str, str], ...]
    value: float | None


@dataclass(frozen=True, slots=True)
class OtherLength:
    """Tokens per pass, the bonus token counted, with another number of draft tokens per pass.

    Attributes:
        draft_length: draft tokens per pass.
        exact: up to the engine's own K all three figures are one.
        low: if no further token were accepted.
        stayed: if the last conditional rate held at every further position.
        high: if every further token were accepted.
    """

    draft_length: int
    exact: bool
    low: float
    stayed: float
    high: float


@dataclass(frozen=True, slots=True)
class EngineMetrics:
    """Speculative decoding of an engine in figures; None and () where they cannot be had from what it says.

    Attributes:
        engine, version, sources, read: what the engine is called, and in which files of which version the names were
            read, when (ISO date).
        form: what was given, in words.
        records, added, passes, passes_exact, drafted, accepted: as in `Counted`.
        draft_length: the most draft tokens of a pass (K).
        positions: acceptance by position.
        definitions: mean acceptance lengths and acceptance rates, each by its definition.
        other_lengths: what another K would give.
        seconds, generated, running, devices: as in `Counted`.
        wrong: what contradicts itself in the figures, a sentence each: nothing should be decided by them.
        odd: all that is strange in the figures, `wrong` first.
        notes: what to know of them, a sentence each.
    """

    engine: str
    version: str
    sources: tuple[str, ...]
    read: str
    form: str
    records: int
    added: str
    passes: int | None
    passes_exact: bool
    drafted: int | None
    accepted: int | None
    draft_length: int | None
    positions: tuple[Position, ...]
    definitions: tuple[Definition, ...]
    other_lengths: tuple[OtherLength, ...]
    seconds: float | None
    generated: float | None
    running: tuple[int, ...]
    devices: int | None
    wrong: tuple[str, ...]
    odd: tuple[str, ...]
    notes: tuple[str, ...]

    def value(self, name: str) -> float | None:
        """The value of a definition by its name; raises `KeyError` where there is no such name."""
        return {each.name: each.value for each in self.definitions}[name]


@dataclass(frozen=True, slots=True)
class PositionComparison:
    """Marginal acceptance at one position in an engine and at this depth in a run, None where there is none.

    `standard_errors` is the difference (run minus engine) in standard errors of it, from the rate of both together.
    """

    position: int
    engine: float | None
    run: float | None
    difference: float | None
    standard_errors: float | None


@dataclass(frozen=True, slots=True)
class RunComparison:
    """A run's acceptance by depth beside an engine's by position; its passes are those counted, notes sentences."""

    run: str
    run_passes: int
    positions: tuple[PositionComparison, ...]
    notes: tuple[str, ...]


def load_metrics(file: Path) -> EngineMetrics:
    """The record of a file.

    Raises `EngineMetricsError` where it cannot be read, is empty, foreign, damaged or too large, says things of several
    engines, or counts no pass.
    """
    try:
        with file.open("rb") as stream:
            data = stream.read(MAX_BYTES + 1)
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or "this is no path"
        raise EngineMetricsError(f"{file} cannot be read ({why}): give a file that is there.") from None
    return read_metrics(data)


def read_metrics(data: bytes) -> EngineMetrics:
    """The record of a file's content, whose form is recognised; raises `EngineMetricsError` as `load_metrics` does."""
    if len(data) > MAX_BYTES:
        raise EngineMetricsError(f"This is larger than {MAX_BYTES // 2**20} MiB: give a part of it.")
    data = data.removeprefix(b"\xef\xbb\xbf").strip()
    if not data:
        raise EngineMetricsError(f"There is nothing to read: {EXPECTED}.")
    return metrics_of(added_up(_records(data)))


def _records(data: bytes) -> list[Counted]:
    """What a JSON document or a text says; a log may be wrapped in JSON, and its lines may begin as JSON does."""
    if data[:1] not in (b"{", b"["):
        return text_records(data)
    try:
        return json_records(data) or text_records(data)
    except EngineMetricsError:
        if found := text_records(data):
            return found
        raise


def metrics_of(counted: Counted) -> EngineMetrics:
    """The figures of what an engine has counted."""
    wrong: list[str] = []
    marginal = _marginal(counted, wrong)
    length = counted.draft_length or len(marginal) or None
    definitions = _definitions(counted, marginal, length, wrong)
    wrong = list(dict.fromkeys([*wrong, *contradictions(counted, marginal)]))
    positions = tuple(_positions(marginal, counted.passes))
    source = METRIC_SOURCES[counted.engine]
    return EngineMetrics(
        engine=source.label,
        version=source.version,
        sources=tuple(source.names),
        read=source.read,
        form=counted.form,
        records=counted.records,
        added=counted.added,
        passes=counted.passes,
        passes_exact=counted.passes_exact,
        drafted=counted.drafted,
        accepted=counted.accepted,
        draft_length=length,
        positions=positions,
        definitions=definitions,
        other_lengths=tuple(_other_lengths(positions)),
        seconds=counted.seconds,
        generated=counted.generated,
        running=counted.running,
        devices=counted.devices,
        wrong=tuple(wrong),
        odd=tuple(dict.fromkeys([*wrong, *oddities(counted, marginal, length)])),
        notes=(*counted.notes, *remarks(counted, marginal, length)),
    )


def compared(record: EngineMetrics, run: RunTrace) -> RunComparison:
    """Acceptance by depth of a run beside an engine's by position.

    Raises `SettingsError` where the run drafted nothing.
    """
    figures = draft_figures(run)
    if figures is None:
        raise SettingsError("This run drafted nothing: record one with a method that drafts, such as linear.")
    count, deepest = len(figures.accepted), max(figures.depths, default=0)
    engine = [each.marginal for each in record.positions]
    drafted = figures.rates(deepest)
    rows = []
    for place in range(max(len(engine), deepest)):
        theirs = engine[place] if place < len(engine) else None
        ours = drafted[place] if place < deepest else None
        difference = ours - theirs if ours is not None and theirs is not None else None
        errors = None
        if ours is not None and theirs is not None:
            errors = _in_standard_errors(ours, count, theirs, record.passes)
        rows.append(PositionComparison(place + 1, theirs, ours, difference, errors))
    notes = ["Acceptance depends on the prompts, the models and the sampling: only the same ones compare."]
    if not engine:
        notes.append(f"{record.engine} gives no acceptance by position here, so only the run's stands in the table.")
    elif record.passes is None:
        notes.append("How many passes the engine counted is not known: standard errors are those of the run alone.")
    if not figures.chains:
        notes.append("The run drafted trees: at each depth they accept at least what their best chain would.")
    return RunComparison(run.label, count, tuple(rows), tuple(notes))


def _in_standard_errors(ours: float, our_passes: int, theirs: float, their_passes: int | None) -> float | None:
    """A difference of two shares over the standard error of it; None where that is 0."""
    if their_passes is None:
        error = _error(ours, our_passes)
    else:
        both = (ours * our_passes + theirs * their_passes) / (our_passes + their_passes)
        error = math.sqrt(max(0.0, both * (1 - both)) * (1 / our_passes + 1 / their_passes))
    return (ours - theirs) / error if error else None


def _error(share: float, count: int) -> float:
    """Binomial standard error of a share of `count` trials."""
    return math.sqrt(share * (1 - share) / count)


def _marginal(counted: Counted, wrong: list[str]) -> tuple[float, ...]:
    """Marginal rates; none of them where one is no share, which `wrong` then says."""
    passes = counted.passes
    rates = tuple(count / passes for count in counted.reached) if counted.reached and passes else counted.rates
    beyond = [(place, rate) for place, rate in enumerate(rates, 1) if not 0 <= rate <= 1]
    if beyond:
        place, rate = beyond[0]
        wrong.append(
            f"The rate of position {place} is {rate:.6g}, which is no share: no figure is computed from the rates."
        )
        return ()
    return rates


def _positions(marginal: Sequence[float], passes: int | None) -> Iterator[Position]:
    for place, (before, now) in enumerate(pairwise((1.0, *marginal)), 1):
        conditional = now / before if before >= now and before > 0 else None
        came = before * passes if passes else None
        yield Position(
            position=place,
            marginal=now,
            marginal_error=_error(now, passes) if passes else None,
            conditional=conditional,
            conditional_error=math.sqrt(conditional * (1 - conditional) / came)
            if came and conditional is not None
            else None,
        )


def _other_lengths(positions: Sequence[Position]) -> Iterator[OtherLength]:
    """Tokens per pass up to the engine's K, and bounds for as many again."""
    tokens = 1.0
    for each in positions:
        tokens += each.marginal
        yield OtherLength(each.position, True, tokens, tokens, tokens)
    if not positions:
        return
    last = positions[-1]
    kept = 0.0 if last.marginal == 0 else 1.0 if last.conditional is None else last.conditional
    stayed, reached = tokens, last.marginal
    for further in range(1, min(len(positions), FURTHER) + 1):
        reached *= kept
        stayed += reached
        yield OtherLength(len(positions) + further, False, tokens, stayed, tokens + further * last.marginal)


def _definitions(
    counted: Counted, marginal: Sequence[float], length: int | None, wrong: list[str]
) -> tuple[Definition, ...]:
    passes, drafted, accepted = counted.passes, counted.drafted, counted.accepted
    most = length or MAX_POSITIONS
    per_pass = _accepted_per_pass(counted, marginal)
    by_request = _by_request(counted)
    completion = counted.completion
    whole = completion / passes if completion is not None and passes else None
    added = completion - accepted if completion is not None and accepted is not None else None
    target = completion / added if completion is not None and added is not None and added > 0 else None
    rate = accepted / drafted if accepted is not None and drafted else None
    verified = (accepted + passes) / (drafted + passes) if accepted is not None and passes and drafted else None
    tested = 1 + sum(marginal[:-1])
    came = sum(marginal) / tested if marginal else None

    def checked(value: float | None, low: float, high: float, name: str) -> float | None:
        if value is None or low <= value <= high * (1 + 1e-9):
            return value
        wrong.append(f"The {name} would be {value:.6g}, which cannot be: it is left out.")
        return None

    def plus_one(value: float | None) -> float | None:
        return None if value is None else 1 + value

    per_pass = checked(per_pass, 0, most, "mean accepted length")
    by_request = checked(by_request, 0, most, "mean accepted length of a request")
    values = {
        "mean acceptance length": plus_one(per_pass),
        "mean accepted length": per_pass,
        "mean acceptance length of a request": plus_one(by_request),
        "mean accepted length of a request": by_request,
        "completion tokens per verification pass": checked(whole, 1, most + 2, "number of tokens per pass"),
        "tokens per target pass": checked(target, 1, most + 1, "number of tokens per target pass"),
        "acceptance rate": checked(rate, 0, 1, "acceptance rate"),
        "acceptance rate of tested tokens": checked(came, 0, 1, "acceptance rate of tested tokens"),
        "accepted per verified": checked(verified, 0, 1, "rate of accepted per verified tokens"),
    }
    return tuple(Definition(*words, value=values[words[0]]) for words in DEFINITIONS)


# Name, formula, kind, whether the bonus token counts, what counts alike, and who calls it what.
DEFINITIONS: tuple[
    tuple[str, str, Literal["length", "rate"], bool, Literal["pass", "request"], tuple[tuple[str, str], ...]], ...
] = (
    (
        "mean acceptance length", "1 + accepted draft tokens / passes", "length", True, "pass",
        (
            ("vLLM", "Mean acceptance length"), ("SGLang", "avg_spec_accept_length"),
            ("TensorRT-LLM", "acceptanceLength"), ("llama.cpp", "mean len"),
            ("AIPerf", "spec_decode_token_weighted_acceptance_length"),
            ("speculation_profile.json", "mean_accept_length"), ("Draftscope", "block efficiency"),
            ("Delayed tree expansion (paper)", "block efficiency"),
            ("DynaTree (paper)", "tokens committed per verification iteration"),
        ),
    ),
    (
        "mean accepted length", "accepted draft tokens / passes", "length", False, "pass",
        (
            ("Draftscope", "mean accepted length"), ("Delayed tree expansion (paper)", "acceptance length"),
            ("DynaTree (paper)", "average committed path length before the bonus token"),
        ),
    ),
    (
        "mean acceptance length of a request", "mean over requests of 1 + accepted draft tokens / passes", "length",
        True, "request",
        (
            ("vLLM", "mean_acceptance_length"), ("AIPerf", "spec_decode_acceptance_length"),
            ("speculation_profile.json", "mean_accept_length_per_request"),
        ),
    ),
    (
        "mean accepted length of a request", "mean over requests of accepted draft tokens / passes", "length", False,
        "request", (),
    ),
    (
        "completion tokens per verification pass",
        "tokens of the responses / passes; the token of the prompt's pass counts, too", "length", True, "pass",
        (("SGLang", "spec_accept_length"),),
    ),
    (
        "tokens per target pass",
        "tokens of the responses / those of them that were not drafted, one of which each pass of the target adds, "
        "that of the prompt and those without a draft, too", "length", True, "pass", (),
    ),
    (
        "acceptance rate", "accepted draft tokens / draft tokens", "rate", False, "pass",
        (
            ("vLLM", "Avg Draft acceptance rate"), ("vLLM", "draft_acceptance_rate"), ("SGLang", "spec_accept_rate"),
            ("llama.cpp", "draft acceptance"), ("AIPerf", "spec_decode_overall_draft_acceptance_rate"),
            ("Draftscope", "acceptance rate / drafted"),
        ),
    ),
    (
        "acceptance rate of tested tokens",
        "accepted draft tokens / those before which all were accepted: the rate of one test", "rate", False, "pass",
        (),
    ),
    (
        "accepted per verified", "(accepted draft tokens + passes) / (draft tokens + passes)", "rate", True, "pass",
        (("AIPerf", "spec_decode_accepted_per_verified"),),
    ),
)  # fmt: skip


def _accepted_per_pass(counted: Counted, marginal: Sequence[float]) -> float | None:
    """Mean accepted length per pass: from counts, else from the engine's mean, else from the rates."""
    if counted.accepted is not None and counted.passes and counted.passes_exact:
        return counted.accepted / counted.passes
    if counted.mean is not None:
        return counted.mean - 1
    if counted.accepted is not None and counted.passes:
        return counted.accepted / counted.passes
    return sum(marginal) if marginal else None


def _by_request(counted: Counted) -> float | None:
    if counted.request_mean is not None:
        return counted.request_mean - 1
    means = [accepted / passes for passes, accepted in counted.requests if passes]
    return sum(means) / len(means) if means else None

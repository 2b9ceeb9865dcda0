"""The JSON in which inference engines and tools give their speculative decoding, recognised from its fields.

Names of fields are those of `engine_fields.METRIC_SOURCES`; what is not listed there is passed over unread.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from io import BytesIO
from typing import Annotated, Any

import msgspec
from msgspec import UNSET, Meta, Raw, UnsetType

from decoding.common.errors import EngineMetricsError, printable
from decoding.trace.engine_counts import EXACT, EXPECTED, MAX_POSITIONS, MAX_RECORDS, Counted, by_histogram

MAX_VALUES = 5 * 2**20  # of one document: bounds the memory that reading it takes

Count = Annotated[int, Meta(ge=0, le=2**53)]
Length = Annotated[int, Meta(ge=0, le=MAX_POSITIONS)]
Number = Annotated[float, Meta(ge=-1e300, le=1e300)]
Histogram = Annotated[list[Count], Meta(max_length=MAX_POSITIONS + 1)]  # passes by accepted draft tokens, from 0


class Usage(msgspec.Struct):
    completion_tokens: Count | None = None


class VllmSpeculation(msgspec.Struct):
    mean_acceptance_length: Number
    acceptance_histogram: Histogram
    num_spec_steps: Count
    num_accepted_draft_tokens: Count
    num_draft_tokens: Count
    num_spec_tokens: Length


class VllmMetrics(msgspec.Struct):
    speculative_decoding: VllmSpeculation | None = None


class SGLangMeta(msgspec.Struct):
    spec_verify_ct: Count | None = None
    spec_num_correct_drafts: Count | None = None
    spec_num_proposed_drafts: Count | None = None
    spec_correct_drafts_histogram: Histogram | None = None
    spec_accept_length: Number | None = None
    completion_tokens: Count | None = None


class SGLangState(msgspec.Struct):
    avg_spec_accept_length: Number | None = None


class TensorRTSpeculation(msgspec.Struct, rename="camel"):
    num_draft_tokens: Count
    num_accepted_tokens: Count
    num_requests_with_draft_tokens: Count
    acceptance_length: Number | None = None


class LlamaTimings(msgspec.Struct):
    draft_n: Count | None = None
    draft_n_accepted: Count | None = None
    predicted_n: Count | None = None


class AIPerfSpeculation(msgspec.Struct):
    acceptance_histogram: Annotated[dict[int, Count], Meta(max_length=MAX_POSITIONS + 1)]
    num_accepted_draft_tokens: Count
    num_draft_tokens: Count
    num_spec_steps: Count
    mean_acceptance_length: Number | None = None
    num_spec_tokens: Length | None = None
    completion_tokens: Count | None = None


class Profile(msgspec.Struct):
    marginal_accept_rates: Annotated[list[Number], Meta(max_length=MAX_POSITIONS)]
    num_speculative_tokens: Length
    measured: bool = True
    mean_accept_length: Number | None = None
    mean_accept_length_per_request: Number | None = None
    acceptance_length_histogram: Annotated[dict[int, Count], Meta(max_length=MAX_POSITIONS + 1)] | None = None
    verification_method: str | None = None
    accept_length_model: str | None = None


class Record(msgspec.Struct):
    """The fields by which a JSON record is recognised, each left as it is."""

    metrics: Raw | UnsetType = UNSET
    usage: Raw | UnsetType = UNSET
    meta_info: Raw | UnsetType = UNSET
    internal_states: Raw | UnsetType = UNSET
    speculative_num_draft_tokens: Raw | UnsetType = UNSET
    tp_size: Raw | UnsetType = UNSET
    spec_decoding_stats: Raw | UnsetType = msgspec.field(default=UNSET, name="specDecodingStats")
    timings: Raw | UnsetType = UNSET
    spec_decode_acceptance: Raw | UnsetType = UNSET
    marginal_accept_rates: Raw | UnsetType = UNSET


DAMAGE = (msgspec.DecodeError, ValueError, RecursionError)
_RECORD, _ARRAY = msgspec.json.Decoder(Record), msgspec.json.Decoder(list[Raw])


def json_records(data: bytes) -> list[Counted]:
    """Records of a JSON document, of an array, or of one document per line; those without such figures are left out.

    Raises `EngineMetricsError` where the JSON is damaged, or has too many records or values.
    """
    found: list[Counted] = []
    number = without = 0
    for number, (place, document) in enumerate(_documents(data), 1):
        if number > MAX_RECORDS:
            raise EngineMetricsError(f"This has more than {MAX_RECORDS:,} records: give a part of it.")
        try:
            records = _record(document)
        except DAMAGE as error:
            raise EngineMetricsError(
                f"{place} is damaged ({_problem(error)}): write it again, or leave it out."
            ) from None
        without += not records
        found += records
    if found and without:
        note = f"{without:,} of {number:,} records hold no figures of speculative decoding and are left out."
        found[0] = replace(found[0], notes=(*found[0].notes, note))
    return found


def _documents(data: bytes) -> Iterator[tuple[str, bytes]]:
    """Every JSON object with its place in words."""
    if _parses(data, _RECORD):
        yield "This JSON object", data
        return
    first, _, more = data.partition(b"\n")
    if data[:1] == b"{" and more and _parses(first, _RECORD):
        lines = (line.strip() for line in BytesIO(data))
        yield from ((f"Line {number}", line) for number, line in enumerate(lines, 1) if line)
        return
    if data.count(b",") > MAX_VALUES:
        raise EngineMetricsError(f"This has more than {MAX_VALUES:,} values: give a part of it.")
    if data[:1] == b"{":
        raise EngineMetricsError(f"This JSON is damaged or cut short: write it again; {EXPECTED}.")
    try:
        documents = _ARRAY.decode(data)
    except DAMAGE as error:
        raise EngineMetricsError(f"This JSON is damaged ({_problem(error)}): write it again.") from None
    yield from ((f"Record {number} of this JSON array", bytes(each)) for number, each in enumerate(documents, 1))


def _parses(document: bytes, decoder: msgspec.json.Decoder[Any]) -> bool:
    if document.count(b",") > MAX_VALUES:
        return False
    try:
        decoder.decode(document)
    except DAMAGE:
        return False
    return True


def _problem(error: BaseException) -> str:
    """What msgspec found, in a few printable words."""
    words = str(error).replace("`", "").replace("$.", "").replace(" - at $", "")
    return printable(words[:120]) or type(error).__name__


def _record(document: bytes) -> list[Counted]:
    """What one JSON object says; nothing where it has no speculative figures."""
    read = _RECORD.decode(document)
    if not isinstance(read.marginal_accept_rates, UnsetType):
        return [_profile(msgspec.json.decode(document, type=Profile))]
    if given := _given(read.spec_decode_acceptance, AIPerfSpeculation):
        form, histogram = "spec_decode_acceptance of profile_export.jsonl", given.acceptance_histogram
        return [_response("aiperf", form, given, histogram, given.completion_tokens)]
    if given := _given(read.spec_decoding_stats, TensorRTSpeculation):
        return _tensorrt_llm(given)
    if given := _given(read.meta_info, SGLangMeta):
        return _sglang(given)
    if given := _given(read.internal_states, list[SGLangState]):
        draft_tokens, devices = _given(read.speculative_num_draft_tokens, Length), _given(read.tp_size, Count)
        return [replace(each, devices=devices or None) for each in _sglang_info(given, draft_tokens)]
    if given := _given(read.timings, LlamaTimings):
        return _llama(given)
    metrics = _given(read.metrics, VllmMetrics)
    if metrics and (given := metrics.speculative_decoding):
        histogram, usage = dict(enumerate(given.acceptance_histogram)), _given(read.usage, Usage)
        form = "metrics.speculative_decoding of responses"
        return [_response("vllm", form, given, histogram, usage.completion_tokens if usage else None)]
    return []


def _given(raw: Raw | UnsetType, kind: Any) -> Any:
    """The value of a field, None where it is absent or null."""
    return None if isinstance(raw, UnsetType) else msgspec.json.decode(raw, type=kind | None)


def _response(
    engine: str,
    form: str,
    read: VllmSpeculation | AIPerfSpeculation,
    histogram: dict[int, int],
    completion: int | None,
) -> Counted:
    passes, accepted = read.num_spec_steps, read.num_accepted_draft_tokens
    counted = by_histogram(engine, form, histogram, passes, accepted, read.num_spec_tokens)
    return replace(counted, drafted=read.num_draft_tokens, mean=read.mean_acceptance_length, completion=completion)


def _sglang(read: SGLangMeta) -> list[Counted]:
    passes, accepted, drafted = read.spec_verify_ct, read.spec_num_correct_drafts, read.spec_num_proposed_drafts
    if not passes or accepted is None:
        return []
    whole = drafted is not None and drafted % passes == 0 and drafted // passes <= MAX_POSITIONS
    length = drafted // passes if whole and drafted else None
    histogram = read.spec_correct_drafts_histogram
    record = replace(
        by_histogram("sglang", "meta_info of responses", dict(enumerate(histogram or [])), passes, accepted, length),
        drafted=drafted,
        mean=read.spec_accept_length,
        # The first token of a response comes from the prompt's pass, and the last pass may be cut short.
        mean_step=((length or accepted) + 1) / passes + EXACT,
        completion=read.completion_tokens,
        notes=(
            "Where --speculative-eagle-topk is above 1, the proposed draft tokens of a pass are the nodes of a tree: "
            "then K is no depth, positions below the tree are never accepted, and what another K would give cannot be "
            "read off.",
        ),
    )
    return [record if histogram else replace(record, reached=(), odd=())]


def _sglang_info(states: Sequence[SGLangState], draft_tokens: int | None) -> list[Counted]:
    return [
        Counted(
            "sglang",
            "avg_spec_accept_length of /server_info",
            draft_length=draft_tokens - 1 if draft_tokens and draft_tokens > 1 else None,
            mean=state.avg_spec_accept_length,
        )
        for state in states
        if state.avg_spec_accept_length is not None
    ]


def _tensorrt_llm(read: TensorRTSpeculation) -> list[Counted]:
    passes, drafted = read.num_requests_with_draft_tokens, read.num_draft_tokens
    if not passes:
        return []
    length = math.ceil(drafted / passes)
    return [
        Counted(
            "tensorrt-llm",
            "specDecodingStats of iteration statistics",
            passes=passes,
            drafted=drafted,
            accepted=read.num_accepted_tokens,
            draft_length=length if 0 < length <= MAX_POSITIONS else None,
            mean=read.acceptance_length,
        )
    ]


def _llama(read: LlamaTimings) -> list[Counted]:
    if not read.draft_n or read.draft_n_accepted is None:
        return []
    return [
        Counted(
            "llama.cpp",
            "timings of responses",
            drafted=read.draft_n,
            accepted=read.draft_n_accepted,
            completion=read.predicted_n,
        )
    ]


def _profile(read: Profile) -> Counted:
    if not read.measured:
        raise EngineMetricsError(
            "This speculation_profile.json was not measured (measured is false): give a measured one."
        )
    lengths, positions = read.acceptance_length_histogram, read.num_speculative_tokens
    form = "speculation_profile.json"
    record = Counted("profile", form)
    if lengths:
        by_accepted = {length - 1: count for length, count in lengths.items()}
        record = by_histogram("profile", form, by_accepted, sum(lengths.values()), None, positions)
    notes, odd = [], list(record.odd)
    if read.verification_method == "block":
        notes.append("The profile's rates are of block verification: other verifiers of the same draft have others.")
    if read.accept_length_model == "measured_per_k":
        notes.append(
            "The profile says measured_per_k: its draft for a smaller K need not be the beginning of that for K, so "
            "what another K would give may differ from the figures here."
        )
    if len(read.marginal_accept_rates) != positions:
        odd.append("marginal_accept_rates does not have num_speculative_tokens entries.")
    if record.passes and any(
        abs(count / record.passes - rate) > EXACT
        for count, rate in zip(record.reached, read.marginal_accept_rates, strict=False)
    ):
        odd.append("marginal_accept_rates and acceptance_length_histogram disagree: the histogram is taken.")
    return replace(
        record,
        rates=() if record.reached else tuple(read.marginal_accept_rates),
        rate_step=EXACT / 2,
        draft_length=positions or None,
        mean=read.mean_accept_length,
        requests=(),
        request_mean=read.mean_accept_length_per_request,
        odd=tuple(odd),
        notes=tuple(notes),
    )

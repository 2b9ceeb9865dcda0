"""The text in which inference engines give their speculative decoding: vLLM's counters, and the logs of three servers.

Names of counters and words of logs are those of `engine_fields.METRIC_SOURCES`.
"""

import math
import re
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from io import BytesIO
from statistics import fmean

from decoding.common.errors import EngineMetricsError, printable
from decoding.trace.engine_counts import EXACT, MAX_POSITIONS, Counted

MAX_LINES, MAX_LINE = 500_000, 2**14  # lines of an engine in a file; bytes of one
COUNTERS = {
    "passes": "vllm:spec_decode_num_drafts",
    "drafted": "vllm:spec_decode_num_draft_tokens",
    "accepted": "vllm:spec_decode_num_accepted_tokens",
    "reached": "vllm:spec_decode_num_accepted_tokens_per_pos",
}
POSITION, RUNNING = "position", "vllm:num_requests_running"
VLLM_WORDS = (
    "SpecDecoding metrics", "Mean acceptance length", "Accepted", "Drafted", "Per-position acceptance rate",
    "Avg Draft acceptance rate", "Drafted throughput", "Avg generation throughput", "Running",
)  # fmt: skip
DEVICES = ("tensor_parallel_size", "tp_size")  # of vLLM and SGLang, in the lines of their start
SGLANG_WORDS = ("Decode batch", "#running-req", "accept len", "gen throughput (token/s)")
LLAMA_WORDS = ("draft acceptance", "draft acceptance rate", "accepted", "generated", "mean len", "acc per pos")
WRAPPED = 12  # lines that a terminal makes of one line of a log, at most
_COUNTER, _VLLM = b"vllm:spec_decode_", tuple(VLLM_WORDS[place].encode() for place in (0, 1, 4))
_ENGINE, _SGLANG = VLLM_WORDS[7].encode(), SGLANG_WORDS[2].encode()
_LLAMA = (LLAMA_WORDS[0].encode(), LLAMA_WORDS[5].encode())
_SAMPLE = re.compile(r"([\w:]+?)(?:_total)?(\{.*\})?[ \t]+(\S+)(?:[ \t]+\S+)?")
_LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')
# Of a line without its spaces: a terminal breaks it anywhere.
_VLLM_LINE = re.compile(
    rf"{VLLM_WORDS[1]}: ([^,]+), (?:[A-Za-z]+throughput: [0-9.]+ tokens/s, )*?"
    rf"(?:{VLLM_WORDS[6]}: ([0-9.]+) tokens/s, )?{VLLM_WORDS[2]}: ([0-9]+) tokens, "
    rf"{VLLM_WORDS[3]}: ([0-9]+) tokens, {VLLM_WORDS[4]}: (.*?), {VLLM_WORDS[5]}: ".replace(" ", "")
)
_ENGINE_LINE = re.compile(rf"{VLLM_WORDS[7]}: ([0-9.]+) tokens/s, {VLLM_WORDS[8]}: ([0-9]+) reqs")
_SGLANG_LINE = re.compile(
    rf"{SGLANG_WORDS[0]}.*?{SGLANG_WORDS[1]}: ([0-9]+),.*?{SGLANG_WORDS[2]}: ([0-9.]+),"
    rf".*?{re.escape(SGLANG_WORDS[3])}: ([0-9.]+)"
)
# What a person copies out of such a line; one that goes on to its counts has to be whole.
_VLLM_MEAN = re.compile(rf"{VLLM_WORDS[1]}: ([0-9]+\.[0-9]+)(?=[,;]? |[,;]?$)")
_VLLM_RATES = re.compile(rf"{VLLM_WORDS[4]}: ((?:[01]\.[0-9]+, )*[01]\.[0-9]+)(?=[,;] [A-Z]|$)")
_LLAMA_LINE = re.compile(
    rf"{LLAMA_WORDS[0]}(?: rate)? = *[^ ]+ \( *([0-9]+) {LLAMA_WORDS[2]} / *([0-9]+) {LLAMA_WORDS[3]}\)"
    rf"(?:, {LLAMA_WORDS[4]} = *([^ ,]+))?"
)
_DEVICES = re.compile(rf"(?<![a-z_])(?:{'|'.join(DEVICES)})\\*[\"']?[=:] ?([0-9]{{1,4}})\b".encode())
_LLAMA_POSITIONS = re.compile(rf"{LLAMA_WORDS[5]} = \(([^)]*)\)")


def text_records(data: bytes) -> list[Counted]:
    """What a text says, in the order of the engines; nothing where it is of none of them.

    Raises `EngineMetricsError` where a line of theirs is damaged, or there are too many.
    """
    counters: list[str] = []
    load: list[tuple[float | None, int]] = []
    vllm: list[tuple[int, str]] = []
    llama: list[tuple[int, str]] = []
    sglang: list[Counted] = []
    devices: set[int] = set()
    if not any(word in data for word in (_COUNTER, *_VLLM, *_LLAMA, _SGLANG)):
        return []
    lines, place, read = BytesIO(data).readlines(), 0, 0
    while place < len(lines):
        number, line = place + 1, lines[place]
        place += 1
        if line.startswith(_COUNTER):
            counters.append(_text(number, line))
        elif line.startswith(RUNNING.encode()):
            load += [(None, int(float(found[3]))) for found in [_SAMPLE.fullmatch(_text(number, line))]
                     if found and re.fullmatch(r"[0-9]{1,9}(\.0)?", found[3])]  # fmt: skip
        elif any(word in line for word in _VLLM):
            text, place = _unwrapped(lines, read, place)
            vllm.append((number, text))
            read = place
        elif any(word in line for word in _LLAMA):
            llama.append((number, _text(number, line)))
        elif _ENGINE in line and (found := _ENGINE_LINE.search(_text(number, line))):
            load.append((_number(found[1], VLLM_WORDS[7]), int(found[2])))
        elif _SGLANG in line and (found := _SGLANG_LINE.search(_text(number, line))):
            sglang.append(_sglang_batch(found))
        else:
            devices.update(_devices(line, lines[place] if place < len(lines) else b""))
        if len(counters) + len(vllm) + len(llama) + len(sglang) + len(load) > MAX_LINES:
            raise EngineMetricsError(f"This has more than {MAX_LINES:,} lines of an engine: give a part of it.")
    records = [*_loaded([*_vllm_scrape(counters), *_vllm_log(vllm)], load), *_llama_log(llama), *sglang]
    return [replace(each, devices=max(devices) or None) for each in records] if len(devices) == 1 else records


def _devices(line: bytes, after: bytes) -> set[int]:
    """Tensor parallel sizes that a line says, the name of the last perhaps broken off into the line after it."""
    kept = line.rstrip(b"\r\n")
    broken = (each for each in _DEVICES.finditer(kept + after) if each.start() < len(kept) <= each.start(1))
    return {int(each) for each in _DEVICES.findall(kept)} | {int(each[1]) for each in broken}


def _unwrapped(lines: Sequence[bytes], read: int, place: int) -> tuple[str, int]:
    """The log line of vLLM that ends before `place`, with what a terminal broke off it, and where that ends; the lines
    before `read` are another's.
    """
    first, joined = _text(place, lines[place - 1]), b"".join(lines[max(read, place - 1 - WRAPPED) : place])
    for after in range(place, min(len(lines), place + WRAPPED) + 1):
        text = joined.decode("utf-8", "replace")
        if _VLLM_LINE.search("".join(text.split())):
            return text, after
        if after == len(lines) or _VLLM[0] in lines[after] or len(joined) > MAX_LINE:
            break
        joined += lines[after]
    return first, place


def _loaded(records: list[Counted], load: Sequence[tuple[float | None, int]]) -> list[Counted]:
    """Records of vLLM with what it wrote between them of its requests: tokens per second, and how many ran."""
    if not (records and load):
        return records
    speeds = [speed for speed, _ in load if speed]
    running = tuple(count for _, count in load if count)
    return [replace(records[0], running=running, generated=fmean(speeds) if speeds else None), *records[1:]]


def _sglang_batch(found: re.Match[str]) -> Counted:
    """One line of SGLang's scheduler. Its accept rate is left: what it divides by differs from version to version."""
    return Counted(
        "sglang",
        "Decode batch of the log",
        mean=_number(found[2], SGLANG_WORDS[2]),
        mean_step=0.005 + EXACT,
        generated=_number(found[3], SGLANG_WORDS[3]) or None,
        running=(int(found[1]),) if int(found[1]) else (),
    )


def _text(number: int, line: bytes) -> str:
    if len(line) > MAX_LINE:
        raise EngineMetricsError(f"Line {number} is too long to be one of an engine: leave it out.")
    return line.decode("utf-8", "replace").strip()


def _vllm_scrape(lines: Sequence[str]) -> list[Counted]:
    """vLLM's counters, of one or several scrapes and engines, as one record."""
    totals: dict[tuple[str, str], int] = {}  # by counter and labels, those before a restart left out
    before: dict[tuple[str, str], int] = defaultdict(int)
    seen: dict[tuple[str, str], int] = defaultdict(int)
    names = {name: kind for kind, name in COUNTERS.items()}
    for line in lines:
        sample = _SAMPLE.fullmatch(line)
        if sample is None:
            raise EngineMetricsError("A line of vLLM's counters is damaged or cut short: scrape /metrics again.")
        if sample[1] not in names:
            continue
        series, value = (names[sample[1]], sample[2] or ""), _count(sample[3], sample[1])
        if value < totals.get(series, 0):  # the server was started anew
            before[series] += totals[series]
        totals[series] = value
        seen[series] += 1
    if not totals:
        return []
    by_kind: dict[str, list[int]] = {kind: [] for kind in COUNTERS}
    reached: dict[int, int] = defaultdict(int)
    for series, last in totals.items():
        by_kind[series[0]].append(last + before[series])
        if series[0] == "reached":
            reached[_position(series[1])] += last + before[series]
    if not by_kind["passes"]:
        raise EngineMetricsError(f"These counters of vLLM lack {COUNTERS['passes']}: scrape all of /metrics.")
    if sorted(reached) != list(range(len(reached))):
        raise EngineMetricsError(f"Positions of {COUNTERS['reached']} are missing: scrape all of /metrics.")
    scrapes, engines, added = max(seen.values()), len(by_kind["passes"]), []
    if scrapes > 1:
        added.append(
            f"Counters run from the start of the server, so the last of {scrapes} scrapes holds the earlier ones: it "
            "alone is counted, with what was counted before a restart."
        )
    if engines > 1:
        added.append(f"The counters of {engines} engines or models were added up.")
    return [
        Counted(
            "vllm",
            "Prometheus counters of /metrics",
            records=scrapes,
            added=" ".join(added),
            passes=sum(by_kind["passes"]),
            drafted=sum(by_kind["drafted"]) if by_kind["drafted"] else None,
            accepted=sum(by_kind["accepted"]) if by_kind["accepted"] else None,
            reached=tuple(reached[position] for position in sorted(reached)),
            draft_length=len(reached) or None,
        )
    ]


def _count(text: str, name: str) -> int:
    value = _number(text, name)
    if not (0 <= value <= 2**53 and value == int(value)):
        raise EngineMetricsError(f"{name} is {value:g}, which counts nothing: scrape /metrics again.")
    return int(value)


def _number(text: str, name: str) -> float:
    """A finite number of a text; raises `EngineMetricsError` where it is none."""
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise EngineMetricsError(
            f"{name} is {printable(text[:40])}, which is no number: write these lines again, or leave them out."
        )
    return value


def _position(labels: str) -> int:
    given = dict(_LABEL.findall(labels)).get(POSITION, "")
    if not (given.isascii() and given.isdigit() and len(given) < 5 and int(given) < MAX_POSITIONS):
        raise EngineMetricsError(f"A counter of vLLM lacks a {POSITION} below {MAX_POSITIONS}: scrape /metrics again.")
    return int(given)


def _vllm_log(lines: Sequence[tuple[int, str]]) -> list[Counted]:
    """A record per log line of vLLM; lines of seconds without a draft are left out."""
    found = []
    for number, line in lines:
        match = _VLLM_LINE.search("".join(line.split()))
        if match is None:
            found.append(_vllm_fragment(number, line))
            continue
        accepted, drafted = _count(match[3], VLLM_WORDS[2]), _count(match[4], VLLM_WORDS[3])
        if not drafted:
            continue
        length, rates = _number(match[1], VLLM_WORDS[1]), _rates(match[5], VLLM_WORDS[4])
        passes, exact = _passes(accepted, drafted, length, 0.005, len(rates))
        speed = _number(match[2], VLLM_WORDS[6]) if match[2] else 0.0
        found.append(
            Counted(
                "vllm",
                "SpecDecoding metrics of the log",
                passes=passes,
                passes_exact=exact,
                drafted=drafted,
                accepted=accepted,
                rates=rates,
                rate_step=0.0005,
                draft_length=len(rates),
                mean=length,
                mean_step=0.005 + EXACT,
                seconds=drafted / speed if speed else None,
            )
        )
    return found


def _vllm_fragment(number: int, line: str) -> Counted:
    """Mean length and rates copied out of a log line, without its counts.

    Raises `EngineMetricsError` where it holds neither, or goes on to counts and breaks off.
    """
    length, rates = _VLLM_MEAN.search(line), _VLLM_RATES.search(line)
    if not (length or rates) or VLLM_WORDS[2] in line or (VLLM_WORDS[4] in line and not rates):
        raise EngineMetricsError(
            f"Line {number} of vLLM's log is damaged or cut short: give the whole line, or just "
            f"'{VLLM_WORDS[1]}: 2.35, {VLLM_WORDS[4]}: 0.700, 0.420, 0.230'."
        )
    shares = _rates(rates[1], VLLM_WORDS[4]) if rates else ()
    return Counted(
        "vllm",
        "figures of the log",
        rates=shares,
        rate_step=0.0005,
        draft_length=len(shares) or None,
        mean=_number(length[1], VLLM_WORDS[1]) if length else None,
        mean_step=0.005 + EXACT,
    )


def _llama_log(lines: Sequence[tuple[int, str]]) -> list[Counted]:
    """A record per request in the log of llama-server."""
    found: list[Counted] = []
    for number, line in lines:
        if LLAMA_WORDS[0] not in line:
            match = _LLAMA_POSITIONS.search(line)
            if match and match[1] and found and not found[-1].rates:
                rates = _rates(match[1], LLAMA_WORDS[5])
                found[-1] = replace(found[-1], rates=rates, rate_step=0.0005, draft_length=len(rates))
            continue
        match = _LLAMA_LINE.search(line)
        if match is None:
            raise EngineMetricsError(f"Line {number} of llama-server's log is damaged or cut short: leave it out.")
        accepted, drafted = _count(match[1], LLAMA_WORDS[2]), _count(match[2], LLAMA_WORDS[3])
        record = Counted("llama.cpp", "draft acceptance of the log", drafted=drafted, accepted=accepted)
        if match[3]:
            mean = _number(match[3], LLAMA_WORDS[4])
            passes, exact = _passes(accepted, drafted, mean, 0.005, None)
            requests = ((passes, accepted),) if passes else ()
            record = replace(
                record, passes=passes, passes_exact=exact, mean=mean, mean_step=0.005 + EXACT, requests=requests
            )
        found.append(record)
    return found


def _rates(text: str, name: str) -> tuple[float, ...]:
    rates = tuple(_number(each.strip(), name) for each in text.split(","))
    if len(rates) > MAX_POSITIONS:
        raise EngineMetricsError(f"{name} has more than {MAX_POSITIONS} positions: give a part of the log.")
    return rates


def _passes(accepted: int, drafted: int, mean: float, step: float, length: int | None) -> tuple[int | None, bool]:
    """Passes behind a rounded mean acceptance length, and whether the rounding leaves only this number; `length` is the
    most draft tokens of a pass, None where that is not known.
    """
    fewest = math.ceil(drafted / length) if length else 1
    if length and drafted % length == 0 and abs(1 + accepted / fewest - mean) <= step:
        return fewest, False  # as many as there are if every draft had its full length
    if accepted == 0 or mean - 1 <= step:
        return (fewest if length and accepted == 0 else None), False
    low, high = accepted / (mean - 1 + step), accepted / (mean - 1 - step)
    passes = max(fewest, round(accepted / (mean - 1)))
    return passes, low <= passes <= high and math.floor(high) - math.ceil(low) == 0

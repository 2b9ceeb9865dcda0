"""What engines say about their speculative decoding: every form by hand, damaged ones, definitions, bounds, a run."""

import json
import math
import random
import re
from collections.abc import Callable, Iterator
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import msgspec
import pytest

from decoding.common.errors import EngineMetricsError, SettingsError
from decoding.import_metrics import main, metric_lines
from decoding.trace import engine_metrics
from decoding.trace.draft_figures import draft_figures
from decoding.trace.engine_config import engine_config
from decoding.trace.engine_fields import METRIC_SOURCES
from decoding.trace.engine_json import (
    AIPerfSpeculation,
    LlamaTimings,
    Profile,
    Record,
    SGLangMeta,
    SGLangState,
    TensorRTSpeculation,
    Usage,
    VllmMetrics,
    VllmSpeculation,
)
from decoding.trace.engine_metrics import DEFINITIONS, EngineMetrics, compared, load_metrics, read_metrics
from decoding.trace.engine_text import COUNTERS, DEVICES, LLAMA_WORDS, POSITION, VLLM_WORDS
from tests.helpers.families import family
from tests.helpers.traces import recorded, run_autoregressive

LABELS = 'engine="0",model_name="a-model"'


def scrape(drafts: int, drafted: int, accepted: int, by_position: list[int], labels: str = LABELS) -> str:
    lines = [
        "# HELP vllm:spec_decode_num_drafts_total Number of spec decoding drafts.",
        "# TYPE vllm:spec_decode_num_drafts_total counter",
        f"vllm:spec_decode_num_drafts_total{{{labels}}} {float(drafts)}",
        f"vllm:spec_decode_num_drafts_created{{{labels}}} 1.7e+09",
        f"vllm:spec_decode_num_draft_tokens_total{{{labels}}} {float(drafted)}",
        f"vllm:spec_decode_num_accepted_tokens_total{{{labels}}} {float(accepted)}",
    ]
    lines += [
        f'vllm:spec_decode_num_accepted_tokens_per_pos_total{{{labels},position="{place}"}} {float(count)}'
        for place, count in enumerate(by_position)
    ]
    return "\n".join([*lines, f"vllm:num_requests_running{{{labels}}} 2.0", ""])


def log_line(mean: str, accepted: int, drafted: int, rates: str, average: str) -> str:
    return (
        f"INFO 11-26 10:00:00 [metrics.py:100] SpecDecoding metrics: Mean acceptance length: {mean}, Accepted "
        f"throughput: 1.00 tokens/s, Drafted throughput: 2.00 tokens/s, Accepted: {accepted} tokens, Drafted: "
        f"{drafted} tokens, Per-position acceptance rate: {rates}, Avg Draft acceptance rate: {average}%"
    )


def vllm_response(histogram: list[int], drafted: int, completion: int) -> dict[str, Any]:
    steps, accepted = sum(histogram), sum(place * count for place, count in enumerate(histogram))
    speculation = {
        "mean_acceptance_length": 1 + accepted / steps,
        "draft_acceptance_rate": accepted / drafted,
        "acceptance_histogram": histogram,
        "num_spec_steps": steps,
        "num_accepted_draft_tokens": accepted,
        "num_draft_tokens": drafted,
        "num_spec_tokens": len(histogram) - 1,
        "per_step_accepted": None,
    }
    return {
        "id": "cmpl-1",
        "choices": [{"index": 0, "text": "one, two"}],
        "usage": {"prompt_tokens": 5, "completion_tokens": completion},
        "metrics": {"time_to_first_token_ms": 1.5, "speculative_decoding": speculation},
    }


def iteration(requests: int, drafted: int, accepted: int, length: float) -> dict[str, Any]:
    stats = {
        "numDraftTokens": drafted,
        "numAcceptedTokens": accepted,
        "numRequestsWithDraftTokens": requests,
        "acceptanceLength": length,
        "iterLatencyMS": 1.5,
        "draftOverhead": 0.2,
    }
    return {"iter": 3, "numActiveRequests": requests, "kvCacheStats": None, "specDecodingStats": stats}


def aiperf_line(histogram: dict[str, int], steps: int, accepted: int, drafted: int) -> dict[str, Any]:
    acceptance = {
        "engine": "vllm",
        "mean_acceptance_length": 1 + accepted / steps,
        "draft_acceptance_rate": accepted / drafted,
        "acceptance_histogram": histogram,
        "num_accepted_draft_tokens": accepted,
        "num_draft_tokens": drafted,
        "num_spec_steps": steps,
        "num_spec_tokens": 3,
        "completion_tokens": accepted + steps + 1,
    }
    metrics = {"request_latency": {"value": 12.5, "unit": "ms"}}
    return {"metadata": {"session_num": 0}, "metrics": metrics, "spec_decode_acceptance": acceptance, "error": None}


SGLANG = {
    "text": "one, two",
    "meta_info": {
        "id": "a",
        "completion_tokens": 51,
        "spec_accept_rate": 0.5,
        "spec_accept_length": 2.55,
        "spec_num_correct_drafts": 30,
        "spec_num_proposed_drafts": 60,
        "spec_verify_ct": 20,
        "spec_correct_drafts_histogram": [8, 0, 6, 6],
    },
}
SERVER_INFO = {
    "speculative_num_draft_tokens": 4,
    "tp_size": 4,
    "internal_states": [{"avg_spec_accept_length": 2.4, "memory_usage": {}}, {"avg_spec_accept_length": 2.6}],
    "version": "0.5.23",
}
LLAMA = {"content": "one", "timings": {"prompt_n": 3, "predicted_n": 45, "draft_n": 40, "draft_n_accepted": 25}}
LLAMA_LOG = """\
slot print_timing: id  0 | task 8 |       total time =   17764.67 ms /   142 tokens
slot print_timing: id  0 | task 8 | draft acceptance = 0.46541 (   74 accepted /   159 generated), mean len =  2.40
slot print_timing: id  0 | task 8 |      acc per pos = (0.698, 0.453, 0.245)
"""
PROFILE = {
    "schema_version": "1.0",
    "measured": True,
    "method": "eagle3",
    "num_speculative_tokens": 3,
    "verification_method": "longest_prefix",
    "conditional_accept_rates": [0.6, 1.0, 0.5],
    "marginal_accept_rates": [0.6, 0.6, 0.3],
    "mean_accept_length": 2.5,
    "mean_accept_length_per_request": 2.4,
    "accept_length_model": "chain_analytic",
    "acceptance_length_histogram": {"1": 8, "3": 6, "4": 6},
}


def as_lines(*documents: dict[str, Any]) -> str:
    return "".join(json.dumps(document) + "\n" for document in documents)


GOOD: dict[str, str] = {
    "vllm scrape": scrape(1000, 3000, 1700, [800, 600, 300]),
    "vllm log": "\n".join(
        [
            log_line("2.70", 170, 300, "0.800, 0.600, 0.300", "56.7"),
            "INFO something else",
            log_line("2.60", 480, 900, "0.800, 0.500, 0.300", "53.3"),
            log_line("nan", 0, 0, "nan, nan, nan", "nan"),
        ]
    ),
    "vllm responses": as_lines(vllm_response([2, 1, 1, 6], 30, 32), vllm_response([4, 0, 0, 0], 12, 5)),
    "sglang response": json.dumps(SGLANG, indent=1),
    "sglang server_info": json.dumps(SERVER_INFO),
    "tensorrt-llm": json.dumps([iteration(8, 24, 12, 2.5), iteration(0, 0, 0, 0.0), iteration(4, 12, 3, 1.75)]),
    "llama.cpp response": json.dumps(LLAMA),
    "llama.cpp log": LLAMA_LOG,
    "aiperf": as_lines(
        aiperf_line({"0": 2, "1": 1, "2": 1, "3": 6}, 10, 21, 30),
        {"metadata": {}, "metrics": {}, "error": {"message": "timeout"}},
        aiperf_line({"0": 4}, 4, 0, 12),
    ),
    "profile": json.dumps(PROFILE, indent=2),
}


def good(name: str) -> EngineMetrics:
    return read_metrics(GOOD[name].encode())


def rates(metrics: EngineMetrics) -> list[float]:
    return [each.marginal for each in metrics.positions]


# Name: marginal rates, passes, drafted, accepted, K, mean acceptance length.
BY_HAND: dict[str, tuple[list[float], int | None, int | None, int | None, int | None, float | None]] = {
    "vllm scrape": ([0.8, 0.6, 0.3], 1000, 3000, 1700, 3, 2.7),
    "vllm log": ([0.8, 0.525, 0.3], 400, 1200, 650, 3, 2.625),
    "vllm responses": ([8 / 14, 7 / 14, 6 / 14], 14, 42, 21, 3, 2.5),
    "sglang response": ([0.6, 0.6, 0.3], 20, 60, 30, 3, 2.5),
    "sglang server_info": ([], None, None, None, 3, 2.5),
    "tensorrt-llm": ([], 12, 36, 15, 3, 2.25),
    "llama.cpp response": ([], None, 40, 25, None, None),
    "llama.cpp log": ([0.698, 0.453, 0.245], 53, 159, 74, 3, 1 + 74 / 53),
    "aiperf": ([8 / 14, 7 / 14, 6 / 14], 14, 42, 21, 3, 2.5),
    "profile": ([0.6, 0.6, 0.3], 20, None, 30, 3, 2.5),
}


@pytest.mark.parametrize("name", GOOD)
def test_every_form_by_hand(name: str):
    metrics = good(name)
    marginal, passes, drafted, accepted, length, mean = BY_HAND[name]
    assert rates(metrics) == pytest.approx(marginal)
    assert (metrics.passes, metrics.drafted, metrics.accepted, metrics.draft_length) == (
        passes, drafted, accepted, length
    )  # fmt: skip
    assert metrics.value("mean acceptance length") == (mean if mean is None else pytest.approx(mean))
    rate = metrics.value("acceptance rate")
    assert rate == (pytest.approx(accepted / drafted) if drafted else None)
    assert metrics.sources == tuple(METRIC_SOURCES[name.split()[0]].names)
    assert sensible(metrics)
    assert [sentence for sentence in metrics.odd if "few" not in sentence] == []


def test_acceptance_by_position_with_its_errors():
    second = good("vllm scrape").positions[1]
    assert second.conditional == pytest.approx(0.75)
    assert second.marginal_error == pytest.approx(math.sqrt(0.6 * 0.4 / 1000))
    assert second.conditional_error == pytest.approx(math.sqrt(0.75 * 0.25 / 800))
    assert good("vllm scrape").odd == (), "1,000 passes are enough"


def test_the_translator():
    metrics = good("vllm responses")
    # 10 passes accepted 21 draft tokens, 4 passes none; 37 tokens came in two responses.
    assert {each.name: each.value for each in metrics.definitions} == pytest.approx(
        {
            "mean acceptance length": 1 + 21 / 14,
            "mean accepted length": 21 / 14,
            "mean acceptance length of a request": 1 + (2.1 + 0) / 2,
            "mean accepted length of a request": (2.1 + 0) / 2,
            "completion tokens per verification pass": 37 / 14,
            "tokens per target pass": 37 / (37 - 21),
            "acceptance rate": 21 / 42,
            "acceptance rate of tested tokens": 21 / (14 + 8 + 7),
            "accepted per verified": (21 + 14) / (42 + 14),
        }
    )
    assert [each.weight for each in metrics.definitions if each.weight == "request"] == ["request"] * 2
    assert good("sglang response").value("completion tokens per verification pass") == pytest.approx(2.55)
    assert good("llama.cpp response").value("tokens per target pass") == pytest.approx(45 / 20)
    assert good("profile").value("mean acceptance length of a request") == pytest.approx(2.4)
    with pytest.raises(KeyError):
        metrics.value("tau")


def test_what_another_k_would_give():
    lengths = {each.draft_length: each for each in good("vllm scrape").other_lengths}
    assert [lengths[k].low for k in (1, 2, 3)] == pytest.approx([1.8, 2.4, 2.7])
    assert all(lengths[k].exact and lengths[k].low == lengths[k].high for k in (1, 2, 3))
    assert sorted(lengths) == [1, 2, 3, 4, 5, 6]
    for further, (k, stayed) in enumerate(((4, 2.7 + 0.15), (5, 2.7 + 0.225), (6, 2.7 + 0.2625)), 1):
        each = lengths[k]
        assert not each.exact
        assert (each.low, each.stayed, each.high) == pytest.approx((2.7, stayed, 2.7 + 0.3 * further))
    assert any("only bounds" in note for note in good("vllm scrape").notes)
    last = read_metrics(scrape(10, 20, 0, [0, 0]).encode()).other_lengths[-1]
    assert (last.low, last.stayed, last.high) == (1, 1, 1), "where nothing came to the last position, nothing goes on"


def test_scrapes_are_not_counted_twice_and_a_restart_is_noticed():
    first, second = scrape(1000, 3000, 1700, [800, 600, 300]), scrape(1500, 4500, 2500, [1200, 850, 450])
    metrics = read_metrics((first + second).encode())
    assert (metrics.passes, metrics.accepted, metrics.records) == (1500, 2500, 2) and "the last of 2" in metrics.added
    restarted = read_metrics((second + first).encode())
    assert restarted.passes == 2500 and rates(restarted) == pytest.approx([0.8, 0.58, 0.3])
    two = read_metrics((first + scrape(100, 300, 30, [20, 10, 0], LABELS.replace('"0"', '"1"'))).encode())
    assert two.passes == 1100 and "2 engines" in two.added
    plain = re.sub(r"_total\b", "", first)
    assert read_metrics(plain.encode()).positions == read_metrics(first.encode()).positions


def test_records_are_added_up_and_say_how():
    assert good("vllm responses").added.startswith("The counts of 2 records were added up")
    assert "weighted by their passes" in good("vllm log").added
    assert "count alike" in good("sglang server_info").added and good("sglang server_info").devices == 4
    assert good("profile").added == ""
    assert good("tensorrt-llm").records == 2, "an iteration without drafts is none"
    assert "1 of 3 records hold no figures of speculative decoding and are left out." in good("aiperf").notes
    array = json.dumps([SGLANG, SGLANG])
    assert read_metrics(array.encode()).passes == 40


def test_passes_behind_a_rounded_mean():
    assert good("llama.cpp log").passes_exact, "no other number of passes rounds to this mean"
    assert not good("vllm log").passes_exact, "they follow from drafts of full length"
    other = read_metrics(LLAMA_LOG.splitlines()[1].encode())
    assert (other.passes, other.passes_exact, other.draft_length) == (53, True, None)
    old = read_metrics(b"slot print_timing: draft acceptance rate = 0.57576 (  171 accepted /   297 generated)")
    assert old.passes is None and old.value("acceptance rate") == pytest.approx(171 / 297)
    short = read_metrics(log_line("2.41", 141, 250, "0.800, 0.400, 0.210", "56.4").encode())
    assert short.passes == 100, "not all drafts had three tokens"


ODD: dict[str, tuple[str, str]] = {
    "rise": (scrape(1000, 3000, 1700, [500, 600, 600]), "position 2 (0.6) is above that of position 1 (0.5)"),
    "no share": (scrape(100, 300, 170, [120, 40, 10]), "The rate of position 1 is 1.2, which is no share"),
    "mean": (log_line("2.90", 190, 300, "0.800, 0.600, 0.300", "63.3"), "2.9, but its rates add up to 2.7"),
    "mean of counts": (json.dumps(iteration(8, 24, 12, 2.7)), "2.7, but its counts give 2.5"),
    "never": (scrape(1000, 3000, 800, [800, 0, 0]), "Positions 2 to 3 were accepted in no pass: with 1,000 passes"),
    "always": (scrape(1000, 1000, 1000, [1000]), "Position 1 was accepted in every pass"),
    "few": (scrape(100, 100, 50, [50]), "100 passes are few: the rate of position 1 is 0.500 with a binomial standard "
            "error of 0.050"),
    "few, no positions": (json.dumps(iteration(16, 48, 24, 2.5)), "16 passes are few: a rate near 0.5 has a binomial "
                          "standard error of 0.125"),
    "positions": (scrape(1000, 3000, 1690, [800, 600, 300]), "add up to 1700 accepted draft tokens, but 1690"),
    "histogram": (as_lines(vllm_response([2, 1, 1, 6], 30, 32)).replace('"num_spec_steps": 10', '"num_spec_steps": 20'),
                  "does not add up to the number of passes"),
    "too many": (json.dumps(iteration(8, 24, 48, 7.0)), "acceptance rate would be 2, which cannot be"),
    "none": (json.dumps(iteration(5000, 15000, 0, 1.0)), "None of 15,000 draft tokens was accepted"),
    "all": (json.dumps(iteration(5000, 15000, 15000, 4.0)), "All of 15,000 draft tokens were accepted"),
    "profile": (json.dumps(PROFILE | {"marginal_accept_rates": [0.7, 0.6, 0.3]}), "the histogram is taken"),
}  # fmt: skip


@pytest.mark.parametrize("name", ODD)
def test_what_is_odd_is_said(name: str):
    text, said = ODD[name]
    metrics = read_metrics(text.encode())
    assert any(said in sentence for sentence in metrics.odd), metrics.odd
    assert sensible(metrics)


REFUSED: dict[str, tuple[bytes, str]] = {
    "empty": (b" \n", "There is nothing to read: expected vLLM's /metrics"),
    "foreign text": (b"Once upon a time", "This holds no figures of speculative decoding"),
    "foreign JSON": (b'{"a": 1}', "This holds no figures of speculative decoding"),
    "binary": (b"\x00\xff\xfe" * 99, "This holds no figures of speculative decoding"),
    "cut short": (json.dumps(SGLANG).encode()[:-9], "damaged or cut short"),
    "deep": (b"[" * 100_000, "damaged"),
    "a line": (GOOD["aiperf"].encode()[:-9], "Line 3 is damaged"),
    "many lines": (b"acc per pos\n" * 500_001, "more than 500,000 lines"),
    "a long line": (b"acc per pos" + b"9" * 2**15, "Line 1 is too long"),
    "many records": (b"{}\n" * 250_001, "more than 250,000 records"),
    "two engines": (as_lines(SGLANG, LLAMA).encode(), "give a file for each"),
    "no pass yet": (scrape(0, 0, 0, [0, 0]).encode(), "no pass with a draft yet"),
    "no draft token yet": (scrape(10, 0, 0, [0, 0]).encode(), "no pass with a draft yet"),
    "no share of a count": (scrape(10, 20, 3, [2, 1]).replace("10.0", "10.5").encode(), "which counts nothing"),
    "no drafts": (scrape(10, 20, 3, [2, 1]).replace("num_drafts", "num_dragons").encode(), "num_drafts"),
    "a position is missing": (scrape(9, 18, 3, [2, 1]).replace('"0"} 2.0', '"7"} 2.0').encode(), "are missing"),
    "not measured": (json.dumps(PROFILE | {"measured": False}).encode(), "not measured"),
    "negative": (json.dumps(PROFILE | {"acceptance_length_histogram": {"0": 3}}).encode(), "-1 accepted draft tokens"),
    "huge": (b"x" * (engine_metrics.MAX_BYTES + 1), "larger than 64 MiB"),
    "many values": (b"[" + b"0," * (6 * 2**20) + b"0]", "give a part"),
}


@pytest.mark.parametrize("name", family(REFUSED, *(REFUSED.keys() - {"many lines", "many records"})))
def test_what_cannot_be_read_is_refused_in_one_sentence(name: str):
    data, said = REFUSED[name]
    with pytest.raises(EngineMetricsError) as refused:
        read_metrics(data)
    assert said in str(refused.value) and one_sentence(str(refused.value))


def one_sentence(words: str) -> bool:
    return words.isprintable() and words.endswith(".") and len(words) < 400 and not re.search(r"[.!?] [A-Z]", words)


def sensible(metrics: EngineMetrics) -> bool:
    """Whether every figure of a record is in its range and the record can be written."""
    length = metrics.draft_length or 1024
    for each in metrics.positions:
        assert 0 <= each.marginal <= 1 and (each.conditional is None or 0 <= each.conditional <= 1)
        assert all(error is None or 0 <= error <= 1 for error in (each.marginal_error, each.conditional_error))
    for figure in metrics.definitions:
        low, high = (0, 1) if figure.kind == "rate" else (1, length + 2) if figure.bonus else (0, length)
        assert figure.value is None or low <= figure.value <= high * (1 + 1e-9), figure
    for other in metrics.other_lengths:
        assert 1 <= other.low <= other.stayed + 1e-9 and other.stayed <= other.high + 1e-9
        assert other.high <= other.draft_length + 1 + 1e-9
    assert metrics.draft_length is None or 1 <= metrics.draft_length <= 1024
    assert all(count is None or count >= 0 for count in (metrics.passes, metrics.drafted, metrics.accepted))
    for sentence in (*metrics.odd, *metrics.notes):
        assert sentence.endswith(".") and sentence.isprintable()
    json.dumps(asdict(metrics), allow_nan=False)
    return all(line.isprintable() for text in metric_lines(metrics) for line in text.split("\n"))


JUNK = (
    "null",
    '"x"',
    "-5",
    "0",
    "1e400",
    "9" * 40,
    "1e300",
    "NaN",
    "-0.5",
    "7",
    "[]",
    "{}",
    "true",
    "0.1",
    "9007199254740993",
)
NUMBER = re.compile(r"-?\d+(?:\.\d+)?(?:e[+-]?\d+)?")


def truncated(text: str, draws: random.Random) -> bytes:
    return text.encode()[: draws.randrange(len(text))]


def flipped(text: str, draws: random.Random) -> bytes:
    data = bytearray(text.encode())
    for _ in range(draws.randint(1, 4)):
        data[draws.randrange(len(data))] ^= 1 << draws.randrange(8)
    return bytes(data)


def exchanged(text: str, draws: random.Random) -> bytes:
    for _ in range(draws.randint(1, 3)):
        number = draws.choice(list(NUMBER.finditer(text)))
        text = text[: number.start()] + draws.choice(JUNK) + text[number.end() :]
    return text.encode()


def dropped(text: str, draws: random.Random) -> bytes:
    """A key of a JSON document, or a line, is gone."""
    lines = text.splitlines()
    try:
        documents = [json.loads(text)]
    except ValueError:
        if not text.startswith("{"):
            return "\n".join(lines[: (gone := draws.randrange(len(lines)))] + lines[gone + 1 :]).encode()
        documents = [json.loads(line) for line in lines]
    places = [(part, key) for document in documents for part in parts(document) for key in part]
    part, key = draws.choice(places)
    del part[key]
    return "\n".join(map(json.dumps, documents)).encode()


def parts(value: Any) -> Iterator[dict[str, Any]]:
    """The objects in a JSON value."""
    if isinstance(value, dict):
        yield value
    for below in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from parts(below)


DAMAGES: tuple[Callable[[str, random.Random], bytes], ...] = (truncated, flipped, exchanged, dropped)


@pytest.mark.parametrize("name", GOOD)
def test_damaged_ones_give_a_sensible_record_or_are_refused(name: str):
    read = 0
    for seed in range(100):
        draws = random.Random(f"{name} {seed}")
        data = DAMAGES[seed % len(DAMAGES)](GOOD[name], draws)
        try:
            metrics = read_metrics(data)
        except EngineMetricsError as refusal:
            assert one_sentence(str(refusal)), refusal
        else:
            read += 1
            assert sensible(metrics), data
    assert 0 < read < 100


def test_every_name_that_is_read_is_one_of_the_engines():
    read = {
        "vllm": (VllmMetrics, VllmSpeculation, Usage),
        "sglang": (SGLangMeta, SGLangState),
        "tensorrt-llm": (TensorRTSpeculation,),
        "llama.cpp": (LlamaTimings,),
        "aiperf": (AIPerfSpeculation,),
        "profile": (Profile,),
    }
    for engine, structs in read.items():
        names = {field.encode_name for struct in structs for field in msgspec.structs.fields(struct)}
        assert {name for name in names if not METRIC_SOURCES[engine].knows(name)} == set()
    for field in msgspec.structs.fields(Record):
        assert any(source.knows(field.encode_name) for source in METRIC_SOURCES.values()), field
    assert all(METRIC_SOURCES["vllm"].knows(name) for name in (*COUNTERS.values(), POSITION, *VLLM_WORDS))
    assert METRIC_SOURCES["vllm"].knows(DEVICES[0]) and METRIC_SOURCES["sglang"].knows(DEVICES[1])
    assert all(METRIC_SOURCES["llama.cpp"].knows(name) for name in LLAMA_WORDS)
    by_label = {source.label: source for source in METRIC_SOURCES.values()}
    called = [call for _, _, _, _, _, calls in DEFINITIONS for call in calls]
    assert {who for who, _ in called} >= set(by_label)
    assert {call for call in called if call[0] in by_label and not by_label[call[0]].knows(call[1])} == set()
    assert all(re.fullmatch(r"\d{4}-\d\d-\d\d", source.read) for source in METRIC_SOURCES.values())


@pytest.mark.parametrize("name", ["race_linear", "tree_helps", "sampled"])
def test_a_profile_that_was_exported_comes_back(name: str):
    figures = draft_figures(recorded(name))
    metrics = read_metrics(engine_config(recorded(name), "profile").text.encode())
    assert rates(metrics) == pytest.approx(figures.rates(metrics.draft_length), abs=1e-6)
    assert metrics.passes == len(figures.accepted)
    assert metrics.value("mean accepted length") == pytest.approx(figures.mean_accepted)


def test_a_run_beside_an_engine():
    run = recorded("race_linear")
    figures = draft_figures(run)
    ours, count = figures.rates(3), len(figures.accepted)
    table = compared(good("vllm scrape"), run)
    assert (table.run_passes, len(table.positions)) == (count, 3)
    first = table.positions[0]
    both = (ours[0] * count + 800) / (count + 1000)
    error = math.sqrt(both * (1 - both) * (1 / count + 1 / 1000))
    assert (first.engine, first.run, first.difference) == pytest.approx((0.8, ours[0], ours[0] - 0.8))
    assert first.standard_errors == pytest.approx((ours[0] - 0.8) / error)
    same = compared(read_metrics(engine_config(run, "profile").text.encode()), run)
    assert all(abs(each.standard_errors) < 1e-3 for each in same.positions)
    longer = compared(read_metrics(scrape(1000, 4000, 1800, [800, 600, 300, 100]).encode()), run).positions[3]
    assert longer.engine == 0.1 and longer.run is longer.difference is longer.standard_errors is None
    alone = compared(good("sglang server_info"), run)
    assert [each.run for each in alone.positions] == ours and alone.positions[0].engine is None
    unknown = compared(replace(good("vllm scrape"), passes=None), run)
    spread = math.sqrt(ours[0] * (1 - ours[0]) / count)
    assert unknown.positions[0].standard_errors == pytest.approx((ours[0] - 0.8) / spread)
    assert any("trees" in note for note in compared(good("vllm scrape"), recorded("tree_helps")).notes)
    with pytest.raises(SettingsError, match="drafted nothing"):
        compared(good("vllm scrape"), run_autoregressive())


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    file = tmp_path / "metrics.txt"
    file.write_text(GOOD["vllm scrape"], encoding="utf-8")
    assert main([str(file)]) == 0
    out = capsys.readouterr().out
    assert out.startswith("vLLM: Prometheus counters of /metrics\n") and "0.8000 +- 0.0126" in out
    assert "2.7000 to 3.0000; 2.8500 if the last conditional rate stayed" in out
    assert main([str(file), "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == json.loads(json.dumps(asdict(load_metrics(file))))
    file.write_bytes(b"")
    for path in (file, tmp_path, tmp_path / "nowhere"):
        assert main([str(path)]) == 2
        said = capsys.readouterr()
        assert said.out == "" and said.err.startswith("error: ") and said.err.count("\n") == 1


@pytest.mark.parametrize(
    "text",
    [
        "Mean acceptance length: 1.60, Per-position acceptance rate: 0.400, 0.150, 0.050",
        "SpecDecoding metrics: Mean acceptance length: 1.60, Per-position acceptance rate: 0.400, 0.150, 0.050",
        "Per-position acceptance rate: 0.400, 0.150, 0.050",
    ],
)
def test_what_a_person_copies_out_of_a_log_line_is_read(text):
    metrics = read_metrics(text.encode())
    assert [each.marginal for each in metrics.positions] == [0.4, 0.15, 0.05] and metrics.draft_length == 3
    assert metrics.passes is None and metrics.value("mean acceptance length") == pytest.approx(1.6)


@pytest.mark.parametrize(
    "text",
    [
        "Mean acceptance length: 1.",
        "Per-position acceptance rate: 0.400, 0.150,",
        "SpecDecoding metrics: Mean acceptance length: 1.60, Accepted throughput: 12.0",
    ],
)
def test_a_log_line_that_breaks_off_is_refused_with_what_would_do(text):
    with pytest.raises(EngineMetricsError, match="give the whole line, or just 'Mean acceptance length: "):
        read_metrics(text.encode())


LINE = log_line("2.70", 170, 300, "0.800, 0.600, 0.300", "56.7")
ENGINE = (
    "INFO 11-26 10:00:00 [loggers.py:271] Engine 000: Avg prompt throughput: 5.0 tokens/s, Avg generation throughput: "
    "124.5 tokens/s, Running: {} reqs, Waiting: 0 reqs, GPU KV cache usage: 7.4%"
)


@pytest.mark.parametrize(
    "text",
    [
        "[pod/vllm-0/server] " + LINE,
        LINE.split("SpecDecoding metrics: ")[1],
        json.dumps({"log": LINE + "\n", "stream": "stdout"}),
        json.dumps({"log": "INFO ready\n"}) + "\n" + json.dumps({"log": LINE + "\n"}),
        *("\n".join(LINE[start : start + width] for start in range(0, len(LINE), width)) for width in (40, 79, 80)),
        "\r\n".join(LINE[start : start + 61] for start in range(0, len(LINE), 61)) + "\nINFO something else",
    ],
)
def test_a_log_line_is_read_however_it_was_copied(text):
    metrics = read_metrics(text.encode())
    assert rates(metrics) == [0.8, 0.6, 0.3] and (metrics.accepted, metrics.drafted, metrics.passes) == (170, 300, 100)
    assert metrics.seconds == pytest.approx(150), "300 draft tokens at 2 a second"


def test_two_wrapped_lines_stay_two():
    wrapped = "\n".join(LINE[start : start + 80] for start in range(0, len(LINE), 80))
    metrics = read_metrics(f"{wrapped}\n{wrapped}".encode())
    assert (metrics.records, metrics.passes, metrics.seconds) == (2, 200, pytest.approx(300))


def test_requests_and_throughput_of_the_engines_own_lines():
    metrics = read_metrics("\n".join([ENGINE.format(8), LINE, ENGINE.format(0), ENGINE.format(16), LINE]).encode())
    assert metrics.running == (8, 16) and metrics.generated == pytest.approx(124.5)
    assert good("vllm scrape").running == (2,) and good("vllm scrape").generated is None
    with pytest.raises(EngineMetricsError, match="no figures of speculative decoding"):
        read_metrics(ENGINE.format(8).encode())


@pytest.mark.parametrize(
    ("line", "devices"),
    [
        ("INFO Initializing a V1 LLM engine with config: model='m', tensor_parallel_size=8, data_parallel_size=1", 8),
        ("INFO non-default args: {'model': 'm', 'tensor_parallel_size': 4}", 4),
        ("INFO speculative_config=SpeculativeConfig(draft_tensor_parallel_size=2)", None),
        ("tensor_parallel_size=many", None),
    ],
)
def test_tensor_parallel_is_read_where_the_log_has_one(line, devices):
    assert read_metrics(f"{line}\n{LINE}".encode()).devices == devices
    wrapped = "\n".join(json.dumps({"log": each}) for each in (line, LINE))
    assert read_metrics(wrapped.encode()).devices == devices
    sglang = f"server_args=ServerArgs(model_path='m', {line.replace('tensor_parallel_size', 'tp_size')}, moe_tp_size=3)"
    batch = "Decode batch, #running-req: 19, accept len: 2.60, gen throughput (token/s): 253.70"
    assert read_metrics(f"{sglang}\n{batch}".encode()).devices == devices


@pytest.mark.parametrize("width", [60, 70, 80, 100])
def test_a_terminal_may_break_tensor_parallel_anywhere_before_its_number(width):
    line = "INFO Initializing a V1 LLM engine with config: model='m', tensor_parallel_size=8, data_parallel_size=1"
    broken = "\n".join(line[start : start + width] for start in range(0, len(line), width))
    assert read_metrics(f"{broken}\n{LINE}".encode()).devices == 8


def test_tensor_parallel_of_two_servers_is_none():
    assert read_metrics(f"tensor_parallel_size=8\ntensor_parallel_size=4\n{LINE}".encode()).devices is None


def test_the_log_of_sglang():
    text = (
        "[2025-05-27 20:14:38 TP0] Decode batch. #running-req: {}, #token: 16384, token usage: 0.71, accept len: {}, "
        "accept rate: 0.84, cuda graph: True, gen throughput (token/s): 2520.18, #queue-req: 3"
    )
    metrics = read_metrics("\n".join([text.format(18, "2.40"), text.format(20, "2.60")]).encode())
    assert metrics.engine == "SGLang" and metrics.value("mean acceptance length") == pytest.approx(2.5)
    assert metrics.running == (18, 20) and metrics.generated == pytest.approx(2520.18)
    assert metrics.draft_length is None, "what the rate divides by differs from version to version"


def test_lines_of_another_k_are_refused():
    other = log_line("2.70", 170, 500, "0.800, 0.600, 0.200, 0.060, 0.040", "34.0")
    with pytest.raises(EngineMetricsError, match=r"drafts of 3 and 5 tokens \(K\): give the figures of one K"):
        read_metrics(f"{LINE}\n{other}".encode())


def test_drafts_shorter_than_k_are_odd_and_contradictions_are_told_apart():
    (said,) = [s for s in read_metrics(LINE.replace("300", "180").encode()).odd if "on average" in s]
    assert "1.80 draft tokens on average and 3 at most" in said and "too low" in said
    assert read_metrics(LINE.encode()).wrong == ()
    rising = read_metrics(scrape(1000, 3000, 1700, [500, 600, 600]).encode())
    assert len(rising.wrong) == 1 and rising.wrong[0] in rising.odd
    assert read_metrics(LINE.replace("2.70", "2.90").encode()).wrong
    few = read_metrics(scrape(100, 100, 50, [50]).encode())
    assert few.odd and not few.wrong

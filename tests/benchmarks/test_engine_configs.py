"""What the benchmark of engines' parsers compares: what is exported, what arrives, what is read of counters."""

import json
from pathlib import Path

import pytest

from benchmarks.engine_configs import PASSES, cases, differences, environment, misread, python_environment
from decoding.recorded import recorded_run


def asked(engine: str, run: str, tmp_path: Path) -> dict[str, tuple[dict, dict]]:
    return {name: (given, wanted) for name, given, wanted in cases(engine, {"a": recorded_run(run)}, tmp_path)}


@pytest.mark.parametrize("engine", ["vllm", "sglang", "llama.cpp", "transformers", "tensorrt-llm"])
def test_every_value_of_a_text_has_to_arrive(engine, tmp_path):
    texts = asked(engine, "tree_helps_chain", tmp_path)
    assert texts.keys() == ({"a"} if engine in ("transformers", "tensorrt-llm") else {"a", "a, load test"})
    for _, wanted in texts.values():
        assert wanted["drafts"] == "model" and wanted["length"] == 3 and wanted["chain"] and len(wanted) > 4
        assert differences(wanted, wanted) == []
        for name in wanted:
            assert len(differences(wanted, {**wanted, name: "other"})) == 1
            assert len(differences(wanted, {key: wanted[key] for key in wanted if key != name})) == 1
        assert differences(wanted, {"refused": "ValueError: no"}) == ["refused: ValueError: no"]


def test_a_tree_is_to_arrive_as_a_tree(tmp_path):
    ((given, wanted),) = [each for name, each in asked("sglang", "tree_helps", tmp_path).items() if name == "a"]
    assert not wanted["chain"] and wanted["length"] == int(given["flags"]["--speculative-num-draft-tokens"]) - 1
    assert asked("vllm", "tree_helps", tmp_path)["a"][1]["chain"]


def test_rates_may_be_words_and_numbers_differ_by_rounding_only():
    assert differences({"rates": "0.5,0.25"}, {"rates": [0.5, 0.2500000001]}) == []
    assert differences({"rates": "0.5,0.25"}, {"rates": [0.5, 0.26]}) != []
    assert differences({"length": "3"}, {"length": 3}) == []


def test_what_is_read_otherwise_than_counted_is_said():
    histogram = [sum(accepted == length for _, accepted in PASSES) for length in range(4)]
    accepted, drafted = (sum(each) for each in zip(*((taken, all_) for all_, taken in PASSES), strict=True))
    said = {
        "mean_acceptance_length": 1 + accepted / len(PASSES), "draft_acceptance_rate": accepted / drafted,
        "acceptance_histogram": histogram, "num_spec_steps": len(PASSES), "num_accepted_draft_tokens": accepted,
        "num_draft_tokens": drafted, "num_spec_tokens": 3,
    }  # fmt: skip

    def response(**changes) -> str:
        return json.dumps({"metrics": {"speculative_decoding": said | changes}, "usage": {"completion_tokens": 20}})

    assert misread("response", response()) == []
    assert any("drafted is 99" in words for words in misread("response", response(num_draft_tokens=99)))
    assert any("marginal" in words for words in misread("response", response(acceptance_histogram=[1, 3, 2, 2])))


@pytest.mark.slow
def test_an_environment_that_is_there_is_taken_and_one_that_cannot_be_is_said(tmp_path, monkeypatch):
    (tmp_path / "ready").touch()
    assert python_environment("vllm", tmp_path) == tmp_path / "bin" / "python"
    monkeypatch.setattr("benchmarks.engine_configs.VERSIONS", {"vllm": "0"})
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    assert "vllm==0" in environment("vllm", tmp_path / "new")

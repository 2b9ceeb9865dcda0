"""Families with a will of their own decode as `generate` does to the last position; the table is of a real run."""

import pytest
import transformers

from benchmarks import architectures
from benchmarks.architectures import TABLE, Trial, cases, document, stored, try_architecture
from benchmarks.tiny_checkpoints import causal_types, write_pair
from decoding.compare.identity import MarginJudge
from decoding.models import pair as pair_module
from decoding.models.pair import PairSettings, load_pair

TEXT = (
    "Once upon a time there was a little fox who lived by the sea, and every day it went to look for its mother. " * 2
)
FAMILIES = (
    "gpt_neo",  # local layers, as wide as the context
    "deepseek_v3",  # keys and values of different width
    "llama, longrope from 32, context 32",
    "gpt_neo, global layers alone", "gpt_neo, window 32, context 32", "mistral, window 32, context 32",
    "phi3, longrope from 32, context 32", "deepseek_v2", "longcat_flash", "big_bird", "gemma4", "camembert", "opt",
    "gptj", "codegen", "llama4", "gpt_oss", "cohere2",
)  # fmt: skip
CASES = {case[0]: case for case in cases(())}


def outcome(name) -> Trial:
    return try_architecture(*CASES[name], TEXT)


@pytest.mark.slow
@pytest.mark.parametrize("name", FAMILIES)
def test_families_decode_as_generate_does_to_the_last_position(name):
    trial = outcome(name)
    assert trial.outcome == "right" and trial.near_ties <= 2, trial
    assert trial.tokens_per_iteration > 1.1  # a draft that never agrees tests nothing


@pytest.mark.parametrize(
    ("name", "parts"),
    [
        ("llama, longrope from 32, context 64", ("longrope", "lower context_length to 32")),
        ("gpt_neo, window 32, context 64", ("window of 32 tokens", "lower context_length to 32")),
    ],
)
def test_what_a_context_crosses_is_refused_with_the_length(name, parts):
    trial = outcome(name)
    assert trial.outcome == "refused" and all(part in trial.reason for part in parts), trial
    assert trial.reason.startswith("The target ")


@pytest.mark.slow
def test_a_model_that_hides_rows_by_number_is_reported_by_the_check_and_by_its_text(monkeypatch):
    monkeypatch.setattr(pair_module, "let_masks_decide", lambda _: None)
    refused = outcome("gpt_neo")
    assert refused.outcome == "refused" and "cannot take a tree attention mask" in refused.reason
    monkeypatch.setattr(pair_module, "check_tree_attention", lambda *_args, **_kwargs: ("additive", None))
    assert outcome("gpt_neo").outcome in ("wrong", "crash")


@pytest.mark.slow
def test_what_loading_a_pair_changes_in_a_model_is_seen(monkeypatch):
    """Its own `generate` would write the same other text."""
    monkeypatch.setattr(
        pair_module, "let_masks_decide", lambda network: network.get_output_embeddings().weight.data.neg_()
    )
    assert outcome("gpt2").outcome == "wrong"


def test_near_ties_of_a_model_whose_masks_decide_can_be_judged(tmp_path):
    target, draft = write_pair(tmp_path, "gpt_neo")
    pair = load_pair(PairSettings(str(target), str(draft), device="cpu", context_length=64))
    assert MarginJudge(pair.target).margin([5, 6, 7]) > 0


@pytest.mark.slow
def test_what_fails_is_reported_apart(monkeypatch):
    def broken(*_args):
        raise RuntimeError("no\nroom")

    monkeypatch.setattr(architectures, "_decode", broken)
    trial = outcome("gpt2")
    assert (trial.outcome, trial.reason) == ("crash", "while it decodes: RuntimeError: no room")


def test_the_table_is_of_a_run_over_every_decoder():
    record = stored()
    assert TABLE.read_text(encoding="utf-8") == document(record), "run python -m benchmarks.architectures --save"
    trials = {trial["name"]: trial["outcome"] for trial in record["trials"]}
    assert not {"wrong", "crash"} & set(trials.values())
    if record["hardware"]["transformers"] == transformers.__version__:
        assert set(trials) == set(CASES) >= set(causal_types())

"""Damaged model folders are refused in a sentence that names what is wrong; an escape is noticed."""

import json
import time
from random import Random

import pytest

from benchmarks import odd_folders
from benchmarks.folder_damage import CONFIG, KINDS, sound_folder
from benchmarks.odd_folders import OPENED, REFUSED, opened, outcomes
from decoding.common.errors import PairError, first_line
from decoding.models.loading import find_model
from decoding.models.pair import load_pair
from decoding.models.presets import PairSettings, memory_estimate

# What cannot be told apart by its sentence alone is not here; `-m slow` opens a folder of every kind.
TOLD = {
    "config.json is no object": "instead of an object in { }",
    "config.json is a pipe": "config.json of MODEL is a pipe or a device, not a file",
    "config.json: layer_types is wrong": "transformers does not know ('full_attention', 'wormhole_attention')",
    "config.json: head_dim is wrong": "has head_dim 0; it must be a whole number from 1 to 100,000.",
    "config.json: num_hidden_layers is wrong": "has num_hidden_layers 0; it must be a whole number from 1 to 1,000.",
    "hidden_size -1 and no heads": "has hidden_size -1; it must be a whole number from 1 to 1,000,000.",
    "config.json: max_position_embeddings is wrong": "max_position_embeddings null; it must be a whole number from 16",
    "sliding_window is wrong": "it must be a whole number from 16 to 2,147,483,648.",
    "config.json: dtype is wrong": "it must be one of float32, float16, bfloat16, float64.",
    "config.json: architectures is wrong": "MODEL is a LlamaModel, not a causal language model; choose",
    "config.json: eos_token_id is wrong": "it must be a token id, a list of them, or null.",
    "generation_config.json is no object or no JSON": "generation_config.json of MODEL contains a list instead",
    "generation_config.json: eos_token_id is no id": "generation_config.json of MODEL has eos_token_id ",
    "model.safetensors is a Git LFS pointer": "run `git lfs pull` in its folder",
    "weights so large that logits overflow": "gives nan instead of probabilities in float32",
    "model.safetensors is cut short": "model.safetensors of MODEL is damaged: it ",
    "a tensor has another shape": " and its configuration needs ",
    "one weight is nan": "contain nan or infinite values in ",
    "the index points nowhere": "lacks model-00002-of-00002.safetensors, which model.safetensors.index.json lists",
    "tokenizer.json is an empty object": "tokenizer.json of MODEL has no vocabulary",
    "added_tokens_decoder is wrong": "; it must be an object that maps ids to tokens.",
    "the chat template is wrong": "The chat template of MODEL cannot be used (",
}


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    return tmp_path_factory.mktemp("odd")


@pytest.mark.parametrize("kind", TOLD)
def test_damage_is_reported(kind, home):
    outcome = opened(kind, home, Random(0))
    assert (outcome.what, outcome.wrong) == (REFUSED, "")
    reported = outcome.sentence.replace(str(home / "damaged" / "model"), "MODEL")
    assert TOLD[kind] in reported


@pytest.mark.slow
def test_every_kind_once(home):
    assert [outcome for outcome in outcomes(len(KINDS), 5, home) if outcome.wrong] == []


def test_escapes_and_bad_sentences_are_noticed(home, monkeypatch):
    def raises(error):
        def fails(_settings):
            raise error

        monkeypatch.setattr(odd_folders, "open_pair", fails)
        return opened("return_dict and use_cache are off", home, Random(1))

    assert raises(ZeroDivisionError("division by zero")).wrong == "escaped"
    assert raises(PairError("The model has no room.")).wrong == "refused", "it should have opened"
    assert raises(PairError("'NoneType' object is not iterable.")).wrong
    kinds = {"x": odd_folders.Kind(KINDS["model.safetensors is missing"].damage, opens=False)}
    monkeypatch.setattr(odd_folders, "KINDS", kinds)
    monkeypatch.setattr(odd_folders, "_open", lambda _settings: None)
    assert opened("x", home, Random(1)) == odd_folders.FolderResult("x", *_chosen(1), OPENED, "", "opened")


@pytest.mark.slow
def test_a_folder_that_hangs_is_no_refusal(home, monkeypatch):
    def hangs(_settings):
        try:
            time.sleep(30)
        except Exception as error:
            raise PairError("It cannot be read.") from error

    monkeypatch.setattr(odd_folders, "_open", hangs)
    monkeypatch.setattr(odd_folders, "SECONDS", 1)
    outcome = opened("model.safetensors is missing", home, Random(1))
    assert (outcome.what, outcome.wrong) == ("StillAtWork", "escaped") and "after 1 s" in outcome.sentence


def _chosen(seed):
    draws = Random(seed)
    return draws.choice(odd_folders.Kind(lambda *_: None).models), draws.choice(("target", "draft"))


def test_the_same_seed_damages_the_same_folders(home, monkeypatch):
    monkeypatch.setattr(odd_folders, "_open", lambda _settings: None)
    first, again, other = ([(o.kind, o.model, o.role) for o in outcomes(12, seed, home)] for seed in (3, 3, 4))
    assert first == again != other


@pytest.mark.parametrize(
    "changes",
    [
        {"hidden_size": -1, "num_attention_heads": 0},
        {"num_attention_heads": 7},
        {"max_position_embeddings": "long", "vocab_size": None},
        {"text_config": None, "head_dim": 0},
    ],
)
def test_the_memory_of_a_damaged_folder_is_unknown_and_no_error(tmp_path, home, changes):
    folder = sound_folder(tmp_path / "model", "llama")
    assert memory_estimate(PairSettings(str(folder), str(folder), dtype="float32")) > 0
    config = json.loads((folder / CONFIG).read_text())
    (folder / CONFIG).write_text(json.dumps({**config, **changes}))
    estimate = memory_estimate(PairSettings(str(folder), str(folder), dtype="float32"))
    assert estimate is None or estimate > 0
    with pytest.raises(PairError):
        find_model(str(folder), "target")
        load_pair(PairSettings(str(folder), str(folder), device="cpu"))


def test_an_error_of_a_library_becomes_one_plain_line():
    wrapped = "Validation error for field 'width':\n    TypeError: Field 'width' expected int, got str (value: 'x')"
    assert first_line(ValueError(wrapped)) == "width is 'x', which is not a whole number"
    assert first_line(KeyError("swish9")) == "swish9 is unknown"
    assert first_line(TypeError("got: <class 'bool'>, not None\nmore")) == "got: bool, not null"
    assert first_line(RuntimeError()) == "RuntimeError" and len(first_line(ValueError("x" * 999))) == 200

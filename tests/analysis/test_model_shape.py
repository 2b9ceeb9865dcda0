"""Shapes from config.json: counted as transformers counts, as published, by hand; damaged and foreign ones refused."""

import json
import random

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from transformers import AutoModelForCausalLM
from transformers.models.auto.configuration_auto import CONFIG_MAPPING

from decoding.analysis.known_models import KNOWN_MODELS, known_name, known_shape
from decoding.analysis.model_shape import FAMILIES, MOST_CONFIG_BYTES, eagle_head, read_draft, read_shape
from decoding.common.errors import PairError

LLAMA = KNOWN_MODELS["Llama-3.1-8B"].config
# What makes a family's parts differ from its neighbours'.
VARIANTS = {
    "llama": ({}, {"attention_bias": True, "mlp_bias": True}, {"tie_word_embeddings": True, "num_key_value_heads": 4}),
    "qwen3": ({}, {"attention_bias": True}),
    "qwen2_moe": ({}, {"mlp_only_layers": [1], "decoder_sparse_step": 2}),
    "qwen3_moe": ({}, {"mlp_only_layers": [0], "num_experts": 16}),
    "deepseek_v2": ({"num_experts_per_tok": 6}, {"num_experts_per_tok": 6, "q_lora_rank": None}),
    "deepseek_v3": ({"first_k_dense_replace": 1}, {"q_lora_rank": None}),
}
CASES = [(kind, more) for kind in FAMILIES for more in VARIANTS.get(kind, ({},))]


@pytest.mark.parametrize(("kind", "more"), CASES, ids=[f"{kind}{number}" for number, (kind, _) in enumerate(CASES)])
def test_parameters_are_those_of_transformers(kind, more):
    layers = {"n_layer": 4} if kind == "gpt2" else {"num_hidden_layers": 4}
    config = CONFIG_MAPPING[kind](**layers, **more)
    if config.to_dict().get("layer_types"):
        config.layer_types = config.layer_types[:4]
    with torch.device("meta"):
        network = AutoModelForCausalLM.from_config(config)
    text = json.dumps({**config.to_dict(), "model_type": kind}, default=str)
    counted = sum(weight.numel() for weight in network.parameters())
    assert read_shape(text.encode(), kind).parameters == counted


@pytest.mark.parametrize("name", KNOWN_MODELS)
def test_parameters_are_those_published(name):
    known, shape = KNOWN_MODELS[name], known_shape(name)
    assert shape.parameters / 1e9 == pytest.approx(known.billions, rel=4e-3)  # rounded to three digits
    assert (known.active is None) == (shape.experts == 0)
    if known.active is not None:  # OpenAI leaves the embedding out
        used = shape.active_parameters - (shape.head if name.startswith("gpt-oss") else 0)
        assert used / 1e9 == pytest.approx(known.active, rel=0.02)


@pytest.mark.parametrize(("full", "local"), [(4, 2), (0, 6), (6, 0), (9, 0)])
def test_a_window_that_begins_at_a_layer(full, local):
    config = {
        "model_type": "qwen2", "hidden_size": 8, "intermediate_size": 12, "num_hidden_layers": 6,
        "num_attention_heads": 4, "vocab_size": 10,
        "sliding_window": 128, "use_sliding_window": True, "max_window_layers": full,
    }  # fmt: skip
    shape = read_shape(json.dumps(config).encode(), "small")
    assert (shape.local_layers, shape.window) == (local, 128)


def test_a_small_model_by_hand():
    config = {
        "model_type": "llama", "hidden_size": 8, "intermediate_size": 12, "num_hidden_layers": 2,
        "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 10,
    }  # fmt: skip
    shape = read_shape(json.dumps(config).encode(), "small")
    assert shape.head_dim == 2 and shape.projected == 4 * 2 + 2 * 2 * 2
    assert shape.attention == 8 * 16 + 8 * 8 + 2 * 8  # queries, keys and values; output; two norms
    assert shape.mlp == 3 * 8 * 12
    assert shape.parameters == 2 * (208 + 288) + 8 + 2 * 80  # layers, last norm, embedding and output head
    assert shape.kv_values == 2 * 2 * 2 and shape.pair_operations == 4 * 4 * 2
    assert read_shape(json.dumps({**config, "tie_word_embeddings": True}).encode(), "small").parameters == 1008 + 72


def test_experts_that_tokens_are_routed_to():
    mixtral = known_shape("Mixtral-8x7B")  # 2 of 8
    assert mixtral.touched_experts(1) == pytest.approx(2)
    assert mixtral.touched_experts(2) == pytest.approx(8 * (1 - 0.75**2)) == 3.5
    assert mixtral.touched_experts(10_000) == pytest.approx(8)
    assert known_shape("Llama-3.1-8B").touched_experts(5) == 0
    generator = random.Random(0)
    drawn = [len({e for _ in range(3) for e in generator.sample(range(8), 2)}) for _ in range(20_000)]
    assert sum(drawn) / len(drawn) == pytest.approx(mixtral.touched_experts(3), abs=0.02)


def test_what_the_cache_holds():
    deepseek = known_shape("DeepSeek-V3")
    assert deepseek.kv_values == 512 + 64 and deepseek.dense_layers == 3
    assert deepseek.pair_operations == 2 * 128 * (512 + 64) + 2 * 128 * 512
    assert known_shape("Llama-3.1-8B").kv_values == 2 * 8 * 128
    assert (known_shape("Gemma-2-9B").local_layers, known_shape("Gemma-2-9B").window) == (21, 4096)
    assert (known_shape("gpt-oss-20b").local_layers, known_shape("gpt-oss-20b").window) == (12, 128)
    assert known_shape("Qwen3-8B").local_layers == 0


def test_a_head_is_one_layer_over_the_targets_features():
    target = known_shape("Llama-3.1-8B")
    first, third = eagle_head(target), eagle_head(target, 32_000)
    assert first.layers == third.layers == 1 and first.vocabulary == target.vocabulary
    assert first.other == 4096 + 2 * 4096**2 and third.other == 4096
    assert third.attention - target.attention == 4096 * (32 + 2 * 8) * 128
    config = {**LLAMA, "num_hidden_layers": 1, "architectures": ["LlamaForCausalLMEagle3"], "draft_vocab_size": 32_000}
    assert read_draft(json.dumps(config).encode(), third.name, target) == third
    named = {**LLAMA, "num_hidden_layers": 1, "architectures": ["EagleLlamaForCausalLM"]}
    assert read_draft(json.dumps(named).encode(), first.name, target) == first
    layer = {**LLAMA, "num_hidden_layers": 1, "architectures": ["LlamaForCausalLM"]}
    for wrapped, head in (
        ({"model_type": "eagle", "model": layer}, first),
        ({"architectures": ["Eagle3Speculator"], "transformer_layer_config": layer, "draft_vocab_size": 32_000}, third),
    ):
        assert read_draft(json.dumps(wrapped).encode(), head.name, target) == head
    own = KNOWN_MODELS["Llama-3.2-1B"].text.encode()
    assert read_draft(own, "Llama-3.2-1B", target) == known_shape("Llama-3.2-1B")
    with pytest.raises(PairError, match="features of width 4,096"):
        read_draft(json.dumps(config).encode(), "a head", known_shape("Llama-3.1-70B"))


def test_the_language_model_of_one_that_sees():
    nested = {"model_type": "gemma3", "text_config": {**KNOWN_MODELS["Qwen3-8B"].config, "model_type": "gemma3_text"}}
    assert read_shape(json.dumps(nested).encode(), "one").layers == 36


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (b"", "is empty"),
        (b"{", "is not valid JSON"),
        (b"[1]", "contains a list instead of an object"),
        (b'{"a": 1}', "model_type null"),
        (json.dumps({**LLAMA, "model_type": "mamba"}).encode(), 'model_type "mamba", whose parts are not known'),
        (json.dumps({k: v for k, v in LLAMA.items() if k != "hidden_size"}).encode(), "has no hidden_size"),
        (json.dumps({**LLAMA, "num_key_value_heads": 5}).encode(), "must be a multiple"),
        (json.dumps({**LLAMA, "vocab_size": "many"}).encode(), "vocab_size"),
        (json.dumps({**LLAMA, "model_type": "mixtral"}).encode(), "has no num_experts"),
        (
            json.dumps({**LLAMA, "model_type": "mixtral", "num_local_experts": 2, "num_experts_per_tok": 3}).encode(),
            "routes each token to 3 of 2 experts",
        ),
        (b" " * (MOST_CONFIG_BYTES + 1), "is larger than 1 MB"),
    ],
)
def test_what_is_no_configuration_is_refused_in_a_sentence(text, said):
    with pytest.raises(PairError) as refused:
        read_shape(text, "mine")
    assert said in str(refused.value) and str(refused.value).endswith(".") and "mine" in str(refused.value)


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 10**12) | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=4,
)
CONFIGS = [known.config for known in KNOWN_MODELS.values()]
KEYS = sorted({key for config in CONFIGS for key in config})


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow], derandomize=True)
@given(st.sampled_from(CONFIGS), st.dictionaries(st.sampled_from(KEYS), VALUES, max_size=3), st.integers(0, 400))
def test_damage_is_refused_or_read_but_never_an_error_of_ours(config, damage, cut):
    whole = json.dumps({**config, **damage})
    for text in (whole, whole[:cut]):
        try:
            shape = read_shape(text.encode(errors="replace"), "mine")
        except PairError as refused:
            assert str(refused).endswith(".") and "\n" not in str(refused)
        else:
            assert shape.parameters > 0 and 0 <= shape.dense_layers <= shape.layers >= shape.local_layers


def test_a_repository_is_known_in_its_usual_variants_only():
    assert known_name("meta-llama/Llama-3.3-70B-Instruct") == known_name("llama-3.3-70b") == "Llama-3.3-70B"
    assert known_name("meta-llama/Meta-Llama-3.1-8B-Instruct") == "Llama-3.1-8B"
    assert known_name("openai/gpt-oss-20b") == "gpt-oss-20b" and known_name("Qwen/Qwen3-8B_eagle3") is None

"""Features are what the output head multiplies: for every architecture and engine the head makes the logits of them."""

import numpy as np
import pytest
import torch
import transformers

from benchmarks.fakes import make_checkpoint
from decoding.common.errors import PairError
from decoding.engines.base import EagerEngine, OutputHead, TransformersForward, Visibility, watched
from decoding.models.pair import PairSettings, embedded_pair, load_pair
from tests.helpers.tape import TapeGraphs

TREE = np.array([[1, 0, 0, 0], [1, 1, 0, 0], [1, 0, 1, 0], [1, 1, 0, 1]], dtype=bool)
# Architectures of transformers that do something to the product of their output head.
BEHIND = {
    "Granite": {"logits_scaling": 3.0},
    "Gemma2": {"final_logit_softcapping": 2.0, "head_dim": 8},
    "Cohere": {"logit_scale": 0.25},
}


@pytest.fixture(scope="module", params=["embedded", "llama", pytest.param("gpt2", marks=pytest.mark.slow)])
def pair(request, tmp_path_factory):
    if request.param == "embedded":
        return embedded_pair()
    target = str(make_checkpoint(tmp_path_factory.mktemp(request.param) / "target", request.param))
    return load_pair(PairSettings(target, target, device="cpu", dtype="float32", context_length=256))


def small_network(kind: str, **changes):
    config = {"vocab_size": 60, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 1, "pad_token_id": 0}
    heads = {"num_attention_heads": 4, "num_key_value_heads": 2}
    torch.manual_seed(0)
    made = getattr(transformers, f"{kind}Config")(**config, **heads, **changes)
    return getattr(transformers, f"{kind}ForCausalLM")(made).eval().requires_grad_(False)


@torch.inference_mode()
def passes(engine, ids, features: bool):
    """Logits (and features) of a text in one pass and of a tree behind it."""
    cache, found = engine.new_cache(16), []
    for at, among, keep, project in ((0, np.tri(5, dtype=bool), 0, 2), (5, TREE, 3, None)):
        count = len(among)
        args = (cache, ids[at : at + count], at + among.sum(1) - 1, engine.mask(Visibility(at, among)))
        if features:
            found.append(engine.run_with_features(*args, keep, project))
        else:
            found.append(engine.run(*args, project or keep))
    return found


@pytest.mark.parametrize("name", ["transformers", "packed", "cuda_graph"])
def test_the_logits_are_those_of_a_plain_pass_and_the_head_makes_them_of_the_features(pair, name):
    if name == "packed" and pair.target.info.architecture.startswith("GPT2"):
        pytest.skip("there is no lean forward of GPT-2")
    engine = pair.with_engine(name).target.engine
    ids = np.arange(1, 10) * pair.logits_size // 11
    plain, reported = passes(engine, ids, False), passes(engine, ids, True)
    for logits, (others, features), (projected, kept) in zip(plain, reported, ((2, 5), (3, 3)), strict=True):
        assert features.shape == (kept, pair.target.info.hidden_size) and len(others) == projected
        assert torch.allclose(logits, others, atol=1e-4)
        assert torch.allclose(engine.project(features)[-projected:], others, atol=1e-4)


def test_features_of_all_engines_agree(pair):
    ids = np.arange(1, 10) * pair.logits_size // 11
    found = [passes(pair.with_engine(name).target.engine, ids, True) for name in ("transformers", "cuda_graph", "auto")]
    for others in found[1:]:
        for (_, one), (_, other) in zip(found[0], others, strict=True):
            assert torch.allclose(one, other, atol=2e-3)


def test_a_graph_of_a_pass_with_features_is_not_that_of_one_without(pair, monkeypatch):
    engine = pair.with_engine("cuda_graph").target.engine
    monkeypatch.setattr(engine, "graphs", TapeGraphs(engine.device))
    ids = np.arange(1, 10) * pair.logits_size // 11
    plain = passes(engine, ids, False)
    cache = engine.new_cache(16)
    for _ in range(4):  # runs as it is, is captured, is replayed
        for features in (True, False):
            cache.rollback(0)
            with torch.inference_mode():
                engine.run(cache, ids[:5], np.arange(5), engine.mask(Visibility(0, np.tri(5, dtype=bool))), 1)
                args = (cache, ids[5:], 5 + TREE.sum(1) - 1, engine.mask(Visibility(5, TREE)), 3)
                logits = engine.run_with_features(*args)[0] if features else engine.run(*args)
            assert torch.allclose(logits, plain[1], atol=1e-4)
    assert engine.graphs.captured >= 2


@pytest.mark.parametrize("kind", BEHIND)
def test_what_a_model_does_behind_the_product_is_done(kind):
    network = small_network(kind, **BEHIND[kind])
    engine = EagerEngine("transformers", TransformersForward(network, kind), 1, torch.device("cpu"), torch.float32)
    ids = np.arange(1, 10)
    for (logits, features), plain in zip(passes(engine, ids, True), passes(engine, ids, False), strict=True):
        assert torch.equal(logits, plain)
        assert torch.allclose(engine.project(features)[-len(plain) :], plain, atol=1e-6)
        product = network.get_output_embeddings()(features)[-len(plain) :]
        assert not torch.allclose(product, plain, atol=1e-3), "there is nothing behind the product"


@pytest.mark.parametrize("how", ["no head", "unknown scale", "head not used"])
def test_a_target_without_features_is_one_sentence(how, monkeypatch):
    network = small_network("Llama")
    if how == "no head":
        monkeypatch.setattr(type(network), "get_output_embeddings", lambda self: None)
    elif how == "unknown scale":
        forward = type(network).forward

        def scaled(self, *args, **kwargs):
            output = forward(self, *args, **kwargs)
            output.logits = output.logits * 1.5
            return output

        monkeypatch.setattr(type(network), "forward", scaled)
    else:
        monkeypatch.setattr(type(network), "get_output_embeddings", lambda self: torch.nn.Linear(32, 60, bias=False))
    with pytest.raises(PairError, match="tiny gives no hidden states before its output head, which a draft head needs"):
        OutputHead(network, "tiny")


def test_nothing_watches_the_head_afterwards():
    network = small_network("Llama")
    head = network.get_output_embeddings()
    with watched(head, project=1) as seen:
        logits = network(input_ids=torch.arange(1, 6)[None]).logits
    assert logits.shape[1] == 1 and seen[0].shape == (1, 5, 32) and not head._forward_pre_hooks
    with pytest.raises(ZeroDivisionError), watched(head):
        1 / 0  # noqa: B018
    assert not head._forward_pre_hooks

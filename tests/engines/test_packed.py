"""The lean forwards give the library's logits, are taken where they fit, and go with the pair."""

import numpy as np
import pytest
import torch

from benchmarks.fakes import make_pair
from decoding.common.errors import PairError, SettingsError
from decoding.engines import choose, packed_cpu
from decoding.engines.base import Visibility
from decoding.engines.packed import Float16Linear, NeoXForward, PackedForward, can_pack, pack
from decoding.engines.packed_cpu import MergedForward
from decoding.models.pair import PairSettings, embedded_pair, load_pair, release, tree_forward
from tests.helpers.families import family

TREE = np.array([[1, 0, 0, 0, 0], [1, 1, 0, 0, 0], [1, 0, 1, 0, 0], [1, 1, 0, 1, 0], [1, 1, 0, 1, 1]], dtype=bool)


def load(folder, architecture, **changes):
    target, draft = make_pair(folder, architecture)
    settings = {"device": "cpu", "dtype": "float32", "context_length": 256, **changes}
    return load_pair(PairSettings(str(target), str(draft), **settings))


def log_probs(model, past, keep=0):
    """After a tree of five nodes behind `past` rows, `[keep or 5, vocab_size]`."""
    ids = np.arange(past + 5) * 37 % model.info.vocab_size
    cache = model.engine.new_cache(past + 8)
    with torch.inference_mode():
        tree_forward(model, cache, ids[:past], np.arange(past), Visibility.causal(0, past))
        logits = tree_forward(
            model, cache, ids[past:], past + np.array([0, 1, 1, 2, 3]), Visibility(past, TREE), keep=keep
        )
    assert cache.length == past + 5
    return torch.log_softmax(logits.float(), -1)


@pytest.mark.parametrize("architecture", ["gpt_neox", "llama", "qwen2"])
def test_packed_and_transformers_give_the_same_logits(tmp_path, architecture):
    pair = load(tmp_path, architecture, engine="packed")
    for model in (pair.target, pair.draft):
        assert model.info.engine == model.engine.name == "packed"
        library = model.with_engine("transformers")
        assert library.info.engine == "transformers" and library.network is model.network
        for past, keep in ((1, 0), (40, 2)):
            torch.testing.assert_close(log_probs(model, past, keep), log_probs(library, past, keep), rtol=0, atol=2e-5)


@pytest.mark.parametrize("table_bytes", family((2**30, 0), 2**30))
def test_a_table_of_the_first_layer_changes_no_logits(monkeypatch, table_bytes):
    monkeypatch.setattr(packed_cpu, "MOST_TABLE_BYTES", table_bytes)
    model = embedded_pair().target.with_engine("packed")
    library = model.with_engine("transformers")
    for past, keep in ((1, 0), (40, 2)):
        torch.testing.assert_close(log_probs(model, past, keep), log_probs(library, past, keep), rtol=0, atol=5e-5)
    ids, seen = np.array([5, 7, 9]), Visibility.causal(0, 3)
    with torch.inference_mode():
        cache, features = model.engine.new_cache(8), model.engine.new_cache(8)
        logits = model.engine.run(cache, ids, np.arange(3), model.engine.mask(seen), 2)
        last, kept = model.engine.run_with_features(features, ids, np.arange(3), model.engine.mask(seen), 2, 1)
    assert logits.shape[0] == 2 and kept.shape[0] == 2 and torch.allclose(last, logits[1:], rtol=0, atol=5e-5)


def test_weights_that_float16_holds_give_the_same_products_from_half_the_bytes():
    draws = torch.Generator().manual_seed(0)
    weight = torch.randn(96, 64, generator=draws).half().float()
    weight[0, :2] = torch.tensor([2.0**-24, 65504.0])  # the least and the largest number of float16
    x, bias = torch.randn(7, 64, generator=draws), torch.randn(96, generator=draws)
    product = pack(weight, bias)
    assert isinstance(product, Float16Linear)
    expected = (x.double() @ weight.double().T + bias).float()
    torch.testing.assert_close(product(x), expected, rtol=1e-6, atol=1e-5)
    torch.testing.assert_close(product.add_to(x[:, :1], x), expected + x[:, :1], rtol=1e-6, atol=1e-5)
    near = 0.0 if torch.backends.cpu.get_cpu_capability() == "AVX512" else 1e-5
    torch.testing.assert_close(product(x)[2:3], product(x[2:3]), rtol=near, atol=near)
    for other in (2.0**-26, 65520.0, 1 + 2.0**-12):
        weight[0, 0] = other
        assert not isinstance(pack(weight, bias), Float16Linear)


@pytest.mark.slow
@pytest.mark.skipif(not can_pack(torch.device("cpu"), torch.bfloat16), reason="this processor does not pack bfloat16")
def test_embedded_pair_in_bfloat16():
    pair = embedded_pair(dtype="bfloat16")
    assert pair.info.target.engine == "packed" and pair.target.dtype == torch.bfloat16
    lean, library = log_probs(pair.target, 40), log_probs(pair.target.with_engine("transformers"), 40)
    likely = library > -8
    assert float((lean - library)[likely].abs().max()) < choose.TOLERANCE[torch.bfloat16]
    assert float((lean - library).abs().max()) > 0  # another order of rounding: else the lean forward did not run


def test_auto_takes_the_library_where_there_is_no_lean_forward(tmp_path):
    pair = load(tmp_path, "gpt2")
    assert pair.info.target.engine == "transformers"
    with pytest.raises(PairError, match="the packed engine does not support; choose engine auto or transformers"):
        pair.with_engine("packed")


@pytest.mark.slow
def test_angles_that_depend_on_the_length_of_the_text_stand_in_no_table(embedded_network, monkeypatch):
    assert MergedForward.fits(embedded_network)
    rope = embedded_network.config.rope_parameters | {"rope_type": "dynamic"}
    monkeypatch.setattr(embedded_network.config, "rope_parameters", rope)
    assert not MergedForward.fits(embedded_network)


def test_auto_takes_the_library_where_packed_weights_would_not_fit(embedded_network):
    how = {"num_layers": 8, "device": torch.device("cpu"), "dtype": torch.float32, "mask_kind": "bool"}
    for free, name, why in ((10**12, "packed", "the fastest on a CPU; log-"), (10**7, "transformers", "free memory")):
        made = choose.make_engine("auto", embedded_network, "it", 64, free, mask_layer_types=None, **how)
        assert made.engine.name == name and why in made.reason("auto")


@pytest.mark.slow
def test_a_lean_forward_that_differs_makes_way_for_the_next_one(embedded_network, monkeypatch):
    how = {"num_layers": 8, "device": torch.device("cpu"), "dtype": torch.float32, "mask_kind": "bool"}
    how["mask_layer_types"] = None
    assert type(choose.make_engine("auto", embedded_network, "it", 64, **how).engine.forward) is MergedForward
    monkeypatch.setattr(MergedForward, "__call__", scaled(MergedForward.__call__))
    made = choose.make_engine("auto", embedded_network, "it", 64, **how)
    assert made.engine.name == "packed" and type(made.engine.forward) is NeoXForward
    assert "MergedForward being off by too much" in made.reason("auto")


@pytest.mark.slow
def test_lean_forwards_that_differ_are_refused(embedded_network, monkeypatch):
    how = {"num_layers": 8, "device": torch.device("cpu"), "dtype": torch.float32, "mask_kind": "bool"}
    how["mask_layer_types"] = None
    monkeypatch.setattr(PackedForward, "__call__", scaled(PackedForward.__call__))
    made = choose.make_engine("auto", embedded_network, "it", 64, **how)
    assert made.engine.name == "transformers" and "With the packed engine, log-probabilities of" in made.reason("auto")
    with pytest.raises(PairError, match=r"are off by .* choose engine transformers"):
        choose.make_engine("packed", embedded_network, "it", 64, **how)


@pytest.mark.slow
def test_only_likely_tokens_are_compared(embedded_network, monkeypatch):
    """In 16 bits the logits of tokens that nothing would ever choose are rounded by more than is allowed."""
    how = {"num_layers": 8, "device": torch.device("cpu"), "dtype": torch.float32, "mask_kind": "bool"}
    how["mask_layer_types"] = None
    forward = PackedForward.__call__

    def rounded(*args, of):
        logits = forward(*args)
        gap = logits.amax(-1, keepdim=True) - logits
        return logits + torch.where(of(gap), 0.05, 0.0)

    monkeypatch.setattr(PackedForward, "__call__", lambda *args: rounded(*args, of=lambda gap: gap > 9))
    made = choose.make_engine("auto", embedded_network, "it", 64, **how)
    assert made.engine.name == "packed" and made.difference < 2e-3
    monkeypatch.setattr(PackedForward, "__call__", lambda *args: rounded(*args, of=lambda gap: (gap > 0) & (gap < 2)))
    assert choose.make_engine("auto", embedded_network, "it", 64, **how).engine.name == "transformers"
    monkeypatch.setattr(PackedForward, "__call__", lambda *args: rounded(*args, of=lambda gap: gap > 9) * torch.nan)
    assert choose.make_engine("auto", embedded_network, "it", 64, **how).engine.name == "transformers"


def test_why_an_engine_runs_a_model_stands_in_its_record(pair):
    words = pair.info.target.engine_reason
    assert words.startswith("the fastest on a CPU; log-probabilities of likely tokens are within")
    asked = pair.with_engine("packed").info.target
    assert asked.engine == "packed" and asked.engine_reason == words.replace("the fastest on a CPU", "requested")
    assert pair.with_engine("transformers").info.draft.engine_reason == "requested"


def scaled(forward):
    return lambda *args: 1.01 * forward(*args)


@pytest.fixture(scope="module")
def embedded_network():
    return embedded_pair().target.network


@pytest.mark.slow
def test_engines_go_with_the_pair():
    pair = embedded_pair()
    other = pair.with_engine("transformers")
    release(pair)
    for one in (pair, other):
        with pytest.raises(PairError, match="released"):
            _ = one.target.engine


def test_unknown_engine():
    with pytest.raises(SettingsError, match="engine is 'warp'; choose one of auto, transformers, packed, cuda_graph"):
        PairSettings(engine="warp")

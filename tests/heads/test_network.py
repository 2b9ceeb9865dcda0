"""The network of a head by itself and behind a cache: pieces of a text, branches of a tree, shapes, dtypes it packs."""

import numpy as np
import pytest
import torch

from decoding.common.errors import SettingsError
from decoding.engines.base import Visibility
from decoding.heads.head import HeadEngine
from decoding.heads.network import HeadConfig, HeadNetwork

CONFIG = HeadConfig(hidden_size=16, vocab_size=50, num_heads=2, mlp_size=24)


def rows(count: int, seed: int = 1, batch: int = 2):
    generator = torch.Generator().manual_seed(seed)
    return (torch.randn(batch, count, 16, generator=generator) for _ in range(2))


@pytest.fixture
def network() -> HeadNetwork:
    return HeadNetwork(CONFIG, torch.Generator().manual_seed(0))


def causal(count: int) -> torch.Tensor:
    return torch.ones(1, count, count).tril().bool()


def test_a_text_in_two_pieces_is_the_text_in_one(network):
    embedded, features = rows(7)
    positions = torch.arange(3, 10).expand(2, 7)
    whole, keys, values = network(embedded, features, positions, causal(7))
    first, *past = network(embedded[:, :4], features[:, :4], positions[:, :4], causal(4))
    rest, late, _ = network(embedded[:, 4:], features[:, 4:], positions[:, 4:], causal(7)[:, 4:], tuple(past))
    assert torch.allclose(torch.cat([first, rest], 1), whole, atol=1e-5)
    assert torch.allclose(torch.cat([past[0], late], 2), keys, atol=1e-6) and values.shape == (2, 2, 7, 8)


def test_a_branch_sees_its_ancestors_alone_and_only_distances_count(network):
    embedded, features = rows(4)
    # A root, two children and a grandchild below the first.
    tree = torch.tensor([[[1, 0, 0, 0], [1, 1, 0, 0], [1, 0, 1, 0], [1, 1, 0, 1]]]).bool()
    positions = torch.tensor([[5, 6, 6, 7]]).expand(2, 4)
    made, _, _ = network(embedded, features, positions, tree)
    for path in ([0, 1, 3], [0, 2]):
        moved = torch.arange(100, 100 + len(path)).expand(2, len(path))
        alone, _, _ = network(embedded[:, path], features[:, path], moved, causal(len(path)))
        assert torch.allclose(made[:, path], alone, atol=1e-5)
    other = network(embedded, features, torch.tensor([[5, 6, 6, 8]]).expand(2, 4), tree)[0]
    assert not torch.allclose(made[:, 3], other[:, 3], atol=1e-3), "positions must count"


def test_first_weights_come_from_the_generator_alone():
    state = torch.get_rng_state()
    one, other = (HeadNetwork(CONFIG, torch.Generator().manual_seed(5)).state_dict() for _ in range(2))
    assert torch.equal(torch.get_rng_state(), state)
    assert all(torch.equal(one[name], other[name]) for name in one)
    size, mlp = CONFIG.hidden_size, CONFIG.mlp_size
    assert sum(weight.numel() for weight in one.values()) == 6 * size * size + 3 * size * mlp + 4 * size
    assert not any(("embed" in name and "norm" not in name) or "head" in name for name in one), "both are the target's"


def test_gradients_reach_every_weight_and_nothing_else(network):
    embedded, features = rows(3)
    network(embedded, features, torch.arange(3).expand(2, 3), causal(3))[0].square().mean().backward()
    assert all(weight.grad is not None and weight.grad.abs().max() > 0 for weight in network.parameters())


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"num_heads": 3}, "num_heads of a head is 3: it must split 16 into heads of an even size"),
        ({"num_heads": 16}, "num_heads of a head is 16"),
        ({"mlp_size": 0}, "mlp_size of a head is 0: give a whole number >= 1"),
        ({"hidden_size": 16.5}, "hidden_size of a head is 16.5"),
        ({"rope_theta": -1.0}, "rope_theta of a head is -1.0: give a number above 0"),
        ({"norm_eps": float("nan")}, "norm_eps of a head is nan"),
    ],
)
def test_a_shape_that_cannot_be_is_refused(wrong, words):
    with pytest.raises(SettingsError, match=words):
        HeadConfig(**{**vars(CONFIG), **wrong})


@pytest.mark.parametrize(("hidden", "heads"), [(320, 4), (64, 1), (768, 8), (4096, 64), (2, 1)])
def test_a_shape_for_a_target(hidden, heads):
    config = HeadConfig.of(hidden, 100)
    assert (config.num_heads, config.mlp_size) == (heads, 2 * hidden) and config.head_dim % 2 == 0
    with pytest.raises(SettingsError, match="give an even number"):
        HeadConfig.of(7, 100)


ENGINE_CONFIG = HeadConfig(hidden_size=24, vocab_size=40, num_heads=3, mlp_size=20)
TREE = np.array([[1, 0, 0, 0], [1, 1, 0, 0], [1, 0, 1, 0], [1, 1, 0, 1]], dtype=bool)


@pytest.mark.parametrize(("dtype", "within"), [(torch.float32, 1e-5), (torch.bfloat16, 5e-2)])
@torch.inference_mode()
def test_a_text_and_a_tree_behind_it(dtype, within):
    generator = torch.Generator().manual_seed(0)
    network = HeadNetwork(ENGINE_CONFIG, generator)
    network.embedding_norm.weight.copy_(torch.rand(24, generator=generator) + 0.5)
    embedding = torch.nn.Embedding(40, 24, _weight=torch.randn(40, 24, generator=generator)).to(dtype)
    engine = HeadEngine(network, embedding, 64, torch.device("cpu"), dtype)
    cache = engine.new_cache(2)
    ids, features = np.arange(3, 12), torch.randn(9, 24, generator=generator).to(dtype)
    positions = np.array([1, 2, 3, 4, 5, 6, 7, 7, 8])
    text = engine.run(cache, ids[:5], positions[:5], Visibility(0, np.tri(5, dtype=bool)), features[:5])
    tree = engine.run(cache, ids[5:], positions[5:], Visibility(5, TREE), features[5:])
    assert cache.length == 9
    mask = torch.zeros(1, 9, 9, dtype=torch.bool)
    mask[0, :5, :5], mask[0, 5:, :5], mask[0, 5:, 5:] = torch.ones(5, 5).tril().bool(), True, torch.from_numpy(TREE)
    network.to(dtype)
    embedded = embedding(torch.from_numpy(ids))[None]
    expected, keys, _ = network(embedded, features[None], torch.from_numpy(positions)[None], mask)
    assert torch.allclose(torch.cat([text, tree]), expected[0], atol=within * float(expected.abs().max()))
    assert torch.allclose(cache.rows()[0][0], keys, atol=within * float(keys.abs().max()))


def test_a_network_in_training_is_left_alone():
    network = HeadNetwork(ENGINE_CONFIG, torch.Generator().manual_seed(0)).train()
    HeadEngine(network, torch.nn.Embedding(40, 24), 64, torch.device("cpu"), torch.bfloat16)
    assert network.training and all(w.requires_grad and w.dtype == torch.float32 for w in network.parameters())

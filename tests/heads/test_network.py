"""The network of a head by itself: pieces of a text, branches of a tree, shapes that are refused."""

import pytest
import torch

from decoding.common.errors import SettingsError
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
        ({"num_heads": 3}, "num_heads of a head is 3: 16 must split into heads of an even size"),
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
    with pytest.raises(SettingsError, match="an even number is needed"):
        HeadConfig.of(7, 100)

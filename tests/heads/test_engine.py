"""The engine of a head computes what its network does, behind a cache and for trees, for every dtype it packs."""

import numpy as np
import pytest
import torch

from decoding.engines.base import Visibility
from decoding.heads.head import HeadEngine
from decoding.heads.network import HeadConfig, HeadNetwork

CONFIG = HeadConfig(hidden_size=24, vocab_size=40, num_heads=3, mlp_size=20)
TREE = np.array([[1, 0, 0, 0], [1, 1, 0, 0], [1, 0, 1, 0], [1, 1, 0, 1]], dtype=bool)


@pytest.mark.parametrize(("dtype", "within"), [(torch.float32, 1e-5), (torch.bfloat16, 5e-2)])
@torch.inference_mode()
def test_a_text_and_a_tree_behind_it(dtype, within):
    generator = torch.Generator().manual_seed(0)
    network = HeadNetwork(CONFIG, generator)
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
    network = HeadNetwork(CONFIG, torch.Generator().manual_seed(0)).train()
    HeadEngine(network, torch.nn.Embedding(40, 24), 64, torch.device("cpu"), torch.bfloat16)
    assert network.training and all(w.requires_grad and w.dtype == torch.float32 for w in network.parameters())

"""Fused kernels give what PyTorch's own operations give, and a model without them goes on with those.

The kernels run on a CUDA device, or anywhere with Triton installed and TRITON_INTERPRET=1.
"""

import os
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch.nn import functional

from benchmarks.fakes import make_pair
from decoding.engines import packed_cuda
from decoding.engines.base import Visibility
from decoding.engines.cuda_graph import CudaGraphEngine
from decoding.engines.packed import LlamaForward, NeoXForward
from decoding.models.pair import PairSettings, load_pair

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
needs_kernels = pytest.mark.skipif(
    packed_cuda.kernels is None or not (DEVICE == "cuda" or os.environ.get("TRITON_INTERPRET")),
    reason="Triton cannot run",
)
# What one rounding at the end and another order of a sum explain, for values of about 1.
ROUNDING = {torch.float32: 1e-5, torch.float16: 4e-3, torch.bfloat16: 3e-2}
# NumPy, and so Triton's interpreter, has no bfloat16.
DTYPES = [torch.float32, torch.float16, *[torch.bfloat16] * (DEVICE == "cuda")]


@pytest.fixture
def draw():
    maker = torch.Generator().manual_seed(0)
    return lambda dtype, *shape: torch.randn(*shape, generator=maker).to(DEVICE, dtype)


def rotated(x, angles):
    """A rotation by PyTorch, of `[num_queries, heads, head_dim]`."""
    x, size = x.clone(), angles.shape[2]
    part = x[..., :size]
    cosine, sine = angles[:, :1], angles[:, 1:]
    part.copy_(torch.addcmul(part * cosine, part.roll(size // 2, -1), sine))
    return x


@needs_kernels
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("heads", "kv_heads", "head_dim", "rotary"), [(8, 8, 80, 20), (4, 2, 128, 128), (3, 1, 16, 8)])
@pytest.mark.parametrize(("queries", "rows"), [(1, 256), (5, 300), (20, 1024)])
def test_attention_and_rotation_are_those_of_pytorch(draw, dtype, heads, kv_heads, head_dim, rotary, queries, rows):
    stored = draw(dtype, 2, 1, kv_heads, rows + 40, head_dim)
    asked, angles = draw(dtype, queries, heads, head_dim), draw(dtype, queries, 2, rotary)
    keys, values = draw(dtype, queries, 2, kv_heads, head_dim).unbind(1)  # as they lie in a joined product
    slots = torch.arange(rows - queries, rows, device=DEVICE)
    expected = stored.clone()
    expected[0, 0].index_copy_(1, slots, rotated(keys, angles).transpose(0, 1))
    expected[1, 0].index_copy_(1, slots, values.transpose(0, 1))

    turned = packed_cuda.kernels.rotate_into_cache((asked, keys, values), angles, stored, slots)
    torch.testing.assert_close(stored, expected, atol=ROUNDING[dtype], rtol=ROUNDING[dtype])
    torch.testing.assert_close(turned, rotated(asked, angles), atol=ROUNDING[dtype], rtol=ROUNDING[dtype])

    hidden = torch.rand(queries, rows + 8, generator=torch.Generator().manual_seed(1)).to(DEVICE) < 0.5
    hidden[0, :200] = True  # whole chunks of rows that a query does not see
    hidden[:, rows - 1] = False
    mask = torch.zeros(hidden.shape, dtype=dtype, device=DEVICE).masked_fill_(hidden, -torch.inf)[:, :rows]
    found = packed_cuda.kernels.tree_attention(turned, stored, mask, head_dim**-0.5)
    shared = stored[:, 0, :, :rows].double().repeat_interleave(heads // kv_heads, 1)
    exact = functional.scaled_dot_product_attention(turned.double().transpose(0, 1), *shared, mask.double())
    assert (found.double() - exact.transpose(0, 1).flatten(1)).abs().max() < ROUNDING[dtype]


@needs_kernels
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("size", [96, 2560])
@pytest.mark.parametrize("summands", [0, 1, 2])
def test_sums_and_norms_are_those_of_pytorch(draw, dtype, size, summands):
    x, first, second, gain, bias, other, offset = (draw(dtype, 3, size) for _ in range(7))
    added = (first, second)[:summands]
    total = x + sum(added) if added else x
    found = packed_cuda.kernels.add_and_norm(x, added, ((gain[0], bias[0]), (other[0], offset[0])), 1e-5)
    normed = functional.layer_norm(total, (size,), gain[0], bias[0], 1e-5)
    again = functional.layer_norm(total, (size,), other[0], offset[0], 1e-5)
    for mine, theirs in zip(found, (total, normed, again), strict=True):
        torch.testing.assert_close(mine, theirs, atol=ROUNDING[dtype], rtol=ROUNDING[dtype])
    by_root = packed_cuda.kernels.add_and_norm(x, added, ((gain[0], None),), 1e-5)
    for mine, theirs in zip(by_root, (total, functional.rms_norm(total, (size,), gain[0], 1e-5)), strict=True):
        torch.testing.assert_close(mine, theirs, atol=ROUNDING[dtype], rtol=ROUNDING[dtype])


@needs_kernels
@pytest.mark.parametrize(
    ("architecture", "forward", "plain"),
    [
        ("gpt_neox", packed_cuda.FusedNeoXForward, NeoXForward),
        ("llama", packed_cuda.FusedLlamaForward, LlamaForward),
        ("qwen2", packed_cuda.FusedLlamaForward, LlamaForward),
    ],
)
def test_a_fused_forward_gives_the_logits_of_the_plain_one(monkeypatch, tmp_path, architecture, forward, plain):
    monkeypatch.setattr(packed_cuda, "can_run", lambda device, dtype, head_dim: True)
    target, draft = make_pair(tmp_path, architecture)
    model = load_pair(PairSettings(str(target), str(draft), device=DEVICE, dtype="float32")).target
    assert forward.fits(model.network)
    how = model.engine.device, torch.float32
    found = []
    for kind in (forward, plain):
        engine = CudaGraphEngine(kind(model.network, 64), model.network.config.num_hidden_layers, *how)
        cache, ids = engine.new_cache(20), np.arange(10) * 7 % model.info.vocab_size
        among = np.array([[1, 0, 0], [1, 1, 0], [1, 0, 1]], dtype=bool)
        logits = [engine.run(cache, ids[:7], np.arange(7), Visibility.causal(0, 7), 7)]
        logits.append(engine.run(cache, ids[7:], np.array([7, 8, 8]), Visibility(7, among), 0))
        found.append(torch.cat(logits))
    torch.testing.assert_close(*found, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("biased", [False, True])
def test_joined_products_share_the_weights_of_their_modules(biased):
    modules = [torch.nn.Linear(6, width, bias=biased) for width in (4, 2, 3)]
    x = torch.randn(5, 6)
    expected = torch.cat([module(x) for module in modules], -1)
    product = packed_cuda.joined(*modules)
    again = packed_cuda.joined(*modules)
    torch.testing.assert_close(product(x), expected)
    torch.testing.assert_close(torch.cat([module(x) for module in modules], -1), expected)
    with torch.no_grad():
        modules[1].weight.zero_()
    assert all(one(x)[:, 4:6].allclose(again(x)[:, 4:6]) for one in (product, again)), "joined twice, kept once"
    bias = modules[1].bias if biased else torch.zeros(2)
    torch.testing.assert_close(product(x)[:, 4:6], bias.expand(5, 2))
    torch.testing.assert_close(again(x)[:, 4:6], bias.expand(5, 2))


def test_without_a_device_or_a_compiler_the_plain_forwards_remain(monkeypatch):
    packed_cuda.can_run.cache_clear()
    nowhere = torch.device("cuda", 99)
    assert not packed_cuda.can_run(torch.device("cpu"), torch.float32, 64)
    monkeypatch.setattr(packed_cuda, "kernels", None)
    assert not packed_cuda.can_run(nowhere, torch.float32, 64)
    packed_cuda.can_run.cache_clear()
    monkeypatch.setattr(packed_cuda, "kernels", SimpleNamespace(WIDEST=128, MOST_QUERIES=64, CHUNK=64, MOST_CHUNKS=8))
    assert not packed_cuda.can_run(nowhere, torch.float32, 256), "no room for heads as wide"
    with pytest.warns(RuntimeWarning, match="passes are slower"):
        assert not packed_cuda.can_run(nowhere, torch.float32, 64)
    packed_cuda.can_run.cache_clear()

"""The stand-in for torch against torch: every method and function it has, on the same numbers."""

import operator

import numpy as np
import pytest
import torch

from decoding.common.errors import NEEDS_TORCH, TorchMissingError
from decoding.common.numpy_tensor import Tensor
from decoding.common.numpy_torch import NumpyTorch
from decoding.common.numpy_torch import torch as numpy_torch

RNG = np.random.default_rng(0)
LAW = RNG.dirichlet(np.full(40, 0.1))
TABLES = {
    "law": LAW,
    "rows": RNG.normal(size=(5, 40)).astype(np.float32),
    "blocks": RNG.normal(size=(3, 4, 6)),
    "zeros": np.where(RNG.random((4, 9)) < 0.5, 0.0, RNG.random((4, 9))),
    "ids": RNG.integers(0, 40, (5, 3)),
    "one": np.array(0.25, dtype=np.float32),
}
# What is done to a tensor `t`, with the namespace `x`; on these tables.
ALL, MATRICES = tuple(TABLES), ("rows", "zeros")
FLOATS = ("law", "rows", "blocks", "zeros")
METHODS = {
    "abs": (lambda t, x: t.abs(), FLOATS),
    "all": (lambda t, x: [(t > -9).all(), (t > 0.1).all()], ALL),
    "amax": (lambda t, x: t.amax(-1), FLOATS),
    "amin": (lambda t, x: t.amin(-1), FLOATS),
    "any": (lambda t, x: [(t > 2).any(), (t > -9).any()], ALL),
    "argmax": (lambda t, x: [t.argmax(-1), t.argmax()], FLOATS),
    "argsort": (lambda t, x: [t.argsort(), t.argsort(-1, descending=True)], ("law", "rows", "blocks")),
    "clamp": (lambda t, x: [t.clamp(min=0), t.clamp(max=0.1), t.clamp(min=0, max=0.2)], FLOATS),
    "clone": (lambda t, x: _written(t.clone(), t), MATRICES),
    "contiguous": (lambda t, x: t.contiguous(), ALL),
    "count_nonzero": (lambda t, x: t.count_nonzero(-1), FLOATS),
    "cpu": (lambda t, x: t.cpu(), ALL),
    "cumsum": (lambda t, x: t.cumsum(-1), FLOATS),
    "device": (lambda t, x: x.tensor([t.device.type == "cpu"]), ALL),
    "double": (lambda t, x: t.double(), ALL),
    "dtype": (lambda t, x: x.tensor([t.dtype == x.float64, t.dtype == x.float32]), ALL),
    "expand": (lambda t, x: t[..., None].expand(-1, -1, 7), MATRICES),
    "fill_": (lambda t, x: t.clone().fill_(-x.inf), FLOATS),
    "flatten": (lambda t, x: [t.flatten(1), t.flatten()], ("rows", "blocks")),
    "float": (lambda t, x: t.float(), ALL),
    "gather": (lambda t, x: t.gather(1, t.argsort()[:, :3]), ("rows",)),
    "int": (lambda t, x: (t > 0).int(), ALL),
    "isfinite": (lambda t, x: t.clone().fill_(x.inf).isfinite(), FLOATS),
    "masked_fill": (lambda t, x: t.masked_fill(t > 0.1, -1.0), FLOATS),
    "max": (lambda t, x: t.max(), ALL),
    "min": (lambda t, x: t.min(), ALL),
    "minimum": (lambda t, x: t.minimum(t * -2), ALL),
    "new_zeros": (lambda t, x: t.new_zeros(3), ALL),
    "nonzero": (lambda t, x: [*(t > 0.1).nonzero(as_tuple=True)], FLOATS),
    "numel": (lambda t, x: x.tensor([t.numel()]), ALL),
    "numpy": (lambda t, x: x.from_numpy(t.numpy() + 1), FLOATS),
    "scatter_": (lambda t, x: x.zeros_like(t).scatter_(-1, t.argsort()[:, :3], t[:, :3]), ("rows",)),
    "shape": (lambda t, x: x.tensor(list(t.shape)), ALL),
    "sort": (lambda t, x: [*t.sort(-1), *t.sort(-1, descending=True)], ("law", "rows", "blocks")),
    "split": (lambda t, x: [*t.split(2)], ("rows", "blocks")),
    "sum": (lambda t, x: [t.sum(), t.sum(-1, keepdim=True), t.sum(-1, dtype=x.float32), (t > 0).sum(-1)], FLOATS),
    "to": (lambda t, x: [t.to(x.float64), t.to(x.ones(1)), t.to(t.device), t.to("cpu", copy=True)], ALL),
    "tolist": (lambda t, x: x.tensor(t.tolist(), dtype=x.float64), ALL),
    "topk": (lambda t, x: [*t.topk(5), *t.topk(6, -1), t.topk(3, -1, sorted=False).indices.sort(-1).values], ("rows",)),
    "unflatten": (lambda t, x: t.unflatten(1, (-1, 8)), ("rows",)),
}
FUNCTIONS = {
    "arange": (lambda t, x: x.arange(7), ("law",)),
    "cat": (lambda t, x: x.cat([t.new_zeros(1), t[t.argsort()].cumsum(0)]), ("law",)),
    "finfo": (lambda t, x: x.tensor([x.finfo(t.dtype).tiny]), FLOATS),
    "float32": (lambda t, x: t.to(x.float32), ALL),
    "float64": (lambda t, x: t.to(x.float64), ALL),
    "int64": (lambda t, x: (t > 0).to(x.int64), ALL),
    "from_numpy": (lambda t, x: x.from_numpy(np.arange(3.0)), ("law",)),
    "inf": (lambda t, x: t < x.inf, FLOATS),
    "nn": (lambda t, x: [x.nn.functional.one_hot(t.argmax(-1), 50), x.nn.functional.one_hot(t.argmax(), 999)], FLOATS),
    "ones": (lambda t, x: [x.ones(3), x.ones(3, dtype=x.float64)], ("law",)),
    "softmax": (lambda t, x: x.softmax(t / 0.7, -1), FLOATS),
    "special": (lambda t, x: x.special.entr(t.abs()), FLOATS),
    "stack": (lambda t, x: [x.stack([t, t * 2]), x.stack([t.sum(), t.min()])], FLOATS),
    "tensor": (lambda t, x: [x.tensor([0.5, 1]), x.tensor([1, 2], device=t.device)], ("law",)),
    "where": (lambda t, x: [x.where(t > 0, t / t, 0.0), x.where(t.sum() > 0, t / t.sum(), t)], FLOATS),
    "zeros_like": (lambda t, x: x.zeros_like(t), ALL),
}
OPERATORS = {
    "arithmetic": (
        lambda t, x: [t + 1, 1 - t, t * 2.5, t / 3, t / 0, (1 - t) ** 3, -t, t - t * 2, t * t.numpy()],
        FLOATS,
    ),
    "integers": (lambda t, x: [t // 4, t % 4, t * 8 + t], ("ids",)),
    "logic": (lambda t, x: [(t > 0) | ~(t <= 0.1), (t < 0) & (t == t), t != 0, t >= 0.2], FLOATS),
    "a number in a tensor": (lambda t, x: [t * x.ones(1, dtype=x.float64).sum(), 1 / t.sum()], FLOATS),
    "rows": (lambda t, x: [t[0], t[-1, 3], t[1:3], t[:, :2], t[..., None], t[None], t[[0, 2, 0]], *t], MATRICES),
    "places": (
        lambda t, x: [t[x.tensor([1, 0])], t[np.array([2, 1])], t[x.tensor([1, 0]), x.tensor([2, 3])], t[t > 0.3]],
        MATRICES,
    ),
    "written": (lambda t, x: _written(t.clone(), t), MATRICES),
    "numbers": (lambda t, x: x.tensor([float(t[0, 0]), int(t[0, 0] * 10), bool(t[0, 0] > 0), len(t)]), MATRICES),
    "for numpy": (lambda t, x: x.from_numpy(np.asarray(t) + 1), FLOATS),
}


def _written(copy, t):
    copy[0, 1] = 0.5
    copy[1] = 2.0
    copy[[2, 3], [0, 1]] = -1.0
    copy[3, []] = 7.0
    return [copy, t, copy[0] - t[0]]


def cases(*tables):
    return [
        pytest.param(table, name, id=f"{name}-{table}") for each in tables for name in each for table in each[name][1]
    ]


@pytest.mark.parametrize(("table", "name"), cases(METHODS, FUNCTIONS, OPERATORS))
def test_it_computes_what_torch_does(table, name):
    work = (METHODS | FUNCTIONS | OPERATORS)[name][0]
    wanted, found = work(torch.from_numpy(TABLES[table].copy()), torch), work(Tensor(TABLES[table].copy()), numpy_torch)
    for one, other in zip(*((each if isinstance(each, list) else [each]) for each in (wanted, found)), strict=True):
        assert isinstance(other, Tensor)
        assert other.numpy().dtype == one.numpy().dtype
        assert other.shape == tuple(one.shape)
        rounding = 4e-6 if one.dtype == torch.float32 else 1e-14
        np.testing.assert_allclose(other.numpy(), one.numpy(), rtol=rounding, atol=rounding)


def test_nothing_it_has_is_left_out_here():
    own = {name for name in vars(Tensor) if not name.startswith("_")}
    assert own == set(METHODS)
    assert {name for name in {**vars(NumpyTorch), **vars(numpy_torch)} if not name.startswith("_")} == set(FUNCTIONS)


@pytest.mark.parametrize(
    "ask",
    [
        lambda: numpy_torch.randn(3),
        lambda: numpy_torch.inference_mode(),
        lambda: Tensor(LAW).cuda(),
        lambda: Tensor(LAW).matmul(Tensor(LAW)),
        lambda: Tensor(LAW[None]).topk(1, 0),
        lambda: operator.iadd(Tensor(LAW), 1),
    ],
)
def test_whatever_else_is_asked_says_what_it_needs(ask):
    with pytest.raises(TorchMissingError, match="Decoding needs torch") as told:
        ask()
    assert str(told.value) == NEEDS_TORCH

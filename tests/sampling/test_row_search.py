"""The search in two steps finds what PyTorch finds, in the same order, and the first of equals."""

import pytest
import torch

from decoding.sampling import sampling
from decoding.sampling.sampling import BLOCK, FEWEST_ROWS, argmax_rows, topk_rows

SHAPES = [(FEWEST_ROWS, 16 * BLOCK), (40, 50 * BLOCK), (1, 16 * BLOCK), (40, 50 * BLOCK + 1), (40, BLOCK), (40, 7)]


@pytest.mark.parametrize(("num_rows", "size"), SHAPES)
def test_same_as_the_plain_search(num_rows, size):
    rows = torch.rand((num_rows, size), generator=torch.Generator().manual_seed(size))
    assert torch.equal(argmax_rows(rows), rows.argmax(-1))
    for count in (1, 3, 7):
        values, indices = topk_rows(rows, count)
        plain = rows.topk(count, -1)
        assert torch.equal(values, plain.values) and torch.equal(indices, plain.indices)


def test_the_largest_may_all_stand_in_one_block():
    rows = torch.zeros((FEWEST_ROWS, 32 * BLOCK))
    rows[:, 5 * BLOCK : 5 * BLOCK + 4] = torch.tensor([4.0, 3.0, 2.0, 1.0])
    values, indices = topk_rows(rows, 4)
    assert indices[0].tolist() == [5 * BLOCK + i for i in range(4)] and values[0].tolist() == [4, 3, 2, 1]


def test_the_first_of_equals_wins():
    rows = torch.zeros((FEWEST_ROWS, 32 * BLOCK))
    rows[:, [BLOCK + 3, BLOCK + 9, 20 * BLOCK]] = 1.0
    assert argmax_rows(rows).tolist() == [BLOCK + 3] * FEWEST_ROWS


def test_two_steps_are_taken_where_they_pay(monkeypatch):
    searched = []
    monkeypatch.setattr(torch.Tensor, "argmax", lambda rows, *_: searched.append(rows.shape) or rows.max(-1).indices)
    argmax_rows(torch.rand(sampling.FEWEST_ROWS, 16 * BLOCK))
    assert searched == [(FEWEST_ROWS, 16), (FEWEST_ROWS, BLOCK)]

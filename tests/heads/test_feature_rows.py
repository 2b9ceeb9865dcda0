"""Features by row: they are kept, dropped and copied as the rows of the target's cache are."""

import pytest
import torch

from decoding.engines.kv_cache import FeatureRows


def numbered(start: int, end: int) -> torch.Tensor:
    return torch.arange(start, end).float()[:, None].expand(-1, 3)


def test_rows_follow_the_accepted_path_and_grow():
    rows = FeatureRows(4)
    rows.append(numbered(0, 4))
    rows.append(numbered(10, 16))
    rows.compact(4, (4, 6, 9))
    assert rows.length == 7 and rows.between(0, 7)[:, 0].tolist() == [0, 1, 2, 3, 10, 12, 15]
    rows.compact(5, (5, 6))
    assert rows.at([6, 0, 6])[:, 0].tolist() == [15, 0, 15] and rows.length == 7
    rows.compact(3, ())
    assert rows.length == 3 and rows.allocated_bytes >= 10 * 3 * 4


def test_copies_are_independent():
    rows = FeatureRows(2)
    assert rows.clone().length == 0 and rows.allocated_bytes == 0
    rows.append(numbered(0, 5))
    short, copy = rows.first(3), rows.clone()
    rows.rollback(1)
    rows.append(numbered(7, 9))
    assert short.between(0, 3)[:, 0].tolist() == [0, 1, 2] and copy.between(0, 5)[:, 0].tolist() == [0, 1, 2, 3, 4]
    assert rows.first(9).length == 3


def test_rows_that_are_not_there_are_an_error():
    rows = FeatureRows(2)
    rows.append(numbered(0, 2))
    for start, end in ((0, 3), (1, 1), (-1, 1)):
        with pytest.raises(ValueError, match="not among the 2 held"):
            rows.between(start, end)
    with pytest.raises(ValueError, match="cannot roll back to 3"):
        rows.rollback(3)

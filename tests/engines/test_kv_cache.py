"""Preallocated rows and the features beside them: append, roll back, compact, grow, copy."""

import pytest
import torch

from decoding.engines.kv_cache import FeatureRows, KVCache


def write(cache, numbers, layers=2, heads=2, head_dim=3):
    """Append rows whose every entry is the given number (keys) and its negative (values)."""
    cache.reserve(len(numbers))
    rows = torch.tensor(numbers, dtype=torch.float32)[None, None, :, None].expand(1, heads, -1, head_dim)
    for layer in range(layers):
        keys, values = cache.update(rows + 100 * layer, -rows, layer)
        assert keys.shape == values.shape == (1, heads, cache.length + len(numbers), head_dim)
    cache.advance(len(numbers))


def held(cache, layer=0):
    return [int(x) - 100 * layer for x in cache.rows()[layer][0][0, 0, :, 0]]


def test_append_and_rollback():
    cache = KVCache(2, 8)
    write(cache, [1, 2, 3])
    write(cache, [4])
    assert held(cache) == held(cache, 1) == [1, 2, 3, 4]
    cache.rollback(2)
    write(cache, [9])
    assert held(cache) == [1, 2, 9]
    with pytest.raises(ValueError, match="cannot roll back"):
        cache.rollback(7)


@pytest.mark.parametrize("kept", [[2, 4, 7], [2, 3, 4], [], [3], [7], [2, 3, 5]])
def test_compaction_keeps_rows_in_order(kept):
    cache = KVCache(2, 16)
    write(cache, list(range(8)))
    moved = cache.compact(2, kept)
    assert held(cache) == held(cache, 1) == [0, 1, *kept]
    in_place = [row for position, row in enumerate(kept) if kept[: position + 1] == list(range(2, 3 + position))]
    assert moved == (len(kept) - len(in_place)) * cache.bytes_per_slot


def test_grows_without_losing_rows():
    cache = KVCache(2, 2)
    write(cache, [1, 2])
    write(cache, [3, 4, 5])
    assert held(cache) == [1, 2, 3, 4, 5] and cache.capacity >= 5


def test_clone_is_independent():
    cache = KVCache(2, 8)
    write(cache, [1, 2])
    copy = cache.clone()
    write(copy, [3])
    cache.rollback(0)
    write(cache, [8])
    assert held(copy) == [1, 2, 3] and held(cache) == [8]


def test_keys_and_values_of_different_width():
    """As MLA caches them: a latent, and a rotary key of all heads."""
    cache = KVCache(2, 2)
    for layer in range(2):
        rows = torch.arange(4.0)[None, None, :, None] + 10 * layer
        cache.reserve(4)
        keys, values = cache.update(rows.expand(1, 1, 4, 16), -rows.expand(1, 1, 4, 4), layer)
        assert keys.shape == (1, 1, 4, 16) and values.shape == (1, 1, 4, 4)
    cache.advance(4)
    assert cache.bytes_per_slot == 2 * 4 * (16 + 4)
    assert cache.compact(1, [1, 3]) == cache.bytes_per_slot
    for held in (cache, cache.clone()):
        for layer, (keys, values) in enumerate(held.rows()):
            expected = torch.tensor([0.0, 1.0, 3.0])[None, None, :, None] + 10 * layer
            assert torch.equal(keys, expected.expand(1, 1, 3, 16)) and torch.equal(values, -expected.expand(1, 1, 3, 4))
    cache.reserve(20)
    assert held.rows()[1][1][0, 0, :, 0].tolist() == [-10.0, -11.0, -13.0]


def test_layers_of_different_shape():
    cache = KVCache(2, 8)
    a, b = torch.ones(1, 2, 3, 4), torch.full((1, 1, 3, 6), 2.0)
    cache.update(a, a, 0)
    cache.update(b, b, 1)
    cache.advance(3)
    cache.compact(0, [2])
    assert [tuple(k.shape) for k, _ in cache.rows()] == [(1, 2, 1, 4), (1, 1, 1, 6)]
    assert cache.bytes_per_slot == 2 * 4 * (8 + 6)
    assert cache.clone().rows()[1][0].unique().tolist() == [2.0]


def numbered(start: int, end: int) -> torch.Tensor:
    return torch.arange(start, end).float()[:, None].expand(-1, 3)


def test_features_follow_the_accepted_path_and_grow():
    rows = FeatureRows(4)
    rows.append(numbered(0, 4))
    rows.append(numbered(10, 16))
    rows.compact(4, (4, 6, 9))
    assert rows.length == 7 and rows.between(0, 7)[:, 0].tolist() == [0, 1, 2, 3, 10, 12, 15]
    rows.compact(5, (5, 6))
    assert rows.at([6, 0, 6])[:, 0].tolist() == [15, 0, 15] and rows.length == 7
    rows.compact(3, ())
    assert rows.length == 3 and rows.allocated_bytes >= 10 * 3 * 4


def test_copies_of_features_are_independent():
    rows = FeatureRows(2)
    assert rows.first(9).length == 0 and rows.allocated_bytes == 0
    rows.append(numbered(0, 5))
    short, copy = rows.first(3), rows.first(9)
    rows.compact(1, ())
    rows.append(numbered(7, 9))
    assert short.between(0, 3)[:, 0].tolist() == [0, 1, 2] and copy.between(0, 5)[:, 0].tolist() == [0, 1, 2, 3, 4]
    assert rows.first(9).length == 3


def test_features_that_are_not_there_are_an_error():
    rows = FeatureRows(2)
    rows.append(numbered(0, 2))
    for start, end in ((0, 3), (1, 1), (-1, 1)):
        with pytest.raises(ValueError, match="not among the 2 held"):
            rows.between(start, end)

"""Triton kernels of a pass over few tokens, where launches and idle multiprocessors cost more than arithmetic.

Attention over rows that are split among programs: Dao et al. 2023, "Flash-Decoding for long-context inference".
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

# Rows that one program of attention reads; twice as many where that would make more programs than run at once.
CHUNK, MOST_CHUNKS = 64, 8
# Queries of one program: the matrix units take no fewer. In 32 bits no more fit in what a multiprocessor shares.
LEAST, MOST_QUERIES = 16, 64
WIDEST = 128  # head_dim for which all of that has room


def rotate_into_cache(heads: tuple[Tensor, Tensor, Tensor], angles: Tensor, stored: Tensor, slots: Tensor) -> Tensor:
    """Rotate queries and keys, write keys and values to their rows of the cache; return the queries.

    Args:
        heads: queries `[num_queries, heads, head_dim]`, keys and values `[num_queries, kv_heads, head_dim]`.
        angles: cosines and signed sines, `[num_queries, 2, rotary_size]` (see `attention.RotaryTable`).
        stored: keys and values of the layer, `[2, 1, kv_heads, capacity, head_dim]`. slots: int64 `[num_queries]`.
    """
    queries, keys, values = heads
    (count, num_heads, head_dim), turned = queries.shape, queries.new_empty(queries.shape)
    _rotate[(count, num_heads)](
        queries, keys, values, angles, stored, slots, turned,
        *queries.stride()[:2], *keys.stride()[:2], *values.stride()[:2],
        stored.stride(0), stored.stride(2), stored.stride(3), num_heads, keys.shape[1],
        head_dim=head_dim, rotary=angles.shape[2], width=triton.next_power_of_2(head_dim), num_warps=1,
    )  # fmt: skip
    return turned


@triton.jit
def _rotate(
    queries_ptr, keys_ptr, values_ptr, angles_ptr, stored_ptr, slots_ptr, turned_ptr,
    query_stride, query_head, key_stride, key_head, value_stride, value_head, stored_part, stored_head, stored_row,
    heads, kv_heads, head_dim: tl.constexpr, rotary: tl.constexpr, width: tl.constexpr,
):  # fmt: skip
    query, head, lane = tl.program_id(0), tl.program_id(1), tl.arange(0, width)
    real, turns = lane < head_dim, lane < rotary
    other = tl.where(turns, (lane + rotary // 2) % rotary, lane)
    cosine = tl.load(angles_ptr + query * 2 * rotary + lane, turns, 1)
    sine = tl.load(angles_ptr + (query * 2 + 1) * rotary + lane, turns, 0)
    at = queries_ptr + query * query_stride + head * query_head
    found = _turned(tl.load(at + lane, real), tl.load(at + other, real), cosine, sine, turns)
    tl.store(turned_ptr + (query * heads + head) * head_dim + lane, found, real)
    if head < kv_heads:
        row = stored_ptr + head * stored_head + tl.load(slots_ptr + query) * stored_row + lane
        at = keys_ptr + query * key_stride + head * key_head
        found = _turned(tl.load(at + lane, real), tl.load(at + other, real), cosine, sine, turns)
        tl.store(row, found, real)
        at = values_ptr + query * value_stride + head * value_head
        tl.store(row + stored_part, tl.load(at + lane, real), real)


@triton.jit
def _turned(x, other, cosine, sine, turns):
    """A vector turned by its angles, rounded where PyTorch rounds: after the first product and at the end."""
    first = (x.to(tl.float32) * cosine.to(tl.float32)).to(x.dtype)
    whole = first.to(tl.float32) + other.to(tl.float32) * sine.to(tl.float32)
    return tl.where(turns, whole.to(x.dtype), x)


def tree_attention(queries: Tensor, stored: Tensor, mask: Tensor, scale: float) -> Tensor:
    """Attention of one pass, `[num_queries, heads * head_dim]`.

    Args:
        queries: `[num_queries, heads, head_dim]`, contiguous. stored: as in `rotate_into_cache`.
        mask: added to the scores, `[num_queries, num_rows]`; the first `num_rows` rows are read.
    """
    (count, heads, head_dim), rows = queries.shape, mask.shape[1]
    block, chunk = min(max(triton.next_power_of_2(count), LEAST), MOST_QUERIES), CHUNK
    if queries.dtype == torch.float32:
        block, chunk = LEAST, CHUNK // 2
    elif rows > CHUNK * MOST_CHUNKS:
        chunk = 2 * CHUNK
    width = triton.next_power_of_2(head_dim)
    chunks = triton.cdiv(rows, chunk)
    # What each chunk gives: the largest score, the sum of weights, and the weighted values.
    parts = queries.new_empty((heads, count, chunks, width + 2), dtype=torch.float32)
    out = queries.new_empty(count, heads * head_dim)
    _attend[(heads, triton.cdiv(count, block), chunks)](
        queries, stored, mask, parts, scale, count, rows, mask.stride(0), heads, heads // stored.shape[2],
        stored.stride(0), stored.stride(2), stored.stride(3), head_dim=head_dim, width=width, block=block, chunk=chunk,
    )  # fmt: skip
    _join[(heads, count)](parts, out, heads, chunks, head_dim=head_dim, width=width, num_warps=1)
    return out


@triton.jit(do_not_specialize=["queries", "rows", "mask_row"])
def _attend(
    queries_ptr, stored_ptr, mask_ptr, parts_ptr, scale, queries, rows, mask_row, heads, groups,
    stored_part, stored_head, stored_row,
    head_dim: tl.constexpr, width: tl.constexpr, block: tl.constexpr, chunk: tl.constexpr,
):  # fmt: skip
    head, part, lane = tl.program_id(0), tl.program_id(2), tl.arange(0, width)
    query, row = tl.program_id(1) * block + tl.arange(0, block), part * chunk + tl.arange(0, chunk)
    asked, held, real = (query < queries)[:, None], row < rows, (lane < head_dim)[None, :]
    at = queries_ptr + (query[:, None] * heads + head) * head_dim + lane[None, :]
    asks = tl.load(at, asked & real, 0)
    at = stored_ptr + (head // groups) * stored_head + row[:, None] * stored_row + lane[None, :]
    keys = tl.load(at, held[:, None] & real, 0)
    values = tl.load(at + stored_part, held[:, None] & real, 0)
    seen = tl.load(mask_ptr + query[:, None] * mask_row + row[None, :], asked & held[None, :], float("-inf"))
    scores = tl.dot(asks, tl.trans(keys), input_precision="ieee") * scale + seen.to(tl.float32)
    highest = tl.max(scores, 1)
    weights = tl.exp(scores - _finite(highest)[:, None])
    found = tl.dot(weights.to(values.dtype), values, input_precision="ieee")
    place = parts_ptr + ((head * queries + query) * tl.num_programs(2) + part) * (width + 2)
    tl.store(place, highest, query < queries)
    tl.store(place + 1, tl.sum(weights, 1), query < queries)
    tl.store(place[:, None] + 2 + lane[None, :], found, asked & real)


@triton.jit
def _finite(highest):
    """0 for a query that sees none of the rows, or -inf - -inf would be nan."""
    return tl.where(highest == float("-inf"), 0.0, highest)


@triton.jit(do_not_specialize=["chunks"])
def _join(parts_ptr, out_ptr, heads, chunks, head_dim: tl.constexpr, width: tl.constexpr):
    head, query, lane = tl.program_id(0), tl.program_id(1), tl.arange(0, width)
    place = parts_ptr + (head * tl.num_programs(1) + query) * chunks * (width + 2)
    highest, total = tl.full([], float("-inf"), tl.float32), tl.zeros([], tl.float32)
    found = tl.zeros([width], tl.float32)
    for _ in range(chunks):
        mine = tl.load(place)
        largest = tl.maximum(highest, mine)
        shrunk, weight = tl.exp(highest - _finite(largest)), tl.exp(mine - _finite(largest))
        total = total * shrunk + tl.load(place + 1) * weight
        found = found * shrunk + tl.load(place + 2 + lane, lane < head_dim, 0) * weight
        highest = largest
        place += width + 2
    at = out_ptr + (query * heads + head) * head_dim + lane
    tl.store(at, (found / total).to(out_ptr.dtype.element_ty), lane < head_dim)


def add_and_norm(
    x: Tensor, added: tuple[Tensor, ...], norms: tuple[tuple[Tensor, Tensor | None], ...], eps: float
) -> tuple[Tensor, ...]:
    """`x` with what is `added`, the last of it first, and each norm of the sum, `[num_queries, hidden_size]` each.

    Two at most are added. `norms` are one or two pairs of gain and bias; without a bias it is by the root mean square.
    """
    x, added = x.contiguous(), tuple(each.contiguous() for each in added)
    count, size = x.shape
    total = torch.empty_like(x) if added else x
    normed = [torch.empty_like(x) for _ in norms]
    summands = added or (x,)
    _add_and_norm[(count,)](
        x, summands[0], summands[-1], *norms[0], *norms[-1], total, normed[0], normed[-1], eps, size,
        summands=len(added), num_norms=len(norms), centred=norms[0][1] is not None,
        width=triton.next_power_of_2(size), num_warps=8 if size > 1024 else 4,
    )  # fmt: skip
    return total, *normed


@triton.jit
def _add_and_norm(
    x_ptr, first_ptr, second_ptr, gain_ptr, bias_ptr, gain2_ptr, bias2_ptr, total_ptr, normed_ptr, normed2_ptr, eps,
    size, summands: tl.constexpr, num_norms: tl.constexpr, centred: tl.constexpr, width: tl.constexpr,
):  # fmt: skip
    lane = tl.arange(0, width)
    real, at = lane < size, tl.program_id(0) * size + lane
    x = tl.load(x_ptr + at, real, 0)
    if summands:
        more = tl.load(first_ptr + at, real, 0)
        if summands == 2:
            more = (more.to(tl.float32) + tl.load(second_ptr + at, real, 0).to(tl.float32)).to(x.dtype)
        x = (x.to(tl.float32) + more.to(tl.float32)).to(x.dtype)
        tl.store(total_ptr + at, x, real)
    vector = x.to(tl.float32)
    if centred:
        vector = tl.where(real, vector - tl.sum(vector, 0) / size, 0.0)
    vector *= tl.rsqrt(tl.sum(vector * vector, 0) / size + eps)
    _store_normed(vector, gain_ptr, bias_ptr, normed_ptr + at, lane, real, centred)
    if num_norms == 2:
        _store_normed(vector, gain2_ptr, bias2_ptr, normed2_ptr + at, lane, real, centred)


@triton.jit
def _store_normed(vector, gain_ptr, bias_ptr, at, lane, real, centred: tl.constexpr):
    vector *= tl.load(gain_ptr + lane, real, 0).to(tl.float32)
    if centred:
        vector += tl.load(bias_ptr + lane, real, 0).to(tl.float32)
    tl.store(at, vector.to(at.dtype.element_ty), real)

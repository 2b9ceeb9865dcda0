"""The few sizes that static passes have: what is asked for is rounded up to one of them."""

from bisect import bisect_left
from dataclasses import dataclass

import numpy as np

from decoding.engines.base import Visibility

# Between powers of two one more size, from 16 on: a tree of 64 nodes and its root takes 96 places, not 128.
BUCKETS = (1, 2, 4, 8, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024)
LARGEST = BUCKETS[-1]
# Trees of up to 63 nodes need one size of the matrix that says who sees whom among the new rows.
LEAST_AMONG = 64
# Attention reads whole steps of rows: 256, or an eighth of the next power of two where that is more.
ROW_STEP = 256
STEPS_PER_OCTAVE = 8
# A chain and its root; a longer causal pass is a prompt, whose length hardly comes up again: it runs at its own size.
LONGEST_CHAIN = 65


def bucket(count: int) -> int:
    """The least size that holds `count`; beyond the largest bucket, whole multiples of it."""
    if count > LARGEST:
        return -(-count // LARGEST) * LARGEST
    return BUCKETS[bisect_left(BUCKETS, count)]


def row_bucket(rows: int) -> int:
    """The least number of key rows, in steps, that holds `rows`."""
    octave = 1 << max(rows - 1, 0).bit_length()
    step = max(ROW_STEP, octave // STEPS_PER_OCTAVE)
    return max(-(-rows // step), 1) * step


@dataclass(frozen=True)
class PassShape:
    """Sizes of one pass, all rounded up.

    Attributes:
        queries: tokens.
        among: rows behind the past, the queries' own included.
        rows: key rows that attention reads.
        kept: queries whose logits are computed.
        recurs: whether a pass of these sizes is likely to come again, and worth a graph.
    """

    queries: int
    among: int
    rows: int
    kept: int
    recurs: bool = True

    @staticmethod
    def of(seen: Visibility, keep: int) -> "PassShape":
        """The shape of a pass that keeps `keep` of its queries."""
        count, total = seen.shape
        among = seen.among.shape[1]
        if count > LARGEST or (count > LONGEST_CHAIN and _is_causal(seen.among)):
            return PassShape(count, among, row_bucket(total), keep, recurs=False)
        queries = bucket(count)
        return PassShape(queries, bucket(max(among, LEAST_AMONG)), row_bucket(total - count + queries), bucket(keep))


def _is_causal(among: np.ndarray) -> bool:
    """Whether each of consecutive tokens sees those before it and itself."""
    return among.shape[0] == among.shape[1] and np.array_equal(among, np.tri(len(among), dtype=bool))

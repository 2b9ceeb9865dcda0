"""Best-first search for the most probable tree, in batches (optimal tree search of SpecExec; SALF, Algorithm 2)."""

from typing import NamedTuple

import numpy as np

from decoding.drafters.candidates import CandidateTree, bar, best


class Found(NamedTuple):
    """What a search ends with.

    Attributes:
        taken: the best of the candidates that left the queue (G).
        queue: those that wait there, not expanded (Q).
        early: True if it stopped although some of them could still have improved the tree.
    """

    taken: np.ndarray
    queue: np.ndarray
    early: bool


def best_first(tree: CandidateTree, batch: int, threshold: float = 0.0) -> Found:
    """Expand the `batch` best unexpanded candidates per draft forward until no child can be among the best.

    A round takes candidates from the queue, best first. Those that may still have a child among the `node_budget` best
    (D) are expanded: they are above the last level, and better than the last of the best. The search ends where there
    are none, or where their values sum to less than `threshold`. With threshold 0 the result is the most probable tree.

    The root is the first round: its value 1 reaches every threshold, and it takes no place. Candidates of the last
    level take no place in a batch, so that the sums never rise from round to round (Theorem 1) with a depth limit too.
    """
    count = tree.node_budget
    queue = tree.first_level()[:count]
    taken = queue[:0]
    while True:
        popped, queue = _pop(queue, batch, tree.deepest)
        taken_and_popped = np.concatenate([taken, popped])
        grows = (popped["depth"] < tree.deepest) & (popped["value"] > bar(taken_and_popped, count))
        values = popped["value"][grows]
        if not len(values) or values.sum() < threshold:
            return Found(best(taken_and_popped, count), queue, early=len(values) > 0)
        least = bar(np.concatenate([taken_and_popped, queue]), count)
        children = tree.expand(popped, grows, least)
        taken = best(np.concatenate([taken, popped]), count)
        queue = best(np.concatenate([queue, children]), count)


def _pop(queue: np.ndarray, batch: int, deepest: int) -> tuple[np.ndarray, np.ndarray]:
    """Split a sorted queue behind the `batch`-th candidate above the last level."""
    end = np.searchsorted(np.cumsum(queue["depth"] < deepest), batch) + 1
    return queue[:end], queue[end:]

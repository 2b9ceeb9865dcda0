"""Sequoia: the tree whose shape has the most expected accepted tokens for given acceptance rates by draw order.

The expected number of accepted tokens, root included, is F(tree) = sum over nodes of the product of P[slot] along the
path, where P[b] is the chance that the b-th child drawn is the one accepted. A dynamic programme maximises it.
"""

from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np

from decoding.common.errors import require
from decoding.common.settings import SHAPE, setting
from decoding.drafters import shared_settings as shared
from decoding.drafters.base import TreeBuilder
from decoding.drafters.drawing import DrawnDrafter, RemainingDistributions, note_stop_reason
from decoding.trace.records import RuleTrace
from decoding.tree.draft import Draft

MOST_CHILDREN = 16
MOST_NODES = 1024  # the dynamic programme takes time in the square of it

Shape = tuple[tuple[int, ...], ...]


@lru_cache(maxsize=128)
def best_shape(acceptance: tuple[float, ...], node_budget: int, max_depth: int, table_depth: int) -> Shape:
    """The best tree of at most `node_budget` drafted nodes and `max_depth` levels of them.

    Args:
        acceptance: chance that the b-th child drawn is accepted; a node has at most as many children.
        table_depth: depth to make the table for, at least `max_depth`; trees of several depths can share it.

    Returns:
        Children of each node in draw order, by number; node 0 is the root.
    """
    table = _best_values(acceptance, node_budget + 1, table_depth)
    children: list[tuple[int, ...]] = [()]
    waiting = [(0, max_depth, int(table[max_depth].max(0).argmax()))]
    for place, depth, size in waiting:  # grows while it is read: breadth first
        if depth == 0:
            continue
        sizes = []  # of the subtrees of the place, the last one drawn first
        for rank in range(int(table[depth, :, size].argmax()), 0, -1):
            subtree = _subtree_values(table, acceptance[rank - 1], depth)
            rest = int((table[depth, rank - 1, : size + 1] + subtree[size::-1]).argmax())
            sizes.append(size - rest)
            size = rest
        children[place] = tuple(range(len(children), len(children) + len(sizes)))
        waiting += [(child, depth - 1, below) for child, below in zip(children[place], reversed(sizes), strict=True)]
        children += [()] * len(sizes)
    return tuple(children)


@lru_cache(maxsize=8)
def _best_values(acceptance: tuple[float, ...], most_nodes: int, max_depth: int) -> np.ndarray:
    """Largest F of trees of exactly m nodes (root included), at most l levels below the root and b root children.

    T[l, b, m] = max over y of T[l, b - 1, y] + P[b] max_b' T[l - 1, b', m - y]; -inf where there is no such tree.

    Returns:
        `[max_depth + 1, len(acceptance) + 1, most_nodes + 1]`, indexed l, b, m.
    """
    table = np.full((max_depth + 1, len(acceptance) + 1, most_nodes + 1), -np.inf)
    table[:, 0, 1] = 1.0
    for depth in range(1, max_depth + 1):
        for rank, accepted in enumerate(acceptance, start=1):
            rest, subtree = table[depth, rank - 1], _subtree_values(table, accepted, depth)
            padded = np.concatenate([subtree[::-1], np.full(len(rest) - 1, -np.inf)])
            # Row m holds subtree[m - y] at y.
            shifted = np.lib.stride_tricks.sliding_window_view(padded, len(rest))[::-1]
            table[depth, rank] = (rest + shifted).max(1)
    return table


def _subtree_values(table: np.ndarray, accepted: float, depth: int) -> np.ndarray:
    """What the best subtree of each size adds below a child that is accepted with this chance, `[most_nodes + 1]`."""
    best = table[depth - 1].max(0)
    return np.where(np.isfinite(best), accepted * np.where(np.isfinite(best), best, 0.0), -np.inf)


@dataclass(frozen=True)
class SequoiaDrafter(DrawnDrafter):
    """A tree of fixed shape, drawn without replacement: the best one for the acceptance rates of the pair."""

    breadth = "shape"
    traced = RuleTrace("sequoia", depth_setting="max_depth")

    node_budget: int = shared.node_budget(64, high=MOST_NODES)
    max_depth: int = shared.max_depth(8)
    acceptance: str = setting(
        "", group=SHAPE, label="Acceptance by rank", symbol="P", placeholder="measured with the loaded pair",
        help="Probability that the 1st, 2nd, ... child is accepted; empty: measured with the loaded pair.",
    )  # fmt: skip

    def __post_init__(self):
        super().__post_init__()
        if self.acceptance:
            rates = self.rates
            require(
                len(rates) <= MOST_CHILDREN and all(0 <= rate <= 1 for rate in rates) and sum(rates) <= 1.001,
                f"acceptance must be 1 to {MOST_CHILDREN} comma-separated probabilities that sum to at most 1, "
                f"not {self.acceptance!r}.",
            )

    @property
    def rates(self) -> tuple[float, ...]:
        """Chance of each child in draw order of being accepted; nan for what is no number."""
        return tuple(shared.numbers(self.acceptance.split(",")))

    def prepared(self, measured) -> "SequoiaDrafter":
        if self.acceptance:
            return self
        return replace(self, acceptance=",".join(f"{rate:.4g}" for rate in measured.acceptance()))

    def draft(self, state, source, root_token, draws) -> Draft:
        require(
            bool(self.acceptance),
            "acceptance is empty: give the probability that the 1st, 2nd, ... child drawn is accepted, such as "
            "0.6,0.2,0.1, or let it be measured with a loaded pair.",
        )
        builder, depth = TreeBuilder(source, root_token), min(self.max_depth, source.depth_limit)
        children = best_shape(self.rates, self.node_budget, depth, self.max_depth)
        nodes, slots = builder.root_frontier(), [children[0]]
        while any(slots):
            inner = [i for i, slot in enumerate(slots) if slot]
            nodes, places = self._grow_level(builder, nodes[inner], [slots[i] for i in inner], draws)
            slots = [children[place] for place in places]
        note_stop_reason(builder.tree, self.max_depth, source.depth_limit, "shape")
        return builder.finish(self.draft_sampling, state, self.settings())

    def _grow_level(self, builder: TreeBuilder, frontier: np.ndarray, slots: list[tuple[int, ...]], draws):
        """Draw all first children of a level, then all second ones, ...; returns new nodes and their places.

        Where a distribution has fewer tokens than the shape has children, the last ones are left out.
        """
        distributions = RemainingDistributions(builder.expand_distributions(frontier))
        widths, nodes, places = np.array([len(slot) for slot in slots]), [], []
        for rank in range(widths.max()):
            rows = np.flatnonzero((widths > rank) & (distributions.support > 0))
            if not len(rows):
                break
            tokens, probs = distributions.draw(rows, draws)
            nodes.append(builder.tree.append(frontier[rows], tokens, probs))
            places += [slots[row][rank] for row in rows]
        return np.concatenate(nodes), places

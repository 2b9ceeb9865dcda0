"""Trees that hold the delayed trees of every action at one root: drafted once, read by every label.

A super-tree is one trunk of 8 draws and, at each of its 9 points, four independent paths of 8 draws. The delayed tree
(K, L1, L2) is its trunk up to point L1 and the first K paths from there, cut after L2 tokens.
"""

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from decoding.drafters.base import Growing, ProbabilitySource
from decoding.drafters.drawing import draw_rows
from decoding.sampling.draws import Draws
from decoding.selector.actions import MOST_LENGTH, MOST_PATHS
from decoding.tree.draft import TokenTree

POINTS = MOST_LENGTH + 1
DEEPEST = 2 * MOST_LENGTH
ROWS = POINTS + POINTS * MOST_PATHS * (MOST_LENGTH - 1)  # nodes of a super-tree after which laws are needed, at most


@dataclass(frozen=True)
class SuperTrees:
    """Some independent super-trees below one root; contexts that they share are one node.

    Attributes:
        tree: every distinct node.
        nodes: ids of the nodes after which both laws are needed, parents first; a node's place among them is its row.
        draft: the draft's laws after them, `[num_rows, vocab_size]`.
        trunk: row of each trunk's points, `[trees, 9]`; its tokens, `[trees, 8]`, are `trunk_tokens`.
        trunk_tokens: see `trunk`.
        rows: row of the node at each depth of each path, `[trees, 9, 4, 8]`: point, path, depth below the point.
        tokens: what was drawn there, in the same places.
        first: the first path through the same node, `[trees, 9, 4, 9]`: paths share a node where they have all tokens
            down to it in common.
    """

    tree: TokenTree
    nodes: np.ndarray
    draft: Tensor
    trunk: np.ndarray
    trunk_tokens: np.ndarray
    rows: np.ndarray
    tokens: np.ndarray
    first: np.ndarray

    def only(self, trees: int) -> "SuperTrees":
        """The first so many of them; laws are still those of all."""
        cut = {name: getattr(self, name)[:trees] for name in ("trunk", "trunk_tokens", "rows", "tokens", "first")}
        return replace(self, **cut)

    @cached_property
    def lists(self) -> "EntryLists":
        """Lists of entries at nodes that have more than one."""
        return entry_lists(self)

    @cached_property
    def counted(self) -> np.ndarray:
        """Whether a path's node is in the tree of K paths and not there with an earlier path already.

        Bool `[trees, 9, 4, 4, 8]`: point, K, path, depth from 1.
        """
        own = self.first[..., 1:] == np.arange(MOST_PATHS)[:, None]
        there = np.tri(MOST_PATHS, dtype=bool)[:, :, None]
        return own[:, :, None] & there


@dataclass(frozen=True)
class EntryLists:
    """Lists of entries at nodes that have more than one, each distinct one once.

    Attributes:
        by_length: for each length k: rows `[n]`, tokens `[n, k]`, and which chance of `[n, k]` belongs to which of
            `[trees, points, K, path, depth]`, both flattened.
    """

    by_length: tuple[tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray], ...]

    @property
    def count(self) -> int:
        """Distinct lists."""
        return sum(len(rows) for rows, *_ in self.by_length)


def draw_super_trees(source: ProbabilitySource, root_token: int, trees: int, draws: Draws) -> SuperTrees:
    """Draw `trees` independent super-trees, level by level; each level takes one draft forward."""
    growing = Growing(source, root_token, capacity=2048)
    trunk = np.zeros((trees, POINTS), dtype=np.int64)
    paths = np.zeros((trees, POINTS, MOST_PATHS, POINTS), dtype=np.int64)
    for depth in range(DEEPEST):
        if depth < POINTS:
            paths[:, depth, :, 0] = trunk[:, depth, None]
        points = np.arange(max(0, depth - MOST_LENGTH + 1), min(depth, MOST_LENGTH) + 1)
        ends = paths[:, points, :, depth - points]  # [points, trees, paths]
        grows = depth < MOST_LENGTH
        parents = np.concatenate([trunk[:, depth] if grows else [], ends.ravel()]).astype(np.int64)
        frontier, rows = np.unique(parents, return_inverse=True)
        tokens, probs = draw_rows(draws, growing.expand_laws(frontier), rows)
        made = growing.add_drawn(parents, tokens, probs)
        if grows:
            trunk[:, depth + 1], made = made[:trees], made[trees:]
        paths[:, points, :, depth - points + 1] = made.reshape(ends.shape)
    return _super_trees(growing, trunk, paths)


def _super_trees(growing: Growing, trunk: np.ndarray, paths: np.ndarray) -> SuperTrees:
    tree = growing.tree
    nodes = np.concatenate([ids for ids, _ in growing.rows])
    row_of = np.full(tree.size, -1)
    row_of[nodes] = np.arange(len(nodes))
    first = (paths[:, :, :, None] == paths[:, :, None]).argmax(3)  # [trees, points, path, depth]
    return SuperTrees(
        tree=tree,
        nodes=nodes,
        draft=torch.cat([laws for _, laws in growing.rows]),
        trunk=row_of[trunk],
        trunk_tokens=tree.tokens[trunk[:, 1:]],
        rows=row_of[paths[..., :-1]],
        tokens=tree.tokens[paths[..., 1:]],
        first=first,
    )


def entry_lists(trees: SuperTrees) -> EntryLists:
    """The lists of all delayed trees inside some super-trees."""
    shape = (len(trees.trunk), POINTS, MOST_PATHS, MOST_PATHS, MOST_LENGTH)
    known: dict[int, dict[tuple, int]] = {k: {} for k in range(2, MOST_PATHS + 1)}
    places: dict[int, list[tuple[int, int]]] = {k: [] for k in known}
    # A path that shares its node with an earlier one makes a list of two or more there.
    shared = trees.first[..., :-1] != np.arange(MOST_PATHS)[:, None]
    for tree, point, depth in np.argwhere(shared.any(2)):
        first = trees.first[tree, point, :, depth]
        for node in np.unique(first):
            members = np.flatnonzero(first == node)
            row = int(trees.rows[tree, point, node, depth])
            tokens = trees.tokens[tree, point, members, depth].tolist()
            for paths in range(2, MOST_PATHS + 1):
                k = int((members < paths).sum())
                if k < 2:
                    continue
                number = known[k].setdefault((row, *tokens[:k]), len(known[k]))
                for entry, path in enumerate(members[:k]):
                    here = np.ravel_multi_index((tree, point, paths - 1, path, depth), shape)
                    places[k].append((number * k + entry, int(here)))
    found = []
    for k, lists in known.items():
        if lists:
            keys = np.array(list(lists))
            source, place = np.array(places[k]).T
            found.append((keys[:, 0], keys[:, 1:], source, place))
    return EntryLists(tuple(found))

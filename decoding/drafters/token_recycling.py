"""Token recycling: a tree of what the target itself found likely the last time it read each token (Luo et al. 2024).

The target's verification pass gives a distribution after every node, accepted or not. Its likeliest tokens are kept in
an adjacency matrix, a row per token of the vocabulary, and the next tree is read off that matrix.
"""

import math
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np

from decoding.common.matrix_store import CANDIDATES, Matrix, load_matrix
from decoding.common.settings import BREADTH, HISTORY, setting
from decoding.drafters import shared_settings as shared
from decoding.drafters.base import Drafter, IterationFeedback, TreeBuilder, deepest_level
from decoding.trace.records import RuleTrace
from decoding.tree.draft import Draft

Path = tuple[int, ...]  # ranks from the root down: (0, 2) is the third candidate after the first one

# Children of every node of the published tree, level by level; the i-th child of a node takes its i-th candidate.
PUBLISHED = (
    "8",
    "84321111",
    "832111112100100101100",
    "5211100010010000001001100",
    "311001000010100",
    "20010000",
)


@lru_cache(maxsize=32)
def template(node_budget: int, max_depth: int, candidates: int) -> tuple[Path, ...]:
    """The published tree, cut: its nodes in breadth-first order, the root left out.

    A node (r_1, ..., r_d), ranks counted from 1, counts as one in 2^d r_1 ... r_d: of more than `node_budget` the
    likeliest stay, of equal ones the first.
    """
    level: list[Path] = [()]
    found: list[Path] = []
    for widths in PUBLISHED:
        level = [(*path, rank) for path, width in zip(level, widths, strict=True) for rank in range(int(width))]
        found += level
    fits = [path for path in found if len(path) <= max_depth and max(path) < candidates]
    likeliest = sorted(fits, key=lambda path: math.prod(2 * (rank + 1) for rank in path))[:node_budget]
    return tuple(sorted(likeliest, key=lambda path: (len(path), path)))


@dataclass(frozen=True)
class TokenRecyclingDrafter(Drafter):
    """The published tree of candidates, filled in breadth-first order from the matrix; no model is asked.

    A node's draft probability is what the target gave its token when it last read the parent's. Where this differs from
    the authors' code:

    * The matrix is empty when a run begins, or a kept one that `matrix` names (`python -m decoding.recycle`), so that a
      run depends on nothing but its prompt and settings and can be replayed from its record. The authors carry theirs
      over from every request to the next (their hot start).
    * A token that was never read has no candidates; their matrix begins with zeros and drafts token 0.
    * A token that stands at several nodes of a tree keeps what followed the last one in breadth-first order; on a GPU
      the authors' indexed assignment leaves open which one that is.
    * The tree was searched by the authors for 80 nodes. Smaller budgets take the part of it that falls off least
      (`template`), since no such search has been published for them.
    """

    optional = ("matrix",)
    uses_draft_model = False
    cost = "no draft forward"
    breadth = "shape"
    traced = RuleTrace("token_recycling", depth_setting="max_depth")

    node_budget: int = shared.node_budget(80, high=80, offered=(1, 80), paper="Token recycling")
    max_depth: int = shared.max_depth(6, high=6, paper="Token recycling")
    candidates: int = setting(
        CANDIDATES, 1, CANDIDATES, step=1, group=BREADTH, label="Candidates", symbol="k", paper="Token recycling",
        help="So many of the target's likeliest next tokens may follow a token.",
    )  # fmt: skip
    # Name of a kept matrix, or `NAME:DIGEST`, which a run records: no other content will do then
    matrix: str = setting(
        "", group=HISTORY, label="Matrix", placeholder="empty at first",
        help="A kept matrix to begin with, made from other prompts with the same target.",
    )  # fmt: skip

    def prepared(self, measured) -> "TokenRecyclingDrafter":
        return replace(self, matrix=measured.matrix(self.matrix)) if self.matrix else self

    def start(self, prompt_ids) -> Matrix:
        return load_matrix(self.matrix) if self.matrix else {}

    def carried(self, state, before, prompt_ids) -> Matrix:
        """The matrix holds for every template."""
        return state if self.matrix == before.matrix else self.start(prompt_ids)

    def draft(self, state: Matrix, source, root_token, draws) -> Draft:
        builder = TreeBuilder(source, root_token)
        tree = builder.tree
        deepest, at_deepest = deepest_level(self.max_depth, source.depth_limit)
        shape = template(self.node_budget, self.max_depth, self.candidates)
        widths = {path[:-1] for path in shape}
        placed: dict[Path, int] = {(): 0}
        for depth in range(1, deepest + 1):
            level = []
            for path in (each for each in shape if len(each) == depth and each[:-1] in placed):
                ids, probs = state.get(int(tree.tokens[placed[path[:-1]]]), ((), ()))
                if path[-1] < len(ids):
                    level.append((path, placed[path[:-1]], ids[path[-1]], probs[path[-1]]))
            if not level:
                break
            paths, *columns = zip(*level, strict=True)
            placed |= dict(zip(paths, tree.append(*map(np.array, columns)).tolist(), strict=True))
        children = np.bincount(tree.parents[1:], minlength=tree.size)
        tree.branching[children > 0] = children[children > 0]
        for path, node in placed.items():
            if children[node]:
                reason = "expanded"
            elif len(path) >= deepest:
                reason = at_deepest
            else:
                reason = "unread" if path in widths else "shape"
            tree.set_stop_reason(np.array([node]), reason)
        return builder.finish(self.draft_sampling, state, self.settings())

    def observe(self, state: Matrix, outcome: IterationFeedback):
        tree, order = outcome.drafted_tree()
        ids, probs = (column[:, :CANDIDATES] for column in outcome.target_top())
        read = {}
        for node in np.sort(order).tolist():
            known = ids[node] >= 0
            read[int(tree.tokens[node])] = (ids[node][known], probs[node][known])
        return {**state, **read}, None

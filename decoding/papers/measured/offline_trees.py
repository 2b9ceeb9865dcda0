"""Trees of every drafter at roots along the target's own text, and what every verifier is exactly worth on them.

Verification leaves no chance: on each tree the expected tokens are exact. Only roots and drafts are sampled.
"""

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import torch

from decoding.methods.method import Method, fitted
from decoding.methods.methods import METHODS
from decoding.models.pair import Pair
from decoding.papers.measured.memo_rows import MemoRows, MemoSource
from decoding.sampling.sampling import Sampling, TargetRows
from decoding.session.session import DecodeSession, Limits
from decoding.tree.draft import Draft
from decoding.verifiers import VERIFIERS
from decoding.verifiers.base import VerifiedTree

MOST_DEPTH = 32
GRID_PATHS, GRID_LENGTH = 4, 8  # the paper's grid: K in 1..4, L in 0..8


@dataclass(frozen=True)
class Tree:
    """A drafted tree with the target's laws on it."""

    draft: Draft
    target: TargetRows
    draft_forwards: int

    @property
    def nodes(self) -> int:
        """Verified nodes, the root not counted."""
        return len(self.draft.order) - 1

    def expected(self, verifiers: tuple[str, ...]) -> dict[str, float]:
        """Exact expected tokens under each verifier."""
        tree = VerifiedTree(self.draft, self.target)
        return {name: VERIFIERS[name]().decide(tree).expected_tokens for name in verifiers}


@dataclass
class Root:
    """A place in the target's text from which trees are drafted."""

    session: DecodeSession

    @property
    def in_loop(self) -> bool:
        """Whether the text repeats itself here."""
        return self.session.in_loop

    def tree(self, method: Method) -> Tree:
        """The method's tree here, with the target's laws as ready-made rows, so that many verifiers share them."""
        session = self.session
        limits = replace(session.limits, max_new_tokens=session.new_tokens + MOST_DEPTH + 1)
        draft, target = session.fork(fitted(method, session.sampling), limits, session.sampling).peek()
        laws = torch.stack([target.law(row) for row in range(len(target))])
        return Tree(draft, TargetRows(None, session.sampling, probs=laws), len(draft.rows))

    @cached_property
    def _source(self) -> MemoSource:
        session = self.session
        return MemoSource(MemoRows(session.pair.draft, session.tokens), session.sampling.draft_temperature)

    @torch.inference_mode()
    def mass(self, method: Method) -> float:
        """Sum of the path probabilities of a method's tree, every draft row computed once for all methods.

        A row computed with other neighbours differs in its last digits, which hides what theory says exactly.
        """
        draft = method.drafter.draft(None, self._source, self.session.tokens[-1], None)
        return float(draft.tree.path_probs[draft.order[1:]].sum())


def roots(pair: Pair, prompt_ids: list[int], sampling: Sampling, positions: tuple[int, ...]) -> list[Root]:
    """Sessions that stand at some positions of one text that the target writes."""
    plain = fitted(METHODS["linear"].with_settings(length=1), sampling)
    limits = Limits(positions[-1] + 3, ignore_end_of_text=True, record="none")
    session, found = DecodeSession(pair, plain, prompt_ids, sampling, limits), []
    while not session.finished and len(found) < len(positions):
        if session.new_tokens >= positions[len(found)]:
            found.append(Root(session.fork(sampling=replace(sampling, seed=len(found)))))
        session.step()
    return found


def grid_trees(tree: Tree) -> dict[tuple[int, int], Tree]:
    """All i.i.d. trees (K, L) inside one of the largest: its first K paths, cut at depth L, are K independent paths."""
    drawn = tree.draft.drawn.reshape(-1, GRID_PATHS)  # [levels, paths]
    found = {}
    for paths in range(1, GRID_PATHS + 1):
        for length in range(GRID_LENGTH + 1):
            part = drawn[:length, :paths].reshape(-1)
            keep = np.isin(tree.draft.order, np.append(part, 0))
            draft = replace(tree.draft, order=tree.draft.order[keep], drawn=part)
            rows = torch.from_numpy(np.flatnonzero(keep))
            found[paths, length] = Tree(
                draft, TargetRows(None, tree.target.sampling, probs=tree.target.logits[rows]), length
            )
    return found


def methods_at_budget(nodes: int) -> dict[str, Method]:
    """Every way to draft, with at most so many nodes."""
    shapes = {
        16: {"widths": "2,2,1,1", "paths": (4, 4), "delayed": (4, 4, 3)},
        32: {"widths": "2,2,2,1,1", "paths": (4, 8), "delayed": (4, 4, 7)},
        64: {"widths": "4,2,2,1,1", "paths": (8, 8), "delayed": (8, 4, 7)},
        128: {"widths": "4,4,2,1,1", "paths": (16, 8), "delayed": (16, 4, 7)},
    }[nodes]
    paths, delayed = shapes["paths"], shapes["delayed"]
    chain = min(nodes, MOST_DEPTH)  # no text agrees for longer, and a longer chain would only cost time
    return {
        "linear": METHODS["linear"].with_settings(length=chain),
        "linear, sampled": METHODS["linear"].with_settings(length=chain, sampled=True, verifier="block"),
        "fixed tree": METHODS["fixed_tree"].with_settings(
            node_budget=nodes, branch_first_level=True, prune_probability=0.01
        ),
        "DynaTree": METHODS["dynatree"].with_settings(
            node_budget=nodes, branch_first_level=True, stop_probability=0.01, prune_probability=0.005
        ),
        "DySpec greedy": METHODS["dyspec"].with_settings(node_budget=nodes),
        "DySpec threshold": METHODS["dyspec_threshold"].with_settings(node_budget=nodes, threshold=1 / nodes),
        "SpecInfer widths": METHODS["specinfer"].with_settings(widths=shapes["widths"]),
        "Sequoia": METHODS["sequoia"].with_settings(node_budget=nodes),
        "OPT-Tree": METHODS["opt_tree"].with_settings(node_budget=nodes, max_depth=8, gain_threshold=0.0),
        "EAGLE-2 beam": METHODS["eagle2"].with_settings(node_budget=nodes, max_depth=8),
        "SpecExec optimal": METHODS["specexec"].with_settings(node_budget=nodes, max_depth=8),
        "SALF": METHODS["salf"].with_settings(node_budget=nodes, max_depth=8),
        "i.i.d. paths": METHODS["iid_paths"].with_settings(paths=paths[0], length=paths[1]),
        "delayed expansion": METHODS["delayed"].with_settings(paths=delayed[0], trunk=delayed[1], branch=delayed[2]),
    }

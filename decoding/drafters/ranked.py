"""Trees whose nodes compete for their places: EAGLE-2, OPT-Tree, SpecExec and SALF.

The draft scores candidates, which are ranked by value and appended when they win. `best_first` searches for the most
probable tree in batches (optimal tree search of SpecExec; SALF, Algorithm 2).
"""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from decoding.common.settings import SEARCH, setting
from decoding.drafters import shared_settings as shared
from decoding.drafters.base import Drafter, ProbabilitySource, TreeBuilder, deepest_level
from decoding.trace.records import RuleTrace, StopReason
from decoding.tree.draft import Draft

# A candidate: `value` is what it is ranked by, `parent` a node of the tree, `node` its own id there or -1.
CANDIDATE = np.dtype(
    [("value", "f8"), ("depth", "i8"), ("parent", "i8"), ("token", "i8"), ("prob", "f8"), ("node", "i8")]
)


def ranking(candidates: np.ndarray) -> np.ndarray:
    """Indices of candidates, best first: by value, ties to the shallower one, then to the earlier one."""
    return np.lexsort((candidates["depth"], -candidates["value"]))


def best(candidates: np.ndarray, count: int) -> np.ndarray:
    """The `count` best candidates, best first."""
    return candidates[ranking(candidates)[:count]]


def bar(values: np.ndarray, count: int) -> float:
    """The last of the `count` best values, which a newcomer must exceed; 0 if there are fewer."""
    spare = len(values) - count
    return float(np.partition(values, spare)[spare]) if spare >= 0 else 0.0


def joined(*candidates: np.ndarray) -> np.ndarray:
    """Candidates one after another; with a dtype given, NumPy does not compare it field by field."""
    return np.concatenate(candidates, dtype=CANDIDATE)


class CandidateTree:
    """A tree whose nodes compete for `node_budget` places; the root has its own.

    The value of a candidate is the product of draft probabilities along its path, times `decay` per level. It never
    rises downwards, so the best candidates, ties going to the shallower one, form a tree. Tokens of probability 0 are
    no candidates.

    Args:
        max_depth: depth allowed by the settings; the length limit of the source may be nearer.
        children: at most so many candidates below a node, 0: as many as can be of use.

    Attributes:
        deepest: depth of the deepest nodes allowed: the first drafted level has depth 1.
    """

    def __init__(
        self,
        source: ProbabilitySource,
        root_token: int,
        node_budget: int,
        max_depth: int,
        children: int = 0,
        decay: float = 1.0,
    ):
        self.node_budget = node_budget
        self.deepest, self._at_deepest = deepest_level(max_depth, source.depth_limit)
        self._builder = TreeBuilder(source, root_token)
        self._children, self._decay = children, decay

    def first_level(self) -> np.ndarray:
        """The candidates below the root, best first; none where the length limit leaves no room for a drafted token."""
        root = np.zeros(len(self._builder.root_frontier()), dtype=CANDIDATE)
        root["value"] = 1.0
        return self.expand(root, slice(None))

    def expand(self, candidates: np.ndarray, which: np.ndarray | slice, least: float = 0.0) -> np.ndarray:
        """Give some candidates their nodes and ask the draft about them in one forward; return their children.

        Args:
            candidates: gets the ids of new nodes written into it.
            which: mask or slice of those to expand; nothing is asked if there are none.
            least: children below this value are not wanted.

        Returns:
            The `children` best of each or, where that is 0, the `node_budget` best of all; best first.
        """
        parents = candidates[which]
        if not len(parents):
            return parents
        self._append(parents)
        candidates["node"][which] = parents["node"]
        nodes, values = parents["node"], parents["value"] * self._decay
        if self._children:
            tokens, probs = self._builder.expand(nodes, top=self._children)
            rows, column = np.nonzero((probs > 0) & (probs * values[:, None] >= least))
            tokens, probs = tokens[rows, column], probs[rows, column]
        else:
            distributions = self._builder.expand_distributions(nodes)
            rows, tokens, probs = best_children(distributions, values, least, self.node_budget)
        found = np.empty(len(rows), dtype=CANDIDATE)
        found["value"], found["prob"], found["token"] = values[rows] * probs, probs, tokens
        found["parent"], found["depth"], found["node"] = nodes[rows], parents["depth"][rows] + 1, -1
        return found[ranking(found)]

    def finish(self, drafter: Drafter, state, candidates: np.ndarray, stop_reason: StopReason = "outranked") -> Draft:
        """Verify the `node_budget` best candidates; `stop_reason`: why those above the last level are leaves.

        Of a node that is worth no more than the last of all places no child could have one, which is found first,
        but in a beam, which does not ask for that. Nodes that were expanded and have lost their place stay in the tree
        and are not verified. The branching of an expanded node is the number of its children that have a place.
        """
        tree, winners = self._builder.tree, best(candidates, self.node_budget)
        self._append(winners)
        nodes = winners["node"]
        waiting = tree.level[nodes] < 0
        unexpanded = nodes[waiting]
        tree.set_stop_reason(unexpanded, stop_reason)
        if stop_reason != "beam":
            beaten = winners["value"] <= bar(winners["value"], self.node_budget)
            tree.set_stop_reason(nodes[waiting & beaten], "outranked")
        tree.set_stop_reason(unexpanded[tree.depths[unexpanded] == self.deepest], self._at_deepest)
        expanded = tree.level >= 0
        tree.branching[expanded] = np.bincount(tree.parents[nodes], minlength=tree.size)[expanded]
        keep = np.zeros(tree.size, dtype=bool)
        keep[0] = keep[nodes] = True
        return self._builder.finish(drafter.draft_sampling, state, drafter.settings(), keep=keep)

    def _append(self, candidates: np.ndarray) -> None:
        new = candidates["node"] < 0
        entering = candidates[new]
        candidates["node"][new] = self._builder.tree.append(entering["parent"], entering["token"], entering["prob"])


def best_children(
    distributions: Tensor, values: np.ndarray, least: float, count: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The `count` best of all children with a value of `least` or more and a probability above 0, in order of rows.

    Args:
        distributions: `[num_rows, vocab_size]`, draft probabilities after each parent.
        values: `[num_rows]`, above 0; a child's value is its parent's times its probability.

    Returns:
        Row, token and probability of each, all `[num_children]`.
    """

    wanted = np.maximum(least / values, torch.finfo(distributions.dtype).tiny)
    # A whole level at once: sorting each row would cost many times more, and few children of a level are wanted.
    if distributions.device.type == "cpu":  # a pass of NumPy over a level takes less than waking PyTorch's threads
        table = distributions.numpy()
        if least == 0 and count < table.shape[1]:  # below the root: of each row at most `count` can be wanted
            wanted = np.maximum(wanted, np.partition(table, -count)[:, -count])
        rows, tokens = np.divmod(np.flatnonzero(table >= wanted.astype(table.dtype)[:, None]), table.shape[1])
        probs = table[rows, tokens].astype(np.float64)
        if len(probs) > count:
            winners = np.argpartition(-values[rows] * probs, count)[:count]
            winners.sort()
            rows, tokens, probs = rows[winners], tokens[winners], probs[winners]
        return rows, tokens, probs

    def on_device(numbers: np.ndarray) -> Tensor:
        return torch.from_numpy(numbers).to(distributions.dtype).to(distributions.device)

    row, token = (distributions >= on_device(wanted)[:, None]).nonzero(as_tuple=True)
    found = distributions[row, token]
    if len(found) > count:
        best_of_all = (found * on_device(values)[row]).topk(count).indices.sort().values
        row, token, found = row[best_of_all], token[best_of_all], found[best_of_all]
    return row.cpu().numpy(), token.cpu().numpy(), found.cpu().double().numpy()


def best_first(tree: CandidateTree, batch: int, threshold: float = 0.0) -> tuple[np.ndarray, np.ndarray, bool]:
    """Expand the `batch` best unexpanded candidates per draft forward until no child can be among the best.

    A round takes candidates from the queue, best first. Those that may still have a child among the `node_budget` best
    (D) are expanded: they are above the last level, and better than the last of the best. The search ends where there
    are none, or where their values sum to less than `threshold`. With threshold 0 the result is the most probable tree.

    The root is the first round: its value 1 reaches every threshold, and it takes no place. Candidates of the last
    level take no place in a batch, so that the sums never rise from round to round (Theorem 1) with a depth limit too.

    Returns:
        The best of the candidates that left the queue (G), those that wait there, not expanded (Q), and whether it
        stopped although some of them could still have improved the tree.
    """
    count = tree.node_budget
    queue = tree.first_level()[:count]
    taken = queue[:0]
    while True:
        end = np.searchsorted(np.cumsum(queue["depth"] < tree.deepest), batch) + 1
        left, queue = joined(taken, queue[:end]), queue[end:]
        popped = left[len(taken) :]  # a view: the ids that `expand` gives are in `left` too
        grows = (popped["depth"] < tree.deepest) & (popped["value"] > bar(left["value"], count))
        gain = popped["value"][grows].sum()
        if not grows.any() or gain < threshold:
            return best(left, count), queue, bool(grows.any())
        children = tree.expand(popped, grows, bar(np.concatenate([left["value"], queue["value"]]), count))
        taken = best(left, count)
        queue = best(joined(queue, children), count)


@dataclass(frozen=True)
class Eagle2Drafter(Drafter):
    """EAGLE-2: beam search with the draft, then the best of all nodes that it scored (Li et al. 2024).

    Every level expands the `beam_width` (k) best nodes of the level above, k children each, down to `max_depth`. The
    first level, the k best children of the root, has depth 1. Of all k + (max_depth - 1) k^2 children the `node_budget`
    (N) of highest path probability are verified.
    """

    breadth = "ranked"

    node_budget: int = shared.node_budget(60, paper="SALF & TALF")
    beam_width: int = setting(
        10, 1, 256, step=1, offered=(1, 32), group=SEARCH, label="Beam width", symbol="k", paper="SALF & TALF",
        help="Nodes expanded per level, and children of each.",
    )  # fmt: skip
    max_depth: int = shared.max_depth(7, paper="SALF & TALF")

    def draft(self, state, source, root_token, draws) -> Draft:
        tree = CandidateTree(source, root_token, self.node_budget, self.max_depth, children=self.beam_width)
        levels = [tree.first_level()]
        for _ in range(1, tree.deepest):
            levels.append(tree.expand(levels[-1], slice(self.beam_width)))
        return tree.finish(self, state, joined(*levels), "beam")

    def rule(self, settings) -> RuleTrace:
        return RuleTrace(
            "eagle2",
            depth_setting="max_depth",
            left_out="outranked",
            value="path",
            children=self.beam_width,
            children_setting="beam_width",
        )


@dataclass(frozen=True)
class OptTreeDrafter(Drafter):
    """OPT-Tree: the most probable tree, level by level until a level adds too little (Wang et al. 2025).

    Levels are added while the summed value of the `node_budget` (N) best nodes grows by more than `gain_threshold`.
    The value of a node is its path probability. The next level is drafted below those nodes of the last one that are
    among the N best so far; below the others nothing could be, so the tree is the one that expanding all N best nodes
    of the level gives. The first drafted level has depth 1 and is held against a sum of 0.
    """

    breadth = "ranked"
    traced = RuleTrace("opt_tree", depth_setting="max_depth", left_out="outranked", value="path")

    node_budget: int = shared.node_budget(60)
    gain_threshold: float = shared.gain_threshold(0.2)
    max_depth: int = shared.max_depth(8)

    def draft(self, state, source, root_token, draws) -> Draft:
        tree = CandidateTree(source, root_token, self.node_budget, self.max_depth)
        nodes, before = tree.first_level(), 0.0
        for depth in range(1, tree.deepest):
            least, mass = bar(nodes["value"], self.node_budget), nodes["value"].sum()
            grows = (nodes["depth"] == depth) & (nodes["value"] > least)
            if not grows.any():
                break
            if mass - before <= self.gain_threshold:
                return tree.finish(self, state, nodes, "low_gain")
            level = tree.expand(nodes, grows, least)
            nodes, before = best(joined(nodes, level), self.node_budget), mass
        return tree.finish(self, state, nodes)


@dataclass(frozen=True)
class SpecExecDrafter(Drafter):
    """SpecExec: parallel search for the most probable tree (Svirschevski et al. 2024).

    It has the `node_budget` (N) nodes of highest path probability within `max_depth`; `batch` of them are expanded at
    a time. The first drafted level has depth 1. `children` caps the children of a node (0: no cap; the public code has
    16). Nodes are ranked by their path probability times `decay` to the power of their depth (the public code has
    0.95).
    """

    cost: ClassVar[str] = "one draft forward per batch of nodes"
    breadth = "ranked"

    node_budget: int = shared.node_budget(60, paper="SALF & TALF")
    batch: int = shared.batch(10, paper="SALF & TALF")
    max_depth: int = shared.max_depth(7)
    children: int = setting(
        0, 0, 4096, step=1, offered=(0, 64), group=SEARCH, label="Maximum children",
        help="Most children per node; 0 for no limit.",
    )  # fmt: skip
    decay: float = setting(
        1.0, above=0.0, high=1.0, step=0.01, offered=(0.5, 1.0), group=SEARCH, label="Decay",
        help="Nodes are ranked by path probability times this factor per level.",
    )  # fmt: skip

    def draft(self, state, source, root_token, draws) -> Draft:
        tree = CandidateTree(source, root_token, self.node_budget, self.max_depth, self.children, self.decay)
        taken, _, _ = best_first(tree, self.batch)
        return tree.finish(self, state, taken)

    def rule(self, settings) -> RuleTrace:
        return RuleTrace(
            "specexec",
            depth_setting="max_depth",
            left_out="outranked",
            value="path",
            decay=self.decay,
            children=self.children,
            children_setting="children" if self.children else "",
        )


@dataclass(frozen=True)
class SalfDrafter(Drafter):
    """SALF: best-first search that stops when the next `batch` (B) nodes sum to less than `gain_threshold` (th).

    After an early stop the tree holds what had left the queue by then, the batch that was not worth a forward
    included: fewer than `node_budget` (N) nodes as a rule. With `top_up` it holds the N best of those and of the queue,
    which the draft has scored already. The first drafted level has depth 1; the paper has no depth limit.
    """

    cost: ClassVar[str] = "one draft forward per batch of nodes"
    breadth = "ranked"
    traced = RuleTrace("salf", depth_setting="max_depth", left_out="outranked", value="path")

    node_budget: int = shared.node_budget(60, paper="SALF & TALF")
    batch: int = shared.batch(10, paper="SALF & TALF")
    gain_threshold: float = shared.gain_threshold(0.6, paper="SALF & TALF")
    top_up: bool = setting(
        False, group=SEARCH, label="Top up",
        help="After an early stop, the remaining budget goes to the best nodes already scored.",
    )  # fmt: skip
    max_depth: int = shared.max_depth(32)

    def draft(self, state, source, root_token, draws) -> Draft:
        tree = CandidateTree(source, root_token, self.node_budget, self.max_depth)
        taken, queue, early = best_first(tree, self.batch, self.gain_threshold)
        placed = joined(taken, queue) if self.top_up else taken
        return tree.finish(self, state, placed, "low_promise" if early else "outranked")

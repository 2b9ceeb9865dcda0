"""Nodes that compete for the places of a tree: scored by the draft, ranked by value, appended when they win.

`best_first` searches for the most probable tree in batches (optimal tree search of SpecExec; SALF, Algorithm 2).
"""

import numpy as np
import torch
from torch import Tensor

from decoding.drafters.base import Drafter, ProbabilitySource, TreeBuilder, deepest_level
from decoding.trace.records import StopReason
from decoding.tree.draft import Draft


class CandidateTree:
    """A tree whose nodes compete for `node_budget` places; the root has its own.

    The value of a candidate is the product of draft probabilities along its path, times `decay` per level. It never
    rises downwards, so the best candidates, ties going to the shallower one, form a tree. Tokens of probability 0 are
    no candidates. A candidate is called by its number, in the order in which the draft scored them; the root is 0.

    Args:
        max_depth: depth allowed by the settings; the length limit of the source may be nearer.
        children: at most so many candidates below a node, 0: as many as can be of use.

    Attributes:
        deepest: depth of the deepest nodes allowed: the first drafted level has depth 1.
        values, depths: of every candidate, `[candidates or more]`.
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
        self._count, size = 1, 4 * max(node_budget, 64)
        self.values, self._probs = np.ones(size), np.ones(size)
        self.depths, self._parents, self._tokens, self._nodes = np.zeros((4, size), dtype=np.int64)

    def best(self, candidates: np.ndarray, count: int) -> np.ndarray:
        """The `count` best of some candidates, best first; ties go to the shallower one, then to the earlier one."""
        return candidates[np.lexsort((self.depths[candidates], -self.values[candidates]))[:count]]

    def bar(self, candidates: np.ndarray) -> float:
        """The last of the `node_budget` best values, which a newcomer must exceed; 0 if there are fewer."""
        spare = len(candidates) - self.node_budget
        return float(np.partition(self.values[candidates], spare)[spare]) if spare >= 0 else 0.0

    def first_level(self) -> np.ndarray:
        """The candidates below the root, best first; none where the length limit leaves no room for a drafted token."""
        level = self.expand(self._builder.root_frontier())
        return self.best(level, len(level))

    def expand(self, candidates: np.ndarray, least: float = 0.0) -> np.ndarray:
        """Give some candidates their nodes and ask the draft about them in one forward; return their children.

        Nothing is asked if there are none. Children whose value is below `least` are not wanted.

        Returns:
            The `children` best of each or, where that is 0, the `node_budget` best of all, in their order.
        """
        if not len(candidates):
            return candidates
        self._place(candidates)
        nodes, values = self._nodes[candidates], self.values[candidates] * self._decay
        if self._children:
            tokens, probs = self._builder.expand(nodes, top=self._children)
            rows, column = np.nonzero((probs > 0) & (probs * values[:, None] >= least))
            tokens, probs = tokens[rows, column], probs[rows, column]
        else:
            distributions = self._builder.expand_distributions(nodes)
            rows, tokens, probs = best_children(distributions, values, least, self.node_budget)
        first, self._count = self._count, self._count + len(rows)
        while self._count > len(self.values):
            self._grow()
        new = slice(first, self._count)
        self.values[new], self._probs[new], self._tokens[new] = values[rows] * probs, probs, tokens
        self._parents[new], self.depths[new], self._nodes[new] = nodes[rows], self.depths[candidates[rows]] + 1, -1
        return np.arange(first, self._count)

    def finish(self, drafter: Drafter, state, candidates: np.ndarray, stop_reason: StopReason = "outranked") -> Draft:
        """Verify the `node_budget` best candidates; `stop_reason`: why those above the last level are leaves.

        Of a node that is worth no more than the last of all places no child could have one, which is found first,
        but in a beam, which does not ask for that. Nodes that were expanded and have lost their place stay in the tree
        and are not verified. The branching of an expanded node is the number of its children that have a place.
        """
        tree, winners = self._builder.tree, self.best(candidates, self.node_budget)
        self._place(winners)
        nodes = self._nodes[winners]
        waiting = tree.level[nodes] < 0
        unexpanded = nodes[waiting]
        tree.set_stop_reason(unexpanded, stop_reason)
        if stop_reason != "beam":
            beaten = self.values[winners] <= (self.values[winners[-1]] if len(winners) == self.node_budget else 0.0)
            tree.set_stop_reason(nodes[waiting & beaten], "outranked")
        tree.set_stop_reason(unexpanded[tree.depths[unexpanded] == self.deepest], self._at_deepest)
        expanded = tree.level >= 0
        tree.branching[expanded] = np.bincount(tree.parents[nodes], minlength=tree.size)[expanded]
        keep = np.zeros(tree.size, dtype=bool)
        keep[0] = keep[nodes] = True
        return self._builder.finish(drafter.draft_sampling, state, drafter.settings(), keep=keep)

    def _place(self, candidates: np.ndarray) -> None:
        """Give those that have none their nodes in the tree."""
        new = candidates[self._nodes[candidates] < 0]
        parents, tokens, probs = self._parents[new], self._tokens[new], self._probs[new]
        self._nodes[new] = self._builder.tree.append(parents, tokens, probs)

    def _grow(self) -> None:
        for name in ("values", "depths", "_probs", "_parents", "_tokens", "_nodes"):
            setattr(self, name, np.tile(getattr(self, name), 2))


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
    queue = tree.first_level()[: tree.node_budget]
    taken = queue[:0]
    while True:
        above = np.flatnonzero(tree.depths[queue] < tree.deepest)
        end = above[batch - 1] + 1 if len(above) >= batch else len(queue)
        popped, queue = queue[:end], queue[end:]
        taken = np.concatenate([taken, popped])
        grows = popped[(tree.depths[popped] < tree.deepest) & (tree.values[popped] > tree.bar(taken))]
        if not len(grows) or tree.values[grows].sum() < threshold:
            return tree.best(taken, tree.node_budget), queue, len(grows) > 0
        children = tree.expand(grows, tree.bar(np.concatenate([taken, queue])))
        queue = tree.best(np.concatenate([queue, children]), tree.node_budget)

"""Nodes that compete for the places of a tree: scored by the draft, ranked by value, appended when they win.

`best_first` searches for the most probable tree in batches (optimal tree search of SpecExec; SALF, Algorithm 2).
"""

import numpy as np
import torch
from torch import Tensor

from decoding.drafters.base import Drafter, ProbabilitySource, TreeBuilder, deepest_level
from decoding.trace.records import StopReason
from decoding.tree.draft import Draft

# A candidate: `value` is what it is ranked by, `parent` a node of the tree, `node` its own id there or -1.
CANDIDATE = np.dtype(
    [("value", "f8"), ("depth", "i8"), ("parent", "i8"), ("token", "i8"), ("prob", "f8"), ("node", "i8")]
)
WHOLE = np.dtype((np.void, CANDIDATE.itemsize))


def ranking(candidates: np.ndarray) -> np.ndarray:
    """Indices of candidates, best first: by value, ties to the shallower one, then to the earlier one."""
    return np.lexsort((candidates["depth"], -candidates["value"]))


def best(candidates: np.ndarray, count: int) -> np.ndarray:
    """The `count` best candidates, best first."""
    return candidates.take(ranking(candidates)[:count])  # a third of the time of an index in brackets


def bar(values: np.ndarray, count: int) -> float:
    """The last of the `count` best values, which a newcomer must exceed; 0 if there are fewer."""
    spare = len(values) - count
    return float(np.partition(values, spare)[spare]) if spare >= 0 else 0.0


def joined(*candidates: np.ndarray) -> np.ndarray:
    """Candidates one after another, moved whole: field by field it would take NumPy twice as long."""
    return np.concatenate([each.view(WHOLE) for each in candidates]).view(CANDIDATE)


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
        return best(found, len(found))

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
        start, taken, queue = len(taken), joined(taken, queue[:end]), queue[end:]
        popped = taken[start:]  # a view: the ids that `expand` gives are in `taken` too
        grows = (popped["depth"] < tree.deepest) & (popped["value"] > bar(taken["value"], count))
        gain = popped["value"][grows].sum()
        if not grows.any() or gain < threshold:
            return best(taken, count), queue, bool(grows.any())
        children = tree.expand(popped, grows, bar(np.concatenate([taken["value"], queue["value"]]), count))
        queue = best(joined(queue, children), count)

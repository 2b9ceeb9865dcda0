"""Suffix decoding: a tree of what followed the last tokens, by how often it did (Oliaro et al. 2024, Algorithm 1)."""

import heapq
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import count

import numpy as np

from decoding.common.settings import SEARCH, setting
from decoding.drafters import shared_settings as shared
from decoding.drafters.base import Drafter, TreeBuilder
from decoding.trace.records import RuleTrace
from decoding.tree.draft import Draft

# A text that repeats itself by more tokens is matched as well by so many.
LONGEST_MATCH = 64


@dataclass(frozen=True)
class SuffixDrafter(Drafter):
    """The likeliest continuations of the text, counted in the text itself; no model is asked.

    For every number of last tokens that stood earlier, what followed them makes a tree whose nodes have the share of
    occurrences as their draft probability. The nodes of highest path probability are taken, `per_matched_token` (alpha)
    for every token matched, and of these trees the one with the largest sum of path probabilities is drafted. The paper
    also counts in the outputs of other requests; here it is the prompt and this output.
    """

    uses_draft_model = False
    cost = "no draft forward"
    breadth = "ranked"
    traced = RuleTrace(
        "suffix", depth_setting="max_depth", threshold_setting="least_share", budget_setting="per_matched_token"
    )

    node_budget: int = shared.node_budget(64)
    max_depth: int = shared.max_depth(24, high=64, offered=(1, 64))
    per_matched_token: float = setting(
        1.0, above=0.0, high=64.0, step=0.5, offered=(0.5, 16.0), group=SEARCH, label="Nodes per matched token",
        symbol="α", help="A longer match earns a larger tree.",
    )  # fmt: skip
    least_share: float = setting(
        0.1, low=0.0, below=1.0, step=0.01, offered=(0.0, 0.9), group=SEARCH, label="Least path probability",
        help="Continuations that followed less often are not drafted.",
    )  # fmt: skip

    def draft(self, state, source, root_token, draws) -> Draft:
        builder = TreeBuilder(source, root_token)
        deepest = min(self.max_depth, source.depth_limit)
        matches = matched(source.prefix, LONGEST_MATCH)
        grown = [self._grown(source.prefix, ends, size, deepest) for size, ends in enumerate(matches, start=1)]
        best = max(grown, key=lambda tree: tree.score, default=_Counted(source.prefix, [], deepest, self.least_share))
        best.write(builder, self.max_depth)
        return builder.finish(self.draft_sampling, state, self.settings())

    def _grown(self, text: Sequence[int], ends: Sequence[int], size: int, deepest: int) -> "_Counted":
        tree = _Counted(text, ends, deepest, self.least_share)
        tree.grow(min(max(int(self.per_matched_token * size), 1), self.node_budget))
        return tree


def matched(text: Sequence[int], longest: int) -> list[list[int]]:
    """The places after which the last 1, 2, ... tokens stood before, by number of tokens, as long as any did."""
    ends, found = list(range(1, len(text))), []
    for size in range(1, min(longest, len(text) - 1) + 1):
        ends = [end for end in ends if end >= size and text[end - size] == text[-size]]
        if not ends:
            break
        found.append(ends)
    return found


class _Counted:
    """What followed some places of a text: a tree that grows by its likeliest node.

    Attributes:
        nodes: (parent, token, share of the parent's occurrences, depth) of each; the first is the root.
        score: sum of the path probabilities of the others.
    """

    def __init__(self, text: Sequence[int], ends: Sequence[int], deepest: int, least: float):
        self._text, self._deepest, self._least = text, deepest, least
        self.nodes: list[tuple[int, int, float, int]] = [(-1, -1, 1.0, 0)]
        self._places: list[Sequence[int]] = [ends]
        self.score = 0.0
        self._left: list[tuple[float, int, int, int, float, list[int]]] = []
        self._order = count()
        self._offer(0, 1.0)

    def _offer(self, node: int, path: float) -> None:
        """Let the continuations of a node compete."""
        depth = self.nodes[node][3]
        if depth >= self._deepest:
            return
        followed: dict[int, list[int]] = {}
        for end in self._places[node]:
            if end + depth < len(self._text):
                followed.setdefault(self._text[end + depth], []).append(end)
        for token, places in followed.items():
            share = len(places) / len(self._places[node])
            if path * share >= self._least:
                heapq.heappush(self._left, (-path * share, next(self._order), node, token, share, places))

    def grow(self, size: int) -> None:
        """Take the likeliest node until there are `size` or none is left."""
        while self._left and len(self.nodes) <= size:
            negative, _, parent, token, share, places = heapq.heappop(self._left)
            self.nodes.append((parent, token, share, self.nodes[parent][3] + 1))
            self._places.append(places)
            self.score -= negative
            self._offer(len(self.nodes) - 1, -negative)

    def write(self, builder: TreeBuilder, max_depth: int) -> None:
        """Append the tree to one under construction, with why each node has children or none."""
        tree, waiting = builder.tree, {entry[2] for entry in self._left}
        for parent, token, share, _ in self.nodes[1:]:
            tree.append(np.array([parent]), np.array([token]), np.array([share]))
        widths = np.bincount(tree.parents[1:], minlength=tree.size)
        tree.branching[widths > 0] = widths[widths > 0]
        for node, (_, _, _, depth) in enumerate(self.nodes):
            if widths[node]:
                reason = "expanded"
            elif depth >= self._deepest:
                reason = "max_depth" if depth >= max_depth else "length_limit"
            else:
                reason = "budget" if node in waiting else "no_match"
            tree.set_stop_reason(np.array([node]), reason)

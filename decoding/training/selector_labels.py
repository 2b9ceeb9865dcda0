"""Labels of the selector: exact expected tokens E[tau + 1 | tree] of every action under every verifier.

Verifiers are never sampled: for solvers it is the sum over nodes of the chance to reach them (Eq. 3), for traversal
the closed form of its chain of tests. What is left to chance is which tree was drawn, hence the mean over some.

One super-tree holds the delayed trees of all actions, drafted once: a trunk of 8 draws and, at each of its 9 points,
four independent paths of 8 draws. The tree of (K, L1, L2) is its trunk up to point L1 and the first K paths from there,
cut after L2 tokens.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from decoding.drafters.base import ProbabilitySource, TreeBuilder
from decoding.drafters.drawing import draw_rows
from decoding.sampling.draws import Draws
from decoding.selector.actions import MOST_LENGTH, MOST_PATHS
from decoding.tree.draft import TokenTree
from decoding.verifiers.khisti import KhistiVerifier
from decoding.verifiers.spectr import BISECTIONS

POINTS = MOST_LENGTH + 1
DEEPEST = 2 * MOST_LENGTH
# Nodes of a super-tree after which distributions are needed, at most
ROWS = POINTS + POINTS * MOST_PATHS * (MOST_LENGTH - 1)


@dataclass(frozen=True)
class SuperTrees:
    """Some independent super-trees below one root; contexts that they share are one node.

    Attributes:
        tree: every distinct node.
        nodes: ids of the nodes after which both distributions are needed, parents first; a node's place among them is
            its row.
        draft: the draft's distributions after them, `[num_rows, vocab_size]`.
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
        """The first so many of them; distributions are still those of all."""
        cut = {name: getattr(self, name)[:trees] for name in ("trunk", "trunk_tokens", "rows", "tokens", "first")}
        return replace(self, **cut)

    @cached_property
    def lists(self) -> list[tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]]:
        """Lists of entries at nodes that have more than one in any of the delayed trees, each distinct one once.

        For each length k: rows `[n]`, tokens `[n, k]`, and which chance of `[n, k]` belongs to which of
        `[trees, points, K, path, depth]`, both flattened.
        """
        shape = (len(self.trunk), POINTS, MOST_PATHS, MOST_PATHS, MOST_LENGTH)
        known: dict[int, dict[tuple, int]] = {k: {} for k in range(2, MOST_PATHS + 1)}
        places: dict[int, list[tuple[int, int]]] = {k: [] for k in known}
        # A path that shares its node with an earlier one makes a list of two or more there.
        shared = self.first[..., :-1] != np.arange(MOST_PATHS)[:, None]
        for tree, point, depth in np.argwhere(shared.any(2)):
            first = self.first[tree, point, :, depth]
            for node in np.unique(first):
                members = np.flatnonzero(first == node)
                row = int(self.rows[tree, point, node, depth])
                tokens = self.tokens[tree, point, members, depth].tolist()
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
                found.append((keys[:, 0], keys[:, 1:], *np.array(places[k]).T))
        return found

    @cached_property
    def counted(self) -> np.ndarray:
        """Whether a path's node is in the tree of K paths and not there with an earlier path already.

        Bool `[trees, 9, 4, 4, 8]`: point, K, path, depth from 1.
        """
        own = self.first[..., 1:] == np.arange(MOST_PATHS)[:, None]
        return own[:, :, None] & np.tri(MOST_PATHS, dtype=bool)[:, :, None]


def draw_super_trees(source: ProbabilitySource, root_token: int, trees: int, draws: Draws) -> SuperTrees:
    """Draw `trees` independent super-trees, level by level; each level takes one draft forward."""
    builder = TreeBuilder(source, root_token, capacity=2048)
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
        tokens, probs = draw_rows(draws, builder.expand_distributions(frontier), rows)
        made = builder.add_drawn(parents, tokens, probs)
        if grows:
            trunk[:, depth + 1], made = made[:trees], made[trees:]
        paths[:, points, :, depth - points + 1] = made.reshape(ends.shape)
    tree, nodes = builder.tree, np.concatenate([ids for ids, _ in builder.rows])
    row_of = np.full(tree.size, -1)
    row_of[nodes] = np.arange(len(nodes))
    return SuperTrees(
        tree=tree,
        nodes=nodes,
        draft=torch.cat([distributions for _, distributions in builder.rows]),
        trunk=row_of[trunk],
        trunk_tokens=tree.tokens[trunk[:, 1:]],
        rows=row_of[paths[..., :-1]],
        tokens=tree.tokens[paths[..., 1:]],
        first=(paths[:, :, :, None] == paths[:, :, None]).argmax(3),
    )


# (target distributions [num_nodes, vocab_size], draft distributions of the same shape, entries [num_nodes, k]) ->
# chance that a solver picks each entry's token [num_nodes, k], k of 2 or more; repeats have the same chance.
Branching = Callable[[Tensor, Tensor, Tensor], Tensor]


def _naive_tree(target: Tensor, draft: Tensor, tokens: Tensor) -> Tensor:
    first = tokens[:, :1]
    passes, picked = _ratio(target.gather(1, first), draft.gather(1, first)), target.new_zeros(tokens.shape)
    picked[:, :1] = passes
    return _together(picked, tokens, _positive_part(target - draft, target), 1 - passes[:, 0])


def _spectr(target: Tensor, draft: Tensor, tokens: Tensor) -> Tensor:
    count = tokens.shape[1]
    factor = _division_factors(target, draft, count)
    overlap = (target / factor).minimum(draft)
    beta = overlap.sum(1, keepdim=True)
    gamma = torch.where(beta > 0, (1 - (1 - beta) ** count) / beta, factor)
    passes = _ratio(target.gather(1, tokens), factor * draft.gather(1, tokens))
    untested = (1 - passes).cumprod(1)
    before = torch.cat([torch.ones_like(beta), untested[:, :-1]], 1)
    return _together(before * passes, tokens, _positive_part(target - gamma * overlap, target), untested[:, -1])


def _division_factors(target: Tensor, draft: Tensor, draws: int) -> Tensor:
    """rho* of many nodes, `[num_nodes, 1]`: the upper ends of the bisections, as `spectr.division_factor` gives them.

    beta(rho) = sum min(target / rho, draft) is read from sums over the tokens in the order of target / draft.
    """
    ratios, order = torch.where(draft > 0, target / draft, torch.inf).sort(1)
    start = target.new_zeros(len(target), 1)
    below = torch.cat([start, target.gather(1, order).cumsum(1)], 1)
    drafted = draft.gather(1, order).cumsum(1)
    above = torch.cat([drafted[:, -1:], drafted[:, -1:] - drafted], 1)
    low, high = torch.ones_like(start), torch.full_like(start, float(draws))
    for _ in range(BISECTIONS):
        middle = (low + high) / 2
        place = torch.searchsorted(ratios, middle)
        beta = below.gather(1, place) / middle + above.gather(1, place)
        rises = 1 - (1 - beta) ** draws > middle * beta
        low, high = torch.where(rises, middle, low), torch.where(rises, high, middle)
    return high


def _specinfer(target: Tensor, draft: Tensor, tokens: Tensor) -> Tensor:
    count, probs, passes = tokens.shape[1], target, []
    drafted = draft.gather(1, tokens)
    for _ in range(count):
        passes.append(_ratio(probs.gather(1, tokens), drafted))
        left = _positive_part(probs - draft, probs)
        probs = left / left.sum(1, keepdim=True)
    # Probability that exactly the entries of a bit mask have been tested and rejected.
    rejected = target.new_zeros(2**count, len(target))
    rejected[0] = 1.0
    picked = target.new_zeros(tokens.shape)
    for mask in sorted(range(2**count - 1), key=int.bit_count):
        done = mask.bit_count()
        chance = rejected[mask] / (count - done)
        for entry in range(count):
            if not mask >> entry & 1:
                picked[:, entry] += chance * passes[done][:, entry]
                rejected[mask | 1 << entry] += chance * (1 - passes[done][:, entry])
    return _together(picked, tokens, probs, rejected[-1])


def _khisti(target: Tensor, draft: Tensor, tokens: Tensor) -> Tensor:
    """Node by node: each round of a tournament is a linear programme of its own."""
    verifier = KhistiVerifier()
    nodes = zip(target, draft, tokens.tolist(), strict=True)
    chances = [(verifier.solve(p, q, entries).branching(), entries) for p, q, entries in nodes]
    return target.new_tensor([[chance[token] for token in entries] for chance, entries in chances])


def _ratio(target: Tensor, draft: Tensor) -> Tensor:
    """min(1, target / draft), 0 where the draft gives nothing."""
    return torch.where(draft > 0, target / draft, 0.0).clamp(max=1.0)


def _positive_part(distributions: Tensor, fallback: Tensor) -> Tensor:
    """max(distribution, 0) row by row, or the fallback's row where nothing is left."""
    left = distributions.clamp(min=0)
    return torch.where(left.sum(1, keepdim=True) > 0, left, fallback)


def _together(picked: Tensor, tokens: Tensor, residual: Tensor, left: Tensor) -> Tensor:
    """Chances by token: what its entries passed with, and its share of the residual, which is drawn with `left`."""
    same = (tokens[:, :, None] == tokens[:, None, :]).to(picked.dtype)
    passed = (same @ picked[:, :, None])[:, :, 0]
    return passed + left[:, None] * residual.gather(1, tokens) / residual.sum(1, keepdim=True)


BRANCHINGS: dict[str, Branching] = {
    "nss": lambda target, draft, tokens: target.gather(1, tokens),
    "naive_tree": _naive_tree,
    "spectr": _spectr,
    "specinfer": _specinfer,
    "khisti": _khisti,
}
VERIFIER_NAMES: tuple[str, ...] = (*BRANCHINGS, "traversal")  # one selector is trained for each


@dataclass(frozen=True)
class RootDistributions:
    """Super-trees below a root with the distributions of both models.

    Attributes:
        target: the target's distributions under one sampling, `[num_rows, vocab_size]` in float64.
        draft: the distributions that tokens were drawn from, the same shape and dtype.
    """

    trees: SuperTrees
    target: Tensor
    draft: Tensor

    def expected(self, verifier: str) -> np.ndarray:
        """Mean over the super-trees of E[tau + 1 | tree] of each action, `[paths, trunk, branch]` as `ACTIONS`."""
        tokens = _traversal_tokens(self) if verifier == "traversal" else self._top_down_tokens(verifier)
        return tokens.mean(0)

    def at(self, distributions: Tensor, rows: np.ndarray, tokens: np.ndarray) -> Tensor:
        """What distributions give some tokens, in the shape of `rows`, on the CPU."""
        return distributions[index(distributions, rows), index(distributions, tokens)].cpu()

    def _top_down_tokens(self, verifier: str) -> np.ndarray:
        """Eq. 3 for every action of every super-tree, `[trees, paths, trunk, branch]`."""
        trees, alone = self.trees, []
        for place in ((trees.trunk[:, :-1], trees.trunk_tokens), (trees.rows, trees.tokens)):
            target = self.at(self.target, *place)  # of a node with one entry; every solver but NSS does the same there
            alone.append((target if verifier == "nss" else _ratio(target, self.at(self.draft, *place))).numpy())
        trunk, paths = alone
        # [trees, points, K, path, depth]: the chance of a path's token at a node depends on the first K paths.
        chances = np.repeat(paths[:, :, None], MOST_PATHS, 2)
        for rows, tokens, source, entries in trees.lists:
            nodes = index(self.target, rows)
            found = BRANCHINGS[verifier](self.target[nodes], self.draft[nodes], index(self.target, tokens))
            chances.reshape(-1)[entries] = found.cpu().numpy().reshape(-1)[source]
        below = np.where(trees.counted, chances.cumprod(-1), 0.0).sum(3).cumsum(-1)  # [trees, points, K, branch]
        subtree = 1.0 + np.concatenate([np.zeros_like(below[..., :1]), below], -1)
        reached = np.concatenate([np.ones_like(trunk[:, :1]), trunk.cumprod(1)], 1)
        above = reached.cumsum(1) - reached
        tokens = above[:, :, None, None] + reached[:, :, None, None] * subtree
        return tokens.swapaxes(1, 2)


def index(like: Tensor, numbers: np.ndarray) -> Tensor:
    """Numbers to index a tensor with, on its device."""
    return torch.from_numpy(numbers).to(like.device)


def _traversal_tokens(distributions: RootDistributions) -> np.ndarray:
    """E[tau + 1 | tree] of every action of every super-tree, `[trees, paths, trunk, branch]`."""
    trees = distributions.trees
    rows, tokens = trees.trunk[:, :-1], trees.trunk_tokens
    # Weight of each point of the trunk when first reached, and how likely it is kept after its child's rejection.
    target, draft = (distributions.at(side, rows, tokens) for side in (distributions.target, distributions.draft))
    weights = target.new_ones(len(rows), POINTS)
    for point in range(MOST_LENGTH):
        weights[:, point + 1] = _ratio(weights[:, point] * target[:, point], draft[:, point])
    trunk = weights.numpy()
    target, draft = (side[index(side, rows.ravel())] for side in (distributions.target, distributions.draft))
    kept_on_trunk = _reject(index(target, trunk[:, :-1].ravel()), target, draft)[0].cpu().numpy().reshape(rows.shape)
    kept_on_trunk[:, 0] = 1.0
    value, left = _below_points(trees.first, _path_weights(distributions, trunk))
    # Behind the branching point the trunk's own nodes are tested, upwards to the root, which is kept for certain.
    behind = np.zeros((len(trunk), POINTS))
    for point in range(1, POINTS):
        kept = kept_on_trunk[:, point - 1]
        behind[:, point] = kept * point + (1 - kept) * behind[:, point - 1]
    tokens = value + left * behind[:, :, None, None]
    return tokens.swapaxes(1, 2)


def _path_weights(distributions: RootDistributions, trunk: np.ndarray) -> np.ndarray:
    """Weights of all nodes after 0 to 4 rejections below them, `[trees, points, path, depth, rejections]`.

    What no tree needs is 0. A node stands at the place of the first path through it.
    """
    trees = distributions.trees
    found = np.zeros((*trees.first.shape, MOST_PATHS + 1))
    found[:, :, 0, 0, 0] = trunk
    for depth in range(MOST_LENGTH):
        first, below = trees.first[..., depth], trees.first[..., depth + 1]
        nodes = np.argwhere(first == np.arange(MOST_PATHS))  # (tree, point, path)
        rows = index(distributions.target, trees.rows[(*nodes.T, depth)])
        target, draft = distributions.target[rows], distributions.draft[rows]
        weight = index(target, found[(*nodes.T, depth, 0)])
        for rejections in range(MOST_PATHS):
            # The path that comes next below each node, -1 where none does.
            through = first[nodes[:, 0], nodes[:, 1]] == nodes[:, 2, None]  # [nodes, path]
            is_it = through & (through.cumsum(1) == rejections + 1)
            entry = np.where(is_it.any(1), is_it.argmax(1), -1)
            going_on = entry >= 0
            if not going_on.all():
                if not going_on.any():
                    break
                keep = index(target, going_on)
                nodes, entry, weight = nodes[going_on], entry[going_on], weight[keep]
                target, draft = target[keep], draft[keep]
            place = (nodes[:, 0], nodes[:, 1], entry)
            fresh = below[place] == entry  # an entry that came before finds its subtree tested
            tokens = index(target, trees.tokens[(*place, depth)])[:, None]
            child = _ratio(weight * target.gather(1, tokens)[:, 0], draft.gather(1, tokens)[:, 0])
            found[(*(part[fresh] for part in place), depth + 1, 0)] = child.cpu().numpy()[fresh]
            weight, target = _reject(weight, target, draft)
            found[(*nodes.T, depth, rejections + 1)] = weight.cpu().numpy()
    return found


def _below_points(first: np.ndarray, weights: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """What the tests from the branching point down come to, and the chance that all of them fail.

    Both `[trees, points, K, branch]`; subtrees are put together from the leaves upwards, in the order of the tests.
    """
    shape = (*first.shape[:2], MOST_PATHS, POINTS)
    branch, paths = np.arange(POINTS), np.arange(1, MOST_PATHS + 1)[:, None]
    points = np.arange(POINTS)[:, None, None]
    deeper = [(np.zeros(shape), np.ones(shape))] * MOST_PATHS
    for depth in range(MOST_LENGTH, -1, -1):
        level = []
        for node in range(MOST_PATHS):
            value, left, entries = np.zeros(shape), np.ones(shape), np.zeros(shape, dtype=np.int64)
            for path in range(node, MOST_PATHS if depth < MOST_LENGTH else node):
                entry = (first[:, :, path, depth] == node)[:, :, None, None] & (path < paths) & (depth < branch)
                fresh = entry & (first[:, :, path, depth + 1] == path)[:, :, None, None]
                value = value + np.where(fresh, left * deeper[path][0], 0.0)
                left = left * np.where(fresh, deeper[path][1], 1.0)
                entries = entries + entry
            own = weights[:, :, node, depth][:, :, None, None]
            kept = np.take_along_axis(np.broadcast_to(own, (*shape, own.shape[-1])), entries[..., None], -1)[..., 0]
            if depth == 0:
                kept = np.where(points == 0, 1.0, kept)  # the root is kept for certain
            level.append((value + left * kept * (points + depth + 1), left * (1 - kept)))
        deeper = level
    return deeper[0]


def _reject(weight: Tensor, target: Tensor, draft: Tensor) -> tuple[Tensor, Tensor]:
    """Weights `[num_nodes]` and targets `[num_nodes, vocab_size]` of nodes below which a child was rejected."""
    left = (weight[:, None] * target - draft).clamp(min=0)
    mass = left.sum(1)
    some = mass > 0
    probs = torch.where(some[:, None], left / mass[:, None], target)
    return torch.where(some, mass / (mass + (1 - weight)), 0.0), probs

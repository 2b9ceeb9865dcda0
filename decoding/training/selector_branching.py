"""Branching probabilities of all solvers for many nodes at once: the chance that a solver goes on with each entry.

The same figures as `Solver.branching()` gives node by node (Algorithms 11 to 15), in float64 on the CPU.
"""

from collections.abc import Callable

import torch
from torch import Tensor

from decoding.verifiers import VERIFIERS
from decoding.verifiers.spectr import BISECTIONS
from decoding.verifiers.top_down import TopDownVerifier

# (target laws [num_nodes, vocab_size], draft laws of the same shape, entries [num_nodes, k]) -> chances [num_nodes, k]
Branching = Callable[[Tensor, Tensor, Tensor], Tensor]


def lone_chance(name: str, target: Tensor, draft: Tensor) -> Tensor:
    """Chance of a node's only entry, from what both laws give its token; every solver but NSS does the same there."""
    return target if name == "nss" else _ratio(target, draft)


def branching(name: str, target: Tensor, draft: Tensor, tokens: Tensor) -> Tensor:
    """Chance that a solver picks each entry's token, `[num_nodes, k]`, k of 2 or more; repeats have the same chance."""
    return BRANCHINGS[name](target, draft, tokens)


def _nss(target: Tensor, draft: Tensor, tokens: Tensor) -> Tensor:
    return target.gather(1, tokens)


def _naive_tree(target: Tensor, draft: Tensor, tokens: Tensor) -> Tensor:
    passes = _ratio(target.gather(1, tokens[:, :1]), draft.gather(1, tokens[:, :1]))
    picked = target.new_zeros(tokens.shape)
    picked[:, :1] = passes
    return _together(picked, tokens, _positive_part(target - draft, target), 1 - passes[:, 0])


def _spectr(target: Tensor, draft: Tensor, tokens: Tensor) -> Tensor:
    count = tokens.shape[1]
    factor = division_factors(target, draft, count)[:, None]
    overlap = (target / factor).minimum(draft)
    beta = overlap.sum(1, keepdim=True)
    gamma = torch.where(beta > 0, (1 - (1 - beta) ** count) / beta, factor)
    passes = _ratio(target.gather(1, tokens), factor * draft.gather(1, tokens))
    untested = (1 - passes).cumprod(1)
    before = torch.cat([torch.ones_like(passes[:, :1]), untested[:, :-1]], 1)
    return _together(before * passes, tokens, _positive_part(target - gamma * overlap, target), untested[:, -1])


def division_factors(target: Tensor, draft: Tensor, draws: int) -> Tensor:
    """rho* of many nodes, `[num_nodes]`: the upper ends of the bisections, as `spectr.division_factor` gives them.

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
    return high[:, 0]


def _specinfer(target: Tensor, draft: Tensor, tokens: Tensor) -> Tensor:
    count, law, passes = tokens.shape[1], target, []
    drafted = draft.gather(1, tokens)
    for _ in range(count):
        passes.append(_ratio(law.gather(1, tokens), drafted))
        left = _positive_part(law - draft, law)
        law = left / left.sum(1, keepdim=True)
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
    return _together(picked, tokens, law, rejected[-1])


def _khisti(target: Tensor, draft: Tensor, tokens: Tensor) -> Tensor:
    """Node by node: each round of a tournament is a linear programme of its own."""
    verifier: TopDownVerifier = VERIFIERS["khisti"]()
    rows = []
    for p, q, entries in zip(target, draft, tokens.tolist(), strict=True):
        chances = verifier.solve(p, q, entries).branching()
        rows.append([chances[token] for token in entries])
    return target.new_tensor(rows)


def _ratio(target: Tensor, draft: Tensor) -> Tensor:
    """min(1, target / draft), 0 where the draft gives nothing."""
    return torch.where(draft > 0, target / draft, 0.0).clamp(max=1.0)


def _positive_part(laws: Tensor, fallback: Tensor) -> Tensor:
    """max(law, 0) row by row, or the fallback's row where nothing is left."""
    left = laws.clamp(min=0)
    return torch.where(left.sum(1, keepdim=True) > 0, left, fallback)


def _together(picked: Tensor, tokens: Tensor, residual: Tensor, left: Tensor) -> Tensor:
    """Chances by token: what its entries passed with, and its share of the residual, which is drawn with `left`."""
    same = (tokens[:, :, None] == tokens[:, None, :]).to(picked.dtype)
    passed = (same @ picked[:, :, None])[:, :, 0]
    return passed + left[:, None] * residual.gather(1, tokens) / residual.sum(1, keepdim=True)


BRANCHINGS: dict[str, Branching] = {
    "nss": _nss,
    "naive_tree": _naive_tree,
    "spectr": _spectr,
    "specinfer": _specinfer,
    "khisti": _khisti,
}

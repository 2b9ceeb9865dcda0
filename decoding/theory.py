"""What theory says exactly: how far two laws are apart, what a solver accepts, what a verifier gets out of a tree.

Laws are `[vocab_size]`; everything that the app calls "expected" or "exact" is computed here or by `Decision`.
"""

from decoding.draft import Draft
from decoding.optional_torch import Tensor, torch
from decoding.sampling import TargetRows
from decoding.verifiers import VERIFIERS, Verifier
from decoding.verifiers.top_down import TopDownVerifier
from decoding.verifiers.verified_tree import VerifiedTree

# Verifiers with an acceptance rate for k independent draws (Definition 5.1), and whether it is exact or a lower bound.
SOLVERS: tuple[str, ...] = ("nss", "naive_tree", "spectr", "specinfer", "khisti")
LOWER_BOUNDS: tuple[str, ...] = ("khisti",)


def l1_distance(target: Tensor, draft: Tensor) -> float:
    """Sum of the absolute differences, from 0 to 2; naive verification accepts one draw with 1 - half of it."""
    return float((target - draft).abs().sum())


def entropy(law: Tensor) -> float:
    """Shannon entropy in nats."""
    return float(torch.special.entr(law).sum())


def acceptance_rate(name: str, target: Tensor, draft: Tensor, draws: int) -> float:
    """Probability that a solver's token is among `draws` independent draws from the draft (Algorithms 6 to 10).

    Raises:
        ValueError: the verifier is no solver for independent draws, or `draws` is less than 1.
    """
    if name not in SOLVERS:
        raise ValueError(f"{name} has no acceptance rate for independent draws: choose {', '.join(SOLVERS)}.")
    if draws < 1:
        raise ValueError(f"draws must be at least 1, not {draws}.")
    return VERIFIERS[name]().acceptance_rate(target, draft, draws)


def best_acceptance(target: Tensor, draft: Tensor, draws: int) -> float:
    """alpha_opt = min over token sets S of target(S) + 1 - draft(S)^k: no solver for k draws accepts more.

    The least set is one of those that begin the order by target / draft: for a given draft(S) these have the least
    target(S), and between two of them the bound is concave.
    """
    ratio = torch.where(draft > 0, target / draft, torch.inf)
    order = ratio.argsort()
    outside = torch.cat([target.new_zeros(1), target[order].cumsum(0)])
    inside = torch.cat([draft.new_zeros(1), draft[order].cumsum(0)]).clamp(max=1.0)
    return float((outside + 1 - inside**draws).min())


def branching(verifier: TopDownVerifier, target: Tensor, draft: Tensor, tokens: list[int]) -> dict[int, float]:
    """Probability that a solver picks each of the tokens, given all of them in draw order (Algorithms 11 to 15)."""
    return verifier.solve(target, draft, tokens).branching()


def expected_tokens(verifier: Verifier, draft: Draft, target: TargetRows) -> float:
    """Exact expected tokens, the final one included, that a verifier gets out of a given tree: E[tau + 1 | tree]."""
    return verifier.decide(VerifiedTree(draft, target)).expected_tokens

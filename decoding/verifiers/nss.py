"""NSS: draw from the target's distribution; a child may have that token (Miao et al. 2023; Algorithms 1, 6, 11)."""

from collections.abc import Sequence
from dataclasses import dataclass

from torch import Tensor

from decoding.verifiers.base import SAMPLED_TREES
from decoding.verifiers.top_down import Solver, TopDownVerifier


class NSSSolver(Solver):
    """No tests: the children never matter for what is drawn."""

    looks_at_draft = False

    def fixed_order(self) -> Sequence[int]:
        return ()

    def residual(self, rejected: int) -> Tensor:
        return self.target


@dataclass(frozen=True)
class NSSVerifier(TopDownVerifier):
    """Never looks at the draft's probabilities, so it is lossless on every tree, also on deterministic ones."""

    name = "nss"
    label = "NSS"
    summary = (
        "Samples from the target at each node and continues if a child has that token (naive speculative sampling)."
    )
    how = "draws the next token from the target's distribution; the children only say whether the path goes on."
    paper = "Miao et al. 2023 (SpecInfer); used by EAGLE, OPT-Tree and SpecExec"
    lossless_for = (*SAMPLED_TREES, "deterministic")
    solver = NSSSolver

    def acceptance_rate(self, target: Tensor, draft: Tensor, draws: int) -> float:
        """Probability that the token picked is among `draws` independent draws from the draft (Algorithm 6)."""
        return float((target * (1 - (1 - draft) ** draws)).sum())

"""What every way to accept tokens shares: its signature and the tree laws it is lossless for."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from decoding.drafters.base import Draft, TreeLaw
from decoding.sampling import Draws, Sampling, TargetRows
from decoding.trace import FinalKind, VerificationStep


@dataclass(frozen=True)
class Verification:
    """What a verifier decided.

    Attributes:
        accepted: ids of the accepted nodes from the root down, the root left out.
        final_token: the token that follows them.
        final_kind: `bonus` after a leaf of the verified tree, `recovered` above one, `fallback` if none was accepted.
        steps: its tests in order.
        acceptance_probability: exact probability of being reached and accepted for each verified node, `[num_rows]`
            in the order of the verification pass; the root has 1.
    """

    accepted: tuple[int, ...]
    final_token: int
    final_kind: FinalKind
    steps: tuple[VerificationStep, ...]
    acceptance_probability: np.ndarray


@dataclass(frozen=True)
class Verifier:
    """A way to accept tokens from a tree: stateless, frozen settings.

    Attributes:
        lossless_for: laws of trees on which the output keeps the target's law.
        greedy_only: True if it needs temperature 0.
    """

    lossless_for: ClassVar[tuple[TreeLaw, ...]] = ()
    greedy_only: ClassVar[bool] = False

    def verify(self, draft: Draft, target: TargetRows, draws: Draws) -> Verification:
        """Decide about the tree; `target` has one row per entry of `draft.order`."""
        raise NotImplementedError

    def refusal(self, law: TreeLaw, sampling: Sampling) -> str | None:
        """Why this verifier would bias the output of such a tree, None if it would not."""
        if self.greedy_only and not sampling.greedy:
            return (
                f"This verifier keeps only the target's most likely token, so it needs temperature 0, "
                f"not {sampling.temperature}: set temperature to 0."
            )
        if law not in self.lossless_for:
            return f"This verifier would bias the output of {law.replace('_', ' ')} trees."
        return None


def final_kind(accepted: tuple[int, ...], draft: Draft) -> FinalKind:
    """What the token after the accepted path is called."""
    if not accepted:
        return "fallback"
    has_children = bool(np.isin(draft.tree.parents[draft.order], accepted[-1]).any())
    return "recovered" if has_children else "bonus"

"""Greedy verification: walk down while a child is the target's most likely token (DynaTree, SelectCommit)."""

from dataclasses import dataclass

import numpy as np

from decoding.drafters.base import Draft
from decoding.sampling import Draws, TargetRows
from decoding.trace import VerificationStep
from decoding.verifiers.base import Verification, Verifier, final_kind


@dataclass(frozen=True)
class GreedyVerifier(Verifier):
    """Keeps the longest path whose every token is the target's argmax; takes no draws."""

    lossless_for = ("none", "deterministic", "single_path", "iid", "without_replacement")
    greedy_only = True

    def verify(self, draft: Draft, target: TargetRows, draws: Draws) -> Verification:
        preferred = target.argmax.cpu().numpy()
        order = draft.order
        parents, tokens = draft.tree.parents[order], draft.tree.tokens[order]
        probability = np.zeros(len(order))
        probability[0] = 1.0
        accepted: list[int] = []
        steps: list[VerificationStep] = []
        row = 0
        while True:
            node, wanted, next_row = int(order[row]), int(preferred[row]), None
            for child in np.flatnonzero(parents == node) if len(order) > 1 else ():
                matches = bool(tokens[child] == wanted)
                steps.append(
                    VerificationStep(node, int(order[child]), int(tokens[child]), float(matches), None, matches)
                )
                if matches:
                    next_row = int(child)
            if next_row is None:
                break
            row = next_row
            accepted.append(int(order[row]))
            probability[row] = 1.0
        steps.append(VerificationStep(node, None, wanted, 1.0, None, True))
        path = tuple(accepted)
        return Verification(path, wanted, final_kind(path, draft), tuple(steps), probability)

"""Walk one tree with many seeds, as fast as its long laws allow."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from decoding.draws import GeneratorDraws
from decoding.interruption import pause_point
from decoding.optional_torch import Tensor
from decoding.sampling import exact_dtype
from decoding.verifiers.base import Decision, Verification

LONG_LAW = 256  # shorter laws are summed sooner than looked up


def reroll(decision: Decision, seeds: Sequence[int]) -> list[Verification]:
    """Walk the same tree once per seed."""
    sums: dict[int, _KeptSum] = {}
    walks = []
    for seed in seeds:
        pause_point(timed=True)  # a walk is too short for others to have a turn after each
        walks.append(decision.walk(_QuickDraws(seed, sums)))
    return walks


@dataclass(frozen=True)
class _KeptSum:
    """Running sums of a law; the law itself is held so that its identity stays taken."""

    law: Tensor
    sums: np.ndarray
    last: int


class _QuickDraws(GeneratorDraws):
    """The very draws of `GeneratorDraws` for many walks over one tree: running sums of long laws are shared."""

    def __init__(self, seed: int, kept: dict[int, _KeptSum]):
        super().__init__(seed)
        self._kept = kept

    def choose(self, weights: Tensor) -> int:
        if len(weights) < LONG_LAW:
            return super().choose(weights)
        known = self._kept.get(id(weights))
        if known is None:
            sums = weights.to(exact_dtype(weights.device)).cumsum(-1).cpu().numpy()
            known = self._kept[id(weights)] = _KeptSum(weights, sums, int(np.searchsorted(sums, sums[-1])))
        self.last_uniform = self._uniforms(1)[0]
        point = known.sums.dtype.type(self.last_uniform) * known.sums[-1]
        return min(int(np.searchsorted(known.sums, point, side="right")), known.last)

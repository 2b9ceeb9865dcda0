"""Small trees and tables on which every draft and every draw can be enumerated."""

from itertools import product

import numpy as np

from benchmarks.enumeration import Law, Tables
from decoding.drafters import (
    DelayedDrafter,
    DynaTreeDrafter,
    DySpecDrafter,
    DySpecThresholdDrafter,
    Eagle2Drafter,
    FixedTreeDrafter,
    HardwareAwareDrafter,
    IIDPathsDrafter,
    LinearDrafter,
    NoDrafter,
    OptTreeDrafter,
    SalfDrafter,
    SequoiaDrafter,
    SpecExecDrafter,
    SpecInferWidthsDrafter,
)
from decoding.drafters.base import Drafter

# By vocabulary size: drafters by the name they have in METHODS. The first of each list is what --quick takes.
DRAFTERS_3: dict[str, list[Drafter]] = {
    "autoregressive": [NoDrafter()],
    "linear": [LinearDrafter(length=2)],
    "linear, sampled": [LinearDrafter(length=2, sampled=True), LinearDrafter(length=3, sampled=True)],
    "fixed_tree": [FixedTreeDrafter(max_depth=1, branching=2, prune_probability=0.0, branch_first_level=True)],
    "dynatree": [DynaTreeDrafter(base_depth=1, max_depth=2, branch_first_level=True, history=False)],
    "dyspec": [DySpecDrafter(node_budget=5), DySpecDrafter(node_budget=4), DySpecDrafter(node_budget=6)],
    "dyspec_threshold": [
        DySpecThresholdDrafter(threshold=0.3, node_budget=6),
        DySpecThresholdDrafter(threshold=0.15, node_budget=5, max_depth=2),
    ],
    "specinfer": [
        SpecInferWidthsDrafter(widths="2,2"),
        SpecInferWidthsDrafter(widths="3,1"),
        SpecInferWidthsDrafter(widths="1,2,1"),
    ],
    "specinfer, top-k": [SpecInferWidthsDrafter(widths="2,2", sampled=False)],
    "sequoia": [
        SequoiaDrafter(node_budget=5, max_depth=2, acceptance="0.6,0.3"),
        SequoiaDrafter(node_budget=6, max_depth=3, acceptance="0.6,0.25,0.1"),
        SequoiaDrafter(node_budget=6, max_depth=2, acceptance="0.4,0.3,0.2"),
    ],
    "opt_tree": [OptTreeDrafter(node_budget=4, gain_threshold=0.0, max_depth=2)],
    "eagle2": [Eagle2Drafter(node_budget=4, beam_width=2, max_depth=2)],
    "hardware_aware": [
        HardwareAwareDrafter(node_budget=5, max_depth=3, verify_ms="1:1 6:1.2", level_ms="0.1", odds="1 1"),
        HardwareAwareDrafter(node_budget=4, max_depth=2, verify_ms="1", level_ms="0", odds="4 0.5"),
    ],
    "specexec": [SpecExecDrafter(node_budget=5, batch=2, max_depth=3)],
    "salf": [SalfDrafter(node_budget=5, batch=2, gain_threshold=0.3), SalfDrafter(5, 2, 0.6, top_up=True)],
    "iid_paths": [
        IIDPathsDrafter(paths=2, length=2),
        IIDPathsDrafter(paths=1, length=3),
        IIDPathsDrafter(paths=3, length=2),
        IIDPathsDrafter(paths=2, length=3),
    ],
    "delayed": [
        DelayedDrafter(paths=2, trunk=1, branch=1),
        DelayedDrafter(paths=1, trunk=1, branch=2),
        DelayedDrafter(paths=2, trunk=1, branch=2),
        DelayedDrafter(paths=3, trunk=1, branch=1),
        DelayedDrafter(paths=3, trunk=1, branch=2),
        DelayedDrafter(paths=2, trunk=2, branch=1),
        DelayedDrafter(paths=2, trunk=2, branch=0),
    ],
}
DRAFTERS_4: dict[str, list[Drafter]] = {
    "dyspec": [DySpecDrafter(node_budget=4)],
    "sequoia": [SequoiaDrafter(node_budget=5, max_depth=2, acceptance="0.5,0.3,0.1")],
    "specinfer": [SpecInferWidthsDrafter(widths="2,1")],
    "iid_paths": [IIDPathsDrafter(paths=2, length=2), IIDPathsDrafter(paths=1, length=3)],
    "delayed": [DelayedDrafter(paths=2, trunk=1, branch=1)],
    "eagle2": [Eagle2Drafter(node_budget=5, beam_width=2, max_depth=2)],
}
DRAFTERS_BY_SIZE = {3: DRAFTERS_3, 4: DRAFTERS_4}
LONGEST = 4  # no block of these trees is longer


def all_tables(size: int, count_random: int) -> list[Tables]:
    """Random tables, and those on which divisions, residuals and ties are at their edges."""
    generator = np.random.default_rng(size)
    tables = [_random(f"random {i + 1}", size, generator, 0.7) for i in range(count_random)]
    tables.append(_random("far apart", size, generator, 0.15))
    tables.append(_random("zeros", size, generator, 0.7, zeros=True))
    uniform = [1 / size] * size
    halves = [0.5, 0.5] + [0.0] * (size - 2)
    tables.append(Tables("ties", {}, {(): uniform}, halves, [0.5, 0.25] + [0.25 / (size - 2)] * (size - 2)))
    same = _laws(size, generator, 0.7)
    tables.append(Tables("target = draft", same, same, uniform, uniform))
    first, rest = [1.0] + [0.0] * (size - 1), [0.0] + [1 / (size - 1)] * (size - 1)
    tables.append(Tables("disjoint", {}, {}, first, rest))
    tables.append(Tables("one-hot target", _laws(size, generator, 0.7), {}, uniform, first[::-1]))
    tables.append(Tables("one-hot draft", {}, _laws(size, generator, 0.7), first, uniform))
    return tables


def _random(name: str, size: int, generator: np.random.Generator, evenness: float, zeros: bool = False) -> Tables:
    draft, target = (_laws(size, generator, evenness, zeros) for _ in range(2))
    return Tables(name, draft, target, [1 / size] * size, [1 / size] * size)


def _laws(size: int, generator: np.random.Generator, evenness: float, zeros: bool = False) -> dict[tuple, Law]:
    """A random law after every path."""
    laws = {}
    for length in range(LONGEST):
        for path in product(range(size), repeat=length):
            law = generator.dirichlet(np.full(size, evenness))
            if zeros:
                law[generator.integers(size)] = 0.0
                law /= law.sum()
            laws[path] = law.tolist()
    return laws

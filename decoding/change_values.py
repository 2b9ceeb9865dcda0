"""Which values of a setting are worth trying when a token is to be brought into the tree, nearest first."""

import math
from collections.abc import Iterator

from decoding.edits import Path
from decoding.trace import IterationTrace, Setting, node_paths

# What is searched, by setting: the drafters accept no more, and larger trees would be out of all proportion.
RANGES: dict[str, tuple[float, float]] = {
    "node_budget": (1, 1024),
    "max_depth": (1, 32),
    "base_depth": (1, 31),
    "length": (1, 64),
    "paths": (1, 16),
    "trunk": (0, 16),
    "branch": (0, 16),
    "branching": (1, 16),
    "branch_min": (1, 16),
    "branch_mid": (1, 16),
    "branch_max": (1, 16),
    "beam_width": (1, 64),
    "batch": (1, 64),
    "children": (0, 64),
    "threshold": (0.0, 1.0),
    "confidence_high": (0.0, 1.0),
    "confidence_low": (0.0, 1.0),
    "stop_probability": (0.0, 1.0),
    "deep_probability": (0.0, 1.0),
    "prune_probability": (0.0, 1.0),
    "gain_threshold": (0.0, 1.0),
    "decay": (0.0, 1.0),
}
SWITCHES = ("branch_first_level", "adaptive_breadth", "dynamic_depth", "top_up")
STEPS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1023)
GRID = (0.01, 0.02, 0.05, 0.1, 0.15, 0.2, 0.3, 0.45, 0.6, 0.8)
SHARES = (0.75, 0.5, 0.25, 0.1, 0.03, 0.01, 0.001)


def values_to_try(iteration: IterationTrace, name: str, before: Setting, path: Path) -> Iterator[tuple[Setting, bool]]:
    """Values to try, nearest first, and whether nothing nearer can decide otherwise."""
    if name in SWITCHES:
        yield not before, True
        return
    low, high = RANGES[name]
    if isinstance(before, int):
        for step in STEPS:
            for value in (before + step, before - step):
                if low <= value <= high:
                    yield value, step <= 4
        return
    deciding = set(_deciding(iteration, path))
    grid = {round(before + sign * step, 6) for step in GRID for sign in (1, -1)} | {before * share for share in SHARES}
    values = {value for value in deciding | grid | {low} if low <= value <= high and value != before}
    for value in sorted(values, key=lambda value: abs(value - before)):
        yield value, value in deciding


def _deciding(iteration: IterationTrace, path: Path) -> Iterator[float]:
    """Probabilities along a path that thresholds are held against, rounded to either side."""
    nodes, paths = iteration.nodes, node_paths(iteration)
    by_path = {known: node for known, node in zip(paths, nodes, strict=True)}
    for depth in range(len(path) + 1):
        node = by_path.get(path[:depth])
        known = [] if node is None else [node.path_probability, node.confidence]
        if node is None and depth and (parent := by_path.get(path[: depth - 1])) is not None:
            top = iteration.draft_top(parent.node_id)
            known = [parent.path_probability * p for token, _, p in top if token == path[depth - 1]]
        for value in known:
            if value is not None and 0 < value < 1:
                yield rounded(value, up=False)
                yield rounded(value, up=True)


def rounded(value: float, up: bool | None = None) -> float:
    """A probability with three significant digits, more where it would become 1; to one side if told."""
    for digits in range(3, 9):
        unit = 10.0 ** (math.floor(math.log10(value)) - digits + 1)
        turned = {None: round, True: math.ceil, False: math.floor}[up](value / unit)
        result = float(f"{turned * unit:.{digits}g}")
        if 0 < result < 1:
            return result
    return value


def change_size(name: str, before: Setting, after: Setting) -> float:
    """How much a change is, as a share of the value before."""
    if isinstance(before, bool):
        return 1.0
    low, high = RANGES[name]
    return abs(after - before) / (abs(before) or high - low)

"""Which values of a setting are worth trying when a token is to be brought into the tree, nearest first."""

import math
from collections.abc import Iterator

from decoding.edits import Path
from decoding.settings import HISTORY, SettingInfo
from decoding.trace import IterationTrace, Setting, node_paths

STEPS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1023)
GRID = (0.01, 0.02, 0.05, 0.1, 0.15, 0.2, 0.3, 0.45, 0.6, 0.8)
SHARES = (0.75, 0.5, 0.25, 0.1, 0.03, 0.01, 0.001)


def is_searched(info: SettingInfo) -> bool:
    """Whether other values of a setting are worth trying: texts have no order, history works between iterations."""
    return info.searched and info.group != HISTORY and not isinstance(info.default, str)


def values_to_try(
    iteration: IterationTrace, info: SettingInfo, before: Setting, path: Path
) -> Iterator[tuple[Setting, bool]]:
    """Values to try, nearest first, and whether nothing nearer can decide otherwise."""
    if isinstance(before, bool):
        yield not before, True
        return
    if isinstance(before, int):
        low, high = info.offered_with(before)  # what else is accepted makes trees out of all proportion
        for step in STEPS:
            for value in (before + step, before - step):
                if low <= value <= high:
                    yield value, step <= 4
        return
    deciding = set(_deciding(iteration, path))
    grid = {round(before + sign * step, 6) for step in GRID for sign in (1, -1)} | {before * share for share in SHARES}
    ends = {info.accepted.low, info.accepted.high}
    values = {value for value in deciding | grid | ends if value in info.accepted and value != before}
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


def change_size(info: SettingInfo, before: Setting, after: Setting) -> float:
    """How much a change is, as a share of the value before, or of the range that is offered where that is 0."""
    if isinstance(before, bool):
        return 1.0
    low, high = info.offered
    return abs(after - before) / (abs(before) or high - low)

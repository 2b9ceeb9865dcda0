"""Settings shared by several drafters, each declared once; a drafter gives its own default and any differences.

`node_budget: int = shared.node_budget(60, paper="SALF & TALF")`
"""

import math
from collections.abc import Iterable
from functools import partial

from decoding.common.settings import BREADTH, DEPTH, SEARCH, SHAPE, SIZE, setting

# Drafted in one iteration: more would need more memory for mask and logits than supported pairs leave.
MOST_NODES = 4096

node_budget = partial(
    setting, low=1, high=MOST_NODES, step=1, offered=(1, 1024), group=SIZE, label="Node budget", symbol="N_max",
    help="Most nodes drafted per iteration.",
)  # fmt: skip
max_depth = partial(
    setting,
    low=1,
    high=32,
    step=1,
    group=DEPTH,
    label="Maximum depth",
    symbol="D_max",
    help="Greatest depth of a path.",
)
prune_probability = partial(
    setting, low=0.0, below=1.0, step=0.01, offered=(0.0, 0.5), group=SIZE, label="Pruning", symbol="τ",
    help="Nodes with a smaller path probability are not expanded, and removed before verification.",
)  # fmt: skip
verify_pruned = partial(
    setting, group=SIZE, label="Verify pruned nodes",
    help="On: nodes below τ are only not expanded, as DynaTree's pseudo-code is printed and its public code does; off: "
    "they are removed before verification, as its text describes.",
)  # fmt: skip
branch_first_level = partial(
    setting, group=BREADTH, label="First level may branch",
    help="Off: the tree starts with the draft's top token alone, as in the paper.",
)  # fmt: skip
batch = partial(
    setting, low=1, high=4096, step=1, offered=(1, 64), group=SEARCH, label="Batch", symbol="B",
    help="Nodes expanded per draft forward.",
)  # fmt: skip
gain_threshold = partial(
    setting, low=0.0, below=1.0, step=0.05, offered=(0.0, 0.95), group=SEARCH, label="Gain threshold",
    symbol="th", help="Drafting stops when the next forward is expected to add fewer accepted tokens.",
)  # fmt: skip
length = partial(
    setting, low=1, high=64, step=1, group=SHAPE, label="Length", help="Tokens of the chain (K) or of each path (L)."
)
paths = partial(
    setting, low=1, high=16, step=1, group=SHAPE, label="Paths", symbol="K", help="Number of independent paths."
)
shortest = partial(
    setting, low=1, high=64, step=1, offered=(1, 16), group=SEARCH, label="Shortest match",
    help="Nothing is copied where fewer of the last tokens stood earlier in the text.",
)  # fmt: skip
latest = partial(
    setting, group=SEARCH, label="Latest occurrence",
    help="Copy from the last earlier occurrence; off: from the first, as in the code that was published first.",
)  # fmt: skip
sampled = partial(
    setting, group=SHAPE, searched=False, label="Sampled",
    help="Tokens are sampled from the draft's distribution; off: its most likely tokens.",
)  # fmt: skip


def numbers(entries: Iterable[str]) -> list[float]:
    """Numbers typed as text; nan for anything else."""

    def number(entry: str) -> float:
        try:
            return float(entry)
        except ValueError:
            return math.nan

    return [number(entry) for entry in entries]

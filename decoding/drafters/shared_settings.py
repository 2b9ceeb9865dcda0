"""Settings that several drafters have, each declared once; a drafter gives its own default and what differs.

`node_budget: int = shared.node_budget(60, paper="SALF & TALF")`
"""

import math
from collections.abc import Iterable
from functools import partial

from decoding.common.settings import BREADTH, DEPTH, SEARCH, SHAPE, SIZE, setting

# Drafted in one iteration: more would need a mask and logits that no pair here has room for.
MOST_NODES = 4096

node_budget = partial(
    setting, low=1, high=MOST_NODES, step=1, offered=(1, 1024), group=SIZE, label="Node budget", symbol="N_max",
    help="Nodes drafted per iteration at most.",
)  # fmt: skip
max_depth = partial(
    setting, low=1, high=32, step=1, group=DEPTH, label="Maximum depth", symbol="D_max", help="No path goes deeper."
)
prune_probability = partial(
    setting, low=0.0, below=1.0, step=0.01, offered=(0.0, 0.5), group=SIZE, label="Pruning", symbol="τ",
    help="Nodes with a smaller path probability are removed before verification.",
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
    setting, low=0.0, below=1.0, step=0.05, offered=(0.0, 0.95), group=SEARCH, label="Stop at a gain below",
    symbol="th", help="Drafting stops when it promises fewer accepted tokens.",
)  # fmt: skip
length = partial(
    setting, low=1, high=64, step=1, group=SHAPE, label="Length", help="Tokens in a row: K of a chain, L of each path."
)
paths = partial(setting, low=1, high=16, step=1, group=SHAPE, label="Paths", symbol="K", help="Independent paths.")
sampled = partial(
    setting, group=SHAPE, searched=False, label="Sampled",
    help="Tokens are drawn from the draft's distribution; off: its most likely ones are taken.",
)  # fmt: skip


def numbers(entries: Iterable[str]) -> list[float]:
    """Numbers that were typed as a text; nan for what is none."""

    def number(entry: str) -> float:
        try:
            return float(entry)
        except ValueError:
            return math.nan

    return [number(entry) for entry in entries]

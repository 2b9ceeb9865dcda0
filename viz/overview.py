"""Overview of a large tree: every node as a bar, column = depth, height = path probability, inside its parent's bar.

What stays empty below a bar is the probability that the draft left to tokens it did not propose.
"""

from collections.abc import Collection
from dataclasses import dataclass

from decoding.trace import IterationTrace, NodeTrace
from viz.tokens import visible

TEXT_COLUMNS = 20
# One letter per state: "o" for the root, the others speak for themselves.
STATES = {"root": "o", "accepted": "a", "rejected": "r", "not_reached": "n", "not_verified": "v"}


@dataclass(frozen=True, slots=True)
class Bars:
    """One bar per node, in the order of ids.

    Attributes:
        depths: column of each node. tops: upper edge, 0 to 1. heights: path probability.
    """

    depths: tuple[int, ...]
    tops: tuple[float, ...]
    heights: tuple[float, ...]


def bars(iteration: IterationTrace) -> Bars:
    """Bars of all nodes: siblings stand below each other in the order of ids, from their parent's upper edge on."""
    tops, heights = [], []
    used: list[float] = []
    for node in iteration.nodes:
        height = node.path_probability
        if node.parent_id < 0:
            top = 0.0
        else:
            top = tops[node.parent_id] + used[node.parent_id]
            used[node.parent_id] += height
        tops.append(top)
        heights.append(height)
        used.append(0.0)
    return Bars(tuple(node.depth for node in iteration.nodes), tuple(tops), tuple(heights))


def overview_data(iteration: IterationTrace) -> dict:
    """The bars as plain lists for the component, with state and visible text of each node."""
    made, gone = bars(iteration), iteration.forced_out
    return {
        "depths": list(made.depths),
        "tops": [round(top, 5) for top in made.tops],
        "heights": [round(height, 5) for height in made.heights],
        "parents": [node.parent_id for node in iteration.nodes],
        "states": "".join(_state(node, gone) for node in iteration.nodes),
        "tokens": [visible(node.text, TEXT_COLUMNS) for node in iteration.nodes],
        "count": max(len(iteration.nodes) - 1, 0),
    }


def _state(node: NodeTrace, forced_out: Collection[int]) -> str:
    """One letter for what became of a node."""
    if node.node_id in forced_out:
        return "f"
    return "p" if node.pruned else STATES[node.verdict]

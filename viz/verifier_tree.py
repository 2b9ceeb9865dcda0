"""The tree of the Verifiers page: beside each node the exact probability that one verifier reaches and accepts it."""

from collections.abc import Collection
from dataclasses import replace

from decoding.trace import IterationTrace
from viz.explain import iteration_summary
from viz.scope_data import compact_data
from viz.tokens import number

# With more rows than this the component has no room for a second line under a token.
TWO_LINE_ROWS = 11


def kept_tree_data(
    iteration: IterationTrace, *, scene_id: str, title: str, selected: int | None = None, unfolded: Collection[int] = ()
) -> dict:
    """Data of the compact scope for an iteration as a verifier replayed it (`decoding.replay.replayed_iteration`).

    The node where the walk stopped is framed. The final token is left out: it hangs on another node with every verifier
    and would move the others.
    """
    stop = iteration.accepted[-1] if iteration.accepted else 0
    still = replace(iteration, final_kind="none")
    marks = {stop: "this seed stops here"}
    data = compact_data(still, scene_id=scene_id, title=title, marks=marks, selected=selected, unfolded=unfolded)
    scene = data["scene"]
    scene["summary"] = iteration_summary(iteration)
    scene["column_chars"] = list(scene["column_chars"])
    for node in scene["nodes"]:
        known = iteration.nodes[node["node_id"]] if node["node_id"] > 0 else None
        if known is not None and known.acceptance_probability is not None:
            _write(node, known.acceptance_probability, scene)
    return data | {"cards": {}}


def _write(node: dict, chance: float, scene: dict) -> None:
    """The probability goes under the token, or behind it where there is no second line."""
    node["both"] = number(chance)
    node["title"] += f", reached and accepted with probability {number(chance, 4)}"
    if scene["rows"] > TWO_LINE_ROWS and node["labelled"]:
        node["label"] += f" {number(chance)}"
        node["chars"] += 1 + len(number(chance))
        scene["column_chars"][node["depth"]] = max(scene["column_chars"][node["depth"]], node["chars"])

"""The tree of the Verifiers page: beside each node the exact probability that one verifier reaches and accepts it."""

from collections.abc import Collection
from dataclasses import replace

from decoding.trace.records import IterationTrace
from viz.explain.iteration import iteration_summary
from viz.formats import number
from viz.scope.data import compact_data
from viz.tokens import columns

# With more rows than this the component has no room for a second line under a token.
TWO_LINE_ROWS = 11


def kept_tree_data(
    iteration: IterationTrace,
    *,
    scene_id: str,
    title: str,
    walker: str,
    selected: int | None = None,
    unfolded: Collection[int] = (),
) -> dict:
    """Data of the compact scope for an iteration as a verifier replayed it (`replay.replayed_iteration`).

    The node where the walk of `walker` stopped is framed. The final token is left out: it hangs on another node with
    every verifier and would move the others.
    """
    stop = iteration.accepted[-1] if iteration.accepted else 0
    still = replace(iteration, final_kind="none")
    marks = {stop: f"{walker} stops here"}
    data = compact_data(still, scene_id=scene_id, title=title, marks=marks, selected=selected, unfolded=unfolded)
    scene = data["scene"]
    scene["summary"] = iteration_summary(iteration)
    scene["note"] = scene["note"] + " · number: exact acceptance"
    for node in scene["nodes"]:
        if node["node_id"] > 0:
            chance = iteration.nodes[node["node_id"]].acceptance_probability
            _write(node, chance, squeezed=scene["rows"] > TWO_LINE_ROWS)
    scene["column_chars"] = [
        max((node["chars"] for node in scene["nodes"] if node["depth"] == depth and _has_text(node)), default=0)
        for depth in range(len(scene["column_chars"]))
    ]
    return data


def _has_text(node: dict) -> bool:
    return node["labelled"] or node["folded"] > 0


def _write(node: dict, chance: float | None, squeezed: bool) -> None:
    """The probability goes under the token, or behind it where no second line fits; pruned nodes have none."""
    node["both"] = "" if chance is None else number(chance)
    if chance is not None:
        node["title"] += f", reached and accepted with probability {number(chance, 4)}"
    if squeezed and node["labelled"]:
        node["label"] = f"{node['label']} {node['both']}".rstrip()
    times = f" ×{node['multiplicity']}" if node["multiplicity"] > 1 else ""
    # The second line is written in letters of four fifths.
    node["chars"] = max(columns(node["label"] + times), -(-4 * columns(node["both"]) // 5))

"""The history of branches as a small graph: a lane per branch, a dot per iteration, long stretches compressed."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from typing import Literal

import networkx as nx

from decoding.common.formats import plural

Kind = Literal["recorded", "opened", "decoded", "replayed", "live"]

KINDS: dict[str, str] = {
    "recorded": "Decoded earlier by the real models; included with Draftscope.",
    "opened": "Read from a file.",
    "decoded": "Decoded on this machine by the loaded models.",
    "replayed": "Recomputed from recorded logits: no model ran, so there are no times.",
    "live": "The models ran from its first own iteration on; times are measured.",
}
PROMPT = -1
MOST_DOTS = 22
NEAR = 1


@dataclass(frozen=True, slots=True)
class BranchLine:
    """One branch of the history.

    Attributes:
        number: identifies the branch. parent: number of the branch it forks, None for the run itself.
        at: index of its first own iteration; those before it are its parent's.
        iterations: how many it has in all.
        words: what was changed. kind: where its iterations come from.
        note: short extra text. bias: why its output no longer has the target's distribution, else empty.
    """

    number: int
    parent: int | None
    at: int
    iterations: int
    words: str
    kind: Kind
    note: str = ""
    bias: str = ""


def branch_graph(lines: Sequence[BranchLine], here: int, first: int | None, second: int | None) -> dict:
    """Lay out a history as plain data; `here` is the selected iteration, `first` and `second` the branches A and B.

    Children are below their parent, the latest fork first, so that no line crosses another lane's dots.
    `columns` are places in time, `[iteration, skipped]`: an iteration (`PROMPT` is the prompt before all), or `skipped`
    ones in one place; `here` is such a place, None where no branch has the iteration. A lane's `columns` are the places
    of its own dots, `gaps` those of its compressed stretches, and `leaves` the row and place of the dot that it forks
    from, None for the run itself.
    """
    by_number = {line.number: line for line in lines}
    columns = _columns(lines, here)
    place_of = {iteration: place for place, (iteration, skipped) in enumerate(columns) if not skipped}
    forks = sorted((line for line in lines if line.parent is not None), key=lambda line: (-line.at, line.number))
    tree = nx.DiGraph([(_owner(line, by_number).number, line.number) for line in forks])
    tree.add_nodes_from(by_number)
    runs = [line.number for line in lines if line.parent is None]
    ordered = [number for run in runs for number in nx.dfs_preorder_nodes(tree, run)]
    lanes = []
    for line in (by_number[number] for number in ordered):
        low, leaves = PROMPT if line.parent is None else line.at, None
        if line.parent is not None:
            leaves = ordered.index(_owner(line, by_number).number), place_of[line.at - 1]
        own = [
            (place, skipped) for place, (iteration, skipped) in enumerate(columns) if low <= iteration < line.iterations
        ]
        lanes.append(
            asdict(line)
            | {
                "columns": [place for place, skipped in own if not skipped],
                "gaps": [place for place, skipped in own if skipped],
                "leaves": leaves,
                "side": "A" if line.number == first else "B" if line.number == second else "",
            }
        )
    summary = (
        f"The run and {plural(len(forks), 'branch', 'branches')} of it" if forks else "The run itself, no branch yet"
    )
    return {"columns": columns, "lanes": lanes, "here": place_of.get(here), "kinds": KINDS, "summary": summary}


def _owner(line: BranchLine, by_number: dict[int, BranchLine]) -> BranchLine:
    """The branch whose own iteration comes right before the first one of `line`."""
    owner = line
    while owner.parent is not None and owner.at > line.at - 1:
        owner = by_number[owner.parent]
    return owner


def _columns(lines: Sequence[BranchLine], here: int) -> list[tuple[int, int]]:
    """Every iteration while they fit; beyond that the notable ones, and one place for each stretch between."""
    count = max((line.iterations for line in lines), default=0)
    if count <= MOST_DOTS:
        return [(index, 0) for index in range(PROMPT, count)]
    notable = {PROMPT, 0, *range(here - NEAR, here + NEAR + 1)}
    for line in lines:
        notable |= {line.at - 1, line.at, line.iterations - 1}
    shown = sorted(place for place in notable if PROMPT <= place < count)
    columns = [(shown[0], 0)]
    for before, index in pairwise(shown):
        missing = index - before - 1
        if missing:  # a stretch of one needs as much room as its dot
            columns.append((index - 1, 0 if missing == 1 else missing))
        columns.append((index, 0))
    return columns

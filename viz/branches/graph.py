"""The history of branches as a small graph: a lane per branch, a dot per iteration, long stretches compressed.

graph = branch_graph(lines, here=4, first=0, second=2)     # what the page draws, see `viz/branches`
data = graph_data(graph)                                   # the same as plain lists and dicts
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Literal

Kind = Literal["recorded", "opened", "decoded", "replayed", "live"]

KINDS: dict[str, str] = {
    "recorded": "Decoded earlier by the real models; it comes with the program.",
    "opened": "Read from a file.",
    "decoded": "Decoded here by the models in memory.",
    "replayed": "Computed from stored rows: no model ran, so there is no time.",
    "live": "The models ran from its first own iteration on, and times are measured.",
}
PROMPT = -1
MOST_DOTS = 22
NEAR = 1


@dataclass(frozen=True, slots=True)
class Line:
    """One branch of the history.

    Attributes:
        number: tells branches apart. parent: number of the branch it was made from, None for the run itself.
        at: index of its first own iteration; those before it are its parent's.
        iterations: how many it has in all.
        words: what was changed. kind: what its iterations come from.
        note: more about it in a few words. bias: why its output is no longer the target's, empty if it still is.
    """

    number: int
    parent: int | None
    at: int
    iterations: int
    words: str
    kind: Kind
    note: str = ""
    bias: str = ""


@dataclass(frozen=True, slots=True)
class Column:
    """One place in time: an iteration (`PROMPT` is the prompt before all), or `skipped` iterations in one."""

    iteration: int
    skipped: int = 0


@dataclass(frozen=True, slots=True)
class Lane:
    """One branch as it is drawn.

    Attributes:
        columns: places of its own dots, `gaps`: those of its compressed stretches.
        leaves: (row, place) of the dot that it parts from, None for the run itself.
        side: `A`, `B` or empty.
    """

    line: Line
    columns: tuple[int, ...]
    gaps: tuple[int, ...]
    leaves: tuple[int, int] | None
    side: str


@dataclass(frozen=True, slots=True)
class BranchGraph:
    """All lanes, from the top. `here`: place of the iteration looked at, None where no branch has it."""

    columns: tuple[Column, ...]
    lanes: tuple[Lane, ...]
    here: int | None
    summary: str


def branch_graph(
    lines: Sequence[Line], here: int = 0, first: int | None = None, second: int | None = None
) -> BranchGraph:
    """Lay out a history; `here` is the iteration looked at, `first` and `second` are the branches A and B.

    Children stand below their parent, those that leave it last first: so no line ever crosses another lane's dots.
    """
    by_number = {line.number: line for line in lines}
    columns = _columns(lines, here)
    place_of = {column.iteration: place for place, column in enumerate(columns) if not column.skipped}
    ordered = _ordered(lines, by_number)
    row_of = {line.number: row for row, line in enumerate(ordered)}
    lanes = []
    for line in ordered:
        low = PROMPT if line.parent is None else line.at
        own = [place for place, column in enumerate(columns) if low <= column.iteration < line.iterations]
        leaves = None
        if line.parent is not None:
            leaves = row_of[_owner(line, by_number).number], place_of[line.at - 1]
        lanes.append(
            Lane(
                line=line,
                columns=tuple(place for place in own if not columns[place].skipped),
                gaps=tuple(place for place in own if columns[place].skipped),
                leaves=leaves,
                side="A" if line.number == first else "B" if line.number == second else "",
            )
        )
    return BranchGraph(columns, tuple(lanes), place_of.get(here), _summary(lines))


def graph_data(graph: BranchGraph) -> dict:
    """What the component draws."""
    lanes = []
    for lane in graph.lanes:
        data = asdict(lane)
        lanes.append(data.pop("line") | data)
    return {
        "columns": [[column.iteration, column.skipped] for column in graph.columns],
        "lanes": lanes,
        "here": graph.here,
        "kinds": KINDS,
        "summary": graph.summary,
    }


def _ordered(lines: Sequence[Line], by_number: dict[int, Line]) -> list[Line]:
    """Branches from the top: each one's forks below it."""
    below: dict[int | None, list[Line]] = {}
    for line in lines:
        owner = None if line.parent is None else _owner(line, by_number).number
        below.setdefault(owner, []).append(line)
    ordered: list[Line] = []
    waiting = list(below.get(None, ()))[::-1]
    while waiting:
        line = waiting.pop()
        ordered.append(line)
        waiting += sorted(below.get(line.number, ()), key=lambda fork: (fork.at, -fork.number))
    return ordered


def _owner(line: Line, by_number: dict[int, Line]) -> Line:
    """The branch whose own iteration stands right before the first one of `line`."""
    owner = by_number[line.parent]
    while owner.parent is not None and owner.at > line.at - 1:
        owner = by_number[owner.parent]
    return owner


def _columns(lines: Sequence[Line], here: int) -> tuple[Column, ...]:
    """Every iteration while they fit; beyond that the notable ones, and one place for each stretch between."""
    count = max((line.iterations for line in lines), default=0)
    if count <= MOST_DOTS:
        return tuple(Column(index) for index in range(PROMPT, count))
    notable = {PROMPT, 0, *range(here - NEAR, here + NEAR + 1)}
    for line in lines:
        notable |= {line.at - 1, line.at, line.iterations - 1}
    columns: list[Column] = []
    for index in sorted(place for place in notable if PROMPT <= place < count):
        missing = index - columns[-1].iteration - 1 if columns else 0
        if missing == 1:  # a stretch of one takes no less room than its dot
            columns.append(Column(index - 1))
        elif missing:
            columns.append(Column(index - 1, missing))
        columns.append(Column(index))
    return tuple(columns)


def _summary(lines: Sequence[Line]) -> str:
    forks = sum(line.parent is not None for line in lines)
    if not forks:
        return "The run itself, no branch yet"
    return f"The run and {forks} {'branch' if forks == 1 else 'branches'} of it"

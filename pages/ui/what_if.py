"""What if: the run on screen, the branches made from it, and which two of them stand side by side.

history = current_history()                  # follows the run on screen
history.show(2, "B", index=4)                # what is looked at; `pages.ui.what_if_work` adds branches
"""

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Literal

import streamlit as st

from decoding.trace import IterationTrace
from pages.ui.state import Run, current_run, selected_iteration
from viz.branch_graph import Line
from viz.tokens import milliseconds, visible

if TYPE_CHECKING:
    from decoding.forks import Change, Fork
    from decoding.methods import Method
    from decoding.sampling import Sampling

SLOT = "what_if"
KEY = "what_if"
ASKED = "what_if_asked"
Force = Literal["force_in", "force_out", "accept", "reject"]
FORCE_WORDS: dict[str, str] = {
    "force_in": "add {}",
    "force_out": "force {} out",
    "accept": "force accept of {}",
    "reject": "force reject of {}",
}


@dataclass(frozen=True)
class Edit:
    """A node that is forced: named by its token ids from the root, the root left out; `text` is its token's."""

    kind: Force
    path: tuple[int, ...]
    text: str

    @property
    def words(self) -> str:
        """What it does, for the screen."""
        return FORCE_WORDS[self.kind].format(f"‘{visible(self.text, 16)}’")


@dataclass(frozen=True)
class Wish:
    """A fork as it is asked for: from which branch, at which iteration, with what changed."""

    branch: int
    index: int
    method: "Method | None" = None
    sampling: "Sampling | None" = None
    edits: tuple[Edit, ...] = ()
    live: bool = False

    @property
    def empty(self) -> bool:
        """Whether nothing is changed."""
        return self.method is None and self.sampling is None and not self.edits

    def change(self) -> "Change":
        """The change as the engine takes it."""
        from decoding.edits import Edits
        from decoding.forks import Change

        paths = {kind: tuple(edit.path for edit in self.edits if edit.kind == kind) for kind in FORCE_WORDS}
        return Change(self.method, self.sampling, Edits(**paths))


@dataclass(eq=False)
class Branch:
    """The run itself (`fork` is None) or a fork of it; `run` is what Step through shows of it."""

    number: int
    run: Run
    parent: int | None = None
    fork: "Fork | None" = None

    @property
    def at(self) -> int:
        """Index of its first own iteration."""
        return self.fork.at if self.fork else 0

    @property
    def bias(self) -> str:
        """Why its output is no longer the target's, empty if it still is."""
        return (self.fork.bias or "") if self.fork else ""

    @property
    def label(self) -> str:
        """Number and what was changed."""
        return f"{self.number} · {self.fork.words}" if self.fork else f"Run · {self.run.trace.label}"

    @property
    def can_go_on(self) -> bool:
        """Whether one more iteration can be decoded; a replayed fork is then run by the session it comes from."""
        if self.fork is None or self.fork.kind == "live":
            return self.run.can_continue
        session = self.fork.origin.session
        return (
            session is not None and not session.pair.target.released and self.run.trace.totals.stopped == "unfinished"
        )

    def as_it_is(self) -> "Fork":
        """The fork with what Step through may have decoded of it meanwhile."""
        return replace(self.fork, trace=self.run.trace)

    def line(self) -> Line:
        """What the drawn history says about it."""
        count = len(self.run.trace.iterations)
        if self.fork is None:
            kind = "decoded" if self.run.source == "forked" else self.run.source
            return Line(0, None, 0, count, self.run.trace.label, kind)
        note = f"from iteration {self.at + 1}"
        if count == self.at + 1:
            note += f" · made in {milliseconds(self.fork.made_s)}"
        return Line(self.number, self.parent, self.at, count, self.fork.words, self.fork.kind, note, self.bias)


@dataclass(eq=False)
class History:
    """The branches of one run and what is looked at.

    Attributes:
        branches: by number, 0 is the run itself.
        a, b: branches that stand side by side. index: iteration looked at in both.
        nodes: node chosen in A and in B, None where none is.
        edits: nodes to be forced in the next fork.
        count: branches ever made. edited: branch whose settings stand in the widgets, None before they are opened.
        screen: key of the run on screen when the page was drawn last.
    """

    branches: dict[int, Branch]
    a: int = 0
    b: int | None = None
    index: int = 0
    nodes: dict[str, int | None] = field(default_factory=dict)
    edits: tuple[Edit, ...] = ()
    count: int = 0
    edited: int | None = None
    screen: str = ""

    @property
    def last(self) -> int:
        """Index of the last iteration that A or B has."""
        return max(len(branch.run.trace.iterations) for branch in self.shown()) - 1

    def shown(self) -> list[Branch]:
        """A and, where there is one, B."""
        return [self.branches[number] for number in (self.a, self.b) if number is not None]

    def iteration(self, number: int | None) -> IterationTrace | None:
        """The iteration looked at in a branch, None where it ends before."""
        if number is None:
            return None
        iterations = self.branches[number].run.trace.iterations
        return iterations[self.index] if self.index < len(iterations) else None

    def owner(self, number: int, index: int) -> Branch:
        """The branch in which iteration `index` of a branch was made: itself, or one that it comes from."""
        branch = self.branches[number]
        while branch.parent is not None and branch.at > index:
            branch = self.branches[branch.parent]
        return branch

    @property
    def base(self) -> Branch:
        """The branch that is forked: the one in which A's iteration looked at was made."""
        return self.owner(self.a, self.index)

    def seconds(self, number: int) -> float | None:
        """Measured time of the iteration looked at, None where it was replayed."""
        owner, iteration = self.owner(number, self.index), self.iteration(number)
        replayed = owner.fork is not None and owner.fork.kind == "replayed" and self.index == owner.at
        return None if iteration is None or replayed else iteration.times.total_s

    def part_at(self) -> int:
        """Index of the first iteration that A and B do not share."""
        index = 0
        while index <= self.last and self.owner(self.a, index) is self.owner(self.b, index):
            index += 1
        return index

    def show(self, number: int, side: str, index: int | None = None) -> None:
        """Put a branch on side A or B; one that stands on the other side changes places with it."""
        if side == "A" and number != self.a:
            self.a, self.b = number, self.a if number == self.b else self.b
            self.edits, self.edited, self.nodes = (), None, {}
        elif side == "B" and number == self.a:
            if self.b is not None:
                self.show(self.b, "A")
        elif side == "B":
            self.b = number
            self.nodes.pop("B", None)
        if index is not None:
            self.look_at(index)

    def look_at(self, index: int) -> None:
        """Go to another iteration; what was chosen in the old one belonged to it."""
        index = max(0, min(index, self.last))
        if index != self.index:
            self.index, self.nodes, self.edits = index, {}, ()

    def delete(self, number: int) -> None:
        """Forget a branch and those that were made from it."""
        gone = {number}
        for branch in self.branches.values():  # parents stand before their forks
            if branch.parent in gone:
                gone.add(branch.number)
        self.branches = {kept: branch for kept, branch in self.branches.items() if kept not in gone}
        if self.a in gone:
            self.a, self.edits, self.edited, self.nodes = 0, (), None, {}
        if self.b in gone or self.b == self.a:
            self.b = next((kept for kept in reversed(self.branches) if kept != self.a), None)
        self.look_at(self.index)


def current_history() -> History:
    """The history that belongs to the run on screen; another run begins a new one."""
    run, history = current_run(), st.session_state.get(KEY)
    mine = {} if history is None else {branch.run.key: branch.number for branch in history.branches.values()}
    if run.key not in mine:
        history = st.session_state[KEY] = History({0: Branch(0, run)}, index=selected_iteration(), screen=run.key)
    elif history.screen != run.key:
        history.screen = run.key
        history.show(mine[run.key], "A")
    asked = st.session_state.pop(ASKED, None)
    if asked is not None:
        history.look_at(asked[0])
        history.nodes["A"] = asked[1]
    history.look_at(history.index)
    return history


def ask_what_if(index: int, node: int | None) -> None:
    """Have the page begin at an iteration and a node of the run on screen."""
    st.session_state[ASKED] = (index, node)

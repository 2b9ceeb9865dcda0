"""What if: the run on screen, the branches made from it, and which two of them stand side by side.

history = current_history()                  # follows the run on screen
history.show(2, "B", index=4)                # what is looked at; `pages.ui.what_if_work` adds branches
"""

from dataclasses import dataclass, field

import streamlit as st

from decoding.trace import IterationTrace
from pages.ui.state import current_run, selected_iteration
from pages.ui.what_if_branch import Branch, Edit
from viz.tokens import plural

SLOT = "what_if"
KEY = "what_if"
ASKED = "what_if_asked"


@dataclass(frozen=True)
class Deleted:
    """What a history was before branches were deleted from it; `words` names them."""

    branches: dict[int, Branch]
    a: int
    b: int | None
    words: str


@dataclass(eq=False)
class History:
    """The branches of one run and what is looked at.

    Attributes:
        branches: by number, 0 is the run itself.
        a, b: branches that stand side by side. index: iteration looked at in both.
        nodes: node chosen in A and in B, None where none is.
        edits: nodes to be forced in the next fork.
        count: branches ever made. uses: how often one was decoded. deleted: what can be brought back.
        edited: branch whose settings stand in the widgets, None before they are opened.
        screen: key of the run on screen when the page was drawn last.
    """

    branches: dict[int, Branch]
    a: int = 0
    b: int | None = None
    index: int = 0
    nodes: dict[str, int | None] = field(default_factory=dict)
    edits: tuple[Edit, ...] = ()
    count: int = 0
    uses: int = 0
    deleted: Deleted | None = None
    edited: int | None = None
    screen: str = ""

    @property
    def unknown(self) -> str:
        """What this version does not know of the run, so that it can be looked at but not changed; empty if nothing."""
        run = self.branches[0].run
        if run.source != "opened":
            return ""
        from decoding.stored_state import unknown_words  # brings torch where it is installed

        return unknown_words(run.trace)

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
        """Take a branch and those that were made from it out; the latest that went can be brought back."""
        gone = {number}
        for branch in self.branches.values():  # parents stand before their forks
            if branch.parent in gone:
                gone.add(branch.number)
        others = len(gone) - 1
        words = f"branch {number}" + (f" and {plural(others, 'branch', 'branches')} made from it" if others else "")
        self.deleted = Deleted(self.branches, self.a, self.b, words)
        self.branches = {kept: branch for kept, branch in self.branches.items() if kept not in gone}
        if self.a in gone:
            self.a, self.edits, self.edited, self.nodes = 0, (), None, {}
        if self.b in gone or self.b == self.a:
            self.b = next((kept for kept in reversed(self.branches) if kept != self.a), None)
        self.look_at(self.index)

    def bring_back(self) -> None:
        """Undo the latest deletion."""
        if self.deleted is not None:
            self.branches, self.a, self.b = self.deleted.branches, self.deleted.a, self.deleted.b
            self.deleted, self.nodes, self.edits, self.edited = None, {}, (), None


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

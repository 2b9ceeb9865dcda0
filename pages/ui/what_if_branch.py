"""A branch of What if and the fork that is asked for: plain records that `what_if_work` makes."""

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

from pages.ui.state import Run
from viz.branch_graph import Line
from viz.tokens import milliseconds, visible

if TYPE_CHECKING:
    from decoding.forks import Change, Fork
    from decoding.method import Method
    from decoding.sampling import Sampling

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
    """The run itself (`fork` is None) or a fork of it.

    Attributes:
        run: what Step through shows of it.
        used: grows each time that a branch is decoded. let_go_at: iterations it had when it let go of its caches.
    """

    number: int
    run: Run
    parent: int | None = None
    fork: "Fork | None" = None
    used: int = 0
    let_go_at: int | None = None

    @property
    def at(self) -> int:
        """Index of its first own iteration."""
        return self.fork.at if self.fork else 0

    @property
    def bias(self) -> str:
        """Why its output is no longer the target's, empty if it still is."""
        return self.run.trace.bias

    @property
    def label(self) -> str:
        """Number and what was changed."""
        return f"{self.number} · {self.fork.words}" if self.fork else f"Run · {self.run.trace.label}"

    @property
    def ended(self) -> bool:
        """Whether its text ended or reached the length asked for: it has no further iteration."""
        return self.run.trace.totals.stopped != "unfinished"

    @property
    def can_go_on(self) -> bool:
        """Whether one more iteration can be decoded; a replayed fork is then run by the session it comes from."""
        if self.fork is None or self.fork.kind == "live":
            return self.run.can_continue
        session = self.fork.origin.session
        return (
            session is not None and not session.pair.target.released and self.run.trace.totals.stopped == "unfinished"
        )

    @property
    def holds_caches(self) -> bool:
        """Whether it keeps key/value caches of its own in memory; going on fills those that it let go of."""
        live = self.fork is not None and self.fork.kind == "live"
        return live and self.let_go_at != len(self.run.trace.iterations)

    def as_it_is(self) -> "Fork":
        """The fork with what Step through may have decoded of it meanwhile."""
        return replace(self.fork, trace=self.run.trace)

    def line(self) -> Line:
        """What the drawn history says about it."""
        count = len(self.run.trace.iterations)
        if self.fork is None:
            kind = "decoded" if self.run.source == "forked" else self.run.source
            kind = kind if self.run.trace.timed else "replayed"
            return Line(0, None, 0, count, self.run.trace.label, kind, bias=self.bias)
        note = f"from iteration {self.at + 1}"
        if self.fork.kind == "live" and not self.holds_caches:
            note += " · cache let go"
        elif count == self.at + 1:
            note += f" · made in {milliseconds(self.fork.made_s)}"
        return Line(self.number, self.parent, self.at, count, self.fork.words, self.fork.kind, note, self.bias)

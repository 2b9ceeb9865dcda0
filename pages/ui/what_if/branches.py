"""What if: the run on screen, its branches, the two shown side by side, and those that hold caches.

    history = current_history()                  # follows the run on screen
    history.show(2, "B", index=4)                # selects what is shown
    start_fork(history, method, sampling, edits) # adds a branch, shown as B next to its parent
    start_go_on(history, number, 1)              # one more iteration of a branch, None: to the end

The last two wait briefly for the worker, so that the next drawing already has the result; longer work shows progress.
"""

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Literal

import streamlit as st

from decoding.common.formats import byte_size, duration, plural
from decoding.trace.interventions import Interventions
from decoding.trace.records import IterationTrace, RunTrace
from pages.ui.common.state import (
    PromptChoice,
    Run,
    RunRequest,
    current_run,
    decode_ids,
    decode_more,
    keep_run,
    own_pair,
    selected_iteration,
)
from pages.ui.common.worker import ModelTask, start_job
from pages.ui.widgets.prompts import prompt_with
from viz.branches.graph import BranchLine
from viz.tokens import visible

if TYPE_CHECKING:
    from decoding.methods.method import Method
    from decoding.models.pair import Pair
    from decoding.replay.forks import Fork
    from decoding.sampling.sampling import Sampling


SLOT = KEY = "what_if"
ASKED = "what_if_asked"
MOST_HELD = 4
Force = Literal["force_in", "force_out", "accept", "reject"]
FORCE_WORDS: dict[str, str] = {
    "force_in": "add {}",
    "force_out": "force {} out",
    "accept": "force accept of {}",
    "reject": "force reject of {}",
}


@dataclass(frozen=True)
class Edit:
    """A forced node: `path` has the token ids from below the root down to it, `text` is that of its token."""

    kind: Force
    path: tuple[int, ...]
    text: str

    @property
    def words(self) -> str:
        """Its effect, for the screen."""
        return FORCE_WORDS[self.kind].format(f"‘{visible(self.text, 16)}’")


@dataclass(eq=False)
class Branch:
    """The run itself (`fork` is None) or a fork of it.

    Attributes:
        run: shown in Step through.
        recorded: its models are loaded when they are first needed, and decode the run again.
        used: a counter of the last decoding. let_go_at: iterations it had when its caches were released.
    """

    number: int
    run: Run
    parent: int | None = None
    fork: "Fork | None" = None
    recorded: bool = False
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
        """Whether its text ended or reached the length limit: it has no further iteration."""
        return self.run.trace.totals.stopped != "unfinished"

    @property
    def can_go_on(self) -> bool:
        """Whether one more iteration can be decoded; a replayed fork is then decoded by the session of its parent."""
        if self.ended:
            return False
        if self.fork is None or self.fork.kind == "live":
            return self.run.can_continue or self.recorded
        session = self.fork.origin.session
        return self.recorded or (session is not None and not session.pair.target.released)

    @property
    def holds_caches(self) -> bool:
        """Whether it holds its own key/value caches in memory; continuing refills released ones."""
        live = self.fork is not None and self.fork.kind == "live"
        return live and self.let_go_at != len(self.run.trace.iterations)

    def as_it_is(self) -> "Fork":
        """The fork with the iterations that Step through may have decoded meanwhile."""
        return replace(self.fork, trace=self.run.trace)

    def line(self) -> BranchLine:
        """Its line in the drawn history."""
        count = len(self.run.trace.iterations)
        if self.fork is None:
            kind = "decoded" if self.run.source == "forked" else self.run.source
            kind = kind if self.run.trace.timed else "replayed"
            return BranchLine(0, None, 0, count, self.run.trace.label, kind, bias=self.bias)
        note = f"from iteration {self.at + 1}"
        if self.fork.kind == "live" and not self.holds_caches:
            note += " · cache released"
        elif count == self.at + 1:
            note += f" · forked in {duration(self.fork.made_s)}"
        return BranchLine(self.number, self.parent, self.at, count, self.fork.words, self.fork.kind, note, self.bias)


def mark_used(history: "History", number: int) -> None:
    """Record that a branch was decoded; beyond `MOST_HELD`, the least recently used release their caches.

    Call it in the worker, where nothing else decodes them.
    """
    history.uses += 1
    history.branches[number].used = history.uses
    for branch in held(history)[:-MOST_HELD]:
        branch.run.session.release()
        branch.let_go_at = len(branch.run.trace.iterations)


def held(history: "History") -> list[Branch]:
    """Branches with their own caches in memory, the most recently used last; deleted ones included."""
    deleted = history.deleted.branches if history.deleted else {}
    branches = (deleted | history.branches).values()
    return sorted((branch for branch in branches if branch.holds_caches), key=lambda branch: branch.used)


def memory_words(history: "History") -> str:
    """The memory of the branches, and what happens to further ones."""
    kept = held(history)
    if not kept:
        return f"At most {MOST_HELD} branches hold a KV cache."
    held_bytes = 0
    for branch in kept:
        last = branch.run.trace.iterations[-1]
        for cache in filter(None, (last.kv_target, last.kv_draft)):
            held_bytes += (cache.slots_before + len(cache.moved_from)) * cache.bytes_per_slot
    said = f"{plural(len(kept), 'branch holds its', 'branches hold their')} KV cache ({byte_size(held_bytes)})"
    return f"{said}, at most {MOST_HELD} do." if len(kept) < MOST_HELD else f"{said}, older ones have released it."


@dataclass(frozen=True)
class Deleted:
    """A history before branches were deleted from it; `words` names them."""

    branches: dict[int, Branch]
    a: int
    b: int | None
    words: str


@dataclass(eq=False)
class History:
    """The branches of one run and the current selection.

    Attributes:
        branches: by number, 0 is the run itself.
        a, b: branches shown side by side. index: iteration selected in both.
        nodes: node selected in A and in B, None without one.
        interventions: nodes to force in the next fork. example: one that the page proposed and nobody chose.
        count: branches ever created. uses: number of decodings. deleted: what can be restored.
        edited: branch whose settings are in the widgets, None before they are opened.
        screen: key of the run on screen when the page was last drawn.
    """

    branches: dict[int, Branch]
    a: int = 0
    b: int | None = None
    index: int = 0
    nodes: dict[str, int | None] = field(default_factory=dict)
    interventions: tuple[Edit, ...] = ()
    example: Edit | None = None
    count: int = 0
    uses: int = 0
    deleted: Deleted | None = None
    edited: int | None = None
    screen: str = ""

    @property
    def unknown(self) -> str:
        """What this version does not know about the run, which can then be viewed but not changed; empty if nothing."""
        run = self.branches[0].run
        if run.source != "opened":
            return ""
        from decoding.replay.stored_state import unknown_words  # brings torch

        return unknown_words(run.trace)

    @property
    def last(self) -> int:
        """Index of the last iteration that A or B has."""
        return max(len(branch.run.trace.iterations) for branch in self.shown()) - 1

    def shown(self) -> list[Branch]:
        """A and, where there is one, B."""
        return [self.branches[number] for number in (self.a, self.b) if number is not None]

    def iteration(self, number: int | None) -> IterationTrace | None:
        """The selected iteration of a branch, None where the branch ends before it."""
        if number is None:
            return None
        iterations = self.branches[number].run.trace.iterations
        return iterations[self.index] if self.index < len(iterations) else None

    def owner(self, number: int, index: int) -> Branch:
        """The branch in which iteration `index` of a branch was decoded: itself or an ancestor."""
        branch = self.branches[number]
        while branch.parent is not None and branch.at > index:
            branch = self.branches[branch.parent]
        return branch

    @property
    def base(self) -> Branch:
        """The branch to fork: the one in which the selected iteration of A was decoded."""
        return self.owner(self.a, self.index)

    def part_at(self) -> int:
        """Index of the first iteration that A and B do not share."""
        index = 0
        while index <= self.last and self.owner(self.a, index) is self.owner(self.b, index):
            index += 1
        return index

    def show(self, number: int, side: str, index: int | None = None) -> None:
        """Put a branch on side A or B; if it is on the other side, the two swap."""
        if side == "A" and number != self.a:
            self.a, self.b = number, self.a if number == self.b else self.b
            self.interventions, self.edited, self.nodes = (), None, {}
        elif side == "B" and number == self.a:
            if self.b is not None:
                self.show(self.b, "A")
        elif side == "B":
            self.b = number
            self.nodes.pop("B", None)
        if index is not None:
            self.look_at(index)

    def look_at(self, index: int) -> None:
        """Go to another iteration and clear the selection, which belonged to the old one."""
        index = max(0, min(index, self.last))
        if index != self.index:
            self.index, self.nodes, self.interventions = index, {}, ()

    def add(self, parent: Branch, made: "Fork", index: int) -> Branch:
        """Add a fork and show it as B at an iteration; the change that made it has been used."""
        self.count += 1
        forked = Run(made.trace, "forked", made.session)
        branch = Branch(self.count, forked, parent.number, made, recorded=parent.recorded)
        self.branches = {**self.branches, branch.number: branch}  # a page may be iterating over the old one
        self.b, self.index = self.count, index
        self.nodes.pop("B", None)
        self.interventions, self.edited, self.deleted = (), None, None
        return branch

    def delete(self, number: int) -> None:
        """Delete a branch and its descendants; the latest deletion can be undone."""
        gone = {number}
        for branch in self.branches.values():  # parents come before their forks
            if branch.parent in gone:
                gone.add(branch.number)
        others = len(gone) - 1
        words = f"branch {number}" + (f" and {plural(others, 'branch', 'branches')} forked from it" if others else "")
        self.deleted = Deleted(self.branches, self.a, self.b, words)
        self.branches = {kept: branch for kept, branch in self.branches.items() if kept not in gone}
        if self.a in gone:
            self.a, self.interventions, self.edited, self.nodes = 0, (), None, {}
        if self.b in gone or self.b == self.a:
            self.b = next((kept for kept in reversed(self.branches) if kept != self.a), None)
        self.look_at(self.index)

    def bring_back(self) -> None:
        """Undo the latest deletion."""
        if self.deleted is not None:
            self.branches, self.a, self.b = self.deleted.branches, self.deleted.a, self.deleted.b
            self.deleted, self.nodes, self.interventions, self.edited = None, {}, (), None


def current_history() -> History:
    """The history of the run on screen; another run starts a new one, with the branches that it has already."""
    run, history = current_run(), st.session_state.get(KEY)
    numbers = {} if history is None else _numbers(history.branches)
    if run.key not in numbers:
        branches = run.branches or {0: Branch(0, run, recorded=run.source == "recorded")}
        numbers, last, used = _numbers(branches), max(branches), max(each.used for each in branches.values())
        history = History(branches, b=last or None, index=selected_iteration(), count=last, uses=used)
        st.session_state[KEY] = history
    if history.screen != run.key:
        history.screen = run.key
        history.show(numbers[run.key], "A")
    share(history)
    asked = st.session_state.pop(ASKED, None)
    if asked is not None:
        history.look_at(asked[0])
        history.nodes["A"] = asked[1]
    history.look_at(history.index)
    return history


def _numbers(branches: dict[int, Branch]) -> dict[str, int]:
    return {branch.run.key: branch.number for branch in branches.values()}


def share(history: History) -> None:
    """Hand the branches to the runs in them, so that whoever finds one of these by its address finds the others."""
    for branch in history.branches.values():
        branch.run.branches = history.branches


def is_chosen() -> bool:
    """Whether Step through asked for the run on screen, or it was on screen here before."""
    run, history = current_run(), st.session_state.get(KEY)
    return ASKED in st.session_state or (history is not None and run is not None and history.screen == run.key)


def ask_what_if(index: int, node: int | None) -> None:
    """Open the page at an iteration and a node of the run on screen."""
    st.session_state[ASKED] = (index, node)


def start_fork(
    history: History, method: "Method | None", sampling: "Sampling | None", interventions: tuple[Edit, ...]
) -> None:
    """Fork the selected branch at the selected iteration in the worker, and show the fork as B next to it.

    Where neither recorded logits nor a model suffice, or the change does not fit, the page says so.
    """
    from decoding.replay.forks import ForkChange, fork, fork_again
    from decoding.replay.recorded_logits import LogitsMissing

    paths = {kind: tuple(edit.path for edit in interventions if edit.kind == kind) for kind in FORCE_WORDS}
    parent, index, live = history.base, history.index, True if st.session_state.get("what_if_live") else None

    def make(job: ModelTask) -> None:
        change = ForkChange(method, sampling, Interventions(**paths))

        def attempt() -> "Fork":
            if parent.fork is None:
                return fork(parent.run.trace, parent.run.session, index, change, live=live)
            return fork_again(parent.as_it_is(), index, change, live=live)

        try:
            if live:
                load_models(history, parent, job)
            made = attempt()
        except LogitsMissing:
            if not load_models(history, parent, job):
                raise
            made = attempt()
        if job.cancelled:
            return
        mark_used(history, history.add(parent, made, index).number)
        share(history)

    start_job(SLOT, "Forking", make, keeps=(KEY,))


def start_go_on(history: History, number: int, iterations: int | None) -> None:
    """Decode a branch further in the worker; select its last iteration, or the last that both sides can have."""

    def go_on_with(job: ModelTask) -> None:
        branch = history.branches[number]
        load_models(history, branch, job)
        if branch.fork is None:
            decode_more(branch.run, iterations, job)
        else:
            from decoding.replay.forks import go_on

            branch.fork = go_on(branch.as_it_is(), iterations, job.proceed("{} of at most {} tokens"))
            branch.run.trace, branch.run.session = branch.fork.trace, branch.fork.session
            mark_used(history, number)
        ended = [other for other in history.shown() if other.ended]
        history.look_at(min(len(each.run.trace.iterations) for each in (branch, *ended)) - 1)

    start_job(SLOT, "Next iteration" if iterations == 1 else "Decoding to the end", go_on_with, keeps=(KEY,))


def load_models(history: History, branch: Branch, job: ModelTask) -> bool:
    """Decode a recorded run again, so that it and its branches have models; False where nothing was to be done.

    Raises `DraftscopeError` where its pair is not the one in memory.
    """
    root = history.branches[0]
    if not branch.recorded or (branch.fork is not None and branch.fork.kind == "live"):
        return False
    if root.run.session is None:
        again = decode_again(root.run.trace, job)
        root.run.session, root.run.asked, root.run.source, root.run.origin = again.session, again.asked, "decoded", ""
    if branch.fork is not None:
        branch.fork = replace(branch.fork, origin=replace(branch.fork.origin, session=root.run.session))
    branch.recorded = False
    return True


def decode_again(trace: RunTrace, job: ModelTask) -> Run:
    """The prompt, method and sampling of a trace decoded again, for as many iterations; call it in the worker.

    Raises `DraftscopeError` where another pair is in memory, or the settings are unknown to this version.
    """
    from decoding.replay.stored_state import method_of, sampling_of

    pair = own_pair(trace, job)
    method, sampling, length = method_of(trace), sampling_of(trace), trace.max_new_tokens
    run = decode_ids(pair, trace.prompt_ids, method, sampling, length, len(trace.iterations), job)
    prompt = prompt_of_ids(pair, list(trace.prompt_ids))
    run.asked = None if prompt is None else RunRequest(prompt, method, sampling, length)
    return run


def prompt_of_ids(pair: "Pair", prompt_ids: list[int]) -> PromptChoice | None:
    """The prompt of a trace as chosen or typed, None where its text gives other tokens."""
    text = pair.vocabulary.decode(prompt_ids)
    return prompt_with(text) if pair.vocabulary.encode(text) == prompt_ids else None


def adopt(result: object) -> None:
    """Put a run that was decoded again on screen, at the previously selected iteration."""
    if isinstance(result, Run) and result.trace.iterations:
        index = st.session_state[KEY].index if KEY in st.session_state else 0
        keep_run(result, min(index, len(result.trace.iterations) - 1))

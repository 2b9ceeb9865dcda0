"""State of one browser session: the run on screen, the selected iteration and node, and a run set aside."""

import secrets
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

import streamlit as st

import decoding
from decoding.common.errors import PromptError, SettingsError, require
from decoding.common.formats import plural
from decoding.recorded import home_run, logits_run, telling_iteration
from decoding.trace.records import RunTrace
from decoding.trace.run_file import MAX_ROW_BYTES
from pages.ui.common.errors import escape_markdown, torch_there
from pages.ui.common.models import loaded_pair, manager
from pages.ui.common.run_store import RunNotes, store
from pages.ui.common.worker import take_result

if TYPE_CHECKING:
    from decoding.methods.method import Method
    from decoding.models.pair import Pair
    from decoding.sampling.sampling import Sampling
    from decoding.session.session import DecodeSession
    from pages.ui.common.worker import ModelTask


# Raw logits stored per run for replaying other verifiers, as many as its file can hold; those of the oldest iterations
# are dropped first.
ROW_BYTES = MAX_ROW_BYTES
DRAWINGS = "drawings"  # key of how often pages were drawn, a page that is entered counted twice


@dataclass(eq=False)
class Run:
    """A run on screen. The worker replaces `trace` after each step, so leaving the page loses nothing.

    Attributes:
        trace: everything decoded so far.
        source: `decoded` in this session, `opened` from a file, `recorded` (shipped), or `forked` on What if.
        session: can decode further; None for runs that cannot.
        key: identifies the run to the scope component. id: names it in addresses; whoever knows it may see the run.
        asked: the request it was decoded from, None where unknown.
        origin: a sentence on its origin, empty where the page already says it.
        branches: its forks and the run they come from, by their numbers on What if.
        on_disk: whether it may be kept once no session shows it. unkept: why it is not on the disk, empty if it is.
    """

    trace: RunTrace
    source: Literal["decoded", "opened", "recorded", "forked"] = "decoded"
    session: "DecodeSession | None" = None
    key: str = field(default_factory=lambda: uuid.uuid4().hex[:8])
    id: str = field(default_factory=lambda: secrets.token_urlsafe(16))
    asked: "RunRequest | None" = None
    origin: str = ""
    branches: dict[int, Any] = field(default_factory=dict)
    on_disk: bool = True
    unkept: str = ""

    @property
    def has_models(self) -> bool:
        """Whether the pair that decoded it is still in memory."""
        return self.session is not None and not self.session.pair.target.released

    @property
    def has_logits(self) -> bool:
        """Whether raw logits of the target were stored."""
        return any(each.target_logits is not None for each in self.trace.iterations)

    @property
    def can_continue(self) -> bool:
        """Whether one more iteration can be decoded."""
        return self.has_models and not self.session.finished


@dataclass(frozen=True)
class ViewRequest:
    """Where the scope should go; a serial that it has already seen is ignored."""

    serial: int
    iteration: int | None = None
    node: int | None = None
    phase: str | None = None


@dataclass(frozen=True)
class PromptChoice:
    """A chosen prompt: its name, its text, and whether the chat template is applied."""

    name: str
    text: str
    chat: bool = False


@dataclass(frozen=True)
class RunRequest:
    """The request of a run: with the same pair it reproduces the same run."""

    prompt: PromptChoice
    method: "Method"
    sampling: "Sampling"
    max_new_tokens: int


def encode_prompt(pair: "Pair", prompt: PromptChoice) -> list[int]:
    """Token ids of a prompt; raises `PromptError` where there is no text."""
    if not prompt.text.strip():
        raise PromptError("The prompt is empty: type some text or pick a sample prompt.")
    if prompt.chat and pair.vocabulary.chat:
        return pair.vocabulary.encode_chat(prompt.text)
    return pair.vocabulary.encode(prompt.text)


def decode_asked(asked: RunRequest, iterations: int | None, job: "ModelTask") -> Run:
    """A new run, decoded up to an iteration (None: to the end) with the pair in memory; call it in the worker.

    Raises `DraftscopeError` where prompt, method and length do not fit the pair or each other.
    """
    pair = loaded_pair(job)
    prompt_ids = encode_prompt(pair, asked.prompt)
    run = decode_ids(pair, prompt_ids, asked.method, asked.sampling, asked.max_new_tokens, iterations, job)
    run.asked = asked
    return run


def decode_ids(
    pair: "Pair", prompt_ids: Sequence[int], method: "Method", sampling: "Sampling", max_new_tokens: int,
    iterations: int | None, job: "ModelTask",
) -> Run:  # fmt: skip
    """A new run of a prompt with all logits, decoded up to an iteration (None: to the end); call it in the worker."""
    from decoding.session.session import DecodeSession, Limits

    limits = Limits(max_new_tokens, rows="full", row_bytes=ROW_BYTES)
    session = DecodeSession(pair, method, list(prompt_ids), sampling, limits)
    run = Run(session.trace(), session=session)
    decode_more(run, iterations, job)
    return run


def decode_more(run: Run, iterations: int | None, job: "ModelTask") -> int:
    """Decode up to `iterations` more (None: to the end); returns how many. Call it in the worker."""
    session, count = run.session, 0
    limit = session.limits.max_new_tokens
    try:
        while not session.finished and (iterations is None or count < iterations) and job.go_on():
            session.step()
            run.trace = session.trace()
            count += 1
            job.report(session.new_tokens, limit, f"{session.new_tokens} of at most {limit} tokens")
        if count > 1 and not session.finished:  # else it has done so, and a single step must not wait
            session.doubt_costs()
    finally:
        store().changed(run)
    return count


def pair_of(run: Run, load: bool = False) -> "Pair | None":
    """The run's own pair: its session's, or the one in memory; None if neither is.

    With `load`, the pair chosen in the toolbar is loaded if none is in memory; then call it in the worker.
    """
    if run.has_models:
        return run.session.pair
    models = manager()
    pair = models.pair() if models.loaded or load else None
    return pair if pair is not None and pair.info.name == run.trace.pair.name else None


def own_pair(trace: RunTrace, job: "ModelTask", instead: str = "start a new run in Step through") -> "Pair":
    """The pair in memory, loaded where there is none, if it decoded a run; call it in the worker.

    Args:
        instead: what else one may do where it did not.

    Raises:
        DraftscopeError: it is another.
    """
    pair = loaded_pair(job)
    require(
        pair.info.name == trace.pair.name,
        f"This run was decoded by {trace.pair.name}, but the pair in memory is {pair.info.name}: load that pair with "
        f"the button at the top right, or {instead}.",
    )
    return pair


def keep_parameter(name: str, value: str | None) -> None:
    """Keep a value in the address of the page; without one the address does not have it."""
    if not value:
        st.query_params.pop(name, None)
    elif st.query_params.get(name) != value:
        st.query_params[name] = value


def current_run() -> Run | None:
    """The run on screen in this browser session."""
    return st.session_state.get("run")


ON_DISK = "runs_on_disk"


def trace_at(run: Run, index: int) -> RunTrace:
    """The trace with the method and sampling of one iteration: before a fork they may differ.

    A run without a session has one method and sampling for all iterations; exceptions are detected later.
    """
    if run.session is None:
        return run.trace
    from decoding.replay.stored_state import as_made  # brings torch

    return as_made(run.trace, run.session.standing(index))


def keep_run(run: Run, iteration: int = 0) -> None:
    """Put a run on screen in place of the current one; one of the user's own is found by its id from now on."""
    if run.source != "recorded":
        if store().find(run.id) is None:
            run.on_disk = st.session_state.get(ON_DISK, True)
        st.session_state.setdefault(ON_DISK, run.on_disk)  # a reloaded page goes on as the one before
        store().put(run)
    st.session_state["run"] = run
    st.session_state["iteration"] = iteration
    st.session_state["node"] = None


def known_run(run_id: str) -> Run | None:
    """The run of an id, in memory or else from its file; None where it is not known here.

    Raises `TraceFileError` where its file is damaged.
    """
    run = store().find(run_id)
    if run is None and (found := store().read(run_id)) is not None:
        trace, notes = found
        run = Run(trace, notes.source, id=run_id, asked=_asked_again(trace, notes), origin=notes.origin)
        store().put(run, written=True)
    return run


def _asked_again(trace: RunTrace, notes: RunNotes) -> RunRequest | None:
    """The request of a run as its file has it, None where this program cannot make it."""
    if notes.prompt is None or trace.method not in decoding.METHODS or not torch_there():
        return None
    from decoding.replay.stored_state import sampling_of

    try:
        method = decoding.METHODS[trace.method].with_settings(**notes.settings)
    except (SettingsError, TypeError):  # written by another version
        return None
    return RunRequest(PromptChoice(*notes.prompt), method, sampling_of(trace), trace.max_new_tokens)


ROUNDED = (
    "Recorded with the full logits of both models. They were rounded as they left the models, to be stored small; "
    "without rounding the models draft and accept the same."
)


def open_with_logits() -> None:
    """Put the recorded run with all logits on screen where nobody chose a run; the one of Home has none."""
    run = current_run()
    shown = run is not None and (run.source != "recorded" or run.trace is not home_run())
    if not shown or not run.trace.iterations:
        recorded = logits_run()
        keep_run(Run(recorded, "recorded", origin=ROUNDED), telling_iteration(recorded))


def selected_iteration() -> int:
    """Index of the selected iteration of the run on screen."""
    run = current_run()
    last = len(run.trace.iterations) - 1 if run else 0
    return max(0, min(int(st.session_state.get("iteration", 0)), last))


def select_iteration(index: int) -> None:
    """Select another iteration and clear the node, which belonged to the old one."""
    if index != st.session_state.get("iteration"):
        st.session_state["node"] = None
    st.session_state["iteration"] = index


def selected_node() -> int | None:
    """Id of the selected node, None where the page chooses."""
    return st.session_state.get("node")


def ask_view(iteration: int | None = None, node: int | None = None, phase: str | None = None) -> None:
    """Move the scope to an iteration, a node and a phase, once: afterwards the browser moves by itself."""
    serial = asked_view().serial + 1
    st.session_state["asked_view"] = ViewRequest(serial, iteration, node, phase)
    if iteration is not None:
        st.session_state["iteration"] = iteration
    if node is not None or iteration is not None:
        st.session_state["node"] = node


def asked_view() -> ViewRequest:
    """The last requested view."""
    return st.session_state.get("asked_view", ViewRequest(0))


MOST_KEPT = 500


def kept(key: tuple, compute: Callable[[], Any]) -> Any:
    """The result cached under a key in this browser session; the oldest results are dropped."""
    results = known_results()
    if key not in results:
        _keep(key, compute())
    return results[key]


def keep_result(slot: str) -> None:
    """Cache what the slot's job has found, a key and a result."""
    found = take_result(slot)
    if found is not None:
        _keep(*found)


def _keep(key: tuple, value: Any) -> None:
    results = known_results()
    results[key] = value
    while len(results) > MOST_KEPT:
        results.pop(next(iter(results)))


def known_results() -> dict:
    """Results by key."""
    return st.session_state.setdefault("results", {})


ASIDE = "run_set_aside"


def set_aside(run: Run | None, iteration: int) -> None:
    """Set aside a run of the user's own; recorded ones can be opened again at any time."""
    if run is not None and run.source != "recorded":
        st.session_state[ASIDE] = (run, iteration)


def draw_set_aside() -> None:
    """Names the run set aside, with a button that puts it back; nothing without one."""
    aside = st.session_state.get(ASIDE)
    if aside is None or aside[0] is current_run():
        return
    run, iteration = aside

    def put_back() -> None:
        keep_run(run, iteration)
        ask_view(iteration)
        st.session_state[ASIDE] = None

    with st.container(horizontal=True, vertical_alignment="center", gap="small"):
        tokens = plural(run.trace.totals.new_tokens, "token")
        st.markdown(escape_markdown(f"Your run was set aside: {run.trace.label}, {tokens}."), width="content")
        st.button("Put it back on screen", key="put_back", on_click=put_back, icon=":material/undo:")

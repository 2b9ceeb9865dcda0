"""Pages of long-running jobs: a list on the left; on the right the selected job, or the form for a new one.

Both refresh by a timer. The browser loses the page if the timer of one fragment fires while another has requested a
rerun of the page ("Cannot set a node at a delta path"): where the view has its own timer, the list never requests one.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import streamlit as st

from decoding.common.errors import DraftscopeError
from decoding.common.formats import about, byte_size, long_duration, plural
from decoding.jobs.job import Job, JobState, JobWatcher
from pages.ui.common.errors import escape_markdown, on_page, show_error, torch_there, why_not
from pages.ui.common.state import keep_parameter

STYLE = Path(__file__).with_name("page.css")
STATE_ICONS = {
    "starting": ":material/hourglass_top:",
    "preparing": ":material/hourglass_top:",
    "running": ":material/play_circle:",
    "finished": ":material/check_circle:",
    "stopped": ":material/pause_circle:",
    "failed": ":material/error:",
    "kept": ":material/inventory_2:",
}
SILENT_S = 120.0  # a job silent for longer gets a note
LIST_S, VIEW_S = 3.0, 2.0  # refresh interval of the list, and of the selected job while it runs
MOST_LISTED = 12
FORM = "new"
LIVE_HELP = "Off: this view stops updating, so that you can read and point at charts undisturbed."
F = TypeVar("F", bound=JobWatcher)


@dataclass(frozen=True)
class JobPage:
    """Texts of a page about its jobs.

    Attributes:
        name: in the keys of its widgets. noun: for one of its jobs. address: query parameter of the selected job.
        none_yet: shown where there are no jobs.
        stop, resume, delete: help texts of these buttons.
    """

    name: str
    noun: str
    address: str
    none_yet: str
    stop: str
    resume: str
    delete: str

    def look_at(self, key: str | None) -> None:
        """Select a job, by its key, or the form for a new one; None selects a default."""
        st.session_state[f"{self.name}_chosen"] = key
        st.session_state[f"{self.name}_sure"] = st.session_state[f"{self.name}_missing"] = None
        if key is None:
            keep_parameter(self.address, None)

    def looked_at(self, found: Sequence[F]) -> F | None:
        """The selected job; None where the form is shown.

        At first the one that the address names, else the newest running one, else the newest.
        """
        chosen = st.session_state.get(f"{self.name}_chosen") or st.query_params.get(self.address)
        by_key = {followed.key: followed for followed in found}
        if chosen is None and found:
            chosen = next((each for each in found if each.stand.running), found[0]).key
        if chosen not in by_key:
            if chosen not in (None, FORM):
                st.session_state[f"{self.name}_missing"] = chosen
            chosen = FORM
        st.session_state[f"{self.name}_chosen"] = chosen
        keep_parameter(self.address, chosen)
        return by_key.get(chosen)

    def followed(self, jobs: Sequence[Job], follow: Callable[[Job], F]) -> list[F]:
        """The current state of jobs; only changes are read."""
        known: dict[Path, F] = st.session_state.setdefault(f"{self.name}_followed", {})
        for path in set(known) - {job.path for job in jobs}:
            del known[path]
        found = [known.get(job.path) or known.setdefault(job.path, follow(job)) for job in jobs]
        for each in found:
            each.look()
        return found

    def watch(
        self,
        look: Callable[[], Sequence[F]],
        tell: Callable[[F], Sequence[str]],
        draw_form: Callable[[Sequence[F]], None],
        draw_one: Callable[[F], None],
    ) -> None:
        """Draw list and view, or the form that starts a new job.

        Args:
            look: returns all jobs in their current state. tell: texts on one in the list, next to its state.
        """
        st.html(STYLE)

        def keep_list(seen: F | None, at_work: bool, clocked: bool) -> None:
            """The list; reruns the page when the selected job has begun or ended and its view has no timer."""
            found = look()
            if seen is not None and not clocked and seen.stand.running != at_work:
                st.rerun(scope="app")
            self._draw_list(found, tell)

        def keep_view(seen: F, at_work: bool, live: bool) -> None:
            """The selected job; reruns the page when someone started it or paused its view."""
            seen.look()
            if (seen.stand.running and not at_work) or st.session_state.get(live_key, True) != live:
                st.rerun(scope="app")
            draw_one(seen)

        found, live_key = look(), f"{self.name}_live"
        seen, live = self.looked_at(found), st.session_state.get(live_key, True)
        at_work = seen is not None and seen.stand.running
        left, right = st.columns([1, 3.8], gap="medium")
        with left.container(key=f"{self.name}_list"):
            st.fragment(keep_list, run_every=LIST_S)(seen, at_work, at_work and live)
        with right:
            if seen is None:
                if missing := st.session_state.get(f"{self.name}_missing"):
                    st.error(
                        f"There is no {self.noun} “{escape_markdown(missing)}” here: choose one from the list, or "
                        "start a new one.", icon=":material/link_off:",
                    )  # fmt: skip
                draw_form(found)
            else:
                st.fragment(keep_view, run_every=VIEW_S if at_work and live else None)(seen, at_work, live)

    def _draw_list(self, found: Sequence[F], tell: Callable[[F], Sequence[str]]) -> None:
        """A button per job with its name and state; below it, progress and notes."""
        name = self.name
        if st.button(
            f"New {self.noun}", key=f"{name}_new", width="stretch", icon=":material/add:",
            on_click=self.look_at, args=(FORM,),
        ):  # fmt: skip
            st.rerun()
        if not found:
            st.caption(self.none_yet)
        for followed in found[:MOST_LISTED] if not st.session_state.get(f"{name}_all") else found:
            key, stand = followed.key, followed.stand
            state_words = ["shipped with Draftscope"] if followed.shipped else []
            state_words += [] if stand.state == "kept" else [stand.state]
            if stand.running and stand.status.share is not None:
                state_words[-1] += f" {stand.status.share:.0%}"
            past_s = max(time.time() - followed.started_s, 0.0)
            if stand.running:
                state_words.append(_left_words(followed))
            elif followed.started_s:
                state_words.append("just now" if past_s < 60 else f"{long_duration(past_s)} ago")
            with st.container(key=f"{name}_entry_{key.replace('/', '_')}", gap=None):
                if st.button(
                    escape_markdown(followed.name), key=f"{name}_see_{key}", width="stretch",
                    icon=STATE_ICONS[stand.state], on_click=self.look_at, args=(key,),
                    type="secondary" if key == st.session_state.get(f"{name}_chosen") else "tertiary",
                    help=escape_markdown(str(followed.folder)),
                ):  # fmt: skip
                    st.rerun()
                st.caption(escape_markdown(" · ".join(filter(None, [*state_words, *tell(followed)])) or "results only"))
        if len(found) > MOST_LISTED:
            st.toggle(f"All {len(found)}", key=f"{name}_all", persist_state="session")

    def draw_header(self, followed: JobWatcher, use: Callable[[], None] | None = None) -> None:
        """Name and state, its buttons, progress, and why it failed or stopped.

        Args:
            use: draws the button that uses its result.
        """
        stand, name = followed.stand, self.name
        with st.container(key=f"{name}_header", horizontal=True, vertical_alignment="center", gap="small"):
            with st.container(key=f"{name}_title", width="content"):
                state = "" if stand.state == "kept" else f" · {stand.state}"
                st.markdown(f"{STATE_ICONS[stand.state]} **{escape_markdown(followed.name)}**{state}", width="content")
            st.space("stretch")
            if stand.running:
                st.toggle("Live", True, key=f"{name}_live", persist_state="session", help=LIVE_HELP)
                stop_buttons(name, followed, self.stop)
            elif followed.resumable:
                st.button(
                    "Resume", key=f"{name}_resume", type="primary", disabled=not torch_there(), width="content",
                    icon=":material/play_arrow:", on_click=attempt, args=(name, followed.job.resume),
                    help=why_not(self.resume),
                )  # fmt: skip
            elif use is not None:
                use()
            with st.popover("Output", key=f"{name}_output", icon=":material/terminal:", on_change="rerun") as place:
                if place.open:
                    with st.container(width=640):
                        command = " ".join(["python", *followed.command]) if followed.command else ""
                        for title, words in (("Folder", str(followed.folder)), ("Command", command)):
                            if words:
                                st.markdown(f"**{title}**")
                                st.code(words, language=None, wrap_lines=True)
                        st.markdown("**Last output**")
                        st.code(followed.job.output() or "Nothing.", language=None, wrap_lines=True, height=260)
            if not stand.running and not followed.shipped:
                self._draw_delete(followed)
        if stand.running or stand.state in ("stopped", "failed"):
            draw_progress(followed)
        draw_end(name, stand)

    def _draw_delete(self, followed: JobWatcher) -> None:
        """Asks for confirmation: hours of work cannot be recovered."""
        sure = f"{self.name}_sure"

        def delete() -> None:
            attempt(self.name, followed.job.delete)
            st.session_state[sure] = None
            if not followed.folder.exists():
                self.look_at(None)

        def ask(key: str | None) -> None:
            st.session_state[sure] = key

        if st.session_state.get(sure) != followed.key:
            st.button("Delete", key=f"{self.name}_delete", icon=":material/delete:", on_click=ask, args=(followed.key,))
            return
        st.button("Keep it", key=f"{self.name}_keep", on_click=ask, args=(None,))
        if st.button(
            "Delete for good", key=f"{self.name}_delete_sure", type="primary", icon=":material/delete_forever:",
            on_click=delete, help=self.delete,
        ):  # fmt: skip
            st.rerun()

    def tell_others(self, found: Sequence[JobWatcher], consequence: str) -> None:
        """A warning before another job starts next to running ones; `consequence` says what will happen."""
        running = [followed.name for followed in found if followed.stand.running]
        if running:
            said = f"{plural(len(running), self.noun)} running on this machine ({'; '.join(running)}). {consequence}"
            st.warning(escape_markdown(said), icon=":material/group_work:")


def _left_words(followed: JobWatcher) -> str:
    """Time left as text, empty while unknown."""
    if followed.left_s is None:
        return ""
    return f"{about(followed.left_s)} left{' of this phase' if followed.stand.state == 'preparing' else ''}"


def progress_words(followed: JobWatcher) -> str:
    """Progress, time left, phase and resources in one line."""
    status, state = followed.stand.status, followed.stand.state
    if state == "starting":
        return "Starting its process: loading torch and the models takes a few seconds"
    unit = f" {followed.job.UNIT}" if state != "preparing" else ""
    parts = [f"{status.done:,} of {status.total:,}{unit}" if status.total else f"{status.done:,}{unit}"]
    if not (status.done or status.total):
        parts = []
    if status.failed:
        parts.append(f"{status.failed:,} failed")
    if status.planned_s:
        parts.append(f"{status.trained_s / 60:.1f} of {status.planned_s / 60:.3g} min")
    parts += [_left_words(followed), status.phase, status.device]
    if status.memory_bytes:
        parts.append(f"{byte_size(status.memory_bytes)} of memory")
    silent_s = time.time() - status.written if status.written else 0.0
    if status.running and silent_s > SILENT_S:
        parts.append(f"no progress reported for {long_duration(silent_s)}")
    return " · ".join(filter(None, parts)) or "Nothing done yet"


def draw_progress(followed: JobWatcher, words: str = "") -> None:
    """A bar with text, by default its progress."""
    st.progress(followed.stand.status.share or 0.0, text=escape_markdown(words or progress_words(followed)))


def stop_buttons(name: str, followed: JobWatcher, help_text: str) -> None:
    """Buttons that stop a running job: first a request, then at once.

    Args:
        name: of the page, in the keys of its widgets. help_text: what stopping does.
    """
    job = followed.job
    if job.stop_asked:
        st.button(
            "End it now", key=f"{name}_end", icon=":material/power_settings_new:", on_click=attempt,
            args=(name, job.end), width="content", help="Ends its process without waiting; unsaved work is lost.",
        )  # fmt: skip
    st.button(
        "Stopping" if job.stop_asked else f"Stop {job.NOUN}", key=f"{name}_stop", disabled=job.stop_asked,
        icon=":material/stop_circle:", on_click=attempt, args=(name, job.ask_to_stop), width="content", help=help_text,
    )  # fmt: skip


def attempt(name: str, act: Callable, *arguments) -> None:
    """Run the action of a button; its error is stored for `draw_end`."""
    try:
        act(*arguments)
    except DraftscopeError as error:
        st.session_state[f"{name}_error"] = error


def draw_end(name: str, stand: JobState) -> None:
    """Show the error of a button, and why a job failed or stopped."""
    if error := st.session_state.pop(f"{name}_error", None):
        show_error(error)
    message = escape_markdown(on_page(stand.message))
    if stand.state == "failed":
        st.error(message, icon=":material/error:")
    elif stand.state == "stopped" and message:
        st.info(message, icon=":material/pause_circle:")

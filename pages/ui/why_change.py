"""The smallest change of one setting that would have kept a token: a button that looks for it, and what it found."""

import html
from typing import TYPE_CHECKING

import streamlit as st

from decoding.trace import IterationTrace, Setting
from pages.ui.controls import set_method
from pages.ui.errors import escape_markdown
from pages.ui.setting_info import info_of
from pages.ui.setting_widgets import SAMPLING, setting_words
from pages.ui.state import Run
from pages.ui.tune_controls import FROM_RUN
from pages.ui.tune_controls import KEY as TUNE
from pages.ui.why_state import NO_TORCH, Subject, keep, known_results, pair_of, torch_missing
from pages.ui.worker import Job, is_busy, job_error, job_progress, start_job, take_result
from viz.phases import FINAL_ID
from viz.tokens import plural

if TYPE_CHECKING:
    from decoding.smallest_change import SettingChange, SmallestChanges

SLOT = "why_change"
TRIED = 3
ASKED = {"replayed": "replayed from stored rows", "live": "the draft was run again"}


def draw_change(run: Run, iteration: IterationTrace, subject: Subject) -> None:
    """The button and the answer for a token that was not verified; for others, what decided instead."""
    result = take_result(SLOT)
    if result is not None:
        keep(*result)
    if not asks_for_change(iteration, subject):
        st.caption(_decided_elsewhere(subject))
        return
    key = ("change", run.key, subject.index, path_to(iteration, subject))
    found = known_results().get(key)
    if found is not None:
        show_changes(run, iteration, subject, found)
        return
    if torch_missing():
        st.caption(NO_TORCH)
        return
    if st.button(
        "Which setting would have kept it?", key="why_change", disabled=is_busy(SLOT), icon=":material/tune:",
        help="Varies every setting of the drafter by itself and drafts this tree again with each value",
    ):  # fmt: skip
        start_job(SLOT, "Trying settings", lambda job: find(run, subject.index, key, job))
        st.rerun(scope="app")
    job_progress(SLOT)
    job_error(SLOT)


def asks_for_change(iteration: IterationTrace, subject: Subject) -> bool:
    """Whether a setting of the drafter can have kept a token out of the verified tree."""
    if not iteration.drafted or subject.parent < 0:
        return False
    if subject.in_tree:
        return iteration.nodes[subject.node].flat_index is None
    here = {node.token_id for node in iteration.nodes if node.parent_id == subject.parent}
    return subject.token_id not in here


def _decided_elsewhere(subject: Subject) -> str:
    if subject.node == FINAL_ID:
        return "A node has this token too: the verifier decided here, no setting of the tree."
    if subject.parent < 0:
        return "The root is the last committed token: it is always there."
    if subject.in_tree:
        return (
            "It was in the verified tree, so the verifier decided, not the tree's settings: *Verifiers* shows what "
            "every other one does with it, *What if* goes on from here another way."
        )
    return "Nothing was drafted in this iteration."


def path_to(iteration: IterationTrace, subject: Subject) -> tuple[int, ...]:
    """Token ids from the root, left out, down to the token."""
    above = tuple(iteration.nodes[node].token_id for node in iteration.path(subject.parent)[1:])
    return (*above, subject.token_id)


def find(run: Run, index: int, key: tuple, job: Job) -> "tuple[tuple, SmallestChanges]":
    """Look for the changes; for the worker.

    Raises:
        DraftscopeError: rows are missing and the run's pair is not in memory.
    """
    from decoding.smallest_change import change_search, smallest_changes

    def proceed(done: int, total: int) -> bool:
        job.report(done, total, f"setting {done} of {total}")
        return not job.cancelled

    rows = run.trace.iterations[index].draft_logits is not None
    job.report(0, 0, "" if rows else "loading the models, a few seconds")
    pair = pair_of(run, load=not rows)
    return key, smallest_changes(change_search(run.trace, index, pair), key[-1], proceed)


def show_changes(run: Run, iteration: IterationTrace, subject: Subject, found: "SmallestChanges") -> None:
    """What was found: smallest change first, each with what the tree becomes, and a way to try it."""
    if not found.changes:
        st.markdown("**No single setting keeps it.**")
    else:
        st.markdown("**Smallest changes that keep it**", help=_searched(found))
    for place, change in enumerate(found.changes[:TRIED]):
        left, right = st.columns([3.4, 1], vertical_alignment="center")
        left.html(f'<div class="why">{change_html(found, change)}</div>')
        if right.button(
            "Try it", key=f"why_try_{place}", icon=":material/arrow_forward:", width="stretch",
            help="Puts it into Tune live, beside the tree as it was",
            on_click=try_change, args=(run, iteration, change),
        ):  # fmt: skip
            st.switch_page("pages/tune_live.py", query_params={})
    st.caption(escape_markdown(_rest_words(found)))


def change_html(found: "SmallestChanges", change: "SettingChange") -> str:
    """One change and what it costs."""
    info = info_of(change.setting, change.before)
    size = "" if isinstance(change.before, bool) else f" ({change.size:.0%})"
    nodes = f"{plural(change.verified, 'node')} verified instead of {found.verified:,}"
    if change.drafted != found.drafted:
        nodes += f", {change.drafted:,} drafted instead of {found.drafted:,}"
    told = f"{nodes} · {ASKED[change.asked]}" + ("" if change.sure else " · a nearer value could not be tried")
    arrow = f"{value_words(change.before)} → <b>{value_words(change.after)}</b>{size}"
    return f'<div><b>{html.escape(info.title)}</b> {arrow}<br><span class="quiet">{told}</span></div>'


def value_words(value: Setting) -> str:
    """A value of a setting."""
    return html.escape(setting_words(value))


def _searched(found: "SmallestChanges") -> str:
    return (
        f"{plural(found.trees, 'tree')} drafted again, one setting varied at a time from the values in force; the size "
        "is the change as a share of the value before. Draws stay those of the run."
    )


def _rest_words(found: "SmallestChanges") -> str:
    """What was tried in vain, and what could not be tried."""
    parts = []
    more = [_label(change.setting, change.before) for change in found.changes[TRIED:]]
    if more:
        parts.append(f"Also: {'; '.join(more)}.")
    if found.without:
        parts.append(f"At no value: {'; '.join(_label(name) for name in found.without)}.")
    if found.unknown:
        parts.append(
            f"Not every value could be tried: {'; '.join(_label(name) for name in found.unknown)}. Only the models "
            "know the rows that other trees need: load the run's pair."
        )
    if not found.changes:
        parts.append(f"{plural(found.trees, 'tree')} drafted again, one setting varied at a time.")
    if not found.finished:
        parts.append("The search was ended early.")
    return " ".join(parts)


def _label(name: str, before: Setting = 0) -> str:
    return info_of(name, before).label


def try_change(run: Run, iteration: IterationTrace, change: "SettingChange") -> None:
    """Put the change into Tune live, on this prefix and at the run's sampling, beside the tree as it was.

    In a callback: the sampling's widgets are on this page too, and are only drawn afterwards.
    """
    from decoding.stored_state import method_of

    method = method_of(run.trace)
    own = method.drafter.settings()
    in_force = {name: value for name, value in iteration.settings.items() if name in own}
    method = method.with_settings(**in_force)
    set_method(TUNE, method.with_settings(**{change.setting: change.after}))
    st.session_state["tune_pinned"] = method
    for name in SAMPLING:
        st.session_state[f"sampling_{name}"] = getattr(run.trace.sampling, name)
    st.session_state["tune_source"] = FROM_RUN
    st.session_state["tune_position"] = iteration.prefix_length - len(run.trace.prompt_ids)

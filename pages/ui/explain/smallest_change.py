"""The smallest change of one setting that would have kept a token: a button that looks for it, and what it found."""

import html
from collections.abc import Iterable
from dataclasses import replace
from typing import TYPE_CHECKING

import streamlit as st

from decoding.common.errors import NEEDS_TORCH
from decoding.trace.records import IterationTrace, Setting, node_paths
from pages.ui.common.errors import escape_markdown
from pages.ui.common.sentences import info_of
from pages.ui.common.state import Run
from pages.ui.common.torch_there import torch_there
from pages.ui.common.worker import Job, is_busy, job_error, job_progress, start_job, take_result
from pages.ui.explain.subject import Subject, has_pair, keep, known_results, pair_of, trace_at
from pages.ui.tune.controls import FROM_RUN
from pages.ui.tune.controls import KEY as TUNE
from pages.ui.widgets.controls import set_method
from pages.ui.widgets.settings import SAMPLING, setting_words
from viz.formats import plural
from viz.scope.phases import FINAL_ID

if TYPE_CHECKING:
    from decoding.analysis.smallest_change import SettingChange, SmallestChanges

SLOT = "why_change"
TRIED = 3
ASKED = {"replayed": "replayed from stored rows", "live": "the draft was run again"}


def draw_change(run: Run, iteration: IterationTrace, subject: Subject) -> None:
    """The button and the answer for a token that was not verified; for others, what decided instead."""
    result = take_result(SLOT)
    if result is not None:
        keep(*result)
    if not asks_for_change(iteration, subject):
        st.caption(_decided_elsewhere(iteration, subject))
        return
    path = path_to(iteration, subject)
    found = known_results().get(key_of(run, subject.index, path))
    if found is not None:
        show_changes(run, iteration, found)
        if not found.untried:
            return
    if not torch_there():
        st.caption(escape_markdown(f"Which setting would have kept it? {NEEDS_TORCH}"))
        return
    if st.button(
        "Search again" if found else "Which setting would have kept it?", key="why_change", disabled=is_busy(SLOT),
        icon=":material/tune:",
        help="Varies every setting of the drafter by itself and drafts this tree again with each value",
    ):  # fmt: skip
        start_job(SLOT, "Trying settings", lambda job: find(run, subject.index, path, job))
        st.rerun(scope="app")
    job_progress(SLOT)
    job_error(SLOT)


def asks_for_change(iteration: IterationTrace, subject: Subject) -> bool:
    """Whether a setting of the drafter can have kept a token out of the verified tree."""
    if not iteration.drafted or subject.parent < 0:
        return False
    if subject.in_tree:
        return iteration.nodes[subject.node].flat_index is None
    verified = (node for node in iteration.nodes if node.parent_id == subject.parent and node.flat_index is not None)
    return all(node.token_id != subject.token_id for node in verified)


def key_of(run: Run, index: int, path: tuple[int, ...]) -> tuple:
    """What an answer is kept under: with the run's pair in memory more can be tried."""
    return ("change", run.key, index, path, has_pair(run))


def _decided_elsewhere(iteration: IterationTrace, subject: Subject) -> str:
    if not iteration.drafted:
        return "Nothing was drafted in this iteration."
    if subject.node == FINAL_ID:
        return "A node has this token too: the verifier decided here, no setting of the tree."
    if subject.parent < 0:
        return "The root is the last committed token: it is always there."
    return (
        "It was in the verified tree, so the verifier decided, not the tree's settings: *Verifiers* shows what "
        "every other one does with it, *What if* goes on from here another way."
    )


def path_to(iteration: IterationTrace, subject: Subject) -> tuple[int, ...]:
    """Token ids from the root, left out, down to the token."""
    return (*node_paths(iteration)[subject.parent], subject.token_id)


def find(run: Run, index: int, path: tuple[int, ...], job: Job) -> "tuple[tuple, SmallestChanges]":
    """Look for the changes; for the worker.

    Raises:
        DraftscopeError: rows are missing and the run's pair is not in memory, or another method made the tree.
    """
    from decoding.analysis.smallest_change import change_search, smallest_changes

    def proceed(done: int, total: int) -> bool:
        job.report(done, total, f"setting {done} of {total}")
        return job.go_on()

    rows = run.trace.iterations[index].draft_logits is not None
    job.report(0, 0, "" if rows else "loading the models, a few seconds")
    pair = pair_of(run, load=not rows)
    found = smallest_changes(change_search(trace_at(run, index), index, pair), path, proceed)
    return key_of(run, index, path), found


def show_changes(run: Run, iteration: IterationTrace, found: "SmallestChanges") -> None:
    """What was found: smallest change first, each with what the tree becomes, and a way to try it."""
    if not found.changes:
        whole = not (found.unknown or found.too_large or found.untried)
        st.markdown(f"**No {'single setting' if whole else 'setting tried'} keeps it.**")
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
    info = info_of(change.setting)
    size = f" ({change.size:.0%})" if change.before and not isinstance(change.before, bool) else ""
    nodes = f"{plural(change.verified, 'node')} verified instead of {found.verified:,}"
    if change.drafted != found.drafted:
        nodes += f", {change.drafted:,} drafted instead of {found.drafted:,}"
    told = f"{nodes} · {ASKED[change.asked]}" + ("" if change.sure else " · a nearer value could not be tried")
    before, after = (value_words(change.setting, value) for value in (change.before, change.after))
    arrow = f"{before} → <b>{after}</b>{size}"
    return f'<div><b>{html.escape(info.title)}</b> {arrow}<br><span class="quiet">{told}</span></div>'


def value_words(name: str, value: Setting) -> str:
    """A value of a setting."""
    return "no limit" if name == "children" and not value else html.escape(setting_words(value))


def _searched(found: "SmallestChanges") -> str:
    return (
        f"{plural(found.trees, 'tree')} drafted again, one setting varied at a time from the values in force; ordered "
        "by the change as a share of the value before, from 0 as a share of the whole range. Draws stay the run's."
    )


def _rest_words(found: "SmallestChanges") -> str:
    """What was tried in vain, and what could not be tried."""
    parts = []
    if found.changes[TRIED:]:
        parts.append(f"Also: {_labels(change.setting for change in found.changes[TRIED:])}.")
    if found.without:
        parts.append(f"At no value: {_labels(found.without)}.")
    if found.unknown:
        parts.append(
            f"Not every value could be tried: {_labels(found.unknown)}. Only the models know the rows "
            "that other trees need: load the run's pair."
        )
    if found.too_large:
        parts.append(
            f"Not every value could be tried: {_labels(found.too_large)}. Their trees ask the draft "
            "about more nodes than one search has room for."
        )
    if not found.changes:
        parts.append(f"{plural(found.trees, 'tree')} drafted again, one setting varied at a time.")
    if found.untried:
        parts.append(f"Ended before its turn: {_labels(found.untried)}.")
    return " ".join(parts)


def _labels(names: Iterable[str]) -> str:
    return "; ".join(info_of(name).label for name in names)


def try_change(run: Run, iteration: IterationTrace, change: "SettingChange") -> None:
    """Put the change into Tune live, on this prefix and at the run's sampling, beside the tree as it was.

    In a callback: the sampling's widgets are on this page too, and are only drawn afterwards.
    """
    from decoding.replay.stored_state import method_of

    made = trace_at(run, iteration.index)
    method = method_of(made)
    method = replace(method, drafter=method.drafter.with_in_force(iteration.settings))
    set_method(TUNE, method.with_settings(**{change.setting: change.after}))
    st.session_state["tune_pinned"] = method
    for name in SAMPLING:
        st.session_state[f"sampling_{name}"] = getattr(made.sampling, name)
    st.session_state["tune_source"] = FROM_RUN
    st.session_state["tune_position"] = iteration.prefix_length - len(run.trace.prompt_ids)

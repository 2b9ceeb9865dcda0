"""Changes to begin with, where there is no branch yet: one click each, made for the iteration looked at."""

from dataclasses import dataclass, field

import streamlit as st

from decoding.trace.records import IterationTrace, Setting
from pages.ui.common.errors import escape_markdown, guarded
from pages.ui.common.worker import is_busy
from pages.ui.what_if.branches import SLOT, Edit, History, Wish
from pages.ui.what_if.change import path_of
from pages.ui.what_if.work import start_fork
from viz.formats import plural
from viz.tokens import visible


@dataclass(frozen=True)
class Starter:
    """A change that tells something about this iteration: settings or a forced node."""

    label: str
    settings: dict[str, Setting] = field(default_factory=dict)
    edits: tuple[Edit, ...] = ()


def starters(iteration: IterationTrace, settings: dict[str, Setting]) -> list[Starter]:
    """What is worth trying in an iteration: a smaller tree, the token that was missing, another verdict."""
    found = []
    if iteration.drafted >= 2 and "node_budget" in settings:
        half = iteration.drafted // 2
        found.append(Starter(f"Draft {plural(half, 'node')} at most, not {iteration.drafted}", {"node_budget": half}))
    missing = missing_token(iteration)
    if missing is not None:
        found.append(Starter(missing_words(iteration, missing), edits=(missing,)))
    rejected = next((node for node in iteration.nodes if node.verdict == "rejected"), None)
    if rejected is not None:
        edit = Edit("accept", path_of(iteration, rejected.node_id), rejected.text)
        found.append(Starter(f"Accept {_quoted(rejected.text)}, which was rejected", edits=(edit,)))
    return found


def missing_token(iteration: IterationTrace) -> Edit | None:
    """The token that the target had to add itself, as an edit that puts it into the tree; None if none was missing."""
    if iteration.final_kind not in ("recovered", "fallback") or not iteration.nodes:
        return None
    last = iteration.accepted[-1] if iteration.accepted else 0
    token = iteration.committed_ids[-1]
    siblings = (iteration.nodes[child] for child in iteration.children(last))
    if any(child.token_id == token and child.flat_index is not None for child in siblings):
        return None
    return Edit("force_in", (*path_of(iteration, last), token), iteration.committed_texts[-1])


def missing_words(iteration: IterationTrace, missing: Edit) -> str:
    """What putting a missing token in means: it may have been drafted and pruned."""
    drafted = any(path_of(iteration, node.node_id) == missing.path for node in iteration.nodes)
    if drafted:
        return f"Verify {_quoted(missing.text)}, which was drafted but pruned"
    return f"Put the missing token {_quoted(missing.text)} into the tree"


def draw_starters(history: History) -> None:
    """A button per change; pressed, it is forked at once."""
    iteration, run = history.iteration(history.a), history.base.run.trace
    offered = starters(iteration, dict(run.settings)) if iteration is not None else []
    for number, starter in enumerate(offered):
        st.button(
            escape_markdown(starter.label),
            key=f"what_if_starter_{number}",
            disabled=is_busy(SLOT),
            on_click=_press,
            args=(history, starter),
        )


def _press(history: History, starter: Starter) -> None:
    from decoding.replay.stored_state import method_of

    with guarded():
        method = method_of(history.base.run.trace).with_settings(**starter.settings) if starter.settings else None
        live = bool(st.session_state.get("what_if_live"))
        start_fork(history, Wish(history.base.number, history.index, method, None, starter.edits, live))


def _quoted(text: str) -> str:
    return f"‘{visible(text, 16)}’"

"""The changes on What if: iteration, method, settings, forced nodes; the Fork button; suggested changes."""

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

import streamlit as st

import decoding
from decoding.common.errors import SettingsError
from decoding.common.formats import number, plural
from decoding.recorded import logits_run
from decoding.trace.interventions import Interventions
from decoding.trace.records import IterationTrace, NodeTrace, Setting, node_paths
from pages.ui.common.errors import escape_markdown, guarded, info_of
from pages.ui.common.worker import is_busy
from pages.ui.what_if.branches import SLOT, Edit, Force, History, start_fork
from pages.ui.widgets.controls import (
    SAMPLING,
    as_widget_holds,
    chosen_verifier,
    method_picker,
    picked_sampling,
    picked_settings,
    sampling_controls,
    set_method,
    setting_words,
    settings_popover,
)
from pages.ui.widgets.trained import TRAINED
from viz.tokens import visible

if TYPE_CHECKING:
    from decoding.methods.method import Method
    from decoding.sampling.sampling import Sampling


METHOD, SAMPLED = "what_if_method", "what_if_sampling"
EDITOR, CHILD = "what_if_editor", "what_if_child_open"
MOST_CHILDREN = 24
HELP = (
    "Pick an iteration, change a setting or click a node in tree A and force it, then press **Fork**: "
    "branch B continues the same text with this change."
)


def draw_toolbar(history: History) -> None:
    """The iteration selected in both branches, the change in it, and the Fork button."""
    st.session_state["what_if_iteration"] = history.index + 1
    st.markdown("Iteration", width="content")
    st.number_input(
        "Iteration",
        1,
        history.last + 1,
        key="what_if_iteration",
        on_change=lambda: history.look_at(int(st.session_state["what_if_iteration"] or 1) - 1),
        label_visibility="collapsed",
        help="Shown in both branches; a fork diverges from its branch right before it.",
        width=124,
    )
    st.markdown(f"of {history.last + 1}", width="content")
    editor(history)
    node_buttons(history)
    st.space("stretch")
    fork_button(history)


def editor(history: History) -> None:
    """Method, settings and sampling of the next fork, behind a button that names the change."""
    words = editor_words(history)
    box = settings_popover(
        escape_markdown(words or "Method and settings"),
        EDITOR,
        ":material/tune:",
        type="primary" if words else "secondary",
        disabled=bool(history.unknown),
        help="Another method, other settings, verifier, temperature or seed from this iteration on",
    )
    if not box.open or history.unknown:
        return
    with box, st.container(key="settings_panel"):
        seed_editor(history)
        head = st.container()
        sampling = sampling_controls(SAMPLED, columns=2)
        method_picker(METHOD, sampling, head)
        with st.container(horizontal=True):
            st.button("As in A", key="what_if_as_a", on_click=lambda: reset_editor(history), icon=":material/undo:")


def seed_editor(history: History) -> None:
    """Put the settings of branch A into the widgets, once per branch."""
    if history.edited == history.base.number:
        return
    trace = history.base.run.trace
    for name in SAMPLING:
        st.session_state[f"{SAMPLED}_{name}"] = as_widget_holds(name, getattr(trace.sampling, name))
    set_method(METHOD, base_method(history))
    history.edited = history.base.number


def base_method(history: History) -> "Method":
    """The method of branch A."""
    from decoding.replay.stored_state import method_of

    return method_of(history.base.run.trace)


def reset_editor(history: History) -> None:
    """Undo every change of settings."""
    history.edited = None
    seed_editor(history)


def changed_settings(history: History) -> "tuple[Method | None, Sampling | None, str]":
    """Method and sampling of the widgets, each None where it is that of branch A, and any contradiction.

    Where a sampling widget is unchanged, the value of branch A counts, even outside the widget's range.
    """
    if history.edited != history.base.number:
        return None, None, ""
    from decoding.methods.methods import METHODS
    from decoding.replay.stored_state import sampling_of

    own, picked = sampling_of(history.base.run.trace), picked_sampling(SAMPLED)
    values = {name: getattr(picked, name) for name in SAMPLING}
    moved = {name: value for name, value in values.items() if value != as_widget_holds(name, getattr(own, name))}
    base, method = base_method(history), METHODS[st.session_state[METHOD]]
    try:
        sampling = replace(own, **moved)
        method = method.with_settings(verifier=chosen_verifier(method, METHOD, sampling))
        values = picked_settings(method, METHOD)
        method = method.with_settings(**{name: value for name, value in values.items() if name != "verifier"})
        method.check(sampling)
    except SettingsError as error:
        return None, None, str(error)
    same = method.name == base.name and method.settings() == base.settings()
    return None if same else method, None if sampling == own else sampling, ""


def editor_words(history: History) -> str:
    """The changes compared with branch A: `N_max 64 → 16 · seed 0 → 3`; empty without changes."""
    if history.unknown:
        return ""
    trace, parts = history.base.run.trace, []
    method, sampling, contradiction = changed_settings(history)
    if contradiction:
        return "Contradicting settings"
    if method is not None and method.name != trace.method:
        parts.append(decoding.method_label(method))
    elif method is not None:
        before = dict.fromkeys(TRAINED, "") | {"node_order": "breadth"} | trace.settings
        for name, value in method.all_settings().items():
            if name in before and before[name] != value:
                info = info_of(name)
                parts.append(f"{info.short} {setting_words(before[name], info)} → {setting_words(value, info)}")
    if sampling is not None:
        for name, (label, *_) in SAMPLING.items():
            old, new = getattr(trace.sampling, name), getattr(sampling, name)
            if old != new:
                parts.append(f"{label.lower()} {old:g} → {new:g}")
    return " · ".join(parts[:2]) + (f" · {len(parts) - 2} more" if len(parts) > 2 else "")


def fork_button(history: History) -> None:
    """The Fork button. A change of one's own replaces the proposed one."""
    method, sampling, contradiction = changed_settings(history)
    if history.example in history.interventions and (method or sampling or len(history.interventions) > 1):
        history.interventions = tuple(edit for edit in history.interventions if edit != history.example)
    refusal = history.unknown or contradiction
    empty = bool(refusal) or (method is None and sampling is None and not history.interventions)

    def press() -> None:  # before the page is drawn, so that a fast fork is drawn at once
        method, sampling, contradiction = changed_settings(history)
        if not contradiction:  # which is shown next to the widgets
            st.session_state[CHILD] = False
            start_fork(history, method, sampling, history.interventions)

    nothing = "Change something first: settings, or a node of tree A."
    st.button(
        "Fork",
        key="what_if_fork",
        type="primary",
        icon=":material/call_split:",
        disabled=empty or history.iteration(history.a) is None or is_busy(SLOT),
        on_click=press,
        help=escape_markdown(refusal or (nothing if empty else "Create a branch with this change")),
    )


def draw_pending(history: History) -> None:
    """The change of the next fork and a button that undoes it; else how to begin, or what is wrong.

    Next to it the switch that runs the models even where replay suffices.
    """

    def clear() -> None:
        history.interventions = ()
        reset_editor(history)

    with st.container(key="what_if_pending", horizontal=True, vertical_alignment="center", gap="small"):
        contradiction = changed_settings(history)[-1]
        refused = history.unknown or contradiction
        words = [*filter(None, [editor_words(history)]), *(edit.words for edit in history.interventions)]
        if history.unknown:
            said = f"This run can be viewed but not changed. {escape_markdown(history.unknown)}"
        elif contradiction:
            said = f":red[{escape_markdown(contradiction)}]"
        elif words:
            source = "the run" if history.base.fork is None else f"branch {history.base.number}"
            since = "An example, from" if history.interventions == (history.example,) else "From"
            said = f"{since} iteration {history.index + 1} of {source}: **{escape_markdown(' · '.join(words))}**"
        elif history.deleted is not None:
            said = f"Deleted: {history.deleted.words}. You can undo this until the next fork."
        else:
            said = HELP
        st.markdown(said, width="content")
        undo = {"type": "tertiary", "icon": ":material/undo:"}
        if words and not refused:
            st.button("Undo change", key="what_if_clear", on_click=clear, **undo)
        elif history.deleted is not None and not refused:
            st.button("Undo", key="what_if_undo", on_click=history.bring_back, disabled=is_busy(SLOT), **undo)
        st.space("stretch")
        st.toggle(
            "Run the models",
            key="what_if_live",
            persist_state="session",
            help="Off: replayed from stored logits where they suffice, instantly but without a time. "
            "On: the models run, and the time is measured.",
        )


def node_buttons(history: History) -> None:
    """Buttons that force the node selected in tree A."""
    iteration, chosen = history.iteration(history.a), history.nodes.get("A")
    there = iteration is not None and chosen is not None and 0 <= chosen < len(iteration.nodes)
    node = iteration.nodes[chosen] if there else None  # the final token is not a node
    path = node_paths(iteration)[chosen] if there else ()
    removed = there and node.flat_index is None

    def toggle(kind: Force) -> None:
        """Force the node, or undo that; replaces another intervention on it."""
        edit, kept = Edit(kind, path, node.text), tuple(e for e in history.interventions if e.path != path)
        history.interventions = kept if edit in history.interventions else (*kept, edit)

    st.markdown(escape_markdown(f"‘{visible(node.text, 10)}’" if there else "Node"), width="content")
    sentence = "" if there else "Click a node in tree A first."
    kinds: list[tuple[Force, str, str]] = [
        ("accept", "Force accept", "As if the target gave this token and all its ancestors probability 1."),
        ("reject", "Force reject", "As if the target gave this token probability 0 at this place."),
    ]
    if removed:
        kinds.insert(0, ("force_in", "Force in", "Verify this node although it was pruned."))
    else:
        kinds.insert(0, ("force_out", "Force out", "Remove this node and all its descendants from the tree."))
    for kind, label, words in kinds:
        on = there and any((e.kind, e.path) == (kind, path) for e in history.interventions)
        st.button(
            label,
            key=f"what_if_{'out' if kind.startswith('force') else kind}",
            type="primary" if on else "secondary",
            disabled=not path or (removed and kind != "force_in"),
            help=sentence or words,
            on_click=toggle,
            args=(kind,),
        )
    child_menu(history, iteration, node)


def child_menu(history: History, iteration: IterationTrace | None, node: NodeTrace | None) -> None:
    """Add a token below the selected node: one of the likeliest of draft or target there."""
    box = st.popover(
        "Add a child",
        key=CHILD,
        disabled=node is None,
        on_change="rerun",
        help="Click a node in tree A first." if node is None else "Force a token into the tree below this node",
    )
    if not box.open or node is None:
        return
    tokens = child_tokens(iteration, node.node_id)

    def token_words(token: int) -> str:
        text, draft, target = tokens[token]
        return f"‘{visible(text, 20)}’  draft {number(draft)} · target {number(target)}"

    with box, st.container(width=380):
        if not tokens:
            st.caption("No distribution after this node was recorded: choose a node that was verified.")
            return
        st.caption("Likeliest tokens after this node that are not in the tree, with draft and target probability:")
        key = f"what_if_child_{history.a}_{history.index}_{node.node_id}"
        st.selectbox(
            "Token",
            list(tokens),
            key=key,
            format_func=token_words,
            label_visibility="collapsed",
        )

        def add() -> None:
            chosen = st.session_state[key]  # what the page was last drawn with may be older
            edit = Edit("force_in", (*node_paths(iteration)[node.node_id], chosen), tokens[chosen][0])
            history.interventions = (*(e for e in history.interventions if e != edit), edit)
            st.session_state[CHILD] = False

        st.button("Add it", key="what_if_child_add", type="primary", on_click=add)


def child_tokens(iteration: IterationTrace, node: int) -> dict[int, tuple[str, float | None, float | None]]:
    """Text, draft and target probability by token id, likeliest first; children of the node are left out."""
    there = {iteration.nodes[child].token_id for child in iteration.children(node)}
    found: dict[int, list] = {}
    for place, top in ((1, iteration.draft_top(node)), (2, iteration.target_top(node))):
        for token, text, chance in top:
            if token not in there:
                found.setdefault(token, [text, None, None])[place] = chance
    ordered = sorted(found.items(), key=lambda item: -max(item[1][1] or 0.0, item[1][2] or 0.0))
    return {token: tuple(values) for token, values in ordered[:MOST_CHILDREN]}


Starter = tuple[str, dict[str, Setting], tuple[Edit, ...]]  # a suggested change: label, settings and forced nodes


def starters(iteration: IterationTrace, settings: Mapping[str, Setting]) -> list[Starter]:
    """Suggested changes of an iteration: a smaller tree, the token that was missing, another verdict."""
    found = []
    if iteration.drafted >= 2 and "node_budget" in settings:
        half = iteration.drafted // 2
        words = f"Draft at most {plural(half, 'node')}, not {iteration.drafted}"
        found.append((words, {"node_budget": half}, ()))
    missing = missing_token(iteration)
    if missing is not None:
        found.append((missing_words(iteration, missing), {}, (missing,)))
    rejected = next((node for node in iteration.nodes if node.verdict == "rejected"), None)
    if rejected is not None:
        edit = Edit("accept", node_paths(iteration)[rejected.node_id], rejected.text)
        found.append((f"Accept {_quoted(rejected.text)}, which was rejected", {}, (edit,)))
    return found


def missing_token(iteration: IterationTrace) -> Edit | None:
    """The token that the target had to add itself, as an edit that adds it to the tree; None without one."""
    if iteration.final_kind not in ("recovered", "fallback") or not iteration.nodes:
        return None
    last = iteration.accepted[-1] if iteration.accepted else 0
    token = iteration.committed_ids[-1]
    siblings = (iteration.nodes[child] for child in iteration.children(last))
    if any(child.token_id == token and child.flat_index is not None for child in siblings):
        return None
    return Edit("force_in", (*node_paths(iteration)[last], token), iteration.committed_texts[-1])


def missing_words(iteration: IterationTrace, missing: Edit) -> str:
    """Label of adding a missing token, which may have been drafted and pruned."""
    if missing.path in node_paths(iteration):
        return f"Verify {_quoted(missing.text)}, which was drafted but pruned"
    return f"Add the missing token {_quoted(missing.text)} to the tree"


def begin_with_a_branch(history: History) -> None:
    """Open the recorded run with a branch that was replayed, and another change that Fork would carry out."""
    if history.count or history.base.run.trace is not logits_run():
        return
    from decoding.replay.forks import ForkChange, fork

    iteration = history.iteration(history.a)
    paths = node_paths(iteration)
    rejected = next(node.node_id for node in iteration.nodes if node.verdict == "rejected")
    change = ForkChange(interventions=Interventions(accept=(paths[rejected],)))
    history.add(history.base, fork(history.base.run.trace, None, history.index, change, live=False), history.index)
    node = iteration.accepted[0]
    history.nodes["A"], history.example = node, Edit("reject", paths[node], iteration.nodes[node].text)
    history.interventions = (history.example,)


def draw_starters(history: History, offered: list[Starter]) -> None:
    """A button per suggested change, which forks at once."""

    def press(settings: dict[str, Setting], interventions: tuple[Edit, ...]) -> None:
        with guarded():
            method = base_method(history).with_settings(**settings) if settings else None
            start_fork(history, method, None, interventions)

    for place, (label, *change) in enumerate(offered):
        key = f"what_if_starter_{place}"
        st.button(escape_markdown(label), key=key, disabled=is_busy(SLOT), on_click=press, args=tuple(change))


def _quoted(text: str) -> str:
    return f"‘{visible(text, 16)}’"

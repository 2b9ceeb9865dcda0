"""The puzzle "save the token": move a setting, the tree is drafted again live, and is the token in it?"""

from typing import TYPE_CHECKING

import streamlit as st

from decoding.errors import DraftscopeError
from decoding.presets import EMBEDDED
from decoding.recorded import RECORDINGS, recorded_run
from decoding.trace import IterationTrace, RunTrace, Setting
from pages.ui.errors import escape_markdown, guarded
from pages.ui.models import manager
from pages.ui.puzzles import SAVE, TREE_HEIGHT, another_button, drawn, keep_result, score_words
from pages.ui.scope import scope
from pages.ui.setting_info import info_of
from pages.ui.worker import run_now
from viz.explain import quote
from viz.saving_puzzle import Missing, has_token, missing_tokens
from viz.scope_data import compact_data
from viz.tokens import plural

if TYPE_CHECKING:
    from decoding.pair import Pair


def saving_pool() -> list[tuple[str, Missing]]:
    """Tokens that the recorded trees missed: name of the recording and the token."""
    return [(name, missing) for name in RECORDINGS for missing in missing_tokens(recorded_run(name))]


def draw_saving() -> None:
    """Two settings of the recorded run, its tree drafted again after each move, and whether the token is in it."""
    pool = saving_pool()
    number, (name, missing) = drawn("save", pool)
    run = recorded_run(name)
    base = run.iterations[missing.iteration]
    left, right = st.columns([2.1, 1], gap="medium")
    with right:
        st.markdown(f"**{SAVE}** · {escape_markdown(run.label)}, iteration {missing.iteration + 1}")
        st.markdown(
            escape_markdown(
                f"The target wanted {quote(missing.text)} after {quote(base.nodes[missing.parent].text)}, and no node "
                f"given to it had that token. Find a setting with which it is in the verified tree."
            )
        )
        changes = {setting: _slider(setting, base.settings[setting], number) for setting in missing.settings}
        changed = any(value != base.settings[setting] for setting, value in changes.items())
        tree = None
        with guarded():
            tree = _drafted(number, run, missing, changes) if changed else base
        node = None if tree is None else has_token(tree, missing, base)
        with st.container(horizontal=True):
            another_button("save", pool)
        if tree is not None:
            _tell_saving(number, missing, base, tree, node, changed)
        st.caption(score_words("save"))
    with left, st.container(key="puzzle_tree_save"):
        marks = {missing.parent: "here"} if tree in (base, None) else {} if node is None else {node: "saved"}
        scene = f"{name}:{missing.iteration}:{sorted(changes.items())}:{tree is None}"
        data = compact_data(tree or base, scene_id=scene, phase="select", marks=marks)
        scope(data, key="save_tree", height=TREE_HEIGHT)


def _slider(name: str, value: Setting, number: int) -> Setting:
    info = info_of(name)
    return st.slider(
        info.title, *info.offered_with(value), value, info.step, key=f"save_{number}_{name}",
        help=f"{info.help} In the recorded iteration: {value:g}.",
    )  # fmt: skip


def _tell_saving(number: int, missing: Missing, base: IterationTrace, tree: IterationTrace, node: int | None, changed: bool):
    """Solved or not, and what the new tree costs."""
    if not changed:
        st.info("Move a setting: the tree is drafted and verified again by the embedded pair.", icon=":material/tune:")
        return
    nodes = plural(tree.drafted, "node")
    size = f"The tree has {nodes}, {tree.verified} verified ({base.drafted} and {base.verified} before)."
    if node is None:
        st.warning(escape_markdown(f"Not in the tree. {size}"))
        return
    keep_result("save", number, True)
    verdict = f"It is {tree.nodes[node].verdict.replace('_', ' ')}, and {plural(len(tree.committed_ids), 'token')} "
    gained = f"{verdict}are committed in place of {len(base.committed_ids)}."
    st.success(escape_markdown(f"Saved. {gained} {size} {missing.words}"))


def _drafted(number: int, run: RunTrace, missing: Missing, changes: dict[str, Setting]) -> IterationTrace:
    """The iteration drafted again with changed settings, the last one kept."""
    key = (number, tuple(changes.items()))
    if st.session_state.get("save_key") != key:
        tree = run_now("Drafting again", lambda job: draft_again(_embedded_pair(), run, missing.iteration, changes))
        st.session_state["save_key"], st.session_state["save_iteration"] = key, tree
    return st.session_state["save_iteration"]


def _embedded_pair() -> "Pair":
    models = manager()
    if (models.settings.target, models.settings.draft) != (EMBEDDED, EMBEDDED):
        raise DraftscopeError(
            "This puzzle was recorded with the embedded pair: choose it in the upper right corner to draft again."
        )
    return models.pair()


def draft_again(pair: "Pair", run: RunTrace, index: int, changes: dict[str, Setting]) -> IterationTrace:
    """One iteration of a recorded run on the same prefix, drafted and verified live with some settings changed.

    Raises:
        SettingsError: the settings contradict one another.
    """
    from decoding.methods import METHODS
    from decoding.session import DecodeSession, Limits

    iteration = run.iterations[index]
    before = [token for past in run.iterations[:index] for token in past.committed_ids]
    method = METHODS[run.method].with_settings(**{**run.settings, **iteration.settings, **changes})
    limits = Limits(run.max_new_tokens - len(before))
    return DecodeSession(pair, method, [*run.prompt_ids, *before], limits=limits).step()

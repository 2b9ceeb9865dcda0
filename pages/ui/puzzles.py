"""Three puzzles on recorded iterations: each is checked against the trace and explained from it."""

from collections.abc import Callable, Sequence
from typing import TypeVar

import streamlit as st

from decoding.recorded import RECORDINGS, recorded_run
from decoding.trace import IterationTrace
from pages.ui.errors import escape_markdown
from pages.ui.scope import scope
from viz.guess_puzzle import QUESTION, guessable, hidden_data, judge, path_words
from viz.scope_data import compact_data

T = TypeVar("T")
GUESS, SAVE, LOSS = "Guess the accepted path", "Save the token", "Why did the tree lose?"
TREE_HEIGHT = 480
STYLE = """
<style>
[class*=st-key-puzzle_tree] .st-key-guess_tree, [class*=st-key-puzzle_tree] .st-key-save_tree,
[class*=st-key-puzzle_tree] [class*=stBidiComponent] {
  flex: none !important; height: clamp(420px, calc(100vh - 12.5rem), 760px) !important;
}
</style>
"""
# Coprime to every small pool, so that neighbours in a run do not follow each other.
STRIDE = 7


def draw_puzzles() -> None:
    """The choice of a puzzle, and the puzzle."""
    from pages.ui.puzzle_loss import draw_loss
    from pages.ui.puzzle_saving import draw_saving

    draw: dict[str, Callable[[], None]] = {GUESS: draw_guess, SAVE: draw_saving, LOSS: draw_loss}
    chosen = st.segmented_control(
        "Puzzle", list(draw), default=GUESS, key="puzzle", label_visibility="collapsed", required=True,
        persist_state="session",
    )  # fmt: skip
    st.html(STYLE)
    draw[chosen]()


def drawn(puzzle: str, pool: Sequence[T]) -> tuple[int, T]:
    """The case of a puzzle that is on screen: how many came before it, and the case."""
    count = st.session_state.get(f"{puzzle}_count", 0)
    return count, drawn_case(pool, count)


def drawn_case(pool: Sequence[T], count: int) -> T:
    """Case number `count`: every case of the pool comes before one comes again."""
    return pool[count * _stride(len(pool)) % len(pool)]


def _stride(size: int) -> int:
    return next(step for step in range(STRIDE, STRIDE + size + 1) if size < 2 or _coprime(step, size))


def _coprime(first: int, second: int) -> bool:
    while second:
        first, second = second, first % second
    return first == 1


def another_button(puzzle: str, pool: Sequence) -> None:
    """Draws the next case."""

    def draw_next() -> None:
        st.session_state[f"{puzzle}_count"] = st.session_state.get(f"{puzzle}_count", 0) + 1

    st.button(
        "Another one", key=f"{puzzle}_another", on_click=draw_next, icon=":material/refresh:", disabled=len(pool) < 2,
        help=f"{len(pool)} recorded cases",
    )  # fmt: skip


def score_words(puzzle: str) -> str:
    """How many cases were tried and solved in this browser session."""
    results = st.session_state.get(f"{puzzle}_results", {})
    return f"Solved {sum(results.values())} of {len(results)} tried." if results else ""


def keep_result(puzzle: str, number: int, solved: bool) -> None:
    """Count a case; trying it again changes nothing."""
    st.session_state.setdefault(f"{puzzle}_results", {}).setdefault(number, solved)


def guess_pool() -> list[tuple[str, int]]:
    """Recorded iterations that can be guessed: name of the recording and index."""
    return [(name, index) for name in RECORDINGS for index in guessable(recorded_run(name))]


def draw_guess() -> None:
    """Guess the accepted path: choose the node where it ends, then see what the target did."""
    pool = guess_pool()
    number, (name, index) = drawn("guess", pool)
    run = recorded_run(name)
    iteration, widget = run.iterations[index], f"guess_{number}"
    at, judged_guess = st.session_state.get("guess_checked", (None, None))
    checked = at == number
    left, right = st.columns([2.1, 1], gap="medium")
    with right:
        st.markdown(f"**{GUESS}** · {escape_markdown(run.label)}, iteration {index + 1}")
        st.markdown(QUESTION)
        given = [node.node_id for node in iteration.nodes if not node.pruned]
        guess = st.selectbox(
            "The accepted path", given, index=None, key=widget,
            format_func=lambda node: path_words(iteration, node), disabled=checked,
            placeholder="Click a node of the tree, or choose a path here", persist_state="session",
        )  # fmt: skip
        guess = judged_guess if checked else guess
        with st.container(horizontal=True):
            if st.button("Check", key="guess_check", type="primary", disabled=guess is None or checked):
                st.session_state["guess_checked"] = number, guess
                keep_result("guess", number, judge(iteration, guess).right)
                st.rerun()
            another_button("guess", pool)
        if checked:
            judged = judge(iteration, guess)
            said = escape_markdown(f"{'Right.' if judged.right else 'Not quite.'} {judged.words}")
            (st.success if judged.right else st.warning)(said)
        st.caption(score_words("guess"))
    with left, st.container(key="puzzle_tree_guess"):
        _draw_tree(iteration, f"{name}:{index}", widget, guess, checked)


def _draw_tree(iteration: IterationTrace, scene: str, widget: str, guess: int | None, checked: bool) -> None:
    def choose(node: int) -> None:
        if 0 <= node < len(iteration.nodes) and not iteration.nodes[node].pruned and not checked:
            st.session_state[widget] = node

    if checked:
        marks = {node: "your guess" for node in iteration.path(guess)[1:]}
        data = compact_data(iteration, scene_id=f"{scene}:told", phase="select", marks=marks)
    else:
        data = hidden_data(iteration, f"{scene}:asked", guess)
    scope(data, key="guess_tree", height=TREE_HEIGHT, on_select=choose)

"""Three puzzles on recorded iterations: each is checked against the trace and explained from it."""

import itertools
import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, TypeVar

import streamlit as st

import decoding
from decoding.analysis.slowdown import DRAFT, REASONS, REBUILD, REST, TOKENS, VERIFY, Slowdown, slowdown
from decoding.common.errors import DraftscopeError
from decoding.common.formats import duration, plural
from decoding.recorded import CHAIN, RECORDINGS, recorded_run, rivals, tokens_per_pass
from decoding.trace.records import IterationTrace, RunTrace, Setting
from pages.ui.common.charts import chart, is_dark
from pages.ui.common.errors import escape_markdown, guarded, info_of, need_torch
from pages.ui.common.models import manager
from pages.ui.common.worker import run_now
from pages.ui.scope.component import lone_tree, scope
from viz.charts.methods import TokenCost, token_cost_figure
from viz.explain.iteration import phase_seconds
from viz.learn.puzzles import QUESTION, Missing, guessable, has_token, hidden_data, judge, missing_tokens, path_words
from viz.scope.data import compact_data
from viz.tables import html_table
from viz.tokens import quote

if TYPE_CHECKING:
    from decoding.models.pair import Pair

T = TypeVar("T")
GUESS, SAVE, LOSS = "Guess the accepted path", "Save the token", "Why did the tree lose?"
TREE_HEIGHT = 480
# Coprime to every small pool, so that neighbours in a run do not follow each other.
STRIDE = 7


def draw_puzzles() -> None:
    """The choice of a puzzle, and the puzzle."""
    draw: dict[str, Callable[[], None]] = {GUESS: draw_guess, SAVE: draw_saving, LOSS: draw_loss}
    chosen = st.segmented_control(
        "Puzzle", list(draw), default=GUESS, key="puzzle", label_visibility="collapsed", required=True,
        persist_state="session",
    )  # fmt: skip
    draw[chosen]()


def drawn(puzzle: str, pool: Sequence[T]) -> tuple[int, T]:
    """The case of a puzzle on screen: its number and the case."""
    count = st.session_state.get(f"{puzzle}_count", 0)
    return count, drawn_case(pool, count)


def drawn_case(pool: Sequence[T], count: int) -> T:
    """Case number `count`: every case of the pool appears before one repeats."""
    size = len(pool)
    return pool[count * next(step for step in itertools.count(STRIDE) if math.gcd(step, size) == 1) % size]


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
    """Count a case; further attempts change nothing."""
    st.session_state.setdefault(f"{puzzle}_results", {}).setdefault(number, solved)


def guess_pool() -> list[tuple[str, int]]:
    """Recorded iterations that can be guessed: name of the recording and index."""
    return [(name, index) for name in RECORDINGS for index in guessable(recorded_run(name))]


def draw_guess() -> None:
    """Guess the accepted path: choose its last node, then see the target's decision."""
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
                keep_result("guess", number, judge(iteration, guess)[0])
                st.rerun()
            another_button("guess", pool)
        if checked:
            right_guess, why = judge(iteration, guess)
            said = escape_markdown(f"{'Right.' if right_guess else 'Not quite.'} {why}")
            (st.success if right_guess else st.warning)(said)
        st.caption(score_words("guess"))
    with left, st.container(key="puzzle_tree_guess"):

        def choose(node: int) -> None:
            if 0 <= node < len(iteration.nodes) and not iteration.nodes[node].pruned and not checked:
                st.session_state[widget] = node

        if checked:
            marks = {node: "your guess" for node in iteration.path(guess)[1:]}
            data = compact_data(iteration, scene_id=f"{name}:{index}:solved", phase="select", marks=marks)
        else:
            data = hidden_data(iteration, f"{name}:{index}:asked", guess)
        scope(data, key="guess_tree", height=TREE_HEIGHT, on_select=choose)


REASON_WORDS: dict[str, str] = {
    DRAFT: "Drafting takes too long",
    VERIFY: "The target's pass over more nodes takes too long",
    REBUILD: "A second target pass recomputes the cache slots",
    REST: "Bookkeeping takes too long: mask, verdicts, moving cache slots",
    TOKENS: "It commits fewer tokens per pass",
}
FACTOR_WORDS: dict[str, str] = {
    DRAFT: "drafting", VERIFY: "target's pass", REBUILD: "second target pass", REST: "bookkeeping",
    TOKENS: "tokens per pass",
}  # fmt: skip


def loss_pool() -> list[str]:
    """Recorded trees that were slower than the chain measured in turn with them."""
    paired = [name for name, others in RECORDINGS.items() if CHAIN in others]
    return [name for name in paired if _lost(name).ratio > 1]


def _lost(name: str) -> Slowdown:
    return slowdown(recorded_run(name), rivals(name)[CHAIN])


def draw_loss() -> None:
    """Shows the counts; choose the reason, then the measured times reveal it."""
    pool = loss_pool()
    number, name = drawn("loss", pool)
    tree, chain, lost = recorded_run(name), rivals(name)[CHAIN], _lost(name)
    left, right = st.columns([1.25, 1], gap="large")
    with right:
        st.markdown(f"**{LOSS}** · {escape_markdown(tree.label)} against {escape_markdown(chain.label)}")
        st.markdown(
            f"On this prompt the tree took **{lost.ratio:.2f} times** the chain's time per token. What cost it most?"
        )
        chosen = st.radio(
            "What cost it most?", REASONS, index=None, key=f"loss_{number}", format_func=REASON_WORDS.get,
            label_visibility="collapsed",
        )  # fmt: skip
        with st.container(horizontal=True):
            another_button("loss", pool)
        if chosen is not None:
            keep_result("loss", number, chosen == lost.reason)
            product = " × ".join(f"{lost.factors[name]:.2f} ({FACTOR_WORDS[name]})" for name in REASONS)
            said = f"{REASON_WORDS[lost.reason]}: this alone makes a token take {lost.factors[lost.reason]:.2f} "
            said += f"times as long. All factors together: {product} = {lost.ratio:.2f}."
            mine = lost.factors[chosen]
            effect = f"makes it {mine:.2f} times as long" if mine > 1.005 else "helps"
            effect = "costs nothing" if 0.995 < mine <= 1.005 else effect
            if chosen == lost.reason:
                st.success(escape_markdown(f"Right. {said}"))
            else:
                st.warning(escape_markdown(f"No: {FACTOR_WORDS[chosen]} {effect}, a factor of {mine:.2f}. {said}"))
        st.caption(score_words("loss"))
    with left:
        st.html(_counted_html(tree, chain) if chosen is None else _measured_html(lost, tree, chain))
        if chosen is not None:
            st.markdown("**Where the time goes** · per committed token, measured, without prefill")
            costs = []
            for run in (tree, chain):
                tokens, phases = sum(len(each.committed_ids) for each in run.iterations), phase_seconds(run.iterations)
                taken = {name: seconds / tokens for name, seconds in phases.items() if seconds}
                costs.append(TokenCost(run.label, taken))
            chart(token_cost_figure(costs, is_dark()), key="loss_chart", height=300)


def _counted_html(tree: RunTrace, chain: RunTrace) -> str:
    """The counts of both runs, without times."""

    def per_pass(run: RunTrace, name: str) -> str:
        return f"{sum(getattr(each, name) for each in run.iterations) / len(run.iterations):.1f}"

    rows = [
        ("Tokens committed per pass", *(f"{tokens_per_pass(run):.2f}" for run in (tree, chain))),
        *(
            (words, per_pass(tree, name), per_pass(chain, name))
            for words, name in (
                ("Nodes drafted per iteration", "drafted"),
                ("Nodes verified by the target", "verified"),
                ("Draft forwards per iteration", "draft_forwards"),
                ("Target passes per iteration", "target_passes"),
                ("Depth of the tree", "tree_depth"),
            )
        ),
    ]
    return _table("Counted, means over the run", (tree.label, chain.label), rows)


def _measured_html(lost: Slowdown, tree: RunTrace, chain: RunTrace) -> str:
    """Measured means of an iteration by phase, and the factor of each."""
    rows = []
    for name in lost.mine.seconds:
        times = (means.seconds[name] for means in (lost.mine, lost.other))
        shown = [duration(seconds) if seconds else "none" for seconds in times]
        rows.append((FACTOR_WORDS[name].capitalize(), *shown, f"× {lost.factors[name]:.2f}"))
    rows.append(
        ("Tokens per pass", f"{lost.mine.tokens:.2f}", f"{lost.other.tokens:.2f}", f"× {lost.factors[TOKENS]:.2f}")
    )
    rows.append(("Time per token", duration(lost.mine.token_s), duration(lost.other.token_s), f"× {lost.ratio:.2f}"))
    marked = FACTOR_WORDS[lost.reason].capitalize()
    return _table("Measured, means per iteration", (tree.label, chain.label, "factor"), rows, marked)


def _table(title: str, heads: tuple[str, ...], rows: list[tuple], marked: str = "") -> str:
    return html_table(
        (title, *heads), rows, "ruled ds-figures", row_kinds=["reason" if row[0] == marked else "" for row in rows]
    )


def saving_pool() -> list[tuple[str, Missing]]:
    """Tokens that the recorded trees missed: name of the recording and the token."""
    return [(name, missing) for name in RECORDINGS for missing in missing_tokens(recorded_run(name))]


def draw_saving() -> None:
    """Two settings of the recorded run; its tree is drafted again after each change and checked for the token."""
    if not need_torch():
        return
    pool = saving_pool()
    number, (name, missing) = drawn("save", pool)
    run = recorded_run(name)
    base = run.iterations[missing.iteration]
    left, right = st.columns([2.1, 1], gap="medium")
    with right:
        st.markdown(f"**{SAVE}** · {escape_markdown(run.label)}, iteration {missing.iteration + 1}")
        st.markdown(
            escape_markdown(
                f"The target wanted {quote(missing.text)} after {quote(base.nodes[missing.parent].text)}, but no "
                f"verified node had that token. Find a setting that puts it into the verified tree."
            )
        )
        changes = {}
        for setting in missing.settings:
            info, value = info_of(setting), base.settings[setting]
            changes[setting] = st.slider(
                info.title, *info.offered_with(value), value, info.step, key=f"save_{number}_{setting}",
                help=f"{info.help} In the recorded iteration: {value:g}.",
            )  # fmt: skip
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
        lone_tree(tree or base, "save_tree", TREE_HEIGHT, scene, phase="select", marks=marks)


def _tell_saving(
    number: int, missing: Missing, base: IterationTrace, tree: IterationTrace, node: int | None, changed: bool
):
    """Solved or not, and the size of the new tree."""
    if not changed:
        st.info("Move a slider: the embedded pair drafts and verifies the tree again.", icon=":material/tune:")
        return
    nodes = plural(tree.drafted, "node")
    size = f"The tree has {nodes}, {tree.verified} verified ({base.drafted} and {base.verified} before)."
    if node is None:
        st.warning(escape_markdown(f"Not in the tree. {size}"))
        return
    keep_result("save", number, True)
    verdict = f"It is {tree.nodes[node].verdict.replace('_', ' ')}, and {plural(len(tree.committed_ids), 'token')} "
    gained = f"{verdict}are committed instead of {len(base.committed_ids)}."
    st.success(escape_markdown(f"Saved. {gained} {size} {missing.words}"))


def _drafted(number: int, run: RunTrace, missing: Missing, changes: dict[str, Setting]) -> IterationTrace:
    """The iteration drafted again with changed settings; the last one is cached."""
    key = (number, tuple(changes.items()))
    if st.session_state.get("save_key") != key:
        tree = run_now("Drafting again", lambda job: draft_again(_embedded_pair(), run, missing.iteration, changes))
        st.session_state["save_key"], st.session_state["save_iteration"] = key, tree
    return st.session_state["save_iteration"]


def _embedded_pair() -> "Pair":
    models = manager()
    if not models.settings.embedded:
        raise DraftscopeError(
            "This puzzle was recorded with the embedded pair: choose that pair at the top right to draft again."
        )
    return models.pair()


def draft_again(pair: "Pair", run: RunTrace, index: int, changes: dict[str, Setting]) -> IterationTrace:
    """One iteration of a recorded run on the same prefix, drafted and verified live with some settings changed.

    Raises `SettingsError` where the settings contradict one another.
    """
    from decoding.session.session import DecodeSession, Limits

    iteration = run.iterations[index]
    before = [token for past in run.iterations[:index] for token in past.committed_ids]
    method = decoding.METHODS[run.method].with_settings(**{**run.settings, **iteration.settings, **changes})
    limits = Limits(run.max_new_tokens - len(before))
    return DecodeSession(pair, method, [*run.prompt_ids, *before], limits=limits).step()

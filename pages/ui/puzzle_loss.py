"""The puzzle "why did the tree lose to the chain here?": the reason is the largest factor of the measured times."""

import html

import streamlit as st

from decoding.recorded import CHAIN, RECORDINGS, recorded_run, rivals
from decoding.recorded.criteria import tokens_per_pass
from decoding.slowdown import DRAFT, REASONS, REBUILD, REST, TOKENS, VERIFY, Slowdown, slowdown
from decoding.trace import RunTrace
from pages.ui.charts import chart, is_dark
from pages.ui.errors import escape_markdown
from pages.ui.puzzles import LOSS, another_button, drawn, keep_result, score_words
from viz.explain import phase_seconds
from viz.method_charts import TokenCost, token_cost_figure
from viz.tokens import milliseconds

REASON_WORDS: dict[str, str] = {
    DRAFT: "Drafting takes too long",
    VERIFY: "The target's pass over more rows takes too long",
    REBUILD: "A second target pass computes the cache rows again",
    REST: "Bookkeeping takes too long: mask, verdicts, moving cache rows",
    TOKENS: "It commits fewer tokens per pass",
}
FACTOR_WORDS: dict[str, str] = {
    DRAFT: "drafting", VERIFY: "target's pass", REBUILD: "second target pass", REST: "bookkeeping",
    TOKENS: "tokens per pass",
}  # fmt: skip
LOSS_STYLE = """
<style>
.ds-figures { border-collapse: collapse; font-size: 0.92rem; font-variant-numeric: tabular-nums; width: 100%; }
.ds-figures th, .ds-figures td { padding: 0.3rem 0.8rem; text-align: right; border: 0; border-bottom: 1px solid
  color-mix(in srgb, currentColor 18%, transparent); }
.ds-figures th:first-child { text-align: left; font-weight: 400; }
.ds-figures tr.reason { font-weight: 700; }
</style>
"""


def loss_pool() -> list[str]:
    """Recorded trees that were slower than the chain taken in turn with them."""
    paired = [name for name, others in RECORDINGS.items() if CHAIN in others]
    return [name for name in paired if _lost(name).ratio > 1]


def _lost(name: str) -> Slowdown:
    return slowdown(recorded_run(name), rivals(name)[CHAIN])


def draw_loss() -> None:
    """What was counted is shown; choose the reason, then the measured times tell it."""
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
            _tell_loss(chosen, lost)
        st.caption(score_words("loss"))
    with left:
        st.html(LOSS_STYLE + (_counted_html(tree, chain) if chosen is None else _measured_html(lost, tree, chain)))
        if chosen is not None:
            st.markdown("**Where the time goes** · per committed token, measured, prefill left out")
            costs = [TokenCost(run.label, _token_cost(run)) for run in (tree, chain)]
            chart(token_cost_figure(costs, is_dark()), key="loss_chart", height=300)


def _token_cost(run: RunTrace) -> dict[str, float]:
    tokens = sum(len(each.committed_ids) for each in run.iterations)
    return {name: seconds / tokens for name, seconds in phase_seconds(run.iterations).items() if seconds}


def _tell_loss(chosen: str, lost: Slowdown) -> None:
    """Whether the choice is the largest factor, and how the factors multiply."""
    product = " × ".join(f"{lost.factors[name]:.2f} ({FACTOR_WORDS[name]})" for name in REASONS)
    words = f"{REASON_WORDS[lost.reason]}: it alone makes a token take {lost.factors[lost.reason]:.2f} times as long. "
    words += f"All factors together: {product} = {lost.ratio:.2f}."
    if chosen == lost.reason:
        st.success(escape_markdown(f"Right. {words}"))
        return
    mine = lost.factors[chosen]
    told = (
        f"makes it {mine:.2f} times as long" if mine > 1.005 else "costs nothing here" if mine > 0.995 else "helps here"
    )
    st.warning(escape_markdown(f"Not that: {FACTOR_WORDS[chosen]} {told}, a factor of {mine:.2f}. {words}"))


def _counted_html(tree: RunTrace, chain: RunTrace) -> str:
    """What was counted in both runs: no times."""

    def per_pass(run: RunTrace, name: str) -> str:
        return f"{sum(getattr(each, name) for each in run.iterations) / len(run.iterations):.1f}"

    rows = [
        ("Tokens committed per pass", *(f"{tokens_per_pass(run):.2f}" for run in (tree, chain))),
        *(
            (words, per_pass(tree, name), per_pass(chain, name))
            for words, name in (
                ("Nodes drafted per iteration", "drafted"),
                ("Nodes given to the target", "verified"),
                ("Draft forwards per iteration", "draft_forwards"),
                ("Target passes per iteration", "target_passes"),
                ("Depth of the tree", "tree_depth"),
            )
        ),
    ]
    return _table("Counted, means over the run", (tree.label, chain.label), rows)


def _measured_html(lost: Slowdown, tree: RunTrace, chain: RunTrace) -> str:
    """Measured means of an iteration by phase, and what each contributes."""
    rows = [
        (FACTOR_WORDS[name].capitalize(), *(_seconds(means.seconds[name]) for means in (lost.mine, lost.other)),
         f"× {lost.factors[name]:.2f}")
        for name in lost.mine.seconds
    ]  # fmt: skip
    rows.append(
        ("Tokens per pass", f"{lost.mine.tokens:.2f}", f"{lost.other.tokens:.2f}", f"× {lost.factors[TOKENS]:.2f}")
    )
    rows.append(
        ("Time per token", milliseconds(lost.mine.token_s), milliseconds(lost.other.token_s), f"× {lost.ratio:.2f}")
    )
    marked = FACTOR_WORDS[lost.reason].capitalize()
    return _table("Measured, means of an iteration", (tree.label, chain.label, "factor"), rows, marked)


def _seconds(value: float) -> str:
    return milliseconds(value) if value else "none"


def _table(title: str, heads: tuple[str, ...], rows: list[tuple], marked: str = "") -> str:
    head = "".join(f"<th>{html.escape(words)}</th>" for words in heads)
    body = "".join(
        f'<tr class="{"reason" if row[0] == marked else ""}"><th>{html.escape(row[0])}</th>'
        + "".join(f"<td>{html.escape(cell)}</td>" for cell in row[1:])
        + "</tr>"
        for row in rows
    )
    head = f"<thead><tr><th>{html.escape(title)}</th>{head}</tr></thead>"
    return f'<table class="ds-figures">{head}<tbody>{body}</tbody></table>'

"""What a change did: one sentence, what it breaks, the figures and both texts."""

import html

import streamlit as st

from pages.ui.what_if import History
from viz.fork_diff import (
    continuation_html,
    continuations,
    fork_measures,
    fork_summary,
    measures_html,
    parting_words,
    same_prefix,
)

GUIDE = """
<div class="fork-guide">
<div><b>1 Change</b><p>Choose an iteration with the arrows or by its dot. Then another method, setting, verifier,
temperature or seed; or click a node of tree A and force it out of the tree, to be accepted or to be rejected, or add a
child to it.</p></div>
<div><b>2 Fork</b><p>Where the stored rows of both models know the answer, the branch is <i>replayed</i>: at once, no
model runs, no time is measured. Where they do not, it is <i>live</i>: the models run from that iteration.</p></div>
<div><b>3 Compare</b><p>A and B stand at the same iteration. Nodes that only one tree has are framed; figures and texts
below say what the change did. A change after which the text no longer follows the target’s law says so.</p></div>
</div>
"""


def draw_told(history: History) -> None:
    """What the change did: one sentence, what it costs in truth, the figures, both texts."""
    with st.container(key="what_if_told"):
        if history.b is None:
            st.html(GUIDE)
            return
        one, other = history.iteration(history.a), history.iteration(history.b)
        part = history.part_at()
        parts = [f'<div class="fork-summary" role="status">{html.escape(summary_words(history, part))}</div>']
        for side, branch in zip("AB", history.shown(), strict=True):
            if branch.bias:
                parts.append(f'<div class="fork-bias" role="note"><b>{side}:</b> {html.escape(branch.bias)}</div>')
        if one is not None and other is not None:
            parts.append(measures_html(fork_measures(one, other)))
        a, b = history.shown()
        texts = continuations(a.run.trace, b.run.trace, part)
        parts.append(continuation_html(texts))
        parts.append(f'<div class="fork-why">{html.escape(parting_words(texts))}</div>')
        st.html("".join(parts))


def summary_words(history: History, part: int) -> str:
    """What the change did to this iteration, or that it comes later."""
    one, other = history.iteration(history.a), history.iteration(history.b)
    if history.index < part:
        return f"Iteration {history.index + 1} is the same in A and B: they part at iteration {part + 1}."
    if one is None or other is None:
        missing = "A" if one is None else "B"
        branch = history.shown()[missing == "B"]
        if branch.ended:
            last = len(branch.run.trace.iterations)
            return f"{missing} ended at iteration {last} and has no iteration {history.index + 1} to compare."
        return f"{missing} has not come to iteration {history.index + 1}: there is nothing to compare here."
    if not one.nodes or not other.nodes:
        return "The trees of this iteration were not recorded: only the texts can be compared."
    words = fork_summary(one, other)
    if not same_prefix(*(branch.run.trace for branch in history.shown()), history.index):
        words += " A and B stand on different texts here, so their trees differ anyway."
    return words

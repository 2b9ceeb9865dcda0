"""Lucky or not: what this pass committed among all it could have, and how far the run is ahead of what was expected."""

import html

import streamlit as st

from decoding.analysis.luck import REROLLS, Luck, RunLuck, luck_of, run_luck
from decoding.common.errors import NEEDS_TORCH
from decoding.trace.records import IterationTrace
from pages.ui.common.charts import chart, is_dark
from pages.ui.common.errors import escape_markdown
from pages.ui.common.state import Run, selected_iteration
from pages.ui.common.torch_there import torch_there
from pages.ui.common.worker import Job, is_busy, job_error, job_progress, start_job, take_result
from pages.ui.explain.subject import keep, kept, known_results, trace_at
from viz.charts.hindsight import run_luck_figure, token_law_figure
from viz.formats import chance, percent, plural
from viz.tokens import visible

SLOT = "why_luck"
CHART_HEIGHT = 290
MOST_NODES = 6


def draw_luck(run: Run) -> None:
    """This iteration on the left, the run on the right."""
    result = take_result(SLOT)
    if result is not None:
        keep(*result)
    index = selected_iteration()
    iteration = run.trace.iterations[index]
    luck = luck_of(iteration)
    if luck is None:
        st.caption("The probabilities of this iteration were not recorded: decode it again to see how lucky it was.")
        return
    whole = kept(("luck", run.key, len(run.trace.iterations)), lambda: run_luck(run.trace.iterations))
    if whole.score is None:
        st.markdown(nothing_left(run))
        return
    left, right = st.columns(2, gap="large")
    with left:
        st.html(f'<div class="why told">{luck_html(iteration, luck)}</div>')
        rolled = known_results().get(("rolled", run.key, index))
        if luck.certain:
            st.caption("Every draw of the verifier commits as many tokens here.")
        else:
            key = ("law", run.key, index, rolled is not None, is_dark())
            figure = kept(key, lambda: token_law_figure(luck.law, luck.tokens, rolled, is_dark()))
            chart(figure, "why_law", CHART_HEIGHT)
        reroll_button(run, iteration, rolled is not None)
    with right:
        committed = sum(len(run.trace.iterations[place].committed_ids) for place in whole.places)
        st.html(f'<div class="why told">{run_html(whole, whole.happened - committed)}</div>')
        series = whole.places, whole.tokens, whole.expected, whole.variances
        key = ("run_luck", run.key, len(run.trace.iterations), index, is_dark())
        figure = kept(key, lambda: run_luck_figure(*series, iteration.index, is_dark()))
        chart(figure, "why_run_luck", CHART_HEIGHT)


def nothing_left(run: Run) -> str:
    """Why there was no luck in a run."""
    if run.trace.sampling.temperature == 0:
        drawn = any(each.law not in ("none", "deterministic") for each in run.trace.iterations)
        said = "**Greedy decoding leaves nothing to luck.** Given the tree, there is one way for the verifier to walk."
        return (
            f"{said} The tree itself was drawn, but its text is what the target alone would write." if drawn else said
        )
    return "**Nothing was left to luck:** every draw of the verifier commits as many tokens in every iteration."


def luck_html(iteration: IterationTrace, luck: Luck) -> str:
    """The iteration in words, and its nodes by their exact probability."""
    shares = f"{percent(luck.as_many)} of all draws, more in {percent(luck.more)}, fewer in {percent(luck.fewer)}"
    said = (
        f"<b>{plural(luck.tokens, 'token')}</b> from this tree, {luck.expected:.2f} expected (exact): so many come in "
        f"{'all draws' if luck.certain else shares}."
    )
    committed = len(iteration.committed_ids)
    if committed < luck.tokens:
        said += f" The text or its requested length ended after {committed} of them."
    return f"<p>{said}</p>{_path_html(iteration)}"


def _path_html(iteration: IterationTrace) -> str:
    """The accepted path with the exact probability that the walk comes so far."""
    steps = []
    for node_id in iteration.accepted[:MOST_NODES]:
        node = iteration.nodes[node_id]
        steps.append(f"<code>{html.escape(visible(node.text, 12))}</code> {chance(node.acceptance_probability)}")
    missed = sorted(
        (node for node in iteration.nodes[1:] if node.verdict != "accepted" and node.acceptance_probability),
        key=lambda node: -node.acceptance_probability,
    )[:3]
    told = [f"Accepted, with the probability of coming so far: {', '.join(steps)}."] if steps else []
    if missed:
        likely = ", ".join(
            f"<code>{html.escape(visible(node.text, 12))}</code> (node {node.node_id}) "
            f"{chance(node.acceptance_probability)}"
            for node in missed
        )
        told.append(f"Likeliest of those that were not: {likely}.")
    return "".join(f'<p class="quiet">{each}</p>' for each in told)


def run_html(whole: RunLuck, cut: int) -> str:
    """The run in words.

    Args:
        cut: tokens of the walks that the end of the text kept out of it.
    """
    ahead, sign = whole.happened - whole.mean, "ahead of" if whole.happened >= whole.mean else "behind"
    rest = f"{abs(whole.score):.1f} standard deviations"
    words = "as good as what" if abs(ahead) < 0.05 else f"{abs(ahead):.1f} {sign} what"
    return (
        f"<p><b>{plural(whole.happened, 'token')}</b> from {plural(len(whole.places), 'tree')}, {whole.mean:.1f} ± "
        f"{whole.deviation:.1f} expected (exact, given the trees): {words} was to be expected, {rest}.</p>"
        f'<p class="quiet">{_cut_words(cut)} The draws that made the trees are not counted.</p>'
    )


def _cut_words(cut: int) -> str:
    """How many tokens of the walks the text does not have."""
    if not cut:
        return "All of these tokens are in the text."
    return (
        f"The text has {plural(cut, 'token')} fewer: it or its requested length ended before the last walk did, and "
        "the walk counts in full."
    )


def reroll_button(run: Run, iteration: IterationTrace, done: bool) -> None:
    """Re-roll the verifier's draws over the same tree, from stored rows."""
    if done:
        st.caption(f"Re-rolled: seeds 0 to {REROLLS - 1:,} over the same tree, from its stored rows.")
        return
    if not torch_there():
        st.caption(escape_markdown(f"Other draws over the same tree can be counted too. {NEEDS_TORCH}"))
        return
    if iteration.target_logits is None:
        st.caption(
            "To re-roll draws the full rows of both models are needed, and this iteration's were not kept: decode the "
            "run here."
        )
        return
    key = ("rolled", run.key, selected_iteration())
    if st.button(f"Re-roll {REROLLS:,} draws", key="why_reroll", icon=":material/casino:", disabled=is_busy(SLOT)):
        start_job(SLOT, "Re-rolling", lambda job: roll(run, key, job))
        st.rerun(scope="app")
    job_progress(SLOT)
    job_error(SLOT)


def roll(run: Run, key: tuple, job: Job) -> tuple[tuple, dict[int, int]]:
    """The re-rolled tokens of an iteration with the key they are kept under; for the worker."""
    from decoding.analysis.luck import rerolled

    job.report(0, 0, f"{REROLLS:,} draws over one tree")
    return key, rerolled(trace_at(run, key[-1]), run.trace.iterations[key[-1]].index)

"""Theory over the whole run: acceptance by depth, by draft probability, and tokens per verifier."""

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

import streamlit as st

from decoding.common.formats import plural
from pages.ui.common.charts import chart, is_dark
from pages.ui.common.errors import escape_markdown
from pages.ui.common.state import Run, keep_result, kept, known_results
from pages.ui.common.worker import ModelTask, is_busy, job_error, job_progress, start_job
from pages.ui.verify.state import Looked
from pages.ui.widgets.controls import seed
from viz.verify import Curve, acceptance_by_depth_figure, draft_probability_figure, expected_tokens_figure

if TYPE_CHECKING:
    from decoding.replay.theory import Mean, RunTheory
    from decoding.sampling.sampling import Sampling

SLOT = "verify_run"
CHART_HEIGHT = 360


def draw_run_theory(looked: Looked, sampling: "Sampling") -> None:
    """Heading, button, and the three charts once they are computed.

    The target's temperature and top-p are those of the page; the draft's are those of the run.
    """
    from decoding.replay.stored_state import sampling_of
    from decoding.replay.theory import DRAWS

    run, target = looked.run, {"temperature": sampling.temperature, "top_p": sampling.top_p}
    asked = replace(sampling_of(run.trace), **target, seed=0)
    keep_result(SLOT)
    key, shown = known_results().get(("run_theory", run.key), (None, None))
    with st.container(key="verify_run_head", horizontal=True, vertical_alignment="center", gap="small"):
        st.markdown("**Over the run**", width="content")
        current = shown is not None and key == run_key(run, asked)
        words = "Computed" if current else "Compute again" if shown is not None else "Compute over the run"
        if st.button(words, key="verify_run", disabled=current or is_busy(SLOT), icon=":material/functions:"):
            start_job(SLOT, "Theory over the run", partial(compute, run, asked), grace_s=0.2)
            st.rerun()
        draws = 1
        if shown is not None:
            seed("verify_draws", DRAWS[-1])
            draws = st.segmented_control(
                "Independent draws", DRAWS, key="verify_draws", required=True, label_visibility="collapsed",
                persist_state="session", format_func=lambda count: f"k = {count}", help="Independent draws per node",
            )  # fmt: skip
        with st.container(key="verify_run_status"):
            if not job_progress(SLOT):
                st.caption(escape_markdown(said(shown, current)))
    job_error(SLOT)
    if shown is not None and shown.trees:
        charts(key, shown, draws)


def run_key(run: Run, sampling: "Sampling") -> tuple:
    """Key of a computed result."""
    return run.key, len(run.trace.iterations), sampling


def compute(run: Run, sampling: "Sampling", job: ModelTask) -> tuple | None:
    """Aggregate the run; call it in the worker."""
    from decoding.replay.theory import run_theory

    key = run_key(run, sampling)
    found = run_theory(run.trace.iterations, sampling, job.proceed("tree {} of {}"), run.trace.ending_ids)
    return None if found is None else (("run_theory", run.key), (key, found))


def said(theory: "RunTheory | None", current: bool) -> str:
    """The data behind the charts, or what the button does."""
    if theory is None:
        return "Acceptance by depth and draft probability, and expected tokens per verifier, over all stored logits."
    if not theory.trees:
        return "No iteration of this run has logits of both models: decode it again with a method that drafts."
    sampling = theory.sampling
    parts = [
        f"{plural(theory.trees, 'tree')}, {plural(theory.nodes, 'node')} with logits of both models, "
        f"{plural(theory.tokens, 'token')} drafted below them",
        f"replayed at temperature {sampling.temperature:g}, top-p {sampling.top_p:g}",
    ]
    if theory.without_logits:
        parts.append(f"{plural(theory.without_logits, 'iteration')} left out: logits not stored")
    if not current:
        parts.append("the run or its sampling has changed since")
    return " · ".join(parts)


def charts(key: tuple, theory: "RunTheory", draws: int) -> None:
    """Three charts with notes below them; figures are rebuilt only when something changed."""
    from decoding.verifiers import VERIFIERS

    titles = ("Acceptance rate by depth", "Acceptance by draft probability", "Expected tokens by verifier")

    def figures() -> tuple:
        labels = [VERIFIERS[name].label for name in theory.expected]
        middles = [(each.low + each.high) / 2 for each in theory.bins]
        accepted = curve_of("min(1, target / draft)", middles, [each.accepted for each in theory.bins])
        wanted = curve_of("target probability", middles, [each.target for each in theory.bins])
        tokens = curve_of("expected tokens", range(len(labels)), list(theory.expected.values()))
        return (
            acceptance_by_depth_figure(*depth_curves(theory, draws), is_dark()),
            draft_probability_figure(accepted, wanted, is_dark()),
            expected_tokens_figure(labels, tokens, is_dark()),
        )

    notes = (
        f"Probability that a verifier accepts one of {plural(draws, 'independent draw')} from the draft after a "
        "node: mean over all nodes of that depth ± standard error; n nodes, each counted once. Dashed: the best "
        "possible. Khisti's is a lower bound. Below: L1 distance of the two distributions. Compare Figure 1 of "
        "the delayed-expansion paper.",
        "Drafted tokens by draft probability, in bins of 0.1. min(1, target / draft): the acceptance probability of a "
        "single draw tested first; its mean over a bin is drawn. Compare Figure 2 of DySpec.",
        "Exact expected tokens of a tree, the final one included and none after the end of the text: mean over "
        f"{plural(theory.trees, 'tree')} ± standard error. Verifiers that would bias these trees are left out. All "
        "verifiers see the same trees, so small differences mean more than the whiskers suggest.",
    )
    places = st.columns(3, gap="small")
    made = kept(("run_theory_charts", *key, draws, is_dark()), figures)
    for place, title, figure, note in zip(places, titles, made, notes, strict=True):
        with place.container(border=True, height="stretch", gap="xsmall"):
            st.markdown(f"**{title}**")
            chart(figure, key=f"verify_{title}", height=CHART_HEIGHT)
            st.caption(escape_markdown(note))


def depth_curves(theory: "RunTheory", draws: int) -> tuple[list[Curve], Curve]:
    """Acceptance rate of every solver by depth with the upper bound, and the L1 distance."""
    from decoding.verifiers import VERIFIERS
    from decoding.verifiers.theory import LOWER_BOUNDS, SOLVERS

    depths = [row.depth for row in theory.depths]
    rates = [
        curve_of(
            VERIFIERS[name].label + (" (at least)" if name in LOWER_BOUNDS else ""),
            depths,
            [row.rates[name, draws] for row in theory.depths],
        )
        for name in SOLVERS
    ]
    best = curve_of("best possible", depths, [row.best[draws] for row in theory.depths], bound=True)
    return [*rates, best], curve_of("L1 distance", depths, [row.l1 for row in theory.depths])


def curve_of(label: str, x, means: "list[Mean]", bound: bool = False) -> Curve:
    """Means as a curve of a chart."""
    return Curve(
        label=label,
        x=tuple(x),
        y=tuple(mean.value for mean in means),
        errors=tuple(mean.error for mean in means),
        counts=tuple(mean.count for mean in means),
        bound=bound,
    )

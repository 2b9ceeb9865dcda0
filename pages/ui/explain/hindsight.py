"""Lucky or not: what this pass committed among all it could have, and how far the run is ahead of what was expected."""

import html

import streamlit as st

from decoding.analysis.budgets import Budgets, RunBudgets, budgets, can_tell, needs_logits, run_budgets
from decoding.analysis.hindsight import Hindsight, hindsight, ranks_along
from decoding.analysis.luck import REROLLS, Luck, RunLuck, luck_of, rerolled, run_luck
from decoding.common.cost_model import CostModel
from decoding.common.errors import NEEDS_TORCH, DraftscopeError
from decoding.trace.records import IterationTrace
from pages.ui.common.charts import chart, is_dark
from pages.ui.common.errors import escape_markdown, show_error, torch_there
from pages.ui.common.models import manager
from pages.ui.common.state import Run, keep, kept, known_results, selected_iteration
from pages.ui.common.worker import ModelTask, is_busy, job_bar, job_error, job_progress, run_now, start_job, take_result
from pages.ui.explain.subject import trace_at
from viz.charts.hindsight import (
    BudgetLine,
    RankBar,
    budget_figure,
    lost_figure,
    ranks_figure,
    run_luck_figure,
    token_distribution_figure,
)
from viz.formats import chance, percent, plural
from viz.tokens import visible

LUCK_SLOT = "why_luck"

MOST_NODES = 6


def draw_luck(run: Run) -> None:
    """This iteration on the left, the run on the right."""
    result = take_result(LUCK_SLOT)
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
        said = "**Nothing was left to luck:** every draw of the verifier commits as many tokens in every iteration."
        if run.trace.sampling.temperature == 0:
            said = (
                "**Greedy decoding leaves nothing to luck.** Given the tree, there is one way for the verifier to walk."
            )
            if any(each.draft_sampling not in ("none", "deterministic") for each in run.trace.iterations):
                said += " The tree itself was drawn, but its text is what the target alone would write."
        st.markdown(said)
        return
    left, right = st.columns(2, gap="large")
    with left:
        st.html(f'<div class="why told">{luck_html(iteration, luck)}</div>')
        rolled = known_results().get(("rolled", run.key, index))
        if luck.certain:
            st.caption("Every draw of the verifier commits as many tokens here.")
        else:
            key = ("tokens", run.key, index, rolled is not None, is_dark())
            figure = kept(key, lambda: token_distribution_figure(luck.probs, luck.tokens, rolled, is_dark()))
            chart(figure, "why_law", CHART_HEIGHT)
        reroll_button(run, iteration, rolled is not None)
    with right:
        committed = sum(len(run.trace.iterations[place].committed_ids) for place in whole.places)
        st.html(f'<div class="why told">{run_html(whole, whole.happened - committed)}</div>')
        series = whole.places, whole.tokens, whole.expected, whole.variances
        key = ("run_luck", run.key, len(run.trace.iterations), index, is_dark())
        figure = kept(key, lambda: run_luck_figure(*series, iteration.index, is_dark()))
        chart(figure, "why_run_luck", CHART_HEIGHT)


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
    steps = []  # the accepted path with the exact probability that the walk comes so far
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
    return f"<p>{said}</p>" + "".join(f'<p class="quiet">{each}</p>' for each in told)


def run_html(whole: RunLuck, cut: int) -> str:
    """The run in words; `cut` is how many tokens of the walks the end of the text kept out of it."""
    ahead, sign = whole.happened - whole.mean, "ahead of" if whole.happened >= whole.mean else "behind"
    rest = f"{abs(whole.score):.1f} standard deviations"
    words = "as good as what" if abs(ahead) < 0.05 else f"{abs(ahead):.1f} {sign} what"
    said = "All of these tokens are in the text."
    if cut:
        said = (
            f"The text has {plural(cut, 'token')} fewer: it or its requested length ended before the last walk did, "
            "and the walk counts in full."
        )
    return (
        f"<p><b>{plural(whole.happened, 'token')}</b> from {plural(len(whole.places), 'tree')}, {whole.mean:.1f} ± "
        f"{whole.deviation:.1f} expected (exact, given the trees): {words} was to be expected, {rest}.</p>"
        f'<p class="quiet">{said} The draws that made the trees are not counted.</p>'
    )


def reroll_button(run: Run, iteration: IterationTrace, done: bool) -> None:
    """Re-roll the verifier's draws over the same tree, from stored rows."""
    key = ("rolled", run.key, selected_iteration())

    def roll(job: ModelTask) -> tuple[tuple, dict[int, int]]:
        job.report(0, 0, f"{REROLLS:,} draws over one tree")
        return key, rerolled(trace_at(run, key[-1]), iteration.index)

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
    if st.button(f"Re-roll {REROLLS:,} draws", key="why_reroll", icon=":material/casino:", disabled=is_busy(LUCK_SLOT)):
        start_job(LUCK_SLOT, "Re-rolling", roll)
        st.rerun(scope="app")
    job_progress(LUCK_SLOT)
    job_error(LUCK_SLOT)


CHART_HEIGHT = 290


def draw_possible(run: Run) -> None:
    """The text that followed on the left, budgets on the right."""
    found = take_result(SLOT)
    if found is not None:
        keep(*found)
    index, count = selected_iteration(), len(run.trace.iterations)
    known = kept(("ranks", run.key, count), lambda: ranks_along(run.trace))
    told = kept(("hindsight", run.key, count, index), lambda: hindsight(run.trace, index, known))
    if told is None:
        done = "verified" if run.trace.iterations[index].drafted else "drafted"
        st.caption(f"Nothing was {done} in this iteration, so there was no other tree of its size.")
        return
    left, right = st.columns(2, gap="large")
    with left:
        st.markdown(hindsight_words(run, index, told))
        key = ("ranks_figure", run.key, count, index, is_dark())
        bars = (_bar(told, place, index) for place in range(len(told.followed)))
        chart(kept(key, lambda: ranks_figure(list(bars), is_dark())), "why_ranks", CHART_HEIGHT)
        st.caption(escape_markdown(definition(told)))
    with right:
        costs = usable_costs(run)
        if costs is not None:
            draw_budgets(run, index, costs)
    with left:
        if costs is not None:
            draw_run_budgets(run, index, costs)
    job_bar(SLOT)


def hindsight_words(run: Run, index: int, told: Hindsight) -> str:
    """This tree against the best of its size and the ceiling."""
    best = plural(told.best, "token")
    best = f"**{best}**" if told.complete else f"**at least {best}**"
    said = f"This tree of {plural(told.nodes, 'node')} committed **{plural(told.committed, 'token')}**. "
    said += f"The best one of this size in the draft's own order reaches {best}"
    if told.committed <= told.best:
        said += " of the text that followed. "
    elif run.trace.iterations[index].probs != "deterministic":
        said += ": the draws did better. "
    else:  # a rank that is not known leaves it open
        said += ", but this tree is not in that order. " if told.complete else ". "
    said += f"Ceiling, a chain of the text itself: {plural(told.ceiling, 'token')}."
    return said + (f" {end_words(run)}" if told.ends else "")


def end_words(run: Run) -> str:
    """Why there is no more text to hold a tree against."""
    if run.can_continue:
        return "The run has no more text: decode on to see further."
    return {
        "end_of_text": "The text ends there.",
        "length": "The run ends there, at the length that was asked for.",
        "unfinished": "The record ends there.",
    }[run.trace.totals.stopped]


def definition(told: Hindsight) -> str:
    """What the best tree in hindsight is."""
    unknown = sum(token.rank is None for token in told.followed)
    said = (
        "In the draft's own order: a child only with all likelier ones beside it; how many may differ from place to "
        "place, so reaching depth d takes as many nodes as the ranks of the first d tokens sum to."
    )
    if unknown:
        said += f" Unknown for {plural(unknown, 'token')} (?): the draft was never asked there in this run."
    return said


def _bar(told: Hindsight, place: int, index: int) -> RankBar:
    """One of the tokens that followed, as the chart draws it."""
    token = told.followed[place]
    kind = "taken" if token.drafted else "possible" if place < told.best - 1 else "beyond"
    seen = "unknown" if token.seen_in is None else f"seen in iteration {token.seen_in + 1}"
    return RankBar(token.text, token.rank, token.exact, kind, "in this tree" if token.seen_in == index else seen)


SLOT = "why_possible"
BUDGETS_HEIGHT, LOST_HEIGHT = 290, 190
LEFT_OUT = "rows not kept, a verdict forced by hand, or another method's before a fork"
FORCED = "A verdict was forced by hand here: the recorded logits are the target's own, not those that were tested."
NOT_OWN = (
    "Another verifier or temperature than the run's decided this iteration, before a fork: look at the run that it was "
    "forked from for what smaller budgets would commit."
)


def draw_budgets(run: Run, index: int, costs: CostModel) -> None:
    """Tokens per second by budget; without rows that are needed, how to get them."""
    key, trace = ("budgets", run.key, index, costs.measured), trace_at(run, index)
    if needs_logits(trace) and not can_tell(trace, trace.iterations[index]):
        st.caption(
            "What smaller budgets would commit needs the full rows of this iteration, which were not kept: decode the "
            "run here."
        )
        return
    if needs_logits(trace):
        if key not in known_results():  # it takes a moment: on a button
            st.caption("With this verifier every part of the tree has to be verified anew, from the stored rows.")
            if st.button("Find the best budget", key="why_budget", icon=":material/functions:", disabled=is_busy(SLOT)):
                start_job(SLOT, "Verifying parts of the tree", lambda job: (key, budgets(trace, index, costs)))
                st.rerun(scope="app")
            return
        told = known_results()[key]
    else:
        told = kept(key, lambda: budgets(trace, index, costs))
    if told is None:
        st.caption(FORCED if trace.iterations[index].forced_verdicts else NOT_OWN)
        return
    st.markdown(budget_words(told))
    line = BudgetLine(tuple(told.tokens.tolist()), tuple(told.seconds.tolist()), told.best)
    exact = trace.sampling.temperature > 0
    chart(kept((*key, is_dark()), lambda: budget_figure(line, is_dark(), exact)), "why_budgets", BUDGETS_HEIGHT)
    which = "the nodes drawn first" if needs_logits(trace) else "the nodes of highest path probability"
    tokens = "exact expectation over the verifier's draws" if exact else "what the walk would have committed (replayed)"
    seconds = "one pass over a part and the draft levels it needs"
    st.caption(escape_markdown(f"Parts of the tree: {which}. Tokens: {tokens}. Seconds: {seconds}."))


def usable_costs(run: Run) -> CostModel | None:
    """The measured costs of the pair in memory with the run's draft, if the run is of that pair; else what to do."""
    models = manager()
    if models.info is not None and models.info.name != run.trace.pair.name:
        st.caption(
            escape_markdown(
                f"The best budget needs costs measured with {run.trace.pair.name}, which decoded this run; "
                f"{models.info.name} is in memory: load the run's pair with the button above."
            )
        )
        return None
    head = str(run.trace.settings.get("draft_head", ""))
    costs = models.head_costs.get(head) if head else models.costs
    if costs is not None:
        return costs
    if not torch_there():
        st.caption(escape_markdown(f"The best budget is read off what passes cost on this machine. {NEEDS_TORCH}"))
        return None
    st.caption("The best budget is read off what passes cost on this machine, which is not measured yet.")
    if st.button("Measure now", key="why_measure", icon=":material/timer:", help="Loads the pair; takes a few seconds"):
        try:
            run_now("Measuring what passes cost", lambda job: models.measure_costs(head))
        except DraftscopeError as error:
            show_error(error)
            return None
        st.rerun(scope="app")
    return None


def budget_words(told: Budgets) -> str:
    """The best part of this tree, and what the whole lost against it."""
    rates, best = told.rates, plural(told.best, "node")
    if told.best == told.nodes:
        said = f"**The whole tree of {best} was the best budget: {rates[-1]:.0f} tokens/s.**"
        return f"{said} *Modelled from measured costs.*"
    chosen = f"Its best {best} alone" if told.best else "Drafting nothing"
    lost = f"so {told.lost:.0f} ({told.lost / rates[told.best]:.0%}) were lost"
    whole = f"the whole tree of {plural(told.nodes, 'node')}: {rates[-1]:.0f}, {lost}"
    return f"**{chosen}: {rates[told.best]:.0f} tokens/s**; {whole}. *Modelled from measured costs.*"


def draw_run_budgets(run: Run, index: int, costs: CostModel) -> None:
    """What the run lost by its budgets: at once where it is cheap, else on a button."""
    key = ("run_budgets", run.key, len(run.trace.iterations), costs.measured)
    whole, iterations = known_results().get(key), run.trace.iterations
    if whole is None:
        made = [trace_at(run, place) for place in range(len(iterations))]
        if any(
            each.verified and needs_logits(trace) and can_tell(trace, each)
            for trace, each in zip(made, iterations, strict=True)
        ):

            def find(job: ModelTask) -> tuple[tuple, RunBudgets] | None:
                def proceed(done: int, total: int) -> bool:
                    job.report(done, total, f"iteration {done} of {total}")
                    return job.go_on()

                found = run_budgets(run.trace, costs, proceed, made.__getitem__)
                return None if found is None else (key, found)

            if st.button("Over the run", key="why_run_budget", icon=":material/functions:", disabled=is_busy(SLOT)):
                start_job(SLOT, "Budgets over the run", find)
                st.rerun(scope="app")
            return
        whole = kept(key, lambda: run_budgets(run.trace, costs, made=made.__getitem__))
    if not whole.trees:
        st.caption(
            "What the run lost by its budgets cannot be told: the full rows of its iterations were not kept, or "
            "another method made them before a fork."
        )
        return
    st.markdown(run_words(whole))
    lost = [each.lost for each in whole.each]
    figure = kept((*key, index, is_dark()), lambda: lost_figure(whole.places, lost, index, is_dark()))
    chart(figure, "why_lost", LOST_HEIGHT)


def run_words(whole: RunBudgets) -> str:
    """The run with other budgets."""
    cap = whole.best_cap
    at_most = f"at most {plural(cap, 'node')}" if cap else "no drafting"
    said = (
        f"**Over the run: {whole.rate:.0f} tokens/s**; with the best budget for each iteration {whole.best_rate:.0f}, "
        f"with {at_most} in all {whole.capped_rate(cap):.0f}. *Modelled, on the text as it was.*"
    )
    return said + (f" {plural(whole.left_out, 'tree')} left out: {LEFT_OUT}." if whole.left_out else "")

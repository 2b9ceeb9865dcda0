"""Lucky or not: the tokens of this pass against all possible outcomes, and the run against its expectation."""

import html
from collections.abc import Sequence

import streamlit as st

from decoding.analysis.budgets import SLOW, Budgets, RunBudgets, budgets, can_tell, needs_logits, run_budgets
from decoding.analysis.hindsight import Hindsight, hindsight, ranks_along
from decoding.analysis.luck import REROLLS, Luck, RunLuck, luck_of, lucks, rerolled, run_luck, walked_tokens
from decoding.common.cost_model import CostModel
from decoding.common.errors import NEEDS_TORCH
from decoding.common.formats import chance, percent, plural
from decoding.trace.metrics import decoded
from decoding.trace.records import IterationTrace
from pages.ui import PAGES
from pages.ui.app.address import request_of, take_over
from pages.ui.common.charts import chart, is_dark
from pages.ui.common.errors import escape_markdown, torch_there
from pages.ui.common.models import manager
from pages.ui.common.state import Run, keep_result, kept, known_results, selected_iteration, trace_at
from pages.ui.common.worker import ModelTask, job_bar, job_button
from pages.ui.widgets.contestants import COMPARE, include
from pages.ui.widgets.costs import doubt_words, draw_warning, measure_button, measured_on, own_costs
from viz.charts import hindsight as charts
from viz.tokens import visible

LUCK_SLOT = "why_luck"

MOST_NODES = 6


def draw_luck(run: Run) -> None:
    """This iteration on the left, the run on the right."""
    keep_result(LUCK_SLOT)
    index = selected_iteration()
    iteration = run.trace.iterations[index]
    luck = lucks(run.trace)[index]
    if luck is None:
        st.caption("The probabilities of this iteration were not recorded: decode the run again to see its luck.")
        return
    whole = kept(("luck", run.key, len(run.trace.iterations)), lambda: run_luck(run.trace))
    if whole.score is None:
        said = "**No luck involved:** in every iteration, every draw of the verifier commits the same number of tokens."
        if run.trace.sampling.temperature == 0:
            said = "**Greedy decoding involves no luck.** Given the tree, the verifier has only one possible path."
            if any(each.draft_sampling not in ("none", "deterministic") for each in run.trace.iterations):
                said += " The tree itself was sampled, but the text is what the target alone would write."
        st.markdown(said)
        return
    left, right = st.columns(2, gap="large")
    with left:
        st.html(f'<div class="why summary">{luck_html(iteration, luck)}</div>')
        rolled = known_results().get(("rolled", run.key, index))
        if luck.certain:
            st.caption("Every draw of the verifier commits this many tokens in this iteration.")
        else:
            key = ("tokens", run.key, index, rolled is not None, is_dark())
            figure = kept(key, lambda: charts.token_distribution_figure(luck.probs, luck.tokens, rolled, is_dark()))
            chart(figure, "why_law", CHART_HEIGHT)
        # A re-roll knows the end of the text, and not how much room was left.
        if not luck.certain and luck_of(iteration, run.trace.ending_ids).probs == luck.probs:
            reroll_button(run, iteration, rolled is not None)
    with right:
        st.html(f'<div class="why summary">{run_html(whole)}</div>')
        series = whole.places, whole.tokens, whole.expected, whole.variances
        key = ("run_luck", run.key, len(run.trace.iterations), index, is_dark())
        figure = kept(key, lambda: charts.run_luck_figure(*series, iteration.index, is_dark()))
        chart(figure, "why_run_luck", CHART_HEIGHT)


def luck_html(iteration: IterationTrace, luck: Luck) -> str:
    """The iteration explained, and its nodes by their exact probability."""
    shares = f"{percent(luck.as_many)} of draws commit exactly this many, {percent(luck.more)} more, "
    shares += f"{percent(luck.fewer)} fewer"
    said = (
        f"<b>{plural(luck.tokens, 'token')}</b> from this tree, {luck.expected:.2f} expected (exact): "
        f"{'all draws commit this many' if luck.certain else shares}."
    )
    if walked_tokens(iteration) > luck.tokens:
        said += " The text ends there, so the rest of the accepted path is not counted, nor expected."
    steps = []  # the accepted path with the exact probability of reaching and accepting each node
    for node_id in iteration.accepted[:MOST_NODES]:
        node = iteration.nodes[node_id]
        steps.append(f"<code>{html.escape(visible(node.text, 12))}</code> {chance(node.acceptance_probability)}")
    missed = sorted(
        (node for node in iteration.nodes[1:] if node.verdict != "accepted" and node.acceptance_probability),
        key=lambda node: -node.acceptance_probability,
    )[:3]
    paragraphs = [f"Accepted, with the exact probability of getting this far: {', '.join(steps)}."] if steps else []
    if missed:
        likely = ", ".join(
            f"<code>{html.escape(visible(node.text, 12))}</code> (node {node.node_id}) "
            f"{chance(node.acceptance_probability)}"
            for node in missed
        )
        paragraphs.append(f"Likeliest nodes that were not accepted: {likely}.")
    return f"<p>{said}</p>" + "".join(f'<p class="quiet">{each}</p>' for each in paragraphs)


def run_html(whole: RunLuck) -> str:
    """The run explained, per target pass and in all."""
    passes, ahead = len(whole.places), whole.happened - whole.mean
    words = f"{abs(ahead):.1f} {'more' if ahead > 0 else 'fewer'} than" if abs(ahead) >= 0.05 else "as many as"
    return (
        f"<p><b>{whole.happened / passes:.2f} tokens per pass came, {whole.mean / passes:.2f} expected</b> (exact, "
        f"given the trees).</p><p>In all {plural(whole.happened, 'token')} from {plural(passes, 'tree')}, {words} the "
        f"{whole.mean:.1f} ± {whole.deviation:.1f} expected: {abs(whole.score or 0.0):.1f} standard deviations.</p>"
        '<p class="quiet">Tokens after the end of the text are not counted. The trees are '
        "taken as given: their own draws are not judged.</p>"
    )


def reroll_button(run: Run, iteration: IterationTrace, done: bool) -> None:
    """Re-roll the verifier's draws over the same tree, from stored logits."""
    key = ("rolled", run.key, selected_iteration())

    def roll(job: ModelTask) -> tuple[tuple, dict[int, int]]:
        job.report(0, 0, f"{REROLLS:,} draws over one tree")
        return key, rerolled(trace_at(run, key[-1]), iteration.index)

    if done:
        st.caption(f"Re-rolled: seeds 0 to {REROLLS - 1:,} over the same tree, from stored logits.")
        return
    if not torch_there():
        st.caption(escape_markdown(f"The verifier's draws over the same tree can be re-rolled. {NEEDS_TORCH}"))
        return
    if iteration.target_logits is None:
        st.caption(
            "Re-rolling draws needs the full logits of both models, which were not stored for this iteration: decode "
            "the run again."
        )
        return
    label = f"Re-roll {REROLLS:,} draws"
    job_button(LUCK_SLOT, label, "Re-rolling", roll, key="why_reroll", icon=":material/casino:")
    job_bar(LUCK_SLOT)


CHART_HEIGHT = 290


def draw_possible(run: Run) -> None:
    """The text that followed on the left, budgets on the right."""
    keep_result(SLOT)
    index, count = selected_iteration(), len(run.trace.iterations)
    known = kept(("ranks", run.key, count), lambda: ranks_along(run.trace))
    found = kept(("hindsight", run.key, count, index), lambda: hindsight(run.trace, index, known))
    if found is None:
        done = "verified" if run.trace.iterations[index].drafted else "drafted"
        st.caption(f"Nothing was {done} in this iteration, so there is no tree to compare.")
        return
    left, right = st.columns(2, gap="large")
    with left:
        st.markdown(hindsight_words(run, index, found))
        key = ("ranks_figure", run.key, count, index, is_dark())
        bars = (_bar(found, place, index) for place in range(len(found.followed)))
        chart(kept(key, lambda: charts.ranks_figure(list(bars), is_dark())), "why_ranks", CHART_HEIGHT)
        st.caption(escape_markdown(definition(found)))
    with right:
        costs = usable_costs(run)
        doubt = "" if costs is None else doubt_words(run, costs)
        if doubt:
            draw_warning(doubt, "why", run.trace.draft_head)
        elif costs is not None:
            draw_budgets(run, index, costs)
    with left:
        if doubt:
            draw_measured(run, run.trace.iterations)
        elif costs is not None:
            draw_run_budgets(run, index, costs)
    chain_button(run)
    job_bar(SLOT)


def chain_button(run: Run) -> None:
    """Leads to Compare with this run's prompt and method, a chain among the others."""
    asked = request_of(run)
    if asked is not None and st.button(
        "Where does the tree lose to a chain, and why?", key="why_chain", icon=":material/call_split:", type="tertiary",
        help="Compare measures both on this prompt and names the iteration, the tokens and the measured cause",
        on_click=lambda: (take_over(asked), include(COMPARE, asked.method)),
    ):  # fmt: skip
        st.switch_page(PAGES["Compare"], query_params={})


def hindsight_words(run: Run, index: int, found: Hindsight) -> str:
    """This tree compared with the best of its size and the ceiling."""
    best = plural(found.best, "token")
    best = f"**{best}**" if found.complete else f"**at least {best}**"
    said = f"This tree of {plural(found.nodes, 'node')} committed **{plural(found.committed, 'token')}**. "
    said += f"The best tree of this size in the draft's own order commits {best}"
    if found.committed <= found.best:
        said += " of the text that followed. "
    elif run.trace.iterations[index].draft_sampling != "deterministic":
        said += ": the sampled tree did better. "
    else:  # undecided where a rank is unknown
        said += ", but this tree is not in that order. " if found.complete else ". "
    said += (
        f"Ceiling: **{plural(found.ceiling, 'token')}**, what a chain of exactly the text that followed would commit. "
    )
    said += f"No tree of {plural(found.nodes, 'node')} can commit more of it, however it is drafted."
    return said + (f" {end_words(run)}" if found.ends else "")


def end_words(run: Run) -> str:
    """Why there is no more text to compare a tree with."""
    if run.can_continue:
        return "The run has no more text yet: decode further to see more."
    return {
        "end_of_text": "The text ends there.",
        "length": "The run ends there, at its length limit.",
        "unfinished": "The record ends there.",
    }[run.trace.totals.stopped]


def definition(found: Hindsight) -> str:
    """Definition of the best tree in hindsight."""
    unknown = sum(token.rank is None for token in found.followed)
    said = (
        "In the draft's own order: a tree may contain a child only with all its likelier siblings. The number of "
        "children may vary, so reaching depth d takes as many nodes as the ranks of the first d tokens sum to."
    )
    if unknown:
        said += f" Unknown for {plural(unknown, 'token')} (?): the draft never ran at that place in this run."
    return said


def _bar(found: Hindsight, place: int, index: int) -> charts.RankBar:
    """One of the tokens that followed, as the chart draws it."""
    token = found.followed[place]
    kind = "taken" if token.drafted else "possible" if place < found.best - 1 else "beyond"
    seen = "unknown" if token.seen_in is None else f"seen in iteration {token.seen_in + 1}"
    return charts.RankBar(token.text, token.rank, token.exact, kind, "in this tree" if token.seen_in == index else seen)


SLOT = "why_possible"
BUDGETS_HEIGHT, LOST_HEIGHT = 290, 190
LEFT_OUT = "logits not stored, a forced verdict, or decoded with another method before a fork"
FORCED = "A verdict was forced in this iteration: the recorded logits are the target's, not those that were tested."
NOT_OWN = (
    "Before a fork, this iteration used another verifier or temperature: see the run it was forked from for what "
    "smaller budgets would commit."
)


def draw_budgets(run: Run, index: int, costs: CostModel) -> None:
    """Tokens per second by budget; without the logits it needs, how to get them."""
    key, trace = ("budgets", run.key, index, costs.measured), trace_at(run, index)
    if needs_logits(trace) and not can_tell(trace, trace.iterations[index]):
        st.caption(
            "What smaller budgets would commit needs the full logits of this iteration, which were not stored: decode "
            "the run again."
        )
        return
    if needs_logits(trace):
        if key not in known_results():  # slow, so on a button
            st.caption("With this verifier every subtree has to be verified again, from the stored logits.")
            job_button(
                SLOT, "Find the best budget", "Verifying subtrees", lambda job: (key, budgets(trace, index, costs)),
                key="why_budget", icon=":material/functions:",
            )  # fmt: skip
            return
        found = known_results()[key]
    else:
        found = kept(key, lambda: budgets(trace, index, costs))
    if found is None:
        st.caption(FORCED if trace.iterations[index].forced_verdicts else NOT_OWN)
        return
    st.markdown(budget_words(found, trace.iterations[index]))
    line = charts.BudgetLine(tuple(found.tokens.tolist()), tuple(found.seconds.tolist()), found.best)
    exact = trace.sampling.temperature > 0
    chart(kept((*key, is_dark()), lambda: charts.budget_figure(line, is_dark(), exact)), "why_budgets", BUDGETS_HEIGHT)
    which = "the nodes sampled first" if needs_logits(trace) else "the nodes of highest path probability"
    tokens = "exact expectation over the verifier's draws" if exact else "what would have been committed (replayed)"
    seconds = "one target pass over the subtree and the draft levels it needs"
    seconds += f", modelled from {measured_on(costs)}"
    st.caption(escape_markdown(f"Subtrees: {which}. Tokens: {tokens}. Seconds: {seconds} ({costs.machine})."))


def usable_costs(run: Run) -> CostModel | None:
    """The measured costs of the pair in memory, if it decoded the run; else shows what to do."""
    models = manager()
    if models.info is not None and models.info.name != run.trace.pair.name:
        st.caption(
            escape_markdown(
                f"The best budget needs times measured with {run.trace.pair.name}, which decoded this run, but "
                f"{models.info.name} is in memory: load the run's pair with the button above."
            )
        )
        return None
    costs = models.costs_of(run.trace)
    if costs is not None:
        return costs
    if not torch_there():
        st.caption(escape_markdown(f"The best budget depends on the time of passes on this machine. {NEEDS_TORCH}"))
        return None
    st.caption("The best budget depends on the time of passes on this machine, which is not measured yet.")
    measure_button("Measure now", "why_measure", run.trace.draft_head)
    return None


def budget_words(budget: Budgets, iteration: IterationTrace) -> str:
    """What the iteration reached, the best subtree, and what the whole tree lost compared with it."""
    rates, best = budget.rates, plural(budget.best, "node")
    said = "**This iteration"
    if iteration.timed:
        rate = len(iteration.committed_ids) / iteration.times.total_s
        said += f", measured: {rate:.0f} tokens/s.** **This iteration, modelled"
    else:
        said += ", modelled"
    if budget.best == budget.nodes:
        return f"{said}: {rates[-1]:.0f} tokens/s**; the whole tree of {best} was the best budget."
    chosen = f"only its best {best}" if budget.best else "no drafting"
    whole = f"the whole tree of {plural(budget.nodes, 'node')} makes {rates[-1]:.0f}"
    whole += f", {budget.lost / rates[budget.best]:.0%} less"
    return f"{said}: {rates[budget.best]:.0f} tokens/s with {chosen}**; {whole}."


def draw_run_budgets(run: Run, index: int, costs: CostModel) -> None:
    """What the run lost by its budgets: at once where that is cheap, else on a button."""
    key = ("run_budgets", run.key, len(run.trace.iterations), costs.measured)
    whole, iterations = known_results().get(key), run.trace.iterations
    if whole is None:
        made = [trace_at(run, place) for place in range(len(iterations))]
        if any(
            each.verified and needs_logits(trace) and can_tell(trace, each)
            for trace, each in zip(made, iterations, strict=True)
        ):

            def find(job: ModelTask) -> tuple[tuple, RunBudgets] | None:
                found = run_budgets(run.trace, costs, job.proceed("iteration {} of {}"), made.__getitem__)
                return None if found is None else (key, found)

            title = "Budgets over the run"
            job_button(SLOT, "Over the run", title, find, key="why_run_budget", icon=":material/functions:")
            return
        whole = kept(key, lambda: run_budgets(run.trace, costs, made=made.__getitem__))
    if not whole.trees:
        st.caption(
            "What the run lost by its budgets is unknown: the full logits of its iterations were not stored, or they "
            "were decoded with another method before a fork."
        )
        return
    measured = draw_measured(run, [iterations[place] for place in whole.places])
    times = 1.0 if measured is None else whole.rate / measured
    st.markdown(run_words(whole, costs) + far_words(times, here=own_costs(run) is not None))
    lost = [each.lost for each in whole.each]
    figure = kept((*key, index, is_dark()), lambda: charts.lost_figure(whole.places, lost, index, is_dark()))
    chart(figure, "why_lost", LOST_HEIGHT)


def draw_measured(run: Run, counted: Sequence[IterationTrace]) -> float | None:
    """Tokens per second that iterations really made, beside what is modelled; None where they were not measured."""
    if not all(each.timed for each in counted):
        st.caption("The run itself was not measured: an iteration was replayed from recorded logits.")
        return None
    if not (counted := decoded(counted)):
        st.caption("Only the prompt has been read yet, so the run has no speed without prefill.")
        return None
    rate = sum(len(each.committed_ids) for each in counted) / sum(each.times.total_s for each in counted)
    here = own_costs(run) is not None
    where = "when it was decoded here" if here else "where it was recorded, which may be another machine"
    st.markdown(f"**Over the run, measured without prefill: {rate:.0f} tokens/s**, {where}.")
    return rate


def far_words(times: float, here: bool) -> str:
    """That a run was so many times slower or faster than modelled; empty where it was not by much.

    Args:
        here: it was decoded here, where its typical iterations took as long as modelled.
    """
    if 1 / SLOW < times < SLOW:
        return ""
    said = f" Measured it is {max(times, 1 / times):.1f} times {'slower' if times > 1 else 'faster'}"
    return f"{said}: {'some iterations were disturbed' if here else 'this machine is another, or has changed'}."


def run_words(whole: RunBudgets, costs: CostModel) -> str:
    """The run under other budgets."""
    cap = whole.best_cap
    at_most = f"at most {plural(cap, 'node')} in every iteration" if cap else "no drafting at all"
    said = (
        f"**Over the run, modelled: {whole.rate:.0f} tokens/s**; with the best budget for each iteration "
        f"{whole.best_rate:.0f}, with {at_most} {whole.capped_rate(cap):.0f}. For the same text, from "
        f"{measured_on(costs)}."
    )
    return said + (f" {plural(whole.left_out, 'tree')} left out: {LEFT_OUT}." if whole.left_out else "")

"""Everything that is drawn, written or asked of a run, once: what a file that opens must survive."""

import json
from collections.abc import Callable, Iterator

import plotly.graph_objects as go

from decoding.analysis.hindsight import hindsight, ranks_along
from decoding.analysis.luck import luck_of, run_luck
from decoding.common.errors import DraftscopeError
from decoding.diff import compare_runs, diff_lines
from decoding.trace.exports import iterations_csv, nodes_csv, perfetto_json
from decoding.trace.metrics import measure_run
from decoding.trace.records import RunTrace, node_paths
from viz.branches.diff import compare_trees, fork_measures, fork_summary, measures_html
from viz.charts import run as charts
from viz.charts.description import chart_sentence, chart_table
from viz.charts.hindsight import RankBar, ranks_figure, run_luck_figure, token_distribution_figure
from viz.explain.expansion import why_absent, why_not_expanded, why_pruned
from viz.explain.iteration import iteration_summary, residuals, why_final, why_not_faster, why_verdict
from viz.race.data import race_data
from viz.race.lanes import lane_of
from viz.scope.data import compact_data, film_data, make_frame, window_around
from viz.scope.export import tree_figure
from viz.scope.outline import outline_html, table_html, tables, tree_outline
from viz.scope.panels import cache_figure, mask_figure
from viz.scope.scene import build_scene
from viz.standalone import embedded_json, figures_html, scope_html

# Of runs with more, the first and the last ones; the page draws one iteration and explains one node at a time.
MOST_ITERATIONS, MOST_NODES = 2, 20


def draw_everything(run: RunTrace, beside: RunTrace) -> None:
    """All views of a run, of its iterations and of it beside another one, as text that a browser could read."""
    nodes_csv(run).encode()
    iterations_csv(run).encode()
    perfetto_json([run]).encode()
    for pair in ((run, run), (run, beside), (beside, run)):
        "".join(diff_lines(compare_runs(*pair), every=True)).encode()
    _allowed(lambda: json.dumps(race_data([lane_of(run), lane_of(beside)], "fuzz"), allow_nan=False))
    figures = list(_run_figures(run))
    if run.iterations:
        measure_run(run)
        why_not_faster(run, beside).encode()
        scope_html(run, len(run.iterations) - 1, node=1).encode()
    for place in _some(len(run.iterations), MOST_ITERATIONS):
        figures += _draw_iteration(run, place)
        if place < len(beside.iterations):
            first, second = run.iterations[place], beside.iterations[place]
            for pair in ((first, second), (second, first)):
                measures_html(fork_measures(*pair)).encode()
                fork_summary(*pair).encode()
                compare_trees(*pair).marks("A", "B")
        _ask_rows(run, place)
    for figure in figures:
        (chart_sentence(figure) + table_html(chart_table(figure))).encode()
    figures_html([("figure", figure, figure) for figure in figures], run.label).encode()


def _some(count: int, most: int) -> list[int]:
    """Places of the first and the last of so many things."""
    return [*range(min(count, most // 2)), *range(max(min(count, most // 2), count - most // 2), count)]


def _allowed(ask: Callable[[], object]) -> None:
    """What a page asks for that may answer with a sentence."""
    try:
        ask()
    except DraftscopeError as error:
        str(error).encode()


def _run_figures(run: RunTrace) -> Iterator[go.Figure]:
    yield charts.accepted_length_figure([run])
    yield charts.tokens_over_time([run])
    yield charts.phase_times_over_run(run)
    yield charts.adaptation_figure(run)
    yield charts.acceptance_by_depth([run])
    luck = run_luck(run)
    if luck.score is not None:
        yield run_luck_figure(luck.places, luck.tokens, luck.expected, luck.variances)


def _draw_iteration(run: RunTrace, place: int) -> Iterator[go.Figure]:
    iteration = run.iterations[place]
    window = window_around([len(each.nodes) for each in run.iterations], place)
    frames = [make_frame(run.iterations[place], "fuzz", place, run.label)]
    embedded_json(film_data(run, "fuzz", range(place, place + 1), frames, {})).encode()
    json.dumps([compact_data(iteration, scene_id="fuzz"), list(window)], allow_nan=False)
    iteration_summary(iteration).encode()
    outline_html(tree_outline(iteration)).encode()
    "".join(map(table_html, tables(iteration))).encode()
    if iteration.nodes:
        said = [why_final(iteration)]
        for node in _some(len(iteration.nodes), MOST_NODES):
            said += [why_verdict(iteration, node), why_not_expanded(iteration, node), why_pruned(iteration, node)]
            tokens = [token for token, _, _ in (*iteration.draft_top(node)[-2:], *iteration.target_top(node)[:2])]
            said += [why_absent(iteration, node, token) for token in tokens]
            json.dumps(residuals(iteration, node), allow_nan=False)
        " ".join(said).encode()
        found = hindsight(run, place, ranks_along(run))
        if found is not None:
            yield ranks_figure([RankBar(each.text, each.rank, each.exact, "possible", "") for each in found.followed])
        luck = luck_of(iteration)
        if luck is not None:
            yield token_distribution_figure(luck.probs, luck.tokens)
    yield tree_figure(build_scene(iteration, scene_id="fuzz"))
    yield cache_figure(iteration)
    yield mask_figure(iteration)
    yield charts.phase_times_figure(iteration)
    yield charts.run_strip_figure(run, place)


def _ask_rows(run: RunTrace, place: int) -> None:
    """What stored rows are asked for: other draws, all verifiers, and forks, none of which runs a model."""
    from decoding.analysis.luck import rerolled
    from decoding.replay.forks import ForkChange, fork
    from decoding.replay.stored_state import sampling_of
    from decoding.replay.theory import run_theory
    from decoding.trace.interventions import Interventions

    iteration = run.iterations[place]
    if iteration.target_logits is None:
        return
    changes = [ForkChange()]
    if iteration.verified:
        first = node_paths(iteration)[iteration.flatten_order[1]]
        changes += [
            ForkChange(interventions=Interventions(**{kind: (first,)})) for kind in ("force_out", "accept", "reject")
        ]
    for change in changes:
        _allowed(lambda change=change: fork(run, None, iteration.index, change, live=False))
    _allowed(lambda: rerolled(run, iteration.index, 5))
    _allowed(lambda: run_theory([iteration], sampling_of(run)))

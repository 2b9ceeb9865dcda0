"""Everything that is drawn or written of a run, once: what a file that opens must survive."""

import json

from decoding.diff import compare_runs
from decoding.diff_words import diff_lines
from decoding.perfetto import perfetto_json
from decoding.run_tables import iterations_csv, nodes_csv
from decoding.trace import RunTrace
from viz import charts
from viz.cache_figure import cache_figure
from viz.film import film_data, make_frame
from viz.mask_figure import mask_figure
from viz.scene import build_scene
from viz.scope_data import compact_data, scope_data
from viz.standalone import embedded_json
from viz.tree_figure import tree_figure


def draw_everything(run: RunTrace) -> None:
    """All figures of a run and of its first iteration, and the data of the scope as its browser gets it."""
    for draw in (charts.accepted_length_figure, charts.tokens_over_time):
        draw([run]).to_json(engine="json")
    for draw in (charts.phase_times_over_run, charts.adaptation_figure, charts.acceptance_by_depth):
        draw(run).to_json(engine="json")
    charts.times_summary(run)
    nodes_csv(run).encode()
    iterations_csv(run).encode()
    perfetto_json([run]).encode()
    "".join(diff_lines(compare_runs(run, run))).encode()
    if not run.iterations:
        return
    first = run.iterations[0]
    json.dumps(scope_data(run, 0), allow_nan=False)
    embedded_json(film_data(run, "fuzz", range(0, 1), [make_frame(first, "fuzz", 0, run.label)], {})).encode()
    json.dumps(compact_data(first, scene_id="fuzz"), allow_nan=False)
    scene = build_scene(first, scene_id="fuzz")
    of_first = (tree_figure(scene), cache_figure(first), mask_figure(first), charts.phase_times_figure(first))
    for figure in (*of_first, charts.run_strip_figure(run, 0)):
        figure.to_json(engine="json")

"""Whatever a file says, no figure takes it for markup: no link, no bold text that is not the program's own."""

from dataclasses import replace

from benchmarks.trace_drawing import _draw_iteration, _run_figures
from decoding.trace.records import HistoryTrace, RunTrace
from tests.helpers.traces import dynatree_recovered, run_of

LINK = '<a href="https://other.example">here</a>'


def hostile_run() -> RunTrace:
    """A link wherever a record holds text."""
    first = dynatree_recovered()
    moved = {LINK: 0.5, f"{LINK}2": 3}
    history = HistoryTrace(LINK, (0.5,), 0.5, 0.5, 0.1, moved, moved, LINK)
    nodes = tuple(replace(node, text=LINK, target_argmax_text=LINK, reason=LINK) for node in first.nodes)
    reported = {"nodes": nodes, "history": history, "texts": dict.fromkeys(first.texts, LINK), "bias": LINK}
    iteration = replace(first, committed_texts=(LINK,) * len(first.committed_ids), **reported)
    run = run_of([iteration, replace(iteration, index=1)])
    return replace(run, label=LINK, method=LINK, prompt_texts=(LINK,) * len(run.prompt_ids))


def test_no_text_of_a_file_is_markup_in_a_figure():
    run = hostile_run()
    figures = [*_run_figures(run), *_draw_iteration(run, 0)]
    assert len(figures) > 8
    for figure in figures:
        assert "<a" not in str(figure.to_dict()), figure.layout.title.text

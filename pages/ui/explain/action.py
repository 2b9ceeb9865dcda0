"""Why this action: what a selector of delayed trees saw at the root, and how every shape would have done."""

from functools import partial

import streamlit as st

from decoding.common.errors import NEEDS_TORCH
from decoding.common.formats import number
from decoding.trace.records import SelectorTrace
from pages.ui.common.charts import chart, is_dark
from pages.ui.common.errors import escape_markdown, torch_there
from pages.ui.common.state import Run, keep_result, known_results, own_pair, selected_iteration, trace_at
from pages.ui.common.worker import ModelTask, job_bar, job_button
from viz.charts.selector import (
    ActionMap,
    action_figure,
    action_map,
    action_sentence,
    action_table,
    scalar_rows,
    shape_words,
)
from viz.tables import Cell, html_table

SLOT = "why_action"
TREES, SEED = 8, 0
HEIGHT = 470


def draw_action(run: Run) -> None:
    """The map on the left; on the right what was chosen, beside what, and by what."""
    keep_result(SLOT)
    index = selected_iteration()
    iteration = run.trace.iterations[index]
    choice = iteration.selector
    if choice is None:
        st.caption("No selector was asked in this iteration: the shape is as it was set.")
        return
    found = known_results().get(("actions", run.key, index))
    left, right = st.columns([3, 2], gap="large")
    with right:
        shown = action_map(choice, found)
        st.html(f'<div class="why">{choice_html(choice, shown, iteration.times.total_s)}</div>')
        ask_for_trees(run, index, found is not None)
    with left:
        figure, sentence = action_figure(shown, is_dark()), action_sentence(shown)
        chart(figure, "why_actions", HEIGHT, sentence, partial(action_table, shown))


def choice_html(choice: SelectorTrace, shown: ActionMap, measured_s: float = 0) -> str:
    """The shapes that are marked, with tokens and time, and what the selector read.

    Args:
        measured_s: what the iteration took, in seconds; 0 where that is not known.
    """
    words = {"chosen": "Chosen", "static": "Best static", "best": "Best at this root"}
    rows = []
    for key, place in shown.marks.items():
        value, seconds = shown.at(key)
        tokens = "–" if shown.tokens is None else f"{shown.tokens[place]:.3f}"
        rows.append((f"{words[key]}: {shape_words(place)}", f"{value:.1f}", tokens, f"{1000 * seconds:.2f}"))
    heads = ("Shape", *(Cell(name, "number") for name in (shown.measure, "tokens", "ms")))
    if "best" in shown.marks:
        said = f"Expected tokens are exact over the verifier, means of {TREES} trees drawn at this root."
    elif choice.rule == "tokens":
        said = "Expected tokens are those that the selector predicts; it takes the shape with most per second."
    else:
        said = "The selector takes the most probable shape."
    timed = "Times are modelled (delayed tree expansion, Equation 11) from passes measured on this machine"
    timed += f", with {1000 * shown.asking_s:.2f} ms for asking the selector" if shown.asking_s else ", asking included"
    if measured_s:
        timed += f"; this iteration took {1000 * measured_s:.2f} ms as measured"
    if "static" in shown.marks:
        spared = ", and asks no selector" if shown.asking_s else ""
        timed += f". Best static is the one shape that does best where every root gets the same{spared}"
    read = html_table((), [(name, Cell(value, "number")) for name, value in scalar_rows(choice)])
    return (
        f'{html_table(heads, rows)}<p class="quiet">{compared(shown)}{said} {timed}.</p>'
        f"<h5>What the selector read, beside hidden states, and passes measured</h5>{read}"
    )


def compared(shown: ActionMap) -> str:
    """How the chosen shape does beside the others that are marked; empty where probabilities are drawn."""
    if shown.tokens is None:
        return ""
    value = shown.at("chosen")[0]
    said = []
    for key, name in (("static", "the best static shape"), ("best", "the best shape at this root")):
        if key in shown.marks and (other := shown.at(key)[0]) > 0:
            share = 100 * (value / other - 1)
            said.append(f"{number(abs(share), 1)}% {'above' if share >= 0 else 'below'} {name}")
    return f"Modelled, the chosen shape is {' and '.join(said)}. " if said else ""


def ask_for_trees(run: Run, index: int, done: bool) -> None:
    """A button that finds out how every shape does at this root."""
    if done:
        return
    if not torch_there():
        st.caption(escape_markdown(f"Trees drawn here would tell the best shape. {NEEDS_TORCH}"))
        return
    job_button(
        SLOT, "Find the best shape here", "Drawing trees", lambda job: find(run, index, job),
        key="why_best_action", icon=":material/search:",
        help=f"Draws {TREES} trees at this root that hold every shape, and runs the target over them",
    )  # fmt: skip
    job_bar(SLOT)


def find(run: Run, index: int, job: ModelTask) -> tuple[tuple, list[float]]:
    """Expected tokens of every shape at the root of an iteration; call it in the worker.

    Raises:
        DraftscopeError: the run's pair is not in memory and cannot be loaded.
    """
    from decoding.sampling.sampling import Sampling
    from decoding.training.selector_roots import tokens_of_actions

    pair, trace = own_pair(run.trace, job), trace_at(run, index)
    iteration = trace.iterations[index]
    sampled = iteration.sampling or trace.sampling
    sampling = Sampling(sampled.temperature, sampled.top_p, sampled.draft_temperature, SEED)
    tokens = [*trace.prompt_ids, *trace.output_ids][: iteration.prefix_length]
    verifier = str(trace.settings["verifier"])
    found = tokens_of_actions(pair, tokens, sampling, verifier, TREES)
    return ("actions", run.key, index), found.tolist()

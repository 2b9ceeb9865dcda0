"""What a run can be taken along as: pages of its own, tables, a timeline. Each file is made when it is asked for."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial

import plotly.graph_objects as go
import streamlit as st

from decoding.trace.exports import iterations_csv, nodes_csv, perfetto_json
from decoding.trace.records import IterationTrace, RunTrace
from pages.ui.common.downloads import download_button
from pages.ui.common.state import Run, selected_iteration, selected_node
from pages.ui.scope.run import film_state
from viz.charts import run as charts
from viz.scope.export import tree_figure, tree_graphml, tree_json
from viz.scope.panels import cache_figure, mask_figure
from viz.scope.scene import build_scene
from viz.standalone.page import figures_html, scope_html

SCOPE_KEY = "scope"


@dataclass(frozen=True)
class Shown:
    """What an export is about, read while its button is drawn: its file is made in a thread without a session.

    Attributes:
        index, node: the iteration and the node looked at.
        unfolded: nodes of each iteration whose folded children were asked for.
    """

    run: Run
    index: int = 0
    node: int | None = None
    unfolded: Mapping[int, tuple[int, ...]] = field(default_factory=dict)


@dataclass(frozen=True)
class Export:
    """One kind of file: its button, its name on disk, what makes it."""

    key: str
    label: str
    suffix: str
    mime: str
    icon: str
    help: str
    make: Callable[[Shown], str | bytes]
    of_tree: bool = False  # of the iteration on screen, which may have been recorded as a summary, without its tree


def export_buttons(run: Run) -> None:
    """A button per kind of file, in two columns."""
    shown = Shown(run, selected_iteration(), selected_node(), film_state(SCOPE_KEY, run).unfolded)
    places = st.columns(2, gap="small")
    for number, export in enumerate(EXPORTS):
        with places[number % 2]:
            download_button(
                export.label,
                partial(export.make, shown),
                f"{run.trace.method}-{run.key}{export.suffix}",
                export.mime,
                f"export_{export.key}",
                export.icon,
                disabled=not run.trace.iterations or (export.of_tree and not run.trace.iterations[shown.index].nodes),
                help=export.help,
                width="stretch",
            )


def scope_page(shown: Shown) -> str:
    """The scope at the iteration on screen as a page of its own; folds that were opened stay open."""
    return scope_html(shown.run.trace, shown.index, node=shown.node, unfolded=shown.unfolded)


def figures_page(shown: Shown) -> str:
    """Every figure of the run, and of the iteration on screen, on a page where each can be saved as a picture."""
    trace = shown.run.trace
    light, dark = (run_figures(trace, shown.index, dark) for dark in (False, True))
    figures = [(heading, figure, darker) for (heading, figure), (_, darker) in zip(light, dark, strict=True)]
    return figures_html(figures, f"{trace.label} · {trace.pair.name} · {trace.created[:10]}")


def run_figures(trace: RunTrace, index: int, dark: bool) -> list[tuple[str, go.Figure]]:
    """Headings and figures of iteration `index`, then of the whole run."""
    iteration, here = trace.iterations[index], f"iteration {index + 1}"
    scene = build_scene(iteration, scene_id="export", title=trace.label)
    figures = [
        (f"Draft tree, {here}", tree_figure(scene, dark=dark)),
        (f"Tree attention mask, {here}", mask_figure(iteration, dark)),
        (f"KV rows, {here}", cache_figure(iteration, dark)),
        (f"Time by phase, {here}", charts.phase_times_figure(iteration, dark)),
        ("Iterations of the run", charts.run_strip_figure(trace, index, dark)),
        ("Accepted tokens per iteration", charts.accepted_length_figure([trace], dark)),
        ("Acceptance by depth", charts.acceptance_by_depth(trace, dark)),
        ("Tokens over time", charts.tokens_over_time([trace], dark)),
        ("Time of each iteration by phase", charts.phase_times_over_run(trace, dark)),
    ]
    if any(each.history is not None for each in trace.iterations):
        figures.append(("History adaptation", charts.adaptation_figure(trace, dark)))
    return figures


def _tree(shown: Shown) -> IterationTrace:
    return shown.run.trace.iterations[shown.index]


def _for_spreadsheets(text: str) -> bytes:
    return text.encode("utf-8-sig")  # without the mark, spreadsheets take it for another encoding


EXPORTS = (
    Export(
        "scope", "Scope, HTML", "-scope.html", "text/html", ":material/account_tree:",
        "What is on screen as a page of its own, with the iterations around it: phases, nodes and iterations can be "
        "stepped through offline, in any browser.",
        scope_page,
    ),
    Export(
        "figures", "Figures, SVG", "-figures.html", "text/html", ":material/bar_chart:",
        "A page with every figure of the run; each has buttons that save it as SVG or PNG. The tree itself is also "
        "saved from the scope's own svg and png buttons.",
        figures_page,
    ),
    Export(
        "nodes", "Nodes, CSV", "-nodes.csv", "text/csv", ":material/table:",
        "One line per node. A token that a spreadsheet would take for a formula gets an apostrophe in front.",
        lambda shown: _for_spreadsheets(nodes_csv(shown.run.trace)),
    ),
    Export(
        "iterations", "Iterations, CSV", "-iterations.csv", "text/csv", ":material/table_rows:",
        "One line per iteration: counts, measured seconds of each phase, cache rows, settings in force.",
        lambda shown: _for_spreadsheets(iterations_csv(shown.run.trace)),
    ),
    Export(
        "timeline", "Timeline, JSON", "-timeline.json", "application/json", ":material/timeline:",
        "The measured times of iterations, phases and draft passes, for ui.perfetto.dev or chrome://tracing.",
        lambda shown: perfetto_json([shown.run.trace]),
    ),
    Export(
        "graphml", "Tree, GraphML", "-tree.graphml", "application/xml", ":material/graph_2:",
        "The draft tree on screen with all that is recorded of its nodes, for Gephi, yEd or networkx.",
        lambda shown: tree_graphml(_tree(shown)), of_tree=True,
    ),
    Export(
        "tree_json", "Tree, JSON", "-tree.json", "application/json", ":material/data_object:",
        "The same as node-link JSON, which networkx and D3 read.",
        lambda shown: tree_json(_tree(shown)), of_tree=True,
    ),
)  # fmt: skip

"""Save or export the run on screen, open another, compare with another. A bad file changes nothing."""

import io
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from urllib.parse import urlsplit

import plotly.graph_objects as go
import streamlit as st

from decoding.common.errors import TraceFileError
from decoding.common.formats import byte_size, plural
from decoding.diff import RunDiff, compare_runs, diff_lines, parting_words
from decoding.trace.exports import iterations_csv, nodes_csv, perfetto_json
from decoding.trace.records import IterationTrace, RunTrace
from decoding.trace.run_file import MAX_ROW_BYTES, load_run, save_run
from pages.ui.app.links import Link
from pages.ui.common.downloads import download_button
from pages.ui.common.errors import escape_markdown, show_error, torch_there
from pages.ui.common.run_store import DISK_BYTES, SWITCH, store, switched_off
from pages.ui.common.state import ON_DISK, Run, current_run, keep_run, selected_iteration, selected_node
from pages.ui.scope.run import film_state
from pages.ui.widgets.controls import SAMPLING, set_method
from viz.charts import run as charts
from viz.scope.export import tree_figure, tree_graphml, tree_json
from viz.scope.panels import cache_figure, mask_figure
from viz.scope.scene import build_scene
from viz.standalone import figures_html, scope_html


@dataclass(frozen=True)
class ExportContext:
    """What an export needs, read while its button is drawn: its file is made in a thread without a session.

    Attributes:
        index, node: the selected iteration and node.
        unfolded: nodes of each iteration whose children have been unfolded.
    """

    run: Run
    index: int = 0
    node: int | None = None
    unfolded: Mapping[int, tuple[int, ...]] = field(default_factory=dict)


@dataclass(frozen=True)
class Export:
    """One kind of file: its button, its name on disk, the function that makes it."""

    key: str
    label: str
    suffix: str
    mime: str
    icon: str
    help: str
    make: Callable[[ExportContext], str | bytes]
    of_tree: bool = False  # of the iteration on screen, which may have been recorded without its tree


def export_buttons(run: Run) -> None:
    """A button per kind of file, in two columns."""
    shown = ExportContext(run, selected_iteration(), selected_node(), film_state(run).unfolded)
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


def figures_page(shown: ExportContext) -> str:
    """One page with every figure of the run and of the iteration on screen, each with a save button."""
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
        (f"KV slots, {here}", cache_figure(iteration, dark)),
        (f"Time by phase, {here}", charts.phase_times_figure(iteration, dark)),
        ("Iterations of the run", charts.run_strip_figure(trace, index, dark)),
        ("Accepted tokens per iteration", charts.accepted_length_figure([trace], dark)),
        ("Acceptance by depth", charts.acceptance_by_depth([trace], dark)),
        ("Tokens over time", charts.tokens_over_time([trace], dark)),
        ("Time of each iteration by phase", charts.phase_times_over_run(trace, dark)),
    ]
    if any(each.history is not None for each in trace.iterations):
        figures.append(("History adaptation", charts.adaptation_figure(trace, dark)))
    return figures


def _tree(shown: ExportContext) -> IterationTrace:
    return shown.run.trace.iterations[shown.index]


def _for_spreadsheets(text: str) -> bytes:
    return text.encode("utf-8-sig")  # without the byte order mark, spreadsheets guess another encoding


EXPORTS = (
    Export(
        "scope", "Scope, HTML", "-scope.html", "text/html", ":material/account_tree:",
        "The view on screen and the iterations around it as a standalone page: step through phases, nodes and "
        "iterations offline, in any browser.",
        lambda shown: scope_html(shown.run.trace, shown.index, node=shown.node, unfolded=shown.unfolded),
    ),
    Export(
        "figures", "Figures, SVG", "-figures.html", "text/html", ":material/bar_chart:",
        "A page with every figure of the run; each has buttons that save it as SVG or PNG. The scope's own svg and "
        "png buttons save the tree alone.",
        figures_page,
    ),
    Export(
        "nodes", "Nodes, CSV", "-nodes.csv", "text/csv", ":material/table:",
        "One row per node. A token that a spreadsheet would read as a formula gets a leading apostrophe.",
        lambda shown: _for_spreadsheets(nodes_csv(shown.run.trace)),
    ),
    Export(
        "iterations", "Iterations, CSV", "-iterations.csv", "text/csv", ":material/table_rows:",
        "One row per iteration: counts, measured seconds of each phase, KV cache slots, settings in force.",
        lambda shown: _for_spreadsheets(iterations_csv(shown.run.trace)),
    ),
    Export(
        "timeline", "Timeline, JSON", "-timeline.json", "application/json", ":material/timeline:",
        "The measured times of iterations, phases and draft passes, for ui.perfetto.dev or chrome://tracing.",
        lambda shown: perfetto_json([shown.run.trace]),
    ),
    Export(
        "graphml", "Tree, GraphML", "-tree.graphml", "application/xml", ":material/graph_2:",
        "The draft tree on screen with everything recorded about its nodes, for Gephi, yEd or networkx.",
        lambda shown: tree_graphml(_tree(shown)), of_tree=True,
    ),
    Export(
        "tree_json", "Tree, JSON", "-tree.json", "application/json", ":material/data_object:",
        "The same tree as node-link JSON, for networkx and D3.",
        lambda shown: tree_json(_tree(shown)), of_tree=True,
    ),
)  # fmt: skip


SUFFIX = "dscope"
ERROR = "file_error"
RIVAL, DIFF, DIFF_OF = "file_rival", "file_diff", "file_diff_of"
WITH_ROWS = "save_with_rows"
KEEP = "keep_on_disk"


def file_menu(link: Link) -> None:
    """A popover to save, export, open and compare runs; `link` leads to the view on screen."""
    run = current_run()
    with st.popover("File", key="file_open", icon=":material/folder_open:"), st.container(width=760):
        out, into = st.columns(2, gap="medium")
        with out:
            st.markdown("**Save this run**")
            _save_button(run)
            st.markdown("**Export**")
            if run is not None:
                export_buttons(run)
        with into:
            st.markdown("**Open**")
            st.file_uploader(
                "Open a saved run", type=[SUFFIX], key="open_run", on_change=_open,
                help="Replaces the run on screen; needs no models.",
            )  # fmt: skip
            st.markdown("**Compare**")
            st.file_uploader(
                "Compare with another saved run", type=[SUFFIX], key="compare_run", on_change=_compare,
                help="Lists the differences: output, settings, trees, totals. The run on screen stays.",
            )  # fmt: skip
            _keep_switch(run)
        where = "It opens this very run while this server has it; elsewhere the run is decoded again."
        st.markdown("**Link to this view**", help=f"Contains prompt, settings, run, iteration and node. {where}")
        if link.lacks:
            st.caption(escape_markdown(link.lacks))
        else:
            st.code(f"{st.context.url or ''}?{link.query}", language=None, wrap_lines=True)
            if urlsplit(st.context.url or "").hostname in ("localhost", "127.0.0.1", "::1"):
                st.caption("It opens on this machine only. For another one, save the run and send the file.")


def file_messages() -> None:
    """Why the last file could not be opened, if so, and how the run compares with the chosen one."""
    error = st.session_state.get(ERROR)
    if error is not None:
        show_error(error)
    run = current_run()
    if run is not None and run.unkept:
        st.warning(escape_markdown(run.unkept), icon=":material/save:")
    if st.session_state.get(RIVAL) is None or run is None:
        return
    name, rival = st.session_state[RIVAL]
    shown = (run.key, len(run.trace.iterations), rival)
    if st.session_state.get(DIFF_OF) != shown:
        st.session_state[DIFF_OF], st.session_state[DIFF] = shown, compare_runs(run.trace, rival)
    diff: RunDiff = st.session_state[DIFF]
    with st.container(key="file_comparison", horizontal=True, vertical_alignment="center", gap="small"):
        words = escape_markdown(f"A is the run on screen, B is {name}. {parting_words(diff)}")
        st.info(words, icon=":material/difference:", width="stretch")
        with st.popover("Differences", key="file_comparison_open"), st.container(width=820):
            st.code("\n".join(diff_lines(diff, "the run on screen", name)), language=None, height=460, wrap_lines=True)
        st.button("Close", key="file_comparison_close", on_click=_keep_rival, args=(None,), icon=":material/close:")


def run_bytes(run: Run, with_rows: bool) -> bytes:
    """A run as the bytes of its file, with or without the raw logits; called in a thread without a session."""
    buffer = io.BytesIO()
    save_run(run.trace if with_rows else run.trace.without_logits(), buffer)
    return buffer.getvalue()


def _save_button(run: Run | None) -> None:
    """Saves the run, with its raw logits where they are stored, fit into a file and are requested."""
    held = [each.logits_bytes for each in run.trace.iterations if each.target_logits is not None] if run else []
    fits, with_rows = sum(held) <= MAX_ROW_BYTES, False
    if held:
        with_rows = st.toggle(
            f"With the full logits of {plural(len(held), 'iteration')}",
            key=WITH_ROWS,
            disabled=not fits,
            help="Needed to replay other verifiers when the file is opened; makes the file much larger.",
        )
        with_rows = with_rows and fits
    if not fits:
        sizes = f"take {byte_size(sum(held))}, more than the {byte_size(MAX_ROW_BYTES)} that fit into a file"
        st.caption(f"The full logits {sizes}: decode fewer tokens to save them.")
    download_button(
        "Run, .dscope",
        partial(run_bytes, run, with_rows),
        f"{run.trace.method if run else 'run'}-{run.key if run else ''}.{SUFFIX}",
        "application/octet-stream",
        "save_run",
        disabled=run is None or not run.trace.iterations,
        help="One file with every iteration; opens without the models.",
        width="stretch",
    )


def _keep_switch(run: Run | None) -> None:
    """Whether the run is there again after the server ends; off, its file is deleted."""
    if run is None or run.source == "recorded":
        return

    def turned() -> None:
        run.on_disk = st.session_state[ON_DISK] = st.session_state[KEEP]
        if run.on_disk:
            store().put(run)
        else:
            store().forget(run)

    st.markdown("**Keep**")
    off = switched_off()
    st.session_state[KEEP] = run.on_disk and not off
    st.toggle(
        "Keep this run on this machine",
        key=KEEP,
        disabled=off,
        on_change=turned,
        help=f"{SWITCH}=off keeps every run out of the disk."
        if off
        else "Its file brings it back under its address after the server ends. Off: the file is deleted, and your next "
        f"runs here are not written either. Together files take at most {byte_size(DISK_BYTES)}; those not opened for "
        "longest are deleted first.",
    )


def _keep_rival(rival: tuple[str, RunTrace] | None) -> None:
    """Compare with this run from now on; drops the previous one, which may hold many logits."""
    st.session_state[RIVAL] = rival
    for kept in (DIFF_OF, DIFF):
        st.session_state.pop(kept, None)


def _open() -> None:
    """Put an uploaded run on screen; the current one stays if the file is damaged or of another program."""
    trace = _uploaded("open_run")
    if trace is not None:
        keep_run(Run(trace, "opened"))
        _take_choices(trace)


def _take_choices(trace: RunTrace) -> None:
    """Put the prompt, method and sampling of an opened run into the widgets, as far as this program knows them."""
    if not torch_there():
        return
    from decoding.replay.stored_state import method_of, sampling_of, unknown_words

    if unknown_words(trace):
        return
    set_method("method", method_of(trace))
    for name in SAMPLING:
        st.session_state[f"sampling_{name}"] = getattr(sampling_of(trace), name)
    st.session_state["max_new_tokens"] = trace.max_new_tokens
    # A special token or a part of a character is no text to type.
    if not any(text[:1] == "<" and text[-1:] == ">" for text in trace.prompt_texts):
        st.session_state["prompt_text"] = "".join(trace.prompt_texts)


def _compare() -> None:
    """Compare an uploaded run with the one on screen; removing the file ends the comparison."""
    trace = _uploaded("compare_run")
    _keep_rival(None if trace is None else (st.session_state["compare_run"].name, trace))


def _uploaded(key: str) -> RunTrace | None:
    """The run in an uploaded file; if there is none, the reason is stored for `file_messages`."""
    upload = st.session_state[key]
    st.session_state[ERROR] = None
    try:
        return None if upload is None else load_run(upload)
    except TraceFileError as error:
        st.session_state[ERROR] = error
        return None

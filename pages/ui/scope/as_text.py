"""What the views show as text, for a screen reader or to copy: an iteration and a run.

as_text(run)        # an expander below the scope; nothing is built before it is opened
"""

from collections.abc import Sequence

import streamlit as st

from decoding.trace.metrics import measure_run
from decoding.trace.records import RunTrace
from pages.ui.common.charts import STYLE
from pages.ui.common.downloads import download_button
from pages.ui.common.state import Run, selected_iteration
from viz.explain.iteration import iteration_summary
from viz.formats import duration, part_of
from viz.scope.outline import NOT_RECORDED, Table, outline_html, outline_text, table_html, tables, tree_outline

PARTS = ("Tree", "Panels", "Run")


def as_text(run: Run, key: str = "as_text") -> None:
    """The selected iteration and the run in words and tables."""
    box = st.expander("As text", key=key, icon=":material/notes:", on_change="rerun")
    if not box.open:
        return
    iteration = run.trace.iterations[selected_iteration()]
    with box:
        part = st.segmented_control(
            "Part", PARTS, default=PARTS[0], key=f"{key}_part", required=True, label_visibility="collapsed"
        )
        if part == "Run":
            _draw((run_table(run.trace), iterations_table(run.trace)))
        elif part == "Panels":
            _draw(tables(iteration))
        else:
            st.text(iteration_summary(iteration))
            lines = tree_outline(iteration)
            if not lines:
                st.caption(NOT_RECORDED)
                return
            st.html(f'{STYLE}<div class="as-text">{outline_html(lines)}</div>')
            name = f"iteration-{iteration.index + 1}.txt"
            download_button("Save as a text file", outline_text(iteration), name, "text/plain", f"{key}_save")


def _draw(parts: Sequence[Table]) -> None:
    """Tables beside one another where there is room."""
    st.html(f'{STYLE}<div class="as-text-tables">{"".join(map(table_html, parts))}</div>')


def run_table(run: RunTrace) -> Table:
    """The figures of a whole run, with their denominators."""
    measured = measure_run(run)
    totals = run.totals
    rows = [
        ("Method", run.label),
        ("Pair", f"{run.pair.name}, {run.pair.target.device}, {run.pair.target.dtype}"),
        ("Prompt", f"{len(run.prompt_ids):,} tokens"),
        ("New tokens", f"{totals.new_tokens:,} of at most {run.max_new_tokens:,}"),
    ]
    if measured is not None:
        rows += [
            ("Iterations", f"{measured.iterations:,}"),
            ("Tokens per iteration", f"{measured.tokens_per_iteration:.2f}"),
            ("Accepted / drafted", part_of(measured.accepted, measured.drafted)),
            ("Accepted / verified", part_of(measured.accepted, measured.verified)),
            ("Draft forwards, target passes", f"{measured.draft_forwards:,}, {measured.target_passes:,}"),
        ]
    if run.bias:
        rows.append(("Law of the text", run.bias))
    if not run.timed:
        rows.append(("Times", "not measured: an iteration was replayed from stored rows"))
    elif totals.wall_s > 0:
        rows += [
            ("Wall time of the call", duration(totals.wall_s)),
            ("Prefill", duration(totals.prefill_s)),
            ("Tokens/s, prefill included", f"{totals.new_tokens / totals.wall_s:.1f}"),
        ]
    hardware = ", ".join(f"{name} {value}" for name, value in run.hardware.items() if value)
    return Table("The run", ("Figure", "Value"), tuple(rows), f"Times are measured on: {hardware}.")


def iterations_table(run: RunTrace) -> Table:
    """One row per iteration of a run."""
    rows = [
        (
            str(each.index + 1), str(each.drafted), str(each.verified), str(len(each.accepted)), each.final_kind,
            str(len(each.committed_ids)), duration(each.times.total_s) if each.timed else "–",
        )
        for each in run.iterations
    ]  # fmt: skip
    heads = ("Iteration", "Drafted", "Verified", "Accepted", "Final token", "Committed", "Time")
    return Table("Iterations", heads, tuple(rows))

"""The view of one experiment: its entry in the list, its grid, the best setting and how certain it is, its charts, and
the runs that a click on them selects.
"""

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
import plotly.graph_objects as go
import streamlit as st

from decoding.analysis.bottom_line import BottomLine, Interval, Option, bottom_line
from decoding.common.formats import plural
from decoding.experiments.estimates import (
    BASE,
    CONDITIONS,
    FEWEST,
    PREFIX,
    Ranked,
    aggregated,
    axes,
    best_words,
    cells,
    ranked,
    source_of,
    sources_of,
)
from decoding.experiments.experiment import ExperimentWatcher
from decoding.papers.paper_result import SPEEDUP
from decoding.trace.metrics import Counting
from pages.ui.common.charts import CHART_CONFIG, counted_words, counting_switch, is_dark, numbers_popover
from pages.ui.common.errors import escape_markdown
from pages.ui.jobs import JobPage
from pages.ui.sweep.runs import RUN_WORDS, draw_engine_button, draw_picked, pick, run_words, table_height
from pages.ui.sweep.sentences import (
    CONDITION_WORDS,
    FIGURES,
    LESS_IS_BETTER,
    asked_words,
    axis_of,
    base_label,
    short_title,
    with_labels,
)
from pages.ui.widgets.controls import settings_popover
from viz.charts.sweeps import (
    MOST_SERIES,
    Axis,
    Measure,
    cells_sentence,
    cells_table,
    every_run,
    heat_map,
    lines_over,
    parallel,
    value_words,
)
from viz.explain.bottom_line import bottom_line_words
from viz.scope.outline import Table

PAGE = JobPage(
    "sweep", "sweep", "experiment",
    none_yet="No sweep has run on this machine yet. Every sweep you start appears in this list.",
    stop="Ends shortly; results are stored, and Resume runs the rest.",
    resume="Runs what is missing; no run is repeated.",
    delete="Deletes its results and its grid from this machine.",
)  # fmt: skip
STYLE = Path(__file__).with_suffix(".css")
CHARTS_S = 5.0  # redraw interval of charts while results arrive
MOST_METHODS = 4
ALL = "all"
KEPT, TABLE, COUNTED = "sweep_ranked", "sweep_best_table", "sweep_counted"
SHARED_HELP = (
    "By the mean over prompts, on prompts, lengths and samplings that all settings share; on a single prompt, over its "
    "repeats."
)
NOT_DRAFTING = ("autoregressive", "hf_generate", "hf_static")
HIGH_HELP = (
    "95% bootstrap interval over prompts: where the mean over other prompts of this kind would lie. On one prompt: "
    "of its repeats (Student's t), which says nothing of other prompts."
)
CHANCE_HELP = (
    "Share of 2,000 resamples of the prompts (of the repeats of a single one), with replacement, in which it is best."
)
HEAT, LINES, PARALLEL, RUNS = "Heat map", "Lines", "Parallel coordinates", "Every run"
NO_SERIES = ""
MOST_DIMENSIONS = 6
MOST_POINTS = 4000


def entry_words(followed: ExperimentWatcher) -> list[str]:
    """The number of results."""
    status = followed.stand.status
    if not status.total:
        return []
    return [f"{status.done:,} runs" if status.done == status.total else f"{status.done:,} of {status.total:,} runs"]


def draw_experiment(followed: ExperimentWatcher) -> None:
    """Header, the best setting, charts; for one pair on one machine: results of several are never mixed."""
    PAGE.draw_header(followed)
    sources = sources_of(followed.rows())
    source = next(iter(sources), None)  # the newest
    if len(sources) > 1:
        key = f"sweep_source_{followed.key}"
        source = st.selectbox("Results from", sources, key=key, persist_state="session", width=760)
    counting: Counting = st.session_state.get(COUNTED, "loop_free")
    rows, runs = _rows(followed, source, counting)
    _draw_asked(followed, rows)
    with st.container(key="sweep_counting", horizontal=True, vertical_alignment="center", gap="small"):
        counting_switch(COUNTED, "loop_free")
        st.caption(escape_markdown(counting_words(rows, runs, counting)), width="stretch")
    if not len(runs):
        icon = ":material/hourglass_top:" if followed.stand.running else ":material/info:"
        words = "No result was stored: see its last output under Output; Resume starts it again."
        if followed.stand.running:
            words = "Charts appear with the first results: the first run warms up each method."
        elif len(rows):
            words = "No run has a figure of loop-free text yet: count whole texts, or run more prompts."
        st.info(words, icon=icon)
        return
    figures = [name for name in FIGURES if name in runs and runs[name].notna().any()]
    with st.container(horizontal=True, vertical_alignment="bottom", key="sweep_choice"):
        column = st.selectbox(
            "Figure", figures, key=f"sweep_figure_{followed.key}", width=230, label_visibility="collapsed",
            format_func=lambda name: FIGURES[name].words, persist_state="session",
        )  # fmt: skip
        chosen = draw_filter(followed, runs)
    if not len(chosen):
        st.info("No run matches this selection: show more runs.", icon=":material/filter_alt_off:")
        return
    draw_best(followed, chosen, FIGURES[column])
    draw_charts(followed, chosen, FIGURES[column])


def counting_words(rows: pd.DataFrame, runs: pd.DataFrame, counting: Counting) -> str:
    """How many tokens a run counts on average, and which runs hold only the other way of counting."""
    if not len(runs):
        return ""
    asked = int(runs["asked_tokens"].mean())
    words = counted_words(runs["new_tokens"].mean(), asked, counting)
    left_out = int((rows["failure"].isna() & ~rows["reference"].astype(bool)).sum()) - len(runs)
    if left_out:
        repeats = plural(left_out, "run repeats its text", "runs repeat their texts")
        words += f"; {repeats} from the start and hold{'s' * (left_out == 1)} whole texts only"
    return words


def _rows(followed: ExperimentWatcher, source: str | None, counting: Counting) -> tuple[pd.DataFrame, pd.DataFrame]:
    """The results of a source, and the runs behind the figures; refreshed every few seconds while results arrive."""
    kept_of, whole, rows, runs, made_s = st.session_state.get("sweep_shown", (None, None, None, None, 0.0))
    shown = (followed.folder, source, counting)
    same = kept_of == shown
    if same and followed.stand.running and time.monotonic() - made_s < CHARTS_S:
        return rows, runs
    found = followed.rows()
    if not same or found is not whole:
        rows = found if source is None else found[source_of(found) == source]
        runs = with_labels(aggregated(rows, counting))
        st.session_state["sweep_shown"] = shown, found, rows, runs, time.monotonic()
    return rows, runs


def _draw_asked(followed: ExperimentWatcher, rows: pd.DataFrame) -> None:
    """The grid, the machine it was measured on, and the failures."""
    for said in followed.troubles:
        st.error(escape_markdown(f"{said} All other results are shown."), icon=":material/error:")
    lines = asked_words(followed.asked)
    methods, shown = lines[:-1], lines[-1:]
    if methods:
        more = [f"and {plural(len(methods) - MOST_METHODS, 'more method')}"] if len(methods) > MOST_METHODS else []
        shown.insert(0, "; ".join([*methods[:MOST_METHODS], *more]))
    if len(rows):
        shown.append("; ".join(sources_of(rows)))
    if shown:
        with st.container(key="sweep_asked"):
            st.caption("  \n".join(map(escape_markdown, shown)))
    failed = rows["failure"].dropna()
    if len(failed):
        said = failed.value_counts().index[0]
        words = f"{plural(len(failed), 'run')} failed and are left out, most often: {said}"
        st.warning(escape_markdown(words), icon=":material/report:")


def draw_filter(followed: ExperimentWatcher, runs: pd.DataFrame) -> pd.DataFrame:
    """A popover with a choice per varied condition; returns the matching runs."""
    offered = {name: values for name, values in axes(runs).items() if name in (BASE, *CONDITIONS, "kind")}
    if not offered:
        return runs
    picked = {name: st.session_state.get(_key(followed, name), ALL) for name in offered}
    said = [f"{axis_of(name).words} {_value_words(name, value)}" for name, value in picked.items() if value != ALL]
    label = ", ".join(said) or "All runs"
    with settings_popover(escape_markdown(label), "sweep_filter", ":material/filter_alt:") as place:
        if place.open:
            with st.container(width=320):
                for name, values in offered.items():
                    words = axis_of(name).words
                    st.selectbox(
                        words[0].upper() + words[1:], [ALL, *values], key=_key(followed, name), persist_state="session",
                        format_func=lambda value, name=name: "all" if value == ALL else _value_words(name, value),
                    )  # fmt: skip
    for name, value in picked.items():
        if value in offered[name]:
            runs = runs[runs[name] == value]
    return runs


def _value_words(name: str, value: object) -> str:
    return base_label(value) if name == BASE else value_words(value)


def _key(followed: ExperimentWatcher, name: str) -> str:
    return f"sweep_only_{followed.key}_{name}"


def draw_best(followed: ExperimentWatcher, runs: pd.DataFrame, measure: Measure) -> None:
    """The bottom line, a sentence on the setting best by the figure, and a table of the top ones with their intervals.

    The rankings are computed once for the same runs and figure.
    """
    own = runs[["key", "started", "new_tokens"]]  # the same run has the same key in every experiment
    kept_of, kept_measure, found, fast = st.session_state.get(KEPT, (None, None, [], []))
    if kept_of is None or kept_measure != measure or not kept_of.equals(own):
        found = ranked(runs, measure.column, measure.column not in LESS_IS_BETTER)
        fast = found if measure.column == SPEEDUP.column else ranked(runs, SPEEDUP.column)
        st.session_state[KEPT] = own, measure, found, fast
    with st.container(border=True, key="sweep_part_best"):
        where = f"on {runs['machine'].iloc[0].partition(',')[0]}" if followed.shipped else "on this machine"
        with st.container(key="sweep_best_words", gap="small"):
            if fast:
                line = decided(fast, base_label(followed.asked["reference"]))
                these = "this prompt" if fast[0].per == "repeat" else "these prompts"
                said = bottom_line_words(line, f"for {these} {where}")
                with st.container(horizontal=True, vertical_alignment="center", gap="small"):
                    st.markdown(f"**Bottom line** · {escape_markdown(said)}", help=SHARED_HELP, width="stretch")
                    if line is not None and line.verdict != "plain":
                        draw_engine_button(followed, runs, fast, line.best.label)
            if found is not fast:
                words = best_words(found, measure.words, measure.scale, measure.digits)
                st.markdown(f"**Best by this figure** · {escape_markdown(words)}", help=SHARED_HELP)
        if len(found) > 1:
            _draw_ranking(followed, found, measure, runs.groupby("way")["new_tokens"].mean())


def decided(found: Sequence[Ranked], plain: str) -> BottomLine | None:
    """The bottom line of settings ranked by their speed over a reference."""

    def place(each: Ranked, number: int) -> tuple[int, int]:
        return (number, 0) if each.per == "prompt" else (0, number)

    options = [
        Option(
            each.label, Interval(each.figure.value, each.figure.low, each.figure.high, each.figure.prompts, each.per),
            speculates=each.way.partition("@")[0].partition(":")[0] not in NOT_DRAFTING,
            speeds={place(each, number): value for number, value in enumerate(each.values)},
        )
        for each in found
    ]  # fmt: skip
    return bottom_line(options, plain)


def _draw_ranking(followed: ExperimentWatcher, found: list[Ranked], measure: Measure, tokens: pd.Series) -> None:
    key, few, per = f"{TABLE}_{followed.key}_{measure.column}", found[0].figure.prompts < FEWEST, found[0].per

    def take() -> None:
        rows = st.session_state[key]["selection"]["rows"]
        pick(followed, {"way": found[rows[0]].way} if rows else None, found[rows[0]].label if rows else "")

    def shown(value: float) -> str:
        return f"{measure.scale * value:,.{measure.digits}f}"

    frame = {
        "Method": [each.label for each in found],
        measure.words: [shown(each.figure.value) for each in found],
        "95% interval": [f"few {per}s" if few else f"{shown(each.figure.low)} to {shown(each.figure.high)}"
                         for each in found],
        "Best in": ["–" if few else f"{each.chance:.0%}" for each in found],
        f"{per.capitalize()}s": [each.figure.prompts for each in found],
        "Tokens per run": [f"{tokens[each.way]:,.0f}" for each in found],
    }  # fmt: skip
    st.dataframe(
        pd.DataFrame(frame), key=key, hide_index=True, on_select=take, selection_mode="single-row",
        height=table_height(len(found)),
        column_config={"Method": st.column_config.Column(width="large"),
                       "95% interval": st.column_config.Column(help=HIGH_HELP),
                       "Best in": st.column_config.Column(help=CHANCE_HELP)},
        alt=f"Methods ranked by {measure.words}, the best first.",
    )  # fmt: skip


def draw_charts(followed: ExperimentWatcher, runs: pd.DataFrame, measure: Measure) -> None:
    """The chosen chart with its options and, behind a button, its numbers; then the runs behind the selection."""
    varied = axes(runs)
    runs = runs.assign(**{BASE: runs[BASE].map(base_label)})
    with st.container(border=True, key="sweep_chart_panel", gap="small"):
        kind, x, y = _choose(followed, runs, varied)
        figure, sentence, table = _chart(kind, runs, measure, x, y, varied)
        key = f"sweep_chart_{followed.key}_{kind}"

        def take() -> None:
            columns = [each.column for each in (x, y) if each is not None]
            place = picked_place(st.session_state[key]["selection"]["points"], kind, columns)
            place_words = [f"{axis_of(name).words} {value}" for name, value in (place or {}).items()]
            pick(followed, place, "" if kind == RUNS else ", ".join(place_words))

        with st.container(key="sweep_chart_described", gap=None):
            more = {} if kind == PARALLEL else {"on_select": take, "selection_mode": "points"}
            st.plotly_chart(figure, theme=None, key=key, config=CHART_CONFIG, alt=sentence, **more)
            numbers_popover("sweep", sentence, lambda: table)
        st.caption(escape_markdown(_averaged_words(kind, runs, x, y)))
    draw_picked(followed, runs, measure)


def picked_place(points: Sequence[Mapping[str, Any]], kind: str, columns: Sequence[str]) -> dict[str, Any] | None:
    """The values of a clicked point; None where nothing is clicked."""
    data = points[0].get("customdata") if points else None
    if not data:
        return None
    values = list(data.values()) if isinstance(data, Mapping) else list(data)
    return {"key": values[0]} if kind == RUNS else dict(zip(columns, values, strict=False))


def _choose(
    followed: ExperimentWatcher, runs: pd.DataFrame, varied: Mapping[str, tuple]
) -> tuple[str, Axis | None, Axis | None]:
    """The kind of chart, its x axis, and what separates its lines or rows."""
    # Most informative first: settings of most runs, or a condition; then methods, then the rest.
    common = [name for name in varied if name.startswith(PREFIX) and runs[name].notna().mean() > 0.5]
    conditions = [name for name in varied if not name.startswith(PREFIX) and name != BASE]
    methods = [BASE] if BASE in varied else []
    names = list(dict.fromkeys([*[*common, *conditions][:1], *common, *methods, *conditions, *varied]))
    kinds = [*([HEAT] if len(names) > 1 else []), *([LINES] if names else []),
             *([PARALLEL] if len(names) > 1 else []), RUNS]  # fmt: skip
    with st.container(horizontal=True, vertical_alignment="bottom", gap="small", key="sweep_axes"):
        kind = _kept("Chart", f"sweep_kind_of_{followed.key}", kinds, kinds[0], buttons=True)
        if kind == PARALLEL or not names:
            return kind, None, None
        across = [NO_SERIES, *names] if kind == RUNS else names
        words = {HEAT: "Columns", LINES: "Along x", RUNS: "Colour by"}[kind]
        first = BASE if kind == RUNS and BASE in names else names[0]
        x = _kept(words, f"sweep_{kind}_x_{followed.key}", across, first)
        if kind == RUNS:
            return kind, None, axis_of(x) if x else None
        others = [name for name in names if name != x]
        choices = others if kind == HEAT else [NO_SERIES, *others]
        first = next((name for name in others if len(varied[name]) <= MOST_SERIES), choices[0])
        y = _kept("Rows" if kind == HEAT else "One line per", f"sweep_{kind}_y_{followed.key}", choices, first)
    return kind, axis_of(x), axis_of(y) if y else None


def _kept(label: str, key: str, options: list[str], first: str, buttons: bool = False) -> str:
    """A choice that falls back where its option no longer exists."""
    chosen = st.session_state.get(key)
    st.session_state[key] = chosen if chosen in options else first  # set again, or another page would reset it
    if buttons:
        return st.segmented_control(
            label, options, key=key, required=True, persist_state="session", label_visibility="collapsed"
        )
    words = {name: axis_of(name).words if name else "nothing" for name in options}
    return st.selectbox(label, options, key=key, format_func=words.get, persist_state="session", width=200)


def _chart(
    kind: str, runs: pd.DataFrame, measure: Measure, x: Axis | None, y: Axis | None, varied: Mapping[str, tuple]
) -> tuple[go.Figure, str, Table]:
    """A figure, its description, and its numbers."""
    column, dark, value = measure.column, is_dark(), replace(measure, column="value")
    if kind in (HEAT, LINES):
        chosen = [each for each in (x, y) if each is not None]
        found = cells(runs, [each.column for each in chosen], column, intervals=kind == LINES)
        figure = heat_map(found, x, y, value, dark) if kind == HEAT else lines_over(found, x, y, value, dark)
        return figure, cells_sentence(found, chosen, value), cells_table(found, chosen, [value])
    if kind == PARALLEL:
        known = [name for name in varied if name != "kind"]  # a line is a mean over prompts
        dimensions = [
            axis_of(name) if name in CONDITION_WORDS else Axis(name, short_title(name))
            for name in known[:MOST_DIMENSIONS]
        ]
        beside = (each for each in ("tokens_per_iteration", "acceptance_drafted") if each != column)
        measures = [*(FIGURES[each] for each in beside if runs[each].notna().any()), measure]
        names = [each.column for each in dimensions]
        found = runs.groupby(names, dropna=False)[[each.column for each in measures]].mean().reset_index()
        sentence = cells_sentence(found, dimensions, measures[-1])
        return parallel(found, dimensions, measures, dark), sentence, cells_table(found, dimensions, measures)
    across = FIGURES["tokens_per_iteration" if column != "tokens_per_iteration" else "throughput"]
    shown = runs[runs[column].notna() & runs[across.column].notna()].tail(MOST_POINTS)
    shown = shown.assign(words=[run_words(row) for row in shown[RUN_WORDS].to_dict("records")])
    found = shown.assign(value=shown[column])
    figure = every_run(shown, across, measure, y, dark)
    return figure, cells_sentence(found, [], value), cells_table(found, [Axis("words", "run")], [across, measure])


def _averaged_words(kind: str, runs: pd.DataFrame, x: Axis | None, y: Axis | None) -> str:
    """What a point of the chart is, or what it averages over."""
    if kind == RUNS:
        groups = runs[y.column].nunique(dropna=False) if y is not None else 0
        cut = f" The first {MOST_SERIES} of {groups} groups." if groups > MOST_SERIES else ""
        cut += f" The last {MOST_POINTS:,} of {len(runs):,} runs." if len(runs) > MOST_POINTS else ""
        return f"Each point is one run.{cut} Click one to see it below."
    if kind == PARALLEL:
        known = [name for name in axes(runs) if name != "kind"]
        over = "".join(f", and over {axis_of(name).words}" for name in known[MOST_DIMENSIONS:])
        return f"Each line is one combination, the mean over its runs{over}. Drag along an axis to filter lines."
    shown = [each.column for each in (x, y) if each is not None]
    varied = axes(runs.dropna(subset=shown))
    others = [axis_of(name).words for name in varied if name not in (*shown, "kind")]
    over = f", and over {', '.join(others)}" if others else ""
    lines = len(varied.get(y.column, ())) if y is not None else 0
    cut = f" The first {MOST_SERIES} of {plural(lines, 'line')}." if kind == LINES and lines > MOST_SERIES else ""
    bars = " Bars: 95% intervals over prompts." if kind == LINES else ""
    return f"Means over prompts{over}.{bars}{cut} Click a point to see its runs."

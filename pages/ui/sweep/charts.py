"""What is best in an experiment and how sure that is, its charts, and what a click on them picks."""

from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd
import plotly.graph_objects as go
import streamlit as st

from decoding.experiments.estimates import BASE, CONDITIONS, FEWEST, PREFIX, Ranked, axes, best_words, cells, ranked
from decoding.experiments.experiment import FollowedExperiment
from pages.ui.common.charts import CHART_CONFIG, is_dark
from pages.ui.common.charts import STYLE as TABLE_STYLE
from pages.ui.common.downloads import download_button
from pages.ui.common.errors import escape_markdown
from pages.ui.sweep.runs import RUN_WORDS, draw_picked, pick, run_words
from pages.ui.sweep.sentences import FIGURES, Told, axis_of, base_label, short_axis_of
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
    told,
)
from viz.formats import plural
from viz.scope.outline import Table, table_csv, table_html

ALL = "all"


def draw_filter(followed: FollowedExperiment, runs: pd.DataFrame) -> pd.DataFrame:
    """A popover with a choice for every condition that varies; returns the runs that are left."""
    offered = {name: values for name, values in axes(runs).items() if name in (BASE, *CONDITIONS, "kind")}
    if not offered:
        return runs
    picked = {name: st.session_state.get(_key(followed, name), ALL) for name in offered}
    said = [f"{axis_of(name).words} {_told(name, value)}" for name, value in picked.items() if value != ALL]
    label = ", ".join(said) or "All runs"
    with st.popover(
        escape_markdown(label), key="sweep_filter", icon=":material/filter_alt:", on_change="rerun"
    ) as place:
        if place.open:
            with st.container(width=320):
                for name, values in offered.items():
                    _draw_choice(followed, name, values)
    for name, value in picked.items():
        if value in offered[name]:
            runs = runs[runs[name] == value]
    return runs


def _draw_choice(followed: FollowedExperiment, name: str, values: tuple) -> None:
    words, key = axis_of(name).words, _key(followed, name)
    st.selectbox(
        words[0].upper() + words[1:], [ALL, *values], key=key, persist_state="session",
        format_func=lambda value: "all" if value == ALL else _told(name, value),
    )  # fmt: skip


def _told(name: str, value: object) -> str:
    return base_label(value) if name == BASE else told(value)


def _key(followed: FollowedExperiment, name: str) -> str:
    return f"sweep_only_{followed.key}_{name}"


KEPT, TABLE = "sweep_ranked", "sweep_best_table"
SHOWN, ROW_PX = 4, 35
HIGH_HELP = "95% of the bootstrap over prompts: other prompts of this kind would give a mean in there."
CHANCE_HELP = "In how many of 2,000 draws of the prompts, with replacement, it is the best of all."


def draw_best(followed: FollowedExperiment, runs: pd.DataFrame, told: Told) -> None:
    """A sentence on the best way, and a table of the first ones with their intervals."""
    found, figure = ranking(runs, told), told.figure
    with st.container(border=True, key="sweep_part_best"):
        words = best_words(found, figure.words, figure.scale, figure.digits)
        with st.container(key="sweep_best_words"):
            where = f"on {runs['machine'].iloc[0].partition(',')[0]}" if followed.shipped else "for this machine"
            st.markdown(
                f":material/trophy: **Best {escape_markdown(where)} and these prompts** · {escape_markdown(words)}",
                help="By the mean over prompts, on prompts, lengths and samplings that all ways have been run on.",
            )
        if len(found) > 1:
            _draw_table(followed, found, told)


def ranking(runs: pd.DataFrame, told: Told) -> list[Ranked]:
    """The ways in their order, computed once for the same runs and figure."""
    own = runs[["key", "started"]]  # the same run has the same key in every experiment
    kept_of, kept_told, found = st.session_state.get(KEPT, (None, None, []))
    if kept_of is None or kept_told != told or not kept_of.equals(own):
        found = ranked(runs, told.figure.column, told.higher)
        st.session_state[KEPT] = own, told, found
    return found


def best_frame(found: list[Ranked], told: Told) -> pd.DataFrame:
    """The ways as a table shows them."""
    figure = told.figure
    few = found[0].figure.prompts < FEWEST

    def shown(value: float) -> str:
        return f"{figure.scale * value:,.{figure.digits}f}"

    return pd.DataFrame(
        {
            "Way": [each.label for each in found],
            figure.words: [shown(each.figure.value) for each in found],
            "95% interval": ["few prompts" if few else f"{shown(each.figure.low)} to {shown(each.figure.high)}"
                             for each in found],
            "Best in": ["–" if few else f"{each.chance:.0%}" for each in found],
            "Prompts": [each.figure.prompts for each in found],
        }
    )  # fmt: skip


def _draw_table(followed: FollowedExperiment, found: list[Ranked], told: Told) -> None:
    key = f"{TABLE}_{followed.key}_{told.figure.column}"

    def take() -> None:
        rows = st.session_state[key]["selection"]["rows"]
        pick(followed, {"way": found[rows[0]].way} if rows else None, found[rows[0]].label if rows else "")

    st.dataframe(
        best_frame(found, told), key=key, hide_index=True, on_select=take, selection_mode="single-row",
        height=ROW_PX * (min(len(found), SHOWN) + 1) + 3,
        column_config={"Way": st.column_config.Column(width="large"),
                       "95% interval": st.column_config.Column(help=HIGH_HELP),
                       "Best in": st.column_config.Column(help=CHANCE_HELP)},
        alt=f"Ways in the order of their {told.figure.words}, the best first.",
    )  # fmt: skip


HEAT, LINES, PARALLEL, RUNS = "Heat map", "Lines", "Parallel coordinates", "Every run"
NO_SERIES = ""
MOST_DIMENSIONS = 6
MOST_POINTS = 4000


def draw_charts(followed: FollowedExperiment, runs: pd.DataFrame, told: Told) -> None:
    """The chosen chart with its choices, then the runs behind what was clicked."""
    varied = axes(runs)
    runs = runs.assign(**{BASE: runs[BASE].map(base_label)})
    with st.container(border=True, key="sweep_chart_panel", gap="small"):
        kind, x, y = _choose(followed, runs, varied)
        figure, sentence, table = _chart(kind, runs, told, x, y, varied)
        _draw(followed, kind, figure, sentence, table, [each.column for each in (x, y) if each is not None])
        st.caption(escape_markdown(_averaged_words(kind, runs, x, y)))
    draw_picked(followed, runs, told)


def picked_place(points: Sequence[Mapping[str, Any]], kind: str, columns: Sequence[str]) -> dict[str, Any] | None:
    """The values that a clicked point stands for; None where nothing is clicked."""
    data = points[0].get("customdata") if points else None
    if not data:
        return None
    values = list(data.values()) if isinstance(data, Mapping) else list(data)
    return {"key": values[0]} if kind == RUNS else dict(zip(columns, values, strict=False))


def _choose(
    followed: FollowedExperiment, runs: pd.DataFrame, varied: Mapping[str, tuple]
) -> tuple[str, Axis | None, Axis | None]:
    """The kind of chart, what runs along it and what tells its lines or rows apart."""
    names = _by_use(runs, varied)
    kinds = [*([HEAT] if len(names) > 1 else []), *([LINES] if names else []),
             *([PARALLEL] if len(names) > 1 else []), RUNS]  # fmt: skip
    with st.container(horizontal=True, vertical_alignment="bottom", gap="small", key="sweep_axes"):
        kind = _kept("Chart", f"sweep_kind_of_{followed.key}", kinds, kinds[0], buttons=True)
        if kind == PARALLEL or not names:
            return kind, None, None
        across = [NO_SERIES, *names] if kind == RUNS else names
        words = {HEAT: "Across", LINES: "Over", RUNS: "Apart by"}[kind]
        first = BASE if kind == RUNS and BASE in names else names[0]
        x = _kept(words, f"sweep_{kind}_x_{followed.key}", across, first)
        if kind == RUNS:
            return kind, None, axis_of(x) if x else None
        others = [name for name in names if name != x]
        choices = others if kind == HEAT else [NO_SERIES, *others]
        first = next((name for name in others if len(varied[name]) <= MOST_SERIES), choices[0])
        y = _kept("Up" if kind == HEAT else "A line for each", f"sweep_{kind}_y_{followed.key}", choices, first)
    return kind, axis_of(x), axis_of(y) if y else None


def _by_use(runs: pd.DataFrame, varied: Mapping[str, tuple]) -> list[str]:
    """What varies, the most telling first: settings of most runs, or a condition; then methods, then the rest."""
    common = [name for name in varied if name.startswith(PREFIX) and runs[name].notna().mean() > 0.5]
    conditions = [name for name in varied if not name.startswith(PREFIX) and name != BASE]
    methods = [BASE] if BASE in varied else []
    return list(dict.fromkeys([*[*common, *conditions][:1], *common, *methods, *conditions, *varied]))


def _kept(label: str, key: str, options: list[str], first: str, buttons: bool = False) -> str:
    """A choice that falls back where its option is no longer there."""
    if st.session_state.get(key) not in options:
        st.session_state[key] = first
    st.session_state[key] = st.session_state[key]  # said again, or a widget of the same key elsewhere would reset it
    if buttons:
        return st.segmented_control(
            label, options, key=key, required=True, persist_state="session", label_visibility="collapsed"
        )
    words = {name: axis_of(name).words if name else "nothing" for name in options}
    return st.selectbox(label, options, key=key, format_func=words.get, persist_state="session", width=200)


def _chart(
    kind: str, runs: pd.DataFrame, told: Told, x: Axis | None, y: Axis | None, varied: Mapping[str, tuple]
) -> tuple[go.Figure, str, Table]:
    """A figure, what it shows in a sentence, and its numbers."""
    column, dark = told.figure.column, is_dark()
    value = Measure("value", told.measure.words, told.measure.scale, told.measure.digits)
    if kind in (HEAT, LINES):
        chosen = [each for each in (x, y) if each is not None]
        found = cells(runs, [each.column for each in chosen], column, intervals=kind == LINES)
        figure = heat_map(found, x, y, value, dark) if kind == HEAT else lines_over(found, x, y, value, dark)
        return figure, cells_sentence(found, chosen, value), cells_table(found, chosen, [value])
    if kind == PARALLEL:
        known = [name for name in varied if name != "kind"]  # a line is a mean over prompts
        dimensions = [short_axis_of(name) for name in known[:MOST_DIMENSIONS]]
        measures = _measures(runs, told)
        names = [each.column for each in dimensions]
        found = runs.groupby(names, dropna=False)[[each.column for each in measures]].mean().reset_index()
        sentence = cells_sentence(found, dimensions, measures[-1])
        return parallel(found, dimensions, measures, dark), sentence, cells_table(found, dimensions, measures)
    across = FIGURES["tokens_per_iteration" if column != "tokens_per_iteration" else "throughput"].measure
    shown = runs[runs[column].notna() & runs[across.column].notna()].tail(MOST_POINTS)
    shown = shown.assign(words=[run_words(row) for row in shown[RUN_WORDS].to_dict("records")])
    found = shown.assign(value=shown[column])
    figure = every_run(shown, across, told.measure, y, dark)
    axes_told = [Axis("words", "run")]
    return figure, cells_sentence(found, [], value), cells_table(found, axes_told, [across, told.measure])


def _measures(runs: pd.DataFrame, told: Told) -> list[Measure]:
    """What parallel coordinates end in: two figures that explain, and the one that is looked at."""
    beside = [name for name in ("tokens_per_iteration", "acceptance_drafted")
              if name != told.figure.column and runs[name].notna().any()]  # fmt: skip
    return [*(FIGURES[name].measure for name in beside), told.measure]


def _draw(
    followed: FollowedExperiment, kind: str, figure: go.Figure, sentence: str, table: Table, columns: Sequence[str]
) -> None:
    """The figure, and a button at its lower right that has its numbers."""
    key = f"sweep_chart_{followed.key}_{kind}"

    def take() -> None:
        place = picked_place(st.session_state[key]["selection"]["points"], kind, columns)
        words = "" if place is None or kind == RUNS else ", ".join(
            f"{axis_of(name).words} {value}" for name, value in place.items()
        )  # fmt: skip
        pick(followed, place, words)

    with st.container(key="sweep_chart_described", gap=None):
        more = {} if kind == PARALLEL else {"on_select": take, "selection_mode": "points"}
        st.plotly_chart(figure, theme=None, key=key, config=CHART_CONFIG, alt=sentence, **more)
        numbers = st.popover("Table", key="sweep_numbers", type="tertiary", on_change="rerun", width="content")
        if numbers.open:
            with numbers:
                st.text(sentence)
                download_button("Save as CSV", table_csv(table), "sweep.csv", "text/csv", "sweep_csv")
                st.html(TABLE_STYLE + table_html(table))


def _averaged_words(kind: str, runs: pd.DataFrame, x: Axis | None, y: Axis | None) -> str:
    """What a point is a mean over, or what a point is."""
    if kind == RUNS:
        groups = runs[y.column].nunique(dropna=False) if y is not None else 0
        cut = f" The first {MOST_SERIES} of {groups} groups." if groups > MOST_SERIES else ""
        cut += f" The last {MOST_POINTS:,} of {len(runs):,} runs." if len(runs) > MOST_POINTS else ""
        return f"A point is one run, looping text left out.{cut} Click one to see it below."
    if kind == PARALLEL:
        known = [name for name in axes(runs) if name != "kind"]
        over = "".join(f", and over {axis_of(name).words}" for name in known[MOST_DIMENSIONS:])
        return f"A line is a combination, a mean over its runs{over}. Drag along an axis to keep some lines only."
    shown = [each.column for each in (x, y) if each is not None]
    varied = axes(runs.dropna(subset=shown))
    others = [axis_of(name).words for name in varied if name not in (*shown, "kind")]
    over = f", and over {', '.join(others)}" if others else ""
    lines = len(varied.get(y.column, ())) if y is not None else 0
    cut = f" The first {MOST_SERIES} of {plural(lines, 'line')}." if kind == LINES and lines > MOST_SERIES else ""
    bars = " Bars: 95% intervals over prompts." if kind == LINES else ""
    return f"Means over prompts{over}; looping text is left out.{bars}{cut} Click a point to see its runs."

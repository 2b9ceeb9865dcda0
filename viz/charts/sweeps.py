"""Charts of a sweep: a heat map over two settings, lines over one with intervals, parallel coordinates, every run.

depth, width = Axis("settings.max_depth", "maximum depth"), Axis("settings.branching", "children per node")
heat_map(cells, depth, width, Measure("value", "speed-up"))         # cells: a row per combination
lines_over(cells, depth, width, Measure("value", "speed-up"))       # with columns low and high
parallel(table, (depth, width), (Measure("iterations", "passes"), Measure("speedup", "speed-up")))
every_run(runs, PER_PASS, SPEEDUP, width)

A point's `customdata` identifies it: the values on the axes as shown, or the run's key.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from decoding.common.formats import plural
from viz.charts.methods import beside
from viz.scope.outline import Table
from viz.theme import SERIES, SERIES_DASHES, SERIES_SYMBOLS, contrast, mixed, palette, style
from viz.tokens import escaped

MOST_SERIES, MOST_NUMBERS = len(SERIES), 240
BLACK_OR_WHITE = ("#0B0F12", "#FFFFFF")
LABEL_LETTERS = 26
MOST_LEVEL = 6  # labels of parallel axes that fit side by side
ROW_PX, CELL_POINT = 42, 30
# From near the page colour to the blue of the series: the best stands out in both themes.
SCALES = {False: ((0.0, "#E4ECF3"), (1.0, "#0072B2")), True: ((0.0, "#24323C"), (1.0, "#56B4E9"))}
LINE_SCALES = {False: ((0.0, "#C6CCD6"), (1.0, "#0072B2")), True: ((0.0, "#3B4754"), (1.0, "#56B4E9"))}


@dataclass(frozen=True, slots=True)
class Axis:
    """What varies: its column and its axis label."""

    column: str
    words: str


@dataclass(frozen=True, slots=True)
class Measure:
    """What was measured: column and label with unit; shown as column times `scale` with `digits` decimals."""

    column: str
    words: str
    scale: float = 1.0
    digits: int = 2


def value_words(value: object) -> str:
    """A setting's value as axes and tables show it."""
    if isinstance(value, bool):
        return "on" if value else "off"
    if isinstance(value, int | float):
        return f"{value:.12g}"
    return str(value).replace("_", " ") or "none"


def color_bar(words: str) -> dict:
    """What stands beside a heat map: its colours and what they measure."""
    return {"title": {"text": words, "side": "right"}, "thickness": 10, "outlinewidth": 0}


def heat_map(cells: pd.DataFrame, x: Axis, y: Axis, measure: Measure, dark: bool = False) -> go.Figure:
    """A number for every pair of values of two settings; a pair not yet run stays empty."""
    table = cells.pivot(index=y.column, columns=x.column, values=measure.column) * measure.scale
    across, up = ([escaped(value_words(value)) for value in values] for values in (table.columns, table.index))
    figure = go.Figure()
    figure.add_heatmap(
        z=table.to_numpy(), x=across, y=up, colorscale=SCALES[dark], xgap=2, ygap=2, hoverinfo="skip",
        colorbar=color_bar(escaped(measure.words)),
    )  # fmt: skip
    if table.size <= MOST_NUMBERS:
        low, high = table.min().min(), table.max().max()
        for (row, column), value in np.ndenumerate(table.to_numpy(float)):
            if not np.isnan(value):
                # Black or white, whichever is easier to read on the colour of the cell.
                share = (value - low) / (high - low) if high > low else 0.5
                cell = mixed(SCALES[dark][1][1], SCALES[dark][0][1], share)
                font = {"color": max(BLACK_OR_WHITE, key=lambda each: contrast(each, cell)), "size": 12}
                # By index: a category named 2 would be taken for an index.
                words = f"{value:.{measure.digits}f}"
                figure.add_annotation(x=column, y=row, text=words, showarrow=False, font=font)
    # Plotly reports clicks only on points: every cell has an invisible one.
    points = [(value_words(row[x.column]), value_words(row[y.column]), row) for _, row in cells.iterrows()]
    figure.add_scatter(
        x=[escaped(each[0]) for each in points], y=[escaped(each[1]) for each in points], mode="markers",
        name=escaped(measure.words),
        marker={"size": CELL_POINT, "symbol": "square", "opacity": 0}, showlegend=False,
        customdata=[[across, up] for across, up, _ in points],
        text=[_cell_words(row, measure) for *_, row in points],
        hovertemplate=f"{escaped(x.words)} %{{x}}, {escaped(y.words)} %{{y}}: %{{text}}<extra></extra>",
    )  # fmt: skip
    style(figure, dark, height=110 + ROW_PX * max(len(up), 3), margin={"l": 64, "r": 16, "t": 12, "b": 52})
    figure.update_layout(hovermode="closest", hoverdistance=-1)  # a click anywhere in a cell finds its point
    figure.update_xaxes(title_text=escaped(x.words), type="category", categoryarray=across, showgrid=False)
    return figure.update_yaxes(title_text=escaped(y.words), type="category", categoryarray=up, showgrid=False)


def lines_over(cells: pd.DataFrame, x: Axis, series: Axis | None, measure: Measure, dark: bool = False) -> go.Figure:
    """A measure over the values of one setting, a line per value of another, with 95% intervals over prompts."""
    figure = go.Figure()
    numeric = pd.api.types.is_numeric_dtype(cells[x.column]) and not pd.api.types.is_bool_dtype(cells[x.column])
    groups = [(None, cells)] if series is None else list(cells.groupby(series.column, sort=True))[:MOST_SERIES]
    for place, (value, part) in enumerate(groups):
        values = part["value"] * measure.scale
        name = measure.words if series is None else _series_name(series, value)
        at = [_short(value_words(each)) for each in part[x.column]]
        if numeric:
            at = (part[x.column] + beside(cells[x.column], place, len(groups))).tolist()
        figure.add_scatter(
            x=at, y=values, name=escaped(name), mode="lines+markers" if numeric else "markers",
            line={"color": SERIES[place], "dash": SERIES_DASHES[place], "width": 2},
            marker={"symbol": SERIES_SYMBOLS[place], "size": 9, "color": SERIES[place]},
            error_y={"array": part["high"] * measure.scale - values, "arrayminus": values - part["low"] * measure.scale,
                     "width": 4, "thickness": 1.3},
            customdata=[
                [value_words(each), *([] if series is None else [value_words(value)])] for each in part[x.column]
            ],
            text=[f"{escaped(value_words(row[x.column]))}{'' if series is None else f', {escaped(name)}'}: "
                  f"{_cell_words(row, measure)}" for _, row in part.iterrows()],
            hovertemplate=f"{escaped(x.words)} %{{text}}<extra></extra>",
        )  # fmt: skip
    margin = {"l": 60, "r": 16, "t": 44 if series else 14, "b": 52}
    style(figure, dark, height=360, showlegend=series is not None, margin=margin)
    figure.update_xaxes(title_text=escaped(x.words), type="linear" if numeric else "category", tickangle=0)
    if numeric and cells[x.column].nunique() <= 12:
        figure.update_xaxes(tickvals=sorted(cells[x.column].unique().tolist()))
    return figure.update_yaxes(title_text=escaped(measure.words))


def parallel(table: pd.DataFrame, axes: Sequence[Axis], measures: Sequence[Measure], dark: bool = False) -> go.Figure:
    """Every combination of settings as a line through its values and results; coloured by the last measure.

    Args:
        table: a row per combination, with a column for each axis and each measure.
    """
    colors, last = palette(dark), measures[-1]
    dimensions = [_setting_dimension(table[each.column], each.words) for each in axes]
    dimensions += [
        {"label": each.words, "values": table[each.column] * each.scale, "tickformat": f".{each.digits}f"}
        for each in measures
    ]
    figure = go.Figure()
    figure.add_parcoords(
        dimensions=dimensions,
        line={"color": table[last.column] * last.scale, "colorscale": LINE_SCALES[dark], "showscale": True,
              "colorbar": color_bar(last.words)},
        unselected={"line": {"color": colors.muted, "opacity": 0.12}},
        labelfont={"color": colors.text, "size": 12}, tickfont={"color": colors.text, "size": 11},
        rangefont={"color": colors.muted, "size": 10}, labelangle=-14 if len(dimensions) > MOST_LEVEL else 0,
    )  # fmt: skip
    return style(figure, dark, height=400, margin={"l": 96, "r": 24, "t": 72, "b": 28})


def every_run(runs: pd.DataFrame, x: Measure, y: Measure, series: Axis | None, dark: bool = False) -> go.Figure:
    """Every run as a point; `runs` has the columns of both measures, `key`, and `words` that describe a run."""
    figure = go.Figure()
    groups = [(None, runs)] if series is None else list(runs.groupby(series.column, sort=True, dropna=False))
    for place, (value, part) in enumerate(groups[:MOST_SERIES]):
        name = "runs" if series is None else _series_name(series, value)
        figure.add_scatter(
            x=part[x.column] * x.scale, y=part[y.column] * y.scale, mode="markers", name=escaped(name),
            marker={"symbol": SERIES_SYMBOLS[place], "size": 8, "color": SERIES[place], "opacity": 0.8},
            customdata=[[key] for key in part["key"]], text=[escaped(words) for words in part["words"]],
            hovertemplate=f"%{{text}}<br>%{{x:.{x.digits}f}} {escaped(x.words)}, %{{y:.{y.digits}f}} "
            f"{escaped(y.words)}<extra></extra>",
        )  # fmt: skip
    margin = {"l": 60, "r": 16, "t": 44 if series else 14, "b": 52}
    style(figure, dark, height=380, showlegend=series is not None, margin=margin)
    figure.update_xaxes(title_text=escaped(x.words))
    return figure.update_yaxes(title_text=escaped(y.words))


def cells_sentence(cells: pd.DataFrame, axes: Sequence[Axis], measure: Measure) -> str:
    """What a chart shows and the range of its values, for screen readers."""
    over = " and ".join(each.words for each in axes)
    head = f"{measure.words[0].upper()}{measure.words[1:]}{f' by {over}' if over else ''}"
    known = cells[cells[measure.column].notna()]
    if not len(known):
        return f"{head}: nothing has been run yet."
    ends = [known.iloc[known[measure.column].argmin()], known.iloc[known[measure.column].argmax()]]
    low, high = (f"{each[measure.column] * measure.scale:.{measure.digits}f}{_place(each, axes)}" for each in ends)
    return f"{head}: from {low} to {high}, {len(known)} combinations."


def cells_table(cells: pd.DataFrame, axes: Sequence[Axis], measures: Sequence[Measure]) -> Table:
    """The numbers of a chart: a row per combination."""
    counted = [name for name in ("prompts", "runs") if name in cells]
    rows = []
    for _, row in cells.iterrows():
        numbers = [_with_interval(row, each) for each in measures]
        rows.append(
            (*(value_words(row[each.column]) for each in axes), *numbers, *(f"{row[name]:.0f}" for name in counted))
        )
    heads = (*(each.words for each in axes), *(each.words for each in measures), *counted)
    return Table("", heads, tuple(rows))


def _series_name(series: Axis, value: Any) -> str:
    """Name of a line; a dash for a setting that a method lacks."""
    if isinstance(value, str):
        return value_words(value)
    return f"{series.words} {'–' if pd.isna(value) else value_words(value)}"


def _with_interval(row: pd.Series, measure: Measure) -> str:
    value = row[measure.column]
    if pd.isna(value):
        return "–"
    written = f"{value * measure.scale:.{measure.digits}f}"
    if measure.column != "value" or pd.isna(row.get("low")):
        return written
    low, high = (f"{row[end] * measure.scale:.{measure.digits}f}" for end in ("low", "high"))
    return f"{written} ({low} to {high})"


def _cell_words(row: pd.Series, measure: Measure) -> str:
    prompts, runs = plural(int(row["prompts"]), "prompt"), plural(int(row["runs"]), "run")
    return f"{_with_interval(row, measure)}, mean over {prompts}, {runs}"


def _place(row: pd.Series, axes: Sequence[Axis]) -> str:
    where = ", ".join(f"{each.words} {value_words(row[each.column])}" for each in axes)
    return f" ({where})" if where else ""


def _setting_dimension(values: pd.Series, words: str) -> dict:
    """An axis with a place per value, so text and numbers are spaced alike; a missing setting has its own place."""
    known = sorted(values.dropna().unique().tolist(), key=lambda value: (isinstance(value, str), value))
    places = {value: place for place, value in enumerate(known)}
    lacking = bool(values.isna().any())
    return {
        "label": words,
        "values": [places.get(value, len(known)) for value in values],
        "tickvals": [*places.values(), *([len(known)] if lacking else [])],
        "ticktext": [*(_short(value_words(value)) for value in known), *(["–"] if lacking else [])],
        "range": [-0.3, len(known) - 0.7 + lacking],
    }


def _short(words: str) -> str:
    return escaped(words if len(words) <= LABEL_LETTERS else f"{words[: LABEL_LETTERS - 1]}…")

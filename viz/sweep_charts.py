"""Charts of a sweep: a heat map over two settings, lines over one with intervals, parallel coordinates over all.

axes = varied(rows)                                    # settings that differ between rows: {"max_depth": [3, 4]}
figure = heat_map(rows, "max_depth", "branching", "speedup", "speed-up")
figure = lines_over(rows, "max_depth", "branching", "speedup", "speed-up")
figure = parallel(rows, ("max_depth", "branching"), ("speedup", "tokens_per_iteration"), WORDS)
"""

from collections.abc import Mapping, Sequence

import pandas as pd
import plotly.graph_objects as go

from decoding.experiments.bootstrap import estimate
from viz.theme import SERIES, SERIES_DASHES, SERIES_SYMBOLS, palette, style
from viz.tokens import for_plotly

PREFIX = "settings."
CONDITIONS = ("asked_tokens", "cut", "temperature", "top_p")
MOST_SERIES = 8
PROMPT = ["prompt_set", "kind", "prompt"]


def varied(rows: pd.DataFrame) -> dict[str, list]:
    """Settings and conditions that take more than one value among rows that are no references, with their values."""
    mine = rows[~rows["reference"]]
    names = [name for name in mine.columns if name.startswith(PREFIX)] + list(CONDITIONS)
    found = {name: sorted(mine[name].dropna().unique().tolist(), key=_sortable) for name in names if name in mine}
    return {name: values for name, values in found.items() if len(values) > 1}


def words_of(name: str) -> str:
    """A setting or condition as an axis calls it."""
    known = {"asked_tokens": "generated tokens", "cut": "prompt tokens at most", "top_p": "top-p"}
    return known.get(name, name.removeprefix(PREFIX).replace("_", " "))


def heat_map(rows: pd.DataFrame, x: str, y: str, column: str, words: str, dark: bool = False) -> go.Figure:
    """Mean of a figure for every pair of values of two settings, over all that else varies."""
    table = rows[~rows["reference"]].pivot_table(index=y, columns=x, values=column, aggfunc="mean")
    figure = go.Figure()
    figure.add_heatmap(
        z=table.to_numpy(), x=[_told(value) for value in table.columns], y=[_told(value) for value in table.index],
        colorscale="Viridis", texttemplate="%{z:.2f}", colorbar={"title": {"text": for_plotly(words)}, "thickness": 12},
        hovertemplate=f"{words_of(x)} %{{x}}, {words_of(y)} %{{y}}: %{{z:.3g}}<extra></extra>",
    )  # fmt: skip
    style(figure, dark).update_layout(height=120 + 44 * len(table), margin={"l": 64, "r": 16, "t": 14, "b": 52})
    figure.update_xaxes(title_text=words_of(x), type="category")
    figure.update_yaxes(title_text=words_of(y), type="category")
    return figure


def lines_over(
    rows: pd.DataFrame, x: str, series: str | None, column: str, words: str, dark: bool = False
) -> go.Figure:
    """A figure over the values of one setting, a line per value of another, with 95% intervals over prompts."""
    mine, figure = rows[~rows["reference"]], go.Figure()
    groups = [(None, mine)] if series is None else list(mine.groupby(series))[:MOST_SERIES]
    for place, (value, part) in enumerate(groups):
        by_prompt = part.groupby([x, *PROMPT])[column].mean().groupby(x)
        found = {at: estimate(each.to_numpy()) for at, each in by_prompt}
        figure.add_scatter(
            x=list(found), y=[each.value for each in found.values()], mode="lines+markers",
            name="all" if series is None else f"{words_of(series)} {_told(value)}",
            line={"color": SERIES[place], "dash": SERIES_DASHES[place], "width": 2},
            marker={"symbol": SERIES_SYMBOLS[place], "size": 8},
            error_y={
                "array": [each.high - each.value for each in found.values()],
                "arrayminus": [each.value - each.low for each in found.values()], "width": 4, "thickness": 1.2,
            },
            hovertemplate="%{fullData.name} at %{x}: %{y:.3g}<extra></extra>",
        )  # fmt: skip
    figure.update_layout(showlegend=series is not None)
    style(figure, dark).update_layout(height=340, margin={"l": 60, "r": 16, "t": 44 if series else 14, "b": 52})
    figure.update_xaxes(title_text=words_of(x))
    figure.update_yaxes(title_text=words)
    return figure


def parallel(rows: pd.DataFrame, settings: Sequence[str], columns: Mapping[str, str], dark: bool = False) -> go.Figure:
    """Every combination of settings as a line through what it was and what it reached; coloured by the last column."""
    mine = rows[~rows["reference"]]
    table = mine.groupby(list(settings), dropna=False)[list(columns)].mean().reset_index()
    dimensions = [_setting_dimension(table[name], words_of(name)) for name in settings]
    dimensions += [{"label": words, "values": table[name]} for name, words in columns.items()]
    last = list(columns)[-1]
    figure = go.Figure()
    figure.add_parcoords(
        dimensions=dimensions,
        line={"color": table[last], "colorscale": "Viridis", "showscale": True,
              "colorbar": {"title": {"text": columns[last]}, "thickness": 12}},
        labelfont={"color": palette(dark).text}, tickfont={"color": palette(dark).muted},
        rangefont={"color": palette(dark).muted},
    )  # fmt: skip
    return style(figure, dark).update_layout(height=360, margin={"l": 64, "r": 24, "t": 56, "b": 24})


def _setting_dimension(values: pd.Series, label: str) -> dict:
    """An axis with a place per value, so that words and numbers stand alike."""
    known = sorted(values.dropna().unique().tolist(), key=_sortable)
    places = {value: place for place, value in enumerate(known)}
    return {
        "label": label,
        "values": [places.get(value, len(known)) for value in values],
        "tickvals": list(places.values()),
        "ticktext": [_told(value) for value in known],
    }


def _sortable(value: object) -> tuple[bool, object]:
    return isinstance(value, str), value


def _told(value: object) -> str:
    return f"{value:g}" if isinstance(value, int | float) and not isinstance(value, bool) else str(value)

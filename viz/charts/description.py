"""A chart as text: one sentence on what it shows, and its numbers as a table, both read from the figure itself."""

import html
import re
from dataclasses import dataclass
from operator import itemgetter

import plotly.graph_objects as go

from decoding.common.formats import plural
from viz.scope.outline import Table

SERIES_NAMED = 3
MOST_ROWS = 500


@dataclass(frozen=True, slots=True)
class Series:
    """One trace: positions, values, what they measure, and half the width of its error bars."""

    name: str
    at: tuple
    values: tuple
    measure: str
    errors: tuple = ()

    @property
    def shown(self) -> tuple[str, ...]:
        """Every value as text, with its error."""
        errors = self.errors or (None,) * len(self.values)
        return tuple(
            f"{_shown(value)} ± {_shown(error)}" if error else _shown(value)
            for value, error in zip(self.values, errors, strict=True)
        )


def chart_sentence(figure: go.Figure) -> str:
    """What a chart shows and the range of its values, for screen readers."""
    series, places = _series(figure), _places(figure)
    if not series:
        return " ".join(_plain(note.text or "") for note in figure.layout.annotations) or "An empty chart."
    measures = list(dict.fromkeys(one.measure for one in series if one.measure))
    measured = " and ".join(measures) or "values"
    head = f"{measured[0].upper()}{measured[1:]} by {places or 'place'}"
    ranges = [_range(one) for one in series[:SERIES_NAMED]]
    if len(series) > len(ranges):
        ranges.append(f"and {len(series) - len(ranges)} more series")
    return f"{head}: {'; '.join(ranges)}."


def chart_table(figure: go.Figure) -> Table:
    """Every value of a chart: a column per series where they share positions, else a row per value."""
    series, places = _series(figure), _places(figure) or "Place"
    rows_at = list(dict.fromkeys(place for one in series for place in one.at))
    few = len(series) * len(rows_at) <= 3 * sum(len(one.at) for one in series)
    if few and all(len(set(one.at)) == len(one.at) for one in series):
        columns = [dict(zip(one.at, one.shown, strict=True)) for one in series]
        rows = [(_shown(at), *(column.get(at, _shown(None)) for column in columns)) for at in rows_at]
        named = [dict.fromkeys(part for part in (one.name, one.measure) if part) for one in series]
        heads = (places, *(", ".join(parts) or "Value" for parts in named))
    else:
        rows = [
            (one.name or one.measure, _shown(at), value)
            for one in series
            for at, value in zip(one.at, one.shown, strict=True)
        ]
        heads = ("Series", places, " or ".join(dict.fromkeys(one.measure for one in series if one.measure)) or "Value")
    note = f"The first {MOST_ROWS} of {len(rows):,} rows." if len(rows) > MOST_ROWS else ""
    return Table("", heads, tuple(rows[:MOST_ROWS]), note)


def _series(figure: go.Figure) -> list[Series]:
    """Traces with values; marks that only repeat another trace (without hover) are left out."""
    found, any_lying = [], _lies(figure)
    for trace in figure.data:
        if trace.hoverinfo == "skip" or getattr(trace, "x", None) is None or getattr(trace, "y", None) is None:
            continue
        lying = any_lying and getattr(trace, "orientation", None) != "v"  # marks beside bars that lie
        at, values = (trace.y, trace.x) if lying else (trace.x, trace.y)
        if len(at) != len(values) or not len(values):
            continue
        x_axis, y_axis = trace.xaxis or "x", trace.yaxis or "y"
        axis, names = (x_axis, _tick_names(figure, y_axis)) if lying else (y_axis, _tick_names(figure, x_axis))
        # Plain numbers or strings instead of numpy scalars.
        at, values = (tuple(one.item() if hasattr(one, "item") else one for one in each) for each in (at, values))
        at = tuple(names.get(place, place) for place in at)
        bars = getattr(trace, "error_x" if lying else "error_y", None)
        drawn = bars.array if bars is not None and bars.type == "data" and bars.arrayminus is None else None
        errors = () if drawn is None else tuple(None if each is None else float(each) for each in drawn)
        found.append(Series(_plain(trace.name or ""), at, values, _axis_title(figure, axis), errors))
    return found


def _lies(figure: go.Figure) -> bool:
    """Whether values are plotted along the horizontal axis."""
    return any(getattr(trace, "orientation", None) == "h" for trace in figure.data)


def _tick_names(figure: go.Figure, axis: str) -> dict:
    """What an axis writes at a position in place of its number."""
    layout = figure.layout[f"{axis[0]}axis{axis[1:]}"]
    pairs = zip(layout.tickvals or (), layout.ticktext or (), strict=False) if layout is not None else ()
    return {place: text.strip() for place, text in pairs if not text.startswith(str(place))}


def _places(figure: go.Figure) -> str:
    """Title of the axis that the values are plotted over."""
    return _axis_title(figure, "y" if _lies(figure) else "x")


def _axis_title(figure: go.Figure, axis: str) -> str:
    layout = figure.layout[f"{axis[0]}axis{axis[1:]}"]
    return _plain(layout.title.text or "") if layout is not None else ""


def _range(one: Series) -> str:
    name = one.name or "values"
    pairs = zip(one.values, one.at, strict=True)
    numbers = [(value, at) for value, at in pairs if isinstance(value, int | float) and value == value]
    if not numbers:
        return f"{name}, {plural(len(one.values), 'entry', 'entries')}"
    (low, low_at), (high, high_at) = min(numbers, key=itemgetter(0)), max(numbers, key=itemgetter(0))
    if len(numbers) == 1:
        return f"{name} {_shown(high)} at {_shown(high_at)}"
    if low == high:
        return f"{name} {_shown(low)} throughout"
    return f"{name} from {_shown(low)} (at {_shown(low_at)}) to {_shown(high)} (at {_shown(high_at)})"


def _shown(value) -> str:
    if value is None or value != value:
        return "–"
    if isinstance(value, float):
        return f"{value:.4g}"
    return _plain(value) if isinstance(value, str) else str(value)


def _plain(text: str) -> str:
    """Plotly's markup removed: line breaks become commas, other tags go, escapes become their characters."""
    text = re.sub(r"\s*<br\s*/?>\s*", ", ", text)
    return html.unescape(re.sub(r"</?(b|i|sub|sup|span|em)\b[^>]*>", "", text))

"""Charts of a training: panels by family of figures, from log records alone, and tokens per pass over time.

    for panel in panels(records):                      # records: plain dicts with `phase`, `step`, `trained_s`, figures
        figure = training_figure(panel, records, by_time=True, planned=10)
    figure = moments_figure(moments, chosen=3)

Ranges are round numbers and cover the planned length, so that a chart stays still while new values arrive.
"""

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import plotly.graph_objects as go

from viz.theme import SERIES, SERIES_DASHES, SERIES_SYMBOLS, palette, style
from viz.tokens import escaped

PLACE = ("phase", "step", "trained_s", "written")
Record = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Family:
    """Logged values that share an axis.

    Attributes:
        title: heading of the panel. axis: label of the y axis, with its unit.
        names: regular expression for their names. percent: whether they are shares, shown from 0%.
        least: lower bound of the values, if any.
        word: word that the legend leaves out.
    """

    title: str
    axis: str
    names: str
    percent: bool = False
    least: float | None = None
    word: str = ""


@dataclass(frozen=True, slots=True)
class Panel:
    """One chart: a family and the values of it that were logged."""

    family: Family
    names: tuple[str, ...]

    @property
    def held_out(self) -> bool:
        """Whether all of it was measured on held-out text."""
        return all("held_out" in name for name in self.names)

    @property
    def title(self) -> str:
        """Heading of the panel."""
        said = "held-out" in self.family.title or not self.held_out
        return self.family.title if said else f"{self.family.title}, held-out text"

    def words(self, name: str) -> str:
        """A value's name in the legend, without what the heading already says."""
        if len(self.names) == 1:
            return words_of(name)
        shared = all(self.family.word in words_of(each).split(" ") for each in self.names)
        words = [word for word in words_of(name).split(" ") if not (shared and word == self.family.word)]
        left = [word for word in words if word != "held-out"]
        # Kinds of text are measured only on held-out text; a name that also has a training value keeps the word.
        if self.held_out:
            words = left or ["mean"]
        elif left and name.removeprefix("held_out_") not in self.names:
            words = left
        return " ".join(words).removeprefix("at ") or "training"


# The first family whose pattern matches a name gets it.
FAMILIES: tuple[Family, ...] = (
    Family("Greedy agreement", "share (%)", r"agreement|accuracy|top_?1", percent=True, word="agreement"),
    Family("Acceptance", "overlap of the two distributions (%)", r"accept|overlap", percent=True, word="overlap"),
    Family("Text that loops", "share (%)", r"looping", percent=True, word="looping"),
    Family("Calibration", "error (%)", r"calibration|ece\b", percent=True),
    Family("Tokens per target pass", "tokens per target pass", r"efficiency|per_pass|block", least=1.0),
    Family("Modelled throughput", "times the best static shape", r"over_static"),
    Family("Throughput", "tokens / s", r"throughput|per_s\b"),
    Family("Gradient norm", "norm of the gradient", r"gradient|grad_norm"),
    Family("Learning rate", "learning rate", r"learning_rate|\blr\b"),
    Family(
        "Parts of the loss", "term, unweighted", r"regression|classification|distillation|gain", word="classification"
    ),
    Family("Loss", "loss", r"loss|held_out|entropy|divergence"),
)
HELD_OUT_LOSS = Family("Loss on held-out text", "loss (nats per token)", "")
ORDER = (
    "Loss", "Acceptance", "Tokens per target pass", "Modelled throughput", "Greedy agreement", "Loss on held-out text",
    "Throughput", "Text that loops", "Calibration", "Parts of the loss", "Gradient norm", "Learning rate",
)  # fmt: skip


def family_of(name: str) -> Family:
    """The family of a logged value by its name; an unknown one gets a panel of its own."""
    known = next((family for family in FAMILIES if re.search(family.names, name)), None)
    return known or Family(words_of(name).capitalize(), words_of(name), re.escape(name))


def panels(records: Sequence[Record]) -> list[Panel]:
    """The charts that some records fill, in a fixed order."""
    names = list(dict.fromkeys(name for record in records for name in record if name not in PLACE))
    # A weighted loss of several parts is not a loss per token: held-out losses then get their own panel.
    parts = any(family_of(name).title == "Parts of the loss" for name in names)
    grouped: dict[Family, list[str]] = {}
    for name in names:
        family = family_of(name)
        apart = parts and family.title == "Loss" and "held_out" in name
        grouped.setdefault(HELD_OUT_LOSS if apart else family, []).append(name)
    rank = {title: place for place, title in enumerate(ORDER)}
    ordered = sorted(grouped, key=lambda family: (rank.get(family.title, len(rank)), family.title))
    return [Panel(family, tuple(sorted(grouped[family], key=_series_rank))) for family in ordered]


def best(records: Sequence[Record]) -> tuple[str, float] | None:
    """The best held-out result of a training, for lists: its name and value.

    Throughput against the best static shape or tokens per target pass where there are any, else a share of acceptance,
    else a held-out loss; None before the first.
    """
    names = dict.fromkeys(name for record in records for name in record if name not in PLACE)
    titles = {"Modelled throughput": max, "Tokens per target pass": max, "Acceptance": max, "Loss": min}
    for title, better in titles.items():
        fit = [name for name in names if family_of(name).title == title]
        held_out = [name for name in fit if "held_out" in name or better is max]
        name = min(held_out, key=_series_rank, default="")
        values = [record[name] for record in records if is_number(record.get(name))]
        if values:
            return name, better(values)
    return None


def words_of(name: str) -> str:
    """A logged name as text: `held_out_loss` becomes `held-out loss`."""
    words = name.replace("held_out", "held-out").replace("_", " ")
    words = re.sub(r" static$", ", best static shape", words) if "over" not in words else words
    return re.sub(r"(overlap|agreement|classification|regression|distillation) (\d+)$", r"\1 at depth \2", words)


def is_number(value: Any) -> bool:
    """Whether a value can be drawn."""
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _series_rank(name: str) -> tuple[int, int, str]:
    """Training before held-out, the whole before its parts."""
    return "held_out" in name, name.count("_"), name


X_TITLES = {True: "minutes of training", False: "training step"}  # of one phase, by whether it is planned by time
HEIGHT = 250
MOST_POINTS = 400  # of a series; more are averaged in groups
MOST_MARKED = 60
STARTS = 0.05  # share of the first values that may leave the panel: early losses dwarf all others


@dataclass(frozen=True, slots=True)
class Moment:
    """The held-out prompt decoded at one checkpoint of a training.

    Attributes:
        place: its step or minute. words: its label. tokens_per_pass: tokens committed per target pass.
    """

    place: float
    words: str
    tokens_per_pass: float


def training_figure(
    panel: Panel,
    records: Sequence[Record],
    by_time: bool = False,
    planned: float | None = None,
    dark: bool = False,
) -> go.Figure:
    """One panel over the steps of a phase, or over its minutes.

    Args:
        records: of one phase, in their order.
        by_time: whether the phase is planned by time, so that it is drawn over its minutes instead of its steps.
        planned: minutes or steps that it is planned to take; the x axis reaches that far.
    """
    figure, shown, first = go.Figure(), [], []
    for place, name in enumerate(panel.names):
        points = series(records, name, by_time, 100 if panel.family.percent else 1)
        figure.add_scatter(**_line(points, panel.words(name), place, by_time, panel.family.percent))
        values = [value for _, value in points]
        shown += values[int(STARTS * len(values)) :]
        first += values[:1]
    margin = {"l": 56, "r": 16, "t": 34 if len(panel.names) > 1 else 14, "b": 44}
    style(figure, dark, height=HEIGHT, showlegend=len(panel.names) > 1, margin=margin, legend_font_size=11)
    low, high = _range(panel.family, shown)
    reached = max((_place(record, by_time) for record in records), default=0.0)
    most = max(planned or round_range([0.0, reached])[1], reached)
    figure.update_xaxes(title_text=X_TITLES[by_time], range=[-0.01 * most, 1.02 * most])
    figure.update_yaxes(title_text=panel.family.axis, range=[low, high + 0.02 * (high - low)], nticks=6)
    if first and max(first) > high + 0.05 * (high - low):
        figure.add_annotation(
            text=f"starts at {max(first):.3g}, above this panel", showarrow=False, xref="paper", yref="paper",
            x=1, y=1, xanchor="right", yanchor="top", font={"size": 11, "color": palette(dark).muted},
        )  # fmt: skip
    return figure


def moments_figure(
    moments: Sequence[Moment], chosen: int, by_time: bool, planned: float | None = None, dark: bool = False
) -> go.Figure:
    """Tokens per target pass of the held-out prompt at each checkpoint; the chosen one is framed.

    Args:
        chosen: index of the selected checkpoint.
        by_time, planned: whether places are minutes instead of steps, and how far the phase is planned to go.
    """
    values = [moment.tokens_per_pass for moment in moments]
    places = [moment.place for moment in moments]
    figure = go.Figure()
    figure.add_scatter(
        x=places, y=values, mode="lines+markers", name="held-out prompt", showlegend=False,
        line={"color": SERIES[0], "width": 2}, marker={"symbol": SERIES_SYMBOLS[0], "size": 7},
        hovertext=[escaped(moment.words) for moment in moments],
        hovertemplate="%{hovertext}: %{y:.2f} tokens per target pass<extra></extra>",
    )  # fmt: skip
    if moments:
        figure.add_scatter(
            x=[places[chosen]], y=[values[chosen]], mode="markers", hoverinfo="skip", showlegend=False,
            cliponaxis=False,
            marker={"symbol": "circle-open", "size": 16, "color": palette(dark).select, "line": {"width": 2.5}},
        )  # fmt: skip
    style(figure, dark, height=HEIGHT, margin={"l": 56, "r": 16, "t": 14, "b": 44})
    reached = max(places, default=0.0)
    most = max(planned or round_range([0.0, reached])[1], reached)
    figure.update_xaxes(title_text=X_TITLES[by_time], range=[-0.02 * most, 1.02 * most])
    per_pass = family_of("tokens_per_pass")
    return figure.update_yaxes(title_text=per_pass.axis, range=list(_range(per_pass, values)), nticks=6)


def series(records: Sequence[Record], name: str, by_time: bool = False, scale: float = 1) -> list[tuple[float, float]]:
    """Positions and values of a series; above `MOST_POINTS`, means of neighbours."""
    points = [(_place(record, by_time), scale * record[name]) for record in records if is_number(record.get(name))]
    together = math.ceil(len(points) / MOST_POINTS)
    if together <= 1:
        return points
    groups = [points[start : start + together] for start in range(0, len(points), together)]
    return [(group[-1][0], sum(value for _, value in group) / len(group)) for group in groups]


def round_range(values: Sequence[float]) -> tuple[float, float]:
    """A range of round numbers around some values, which rarely changes while values arrive."""
    if not values:
        return 0.0, 1.0
    low, high = min(values), max(values)
    spread = high - low or abs(high) or 1.0
    unit = 10 ** math.floor(math.log10(spread))
    step = next(unit * share for share in (0.2, 0.5, 1.0, 2.0) if spread / (unit * share) <= 6)
    bottom = math.floor(low / step - 1e-9) * step
    return (max(bottom, 0.0) if low >= 0 else bottom), math.ceil(high / step + 1e-9) * step


def _range(family: Family, values: Sequence[float]) -> tuple[float, float]:
    """The y range of a family for some values."""
    highest = max(values, default=0.0)
    if family.percent:
        return 0.0, next((top for top in (10.0, 25.0, 50.0) if highest <= 0.9 * top), 100.0)
    if family.least is not None:  # plain decoding has exactly 1 token per pass
        return family.least - 0.1, max(family.least + 1.0, math.ceil(2 * highest + 0.2) / 2)
    return round_range(values)


def _place(record: Record, by_time: bool) -> float:
    return record["trained_s"] / 60 if by_time else record["step"]


def _line(points: list[tuple[float, float]], words: str, place: int, by_time: bool, percent: bool) -> dict:
    """One series; a short one has a mark at each point."""
    color, unit = SERIES[place % len(SERIES)], "%" if percent else ""
    at = "minute %{x:.1f}" if by_time else "step %{x:,}"
    return {
        "x": [x for x, _ in points], "y": [y for _, y in points], "name": escaped(words),
        "mode": "lines+markers" if len(points) <= MOST_MARKED else "lines",
        "line": {"color": color, "width": 1.8, "dash": SERIES_DASHES[place % len(SERIES_DASHES)]},
        "marker": {"symbol": SERIES_SYMBOLS[place % len(SERIES_SYMBOLS)], "size": 6},
        "hovertemplate": f"{escaped(words)}, {at}: %{{y:.4~g}}{unit}<extra></extra>",
    }  # fmt: skip

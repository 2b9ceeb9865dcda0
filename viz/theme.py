"""Colours, Plotly symbols and dashes of every view, and the Plotly look that goes with them.

The palette is Okabe-Ito, readable with any colour vision; shape and dash always repeat what colour says. Its
yellow-orange and sky blue are darker than published, at least 3:1 against the white and the dark page; the bonus token
keeps its sky blue and gets a darker outline where needed (`outline`).
"""

from dataclasses import dataclass
from typing import Any

import plotly.graph_objects as go
from plotly.colors import hex_to_rgb


@dataclass(frozen=True, slots=True)
class Mark:
    """How one state is drawn: colour, symbol in Plotly, dash of its edge, label."""

    color: str
    symbol: str
    dash: str
    words: str


GREY = "#8A93A6"

MARKS: dict[str, Mark] = {
    "root": Mark(GREY, "square", "solid", "last committed token"),
    "accepted": Mark("#009E73", "circle", "solid", "accepted"),
    "rejected": Mark("#D55E00", "x-thin", "dash", "rejected"),
    "not_reached": Mark(GREY, "circle-open", "dot", "not reached"),
    "not_verified": Mark(GREY, "circle-open-dot", "dot", "not verified"),
    "pruned": Mark(GREY, "circle-open-dot", "dot", "pruned"),
    "forced_out": Mark(GREY, "circle-open-dot", "dot", "forced out"),
    "recovered": Mark("#CC79A7", "diamond", "dot", "recovered"),
    "bonus": Mark("#56B4E9", "star", "dot", "bonus"),
    "fallback": Mark("#A6761D", "triangle-up", "dot", "fallback"),
    "fold": Mark(GREY, "square-open", "dot", "folded nodes"),
}

# Colour, label and pattern of a bar: patterns distinguish phases without colour.
_PHASES: dict[str, tuple[str, str, str]] = {
    "draft": ("#BD8200", "draft", ""),
    "prune": ("#8D8D8D", "prune", "x"),
    "mask": ("#9684B8", "flatten & mask", "."),
    "verify": ("#0072B2", "verify", "/"),
    "select": ("#CC79A7", "select", "-"),
    "commit": ("#009E73", "commit & KV", ""),
    "rebuild": ("#D55E00", "rebuild KV", "\\"),
    "adapt": ("#A6761D", "history", "|"),
    "other": ("#6B7280", "other", "+"),
}
PHASE_COLORS, PHASE_WORDS, PHASE_PATTERNS = ({name: look[i] for name, look in _PHASES.items()} for i in range(3))

SERIES: tuple[str, ...] = ("#0072B2", "#BD8200", "#009E73", "#CC79A7", "#D55E00", "#4795C1", "#A6761D", "#8A93A6")
SERIES_DASHES: tuple[str, ...] = ("solid", "dash", "dot", "dashdot", "longdash", "longdashdot", "solid", "dash")
SERIES_SYMBOLS = ("circle", "square", "diamond", "cross", "x", "triangle-up", "star", "hexagon", "pentagon")


def say(figure: go.Figure, text: str) -> None:
    """Write a sentence in the middle of an empty figure."""
    figure.add_annotation(text=text, showarrow=False, xref="paper", yref="paper", x=0.5, y=0.5)


@dataclass(frozen=True, slots=True)
class Palette:
    """Colours that depend on the light or dark theme."""

    text: str
    muted: str
    grid: str
    surface: str
    select: str


PAPER = {False: "#FFFFFF", True: "#12171A"}  # page backgrounds of .streamlit/config.toml, by dark
LEAST_CONTRAST = 3.0
LIGHT = Palette(text="#1A1F2B", muted="#5B6475", grid="#E3E6EC", surface="#FFFFFF", select="#B86E00")
DARK = Palette(text="#EEF1F6", muted="#9AA3B5", grid="#2A303C", surface="#0E1117", select="#FFC533")


def palette(dark: bool) -> Palette:
    """The palette of a theme."""
    return DARK if dark else LIGHT


def contrast(first: str, second: str) -> float:
    """Contrast ratio of two `#RRGGBB` colours, 1 to 21 (WCAG 2.2)."""
    luminances = []
    for color in (first, second):
        shares = (value / 255 for value in hex_to_rgb(color))
        linear = [share / 12.92 if share <= 0.04045 else ((share + 0.055) / 1.055) ** 2.4 for share in shares]
        luminances.append(0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2])
    return (max(luminances) + 0.05) / (min(luminances) + 0.05)


def mixed(color: str, other: str, share: float) -> str:
    """`share` of a colour with the rest of another, as CSS `color-mix(in srgb, ...)` does."""
    pairs = zip(hex_to_rgb(color), hex_to_rgb(other), strict=True)
    return "#" + "".join(f"{round(share * mine + (1 - share) * its):02X}" for mine, its in pairs)


def outline(color: str, dark: bool) -> str:
    """A colour with enough contrast to the page: itself, or mixed with the text colour until it has."""
    share = 1.0
    while contrast(shade := mixed(color, palette(dark).text, share), PAPER[dark]) < LEAST_CONTRAST:
        share -= 0.04
    return shade


def with_alpha(color: str, alpha: float) -> str:
    """A `#RRGGBB` colour as `rgba(...)`."""
    red, green, blue = hex_to_rgb(color)
    return f"rgba({red},{green},{blue},{alpha:g})"


def pattern(shape: str) -> dict:
    """A Plotly bar pattern drawn thinly over the full colour, so that bars also differ in greyscale."""
    return {"shape": shape, "size": 6, "solidity": 0.22, "fillmode": "overlay", "fgcolor": "rgba(255,255,255,0.75)"}


def style(figure: go.Figure, dark: bool, **layout: Any) -> go.Figure:
    """The same figure in the app's look: transparent background, legend above the data, light grid.

    Args:
        layout: what the figure has besides, or of its own in place of that.
    """
    colors = palette(dark)
    look = {
        "template": "none",
        "paper_bgcolor": "rgba(0,0,0,0)",
        "plot_bgcolor": "rgba(0,0,0,0)",
        "colorway": list(SERIES),
        "font": {"color": colors.text, "size": 12, "family": "Source Sans, Source Sans Pro, sans-serif"},
        "hoverlabel": {"bgcolor": colors.surface, "font": {"color": colors.text}, "bordercolor": colors.muted},
        # Above the data: below it, a second line of entries would overlap the axis title.
        "legend": {
            "orientation": "h", "yanchor": "bottom", "y": 1.02, "xanchor": "left", "x": 0, "traceorder": "normal",
        },
        "separators": ". ",
        "margin": {"l": 56, "r": 16, "t": 16, "b": 48},
    }  # fmt: skip
    # Axis titles get a standoff and automargin so that no tick label is ever cut off.
    axis = {
        "gridcolor": colors.grid,
        "linecolor": colors.muted,
        "zeroline": False,
        "automargin": True,
        "ticks": "outside",
        "tickcolor": colors.grid,
        "title": {"standoff": 8},
    }
    has = figure.layout.to_plotly_json()
    axes = {"xaxis", "yaxis", *(name for name in has if name[1:].startswith("axis"))}
    # Set as a whole: Plotly takes five times as long to update a layout that is there.
    figure.layout = _merged(has, look | dict.fromkeys(axes, axis))
    return figure.update_layout(**layout) if layout else figure


def _merged(below: dict, above: dict) -> dict:
    """Both, with the values of `above` where both have one."""
    return below | {
        name: _merged(below[name], value) if isinstance(value, dict) and isinstance(below.get(name), dict) else value
        for name, value in above.items()
    }

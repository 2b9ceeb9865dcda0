"""Charts of iterations and runs: times, run strip, accepted lengths, tokens over time, adaptation."""

from collections import Counter
from collections.abc import Sequence
from itertools import takewhile

import plotly.graph_objects as go

from decoding.trace.records import PHASES, IterationTrace, RunTrace
from viz.explain.iteration import phase_seconds
from viz.glossary import setting_title, statistic_words
from viz.theme import (
    MARKS,
    PHASE_COLORS,
    PHASE_PATTERNS,
    PHASE_WORDS,
    SERIES,
    SERIES_DASHES,
    SERIES_SYMBOLS,
    outline,
    palette,
    pattern,
    say,
    style,
)
from viz.tokens import escaped

FINAL_PATTERNS = {"recovered": "/", "bonus": ".", "fallback": "x"}


def phase_times_figure(iteration: IterationTrace, dark: bool = False) -> go.Figure:
    """Phase times of one iteration as one stacked bar."""
    figure = go.Figure()
    for name, seconds in phase_seconds((iteration,)).items():
        if seconds > 0:
            figure.add_bar(**_phase_bar(name, [seconds * 1e3], ["this iteration"], "h"))
    style(figure, dark, barmode="stack", height=180, margin={"l": 16, "r": 16, "t": 60, "b": 44})
    return figure.update_xaxes(title_text="time (ms)").update_yaxes(visible=False)


def phase_times_over_run(run: RunTrace, dark: bool = False) -> go.Figure:
    """Phase times of every iteration, stacked."""
    figure = go.Figure()
    numbers = [i.index + 1 for i in run.iterations]
    each = [phase_seconds((i,)) for i in run.iterations]
    for name in (*PHASES, "other"):
        values = [seconds[name] * 1e3 for seconds in each]
        if any(values):
            figure.add_bar(**_phase_bar(name, numbers, values, "v"))
    style(figure, dark, barmode="stack", bargap=0.08, height=300).update_xaxes(title_text="iteration")
    return figure.update_yaxes(title_text="time (ms)")


def _phase_bar(name: str, x: list, y: list, orientation: str) -> dict:
    value = "%{x:.2f}" if orientation == "h" else "%{y:.2f}"
    return {
        "x": x,
        "y": y,
        "orientation": orientation,
        "name": PHASE_WORDS[name],
        "marker": {"color": PHASE_COLORS[name], "pattern": pattern(PHASE_PATTERNS[name])},
        "hovertemplate": f"{PHASE_WORDS[name]}: {value} ms<extra></extra>",
    }


def run_strip_figure(run: RunTrace, current: int | None = None, dark: bool = False) -> go.Figure:
    """One column per iteration: accepted tokens, the final token in its colour, the current iteration framed."""
    figure = go.Figure()
    numbers = [i.index + 1 for i in run.iterations]
    accepted = [len(i.accepted) for i in run.iterations]
    figure.add_bar(
        x=numbers, y=accepted, name="accepted", marker_color=MARKS["accepted"].color,
        hovertemplate="iteration %{x}: %{y} accepted<extra></extra>",
    )  # fmt: skip
    for kind, shape in FINAL_PATTERNS.items():
        chosen = [i for i in run.iterations if i.final_kind == kind]
        if chosen:
            figure.add_bar(
                x=[i.index + 1 for i in chosen], y=[1] * len(chosen), base=[len(i.accepted) for i in chosen], name=kind,
                marker={"color": MARKS[kind].color, "pattern": pattern(shape),
                        "line": {"color": outline(MARKS[kind].color, dark), "width": 1}},
                customdata=[escaped(i.final_text or "") for i in chosen],
                hovertemplate=f"iteration %{{x}}: {kind} token %{{customdata}}<extra></extra>",
            )  # fmt: skip
    if current is not None:
        top = accepted[current] + (run.iterations[current].final_kind != "none")
        frame = {"x0": current + 0.5, "x1": current + 1.5, "y0": 0, "y1": top + 0.15}
        figure.add_shape(type="rect", **frame, line={"color": palette(dark).text, "width": 2})
    # Overlay with explicit bases: stacking would lift a final token where other kinds have no bar.
    style(figure, dark, barmode="overlay", bargap=0.12, height=260).update_xaxes(title_text="iteration")
    return figure.update_yaxes(title_text="tokens committed", tickformat="d")


def accepted_length_figure(runs: Sequence[RunTrace], dark: bool = False) -> go.Figure:
    """Histogram of accepted lengths (drafted tokens per iteration, the final token left out), runs side by side."""
    figure = go.Figure()
    longest = max((len(i.accepted) for run in runs for i in run.iterations), default=0)
    for place, run in enumerate(runs):
        counts = Counter(len(i.accepted) for i in run.iterations)
        total = sum(counts.values()) or 1
        figure.add_bar(
            x=list(range(longest + 1)), y=[100 * counts[n] / total for n in range(longest + 1)],
            customdata=[counts[n] for n in range(longest + 1)], name=escaped(run.label),
            marker=_run_marker(place, len(runs)),
            hovertemplate=f"%{{x}} accepted: %{{customdata}} of {total} iterations (%{{y:.0f}}%)<extra></extra>",
        )  # fmt: skip
    style(figure, dark, barmode="group", height=280, showlegend=len(runs) > 1)
    figure.update_xaxes(title_text="drafted tokens accepted per iteration", dtick=1)
    return figure.update_yaxes(title_text="share of iterations (%)", rangemode="tozero")


def tokens_over_time(runs: Sequence[RunTrace], dark: bool = False) -> go.Figure:
    """Committed tokens over wall time of each run; steps, because an iteration commits all its tokens at its end.

    A curve ends at the first replayed iteration, which has no measured time.
    """
    figure = go.Figure()
    for place, run in enumerate(runs):
        times, counts = [0.0], [0]
        for iteration in takewhile(lambda each: each.timed, run.iterations):
            times.append(iteration.ended_s)
            counts.append(counts[-1] + len(iteration.committed_ids))
        figure.add_scatter(
            x=times, y=counts, name=escaped(run.label), mode="lines",
            line={"shape": "hv", "width": 2, "color": SERIES[place % len(SERIES)],
                  "dash": SERIES_DASHES[place % len(SERIES_DASHES)]},
            hovertemplate="%{y} tokens after %{x:.3f} s<extra></extra>",
        )  # fmt: skip
        figure.add_scatter(
            x=times[-1:], y=counts[-1:], mode="markers", showlegend=False, hoverinfo="skip",
            marker={"symbol": SERIES_SYMBOLS[place % 8], "size": 9, "color": SERIES[place % len(SERIES)]},
        )  # fmt: skip
    style(figure, dark, height=320).update_xaxes(title_text="time since the start of the call (s)", rangemode="tozero")
    return figure.update_yaxes(title_text="new tokens", rangemode="tozero")


def adaptation_figure(run: RunTrace, dark: bool = False) -> go.Figure:
    """What history adaptation saw and left after every iteration: the statistic, and the settings that it moves."""
    adapted = [(i.index + 1, i.history) for i in run.iterations if i.history is not None]
    figure = go.Figure()
    if not adapted:
        say(figure, "This run has no history adaptation: choose a method that adapts its settings.")
        return style(figure, dark, height=200).update_xaxes(visible=False).update_yaxes(visible=False)
    numbers, first = [place for place, _ in adapted], adapted[0][1]
    statistic = escaped(statistic_words(first.statistic))
    figure.add_scatter(
        x=numbers, y=[history.mean for _, history in adapted],
        name=f"{statistic} (mean of window)", mode="lines+markers",
        line={"color": palette(dark).text, "width": 2}, marker_size=5,
    )  # fmt: skip
    figure.add_scatter(
        x=numbers, y=[history.window[-1] if history.window else None for _, history in adapted],
        name=f"{statistic} (newest)",
        mode="markers", marker={"symbol": "x-thin-open", "size": 6, "color": palette(dark).text},
    )  # fmt: skip
    figure.add_hrect(
        y0=first.target - first.dead_band, y1=first.target + first.dead_band, fillcolor=MARKS["accepted"].color,
        opacity=0.15, line_width=0, layer="below",
    )  # fmt: skip
    moving = list(dict.fromkeys(name for _, history in adapted for name in history.after))  # a fork may move others
    after = {name: [history.after.get(name) for _, history in adapted] for name in moving}
    wide = [name for name in moving if any(value is not None and value > 1 for value in after[name])]
    for place, name in enumerate(moving):
        figure.add_scatter(
            x=numbers, y=after[name],
            name=f"{escaped(setting_title(name))} after it",
            mode="lines+markers", yaxis="y2" if name in wide else "y",
            line={"shape": "hv", "color": SERIES[place % 8], "dash": SERIES_DASHES[(place + 1) % 8]},
            # Large where it changed.
            marker={"symbol": SERIES_SYMBOLS[(place + 1) % 8],
                    "size": [9 if h.after.get(name) != h.before.get(name) else 5 for _, h in adapted]},
        )  # fmt: skip
    if wide:
        title = {"title": {"text": escaped(", ".join(map(setting_title, wide)))}, "rangemode": "tozero"}
        right = title | {"overlaying": "y", "side": "right"}
        figure.update_layout(yaxis2=right | {"tickmode": "auto", "nticks": 8, "tickformat": "~g", "showgrid": False})
    style(figure, dark, height=340).update_xaxes(title_text="iteration")
    return figure.update_yaxes(title_text="share (band: aim)", selector={"side": None})


DEPTH_SHARE = "of the iterations whose verified tree reached a depth, the share whose accepted path did"


def acceptance_by_depth(runs: Sequence[RunTrace], dark: bool = False) -> go.Figure:
    """Share of iterations whose path reached each depth, of those whose verified tree did; runs side by side."""
    figure = go.Figure()
    for place, run in enumerate(runs):
        depths = range(1, max((i.tree_depth for i in run.iterations), default=0) + 1)
        had = [sum(i.tree_depth >= depth for i in run.iterations) for depth in depths]
        reached = [sum(len(i.accepted) >= depth for i in run.iterations) for depth in depths]
        figure.add_bar(
            x=list(depths), y=[100 * r / h for r, h in zip(reached, had, strict=True)], name=escaped(run.label),
            customdata=list(zip(reached, had, strict=True)), marker=_run_marker(place, len(runs)),
            hovertemplate="depth %{x}: accepted in %{customdata[0]} of %{customdata[1]} iterations<extra></extra>",
        )  # fmt: skip
    style(figure, dark, barmode="group", height=280, showlegend=len(runs) > 1).update_xaxes(title_text="depth", dtick=1)
    return figure.update_yaxes(title_text="accepted (% of iterations)", rangemode="tozero")


def _run_marker(place: int, count: int) -> dict:
    """How the bars of a run look: as accepted nodes where it is alone."""
    color = MARKS["accepted"].color if count == 1 else SERIES[place % len(SERIES)]
    return {"color": color, "pattern": pattern(("", "/", ".", "x", "-", "\\", "|", "+")[place % 8])}

"""Standalone pages: a scope, figures, a race or text, in one HTML file that works offline without network requests.

    page = scope_html(run, index)                 # the linked scope at an iteration and its neighbours
    page = figures_html(figures, title)           # [(heading, light, dark)]; each can be saved as SVG and PNG
    page = race_html(race_data(lanes, key), title, about)
    page = text_html(title, body)

What stands above and below the scope, the figures or the race, such as links to other pages, is given as HTML.

Scripts and data are in the file. Its content security policy allows no requests and only these scripts, by hash; token
text is JSON that cannot close its element, and scripts write it only as text.
"""

import base64
import hashlib
import html
import json
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

import plotly.graph_objects as go
from plotly.offline import get_plotlyjs

from decoding.trace.records import RunTrace
from viz.components import component_script, component_style
from viz.scope.data import film_data, make_frame, window_around

STYLE = Path(__file__).parent / "page.css"
# What Streamlit passes to components as CSS variables, from .streamlit/config.toml (a test compares them).
THEME = {
    False: {"text-color": "#0F1513", "background-color": "#FFFFFF", "secondary-background-color": "#F3F5F4",
            "primary-color": "#00795A", "border-color": "#D5DBD8", "link-color": "#0072B2"},
    True: {"text-color": "#E6ECEA", "background-color": "#12171A", "secondary-background-color": "#1C2428",
           "primary-color": "#009E73", "border-color": "#36424A", "link-color": "#56B4E9"},
}  # fmt: skip
FONTS = {"font": '"Source Sans", "Source Sans Pro", system-ui, sans-serif',
         "code-font": '"Source Code Pro", ui-monospace, monospace'}  # fmt: skip


def scope_html(
    run: RunTrace,
    index: int,
    *,
    node: int | None = None,
    phase: str | None = None,
    unfolded: Mapping[int, Collection[int]] | None = None,
    whole: bool = False,
    above: str = "",
) -> str:
    """The linked scope at iteration `index` of a run, with the `whole` run or as many iterations as one film holds.

    `unfolded` are nodes, by iteration, whose folded children are drawn: a standalone page cannot open folds later.
    """
    sizes = [len(iteration.nodes) for iteration in run.iterations]
    window = range(len(sizes)) if whole else window_around(sizes, index)
    frames = [make_frame(run.iterations[i], "saved", i, run.label, (unfolded or {}).get(i, ())) for i in window]
    ask = {"serial": 1, "iteration": index, "node": node, "phase": phase}
    about = f"{run.label} · {run.pair.name} on {run.pair.target.device} · {run.created[:10]}"
    if len(window) < len(run.iterations):
        about += f" · iterations {window.start + 1} to {window.stop} of {len(run.iterations)}"
    data = {"scope": film_data(run, "saved", window, frames, ask), "first": window.start, "last": window.stop - 1}
    body = f'{above}<header><b>Draftscope</b> <span>{html.escape(about)}</span><span id="note"></span></header>'
    body += '<main id="scope"></main>'
    style, script = component_style("scope/scope.css"), component_script("standalone/scope.js")
    return _page(f"{run.label}, iteration {index + 1}", body, style, [script], data)


def figures_html(
    figures: Sequence[tuple[str, go.Figure, go.Figure]], title: str, above: str = "", below: str = ""
) -> str:
    """Figures below one another, each with a button that saves it as SVG and one that saves it as PNG.

    Each figure is given for the light and the dark theme; the reader's system setting chooses.
    """
    parts = []
    for place, (heading, *_) in enumerate(figures):
        buttons = "".join(
            f'<button data-figure="{place}" data-format="{kind}">Save as {kind.upper()}</button>'
            for kind in ("svg", "png")
        )
        parts.append(f'<section><h2>{html.escape(heading)}</h2>{buttons}<div id="figure-{place}"></div></section>')
    body = f"{above}{_head(title)}<main>{''.join(parts)}</main>{below}"
    data = [{"name": heading, "themes": [json.loads(each.to_json()) for each in both]} for heading, *both in figures]
    return _page(title, body, "", [get_plotlyjs(), component_script("standalone/figures.js")], data)


def race_html(data: dict, title: str, about: str, above: str = "") -> str:
    """A race as `viz.race.data` gives it; `about` says how it was measured."""
    body = f'{above}{_head(title)}<main id="race"></main><p>{html.escape(about)}</p>'
    style, script = component_style("race/race.css"), component_script("standalone/race.js")
    return _page(title, body, style, [script], data)


def text_html(title: str, body: str) -> str:
    """A page of text with links; `body` is HTML."""
    return _page(title, f"{_head(title)}<main>{body}</main>", "", [], None)


def _head(title: str) -> str:
    return f"<header><b>Draftscope</b> <span>{html.escape(title)}</span></header>"


def _page(title: str, body: str, style: str, scripts: Sequence[str], data: object) -> str:
    scripts = [f"{script}\n" for script in scripts]
    digests = [base64.b64encode(hashlib.sha256(script.encode()).digest()).decode() for script in scripts]
    hashes = " ".join(f"'sha256-{digest}'" for digest in digests)
    policy = f"default-src 'none'; script-src {hashes}; style-src 'unsafe-inline'; img-src data: blob:"
    policy += "; base-uri 'none'; form-action 'none'"
    tags = "".join(f'<script type="module">{script}</script>\n' for script in scripts)
    return (
        f'<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n'
        f'<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{html.escape(title)} · Draftscope</title>\n"
        f"<style>\n{_theme_css()}\n{STYLE.read_text(encoding='utf-8')}\n{style}\n</style>\n</head>\n<body>\n{body}\n"
        "<noscript>This page needs JavaScript: enable it for this file.</noscript>\n"
        f'<script type="application/json" id="data">{embedded_json(data)}</script>\n{tags}</body>\n</html>\n'
    )


def embedded_json(data: object) -> str:
    """JSON that is safe in a script element: it cannot close the element, open a comment or start a new line."""
    text = json.dumps(data, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    for char in "<>&\u2028\u2029":
        text = text.replace(char, f"\\u{ord(char):04x}")
    return text


def _theme_css() -> str:
    def variables(values: Mapping[str, str]) -> str:
        return " ".join(f"--st-{name}: {value};" for name, value in values.items())

    light, dark = variables(THEME[False] | FONTS), variables(THEME[True])
    scheme = ":root { color-scheme: light dark; }"
    return f"{scheme}\n:root {{ {light} }}\n@media (prefers-color-scheme: dark) {{ :root {{ {dark} }} }}"

"""Scripts and styles of the components as they go into a page: plain files, joined into one module each.

js = component_script("race/lanes.js", "race/race.js")      # behind the helpers that all of them share
css = component_style("race/race.css")                      # behind the colours that all of them share
"""

from pathlib import Path

FOLDER = Path(__file__).parent
SHARED_SCRIPTS = ("scope/draw.js", "mount.js")
# The order matters only for reading: together they are the one module that Streamlit, or a page of its own, takes.
SCOPE_SCRIPTS = (
    "scope/draw.js",
    "scope/film.js",
    "scope/tree.js",
    "scope/zoom.js",
    "scope/overview.js",
    "scope/card.js",
    "scope/compare.js",
    "scope/mask.js",
    "scope/panels.js",
    "scope/cache.js",
    "scope/picture.js",
    "scope/keys.js",
    "scope/selection.js",
    "scope/scope.js",
)
# The colours come first: every component begins with them.
COLORS = "scope/colors.css"
SCOPE_STYLES = (COLORS, "scope/scope.css", "scope/panels.css")


def component_script(*names: str) -> str:
    """One module whose default export is the component's function."""
    return _joined((*SHARED_SCRIPTS, *names))


def component_style(name: str) -> str:
    """The component's style sheet; its colours follow the CSS variables of Streamlit's theme (`--st-*`)."""
    return _joined((COLORS, name))


def scope_script() -> str:
    """The scope's module; its default export is a function of `data`, `parentElement` and the two setters."""
    return _joined(SCOPE_SCRIPTS)


def scope_style() -> str:
    """The scope's style sheet."""
    return _joined(SCOPE_STYLES)


def _joined(names: tuple[str, ...]) -> str:
    return "\n".join((FOLDER / name).read_text(encoding="utf-8") for name in names)

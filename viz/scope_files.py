"""The scope's scripts and style as they go into a page: plain files, joined into one module."""

from pathlib import Path

FOLDER = Path(__file__).with_name("scope")
# The order matters only for reading: together they are the one module that Streamlit, or a page of its own, takes.
SCRIPTS = (
    "draw.js",
    "film.js",
    "tree.js",
    "zoom.js",
    "overview.js",
    "card.js",
    "compare.js",
    "mask.js",
    "panels.js",
    "cache.js",
    "picture.js",
    "keys.js",
    "selection.js",
    "scope.js",
)
# The colours come first: every component begins with them.
COLORS = "colors.css"
STYLES = (COLORS, "scope.css", "panels.css")


def scope_script() -> str:
    """One module whose default export is the component's function of `data`, `parentElement` and the two setters."""
    return _joined(SCRIPTS)


def scope_style() -> str:
    """The component's style sheet; its colours follow the CSS variables of Streamlit's theme (`--st-*`)."""
    return _joined(STYLES)


def _joined(names: tuple[str, ...]) -> str:
    return "\n".join((FOLDER / name).read_text(encoding="utf-8") for name in names)

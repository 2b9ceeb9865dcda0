"""Scripts and styles of the components beside the scope as they go into a page: plain files, joined into one module.

js = component_script("race/lanes.js", "race/race.js")      # behind the helpers that all of them share
css = component_style("race/race.css")                      # behind the colours that all of them share
"""

from pathlib import Path

from viz.scope_files import COLORS

FOLDER = Path(__file__).parent
SHARED_SCRIPTS = ("scope/draw.js", "mount.js")


def component_script(*names: str) -> str:
    """One module whose default export is the component's function."""
    return _joined((*SHARED_SCRIPTS, *names))


def component_style(name: str) -> str:
    """The component's style sheet; its colours follow the CSS variables of Streamlit's theme (`--st-*`)."""
    return _joined((f"scope/{COLORS}", name))


def _joined(names: tuple[str, ...]) -> str:
    return "\n".join((FOLDER / name).read_text(encoding="utf-8") for name in names)

"""Scripts and styles of the components as sent to a page; shared ones are next to this file.

    js = component_script("race/race.js")      # with everything it imports
    css = component_style("race/race.css")     # after the shared colours and marks

The scripts are ES modules that import each other, as a browser and a linter read them. Streamlit takes one module of
text per component, and a standalone page must not load anything, so modules are joined here; no two of them may have
the same top-level name.
"""

import re
from pathlib import Path

FOLDER = Path(__file__).parents[1]
BASE_STYLE = "components/base.css"
IMPORT = re.compile(r'^import [^;]* from "([^"]+)";\n', re.MULTILINE)
EXPORT = re.compile(r"^export (?:default )?", re.MULTILINE)


def component_script(name: str) -> str:
    """One module without imports; a default export of `name` is that of the whole."""
    joined: dict[Path, str] = {}

    def join(path: Path) -> None:
        joined[path] = ""  # marked as seen: modules may import each other
        source = path.read_text(encoding="utf-8")
        for found in IMPORT.findall(source):
            imported = (path.parent / found).resolve()
            if imported not in joined:
                join(imported)
        del joined[path]  # after what it needs
        joined[path] = IMPORT.sub("", source)

    entry = (FOLDER / name).resolve()
    join(entry)
    *imported, last = joined.values()
    return "\n".join([*(EXPORT.sub("", source) for source in imported), last])


def component_style(name: str) -> str:
    """The component's style sheet; its colours follow the CSS variables of Streamlit's theme (`--st-*`)."""
    return "\n".join((FOLDER / each).read_text(encoding="utf-8") for each in (BASE_STYLE, name))

"""The scope component: the one linked view of an iteration, or a tree alone.

    from pages.ui.scope import scope
    from viz.scope_data import scope_data, compact_data, diff_marks

    def go_to(index):                      # arrow up/down or a click on the run strip
        st.session_state["iteration"] = index

    data = scope_data(run, st.session_state["iteration"], key="step", selected=None, phase=None, unfolded=())
    result = scope(data, key="scope", height=700, on_iteration=go_to, on_unfold=open_fold)
    result.selected     # node id the user chose in this scene, -2 = the final token, None = none chosen yet

    compact = compact_data(iteration, scene_id="a:3", title="DynaTree", marks=diff_marks(mine, other)[0])
    scope(compact, key="tree-a", height=320)

Callbacks run before the script does, so that the page draws the new iteration in the same run. `selected` and
`phase` in the data set where a new scene starts; after that the browser keeps them. A `data["report_phase"] = True`
also reports the phase (one rerun per step). Dark or light comes from Streamlit's CSS variables.
For tests the root element `.ds-root` carries `data-drawn-scene`, `data-phase` and `data-selected`.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import streamlit as st

_FOLDER = Path(__file__).resolve().parents[2] / "viz" / "scope"
# The order matters only for reading: plain scripts, joined into the one module that Streamlit takes.
_SCRIPTS = ("draw.js", "tree.js", "card.js", "panels.js", "scope.js")

_component = st.components.v2.component(
    "draftscope_scope",
    js="\n".join((_FOLDER / name).read_text(encoding="utf-8") for name in _SCRIPTS),
    css=(_FOLDER / "scope.css").read_text(encoding="utf-8"),
)


@dataclass(frozen=True, slots=True)
class ScopeResult:
    """What the user did in a scope.

    Attributes:
        selected: node chosen by the user in the scene that `data` describes, None if none was chosen there.
        iteration: iteration asked for in this run of the script, None otherwise; better use `on_iteration`.
        unfold: node whose folded children were asked for in this run, None otherwise; better use `on_unfold`.
        phase: last phase stepped to, only with `report_phase`.
    """

    selected: int | None
    iteration: int | None
    unfold: int | None
    phase: str | None


def scope(
    data: dict,
    key: str,
    height: int,
    *,
    on_iteration: Callable[[int], None] | None = None,
    on_unfold: Callable[[int], None] | None = None,
    on_select: Callable[[int], None] | None = None,
) -> ScopeResult:
    """Show the scope; `data` comes from `viz.scope_data`, `height` is in pixels, `key` must be unique on the page."""

    def call(name: str, function: Callable | None) -> Callable[[], None]:
        def callback() -> None:
            value = _value(st.session_state.get(key), name)
            if function is not None and value is not None:
                function(value["node"] if name == "selected" else value)

        return callback

    result = _component(
        key=key,
        data=data,
        height=height,
        on_iteration_change=call("iteration", on_iteration),
        on_unfold_change=call("unfold", on_unfold),
        on_selected_change=call("selected", on_select),
        on_phase_change=lambda: None,
    )
    chosen = _value(result, "selected")
    here = chosen is not None and chosen["scene"] == data["scene"]["scene_id"]
    return ScopeResult(
        selected=chosen["node"] if here else None,
        iteration=_value(result, "iteration"),
        unfold=_value(result, "unfold"),
        phase=_value(result, "phase"),
    )


def _value(state, name: str):
    """A value of the component's state, which Streamlit hands over as a mapping or as attributes."""
    if state is None:
        return None
    return state.get(name) if hasattr(state, "get") else getattr(state, name, None)

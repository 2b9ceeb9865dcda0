"""The scope component: the one linked view of a run, or a tree alone.

    from pages.ui.scope.component import scope
    from viz.scope.data import compact_data
    from viz.branches.diff import compare_trees

    result = scope(film(run, "scope"), key="scope", height=700, on_iteration=seen, on_unfold=open_fold)
    result.selected     # node id the user chose in the iteration shown, -2 = the final token, None = none chosen yet

    compact = compact_data(iteration, scene_id="a:3", marks=compare_trees(mine, other).marks("A", "B")[0])
    scope(compact, key="tree-a", height=320)

Data with a film (`pages.ui.scope.film`) are many iterations: the browser steps through them by itself, reports where it
stands a moment after it has come to rest, and goes elsewhere only for an `ask` with a serial that it has not seen. Data
without one are a single iteration or a compact tree; there `selected` and `phase` set where a new scene starts.
Callbacks run before the script does. A `data["report_phase"] = True` also reports the phase (one rerun per step). Dark
or light comes from Streamlit's CSS variables. For tests the root element `.ds-root` carries `data-drawn-scene`,
`data-phase`, `data-selected`, `data-second` and `data-hovered`.
"""

import hashlib
import json
from collections.abc import Callable
from dataclasses import dataclass

import streamlit as st

from viz.components import component_script, component_style

_component = st.components.v2.component(
    "draftscope_scope", js=component_script("scope/scope.js"), css=component_style("scope/scope.css")
)


@dataclass(frozen=True, slots=True)
class ScopeResult:
    """What the user did in a scope.

    Attributes:
        selected: node chosen by the user in the scene that `data` describes, None if none was chosen there.
        iteration: iteration that the browser reported last, None before it has moved.
        unfold: node whose folded children were asked for in this run, None otherwise; better use `on_unfold`.
        phase: last phase stepped to, only with `report_phase`.
        absent: the token without a node that was asked about last: `iteration`, `parent`, `token_id`; None if none was.
    """

    selected: int | None
    iteration: int | None
    unfold: int | None
    phase: str | None
    absent: dict | None


def scope(
    data: dict,
    key: str,
    height: int,
    *,
    on_iteration: Callable[[int], None] | None = None,
    on_unfold: Callable[[int], None] | None = None,
    on_select: Callable[[int], None] | None = None,
    on_absent: Callable[[dict], None] | None = None,
) -> ScopeResult:
    """Show the scope; `data` comes from `viz.scope.data`, `height` is in pixels, `key` must be unique on the page.

    With a film every report says which iteration it is about, and `on_iteration` is called with it before the other
    callback: the browser may have moved since Python last heard of it.
    """

    serial = data["ask"]["serial"] if "ask" in data else None

    def call(name: str, function: Callable | None, part: str | None = None) -> Callable[[], None]:
        def callback() -> None:
            value = _value(st.session_state.get(key), name)
            if value is None or _is_late(value, serial):
                return
            if on_iteration is not None and value.get("iteration") is not None:
                on_iteration(value["iteration"])
            if function is not None and function is not on_iteration:
                function(value if part is None else value[part])

        return callback

    result = _component(
        key=key,
        data=data if "version" in data else data | {"version": _digest(data)},
        height=height,
        on_iteration_change=call("iteration", on_iteration, "iteration"),
        on_unfold_change=call("unfold", on_unfold, "node"),
        on_selected_change=call("selected", on_select, "node"),
        on_absent_change=call("absent", on_absent),
        on_phase_change=lambda: None,
    )
    place, chosen, unfold, absent = (_value(result, name) for name in ("iteration", "selected", "unfold", "absent"))
    scene = data["scene"]["scene_id"] if "scene" in data else _scene_shown(data, place)
    return ScopeResult(
        selected=chosen["node"] if chosen is not None and chosen["scene"] == scene else None,
        iteration=None if place is None else place["iteration"],
        unfold=None if unfold is None else unfold["node"],
        phase=_value(result, "phase"),
        absent=absent if absent is not None and absent["scene"] == scene else None,
    )


def _is_late(value: dict, serial: int | None) -> bool:
    """Whether a report was sent before the browser had heard of the last ask, which has taken it elsewhere since."""
    return serial is not None and value.get("serial") is not None and value["serial"] < serial


def _scene_shown(data: dict, place: dict | None) -> str:
    """Scene that a film stands at, as far as Python knows: reported by the browser, or where it was told to go."""
    run, ask = data["film"]["key"], data["ask"]
    known = place is not None and place["run"] == run and not _is_late(place, ask["serial"])
    return f"{run}:{place['iteration'] if known else ask['iteration']}"


def _digest(data: dict) -> str:
    """A version of data that has none, so that the browser need not compare it."""
    return hashlib.blake2b(json.dumps(data).encode(), digest_size=8).hexdigest()


def _value(state, name: str):
    """A value of the component's state, which Streamlit hands over as a mapping or as attributes."""
    if state is None:
        return None
    return state.get(name) if hasattr(state, "get") else getattr(state, name, None)

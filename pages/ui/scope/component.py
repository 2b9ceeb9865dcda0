"""The scope component: the linked view of a run, or a tree alone.

    scope(film(run), key="scope", height=700, on_iteration=seen, on_unfold=open_fold)
    lone_tree(iteration, "tree-a", 320, scene_id="a:3", title="A")

Data with a film (`pages.ui.scope.run`) contain many iterations: the browser steps through them by itself, reports its
position shortly after it stops, and jumps only for an `ask` with a serial that it has not seen. Data without a film are
a compact tree; there `selected` and `phase` set where a new scene starts. Callbacks run before the
script does. Dark or light comes from Streamlit's CSS variables. For tests the root element `.ds-root` carries
`data-drawn-scene`, `data-phase`, `data-selected`, `data-second` and `data-hovered`.
"""

import hashlib
import json
from collections.abc import Callable
from typing import Any

import streamlit as st

from decoding.trace.records import IterationTrace
from viz.components import component_script, component_style
from viz.scope.data import compact_data

_component = st.components.v2.component(
    "draftscope_scope", js=component_script("scope/scope.js"), css=component_style("scope/scope.css")
)


def scope(
    data: dict,
    key: str,
    height: int,
    *,
    on_iteration: Callable[[int], None] | None = None,
    on_unfold: Callable[[int], None] | None = None,
    on_select: Callable[[int], None] | None = None,
    on_absent: Callable[[dict], None] | None = None,
) -> None:
    """Show the scope; `data` comes from `viz.scope.data`, `height` is in pixels, `key` must be unique on the page.

    With a film every report says which iteration it is about, and `on_iteration` is called with it before the other
    callback: the browser may have moved since Python last heard of it.

    Args:
        on_unfold, on_select: get the node; the final token is -2.
        on_absent: gets the clicked token that has no node: `iteration`, `parent`, `token_id`.
    """
    serial = data["ask"]["serial"] if "ask" in data else None
    if "version" not in data:  # the browser need not compare all of it
        data = data | {"version": hashlib.blake2b(json.dumps(data).encode(), digest_size=8).hexdigest()}

    def call(name: str, function: Callable | None, part: str | None = None) -> Callable[[], None]:
        def callback() -> None:
            value = st.session_state[key].get(name)
            if value is None:
                return
            if serial is not None and value["serial"] is not None and value["serial"] < serial:
                return  # sent before the browser received the last ask, which has since moved it elsewhere
            if on_iteration is not None:
                on_iteration(value["iteration"])
            if function is not None and function is not on_iteration:
                function(value if part is None else value[part])

        return callback

    _component(
        key=key,
        data=data,
        height=height,
        on_iteration_change=call("iteration", on_iteration, "iteration"),
        on_unfold_change=call("unfold", on_unfold, "node"),
        on_selected_change=call("selected", on_select, "node"),
        on_absent_change=call("absent", on_absent),
    )


def lone_tree(
    iteration: IterationTrace,
    key: str,
    height: int,
    scene_id: str,
    *,
    make: Callable[..., dict] = compact_data,
    on_select: Callable[[int], None] | None = None,
    **shown: Any,
) -> None:
    """A tree alone, in which unfolded nodes stay unfolded; `shown` are further arguments of `make`."""
    opened = st.session_state.setdefault("unfolded", {})

    def unfold(node: int) -> None:
        opened[scene_id] = (*opened.get(scene_id, ()), node)

    data = make(iteration, scene_id=scene_id, unfolded=opened.get(scene_id, ()), **shown)
    scope(data, key, height, on_unfold=unfold, on_select=on_select)

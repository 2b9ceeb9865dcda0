"""The race component: lanes that replay recorded calls on one clock, in the browser alone.

    race(race_data(lanes, key="r1"))

For tests the root element `.race-root` carries `data-race`, `data-mode`, `data-playing`, `data-done` and `data-at`,
every `.lane` the number of its tokens on screen as `data-tokens`.
"""

import streamlit as st

from viz.component_files import component_script, component_style

_component = st.components.v2.component(
    "draftscope_race",
    js=component_script("race/lanes.js", "race/controls.js", "race/race.js"),
    css=component_style("race/race.css"),
)
HEIGHT = 600
# What the window holds besides the race: menu, toolbar, methods, and the line below it unless four lanes need the room.
AROUND_REM, AROUND_FOUR_REM = 11.9, 9.8
# The race fills the rest of the window, within reason; Streamlit knows no heights but pixels.
FILL = """
<style>
.st-key-race_area .st-key-race_lanes, .st-key-race_area [class*=stBidiComponent] {
  flex: none !important; height: clamp(560px, calc(100vh - var(--race-around)), 900px) !important;
}
.st-key-race_methods { min-height: 2.5rem; }
.st-key-toolbar [data-testid=stProgress] p { white-space: nowrap; overflow: hidden; text-overflow: ellipsis; }
</style>
"""


def race(data: dict) -> None:
    """Show a race; `data` comes from `viz.race_data`."""
    with st.container(key="race_area"):
        around = AROUND_REM if len(data["lanes"]) < 4 else AROUND_FOUR_REM
        st.html(f"{FILL}<style>.st-key-race_area {{ --race-around: {around}rem; }}</style>")
        _component(key="race_lanes", data=data, height=HEIGHT)

"""Tune live: change a setting, and the same prefix is drafted and verified again, next to the pinned tree."""

import streamlit as st

from decoding.common.errors import SettingsError
from pages.ui.app.setup import setup
from pages.ui.common.errors import load_torch, need_torch, show_error
from pages.ui.tune.controls import (
    KEY,
    chosen_method,
    method_select,
    pin_buttons,
    pinned_method,
    position,
    position_slider,
    prefix_popover,
    settings_sliders,
    tree_methods,
    try_elsewhere,
)
from pages.ui.tune.view import STYLE, draw_changes, draw_chart, draw_disturbance, draw_trees, draw_waiting, draw_whole
from pages.ui.tune.work import Wish, current_bench, fulfil, measure_shown
from pages.ui.widgets.controls import CONFIGURATION, picked_sampling, preset_picker, reset_button


def main() -> None:
    """Menu, then one fragment: a slider redraws trees and figures and nothing else."""
    setup("Tune live")
    st.html(STYLE)
    if not need_torch():
        return
    load_torch()
    workplace()


@st.fragment
def workplace() -> None:
    """Toolbar, settings on the left; on the right the two trees, what changed, the points tried."""
    bench = current_bench()
    with st.container(key="toolbar", horizontal=True, vertical_alignment="center", gap="small"):
        source = prefix_popover()
        method_select()
        preset_picker(KEY, tree_methods(), placeholder=CONFIGURATION, label_visibility="collapsed", width=260)
        method = contradiction = None
        try:
            method = chosen_method()
        except SettingsError as error:  # shown below the trees
            contradiction = error
        reset_button(
            KEY,
            "Defaults",
            "Sets every setting to its default, the paper's if there is one, also those that the run had otherwise",
        )
        st.space("stretch")
        pin_buttons(method)
        try_elsewhere(method)
    left, right = st.columns([1, 3.5], gap="small")
    settings = left.container(key="tune_settings", height=600, border=True)
    with right:
        trees, changes = st.container(key="tune_trees"), st.container(key="tune_changes")
        chart, whole = st.columns([2.1, 1], gap="small")
    first = bench.shown is None
    if first:
        draw_settings(settings, bench, source)  # something to look at while the models load

    # The session has the requested values before their widgets are drawn, so the trees can be drawn first.
    sampling = picked_sampling()
    wish = Wish(source, position(), pinned_method(sampling), method, sampling) if method is not None else None
    drawn = wish is not None and fulfil(bench, wish)
    with trees:
        draw_trees(bench, fits=contradiction is None)
    if not first:
        draw_settings(settings, bench, source)
    if drawn:
        measure_shown(bench)
    with changes:
        if contradiction is not None:
            show_error(contradiction)
            if bench.shown is not None:
                st.html('<div class="tune-line">The right tree still shows the last valid settings.</div>')
        elif drawn:
            draw_changes(bench)
        else:
            draw_waiting()
    with whole.container(key="tune_whole"):
        draw_whole(bench, method)
    with whole:
        draw_disturbance(bench)
    with chart:  # after the words of a whole generation: one that ends in between has its point here, too
        draw_chart(bench)


def draw_settings(place, bench, source) -> None:
    """Position of the prefix and every setting of the method."""
    with place:
        position_slider(bench, source)
        settings_sliders()


main()

"""The controls of Tune live: prefix, method, configuration, every setting, the pinned tree."""

from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING

import streamlit as st

import decoding
from decoding.common.errors import SettingsError
from decoding.common.settings import ENGINE, GROUPS, HISTORY, VERIFICATION, SettingInfo
from decoding.trace.records import IterationTrace, Setting
from pages.ui.common.errors import escape_markdown
from pages.ui.common.models import manager
from pages.ui.common.state import Run, current_run, selected_iteration, trace_at
from pages.ui.tune.work import Bench, PrefixSource, within
from pages.ui.widgets.controls import (
    SAMPLING,
    hold,
    is_idle,
    method_as_verified,
    picked_sampling,
    picked_settings,
    sampling_controls,
    seed,
    seed_method,
    set_method,
    setting_key,
    setting_widget,
    setting_words,
    shown_settings,
    start_method,
    verifier_buttons,
)
from pages.ui.widgets.prompts import keep_in_address, picked_prompt, prompt_picker, prompt_title

if TYPE_CHECKING:
    from decoding.methods.method import Method
    from decoding.sampling.sampling import Sampling

KEY = "tune"
PIN = ":material/keep:"
FROM_PROMPT, FROM_RUN = "Prompt", "Run in Step through"
FIRST_POSITION = 39


def tree_methods() -> list[str]:
    """Methods that draft: the settings of the others change no tree."""
    return [name for name, method in decoding.METHODS.items() if method.drafter.drafts]


def chosen_method() -> "Method":
    """The method with the settings of the widgets.

    Raises:
        SettingsError: the settings contradict one another, or the verifier would bias the output.
    """
    method = method_as_verified(st.session_state[KEY], KEY)
    chosen = method.with_settings(**picked_settings(method, KEY))
    chosen.check(picked_sampling())
    return chosen


def pinned_method(sampling: "Sampling") -> "Method":
    """The method of the pinned tree on the left; what the app begins with until another is pinned.

    A verifier that does not fit the current sampling is replaced by NSS: the tree stays the same.
    """
    from decoding.methods.method import fitted

    start = start_method()
    begun = decoding.METHODS[start.name].with_settings(**start.settings())  # named as `chosen_method` names it
    return fitted(st.session_state.setdefault("tune_pinned", begun), sampling)


def method_select() -> None:
    """The method to tune."""
    seed_method(KEY, tree_methods())
    st.selectbox(
        "Method",
        tree_methods(),
        key=KEY,
        format_func=lambda name: decoding.METHODS[name].label,
        label_visibility="collapsed",
        persist_state="session",
        bind="query-params",
        width=176,
    )


def pin_buttons(method: "Method | None") -> None:
    """Pin the current tree for comparison, or put the pinned settings back into the sliders."""

    def pin() -> None:
        with suppress(SettingsError):  # which is shown next to the widgets
            st.session_state["tune_pinned"] = chosen_method()  # what the page was last drawn with may be older

    pinned = pinned_method(picked_sampling())
    same, hint = method == pinned, "Put the pinned settings back into the sliders"
    st.button("Back to pinned", key="tune_back", on_click=set_method, args=(KEY, pinned), disabled=same, help=hint)
    hint, idle = "Compare later trees with the current one", same or method is None
    st.button("Pin this tree", key="tune_pin", help=hint, on_click=pin, type="primary", disabled=idle, icon=PIN)


def pin_iteration(run: Run, iteration: IterationTrace) -> None:
    """Stand where an iteration of a run began, with its method, settings and sampling, pinned and in the sliders.

    Call it in a callback: the widgets of the page are drawn afterwards.
    """
    from decoding.replay.stored_state import method_of

    made = trace_at(run, iteration.index)
    method = method_of(made)
    if method.drafter.drafts:
        method = replace(method, drafter=method.drafter.with_in_force(iteration.settings))
        st.session_state["tune_pinned"] = method
        set_method(KEY, method)
    for name in SAMPLING:
        st.session_state[f"sampling_{name}"] = getattr(made.sampling, name)
    st.session_state["tune_position"] = iteration.prefix_length - len(run.trace.prompt_ids)
    st.session_state["tune_stands"] = run.key, iteration.index


def prefix_popover() -> PrefixSource:
    """The source of the prefix, behind a button that names it."""
    begins = "tune_source" not in st.session_state and KEY not in st.query_params
    seed("tune_source", FROM_PROMPT, [(FROM_PROMPT, FROM_PROMPT)])
    run, info = current_run(), manager().info
    if run is None or len(run.trace.output_ids) < 2 or (info is not None and run.trace.pair.name != info.name):
        run = None  # it has no text, or another pair decoded it
        st.session_state["tune_source"] = FROM_PROMPT

    def stand_where_the_run_is_looked_at() -> None:
        if st.session_state["tune_source"] == FROM_RUN and run is not None:
            pin_iteration(run, run.trace.iterations[selected_iteration()])

    if begins and run is not None and run.source != "recorded":  # a person looks for the iteration they came from
        st.session_state["tune_source"] = FROM_RUN
    if run is not None and st.session_state.get("tune_stands") != (run.key, selected_iteration()):
        stand_where_the_run_is_looked_at()
    words = FROM_RUN if st.session_state["tune_source"] == FROM_RUN else prompt_title(picked_prompt())
    with st.popover(escape_markdown(words), key="tune_prefix", icon=":material/edit_note:"):
        source = st.segmented_control(
            "Source of the prefix",
            [FROM_PROMPT, FROM_RUN],
            key="tune_source",
            required=True,
            disabled=run is None,
            on_change=stand_where_the_run_is_looked_at,
            persist_state="session",
        )
        if source == FROM_RUN and run is not None:
            st.caption("The text of the run in Step through, up to the iteration selected there, with its settings.")
            return PrefixSource(("run", run.key, len(run.trace.iterations)), run=run)
        prompt_picker()
        prompt = picked_prompt()
        keep_in_address(prompt)
        return PrefixSource(("prompt", prompt), prompt=prompt)


def position() -> int:
    """Number of tokens after the prompt in the prefix."""
    seed("tune_position", FIRST_POSITION)
    return int(st.session_state["tune_position"])


def position_slider(bench: Bench, source: PrefixSource) -> None:
    """Slider for the length of the prefix."""
    st.markdown("**Prefix**")
    known = bench.text is not None and bench.text.key == source.key
    last = bench.text.last_position if known else source.last_position
    hint = "Both trees are drafted again at the new place. Points of single iterations belong to their prefix."
    if last < 1:
        st.caption("The text ends right after the prompt: there is only one prefix.")
        return
    hold("tune_position", within(position(), last), (0, last))
    st.slider("Tokens after the prompt", 0, last, key="tune_position", persist_state="session", help=hint)


def try_elsewhere(method: "Method | None") -> None:
    """Copy the settings to Step through."""
    idle, hint = method is None, "Use this method and these settings in Step through"
    if st.button("Step through", key="tune_take", disabled=idle, icon=":material/arrow_forward:", help=hint):
        set_method("method", method)
        st.switch_page("pages/step_through.py", query_params={})


def settings_sliders() -> None:
    """Every setting of the method: widget, meaning, and the default as a button that restores it."""
    method = decoding.METHODS[st.session_state[KEY]]
    defaults, infos = shown_settings(method.name, KEY), method_as_verified(method.name, KEY).infos
    switches, values = {infos[name].needs for name in defaults}, {}
    sources = {infos[name].source for name in defaults}
    if "code" in sources:
        st.caption("At each setting: its default, from the **paper** or, if that has none, from its public **code**.")
    elif "paper" in sources:
        st.caption("At each setting: its default, from the **paper** if that has one.")
    # Settings that shape the tree come first; verification changes none of its nodes.
    for group in sorted(GROUPS, key=(VERIFICATION, ENGINE).__contains__):
        # Switches first: the settings they disable are below them.
        names = [name for name in defaults if infos[name].group == group and name != "verifier"]
        names.sort(key=lambda name: name not in switches)
        if not names and group != VERIFICATION:
            continue
        if group == VERIFICATION:
            verifier_buttons(method, KEY, picked_sampling())
        else:
            st.markdown(f"**{group}**")
        if group == HISTORY:
            st.caption("Acts between iterations: the trees above do not change, a whole generation does.")
        for name in names:
            widget, info = setting_key(KEY, method.name, name), infos[name]
            idle = values.get(info.needs) is False or is_idle(method, KEY, info)
            values[name] = setting_widget(widget, method.name, info, defaults[name], idle)
            default_line(widget, info, defaults[name], values[name])
    sampling_controls(columns=2)


def default_line(widget: str, info: SettingInfo, default: Setting, value: Setting) -> None:
    """Below a setting: its meaning, and its default with the source, a button once the value differs."""

    def back() -> None:
        st.session_state[widget] = default

    kind = "switch" if isinstance(default, bool) else "text" if isinstance(default, str) else "value"
    with st.container(key=f"default_{kind}_{info.name}", horizontal=True, horizontal_alignment="distribute"):
        st.caption(escape_markdown(info.help))
        changed = value != default
        st.button(
            f"{info.source}: {setting_words(default, info)}",
            key=f"back_{widget}",
            type="tertiary",
            icon=":material/undo:" if changed else None,
            disabled=not changed,
            on_click=back,
            width="content",
        )

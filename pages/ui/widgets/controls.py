"""Widgets of a method, its settings, sampling and length, and what stands in them before they are drawn."""

from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import streamlit as st

import decoding
from decoding.common.errors import SettingsError
from decoding.common.settings import GROUPS, VERIFICATION, SettingInfo
from decoding.trace.records import DraftSampling, Setting
from pages.ui import PAGES
from pages.ui.common.errors import escape_markdown, show_error
from pages.ui.common.models import manager
from pages.ui.common.state import DRAWINGS
from pages.ui.widgets.trained import NONE_WORDS, TRAINED, presets, trained_choices
from viz.glossary import explain_term

if TYPE_CHECKING:
    from streamlit.delta_generator import DeltaGenerator

    from decoding.methods.method import Method
    from decoding.sampling.sampling import Sampling


DEFAULT_NEW_TOKENS = 96
DEFAULT_WORDS = {
    "paper": "Default of the {} paper",
    "code": "Default of the {} paper's public code",
    "default": "Default",
}
# Label, lowest, highest, step, default, meaning.
SAMPLING: dict[str, tuple[str, Any, Any, Any, Any, str]] = {
    "temperature": (
        "Temperature", 0.0, 2.0, 0.05, 0.0, "Temperature of the target; 0 decodes greedily.",
    ),
    "top_p": (
        "Top-p", 0.05, 1.0, 0.01, 1.0, "Restricts the target to the fewest tokens whose probabilities sum to this.",
    ),
    "draft_temperature": (
        "Draft temperature", 0.05, 2.0, 0.05, 1.0, "Temperature of the draft, whose tokens are sampled or ranked.",
    ),
    "seed": ("Seed", 0, 2**31 - 1, 1, 0, "The same seed gives the same tokens on the same device."),
}  # fmt: skip


def settings_form(
    method: "Method", key: str, columns: int = 2, groups: Sequence[str] = GROUPS, sampling: "Sampling | None" = None
) -> dict[str, Setting]:
    """Widgets for every setting of a method, in groups; returns all values, including those without effect.

    Verifiers that would bias the output under this sampling (greedy decoding if none is given) cannot be chosen.
    """
    defaults, infos = shown_settings(method.name, key), method_as_verified(method.name, key).infos
    verifier = defaults.pop("verifier", None)
    values: dict[str, Setting] = {}
    for group in groups:
        names = [name for name in defaults if infos[name].group == group]
        if group == VERIFICATION and verifier is not None:
            values["verifier"] = verifier_buttons(method, key, sampling)
        if not names:
            continue
        # Switches go next to the heading, the settings they disable below.
        switches = [name for name in names if isinstance(defaults[name], bool)]
        with st.container(horizontal=True, vertical_alignment="center", gap="medium"):
            if group != VERIFICATION:  # its heading is above the verifiers
                st.markdown(f"**{group}**", width="content")
            for name in switches:
                widget = setting_key(key, method.name, name)
                values[name] = setting_widget(widget, method.name, infos[name], defaults[name])
        others = [name for name in names if name not in switches]
        for start in range(0, len(others), columns):
            for place, name in zip(st.columns(columns), others[start : start + columns], strict=False):
                idle = values.get(infos[name].needs) is False or is_idle(method, key, infos[name])
                widget = setting_key(key, method.name, name)
                with place:
                    values[name] = setting_widget(widget, method.name, infos[name], defaults[name], idle)
    return values


def verifier_buttons(method: "Method", key: str, sampling: "Sampling | None") -> str:
    """A button per verifier: the chosen one is highlighted, one that would bias the output is grey and says why."""
    from decoding.verifiers import VERIFIERS

    sampling, widget = sampling or decoding.Sampling(), setting_key(key, method.name, "verifier")
    chosen, kind_of_tree = chosen_verifier(method, key, sampling), draft_sampling_of(method, key)

    def choose(name: str) -> None:
        st.session_state[widget] = name

    st.markdown(f"**{VERIFICATION}**")
    with st.container(key=f"{widget}_choice", horizontal=True, gap="xsmall"):
        for name, kind in VERIFIERS.items():
            refusal = kind().refusal(kind_of_tree, sampling)
            st.button(
                kind.label,
                key=f"{widget}_{name}",
                type="primary" if name == chosen else "secondary",
                disabled=refusal is not None,
                help=escape_markdown(refusal or f"{kind.summary} {kind.paper}."),
                on_click=choose,
                args=(name,),
            )
    refusal = VERIFIERS[chosen]().refusal(kind_of_tree, sampling)
    if refusal is not None:
        st.error(escape_markdown(f"{refusal} Choose a verifier that is not grey."), icon=":material/block:")
    else:
        grey = any(kind().refusal(kind_of_tree, sampling) is not None for kind in VERIFIERS.values())
        why = " Grey verifiers do not fit this tree and sampling: hover over one to see why." if grey else ""
        st.caption(escape_markdown(f"{VERIFIERS[chosen].summary} Source: {VERIFIERS[chosen].paper}.{why}"))
    return chosen


def draft_sampling_of(method: "Method", key: str) -> "DraftSampling":
    """How a method with the settings under `key` chooses its tokens; the default where they contradict one another."""
    values = picked_settings(method_as_verified(method.name, key), key)
    values = {name: values[name] for name in (*method.drafter.settings(), *method.drafter.optional)}
    try:
        return method.drafter.with_settings(**values).draft_sampling
    except SettingsError:
        return method.drafter.draft_sampling


def setting_widget(key: str, method_name: str, info: SettingInfo, default: Setting, disabled: bool = False) -> Any:
    """One setting: a switch, a choice or a slider, with its meaning and its default in the help."""
    seed(key, default)
    shared = {"key": key, "disabled": disabled, "persist_state": "session", "help": setting_help(info, default)}
    if isinstance(default, bool):
        return st.toggle(info.title, **shared)
    if info.name in TRAINED:
        # Trained results for the pair in memory; a choice that no longer fits is cleared.
        verified = method_as_verified(method_name, key.removesuffix(f"_{method_name}_{info.name}"))
        choices = trained_choices(verified)[info.name]
        if st.session_state[key] not in choices:
            st.session_state[key] = ""
        return st.selectbox(info.title, list(choices), format_func=choices.get, **shared)
    if isinstance(default, str) and info.choices:
        return st.selectbox(info.title, list(info.choices), format_func=info.words, **shared)
    if isinstance(default, str):
        return (st.text_input(info.title, placeholder=info.placeholder, **shared) or "").strip()
    value = type(default)(st.session_state[key])
    if value not in info.accepted:
        value = min(max(value, info.offered[0]), info.offered[1])
    low, high = info.offered_with(value)
    hold(key, value, (low, high))
    # Values between two steps are shown unchanged.
    written = "%d" if isinstance(info.default, int) else "%.3g"
    return st.slider(info.title, low, high, step=info.step, format=written, **shared)


def setting_help(info: SettingInfo, default: Setting) -> str:
    """Meaning, accepted range and default of a setting, and where the default comes from."""
    accepted = f" Accepted: {info.accepted}." if info.accepted else ""
    return f"{info.help}{accepted} {DEFAULT_WORDS[info.source].format(info.paper)}: {setting_words(default, info)}."


def setting_words(value: Setting, info: SettingInfo | None = None) -> str:
    """A value of a setting as shown on the screen; an empty text is what it means."""
    if isinstance(value, bool):
        return "on" if value else "off"
    if value == "":
        meant = (NONE_WORDS.get(info.name) or info.placeholder if info else "") or "empty"
        return meant[:1].lower() + meant[1:]
    return value.replace("_", " ") if isinstance(value, str) else f"{value:g}"


def sampling_controls(key: str = "sampling", columns: int = 4) -> "Sampling":
    """Temperature and top-p of the target, temperature of the draft, seed."""
    st.markdown("**Sampling**")
    values = {}
    places = [place for _ in range(0, len(SAMPLING), columns) for place in st.columns(columns)]
    for place, (name, (label, low, high, step, default, meaning)) in zip(places, SAMPLING.items(), strict=False):
        widget = f"{key}_{name}"
        seed(widget, default)
        hold(widget, as_widget_holds(name, st.session_state[widget]))
        shared = {"key": widget, "persist_state": "session", "help": meaning}
        if name == "seed":
            values[name] = int(place.number_input(label, low, high, **shared))
        else:
            idle = name == "top_p" and values["temperature"] == 0
            values[name] = place.slider(label, low, high, step=step, disabled=idle, **shared)
    return decoding.Sampling(**values)


def hold(key: str, value: float, limits: tuple[float, float] | None = None) -> None:
    """Set a slider, before it is drawn, where its value or its `limits` differ or the page was drawn last without it:
    with other limits, or anew, it is another widget.

    A value set from here replaces what the browser has by then: keys pressed meanwhile would be lost.
    """
    state, drawing = st.session_state, st.session_state.get(DRAWINGS, 0)
    same = type(state.get(key)) is type(value) and state[key] == value
    known, last = state.get(f"{key}_drawn", (None, -1))
    if not same or known != limits or last < drawing - 1:
        state[key] = value
    state[f"{key}_drawn"] = limits, drawing


def as_widget_holds(name: str, value: float) -> float:
    """A value of a run's sampling, clamped to the range of its widget."""
    _, low, high, *_ = SAMPLING[name]
    return type(low)(min(max(value, low), high))


def picked_sampling(key: str = "sampling") -> "Sampling":
    """The values of the sampling controls, for use before they are drawn or without them."""
    picked = {name: st.session_state.get(f"{key}_{name}", SAMPLING[name][4]) for name in SAMPLING}
    return decoding.Sampling(**{name: as_widget_holds(name, value) for name, value in picked.items()})


def sampling_words(sampling: "Sampling") -> str:
    """Sampling in a few words for a button: `Greedy`, or `T 0.8, top-p 0.9`."""
    words = ["Greedy"] if sampling.greedy else [f"T {sampling.temperature:g}"]
    if not sampling.greedy and sampling.top_p < 1:
        words.append(f"top-p {sampling.top_p:g}")
    if sampling.draft_temperature != 1:
        words.append(f"draft T {sampling.draft_temperature:g}")
    return ", ".join(words)


def settings_popover(label: str, key: str, icon: str, **look: Any) -> "DeltaGenerator":
    """A popover whose contents are to be drawn only while it is `open`.

    A value set from elsewhere does not reach a widget of a closed popover, whose older one the browser sends again; and
    twenty widgets that nobody sees slow down every click. Its button has the new words, and its `look`, once it is
    closed: with another label it is another popover, drawn anew, and whatever has the focus in it loses it.
    """
    if not st.session_state.get(key):
        st.session_state[f"{key}_look"] = label, look
    label, look = st.session_state.setdefault(f"{key}_look", (label, look))
    return st.popover(label, key=key, icon=icon, on_change="rerun", **look)


def length_control() -> None:
    """The most tokens to decode; if they do not fit after the prompt, the run says so when it starts."""
    st.session_state["max_new_tokens"] = picked_length()
    st.number_input(
        "Maximum new tokens",
        1,
        _context(),
        key="max_new_tokens",
        step=16,
        persist_state="session",
        help=f"Prompt and new tokens together must fit into {_context():,} tokens.",
    )


def picked_length() -> int:
    """The most tokens to decode, drawn or not."""
    return min(max(int(st.session_state.get("max_new_tokens", DEFAULT_NEW_TOKENS) or 1), 1), _context())


def _context() -> int:
    """Tokens that the pair reads at most, or that the next one is asked to."""
    info = manager().info
    return info.context if info is not None else manager().settings.context_length


def setting_key(key: str, method_name: str, name: str) -> str:
    """Session-state key of a setting's widget."""
    return f"{key}_{method_name}_{name}"


def chosen_verifier(method: "Method", key: str, sampling: "Sampling") -> str:
    """The verifier clicked under `key`; by default the method's own, or NSS where its own only fits greedy decoding."""
    from decoding.methods.method import fitted

    clicked = st.session_state.get(setting_key(key, method.name, "verifier"))
    own = fitted(method, sampling) if method.verifier.greedy_only else method
    return clicked or own.verifier.name


def method_as_verified(name: str, key: str) -> "Method":
    """A method with its defaults and the verifier chosen under `key`, with the settings of that verifier."""
    method = decoding.METHODS[name]
    return method.with_settings(verifier=chosen_verifier(method, key, picked_sampling()))


def picked_settings(method: "Method", key: str) -> dict[str, Setting]:
    """The values of a method's widgets, drawn or not; trained results only where they fit."""
    offered = trained_choices(method)
    values = {}
    for name, value in method.all_settings().items():
        picked = st.session_state.get(setting_key(key, method.name, name))
        values[name] = value if picked is None else picked
        if name in TRAINED and values[name] not in offered.get(name, ()):
            values[name] = ""
    return values


def is_idle(method: "Method", key: str, info: SettingInfo) -> bool:
    """Whether a setting has no effect because a trained head or selector replaces it."""
    return bool(info.given_by and picked_settings(method_as_verified(method.name, key), key).get(info.given_by))


def shown_settings(name: str, key: str) -> dict[str, Setting]:
    """The defaults of the settings that have an effect."""
    method = method_as_verified(name, key)
    optional = {each: method.infos[each].default for each in method.drafter.optional if each not in TRAINED}
    settings = optional | method.settings() | dict.fromkeys(trained_choices(method), "")
    if not method.drafter.drafts:
        settings.pop("cache_policy", None)
        return settings
    return settings | {"node_order": method.node_order}


def seed(key: str, default: Any, words: Mapping[Any, str] | Sequence[tuple[Any, str]] = ()) -> None:
    """Initial value of a widget, unless it has one or the address gives a valid one.

    Streamlit writes an option into the address as shown on the screen: `words` has the labels by value, as a
    mapping or in pairs; a widget without them takes nothing from the address.
    """
    if key not in st.session_state and st.query_params.get(key) not in dict(words).values():
        st.session_state[key] = default


def say_again(key: str) -> None:
    """Set a widget, before it is drawn, to its own value.

    Otherwise a page shows an empty or the lowest value for a widget whose key was set on another page.
    """
    st.session_state[key] = st.session_state[key]


DEFAULT_METHOD = "dynatree"  # and what an address without a method means, with the paper's settings
CONFIGURATION = "Ready-made configuration"
OURS, PAPERS = "our settings", "Paper's default"
FASTEST = "Which method is fastest here?"


def method_picker(key: str, sampling: "Sampling", head: "DeltaGenerator") -> "Method | None":
    """Pick a method in `head` and its settings here; a contradiction is shown as a sentence and gives None."""
    seed_method(key)
    place, beside = head.columns(2)
    name = place.selectbox(
        "Method", list(decoding.METHODS), key=key, format_func=lambda name: decoding.METHODS[name].label,
        persist_state="session",
    )  # fmt: skip
    method = decoding.METHODS[name]
    with beside:
        preset_picker(key)
    cost = f" Costs {method.drafter.cost}." if method.drafter.drafts else ""
    ours = f" {explain_term(OURS)}" if is_start(key) else ""
    head.caption(escape_markdown(f"{method.summary} Source: {method.paper}.{cost}{ours}"))
    place = head.empty()  # above the widgets: a contradiction must be visible without scrolling
    chosen = _checked(method, settings_form(method, key, sampling=sampling), key, sampling)
    if chosen is None:
        show_error(st.session_state[error_key(key)], place)
    return chosen


def picked_method(key: str, sampling: "Sampling") -> "Method | None":
    """The method and the settings in the widgets, drawn or not; None where they contradict one another."""
    method = method_as_verified(st.session_state[key], key)
    return _checked(method, picked_settings(method, key), key, sampling)


def _checked(method: "Method", values: Mapping[str, Setting], key: str, sampling: "Sampling") -> "Method | None":
    st.session_state[error_key(key)] = None
    try:
        chosen = method.with_settings(**values)
        chosen.check(sampling)
        return chosen
    except SettingsError as error:
        st.session_state[error_key(key)] = error
        return None


def error_key(key: str) -> str:
    """Session-state key of the contradiction in the settings under `key`, None where there is none."""
    return f"{key}_error"


def preset_picker(key: str, methods: Collection[str] = (), **looks: Any) -> None:
    """Pick a ready-made configuration: it sets the method and all of its settings under `key`.

    If `methods` are given, only their configurations are offered; `looks` are as for `st.selectbox`.
    """
    widget = f"{key}_preset"
    known = {name: method for name, method in presets().items() if not methods or method.name in methods}

    def take_preset() -> None:
        chosen = st.session_state.get(widget)
        if chosen is not None:
            set_method(key, known[chosen])
            st.session_state[widget] = None

    def words(name: str) -> str:
        return f"{name} ({OURS})" if name == start_method().label else name

    looks = {"placeholder": "Choose one"} | looks
    st.selectbox(CONFIGURATION, list(known), index=None, key=widget, format_func=words, on_change=take_preset, **looks)


def start_method() -> "Method":
    """What the app begins with."""
    from decoding.methods.methods import START

    return START


def seed_method(key: str, names: Collection[str] = ()) -> None:
    """Begin with Draftscope's own settings under `key`, unless a method is chosen or the address names another."""
    if key in st.session_state:
        return
    labels = {decoding.METHODS[name].label: name for name in names or decoding.METHODS}
    asked = labels.get(st.query_params.get(key, ""), DEFAULT_METHOD)
    set_method(key, start_method() if asked == DEFAULT_METHOD else decoding.METHODS[asked])


def changed_settings(key: str) -> dict[str, Setting]:
    """The settings under `key` that differ from the defaults of its method."""
    defaults = decoding.METHODS[st.session_state[key]].settings()
    picked = {name: st.session_state.get(setting_key(key, st.session_state[key], name)) for name in defaults}
    return {name: value for name, value in picked.items() if value not in (None, defaults[name])}


def is_start(key: str) -> bool:
    """Whether the widgets of `key` have the settings that the app begins with."""
    start = start_method()
    defaults = decoding.METHODS[start.name].settings()
    ours = {name: value for name, value in start.settings().items() if value != defaults[name]}
    return st.session_state[key] == start.name and changed_settings(key) == ours


def other_default(key: str) -> None:
    """One click between Draftscope's settings and the paper's; nothing where the widgets of `key` have neither."""
    ours = is_start(key)
    if not ours and (st.session_state[key] != start_method().name or changed_settings(key)):
        return
    label, method = (PAPERS, decoding.METHODS[DEFAULT_METHOD]) if ours else (OURS.capitalize(), start_method())
    st.button(
        label, key=f"{key}_other", type="tertiary", on_click=set_method, args=(key, method),
        help=escape_markdown(explain_term(OURS)),
    )  # fmt: skip


def reset_button(key: str, label: str = "Reset to the defaults", hint: str | None = None) -> None:
    """A button that puts the defaults of the method picked under `key`, a paper's or its own, into all its widgets."""
    put = (key, decoding.METHODS[st.session_state[key]])
    st.button(label, key=f"{key}_reset", on_click=set_method, args=put, icon=":material/undo:", help=hint)


def set_method(key: str, method: "Method") -> None:
    """Put a method and all its settings into the widgets of `key`; only in callbacks or before they are drawn."""
    st.session_state[key] = method.name
    for name, value in method.all_settings().items():
        st.session_state[setting_key(key, method.name, name)] = value
    if method.verifier.greedy_only:  # not clicked: above temperature 0 it is replaced by one that fits
        st.session_state[setting_key(key, method.name, "verifier")] = None


def method_words(key: str) -> str:
    """The choice under `key`, for a button: its label, or that its settings contradict one another."""
    method = method_as_verified(st.session_state[key], key)
    try:
        return decoding.method_label(method.with_settings(**picked_settings(method, key)))
    except SettingsError:
        return f"{method.label}: settings?"


def proof_link() -> None:
    """Leads from a claim of losslessness to its proof in words."""
    st.page_link(
        PAGES["Learn"], label="Lossless? The proof", icon=":material/verified:", query_params={"term": "lossless"}
    )

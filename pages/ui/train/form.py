"""The form that starts a training: what is trained, its settings, an estimate of its time, what else is running."""

import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd
import streamlit as st

from decoding.common.errors import DraftscopeError, TrainingError
from decoding.common.formats import long_duration
from decoding.heads.store import LOSSES, SHIPPED, all_heads, equal_time, same_windows
from decoding.models.presets import PairSettings, pair_name
from decoding.training.command import CORPUS, FIELDS, LENGTHS, VERIFIERS, Flag
from decoding.training.folder import EXAMPLE, MODULES, Kind, TrainingWatcher, launch
from pages.ui.common.errors import escape_markdown, need_torch, show_error, torch_there, why_not
from pages.ui.common.models import manager
from pages.ui.train.view import EXAMPLE_WORDS, PAGE, draw_training_tree
from pages.ui.widgets.controls import say_again, seed

# Settings that two trainings must share for the pace of one to predict the other.
SAME: dict[Kind, tuple[str, ...]] = {
    "head": ("loss", "top_k", "batch", "roots", "depth", "device"),
    "selector": ("verifier", "device"),
    "embedded": ("device",),
}


def estimate_words(kind: Kind, values: Mapping[str, Any], found: Sequence[TrainingWatcher]) -> str:
    """The plan, and how long the last similar training took on this machine.

    Args:
        values: of the form, by flag.
        found: trainings of this machine, newest first.
    """
    like = next((each for each in found if each.records and _alike(kind, values, each)), None)
    records = () if like is None else like.records
    trained_s = sum({record["phase"]: record["trained_s"] for record in records}.values())
    steps = sum({record["phase"]: record["step"] for record in records}.values())
    if "--minutes" in values:
        words = f"It trains for {long_duration(60 * values['--minutes'])}"
    else:
        words = f"It trains for {values['--steps']:,} steps"
        if steps:
            whole = long_duration(values["--steps"] * trained_s / steps)
            words += f", about {whole} at the pace of the last similar training on this machine"
    resumed = like is not None and like.launched is not None and "--resume" in like.launched.command
    if like is None or like.stand.state != "finished" or resumed:
        return (
            f"{words}. Before that, text and data are prepared: an estimate appears shortly after the start, and "
            "prepared data are stored if you stop it."
        )
    whole = long_duration(max(like.stand.status.written - like.started_s, 0.0))
    return (
        f"{words}. Before that, text and data are prepared unless another training has stored them. The last similar "
        f"training took {whole} in all, {long_duration(trained_s)} of it training."
    )


def _alike(kind: Kind, values: Mapping[str, Any], followed: TrainingWatcher) -> bool:
    """Whether a training is of the same kind with the settings that determine its pace."""
    if followed.settings is None or followed.kind != kind:
        return False
    known = followed.settings.settings
    flags = {name: f"--{name.replace('_', '-')}" for name in SAME[kind]}
    return all(str(known.get(name)) == str(values[flag]) for name, flag in flags.items() if flag in values)


PAIR_FLAGS = {
    "target": "--target", "draft": "--draft", "widen": "--widen", "dtype": "--dtype",
    "context_length": "--context-length",
}  # fmt: skip
FOLDERS = (CORPUS, "--corpus")
KIND = "train_kind"
KIND_WORDS = {"embedded": "Embedded pair", "head": "Draft head", "selector": "Neural selector"}
ABOUT: dict[Kind, str] = {
    "head": "A one-layer draft that reads the target's own last features, trained with the loss of EAGLE, HASS or "
    "TALF. With the embedded pair it improves visibly within minutes on a CPU.",
    "selector": "A small network that chooses the shape of a delayed tree in every iteration, for one verifier. Runs "
    "of the pair are recorded first, then it is trained on their exact expectations.",
    "embedded": "A tokenizer, a target and a draft with the embedded pair's shapes, from any folder of text. From "
    "random weights it takes hours on a CPU.",
}
MINUTES, STEPS = "Minutes", "Steps"
TREE_LABEL = "What a head is trained on: training tree, its mask and HASS's chain at one root"
TREE_ROOT = "A root of a sample prompt, with the embedded target's own tree."
FINISHED_DEPTH = 3
AT_16, GAINED = "At 16 nodes, T = 1", "Minus EAGLE head"
FIGURES = {
    "held_out_loss": ("Loss", "{held_out_loss:.2f}"),
    "held_out_overlap_1": ("Depth 1", "{held_out_overlap_1:.0%}"),
    "held_out_overlap_2": ("Depth 2", "{held_out_overlap_2:.0%}"),
    "held_out_overlap_3": ("Depth 3", "{held_out_overlap_3:.0%}"),
    "held_out_tokens_per_pass": ("Tokens per pass", "{held_out_tokens_per_pass:.2f}"),
    "held_out_tokens_at_16_nodes_error": (
        AT_16, "{held_out_tokens_at_16_nodes:.3f} ± {held_out_tokens_at_16_nodes_error:.3f}",
    ),
}  # by figure of a head: words and format  # fmt: skip
FIGURES_WORDS = (
    "On held-out text: loss in nats; by depth in the draft, the chance that a token drawn by the head is accepted; "
    "tokens per target pass of SALF on a few short texts, where small differences may be chance; the exact expectation "
    "for optimal trees of 16 nodes, ± its standard error"
)
SAME_WORDS = (
    ", over the same {windows} windows for all heads, and its difference to the {label} on each of them, which tells "
    "heads apart that those errors do not"
)
EQUAL_WORDS = "At 16 nodes over few windows, so that most of their differences may be chance."


def draw_form(found: Sequence[TrainingWatcher]) -> None:
    """What to train, its settings, an estimate, and the button."""
    need_torch()
    seed(KIND, "head", KIND_WORDS)
    say_again(KIND)
    kind: Kind = st.segmented_control(
        "What to train", list(ABOUT), format_func=KIND_WORDS.get, key=KIND, required=True, persist_state="session"
    )
    st.caption(ABOUT[kind])
    if kind == "head" and (SHIPPED / EXAMPLE).exists():
        with st.expander(TREE_LABEL, expanded=not found, icon=":material/account_tree:", key="train_tree"):
            st.caption(f"{TREE_ROOT} {EXAMPLE_WORDS}")
            draw_training_tree(SHIPPED / EXAMPLE, "install Draftscope again")
    values = _widgets(kind)
    pair = manager().settings if kind != "embedded" else None
    words = arguments_of(kind, values, pair)
    if pair is not None:
        named = "the embedded pair" if pair.embedded else pair_name(pair)
        st.caption(escape_markdown(f"For {named}; choose another pair at the top right of the page."))
    st.caption(escape_markdown(estimate_words(kind, values, found)))
    PAGE.tell_others(found, "A second training shares the processor and memory, so each takes longer, and so do runs "
                     "measured on other pages.")  # fmt: skip
    with st.container(horizontal=True, vertical_alignment="center", gap="medium"):
        if st.button(
            "Start training", key="train_start", type="primary", disabled=not torch_there(),
            icon=":material/play_arrow:", help=why_not("It continues when this page or the whole app is closed."),
        ):  # fmt: skip
            _start(kind, values, words)
    with st.expander("This training as a command", icon=":material/terminal:", key="train_command"):
        st.code(shlex.join(["python", "-m", MODULES[kind], *words]), language=None, wrap_lines=True)
    if kind == "head":
        _draw_finished(opened=not found)


def _draw_finished(opened: bool) -> None:
    """A head that comes with the program as a finished training: what it gained over the loss of EAGLE."""
    shipped = {card.loss: card for card in reversed(all_heads()) if card.shipped}
    if not {"talf", "eagle"} <= shipped.keys():
        return
    cards, first, other = [*shipped.values()][::-1], shipped["talf"], shipped["eagle"]
    place, steps = f"held_out_overlap_{FINISHED_DEPTH}", int(first.figures["steps"])
    gained, before = (f"{card.figures[place]:.0%}" for card in (first, other))
    label = escape_markdown(f"A finished training that comes with the program: {first.label} for {first.pair['name']}")
    with st.expander(label, expanded=opened, icon=":material/check_circle:", key="train_finished"):
        st.markdown(escape_markdown(
            f"After {steps:,} steps ({long_duration(first.figures['trained_s'])}), a token drawn at depth "
            f"{FINISHED_DEPTH} is accepted with a chance of {gained}; with the {other.label} it is {before}."
        ))  # fmt: skip
        timed, same = equal_time(first.pair["target"]), same_windows(cards)
        more: dict[str, list[str]] = {}
        if same is not None:
            heads = [same["heads"][card.name] for card in cards]
            more[AT_16] = [f"{each['tokens']:.3f} ± {each['error']:.3f}" for each in heads]
            more[GAINED] = [f"{each['gained']:+.3f} ± {each['gained_error']:.3f}" if "gained" in each else ""
                            for each in heads]  # fmt: skip
        _figures_table("equal_steps", [(card.label, card.figures) for card in cards], more)
        windows = "" if same is None else SAME_WORDS.format(windows=int(heads[0]["windows"]), label=other.label)
        st.caption(f"{FIGURES_WORDS}{windows}.")
        if timed is not None:
            st.markdown(f"The same losses at equal times, {timed['minutes']:g} minutes each")
            _figures_table("equal_times", [(card.label, timed["heads"][card.loss]) for card in cards], {})
            st.caption(EQUAL_WORDS)


def _figures_table(name: str, rows: Sequence[tuple[str, Mapping[str, float]]], more: Mapping[str, list[str]]) -> None:
    """Held-out figures of heads by their labels, a row each; `more` takes the place of columns or is added."""
    frame = {
        "Head": [label for label, _ in rows],
        "Training": [f"{figures['steps']:,.0f} steps, {long_duration(figures['trained_s'])}" for _, figures in rows],
    } | {
        words: [form.format(**figures) for _, figures in rows]
        for figure, (words, form) in FIGURES.items()
        if all(figure in figures for _, figures in rows)
    }
    st.dataframe(pd.DataFrame({**frame, **more}), hide_index=True, height="content", key=f"train_{name}",
                 alt="Held-out figures of heads that come with the program.")  # fmt: skip


def _widgets(kind: Kind) -> dict[str, Any]:
    """Widgets of all settings of a kind; returns the values by flag."""
    values: dict[str, Any] = {}
    with st.container(key=f"train_form_{kind}", border=True):
        usual = [field for field in FIELDS[kind] if not field.more]
        for number, field in enumerate(usual):
            if number % 2 == 0:
                columns = st.columns(2, gap="medium")
            with columns[number % 2]:
                values[field.flag] = field_widget(kind, field)
        with columns[1] if len(usual) % 2 else st.columns(2, gap="medium")[0]:
            values |= _length(kind)
        with st.expander("More settings", key=f"train_more_{kind}"):
            columns = st.columns(3, gap="medium")
            for number, field in enumerate(field for field in FIELDS[kind] if field.more):
                with columns[number % 3]:
                    values[field.flag] = field_widget(kind, field)
    return values


def field_widget(kind: Kind, field: Flag) -> Any:
    """One setting with what it means, and why it is empty or a button of it is grey."""
    value = _bare_widget(kind, field)
    if not field.more:
        st.caption(escape_markdown(field.meaning))
    elif value is None or value == "":
        st.caption(escape_markdown(f"Empty: {field.placeholder}. Type to change it."))
    elif value in (field.low, field.high) and field.step is not None:
        st.caption(f"{value:,} is the {'lowest' if value == field.low else 'highest'} possible.")
    return value


def _bare_widget(kind: Kind, field: Flag) -> Any:
    """A choice, a switch, a number or a text; what few need has its meaning as help."""
    key = f"train_{kind}_{field.name}"
    shared = {"key": key, "help": field.meaning if field.more else None, "persist_state": "session"}
    if kind == "head" and field.flag == "--start-from":
        choices = {"": "nothing: a fresh head", **{card.name: card.words for card in all_heads()}}
        return st.selectbox(field.label, list(choices), format_func=lambda name: choices.get(name, name), **shared)
    seed(key, field.default)
    say_again(key)
    if field.choices is not None:
        return st.selectbox(field.label, list(field.choices), format_func=field.choices.get, **shared)
    if isinstance(field.default, bool):
        return st.toggle(field.label, **shared)
    if isinstance(field.default, str):
        return (st.text_input(field.label, placeholder=field.placeholder, **shared) or "").strip()
    if field.step is None:  # a rate: steps of a tenth of the default
        shared |= {"step": field.default / 10, "format": "%g"}
    else:
        shared["step"] = field.step
    return st.number_input(field.label, field.low, field.high, placeholder=field.placeholder or None, **shared)


def _length(kind: Kind) -> dict[str, float | int]:
    """How long to train: minutes, or steps."""
    minutes, steps = LENGTHS[kind]
    left, right = st.columns([1, 1.2], vertical_alignment="bottom")
    unit_key = f"train_unit_{kind}"
    seed(unit_key, MINUTES)
    say_again(unit_key)
    unit = left.segmented_control(
        "Planned by", [MINUTES, STEPS], key=unit_key, required=True, persist_state="session",
        help="Planned by steps, a stopped and resumed training ends with the same weights as an uninterrupted one.",
    )  # fmt: skip
    key = f"train_{kind}_length_{unit}"
    seed(key, minutes if unit == MINUTES else steps)
    say_again(key)
    if unit == STEPS:
        return {"--steps": int(right.number_input("Steps", 1, 10**9, step=100, key=key, persist_state="session"))}
    return {"--minutes": right.number_input("Minutes of training", 0.1, 1e5, step=5.0, key=key, format="%g",
                                            persist_state="session")}  # fmt: skip


def _start(kind: Kind, values: dict[str, Any], words: list[str]) -> None:
    """Start it and select it."""
    place = values.get(CORPUS, values.get("--corpus"))
    try:
        if CORPUS in values and not place:
            raise TrainingError("Enter a folder of .txt or .txt.gz files to train on.")
        if place and not Path(place).expanduser().is_dir():
            raise TrainingError(f"There is no folder {place}: enter a folder of .txt or .txt.gz files.")
        training = launch(kind, words, title_of(kind, values))
    except DraftscopeError as error:
        show_error(error)
        return
    PAGE.look_at(training.path.name)
    st.rerun()


def arguments_of(kind: Kind, values: Mapping[str, Any], pair: PairSettings | None = None) -> list[str]:
    """Arguments of the command: differences from its defaults, the length, and the pair.

    Args:
        values: of the widgets, by flag.
        pair: the pair it is trained for; None where it trains a pair.
    """
    placed, words = [], []
    for field in FIELDS[kind]:
        value = values.get(field.flag, field.default)
        if field.flag in FOLDERS and value:
            value = str(Path(value).expanduser().resolve())
        if value is None or value in ("", field.default):
            continue
        if not field.flag.startswith("--"):
            placed.append(str(value))
        elif field.default is False:
            words.append(field.flag)
        else:
            words += [field.flag, f"{value:g}" if isinstance(value, float) else str(value)]
    for flag in ("--minutes", "--steps"):
        if flag in values:
            words += [flag, f"{values[flag]:g}" if flag == "--minutes" else str(values[flag])]
    if pair is not None:
        for name, flag in PAIR_FLAGS.items():
            if getattr(pair, name) != getattr(PairSettings(), name):
                words += [flag, str(getattr(pair, name))]
        words += ["--split"] if pair.split else []
    return [*placed, *words]


def title_of(kind: Kind, values: Mapping[str, Any]) -> str:
    """A short title for a training that has not written its own name yet."""
    if kind == "head":
        return f"{LOSSES[values['--loss']]} head"
    if kind == "selector":
        return f"Selector for {VERIFIERS[values['--verifier']]}"
    return f"Pair from {Path(values[CORPUS]).name}".strip()

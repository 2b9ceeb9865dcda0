"""On which prompts a sweep runs, how long, under which sampling, how often, beside which reference."""

from itertools import product
from typing import Any

import streamlit as st

from decoding.common.prompts import KINDS
from decoding.models.presets import EMBEDDED
from decoding.trace.records import Setting
from pages.ui.common.models import manager
from pages.ui.sweep.methods import values_of
from pages.ui.sweep.sentences import base_label
from pages.ui.widgets.controls import say_again, seed

SAMPLES, FOLDER, DATA_SET = "Samples", "Folder", "Data set"
# Kinds of text that the embedded pair was trained on; on others its output says little about methods.
EMBEDDED_KINDS = ("stories", "encyclopedia", "fiction", "mathematics")
NO_REFERENCE = ""
SHARES = [1, 1, 1, 1, 1.25]


def plan_content() -> dict[str, Any]:
    """Widgets for all but the methods; returns what a grid file says of it, its name empty where none was given."""
    with st.container(border=True, key="sweep_part_prompts"):
        prompts = _prompts()
    with st.container(border=True, key="sweep_part_how"):
        columns = st.columns(SHARES)
        with columns[0]:
            new_tokens = _typed("new_tokens", "New tokens", "64", 1, "Of every run; several lengths with commas.")
        with columns[1]:
            prompts["max_tokens"] = _typed(
                "max_tokens", "Prompt tokens", "256", 0,
                "Longer prompts are cut to these; 0 leaves them whole; several lengths with commas.",
            )  # fmt: skip
        with columns[2]:
            repeats = _number("repeats", "Repeats", 1, 100, 1, "Of the whole grid, one after another: times vary.")
        with columns[3]:
            reference = _reference()
        with columns[4]:
            name = _text("name", "Name", "by what varies", "What the list calls this sweep; its rows bear the name.")
        columns = st.columns(SHARES, vertical_alignment="bottom")
        samplings = _samplings(columns)
        with columns[4].container(gap="xsmall"):
            ignore = _switch(
                "ignore_end", "Ignore end of text", True,
                "On: all outputs are of one length. Off: a run ends where the target ends its text.",
            )  # fmt: skip
            skip = _switch(
                "skip", "Skip contradictions", True,
                "On: combinations that contradict themselves are left out and told. Off: they refuse the grid.",
            )  # fmt: skip
    return {
        "name": name, "prompts": prompts, "new_tokens": new_tokens, "repeats": repeats, "reference": reference,
        "ignore_end_of_text": ignore, "skip_contradictions": skip, "sampling": samplings,
    }  # fmt: skip


def samplings_of(
    temperatures: list[Setting], top_ps: list[Setting], draft_temperatures: list[Setting], seeds: list[Setting]
) -> list[dict[str, Any]]:
    """The tables `[[sampling]]` for all combinations; a greedy law has no nucleus and no seed."""
    made: list[dict[str, Any]] = []
    for temperature, top_p, draft in product(temperatures, top_ps, draft_temperatures):
        greedy = temperature == 0
        entry = {"temperature": temperature, "top_p": 1.0 if greedy else top_p, "draft_temperature": draft,
                 "seeds": [0] if greedy else seeds}  # fmt: skip
        if entry not in made:
            made.append(entry)
    return made


def _prompts() -> dict[str, Any]:
    from decoding.experiments.prompt_sets import DATA_SETS
    from decoding.experiments.prompt_sets import SAMPLES as SAMPLE_SET

    left, middle, right = st.columns([2, 4, 1])
    key = _key("source")
    seed(key, SAMPLES)
    say_again(key)
    source = left.segmented_control(
        "Prompts", [SAMPLES, FOLDER, DATA_SET], key=key, required=True, persist_state="session"
    )
    content: dict[str, Any] = {"set": SAMPLE_SET}
    with middle:
        if source == SAMPLES:
            kinds = _key("kinds")
            seed(kinds, list(EMBEDDED_KINDS) if manager().settings.target == EMBEDDED else [])
            say_again(kinds)
            content["kinds"] = st.multiselect(
                "Kinds of text", KINDS, key=kinds, persist_state="session", placeholder="All kinds"
            )
        elif source == FOLDER:
            content["set"] = _text("folder", "Folder of .txt files", "such as /home/me/prompts")
        else:
            chosen = _key("data_set")
            seed(chosen, next(iter(DATA_SETS)))
            say_again(chosen)
            content["set"] = st.selectbox(
                "Data set", list(DATA_SETS), key=chosen, persist_state="session",
                help="Of the Hugging Face hub. It is fetched once, which needs a network, and kept on this machine.",
            )  # fmt: skip
    with right:
        content["count"] = _number("count", "How many", 1, 10_000, 4, "One kind of text after another in turn.")
    return content


def _reference() -> str:
    from decoding.compare.hf_generate import BASELINES
    from decoding.methods.methods import METHODS

    key, names = _key("reference"), [*METHODS, *BASELINES]
    words = {NO_REFERENCE: "none", **{name: BASELINES.get(name, base_label(name)) for name in names}}
    seed(key, "autoregressive")
    say_again(key)
    return st.selectbox(
        "Reference", list(words), key=key, format_func=words.get, persist_state="session",
        help="Runs in every block of runs; a speed-up is tokens per second over its own on the same prompt.",
    )  # fmt: skip


def _samplings(columns: list) -> list[dict[str, Any]]:
    with columns[0]:
        temperatures = _typed("temperature", "Temperature", "0", 0.0, "0 decodes greedily; several with commas.")
    with columns[1]:
        top_ps = _typed("top_p", "Top-p", "1", 1.0, "The target's law is cut to its nucleus; not where it is greedy.")
    with columns[2]:
        drafts = _typed("draft_temperature", "Draft temperature", "1", 1.0, "Of the law that draft tokens come from.")
    with columns[3]:
        seeds = _typed("seeds", "Seeds", "0", 0, "Each is a run of its own, under a temperature above 0.")
    return samplings_of(temperatures, top_ps, drafts, seeds)


def _key(name: str) -> str:
    return f"sweep_plan_{name}"


def _typed(name: str, label: str, first: str, like: Setting, help_text: str) -> list[Setting]:
    key = _key(name)
    seed(key, first)
    say_again(key)
    return values_of(st.text_input(label, key=key, help=help_text, persist_state="session") or "", like)


def _text(name: str, label: str, placeholder: str, help_text: str | None = None) -> str:
    key = _key(name)
    seed(key, "")
    say_again(key)
    typed = st.text_input(label, key=key, placeholder=placeholder, help=help_text, persist_state="session")
    return (typed or "").strip()


def _number(name: str, label: str, low: int, high: int, first: int, help_text: str) -> int:
    key = _key(name)
    seed(key, first)
    say_again(key)
    return int(st.number_input(label, low, high, key=key, help=help_text, persist_state="session") or low)


def _switch(name: str, label: str, first: bool, help_text: str) -> bool:
    key = _key(name)
    seed(key, first)
    say_again(key)
    return st.toggle(label, key=key, help=help_text, persist_state="session")

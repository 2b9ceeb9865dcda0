"""The form that starts a sweep: a ready grid, or the methods, settings, prompts, lengths and samplings to vary;
its size and an estimate of its time.
"""

import re
import tomllib
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, replace
from functools import lru_cache
from itertools import islice, product
from pathlib import Path
from typing import TYPE_CHECKING, Any

import streamlit as st

from decoding.common.errors import DraftscopeError, ExperimentError
from decoding.common.formats import long_duration, plural
from decoding.common.prompts import EMBEDDED_KINDS, KINDS
from decoding.experiments.experiment import GRIDS, ExperimentWatcher, experiments_home, launch, seconds_per_token
from decoding.jobs.job import free_folder
from decoding.models.presets import EMBEDDED, PairSettings
from decoding.trace.records import Setting
from pages.ui.common.downloads import download_button
from pages.ui.common.errors import escape_markdown, info_of, show_error, torch_there, why_not
from pages.ui.common.models import manager
from pages.ui.sweep.sentences import asked_words, base_label
from pages.ui.sweep.view import PAGE
from pages.ui.widgets.contestants import ContestantForm, contestant_bar, slots
from pages.ui.widgets.controls import (
    method_as_verified,
    picked_settings,
    say_again,
    seed,
    setting_help,
    setting_key,
    shown_settings,
)
from pages.ui.widgets.costs import other_words
from pages.ui.widgets.trained import EMBEDDED_NAME, TRAINED, trained_choices

if TYPE_CHECKING:
    from decoding.common.settings import SettingInfo
    from decoding.experiments.grid import Grid
    from decoding.experiments.plan import GridSize
    from decoding.methods.method import Method

OWN, FROM_PAPERS = "A sweep of my own", "A ready grid"
LONGEST_NAME = 60
SAMPLES, LONG, FOLDER, DATA_SET = "Samples", "Long texts", "Folder", "Data set"
NO_REFERENCE = ""
SHARES = [1, 1, 1, 1, 1.25]
SWEEP = ContestantForm("sweep", "sweep_method", "sweep", 8, ("fixed_tree",), engines=True)
FIRST = {"fixed_tree": {"max_depth": "4, 6, 8", "branching": "2, 3"}}  # varied before anything is chosen
RANGE = re.compile(r"(-?\d{1,6})\s*\.\.\s*(-?\d{1,6})")
MOST_OF_RANGE = 200
COLUMNS = 3


def start(grid: "Grid", stem: str | None) -> None:
    """Write the grid into the folder of its experiment, run it in its own process, select it.

    Args:
        stem: of a shipped grid, whose results go to a fixed folder, so that stored runs are not repeated. None for a
            grid of the user, which gets a new folder.
    """
    from decoding.experiments.grid import write_grid

    try:
        folder = folder_for(grid.name) if stem is None else experiments_home() / stem
        launch(write_grid(grid, folder), folder=folder)
    except DraftscopeError as error:
        show_error(error)
        return
    PAGE.look_at(folder.name)
    st.rerun()


def folder_for(name: str) -> Path:
    """A new folder for an experiment of that name.

    Raises:
        ExperimentError: a shipped grid has this name: tables of papers are computed from its results.
    """
    if name in {tomllib.loads(file.read_text(encoding="utf-8"))["name"] for file in GRIDS.glob("*.toml")}:
        raise ExperimentError(f"{name} is the name of a grid shipped with Draftscope: choose another name.")
    return free_folder(experiments_home(), name, "sweep", {file.stem for file in GRIDS.glob("*.toml")})


def draw_form(found: Sequence[ExperimentWatcher]) -> None:
    """What varies, on which prompts, the size, and the button."""
    if not torch_there():
        st.caption("Stored results can be viewed without it: choose an experiment on the left.")
        return
    kind = st.segmented_control(
        "What to run", [OWN, FROM_PAPERS], required=True, label_visibility="collapsed", **_kept("kind", OWN)
    )
    try:
        grid, stem = _ready_grid() if kind == FROM_PAPERS else (_own_grid(), None)
        size = _size(grid)
    except DraftscopeError as error:
        show_error(error)
        grid = stem = size = None
    PAGE.tell_others(found, "A second sweep shares the processor, and both would measure times that are too long: "
                     "better wait.")  # fmt: skip
    nothing = size is None or size.runs == 0
    with st.container(horizontal=True, vertical_alignment="center", gap="medium", key="sweep_go"):
        pressed = st.button(
            "Start sweep", key="sweep_start", type="primary", disabled=nothing, icon=":material/play_arrow:",
            help=why_not("It runs in its own process and continues when this page or the whole app is closed."),
        )  # fmt: skip
        if size is not None:
            st.markdown(_size_words(size, found))
    if pressed:
        start(grid, stem)
    if size is not None and size.left_out:
        with st.expander(f"{plural(len(size.left_out), 'combination')} left out", key="sweep_left_out"):
            for said in size.left_out:
                st.caption(escape_markdown(said))
    if grid is not None:
        from decoding.experiments.grid import grid_toml

        with st.expander("This grid as a file", icon=":material/terminal:", key="sweep_file"):
            text = grid_toml(grid)
            st.code("python -m benchmarks.sweep grid.toml", language=None)
            st.code(text, language="toml", height=260)
            download_button("Save grid.toml", text, "grid.toml", "application/toml", "sweep_save")


def _own_grid() -> "Grid":
    """Widgets for everything a grid has; the reader of grid files reports errors."""
    from decoding.experiments.grid import grid_from

    st.caption(
        "Every combination of values runs on every prompt and gives one result; a reference runs alongside, so that "
        "speed-ups are ratios on the same prompt."
    )
    contestant_bar(SWEEP)
    varied = {key: _draw_varied(key) for key in slots(SWEEP)}
    content = _plan_content()
    if not varied:
        raise ExperimentError("Add a method: a sweep needs at least one.")
    content["methods"] = [{"method": _line(key), "vary": values} for key, values in varied.items()]
    if not content["name"]:
        names = []
        for each in content["methods"]:
            over = " x ".join(each["vary"])
            name = each["method"].partition(":")[0]
            names.append((f"{name} by {over}" if over else name).replace("_", " "))
        name = ", ".join(dict.fromkeys(names))
        content["name"] = name if len(name) <= LONGEST_NAME else f"{name[: LONGEST_NAME - 1].rsplit(' ', 1)[0]}…"
    content["pair"] = _pair_content()
    prompts = content["prompts"]
    if not prompts["set"]:
        raise ExperimentError("Enter a folder of .txt files, one prompt in each, or choose the sample prompts.")
    folder = Path(prompts["set"]).expanduser()
    if folder.is_dir():  # absolute, as the process runs in another folder
        prompts["set"] = str(folder.resolve())
    return grid_from(content, content["name"])


def _ready_grid() -> "tuple[Grid, str]":
    """One of the shipped grids, with the chosen number of prompts; and its name on disk."""
    from decoding.experiments.grid import read_grid

    about = {}  # first sentence of the grid file's leading comment, else its name
    for file in sorted(GRIDS.glob("*.toml")):
        line = file.read_text(encoding="utf-8").partition("\n")[0]
        said = re.split(r"\. (?=[A-Z])", line.lstrip("# ").rstrip(". "))[0]
        about[file.stem] = said if line.startswith("#") else file.stem.replace("_", " ")
    with st.container(border=True, key="sweep_part_ready"):
        left, right = st.columns([3, 1], vertical_alignment="bottom")
        stem = left.selectbox("Grid", list(about), format_func=about.get, **_kept("ready", next(iter(about))))
        grid = read_grid(GRIDS / f"{stem}.toml")
        count = right.number_input(
            "Prompts", 1, 10_000, placeholder="all", **_kept(f"ready_count_{stem}", grid.prompts.count),
            help="Fewer prompts take less time but give wider intervals. You can add more later: results are stored.",
        )  # fmt: skip
        st.caption("  \n".join(map(escape_markdown, asked_words(asdict(grid)))))
    prompts = replace(grid.prompts, count=count and int(count))
    return replace(grid, prompts=prompts, pair={**grid.pair, **_pair_content()}), stem


def values_of(text: str, default: Setting) -> list[Setting]:
    """Typed values: `3, 4, 5` or `3..5`; separated by semicolons for text settings.

    Values that are not numbers stay text: the grid checks what a setting accepts.
    """
    pieces = [piece.strip() for piece in text.split(";" if isinstance(default, str) else ",")]
    if isinstance(default, str):
        return [piece for piece in pieces if piece]
    found: list[Setting] = []
    for piece in filter(None, pieces):
        span = RANGE.fullmatch(piece)
        if span is not None and 0 <= int(span[2]) - int(span[1]) < MOST_OF_RANGE:
            found += range(int(span[1]), int(span[2]) + 1)
        else:
            value: Setting = piece
            for kind in (float, int):
                with suppress(ValueError):
                    value = kind(piece)
            found.append(value)
    return list(dict.fromkeys(found))


def _line(key: str) -> str:
    """A contestant as a grid names it; a verifier that was not clicked is chosen by the sampling."""
    from decoding.compare.contestants import Contestant, format_contestant
    from decoding.methods.methods import METHODS

    name = st.session_state[key]
    if name not in METHODS:
        return name
    method = method_as_verified(name, key)
    method = method.with_settings(**picked_settings(method, key))
    if st.session_state.get(setting_key(key, name, "verifier")) is None:
        method = method.with_settings(verifier=METHODS[name].verifier.name)
    engine = st.session_state.get(f"{key}_engine")
    known = engine if engine and " " not in engine else None  # "as loaded" means none
    return format_contestant(Contestant(method.label, method=method, engine=known))


def _draw_varied(key: str) -> dict[str, list[Setting]]:
    """The varied settings of one method, and their values."""
    from decoding.methods.methods import METHODS

    name = st.session_state[key]
    if name not in METHODS:
        return {}
    method, defaults = METHODS[name], shown_settings(name, key)
    if not method.drafter.drafts:
        return {}
    with st.container(border=True, key=f"sweep_part_{key}"):
        whole = (each for each, value in defaults.items() if isinstance(value, int) and not isinstance(value, bool))
        widget, first = f"{key}_{name}_varied", FIRST.get(name) or dict.fromkeys(islice(whole, 1), "")
        seed(widget, [each for each in first if each in defaults])
        st.session_state[widget] = [each for each in st.session_state[widget] if each in defaults]
        varied = st.multiselect(
            f"Settings of {escape_markdown(method.label)} to vary", list(defaults), key=widget, persist_state="session",
            format_func=lambda each: info_of(each).title, placeholder="None: one run with the settings as they are",
            help="Every combination of the values is run. Fixed settings are behind the method's button above.",
        )  # fmt: skip
        found: dict[str, list[Setting]] = {}
        for start in range(0, len(varied), COLUMNS):
            for place, each in zip(st.columns(COLUMNS), varied[start : start + COLUMNS], strict=False):
                with place:
                    found[each] = _draw_values(method, key, each, defaults[each], first.get(each, ""))
    return found


def _draw_values(method: "Method", key: str, name: str, default: Setting, first: str) -> list[Setting]:
    """The values of one setting: chosen from a list where there are few, else typed."""
    from decoding.verifiers import VERIFIERS

    widget, title = f"{key}_{method.name}_{name}_values", info_of(name).title
    verified = method_as_verified(method.name, key)
    info = verified.infos[name]
    if name == "verifier":
        choices = {each: kind.label for each, kind in VERIFIERS.items()}
    elif name in TRAINED:
        choices = trained_choices(verified).get(name, {"": "none"})
    else:
        choices = {True: "on", False: "off"} if isinstance(default, bool) else dict(info.choices or {})
    shared = {"key": widget, "persist_state": "session", "help": setting_help(info, default)}
    if choices:
        seed(widget, list(choices) if isinstance(default, bool) else [default])
        st.session_state[widget] = [each for each in st.session_state[widget] if each in choices]
        return st.multiselect(title, list(choices), format_func=choices.get, placeholder="Pick values", **shared)
    seed(widget, first or proposed_values(info, default))
    say_again(widget)
    separator = "1,1,3; 1,2,2" if isinstance(default, str) else "3, 4, 5 or 3..5" if isinstance(default, int) else ""
    typed = st.text_input(title, placeholder=separator or "0.01, 0.05, 0.1", **shared)
    return values_of(typed or "", default)


def proposed_values(info: "SettingInfo", default: Setting) -> str:
    """Values to begin with, as typed: half of the default, itself and twice of it, as far as they are accepted."""
    if isinstance(default, bool | str):
        return str(default)
    found = []
    for factor in (0.5, 1, 2):
        value = round(default * factor) if isinstance(default, int) else float(f"{default * factor:.3g}")
        if info.accepted is None or value in info.accepted:
            found.append(value)
    return ", ".join(f"{value:g}" for value in dict.fromkeys(found))


def _plan_content() -> dict[str, Any]:
    """Widgets for everything but the methods; returns it as in a grid file, with an empty name if none was given."""
    from decoding.compare.hf_generate import BASELINES
    from decoding.methods.methods import METHODS

    with st.container(border=True, key="sweep_part_prompts"):
        prompts = _prompts()
    with st.container(border=True, key="sweep_part_how"):
        columns = st.columns(SHARES)
        new_tokens = _typed(columns[0], "new_tokens", "New tokens", "64", 1, "Per run; separate several by commas.")
        prompts["max_tokens"] = _typed(
            columns[1], "max_tokens", "Prompt tokens", "256", 0,
            "Longer prompts are cut to this length; 0 leaves them whole; separate several lengths by commas.",
        )  # fmt: skip
        repeats = columns[2].number_input(
            "Repeats", 1, 100, help="Of the whole grid, in turn, because times vary.", **_kept("plan_repeats", 1)
        )
        words = {NO_REFERENCE: "none", **{name: base_label(name) for name in METHODS}, **BASELINES}
        reference = columns[3].selectbox(
            "Reference", list(words), format_func=words.get, **_kept("plan_reference", "autoregressive"),
            help="Runs in every block of runs; a speed-up is tokens/s over those of the reference on the same prompt.",
        )  # fmt: skip
        name = columns[4].text_input(
            "Name", placeholder="from the varied settings", **_kept("plan_name", ""),
            help="Name of this sweep in the list and in its results.",
        )  # fmt: skip
        columns = st.columns(SHARES, vertical_alignment="bottom")
        samplings = _samplings(columns)
        with columns[4].container(gap="xsmall"):
            ignore = st.toggle(
                "Ignore end of text", **_kept("plan_ignore_end", True),
                help="On: all outputs have the same length. Off: a run stops where the target ends its text.",
            )  # fmt: skip
            skip = st.toggle(
                "Skip contradictions", **_kept("plan_skip", True),
                help="On: contradicting combinations are left out and listed. Off: the grid is rejected.",
            )  # fmt: skip
    return {
        "name": (name or "").strip(), "prompts": prompts, "new_tokens": new_tokens, "repeats": int(repeats or 1),
        "reference": reference, "ignore_end_of_text": ignore, "skip_contradictions": skip, "sampling": samplings,
    }  # fmt: skip


def samplings_of(
    temperatures: list[Setting], top_ps: list[Setting], draft_temperatures: list[Setting], seeds: list[Setting]
) -> list[dict[str, Any]]:
    """The tables `[[sampling]]` for all combinations; greedy decoding has no top-p and no seed."""
    made: list[dict[str, Any]] = []
    for temperature, top_p, draft in product(temperatures, top_ps, draft_temperatures):
        greedy = temperature == 0
        entry = {"temperature": temperature, "top_p": 1.0 if greedy else top_p, "draft_temperature": draft,
                 "seeds": [0] if greedy else seeds}  # fmt: skip
        if entry not in made:
            made.append(entry)
    return made


def _prompts() -> dict[str, Any]:
    from decoding.experiments.plan import DATA_SETS
    from decoding.experiments.plan import LONG as LONG_SET
    from decoding.experiments.plan import SAMPLES as SAMPLE_SET

    left, middle, right = st.columns([7, 7, 2])
    source = left.segmented_control(
        "Prompts", [SAMPLES, LONG, FOLDER, DATA_SET], required=True, **_kept("plan_source", SAMPLES)
    )
    content: dict[str, Any] = {"set": LONG_SET if source == LONG else SAMPLE_SET}
    if source == LONG:
        middle.caption("Ten texts of more than 1,000 tokens each, stories, encyclopedia, fiction and mathematics.")
    elif source == SAMPLES:
        first = list(EMBEDDED_KINDS) if manager().settings.target == EMBEDDED else []
        content["kinds"] = middle.multiselect(
            "Kinds of text", KINDS, placeholder="All kinds", **_kept("plan_kinds", first)
        )
    elif source == FOLDER:
        typed = middle.text_input(
            "Folder of .txt files", placeholder="such as /home/me/prompts", **_kept("plan_folder", "")
        )
        content["set"] = (typed or "").strip()
    else:
        content["set"] = middle.selectbox(
            "Data set", list(DATA_SETS), **_kept("plan_data_set", next(iter(DATA_SETS))),
            help="From the Hugging Face hub. Downloaded once, which needs a network, then stored on this machine.",
        )  # fmt: skip
    count = right.number_input(
        "How many", 1, 10_000, help="Taken from the kinds of text in turn.", **_kept("plan_count", 4)
    )
    return {**content, "count": int(count or 1)}


def _samplings(columns: list) -> list[dict[str, Any]]:
    named = (
        ("temperature", "Temperature", "0", 0.0, "0 decodes greedily; separate several by commas."),
        ("top_p", "Top-p", "1", 1.0, "Restricts the target to its nucleus; no effect under greedy decoding."),
        ("draft_temperature", "Draft temperature", "1", 1.0, "Temperature of the draft."),
        ("seeds", "Seeds", "0", 0, "One run per seed, at temperatures above 0."),
    )
    return samplings_of(*(_typed(place, *each) for place, each in zip(columns, named, strict=False)))


def _typed(place: Any, name: str, label: str, first: str, like: Setting, help_text: str) -> list[Setting]:
    return values_of(place.text_input(label, help=help_text, **_kept(f"plan_{name}", first)) or "", like)


def _kept(name: str, first: Any) -> dict[str, Any]:
    """Arguments of a widget with an initial value that persists between pages."""
    key = f"sweep_{name}"
    seed(key, first)
    say_again(key)
    return {"key": key, "persist_state": "session"}


def _size_words(size: "GridSize", found: Sequence[ExperimentWatcher]) -> str:
    """Settings, runs, and their time with the pair in memory, from the time per token of its newest results."""
    settings, parts = plural(size.settings, "combination"), ["one run each per prompt of the data set"]
    if size.runs is not None:
        parts = [f"{plural(size.runs, 'run')} including references", f"{size.tokens:,} tokens"]
        models = manager()
        first = EMBEDDED_NAME if models.settings.embedded else None
        name = models.info.name if models.info is not None else first
        time_words = "the time is unknown until some have run"
        for followed in found:  # shipped results come last
            rows = followed.rows()
            if (cost := seconds_per_token(rows[rows["pair"] == name])) is not None:
                where = "in the results shipped with Draftscope" if followed.shipped else "on this machine so far"
                time_words = f"{long_duration(cost * size.tokens)} at the time per token {where}"
                time_words = ", ".join(filter(None, (time_words, other_words())))
                break
        parts.append(time_words)
    return f"**{escape_markdown(settings)}** · {escape_markdown(' · '.join(parts))}"


def _pair_content() -> dict[str, Any]:
    """The pair in memory as a grid names it: what differs from the defaults."""
    plain, known = asdict(PairSettings()), asdict(manager().settings)
    return {name: value for name, value in known.items() if value != plain[name]}


def _size(grid: "Grid") -> "GridSize":
    """The size of a grid, computed once for the same grid and the same prompt files."""
    from decoding.experiments.grid import grid_toml

    folder = Path(grid.prompts.set).expanduser()
    stamp = folder.stat().st_mtime_ns if folder.is_dir() else 0
    return _size_of(grid_toml(grid), stamp)


@lru_cache(maxsize=8)
def _size_of(text: str, _stamp: int) -> "GridSize":
    from decoding.experiments.grid import grid_from
    from decoding.experiments.plan import grid_size

    return grid_size(grid_from(tomllib.loads(text), "grid"))

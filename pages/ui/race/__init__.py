"""The race on screen: lanes that replay recorded calls on one clock, in the browser alone, and its sentences.

For tests the root element `.race-root` carries `data-race`, `data-mode`, `data-playing`, `data-done` and `data-at`,
every `.lane` the number of its tokens on screen as `data-tokens`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import uuid4

import streamlit as st

from decoding.common.errors import DraftscopeError, SettingsError
from decoding.common.formats import plural
from decoding.recorded import RACE_PROMPT, RACE_REPEATS, RACE_WARMUP, race_runs, race_speeds
from decoding.trace.records import RunTrace
from decoding.trace.run_file import load_run
from pages.ui.common.errors import show_error
from pages.ui.common.state import current_run
from pages.ui.compare.plan import ComparisonResult, hardware_words, pause_words
from pages.ui.widgets.prompts import prompt_title, prompt_words
from viz.components import component_script, component_style
from viz.race.data import reference_lane
from viz.race.lanes import MOST, Lane, check_lanes, lane_of, lane_of_times

if TYPE_CHECKING:
    from decoding.compare.comparison import Score


_component = st.components.v2.component(
    "draftscope_race", js=component_script("race/race.js"), css=component_style("race/race.css")
)
HEIGHT = 600
ELSEWHERE = "for this text on the machine that ran it"
# Height around the race: menu, toolbar, methods, and the line below it unless four lanes need the room.
AROUND_REM, AROUND_FOUR_REM = 11.9, 9.8


def race(data: dict) -> None:
    """Show a race; `data` comes from `viz.race.data`."""
    with st.container(key="race_area"):
        around = AROUND_REM if len(data["lanes"]) < 4 else AROUND_FOUR_REM
        st.html(Path(__file__).with_name("view.css"))
        st.html(f"<style>.st-key-race_area {{ --race-around: {around}rem; }}</style>")
        _component(key="race_lanes", data=data, height=HEIGHT)


@dataclass(frozen=True, eq=False)
class Race:
    """Lanes to replay.

    Attributes:
        title: what was decoded; `about`: how and on which machine it was measured.
        runs: the runs among the lanes, under their names.
        explained: by lane, why its greedy text differs from the reference.
        missing: sentences about methods that have no lane.
        where: which text and which machine the bottom line holds for.
        key: a new one restarts the replay.
    """

    lanes: tuple[Lane, ...]
    title: str
    about: str
    runs: tuple[RunTrace, ...] = ()
    explained: Mapping[int, str] = field(default_factory=dict)
    missing: tuple[str, ...] = ()
    where: str = "for this text on this machine"
    key: str = field(default_factory=lambda: uuid4().hex[:8])


def recorded_race() -> Race:
    """The race shipped with Draftscope."""
    runs = race_runs()
    note = f"median of {RACE_REPEATS} repeats"
    lanes = tuple(lane_of(run, note=note, speeds=speeds) for run, speeds in zip(runs, race_speeds(), strict=True))
    about = (
        f"Not measured on this machine: {hardware_words(runs[0].hardware)}, {runs[0].created[:10]}. Each method ran "
        f"alone, {RACE_REPEATS} times in turn after {RACE_WARMUP} warm-up rounds; {replayed_words(RACE_REPEATS)}."
    )
    return Race(
        lanes, f"{prompt_words(RACE_PROMPT)} · shipped with Draftscope", about, runs, where=ELSEWHERE, key="recorded"
    )


def race_of(outcome: ComparisonResult) -> Race:
    """The race of a comparison: each method's median repeat, whole outputs.

    Raises `SettingsError` where fewer than two methods were measured.
    """
    from decoding.compare.comparison import score

    plan, scores = outcome.plan, score(outcome.comparison, loop_free=False)
    measured = [entry for entry in scores if entry.measured]
    lanes = tuple(_lane(entry, outcome) for entry in measured)
    missing = tuple(
        entry.failure or f"{entry.contestant.label} was not measured before the recording was cancelled."
        for entry in scores
        if not entry.measured
    )
    if len(lanes) < 2:
        raise SettingsError(" ".join([*missing, "Fewer than two methods were measured: record the race again."]))
    check_lanes(lanes)
    reference, explained = outcome.comparison.contestants[outcome.comparison.reference], {}
    if measured[reference_lane(lanes)].contestant is reference:
        explained = {i: entry.difference.explanation for i, entry in enumerate(measured) if entry.difference}
    paused = f", {pause_words(outcome)}" if outcome.pauses else ""
    about = (
        f"Measured on this machine: {hardware_words(outcome.hardware)}. Each method ran alone, "
        f"{plural(plan.repeats, 'time')} in turn after {plural(plan.warmup, 'warm-up round')}{paused}; "
        f"{replayed_words(plan.repeats)}."
    )
    early = " · cancelled early" if outcome.cancelled else ""
    runs = tuple(replace(each.run, label=each.contestant.label) for each in measured if each.run is not None)
    return Race(lanes, f"{prompt_title(plan.prompt)}{early}", about, runs, explained, missing)


def _lane(entry: "Score", outcome: ComparisonResult) -> Lane:
    repeats, label = entry.calls, entry.contestant.label
    number = next(repeat for repeat, call in repeats.items() if call is entry.typical)
    which, speeds = "one call", ()
    if (count := len(repeats)) > 1:
        middle = "the median" if count % 2 else "the slower" if count == 2 else "the slower of the middle two"
        which, speeds = f"repeat {number + 1} of {count}, {middle}", tuple(call.throughput for call in repeats.values())
    if entry.run is not None:
        return lane_of(entry.run, label, which, speeds)
    timeline, texts, target = entry.typical.timeline, outcome.texts, outcome.pair.target
    return lane_of_times(
        label,
        f"transformers · {which}",
        timeline.seconds,
        timeline.tokens,
        [(token, texts[token]) for token in entry.output_ids],
        prompt=list(zip(outcome.prompt_ids, outcome.prompt_texts, strict=True)),
        target=f"{target.name}, {target.dtype}, {target.device}",
        temperature=outcome.plan.sampling.temperature,
        ended=len(entry.output_ids) < outcome.plan.max_new_tokens,
        plain=entry.contestant.baseline not in ("hf_assisted", "hf_prompt_lookup"),
        speeds=speeds,
    )


def race_of_runs(runs: Sequence[tuple[str, RunTrace]]) -> Race:
    """The race of separately decoded runs, by label.

    Raises:
        SettingsError: fewer than two, more than four, an empty one, or runs of different prompts.
    """
    lanes = tuple(lane_of(run, label) for label, run in runs)
    check_lanes(lanes)
    machines = list(dict.fromkeys(hardware_words(run.hardware) for _, run in runs))
    about = f"Decoded separately, one call each, times as recorded on {' and on '.join(machines)}."
    named = tuple(replace(run, label=label) for label, run in runs)
    return Race(lanes, f"{len(lanes)} runs", about, named, where=ELSEWHERE)


def replayed_words(repeats: int) -> str:
    """Which call of each method is replayed."""
    if repeats == 1:
        return "its only call is replayed"
    if repeats % 2:
        return "its median call is replayed"
    return f"the slower of its {'' if repeats == 2 else 'middle '}two calls is replayed"


ERROR = "race_runs_error"


def runs_menu() -> None:
    """A popover with runs that can race without a new recording."""
    place = st.popover("Runs", key="race_runs_open", icon=":material/folder_open:", on_change="rerun")
    if not place.open:
        return
    with place, st.container(width=440):
        st.file_uploader(
            "Open saved runs",
            type=["dscope"],
            key="race_files",
            accept_multiple_files=True,
            on_change=lambda: st.session_state.pop(ERROR, None),
        )
        with st.container(key="race_runs_error"):
            runs = available()
        st.multiselect(
            f"Runs of the same prompt, at most {MOST}", list(runs), key="race_chosen", max_selections=MOST,
            placeholder="Choose two to four" if len(runs) > 1 else "No runs yet: decode, compare, or open files",
        )  # fmt: skip
        st.button(
            "Race these", key="race_these", on_click=_race, args=(runs,), disabled=not runs, icon=":material/flag:"
        )
        if error := st.session_state.get(ERROR):
            show_error(error)


def available() -> dict[str, RunTrace]:
    """Runs by label; files that cannot be read are reported in a sentence."""
    found: list[tuple[str, RunTrace]] = []
    run = current_run()
    if run is not None and run.source != "recorded" and run.trace.iterations:
        found.append((f"{run.trace.label} (Step through)", run.trace))
    outcome = st.session_state.get("comparison")
    if outcome is not None:
        from decoding.compare.comparison import score

        scores = score(outcome.comparison, loop_free=False)
        found += [(f"{entry.contestant.label} (Compare)", entry.run) for entry in scores if entry.run is not None]
    for file in st.session_state.get("race_files") or ():
        try:
            trace = load_run(file)
        except DraftscopeError as error:
            show_error(error)
            continue
        found.append((f"{trace.label} ({file.name})", trace))
    named: dict[str, RunTrace] = {}
    for label, trace in found:
        number = sum(name == label or name.startswith(f"{label} #") for name in named)
        named[f"{label} #{number + 1}" if number else label] = trace
    return named


def _race(runs: dict[str, RunTrace]) -> None:
    """Put the chosen runs on screen as a race; an error is stored to be shown."""
    chosen = st.session_state["race_chosen"]
    try:
        st.session_state["race"] = race_of_runs([(label, runs[label]) for label in chosen if label in runs])
    except SettingsError as error:
        st.session_state[ERROR] = error
        return
    st.session_state[ERROR] = None
    st.session_state["race_runs_open"] = False

"""A race: recorded calls of several methods, replayed side by side at the times at which their tokens appeared.

    lanes = [lane_of(run) for run in runs]        # or `lane_of_times` for a call that reports no phases
    data = race_data(lanes, key="r1")             # what viz/race/ draws

Every time was measured while nothing was drawn, in seconds since the call began. The tokens of an iteration appear
together, when its commit had ended. Replaying, slowed down or not, happens in the browser alone.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict

from viz.glossary import explain_term
from viz.race.lanes import OWN, UNKNOWN, Lane, check_lanes
from viz.race.sentences import finish_words, lane_facts, places
from viz.theme import PHASE_COLORS, PHASE_WORDS
from viz.tokens import visible

# Share of the real speed, and what its button says.
SPEEDS: tuple[tuple[float, str], ...] = (
    (1.0, "real speed"), (0.25, "1/4"), (0.1, "1/10"), (0.02, "1/50"), (0.005, "1/200"),
)  # fmt: skip
SHORTEST_REPLAY_S = 6.0
MOST_TICKS = 9
PROMPT_TAIL = 300
LONG_STEP = 0.95
# What a lane counts and what colours mean, where the glossary has no sentence of its own for it.
WORDS: dict[str, str] = {
    "tokens": "Tokens that this call had committed by the time shown, of all that it committed.",
    "tokens/s": "Tokens so far over the recorded time so far, prefill included.",
    "recorded time": "Time since the call began, as it was measured; however slowly it is replayed, it stays the same.",
    "drafted": "Proposed by the draft model and accepted.",
    OWN: "The target's own token: this call drafts nothing.",
    UNKNOWN: "This call does not tell whether a token was drafted.",
}
GLOSSARY = ("bonus", "recovered", "fallback", "prefill")


def race_data(lanes: Sequence[Lane], key: str, explained: Mapping[int, str] | None = None, hold: bool = False) -> dict:
    """What the component draws.

    Args:
        key: another one starts the replay anew.
        explained: by lane, why its greedy text parts from that of the reference, where that was measured.
        hold: stand still, because something is being measured on this machine.

    Raises:
        SettingsError: these calls cannot race.
    """
    check_lanes(lanes)
    ranks, last = places(lanes), max(lane.end_s for lane in lanes)
    present = {name for lane in lanes for step in lane.steps for name, _ in step.phases}
    finish = finish_words(lanes, explained or {})
    return {
        "key": key,
        "hold": hold,
        "end_s": last,
        "iterations": max(len(lane.steps) for lane in lanes),
        "cell_s": long_step_s(lanes),
        "tallest": max(len(step.tokens) for lane in lanes for step in lane.steps),
        "speeds": [list(speed) for speed in SPEEDS],
        "speed": default_speed(last),
        "ticks": {"time": time_ticks(last), "iteration": iteration_ticks(max(len(lane.steps) for lane in lanes))},
        "prompt": "".join(readable(text) for text in lanes[0].prompt_texts)[-PROMPT_TAIL:],
        "terms": WORDS
        | {name: explain_term(name) for name in GLOSSARY}
        | {name: explain_term(PHASE_WORDS[name]) for name in PHASE_WORDS if name in present},
        "phases": [[name, PHASE_WORDS[name], PHASE_COLORS[name]] for name in PHASE_WORDS if name in present],
        "lanes": [_lane_data(lane, rank, lanes) for lane, rank in zip(lanes, ranks, strict=True)],
        "finish": asdict(finish),
    }


def _lane_data(lane: Lane, rank: int, lanes: Sequence[Lane]) -> dict:
    return {
        "label": lane.label,
        "note": lane.note,
        "settings": lane.settings,
        "place": rank,
        "end_s": lane.end_s,
        "count": lane.count,
        "facts": lane_facts(lane, lanes),
        "has_phases": lane.has_phases,
        "steps": [
            {
                "start": step.start_s,
                "end": step.end_s,
                "accepted": step.accepted,
                "tokens": [[readable(text), provenance, text.endswith("\n")] for text, provenance in step.tokens],
                "phases": [list(phase) for phase in step.phases],
            }
            for step in lane.steps
        ],
    }


def readable(text: str) -> str:
    """Token text as prose: spaces stay, what has no shape is written out, whitespace alone is made visible."""
    if not text:
        return ""
    return "".join(each if each == " " else visible(each) for each in text) if text.strip() else visible(text)


def long_step_s(lanes: Sequence[Lane]) -> float:
    """Seconds of an iteration that few exceed, which are a full cell of the strip by iteration."""
    seconds = sorted(step.end_s - step.start_s for lane in lanes for step in lane.steps)
    return seconds[int(LONG_STEP * (len(seconds) - 1))]


def default_speed(end_s: float) -> int:
    """Index of the fastest speed at which the replay still takes long enough to be watched."""
    return next((i for i, (share, _) in enumerate(SPEEDS) if end_s / share >= SHORTEST_REPLAY_S), len(SPEEDS) - 1)


def time_ticks(end_s: float) -> list[tuple[float, str]]:
    """Round times from 0 up to the end, with their words."""
    scale, unit = (1.0, "s") if end_s >= 1 else (1e3, "ms")
    step = _round_step(end_s * scale)
    return [(i * step / scale, f"{i * step:g} {unit}" if i else "0") for i in range(int(end_s * scale / step) + 1)]


def iteration_ticks(count: int) -> list[tuple[float, str]]:
    """Round numbers of iterations from 0 up to the last, with their words."""
    step = max(1, round(_round_step(count)))
    return [(float(i), str(i)) for i in range(0, count + 1, step)]


def _round_step(length: float) -> float:
    """1, 2 or 5 times a power of ten, so that at most `MOST_TICKS` steps fit."""
    power = 1e-9
    while True:
        for factor in (1, 2, 5):
            if length <= factor * power * MOST_TICKS:
                return factor * power
        power *= 10

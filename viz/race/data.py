"""Result of a race in sentences: what to decode with, whether the texts are equal, what made the difference."""

from collections.abc import Mapping, Sequence
from itertools import accumulate, combinations, repeat
from operator import mul

from decoding.analysis.bottom_line import BottomLine, Option, bottom_line, paired
from decoding.common.formats import duration, plural
from decoding.trace.metrics import shared_tokens
from viz.explain.bottom_line import bottom_line_words
from viz.glossary import explain_term
from viz.race.lanes import OWN, UNKNOWN, Lane, check_lanes
from viz.theme import PHASE_COLORS, PHASE_WORDS
from viz.tokens import quote, visible

# What moves the ratio of the speeds by this much is mentioned, a phase from this share of an iteration.
LEAST_EFFECT = 0.015
LEAST_SHARE = 0.02


def reference_lane(lanes: Sequence[Lane]) -> int:
    """Index of the reference lane: plain decoding, or the first."""
    plain = [number for number, lane in enumerate(lanes) if lane.plain]
    return next((number for number in plain if lanes[number].has_phases), plain[0] if plain else 0)


def decided(lanes: Sequence[Lane]) -> BottomLine | None:
    """What the repeats of the lanes allow to say; the replayed calls alone where those of some are not known."""
    plain = lanes[reference_lane(lanes)]
    repeats = [lane.speeds for lane in lanes]
    if not all(repeats) or len({len(each) for each in repeats}) > 1:  # ratios are taken within a repeat
        repeats = [(lane.throughput,) for lane in lanes]
    speeds = [{(0, at): speed for at, speed in enumerate(each)} for each in repeats]
    base = speeds[reference_lane(lanes)] if plain.plain else None
    options = [
        Option(lane.label, paired(mine, base), speculates=not lane.plain, speeds=mine)
        for lane, mine in zip(lanes, speeds, strict=True)
    ]
    return bottom_line(options, plain.label if plain.plain else "")


def _fastest(line: BottomLine | None) -> str:
    """Name of the one lane that is faster than all others, empty where none is."""
    if line is None or line.verdict == "plain":
        return line.plain if line is not None else ""
    return line.winner.label if line.winner is not None else ""


def partings(lanes: Sequence[Lane]) -> dict[str, list[float]]:
    """When two lanes that draft have taken different steps from the same token of the text, by recorded time and by
    iteration: there the later of both has just ended its step.
    """
    times, numbers = set(), set()
    for mine, other in combinations([lane for lane in lanes if not lane.plain and lane.has_phases], 2):
        begins = []
        for lane in (mine, other):
            starts = accumulate((len(step.token_ids) for step in lane.steps), initial=0)
            begins.append({start: number for number, start in zip(range(len(lane.steps)), starts, strict=False)})
        for start in begins[0].keys() & begins[1].keys():
            first, second = begins[0][start], begins[1][start]
            if mine.output_ids[:start] != other.output_ids[:start]:
                continue
            if mine.steps[first].token_ids != other.steps[second].token_ids:
                times.add(max(mine.steps[first].end_s, other.steps[second].end_s))
                numbers.add(max(first, second) + 1.0)
    return {"time": sorted(times), "iteration": sorted(numbers)}


def doubt_words(lanes: Sequence[Lane], line: BottomLine | None) -> str:
    """What to mind in comparing figures: texts of different lengths, a verdict from other calls than those shown."""
    said = []
    if len({lane.count for lane in lanes}) > 1:
        said.append("The texts differ in length: speeds are compared per token.")
    if line is not None and line.plain:
        replayed = next(lane for lane in lanes if lane.label == line.best.label).throughput
        shown, ratio = replayed / lanes[reference_lane(lanes)].throughput, line.best.figure.value
        if abs(shown / ratio - 1) >= LEAST_EFFECT:
            said.append(
                f"Lanes show the replayed calls ({shown:.2f}×); {ratio:.2f}× is the median ratio within repeats."
            )
    return " ".join(said)


def identity_words(lanes: Sequence[Lane], explained: Mapping[int, str]) -> tuple[bool | None, str]:
    """Whether greedy texts are the same, None where that is not to be expected, and the check in a sentence.

    `explained` gives, by lane, why a text diverges from the reference, where that was measured.
    """
    sampled = [lane for lane in lanes if lane.temperature > 0]
    if sampled:
        how = f"at temperature {sampled[0].temperature:g}"
        equal = len({lane.output_ids for lane in lanes}) == 1
        end = "and made the same draws: one text." if equal else "by other draws: different text."
        return None, f"Sampled {how}: all methods have the same distribution, {end}"
    if len({lane.target for lane in lanes}) > 1:
        targets = " and ".join(dict.fromkeys(lane.target for lane in lanes))
        return None, f"The texts come from different targets ({targets}) and need not be equal."
    number = reference_lane(lanes)
    reference = lanes[number]
    places = [(i, _first_difference(lane, reference)) for i, lane in enumerate(lanes) if i != number]
    parted = [(i, position) for i, position in places if position is not None]
    if not parted:
        shortest, longest = (pick(lane.count for lane in lanes) for pick in (min, max))
        far = f"all {shortest} tokens" if shortest == longest else f"the first {shortest} tokens, which all have"
        texts = "Both texts" if len(lanes) == 2 else f"All {len(lanes)} texts"
        return True, f"{texts} are equal token for token ({far}, greedy)."
    said = []
    for i, place in parted:
        both = ([text for step in lane.steps for text, _ in step.tokens] for lane in (lanes[i], reference))
        here, there = (quote(every[place]) if place < len(every) else "the end" for every in both)
        unmeasured = f"token {place + 1} is {here} instead of {there}; the target's margin there was not measured."
        said.append(f"{lanes[i].label} diverges from {reference.label}: {explained.get(i) or unmeasured}")
    return False, " ".join(said)


def _first_difference(lane: Lane, reference: Lane) -> int | None:
    """Index of the first differing token; None if one text only stopped earlier at its length limit."""
    ours, theirs = lane.output_ids, reference.output_ids
    if ours == theirs:
        return None
    common, shorter = shared_tokens(ours, theirs), lane if len(ours) < len(theirs) else reference
    return common if common < len(shorter.output_ids) or shorter.ended else None


def difference_words(lanes: Sequence[Lane]) -> str:
    """What made the difference between the first method and plain decoding, from passes and phase times alone."""
    order = sorted(lanes, key=lambda lane: -lane.throughput)
    plain = lanes[reference_lane(lanes)]
    if not plain.plain:
        plain = order[1]
    ours = next(lane for lane in order if lane is not plain)
    if not ours.has_phases or not plain.has_phases:
        silent = ours if not ours.has_phases else plain
        times = [duration(lane.end_s / lane.count) for lane in (ours, plain)]
        return (
            f"{ours.label} took {times[0]} per token, {plain.label} {times[1]}; {silent.label} reports no phases, so "
            "the difference cannot be split up."
        )
    # After the prompt: tokens per iteration, and time per iteration.
    later = [sum(len(step.token_ids) for step in lane.later) / len(lane.later) for lane in (ours, plain)]
    tokens, length = later[0] / later[1], _iteration_s(ours) / _iteration_s(plain)
    said = (
        f"{ours.label} took {plural(len(ours.steps), 'verification pass', 'verification passes')} for "
        f"{plural(ours.count, 'token')} ({_tokens_per_pass(ours):.2f} each), {plain.label} {len(plain.steps)} "
        f"({_tokens_per_pass(plain):.2f} each). After the prompt, an iteration took "
        f"{duration(_iteration_s(ours))} ({_phases(ours)}) compared with {duration(_iteration_s(plain))} "
        f"({_phases(plain)}): {tokens:.2f}× the tokens in {length:.2f}× the time is {tokens / length:.2f}× the speed"
    )
    whole = ours.throughput / plain.throughput
    if abs(whole - tokens / length) < LEAST_EFFECT:
        return f"{said}."
    prompts = f"{duration(ours.prompt_s)} compared with {duration(plain.prompt_s)}"
    return f"{said}, or {whole:.2f}× with the prompt ({prompts})."


def lane_facts(lane: Lane, lanes: Sequence[Lane]) -> str:
    """A lane's passes, tokens per pass and time per iteration, and its speed relative to plain decoding."""
    plain = lanes[reference_lane(lanes)]
    ratio = f" · {lane.throughput / plain.throughput:.2f}× {plain.label}" if plain.plain and plain is not lane else ""
    if not lane.has_phases:
        return f"{duration(lane.end_s / lane.count)} per token, phases not reported{ratio}"
    return (
        f"{plural(len(lane.steps), 'pass', 'passes')} · {_tokens_per_pass(lane):.2f} tokens each · "
        f"{duration(_iteration_s(lane))} per iteration ({_phases(lane)}){ratio}"
    )


def _tokens_per_pass(lane: Lane) -> float:
    return lane.count / len(lane.steps)


def _iteration_s(lane: Lane) -> float:
    """Mean time of an iteration after the prompt."""
    return (lane.end_s - lane.later[0].start_s) / len(lane.later)


def _phases(lane: Lane) -> str:
    """Time of a mean iteration in the draft, the target (rebuild included) and the rest."""
    total, seconds = _iteration_s(lane), {"target": 0.0} if lane.plain else {"draft": 0.0, "target": 0.0}
    for name, value in (phase for step in lane.later for phase in step.phases):
        part = "target" if name in ("verify", "rebuild") else name
        if part in seconds:
            seconds[part] += value / len(lane.later)
    parts = {name: value for name, value in seconds.items() if value >= LEAST_SHARE * total}
    parts["rest"] = total - sum(parts.values())
    return ", ".join(f"{name} {duration(value)}" for name, value in parts.items() if value >= LEAST_SHARE * total)


# Share of the real speed, and its button label.
SPEEDS: tuple[tuple[float, str], ...] = (
    (1.0, "real speed"), (0.25, "1/4"), (0.1, "1/10"), (0.02, "1/50"), (0.005, "1/200"),
)  # fmt: skip
SHORTEST_REPLAY_S = 6.0
MOST_TICKS = 9
PROMPT_TAIL = 300
LONG_STEP = 0.95
# Counters of a lane and meanings of colours that the glossary does not have.
WORDS: dict[str, str] = {
    "tokens": "Tokens committed by the time shown / all tokens of this call.",
    "tokens/s": "Tokens so far over the recorded time so far, prefill included.",
    "recorded time": "Measured time since the start of the call, independent of the speed of the replay.",
    "drafted": "Proposed by the draft model and accepted.",
    OWN: "The target's own token: this call drafts nothing.",
    UNKNOWN: "This call does not report whether a token was drafted.",
}
GLOSSARY = ("bonus", "recovered", "fallback", "prefill")


def race_data(
    lanes: Sequence[Lane],
    key: str,
    explained: Mapping[int, str] | None = None,
    where: str = "for this text on this machine",
    hold: bool = False,
) -> dict:
    """What the component draws.

    Args:
        key: a new key restarts the replay.
        explained: by lane, why its greedy text diverges from the reference, where that was measured.
        where: which text and which machine the figures hold for.
        hold: pause, because something is being measured on this machine.

    Raises:
        SettingsError: these calls cannot race.
    """
    check_lanes(lanes)
    last, steps = max(lane.end_s for lane in lanes), [step for lane in lanes for step in lane.steps]
    iterations = max(len(lane.steps) for lane in lanes)
    lengths = sorted(step.end_s - step.start_s for step in steps)
    phases = [name for name in PHASE_WORDS if name in {name for step in steps for name, _ in step.phases}]
    same, identity = identity_words(lanes, explained or {})
    line = decided(lanes)
    return {
        "key": key,
        "hold": hold,
        "end_s": last,
        "iterations": iterations,
        # Few iterations are longer than a full cell of the strip in iteration mode.
        "cell_s": lengths[int(LONG_STEP * (len(lengths) - 1))],
        "partings": partings(lanes),
        "tallest": max(len(step.tokens) for step in steps),
        "speeds": [list(speed) for speed in SPEEDS],
        "speed": default_speed(last),
        "ticks": {"time": time_ticks(last), "iteration": iteration_ticks(iterations)},
        "prompt": "".join(readable(text) for text in lanes[0].prompt_texts)[-PROMPT_TAIL:],
        "terms": WORDS
        | {name: explain_term(name) for name in GLOSSARY}
        | {name: explain_term(PHASE_WORDS[name]) for name in phases},
        "phases": [[name, PHASE_WORDS[name], PHASE_COLORS[name]] for name in phases],
        "lanes": [_lane_data(lane, lanes) | {"fastest": lane.label == _fastest(line)} for lane in lanes],
        "finish": {
            "headline": bottom_line_words(line, where),
            "doubt": doubt_words(lanes, line),
            "same": same,
            "identity": identity,
            "why": difference_words(lanes),
        },
    }


def _lane_data(lane: Lane, lanes: Sequence[Lane]) -> dict:
    return {
        "label": lane.label,
        "note": lane.note,
        "settings": lane.settings,
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
    """Token text as prose: spaces stay, invisible characters are escaped, pure whitespace is made visible."""
    if not text:
        return ""
    return "".join(each if each == " " else visible(each) for each in text) if text.strip() else visible(text)


def default_speed(end_s: float) -> int:
    """Index of the fastest speed at which the replay is still long enough to watch."""
    return next((i for i, (share, _) in enumerate(SPEEDS) if end_s / share >= SHORTEST_REPLAY_S), len(SPEEDS) - 1)


def time_ticks(end_s: float) -> list[tuple[float, str]]:
    """Round times from 0 to the end, with labels."""
    scale, unit = (1.0, "s") if end_s >= 1 else (1e3, "ms")
    step = _round_step(end_s * scale)
    return [(i * step / scale, f"{i * step:g} {unit}" if i else "0") for i in range(int(end_s * scale / step) + 1)]


def iteration_ticks(count: int) -> list[tuple[float, str]]:
    """Round iteration numbers from 0 to the last, with labels."""
    step = max(1, round(_round_step(count)))
    return [(float(i), str(i)) for i in range(0, count + 1, step)]


def _round_step(length: float) -> float:
    """1, 2 or 5 times a power of ten, so that at most `MOST_TICKS` steps fit."""
    powers = accumulate(repeat(10), mul, initial=1e-9)
    steps = (factor * power for power in powers for factor in (1, 2, 5))
    return next(step for step in steps if length <= step * MOST_TICKS)

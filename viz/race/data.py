"""What a race ends with, in sentences: who was first, whether the texts are the same, what made the difference."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass

from viz.formats import duration, plural
from viz.glossary import explain_term
from viz.race.lanes import OWN, UNKNOWN, Lane, check_lanes
from viz.theme import PHASE_COLORS, PHASE_WORDS
from viz.tokens import quote, visible

# The prompt is mentioned where it moves the ratio of the speeds by this much, a phase from this share of an iteration.
LEAST_PROMPT_EFFECT = 0.015
LEAST_SHARE = 0.02


@dataclass(frozen=True, slots=True)
class Finish:
    """The result of a race.

    Attributes:
        headline: who was first and by how much. doubt: what speaks against the order, empty if nothing does.
        same: whether greedy texts are token for token the same; None where that is not to be expected.
        identity: the check in a sentence.
        why: one or two sentences with what made the difference.
    """

    headline: str
    doubt: str
    same: bool | None
    identity: str
    why: str


def finish_words(lanes: Sequence[Lane], explained: Mapping[int, str]) -> Finish:
    """All sentences of a race; `explained` tells by lane why a greedy text parts from the reference."""
    same, identity = identity_words(lanes, explained)
    return Finish(headline(lanes), doubt_words(lanes), same, identity, difference_words(lanes))


def places(lanes: Sequence[Lane]) -> list[int]:
    """Place of each lane by tokens per second, 1 for the fastest; the order of the finish where lengths are equal."""
    speeds = [lane.throughput for lane in lanes]
    return [1 + sum(other > speed for other in speeds) for speed in speeds]


def reference_lane(lanes: Sequence[Lane]) -> int:
    """Index of the lane that the others are measured against: plain decoding, or the first."""
    plain = [number for number, lane in enumerate(lanes) if lane.plain]
    return next((number for number in plain if lanes[number].has_phases), plain[0] if plain else 0)


def headline(lanes: Sequence[Lane]) -> str:
    """Who was first, its time, how much faster than plain decoding, and how far behind the next one is."""
    first, second = sorted(lanes, key=lambda lane: -lane.throughput)[:2]
    plain = lanes[reference_lane(lanes)]
    said = f"{first.label} is first: {plural(first.count, 'token')} in {duration(first.end_s)}"
    for other in (plain, second) if plain.plain and plain not in (first, second) else (second,):
        said += f", {first.throughput / other.throughput:.2f}× the speed of {other.label} ({duration(other.end_s)})"
    return f"{said}."


def doubt_words(lanes: Sequence[Lane]) -> str:
    """What speaks against the order: texts of different lengths, repeats of the first two that overlap."""
    first, second = sorted(lanes, key=lambda lane: -lane.throughput)[:2]
    said = []
    if len({lane.count for lane in lanes}) > 1:
        said.append("The texts differ in length: places go by tokens per second.")
    if first.speeds and second.speeds and min(first.speeds) <= max(second.speeds):
        said.append("Repeats of the first two overlap in speed: their order is not certain.")
    return " ".join(said)


def identity_words(lanes: Sequence[Lane], explained: Mapping[int, str]) -> tuple[bool | None, str]:
    """Whether the texts are the same where they have to be, and where they first part."""
    sampled = [lane for lane in lanes if lane.temperature > 0]
    if sampled:
        how = f"at temperature {sampled[0].temperature:g}"
        equal = len({lane.output_ids for lane in lanes}) == 1
        end = "these texts happen to be the same." if equal else "different draws give different text."
        return None, f"Sampled {how}, each method with its own draws: {end}"
    if len({lane.target for lane in lanes}) > 1:
        targets = " and ".join(dict.fromkeys(lane.target for lane in lanes))
        return None, f"The texts are by different targets ({targets}): they need not be the same."
    number = reference_lane(lanes)
    reference = lanes[number]
    parted = [(i, _first_difference(lane, reference)) for i, lane in enumerate(lanes) if i != number]
    parted = [(i, position) for i, position in parted if position is not None]
    if not parted:
        shortest, longest = (pick(lane.count for lane in lanes) for pick in (min, max))
        far = f"all {shortest} tokens" if shortest == longest else f"the {shortest} tokens that all have"
        texts = "Both texts" if len(lanes) == 2 else f"All {len(lanes)} texts"
        return True, f"{texts} are the same, token for token ({far}, greedy)."
    said = [
        f"{lanes[i].label} parts from {reference.label}: {explained.get(i) or _difference(lanes[i], reference, place)}"
        for i, place in parted
    ]
    return False, " ".join(said)


def _first_difference(lane: Lane, reference: Lane) -> int | None:
    """Index of the first token that differs; a text that only stopped earlier at its length limit does not."""
    ours, theirs = lane.output_ids, reference.output_ids
    common = min(len(ours), len(theirs))
    place = next((place for place in range(common) if ours[place] != theirs[place]), None)
    if place is not None or len(ours) == len(theirs):
        return place
    shorter = lane if len(ours) < len(theirs) else reference
    return common if shorter.ended else None


def _difference(lane: Lane, reference: Lane, place: int) -> str:
    here, there = (_text_at(each, place) for each in (lane, reference))
    return f"token {place + 1} is {here} instead of {there}; how undecided the target is there was not measured."


def _text_at(lane: Lane, place: int) -> str:
    texts = [text for step in lane.steps for text, _ in step.tokens]
    return quote(texts[place]) if place < len(texts) else "the end"


def difference_words(lanes: Sequence[Lane]) -> str:
    """What made the difference, from counted passes and measured phases alone: the first against plain decoding."""
    order = sorted(lanes, key=lambda lane: -lane.throughput)
    plain = lanes[reference_lane(lanes)]
    if not plain.plain:
        plain = order[1]
    ours = next(lane for lane in order if lane is not plain)
    if not ours.has_phases or not plain.has_phases:
        silent = ours if not ours.has_phases else plain
        return (
            f"{_per_token(ours)}, {_per_token(plain, short=True)}; {silent.label} reports no phases, so the difference "
            "cannot be divided."
        )
    tokens, length = (of(ours) / of(plain) for of in (_later_tokens, _iteration_s))
    said = (
        f"{ours.label} took {plural(len(ours.steps), 'verification pass', 'verification passes')} for "
        f"{plural(ours.count, 'token')} ({_tokens_per_pass(ours):.2f} each), {plain.label} {len(plain.steps)} "
        f"({_tokens_per_pass(plain):.2f} each). Once the prompt was read, an iteration took "
        f"{duration(_iteration_s(ours))} ({_phases(ours)}) against {duration(_iteration_s(plain))} "
        f"({_phases(plain)}): {tokens:.2f}× the tokens in {length:.2f}× the time make {tokens / length:.2f}× the speed"
    )
    whole = ours.throughput / plain.throughput
    if abs(whole - tokens / length) < LEAST_PROMPT_EFFECT:
        return f"{said}."
    prompts = f"{duration(ours.prompt_s)} against {duration(plain.prompt_s)}"
    return f"{said}, {whole:.2f}× with the prompt ({prompts})."


def lane_facts(lane: Lane, lanes: Sequence[Lane]) -> str:
    """A lane's passes, tokens per pass and time per iteration, and its speed against plain decoding."""
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


def _later_tokens(lane: Lane) -> float:
    """Tokens per iteration once the prompt had been read."""
    return sum(len(step.token_ids) for step in lane.later) / len(lane.later)


def _iteration_s(lane: Lane) -> float:
    """Mean time of an iteration once the prompt had been read."""
    return (lane.end_s - lane.later[0].start_s) / len(lane.later)


def _phases(lane: Lane) -> str:
    """What of a mean iteration goes to the draft, the target (rebuilding included) and the rest."""
    total, seconds = _iteration_s(lane), {"target": 0.0} if lane.plain else {"draft": 0.0, "target": 0.0}
    for name, value in (phase for step in lane.later for phase in step.phases):
        part = "target" if name in ("verify", "rebuild") else name
        if part in seconds:
            seconds[part] += value / len(lane.later)
    told = {name: value for name, value in seconds.items() if value >= LEAST_SHARE * total}
    told["rest"] = total - sum(told.values())
    return ", ".join(f"{name} {duration(value)}" for name, value in told.items() if value >= LEAST_SHARE * total)


def _per_token(lane: Lane, short: bool = False) -> str:
    took = duration(lane.end_s / lane.count)
    return f"{lane.label} {took}" if short else f"{lane.label} took {took} per token"


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

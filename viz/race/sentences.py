"""What a race ends with, in sentences: who was first, whether the texts are the same, what made the difference."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from viz.explain.iteration import quote
from viz.formats import duration, plural
from viz.race.lanes import Lane

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

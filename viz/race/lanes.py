"""One recorded call as a lane of a race: when its tokens appeared, their provenance, and where the time went."""

from collections.abc import Sequence
from dataclasses import dataclass

from decoding.common.errors import require
from decoding.trace.records import IterationTrace, RunTrace
from viz.scope.panels import iteration_spans

FEWEST, MOST = 2, 4
OWN = "own"
"""Provenance of a token of a call that drafts nothing: the target's own."""
UNKNOWN = "unknown"
"""Provenance of a token of a call that drafts but does not report which tokens."""


@dataclass(frozen=True, slots=True)
class LaneStep:
    """What one iteration of a call did.

    Attributes:
        start_s, end_s: seconds since the call began; its tokens appear at `end_s`.
        token_ids: committed tokens; `tokens`: their text and provenance.
        phases: measured seconds by phase in their order, the remainder as `other`; the pass that
            reads the prompt is `prefill`. Empty for a call that reports none.
        accepted: how many of its tokens were drafted.
    """

    start_s: float
    end_s: float
    token_ids: tuple[int, ...]
    tokens: tuple[tuple[str, str], ...]
    phases: tuple[tuple[str, float], ...] = ()
    accepted: int = 0


@dataclass(frozen=True, slots=True)
class Lane:
    """One recorded call.

    Attributes:
        label: its name; `note`: engine and number of the repeat; `settings`: of the method, as text.
        target: model, precision and device that wrote the text.
        temperature: 0 for greedy decoding.
        ended: the text ended with an end token, not at the length limit.
        plain: one token of the target per pass; the reference for the others.
        reads_prompt: whether its first pass reads the prompt, as without a draft, or a prefill before it.
        speeds: tokens per second of every repeat, if there were several.
    """

    label: str
    note: str
    steps: tuple[LaneStep, ...]
    prompt_ids: tuple[int, ...]
    prompt_texts: tuple[str, ...]
    target: str
    temperature: float
    ended: bool
    plain: bool
    reads_prompt: bool
    settings: str = ""
    speeds: tuple[float, ...] = ()

    @property
    def end_s(self) -> float:
        """When the last token appeared."""
        return self.steps[-1].end_s

    @property
    def prompt_s(self) -> float:
        """When the prompt had been read: the prefill of both models, or the first pass without a draft."""
        return self.steps[0].end_s if self.reads_prompt else self.steps[0].start_s

    @property
    def later(self) -> tuple[LaneStep, ...]:
        """The steps after the prompt had been read; all steps of a call that did nothing else."""
        return (self.steps[1:] if self.reads_prompt else self.steps) or self.steps

    @property
    def output_ids(self) -> tuple[int, ...]:
        """All tokens in order."""
        return tuple(token for step in self.steps for token in step.token_ids)

    @property
    def count(self) -> int:
        """Number of tokens."""
        return sum(len(step.token_ids) for step in self.steps)

    @property
    def throughput(self) -> float:
        """Tokens per second of the whole call, prefill included."""
        return self.count / self.end_s

    @property
    def has_phases(self) -> bool:
        """Whether the time of its phases was measured."""
        return any(step.phases for step in self.steps)


def lane_of(run: RunTrace, label: str = "", note: str = "", speeds: Sequence[float] = ()) -> Lane:
    """The lane of a recorded run.

    Raises `SettingsError` where nothing was decoded, or an iteration was replayed and has no time.
    """
    require(bool(run.iterations), f"{label or run.label} has not decoded anything yet: decode it first.")
    require(run.timed, f"{label or run.label} was replayed and has no times: decode it first.")
    drafts = any(iteration.drafted for iteration in run.iterations)
    target = run.pair.target
    return Lane(
        label=label or run.label,
        note=" · ".join(words for words in (f"{target.engine} engine", note) if words),
        steps=tuple(_step(iteration, drafts) for iteration in run.iterations),
        prompt_ids=run.prompt_ids,
        prompt_texts=run.prompt_texts,
        target=f"{target.name}, {target.dtype}, {target.device}",
        temperature=run.sampling.temperature,
        ended=run.totals.stopped == "end_of_text",
        plain=not drafts,
        reads_prompt=run.iterations[0].kv_draft is None,
        settings=", ".join(f"{name} {value}" for name, value in run.settings.items()),
        speeds=tuple(speeds),
    )


def lane_of_times(
    label: str,
    note: str,
    seconds: Sequence[float],
    reached: Sequence[int],
    tokens: Sequence[tuple[int, str]],
    *,
    prompt: Sequence[tuple[int, str]],
    target: str,
    temperature: float,
    ended: bool,
    plain: bool,
    speeds: Sequence[float] = (),
) -> Lane:
    """The lane of a call with only token times, such as Hugging Face `generate`.

    Args:
        seconds, reached: when tokens arrived, and how many had arrived by then.
        tokens, prompt: token ids with their texts.

    Raises:
        SettingsError: no token arrived.
    """
    require(bool(seconds), f"{label} has not decoded anything yet: decode it first.")
    steps, begun, done = [], 0.0, 0
    for end, count in zip(seconds, reached, strict=True):
        arrived = tokens[done:count]
        if arrived:
            texts = tuple((text, OWN if plain else UNKNOWN) for _, text in arrived)
            steps.append(LaneStep(begun, end, tuple(token for token, _ in arrived), texts))
            begun, done = end, count
    prompt_ids, prompt_texts = (tuple(column) for column in zip(*prompt, strict=True))
    return Lane(
        label, note, tuple(steps), prompt_ids, prompt_texts, target, temperature, ended, plain, True, "", tuple(speeds)
    )


def _step(iteration: IterationTrace, drafts: bool) -> LaneStep:
    seconds = iteration.phase_s
    claimed = sum(seconds.values())
    start = max(0.0, min(iteration.started_s, iteration.ended_s - claimed))
    if not iteration.index and iteration.kv_draft is None:
        # Without a draft the first pass reads the prompt: it is the prefill, and the call began with it.
        start, seconds = 0.0, {"prefill": seconds.pop("verify")} | seconds
    seconds["other"] = max(0.0, iteration.ended_s - start - claimed)
    spans = iteration_spans(iteration)
    return LaneStep(
        start_s=start,
        end_s=iteration.ended_s,
        token_ids=iteration.committed_ids,
        tokens=tuple((span.text, span.provenance if drafts else OWN) for span in spans),
        phases=tuple((name, value) for name, value in seconds.items() if value > 0),
        accepted=min(len(iteration.accepted), len(spans)),
    )


def check_lanes(lanes: Sequence[Lane]) -> None:
    """Raise `SettingsError` unless there are two to four calls on the same prompt."""
    count, there = len(lanes), "is 1" if lanes else "is none"
    require(count >= FEWEST, f"A race needs at least {FEWEST} runs, but there {there}: add one.")
    require(count <= MOST, f"A race takes at most {MOST} runs, but there are {count}: remove some.")
    for lane in lanes:
        same = lane.prompt_ids == lanes[0].prompt_ids
        require(same, f"{lane.label} and {lanes[0].label} have different prompts: choose runs of one prompt.")

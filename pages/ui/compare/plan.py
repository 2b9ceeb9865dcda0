"""The plan of a comparison and its widgets, the worker's job, and the result that the page stores."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import fmean
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple
from uuid import uuid4

import streamlit as st

from decoding.analysis.luck import RunLuck, run_luck
from decoding.common.formats import elapsed, plural
from decoding.models.presets import PairSettings
from decoding.recorded import COMPARED_REPEATS, COMPARED_WARMUP, race_runs
from decoding.trace.records import IterationTrace, PairInfo, RunTrace
from pages.ui.common.errors import escape_markdown
from pages.ui.common.models import manager
from pages.ui.common.state import PromptChoice, encode_prompt
from pages.ui.common.worker import ModelTask
from pages.ui.widgets.controls import (
    length_control,
    picked_length,
    picked_sampling,
    proof_link,
    sampling_controls,
    sampling_words,
    say_again,
    seed,
    settings_popover,
)
from pages.ui.widgets.costs import other_words
from pages.ui.widgets.prompts import (
    keep_in_address,
    picked_prompt,
    prompt_of,
    prompt_picker,
    prompt_title,
    prompt_words,
    sample_prompts,
)
from viz.explain.bottom_line import ended_words

if TYPE_CHECKING:
    from decoding.compare.comparison import Comparison
    from decoding.compare.contestants import Contestant
    from decoding.models.pair import Pair
    from decoding.sampling.sampling import Sampling

MOST_REPEATS, MOST_WARMUP = 20, 5
MOST_PROMPTS = 12


@dataclass(frozen=True)
class ComparisonPlan:
    """The parameters of a comparison except its contestants.

    Attributes:
        more: further prompts, each measured with every contestant.
    """

    prompt: PromptChoice
    max_new_tokens: int
    repeats: int
    warmup: int
    sampling: "Sampling"
    more: tuple[PromptChoice, ...] = ()

    @property
    def prompts(self) -> tuple[PromptChoice, ...]:
        """All prompts."""
        return self.prompt, *self.more


@dataclass(eq=False)
class ComparisonResult:
    """A finished comparison, with everything needed to show and repeat it.

    Attributes:
        prompt_ids, prompt_texts: the first prompt as given to the models.
        texts: text of every output token.
        cancelled: stopped early; it has the measurements until then.
        pauses: how often work of other sessions interrupted it between iterations, not counted in times.
        settings, generation: the pair it ran with, and which load of a pair that was.
        trees: iterations on one prefix by length of the prefix, computed when viewed.
        expected: how lucky a sampled output was, by contestant: what it committed and the mean over all draws.
        ended: what ended the paths of each method that drafts, by contestant and `Step`.
        parts: the same of each prompt, where there are several.
        recorded: it was measured before and came with the program.
    """

    comparison: "Comparison"
    plan: ComparisonPlan
    prompt_ids: tuple[int, ...]
    prompt_texts: tuple[str, ...]
    texts: dict[int, str]
    cancelled: bool
    pair: PairInfo
    settings: PairSettings
    generation: int
    hardware: dict[str, str]
    pauses: int = 0
    trees: dict[int, list[IterationTrace]] = field(default_factory=dict)
    expected: "dict[int, RunLuck]" = field(default_factory=dict)
    ended: "dict[int, dict[Step, str]]" = field(default_factory=dict)
    parts: "tuple[ComparisonResult, ...]" = ()
    recorded: bool = False
    key: str = field(default_factory=lambda: uuid4().hex)

    @property
    def repeats(self) -> int:
        """How many repeats are in, whole or begun."""
        return len({result.repeat for result in self.comparison.results})


# The latest comparisons by key, so that an address that names one has it until the server ends.
KEPT: dict[str, ComparisonResult] = {}
MOST_KEPT = 16


def keep_comparison(outcome: ComparisonResult) -> None:
    """Show a finished comparison in this session, and hold it for an address that names it."""
    st.session_state["comparison"] = KEPT[outcome.key] = outcome
    while len(KEPT) > MOST_KEPT:
        del KEPT[next(iter(KEPT))]


def run_comparison(job: ModelTask, plan: ComparisonPlan, contestants: "Sequence[Contestant]") -> ComparisonResult:
    """Load the pair if necessary and compare; call it in the worker.

    Raises:
        DraftscopeError: prompt, length and pair do not fit each other.
    """
    from decoding.compare.comparison import compare
    from decoding.engines.clock import describe_hardware

    models = manager()
    job.report(0, 0, "" if models.loaded else "loading the pair")
    pair = models.pair()
    prompts = [(prompt_words(each.name), encode_prompt(pair, each)) for each in plan.prompts]
    hardware, started = dict(describe_hardware(pair.target.device)), time.monotonic()
    findings: list[dict[str, dict]] = [{} for _ in prompts]
    text = pair.vocabulary.text

    def progress(done: int, total: int, doing: str) -> None:
        left = f" · {elapsed((time.monotonic() - started) / done * (total - done))} left" if done else ""
        job.report(done, total, f"call {done + 1} of {total}{left} · {doing}")

    def made(comparison: "Comparison") -> ComparisonResult:
        used = {token for result in comparison.results for token in result.output_ids}
        shared = {
            "texts": {token: text(token) for token in used}, "cancelled": job.cancelled, "pauses": job.pauses,
            "pair": pair.info, "settings": models.settings, "generation": models.generation, "hardware": hardware,
        }  # fmt: skip
        given = [{"prompt_ids": tuple(ids), "prompt_texts": tuple(map(text, ids))} for _, ids in prompts]
        parts = [
            ComparisonResult(
                comparison.on(number), replace(plan, prompt=plan.prompts[number], more=()), **findings[number],
                **given[number], **shared,
            )
            for number in range(len(prompts))
        ]  # fmt: skip
        if len(parts) == 1:
            return parts[0]
        return ComparisonResult(comparison, plan, parts=tuple(parts), **given[0], **shared)

    comparison = compare(
        pair, contestants, prompts, plan.max_new_tokens, plan.repeats, plan.warmup, plan.sampling, progress=progress,
        cancelled=lambda: job.cancelled, measured=lambda found: job.show(made(found)),
    )  # fmt: skip
    if not job.cancelled:
        findings[:] = [tree_findings(job, pair, contestants, ids, plan) for _, ids in prompts]
    return made(comparison)


def tree_findings(
    job: ModelTask, pair: "Pair", contestants: "Sequence[Contestant]", ids: list[int], plan: ComparisonPlan
) -> dict[str, dict]:
    """What only recorded trees show: `expected` and `ended` of a `ComparisonResult`.

    The call of each method that drafts is made once more, not timed, in full: calls that are timed keep no trees.
    """
    from decoding.compare.comparison import call_with_trees

    expected, ended = {}, {}
    for number, each in enumerate(contestants):
        job.report(number, len(contestants), f"{each.label}: its trees, not timed")
        run = call_with_trees(pair, each, ids, plan.sampling, plan.max_new_tokens, job.go_on)
        if run is None:
            continue
        ended[number] = ended_by_step(run)
        if not plan.sampling.greedy and (luck := run_luck(run)).tokens:
            expected[number] = luck
    return {"expected": expected, "ended": ended}


class Step(NamedTuple):
    """What an iteration recorded in full has in common with a timed one, which keeps no tree."""

    prefix_length: int
    committed_ids: tuple[int, ...]
    drafted: int

    @classmethod
    def of(cls, iteration: IterationTrace) -> "Step":
        """That of an iteration."""
        return cls(iteration.prefix_length, iteration.committed_ids, iteration.drafted)


def ended_by_step(run: RunTrace) -> dict[Step, str]:
    """What ended the path of each iteration of a run recorded in full."""
    return {Step.of(iteration): ended_words(iteration) for iteration in run.iterations}


COSTS = "seconds_per_token"


def note_costs(outcome: ComparisonResult) -> None:
    """Remember what a token of each contestant took with this pair, to estimate the next comparison."""
    from decoding.compare.contestants import format_contestant

    calls = [each for each in outcome.comparison.results if each.metrics is not None]
    known = st.session_state.setdefault(COSTS, {}).setdefault(outcome.settings, {})
    for call in calls:
        name = format_contestant(outcome.comparison.contestants[call.contestant])
        known[name] = call.metrics.wall_s / call.metrics.new_tokens


def draw_status(plan: ComparisonPlan, contestants: "Sequence[Contestant] | None", shown: str) -> None:
    """About how long it takes to measure, from measured times per token, and what is on screen."""
    if contestants is None:
        st.caption(escape_markdown(shown))
        return
    from decoding.compare.contestants import format_contestant

    settings = manager().settings
    known, source, here = st.session_state.get(COSTS, {}).get(settings, {}), "measured here before", True
    if not known and settings == PairSettings():
        known = {run.method: run.totals.wall_s / run.totals.new_tokens for run in race_runs()}
        source, here = "of the race that comes with Draftscope, recorded on another machine", False
    takes, source = "Time not known yet", f"At times per token {source}." if known else "This pair has not decoded yet."
    if known:
        mean = fmean(known.values())
        names = [(format_contestant(each), each.method.name if each.method else "") for each in contestants]
        token_s = sum(known.get(name, known.get(method, mean)) for name, method in names)
        rounds = plan.repeats * len(plan.prompts) + plan.warmup
        about = elapsed(max(1.0, rounds * plan.max_new_tokens * token_s))
        takes = f"Takes about {about}" if here else f"About {about} at recorded speeds"
        takes = ", ".join(filter(None, (takes, other_words())))
    st.caption(escape_markdown(" · ".join(filter(None, (takes, shown)))), help=source)


def so_far_words(outcome: ComparisonResult) -> str:
    """How many repeats are in, and the tokens per second of each method until now."""
    from decoding.compare.comparison import score

    scores = score((outcome.parts or (outcome,))[0].comparison, loop_free=False)
    speeds = [(each.contestant.label, each.spread_of("throughput")) for each in scores if each.measured]
    figures = ", ".join(f"{label} {speed.median:.1f}" for label, speed in speeds)
    return f"{outcome.repeats} of {plural(outcome.plan.repeats, 'repeat')} in. Tokens/s so far: {figures}."


def recorded_result(
    comparison: "Comparison", repeats: int, warmup: int, trees: Mapping[int, RunTrace] = MappingProxyType({})
) -> ComparisonResult:
    """A comparison that came with the program, of runs on one prompt.

    Args:
        trees: calls that were recorded in full, by contestant.
    """
    runs = [result.run for result in comparison.results if result.run is not None]
    first = runs[0]
    return ComparisonResult(
        comparison=comparison,
        plan=ComparisonPlan(prompt_of(first), first.max_new_tokens, repeats, warmup, comparison.sampling),
        prompt_ids=first.prompt_ids,
        prompt_texts=first.prompt_texts,
        texts={
            token: text
            for run in runs
            for each in run.iterations
            for token, text in zip(each.committed_ids, each.committed_texts, strict=True)
        },
        cancelled=False,
        pair=first.pair,
        settings=PairSettings(),
        generation=manager().generation,
        hardware=dict(first.hardware),
        ended={number: ended_by_step(run) for number, run in trees.items()},
        recorded=True,
    )


def hardware_words(hardware: Mapping[str, str]) -> str:
    """The hardware of a run in one line."""
    device = hardware.get("gpu") or hardware.get("processor", "unknown processor")
    threads = hardware.get("threads", "?")
    return f"{device}, {threads} {'thread' if threads == '1' else 'threads'}, torch {hardware.get('torch', '?')}"


def pause_words(outcome: ComparisonResult) -> str:
    """How often the comparison was interrupted."""
    return f"paused {plural(outcome.pauses, 'time')} for other sessions, not counted in times"


def plan_controls(
    name: str, shown: str, sampled: str, bind_prompt: bool = True, several: bool = False
) -> ComparisonPlan:
    """The plan in the widgets.

    Args:
        name: prefix of the keys of widgets that other pages do not share.
        shown: how repeats are used. sampled: how sampling affects the outputs. Both are whole sentences.
        bind_prompt: whether the address keeps the prompt.
        several: whether further prompts can be chosen.
    """
    samples, more_key = sample_prompts(), f"{name}_more"
    prompt = picked_prompt()
    if bind_prompt:
        keep_in_address(prompt)
    more = [each for each in (st.session_state.get(more_key) or [] if several else []) if each != prompt.name]
    words = prompt_title(prompt) + (f" + {len(more)}" if more else "")
    place = settings_popover(escape_markdown(words), f"{name}_prompt_open", ":material/edit_note:")
    if place.open:
        with place:
            prompt_picker()
            if several:
                st.multiselect(
                    "More prompts", [each for each in samples if each != prompt.name], key=more_key,
                    format_func=prompt_words, max_selections=MOST_PROMPTS - 1, persist_state="session",
                    placeholder="None", help="Every method runs on each of them in every repeat. Results are shown by "
                    "prompt and over all.",
                )  # fmt: skip
    repeats_key, warmup_key = f"{name}_repeats", f"{name}_warmup"
    seed(repeats_key, COMPARED_REPEATS)
    seed(warmup_key, COMPARED_WARMUP)
    words = f"{picked_length()} tokens × {plural(st.session_state[repeats_key], 'repeat')}"
    place = settings_popover(words, f"{name}_plan_open", ":material/repeat:")
    if place.open:
        with place:
            length_control()
            say_again(repeats_key)
            st.number_input(
                "Measured repeats", 1, MOST_REPEATS, key=repeats_key, persist_state="session",
                help="Every method runs once per repeat, one after the other, so that drift of the machine affects all "
                f"equally. {shown}",
            )  # fmt: skip
            say_again(warmup_key)
            st.number_input(
                "Warm-up rounds", 0, MOST_WARMUP, key=warmup_key, persist_state="session",
                help="Rounds before the measured ones; their times are discarded.",
            )  # fmt: skip
    sampling = picked_sampling()
    place = settings_popover(sampling_words(sampling), f"{name}_sampling_open", ":material/casino:")
    if place.open:
        with place, st.container(width=520):
            sampling_controls()
            st.caption(f"Applies to all methods. {sampled}")
            proof_link()
    others = tuple(PromptChoice(each, samples[each].text, prompt.chat) for each in more)
    repeats, warmup = st.session_state[repeats_key], st.session_state[warmup_key]
    return ComparisonPlan(prompt, picked_length(), int(repeats), int(warmup), sampling, others)

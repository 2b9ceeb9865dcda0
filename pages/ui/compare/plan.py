"""The plan of a comparison and its widgets, the worker's job, and the result that the page stores."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING
from uuid import uuid4

import streamlit as st

from decoding.models.presets import PairSettings
from decoding.recorded import COMPARED_REPEATS, COMPARED_WARMUP
from decoding.trace.records import IterationTrace, PairInfo, RunTrace
from pages.ui.common.errors import escape_markdown
from pages.ui.common.models import manager
from pages.ui.common.state import PromptChoice, encode_prompt
from pages.ui.common.worker import ModelTask
from pages.ui.widgets.controls import (
    DEFAULT_NEW_TOKENS,
    OWN_TEXT,
    length_control,
    picked_prompt_words,
    picked_sampling,
    prompt_picker,
    prompt_words,
    sample_prompts,
    sampling_controls,
    sampling_words,
    seed,
)
from viz.formats import plural

if TYPE_CHECKING:
    from decoding.compare.comparison import Comparison, Contestant
    from decoding.sampling.sampling import Sampling

MOST_REPEATS, MOST_WARMUP = 20, 5
DEFAULT_REPEATS, DEFAULT_WARMUP = COMPARED_REPEATS, COMPARED_WARMUP


@dataclass(frozen=True)
class ComparisonPlan:
    """The parameters of a comparison except its contestants."""

    prompt: PromptChoice
    max_new_tokens: int
    repeats: int
    warmup: int
    sampling: "Sampling"


@dataclass(eq=False)
class ComparisonResult:
    """A finished comparison, with everything needed to show and repeat it.

    Attributes:
        prompt_ids, prompt_texts: the prompt as given to the models.
        texts: text of every output token.
        cancelled: stopped early; it has the measurements until then.
        pauses: how often work of other sessions interrupted it between iterations, not counted in times.
        settings, generation: the pair it ran with, and which load of a pair that was.
        recorded: it was measured before and came with the program.
        trees: iterations on one prefix by length of the prefix, computed when viewed.
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
    recorded: bool = False
    trees: dict[int, list[IterationTrace]] = field(default_factory=dict)
    key: str = field(default_factory=lambda: uuid4().hex[:8])


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
    ids = encode_prompt(pair, plan.prompt)

    def progress(done: int, total: int, doing: str) -> None:
        job.report(done, total, f"call {done + 1} of {total} · {doing}")

    comparison = compare(
        pair, contestants, [(prompt_words(plan.prompt.name), ids)], plan.max_new_tokens, plan.repeats, plan.warmup,
        plan.sampling, progress=progress, cancelled=lambda: job.cancelled,
    )  # fmt: skip
    text = pair.vocabulary.text
    used = {token for result in comparison.results for token in result.output_ids}
    return ComparisonResult(
        comparison=comparison,
        plan=plan,
        prompt_ids=tuple(ids),
        prompt_texts=tuple(text(token) for token in ids),
        texts={token: text(token) for token in used},
        cancelled=job.cancelled,
        pauses=job.pauses,
        pair=pair.info,
        settings=models.settings,
        generation=models.generation,
        hardware=dict(describe_hardware(pair.target.device)),
    )


def recorded_result(comparison: "Comparison", repeats: int, warmup: int) -> ComparisonResult:
    """A comparison that came with the program, of runs on one prompt."""
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
        recorded=True,
    )


def prompt_of(run: RunTrace) -> PromptChoice:
    """The prompt of a run: the sample with its text, or the text alone."""
    text = "".join(run.prompt_texts)
    name = next((name for name, sample in sample_prompts().items() if sample.text == text), OWN_TEXT)
    return PromptChoice(name, text)


def pause_words(outcome: ComparisonResult) -> str:
    """How often the comparison was interrupted."""
    return f"paused {plural(outcome.pauses, 'time')} for other sessions, not counted in times"


def plan_controls(name: str, shown: str, sampled: str, bind_prompt: bool = True) -> ComparisonPlan:
    """The plan in the widgets.

    Args:
        name: prefix of the keys of widgets that other pages do not share.
        shown: how repeats are used. sampled: how sampling affects the outputs. Both are whole sentences.
        bind_prompt: whether the address keeps the prompt.
    """
    with st.popover(escape_markdown(picked_prompt_words()), key=f"{name}_prompt_open", icon=":material/edit_note:"):
        prompt = prompt_picker("prompt", bind=bind_prompt)
    repeats_key, warmup_key = f"{name}_repeats", f"{name}_warmup"
    seed(repeats_key, DEFAULT_REPEATS)
    seed(warmup_key, DEFAULT_WARMUP)
    tokens = st.session_state.get("max_new_tokens", DEFAULT_NEW_TOKENS)
    words = f"{tokens} tokens × {plural(st.session_state[repeats_key], 'repeat')}"
    with st.popover(words, key=f"{name}_plan_open", icon=":material/repeat:"):
        tokens = length_control()
        repeats = st.number_input(
            "Measured repeats", 1, MOST_REPEATS, key=repeats_key, persist_state="session",
            help="Every method runs once per repeat, one after the other, so that drift of the machine affects all "
            f"equally. {shown}",
        )  # fmt: skip
        warmup = st.number_input(
            "Warm-up rounds", 0, MOST_WARMUP, key=warmup_key, persist_state="session",
            help="Rounds before the measured ones; their times are discarded.",
        )  # fmt: skip
    with (
        st.popover(sampling_words(picked_sampling()), key=f"{name}_sampling_open", icon=":material/casino:"),
        st.container(width=520),
    ):
        sampling = sampling_controls()
        st.caption(f"Applies to all methods. {sampled}")
    return ComparisonPlan(prompt, tokens, int(repeats), int(warmup), sampling)

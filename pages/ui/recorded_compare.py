"""A recording and its rivals as a comparison on the page Compare: the same contestants and prompt stand ready there."""

from dataclasses import asdict, fields
from typing import TYPE_CHECKING, Any

import streamlit as st

from decoding.presets import PairSettings
from decoding.recorded import PLAIN, recorded_run, rivals
from decoding.trace import RunTrace, SamplingTrace
from pages.ui.controls import OWN_TEXT, sample_prompts, set_method
from pages.ui.models import manager
from pages.ui.state import PromptChoice

if TYPE_CHECKING:
    from decoding.method import Method
    from pages.ui.compare import Outcome

SAMPLING_KEYS = tuple(f"sampling_{field.name}" for field in fields(SamplingTrace))
PLAN_KEYS = ("prompt", "prompt_text", "max_new_tokens", "compare_repeats", "compare_warmup")
PLACED = ("comparison", "compare_slots", "compare_view", *PLAN_KEYS, *SAMPLING_KEYS)


def place_comparison(name: str) -> dict[str, Any]:
    """Show the recorded calls on Compare, everything set as it was for them; returns what was put in the session."""
    from pages.ui.contestants import COMPARE, add_slot

    outcome = recorded_outcome(name)
    state = st.session_state
    state["comparison"], state["compare_slots"], state["compare_view"] = outcome, [], "Overview"
    for contestant in outcome.comparison.contestants:
        set_method(add_slot(COMPARE, contestant.method.name), contestant.method)
    plan = outcome.plan
    state["prompt"], state["prompt_text"] = plan.prompt.name, plan.prompt.text
    state["max_new_tokens"], state["compare_repeats"] = plan.max_new_tokens, plan.repeats
    state["compare_warmup"] = plan.warmup
    for name, value in asdict(plan.sampling.trace()).items():
        state[f"sampling_{name}"] = value
    return {key: state[key] for key in PLACED}


def recorded_outcome(name: str) -> "Outcome":
    """Plain decoding, the chain and the tree of a recording as they were measured: one call each, taken in turn."""
    from decoding.comparison import Comparison, Contestant
    from decoding.sampling import Sampling
    from pages.ui.compare import Outcome, Plan

    others = rivals(name)
    runs = (others.pop(PLAIN), *others.values(), recorded_run(name))
    contestants = tuple(Contestant(run.label, method=method_of(run)) for run in runs)
    prompt, first = prompt_of(runs[0]), runs[0]
    sampling = Sampling()
    results = tuple(_result(place, run) for place, run in enumerate(runs))
    return Outcome(
        comparison=Comparison(contestants, (prompt.name,), results, (), 0, sampling),
        plan=Plan(prompt, first.max_new_tokens, repeats=1, warmup=0, sampling=sampling),
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
    )


def _result(place: int, run: RunTrace):
    from decoding.comparison import Result
    from decoding.loops import tokens_before_loop
    from decoding.metrics import measure_run

    loop_free = tokens_before_loop(run.output_ids)
    return Result(place, 0, 0, run.output_ids, loop_free, measure_run(run), measure_run(run, loop_free), run)


def method_of(run: RunTrace) -> "Method":
    """The method of a run with the settings that it began with, under the label it was recorded with."""
    from dataclasses import replace

    from decoding.methods import METHODS

    return replace(METHODS[run.method].with_settings(**run.settings), label=run.label)


def prompt_of(run: RunTrace) -> PromptChoice:
    """The prompt of a run: the sample with its text, or the text alone."""
    text = "".join(run.prompt_texts)
    name = next((name for name, sample in sample_prompts().items() if sample.text == text), OWN_TEXT)
    return PromptChoice(name, text)

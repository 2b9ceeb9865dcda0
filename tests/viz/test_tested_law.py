"""The target's distribution beside a test is the one that the test was made with, and its quotient is the test's
probability.
"""

from dataclasses import replace

import numpy as np
import pytest

from decoding.recorded import recorded_run
from decoding.trace.records import IterationTrace, SamplingTrace
from tests.helpers import traces
from viz.explain.iteration import why_verdict
from viz.explain.known import Rejections, distribution_title, limit_words, target_shown
from viz.scope.cards import cards, distributions
from viz.scope.data import run_words
from viz.scope.outline import tree_outline
from viz.scope.scene import build_scene


def at_temperature(iteration: IterationTrace, tested: dict[int, float]) -> IterationTrace:
    """The iteration with the distribution that it was tested with, half of the target's at temperature 1 elsewhere."""
    nodes = tuple(
        node if node.target_probability is None
        else replace(node, tested_probability=tested.get(node.node_id, node.target_probability / 2))
        for node in iteration.nodes
    )  # fmt: skip
    tops = np.array(iteration.target_top_probs) / 2
    return replace(iteration, nodes=nodes, tested_top_probs=tops, sampling=SamplingTrace(0.8, 0.9))


def test_tree_card_and_outline_show_the_law_of_the_tests():
    trace = at_temperature(traces.sampled_recovered(), {})
    scene = build_scene(trace, scene_id="s")
    node = trace.nodes[8]
    half = f"{node.target_probability / 2:.2f}"
    assert next(each.both for each in scene.nodes if each.node_id == 8).endswith(f"→ {half}")
    probs = distributions(trace, scene)[str(node.parent_id)]
    assert probs["target_head"] == "target · T 0.8 · p 0.9" and "temperature 0.8, top-p 0.9" in probs["target_help"]
    row = next(row for row in probs["rows"] if row["token_id"] == node.token_id)
    assert row["target"] == pytest.approx(node.target_probability / 2, abs=1e-5)
    assert f"target {half} (temperature 0.8, top-p 0.9)" in next(
        line.words for line in tree_outline(trace) if line.node_id == 8
    )
    assert f"{half} and its most likely token" in cards(trace, scene)["8"]["why"]


def test_a_record_without_that_law_says_which_one_it_shows():
    trace = traces.sampled_recovered()
    head, reported = distribution_title(trace)
    assert head == "target · T 1" and "own temperature" in reported
    assert target_shown(trace.nodes[8]) == trace.nodes[8].target_probability
    assert "at temperature 1" in why_verdict(trace, 8)
    assert distribution_title(traces.dynatree_recovered())[0] == "target"


def test_the_probability_of_a_test_is_reported_as_its_quotient():
    trace = traces.sampled_recovered()
    step = next(step for step in trace.steps if step.child_id == 8)
    draft = trace.nodes[8].draft_probability
    fits = at_temperature(trace, {8: draft * step.acceptance_probability})
    assert f" = target {draft * step.acceptance_probability:.3f} / draft {draft:.3f}; it was" in why_verdict(fits, 8)
    # Another distribution than the one that was tested with is not put forward as the reason.
    assert limit_words(at_temperature(trace, {8: draft * 0.9}), step, Rejections()) == ""


def test_every_test_of_the_recorded_sampled_run_follows_from_what_stands_beside_it():
    tests = [
        why_verdict(iteration, step.child_id)
        for iteration in recorded_run("sampled").iterations
        for step in iteration.steps
        if step.kind == "test"
    ]
    reasons = (" = target ", " = residual ", "with certainty, because ", "the residual gives it 0")
    reported = [any(reason in words for reason in reasons) for words in tests]
    assert sum(reported) >= 0.95 * len(tests)


def test_a_test_that_cannot_pass_says_why():
    said = [
        why_verdict(iteration, step.child_id)
        for iteration in recorded_run("sampled").iterations
        for step in iteration.steps
        if step.kind == "test" and step.acceptance_probability == 0
    ]
    assert said and all("the residual gives it 0" in each for each in said)
    assert any("no less than the target's" in each for each in said)


def test_the_strip_names_prompt_and_sampling_of_the_run_shown():
    run = recorded_run("sampled")
    short, full = run_words(run)
    assert (
        short.startswith(f"T 0.8, draft T 0.6, seed {run.sampling.seed}, verifier SpecInfer, no replacement · ‘")
        and run.prompt_texts[0].strip() in short
    )
    assert run.label in full and "temperature 0.8" in full
    greedy = replace(run, sampling=SamplingTrace())
    assert run_words(greedy)[0].startswith("greedy decoding, verifier SpecInfer, no replacement · ‘")
    greedy = replace(greedy, settings={**run.settings, "verifier": "greedy"})
    assert run_words(greedy)[0].startswith("greedy decoding · ‘")

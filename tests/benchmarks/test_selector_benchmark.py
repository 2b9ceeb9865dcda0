"""The selector's benchmark: what it counts at roots, and how it judges the paper's words."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from benchmarks.selector import prompt_words, samplings_of, stored, totals_of
from benchmarks.selector_tables import (
    WAYS,
    exact_figures,
    level_table,
    measured_figures,
    possible_table,
    ratio_table,
    selector_goal,
)
from benchmarks.talf import Claims
from decoding.common.errors import SettingsError
from decoding.models.pair import embedded_pair
from decoding.sampling.sampling import Sampling
from decoding.selector.actions import ACTIONS, DISTINCT, Action
from decoding.selector.store import find_selector, save_selector
from decoding.training.selector_roots import Roots
from decoding.training.text import sample_texts
from tests.helpers.selectors import LATENCY, content, random_network
from tests.selector.test_store import PAIR

SAMPLINGS = (Sampling(1.0), Sampling(0.5))


def text_of(number: int, better: Action | None = None) -> Roots:
    """Two roots behind a prompt, the second in a loop; an action is worth 1 + tokens / 10 + the number, one 9 more."""
    worth = np.array([1 + number + action.nodes / 10 + 9 * (action == better) for action in DISTINCT], np.float32)
    draws = np.random.default_rng(number)
    return Roots(
        text=np.full(2, number),
        length=np.array([256, 272]),
        in_loop=np.array([False, True]),
        sampling=np.zeros(2, np.int64),
        target=draws.normal(size=(2, 6)).astype(np.float32),
        draft_previous=draws.normal(size=(2, 4)).astype(np.float32),
        draft_root=draws.normal(size=(2, 4)).astype(np.float32),
        divergences=np.zeros((2, 6), np.float32),
        expected={name: worth[None].repeat(2, 0) for name in ("specinfer", "traversal")},
    )


@pytest.fixture
def cards(tmp_path, monkeypatch):
    """A selector for each of two verifiers that chooses (2, 0, 2) everywhere."""
    monkeypatch.setenv("DRAFTSCOPE_TRAINING", str(tmp_path))
    monkeypatch.setattr("decoding.selector.store.SHIPPED", tmp_path / "trained")
    found = {}
    for name in ("specinfer", "traversal"):
        network = random_network(6, 4)
        last = network.layers[-1]
        torch.nn.init.zeros_(last.weight)
        last.bias.data = torch.eye(len(DISTINCT))[DISTINCT.index(Action(2, 0, 2))]
        save_selector(tmp_path / name / "selector", network, content(PAIR, name))
        found[name] = find_selector(name)
    return found


@pytest.fixture
def totals(cards):
    found = [[(text_of(number), text_of(number, Action(1, 0, 1))) for number in range(4)] for _ in SAMPLINGS]
    return totals_of(found, cards, SAMPLINGS, dict.fromkeys(cards, LATENCY), "rows")


def test_each_way_counts_its_own_action_outside_of_loops(totals):
    assert totals.roots.tolist() == [[1] * 4] * 2
    every = np.arange(4)
    assert totals.block_efficiency(("specinfer", "selector"), every) == pytest.approx(1 + 1.5 + 0.4)
    # The statics of the nearest sampling: (2, 1, 3) at 1, and (1, 4, 0) at 0, which 0.5 is as near to.
    statics = {"static": (0.7, 0.4), "root": (0.8, 0.4), "static_most": (3.6, 0.4), "root_most": (3.2, 0.4)}
    for how, (warm, cool) in statics.items():
        expected = np.mean([2.5 + warm, 2.5 + (warm if totals.tokens["specinfer", how][1, 0] > 1.4 else cool)])
        assert totals.block_efficiency(("specinfer", how), every) == pytest.approx(expected), how
    seconds = LATENCY.action_s(np.array([256]), "rows", True)[0, ACTIONS.index(Action(2, 0, 2))]
    assert totals.rate(("traversal", "selector"), np.array([1])) == pytest.approx(2.4 / seconds, rel=1e-5)
    free = totals.rate(("traversal", "choice"), np.array([1]))
    assert free > 2.4 / seconds and totals.block_efficiency(("traversal", "choice"), every) == pytest.approx(2.9)


def test_the_best_of_each_root_is_found_by_other_trees_than_it_is_judged_by(totals):
    """Over the trees that judge (1, 0, 1) is worth ten tokens; over those that find it is one chain of many."""
    every = np.arange(4)
    assert totals.block_efficiency(("specinfer", "same_trees"), every) == pytest.approx(2.5 + 0.1 + 9)
    seconds = LATENCY.action_s(np.array([256]))[0]
    found = [
        max(DISTINCT, key=lambda a: (1 + number + a.nodes / 10) / seconds[ACTIONS.index(a)]) for number in range(4)
    ]
    assert Action(1, 0, 1) not in found
    tokens = np.mean([1 + number + action.nodes / 10 for number, action in enumerate(found)])
    assert totals.block_efficiency(("specinfer", "oracle"), every) == pytest.approx(tokens)
    assert totals.rate(("specinfer", "oracle"), every) < totals.rate(("specinfer", "same_trees"), every)


@pytest.mark.slow
def test_tables_judge_what_the_paper_says(totals, capsys):
    speeds = {(name, how): np.full((2, 4), 100.0 if how == "static" else 120.0)
              for name in ("specinfer", "traversal") for how in ("selector", "static")}  # fmt: skip
    figures, claims = [*exact_figures(totals), measured_figures(speeds)], Claims()
    over = ratio_table(figures, "static", claims)
    assert over["specinfer: measured tokens per second"]["value"] == pytest.approx(0.2)
    levels = level_table(figures, claims)
    assert set(levels) == {f"{name}, {how}" for name in ("specinfer", "traversal") for how in WAYS}
    by_words = {claim.words: claim for claim in claims.made}
    held = by_words["SpecInfer: selector over best static, measured tokens per second"]
    assert held.verdict == "holds" and held.paper == pytest.approx(0.23)
    lost = by_words["SpecInfer: selector over best static, most tokens, tokens per pass, exact over the verifier"]
    assert lost.verdict == "does not hold" and lost.found.value < 0
    assert any(
        words.startswith("Traversal, best (K, L) from the root, most tokens over SpecInfer") for words in by_words
    )
    assert "Tables 6 and 7" in capsys.readouterr().out
    possible = possible_table(figures)["specinfer"]
    assert possible["measured"]["value"] == pytest.approx(0.2) and possible["same_trees"]["value"] > 0
    assert "best at each root, by other trees" in capsys.readouterr().out


def test_a_selector_is_ahead_where_the_whole_interval_says_so():
    def gains(low: float, high: float) -> dict:
        return {
            "measured": {"value": (low + high) / 2, "low": low, "high": high},
            "oracle": {"value": low},
            "same_trees": {"value": high},
        }

    ahead, open_, behind = gains(0.01, 0.03), gains(-0.01, 0.05), gains(-0.2, -0.1)
    held = selector_goal({"nss": ahead, "spectr": ahead, "khisti": behind})
    assert held == "goal reached: selectors are ahead of the best fixed shape, measured, with 2 of 3 verifiers, goal 2"
    missed = selector_goal({"nss": ahead, "spectr": open_, "khisti": behind})
    assert missed.startswith("goal MISSED") and "1 of 3 verifiers, goal 2; by means with 2, behind for sure" in missed
    assert "-20.0 to +1.0% where it is found by other" in missed and "-10.0 to +5.0% where it is found by the" in missed


def test_prompts_are_held_out_only_where_that_is_known(cards):
    specinfer, traversal = cards.values()
    assert prompt_words(cards, None) == "held-out prompts"
    unsaid = {**cards, "traversal": replace(traversal, data={})}
    assert prompt_words(unsaid, None) == prompt_words(unsaid, Path("mine")) == "prompts that may have been trained on"
    seen = {**cards, "specinfer": replace(specinfer, data={"text": sample_texts().identity})}
    with pytest.raises(SettingsError, match="specinfer learnt from the sample prompts: give others with --prompts DIR"):
        prompt_words(seen, None)
    assert prompt_words(seen, Path("mine")) == "held-out prompts"


def test_greedy_decoding_is_left_out(cards):
    assert [each.temperature for each in samplings_of(cards, quick=False)] == [1.0]


def test_without_a_selector_it_says_how_to_train_one(cards, tmp_path):
    with pytest.raises(SettingsError, match="No selector is stored for Embedded pair: train them with python -m"):
        stored(embedded_pair(), None, quick=True)

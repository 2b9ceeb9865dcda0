"""Why this shape: there only where a selector was asked, and what it says."""

from dataclasses import replace
from types import SimpleNamespace

import pytest

from decoding.common.errors import SettingsError
from decoding.sampling.sampling import Sampling
from decoding.selector.actions import ACTIONS, SHAPE
from decoding.training.selector_roots import tokens_of_actions
from pages.ui.common.state import Run
from pages.ui.explain.action import choice_html, find
from tests.helpers import traces
from tests.pages.apptest import open_page
from tests.pages.test_why import PAGE, show, texts
from tests.viz.test_selector_charts import choice
from viz.charts.selector import action_map

PART = "Why this shape"


def chosen_run():
    """A run of two iterations in the first of which a selector was asked."""
    first, second = traces.sampled_recovered(), replace(traces.sampled_recovered(), index=1)
    return traces.run_of([replace(first, selector=choice()), second])


@pytest.mark.slow
def test_the_part_is_there_only_where_a_selector_was_asked():
    at = show(open_page(PAGE), traces.run_of([traces.sampled_recovered()]), part=PART)
    assert not at.exception and at.session_state["why_shown"] == "Why"
    at = show(show(open_page(PAGE), chosen_run()), chosen_run(), part=PART)  # the part has to be there to be picked
    assert not at.exception and at.session_state["why_shown"] == PART
    said = texts(at)
    assert "Chosen: K 2, L₁ 1, L₂ 3" in said and "Best static: a chain of 2" in said
    assert "it takes the shape with most per second" in said
    at = show(at, chosen_run(), part=PART, iteration=1)
    assert "No selector was asked in this iteration" in texts(at)


def test_what_was_found_by_trees_takes_the_place_of_what_was_expected():
    found = [1.0] * len(ACTIONS)
    found[200] = 30.0
    said = choice_html(choice(), action_map(choice(), found))
    assert "Best at this root" in said and ">30.000<" in said and "exact over the verifier" in said
    assert "29.4% below the best static shape and 96.1% below the best shape at this root" in said
    assert "as measured" not in said
    assert "this iteration took 12.50 ms as measured" in choice_html(choice(), action_map(choice(), found), 0.0125)
    assert "takes the most probable shape" in choice_html(choice("policy"), action_map(choice("policy")))


def test_another_pair_is_one_sentence(monkeypatch):
    other = SimpleNamespace(info=SimpleNamespace(name="Other pair"))
    monkeypatch.setattr("pages.ui.common.state.loaded_pair", lambda job: other)
    with pytest.raises(SettingsError, match=r"decoded by .*, but the pair in memory is Other pair: load that pair"):
        find(Run(chosen_run(), "opened"), 0, type("Job", (), {"report": lambda *_: None}))


def test_tokens_of_actions_are_those_of_their_trees(pair):
    tokens = pair.vocabulary.encode("Once upon a time there was a")
    found = tokens_of_actions(pair, tokens, Sampling(0.8, seed=3), "specinfer", 2)
    again = tokens_of_actions(pair, tokens, Sampling(0.8, seed=3), "specinfer", 2)
    assert found.shape == (len(ACTIONS),) and (found == again).all()
    grid = found.reshape(SHAPE)
    assert (grid[:, 0, 0] == 1).all() and grid.max() <= 17 and (grid[1:, 3, 0] == grid[0, 0, 3]).all()

"""The part below the scope: it follows the scope, answers on a button, and says what to do where it cannot."""

from dataclasses import replace

import pytest

from decoding.recorded import home_run, telling_iteration
from pages.ui.state import Run
from pages.ui.why_change import asks_for_change, path_to
from pages.ui.why_state import absent_subject, final_subject
from tests import traces
from tests.pages.apptest import finish, open_page, sentences

PAGE = "pages/step_through.py"


def texts(at) -> str:
    """Everything that the page says."""
    words = [element.value for element in (*at.markdown, *at.caption)]
    return "\n".join([*words, *(element.proto.body for element in at.get("html"))]).replace("\\", "")


@pytest.fixture(scope="module")
def sampled():
    """A sampled run with its rows."""
    from decoding.methods import METHODS
    from decoding.pair import embedded_pair
    from decoding.sampling import Sampling
    from decoding.session import DecodeSession, Limits

    pair = embedded_pair()
    method = METHODS["iid_paths"].with_settings(paths=3, length=2, verifier="specinfer")
    session = DecodeSession(
        pair, method, pair.vocabulary.encode("One day a dog"), Sampling(1.0, seed=2), Limits(10, rows="full")
    )
    list(session)
    return session.trace()


def show(at, run, part="Why", iteration=0, **state):
    """The page with a run on screen, at one of the parts."""
    at.session_state["run"] = Run(run, "opened")
    at.session_state["iteration"], at.session_state["node"] = iteration, None
    at.session_state["why_shown"] = part
    for name, value in state.items():
        at.session_state[name] = value
    return at.run()


def test_it_explains_what_the_scope_has_selected():
    at = open_page(PAGE)
    run = traces.run_of([traces.sampled_recovered()])
    said = texts(show(at, run))
    assert "Accepted if the draw is below 0.27; it was 0.54: rejected." in said and "after ‘Yes’ was rejected" in said
    assert "Drafted" not in said and not sentences(at)
    at.session_state["node"] = 10
    assert "node 10 · depth 4 · not reached" in texts(at.run())
    at.session_state["node"] = -2
    assert "5th choice here at 0.050" in texts(at.run())


def test_it_explains_a_token_that_was_asked_about():
    at, run = open_page(PAGE), traces.run_of([traces.dynatree_recovered()])
    show(at, run)
    key = at.session_state["run"].key
    at.session_state["absent"] = (key, 0, 3, traces._token_id("No"))
    said = texts(at.run())
    assert "after node 3 · not in the draft tree" in said and "5th choice" in said
    assert any(button.key == "why_change" for button in at.button)


def test_token_text_is_escaped():
    at = open_page(PAGE)
    said = texts(show(at, traces.run_of([traces.fallback()]), node=1))
    assert "&lt;b&gt;x&lt;/b&gt;" in said and "<b>x</b>" not in said


def test_only_tokens_outside_the_verified_tree_ask_for_a_change():
    iteration = traces.dynatree_recovered()
    absent = absent_subject(iteration, 0, 3, traces._token_id("No"))
    assert absent.node is None and asks_for_change(iteration, absent)
    assert path_to(iteration, absent) == tuple(traces._token_id(text) for text in (",", ' "', "No"))
    drafted = absent_subject(iteration, 0, 3, traces._token_id("Yes"))
    assert drafted.node == 8 and not asks_for_change(iteration, drafted)
    assert asks_for_change(iteration, final_subject(iteration, 0))
    removed = traces.pruned()
    assert asks_for_change(removed, absent_subject(removed, 0, 0, removed.nodes[2].token_id))
    assert not asks_for_change(traces.autoregressive(), final_subject(traces.autoregressive(), 0))


def test_the_smallest_change_is_looked_for_and_can_be_tried():
    """The recorded run has no rows: its pair is loaded and its draft asked."""
    at, run = open_page(PAGE), home_run()
    index = telling_iteration(run)
    iteration = run.iterations[index]
    removed = max((node for node in iteration.nodes if node.pruned), key=lambda node: node.path_probability)
    show(at, run, iteration=index, node=removed.node_id)
    at.button(key="why_change").click().run()
    finish(at, "why_change")
    assert not sentences(at)
    said = texts(at)
    assert "Smallest changes that keep it" in said and "Pruning (τ)" in said and "the draft was run again" in said
    at.button(key="why_try_0").click().run()
    assert at.session_state["tune_source"] == "Run in Step through"
    assert at.session_state["tune_position"] == iteration.prefix_length - len(run.prompt_ids)
    pinned = at.session_state["tune_pinned"].drafter.settings()
    assert {name: pinned[name] for name in iteration.settings} == dict(iteration.settings)


def test_greedy_decoding_says_that_nothing_is_left_to_luck():
    at = open_page(PAGE)
    assert "Greedy decoding leaves nothing to luck" in texts(show(at, home_run(), "Lucky or not"))


def test_luck_is_exact_and_can_be_rerolled(sampled):
    at = open_page(PAGE)
    said = texts(show(at, sampled, "Lucky or not"))
    assert "expected (exact)" in said and "standard deviations" in said
    at.button(key="why_reroll").click().run()
    assert "seeds 0 to 999" in texts(finish(at, "why_luck"))
    assert not sentences(at)
    assert "decode the run here" in texts(show(open_page(PAGE), sampled.without_rows(), "Lucky or not"))


def test_what_was_possible_along_the_text():
    at = open_page(PAGE)
    said = texts(show(at, home_run(), "What was possible", iteration=telling_iteration(home_run())))
    assert "in the draft's own order reaches" in said and "Ceiling, a chain of the text itself" in said
    run = traces.run_of([traces.autoregressive()])
    assert "no other tree of its size" in texts(show(at, run, "What was possible"))


def test_budgets_need_costs_of_the_runs_own_pair(sampled):
    from pages.ui.models import manager

    at = open_page(PAGE)
    show(at, sampled, "What was possible")
    if manager().costs is None:
        at.button(key="why_measure").click().run()
    at.button(key="why_budget").click().run()
    finish(at, "why_possible")
    at.button(key="why_run_budget").click().run()
    said = texts(finish(at, "why_possible"))
    assert "Modelled" in said and "Parts of the tree: the nodes drawn first" in said
    assert "Over the run:" in said and not sentences(at)
    other = replace(sampled, pair=replace(sampled.pair, name="another"))
    assert "load the run's pair" in texts(show(at, other, "What was possible"))

"""Learn: the tour sets the app and gives back what was there, recorded runs open, puzzles are checked by the trace."""

import html
import json
import re

import pytest

from benchmarks.enumeration import DRAFTERS_BY_SIZE
from decoding.analysis.slowdown import REASONS, slowdown
from decoding.common.errors import DraftscopeError
from decoding.common.formats import plural
from decoding.methods.methods import METHODS
from decoding.recorded import CHAIN, home_run, recorded_run, rivals
from decoding.verifiers import VERIFIERS
from pages.ui import PAGES
from pages.ui.common.state import Run
from pages.ui.learn.glossary import ENUMERATED, pairs_table
from tests.helpers.families import family
from tests.helpers.process import printed
from tests.helpers.traces import run_mixed
from tests.pages.apptest import open_page, sentences
from viz.glossary import PROOF, TERMS
from viz.learn.puzzles import has_token

LEARN = "pages/learn.py"


def follow(at):
    """Draw the page that the script has gone to; AppTest itself stays on the one it was on."""
    return at.switch_page(PAGES[at.session_state["page"]]).run(timeout=90)


def click(at, key: str):
    """Press a button that may lead to another page."""
    at.button(key=key).click().run(timeout=90)
    return follow(at)


def with_own_run(iteration: int = 2, node: int = 1):
    """Learn in a session whose own run is on screen."""
    at = open_page(LEARN)
    run = Run(run_mixed())
    for key, value in {"run": run, "iteration": iteration, "node": node, "prompt_text": "Mine"}.items():
        at.session_state[key] = value
    return at.run(), run


def view(at, name: str, puzzle: str | None = None):
    """Another view of Learn, or a puzzle."""
    at.session_state["learn_view"] = name
    if puzzle:
        at.session_state["puzzle"] = puzzle
    at.run(timeout=90)
    assert sentences(at) == []
    return at


DRAWN = """
import sys
from tests.pages.apptest import open_page
at = open_page('pages/learn.py')
for view in ('Tour', 'Recorded runs', 'Puzzles', 'Glossary'):
    at.session_state['learn_view'] = view
    at.run()
    assert not at.error, at.error
for puzzle in {puzzles}:
    at.session_state['learn_view'], at.session_state['puzzle'] = 'Puzzles', puzzle
    at.run()
    assert not at.error, at.error
print(*sorted(m for m in sys.modules if m in ('torch', 'transformers')))
"""


@pytest.mark.slow
def test_learn_draws_without_loading_torch():
    assert printed(DRAWN.format(puzzles=("Guess the accepted path", "Why did the tree lose?"))).strip() == ""


@pytest.mark.slow
def test_the_tour_from_the_first_stop_to_the_last_and_back_to_the_own_run():
    at, own = with_own_run()
    click(at, "tour_start")
    steps = at.session_state["tour"].steps
    assert 8 <= len(steps) <= 10
    for place, step in enumerate(steps):
        assert sentences(at) == []
        assert at.session_state["tour"].at == place
        assert at.session_state["page"] == step.page
        assert at.session_state["run"].trace is recorded_run(step.recording)
        asked = at.session_state["asked_view"]
        assert (asked.iteration, asked.node, asked.phase) == (step.iteration, step.node, step.phase)
        if step.page == "Step through":
            assert at.session_state["prompt_text"] == "".join(recorded_run(step.recording).prompt_texts)
            assert not [each.value for each in at.caption if re.search("Not run yet.*prompt", each.value)]
        if step.key == "compare":
            shown = at.session_state["comparison"].comparison.contestants
            assert shown[-1].label == recorded_run("tree_helps").label
            assert at.session_state["max_new_tokens"] == recorded_run("tree_helps").max_new_tokens
            assert not [said.value for said in [*at.warning, *at.caption] if "other settings" in said.value]
        click(at, "tour_next")
    assert "comparison" not in at.session_state
    assert at.session_state["page"] == "Learn"
    assert at.session_state["learn_view"] == "Puzzles"
    assert "tour" not in at.session_state
    assert at.session_state["run"] is own
    assert (at.session_state["iteration"], at.session_state["node"]) == (2, 1)
    assert at.session_state["prompt_text"] == "Mine"


def test_back_and_leaving_keep_the_place():
    at, _ = with_own_run()
    for key in ("tour_start", "tour_next", "tour_next", "tour_back"):
        click(at, key)
    assert at.session_state["tour"].at == 1
    at.switch_page("app.py").run()
    assert sentences(at) == []
    click(at, "tour_return")
    assert at.session_state["tour"].at == 1
    assert at.session_state["page"] == "Step through"


@pytest.mark.slow
def test_ending_gives_back_and_an_empty_session_stays_empty():
    at, own = with_own_run()
    click(at, "tour_start")
    click(at, "tour_end")
    assert at.session_state["run"] is own
    assert asked_of(at) == (2, 1, None)
    fresh = open_page(LEARN)
    click(fresh, "tour_start")
    click(fresh, "tour_end")
    assert fresh.session_state["run"].trace is home_run(), "Step through shows its own recorded run again"


@pytest.mark.slow
def test_the_last_stop_leads_to_a_prompt_of_ones_own():
    at = open_page(LEARN)
    click(at, "tour_start")
    at.session_state["tour"].at = len(at.session_state["tour"].steps) - 1
    at.switch_page("pages/compare.py").run()
    click(at, "tour_own")
    assert at.session_state["page"] == "Step through"
    assert "tour" not in at.session_state
    assert at.button(key="start") is not None


def asked_of(at) -> tuple:
    asked = at.session_state["asked_view"]
    return asked.iteration, asked.node, asked.phase


@pytest.mark.slow
def test_a_run_made_during_the_tour_is_the_one_that_stays():
    at, own = with_own_run()
    click(at, "tour_start")
    made = Run(run_mixed())
    at.session_state["run"], at.session_state["iteration"], at.session_state["node"] = made, 1, None
    click(at, "tour_next")
    assert at.session_state["run"] is not made
    click(at, "tour_end")
    assert at.session_state["run"] is made
    at.switch_page(LEARN)
    view(at, "Recorded runs").button(key="put_back").click().run()
    assert at.session_state["run"] is own, "the run from before the tour was set aside"


def test_without_torch_the_tour_ends_before_the_pages_that_compute(monkeypatch):
    import pages.ui.learn.tour as tour

    monkeypatch.setattr(tour, "torch_there", lambda: False)
    assert tour.all_steps()[-1].key == "adapt"


@pytest.mark.slow
def test_words_of_the_tour_are_those_of_the_runs():
    at = open_page(LEARN)
    click(at, "tour_start")
    steps = {step.key: step for step in at.session_state["tour"].steps}
    story = recorded_run("sibling_rescue").iterations[steps["draft"].iteration]
    assert f"{story.drafted} nodes" in steps["draft"].words
    assert f"{story.kv_target.slots_written} slots" in steps["rollback"].words
    assert f"{len(story.committed_ids)} token" in steps["accept"].words
    history = recorded_run("history").iterations[steps["adapt"].iteration].history
    assert f"{len(history.window)} iterations" in steps["adapt"].words


CARDS = ("tree_helps", "tree_loses", "sibling_rescue", "history", "sampled", "home")


@pytest.mark.parametrize("name", family(CARDS, "history", "sampled"))
def test_a_card_opens_its_run(name):
    at = view(open_page(LEARN), "Recorded runs")
    click(at, f"open_{name}")
    assert at.session_state["page"] == "Step through"
    assert at.session_state["run"].trace is recorded_run(name)
    assert sentences(at) == []


@pytest.mark.slow
def test_an_own_run_is_set_aside_for_a_card_and_comes_back():
    at, own = with_own_run()
    click(view(at, "Recorded runs"), "open_history")
    assert at.session_state["run"] is not own
    at.switch_page(LEARN)
    view(at, "Recorded runs").button(key="put_back").click().run()
    assert at.session_state["run"] is own
    assert at.session_state["iteration"] == 2


def test_a_right_and_a_wrong_guess():
    at = view(open_page(LEARN), "Puzzles")
    from pages.ui.learn.puzzles import drawn_case, guess_pool

    name, index = drawn_case(guess_pool(), 0)
    iteration = recorded_run(name).iterations[index]
    assert at.button(key="guess_check").disabled
    at.selectbox(key="guess_0").set_value(iteration.accepted[-1]).run()
    at.button(key="guess_check").click().run()
    assert "Right" in at.success[0].value
    at.button(key="guess_another").click().run()
    at.selectbox(key="guess_1").set_value(0).run()
    at.button(key="guess_check").click().run()
    assert "Not quite" in at.warning[0].value
    assert any("Solved 1 of 2" in caption.value for caption in at.caption)


def test_a_checked_guess_is_still_there_after_a_look_at_another_view():
    at = view(open_page(LEARN), "Puzzles")
    at.selectbox(key="guess_0").set_value(0).run()
    at.button(key="guess_check").click().run()
    judged = at.warning[0].value
    view(at, "Glossary")
    assert view(at, "Puzzles").warning[0].value == judged


def test_a_tree_that_could_not_be_drafted_is_not_judged(monkeypatch):
    def fail():
        raise DraftscopeError("No pair is here.")

    monkeypatch.setattr("pages.ui.learn.puzzles._embedded_pair", fail)
    at = view(open_page(LEARN), "Puzzles", "Save the token")
    at.slider(key="save_0_prune_probability").set_value(0.5).run(timeout=120)
    assert sentences(at) == ["No pair is here."] and not at.warning and not at.success


def test_the_cards_name_the_hardware_of_the_runs_that_they_compare():
    at = view(open_page(LEARN), "Recorded runs")
    hardware = recorded_run("tree_helps").hardware
    said = " ".join(caption.value for caption in at.caption).replace("\\", "")
    assert f"{hardware['processor']}, {plural(int(hardware['threads']), 'thread')}." in said


def test_a_token_is_saved_by_drafting_again():
    from pages.ui.learn.puzzles import drawn_case, saving_pool

    name, missing = drawn_case(saving_pool(), 0)
    at = view(open_page(LEARN), "Puzzles", "Save the token")
    for setting in missing.settings:
        slider = at.slider(key=f"save_0_{setting}")
        slider.set_value(missing.answer.get(setting, slider.value))
    at.run(timeout=120)
    assert sentences(at) == []
    assert "Saved" in at.success[0].value
    base = recorded_run(name).iterations[missing.iteration]
    assert has_token(at.session_state["save_iteration"], missing, base) is not None


def test_a_token_stays_out_where_the_settings_do_not_let_it_in():
    at = view(open_page(LEARN), "Puzzles", "Save the token")
    at.slider(key="save_0_prune_probability").set_value(0.5).run(timeout=120)
    assert not at.success
    assert "Not in the tree" in at.warning[0].value


@pytest.mark.slow
def test_every_saving_case_is_drafted_as_it_was_recorded_and_can_be_solved(pair):
    from pages.ui.learn.puzzles import draft_again, saving_pool

    for name, missing in saving_pool():
        run = recorded_run(name)
        base = run.iterations[missing.iteration]
        same = draft_again(pair, run, missing.iteration, {})
        assert [node.token_id for node in same.nodes] == [node.token_id for node in base.nodes]
        saved = draft_again(pair, run, missing.iteration, missing.answer)
        node = has_token(saved, missing, base)
        assert node is not None, f"{name} {missing} is not saved by {missing.answer}"
        assert saved.nodes[node].verdict == "accepted"


def test_the_reason_of_a_loss_is_the_largest_factor():
    from pages.ui.learn.puzzles import loss_pool

    pool = loss_pool()
    assert len(pool) >= 3
    at = view(open_page(LEARN), "Puzzles", "Why did the tree lose?")
    lost = slowdown(recorded_run(pool[0]), rivals(pool[0])[CHAIN])
    wrong = next(reason for reason in REASONS if reason != lost.reason)
    at.radio(key="loss_0").set_value(wrong).run()
    assert "No\\: " in at.warning[0].value
    at.radio(key="loss_0").set_value(lost.reason).run()
    assert "Right" in at.success[0].value
    assert f"{lost.ratio:.2f}" in at.success[0].value
    assert any("Solved 0 of 1" in caption.value for caption in at.caption), "the first answer counts"


def test_a_link_to_lossless_leads_to_its_proof():
    at = open_page("pages/learn.py")
    at.query_params["term"] = "lossless"
    at.run()
    assert at.text_input(key="glossary_search").value == "lossless"
    said = [each.value for each in at.markdown]
    place = said.index(PROOF)
    pairs = json.loads(ENUMERATED.read_text(encoding="utf-8"))["pairs"]
    offered = [pair for pair in pairs if pair["allowed"]]
    assert said[place + 1].startswith(f"**{len(offered)} pairs of drafter and verifier are offered for sampling: the")
    assert "show no bias here but are not offered either" in said[place + 1]
    assert max(pair["bias"] for pair in offered) < 1e-9 < max(pair["bias"] for pair in pairs)
    assert "Try it at a node of a real tree" in [each.proto.label for each in at.get("page_link")]
    assert {pair["verifier"] for pair in pairs} == set(VERIFIERS), "as the program has them"
    assert "benchmarks.losslessness" in at.caption[-1].value


def test_the_table_of_the_proof_has_the_names_of_the_screen_and_refuses_no_greedy_run():
    table = pairs_table(json.loads(ENUMERATED.read_text(encoding="utf-8"))["pairs"])
    assert set(table.heads[1:]) == {kind.label for kind in VERIFIERS.values()}
    labels = {method.label for method in METHODS.values()}
    written = " ".join(cell for row in table.rows for cell in row)
    assert "e+00" not in written and "[0.96]" in written, "the largest bias as the sentence above has it"
    drafters = [row[0] for row in table.rows]
    assert all(name in labels or name.rpartition(", ")[0] in labels for name in drafters), drafters
    assert {"SpecInfer widths, top-k", "Linear chain, sampled"} <= set(drafters)
    assert "refused" not in table.title and "Greedy" in table.note and "temperature 0" in table.note
    assert "vocabularies of 3 and 4 tokens" in PROOF and {*DRAFTERS_BY_SIZE} == {3, 4}


def test_the_glossary_shows_groups_and_finds_terms():
    at = view(open_page(LEARN), "Glossary")
    at.text_input(key="glossary_search").set_value("bonus").run()
    shown = html.unescape("".join(element.proto.body for element in at.get("html")))
    assert TERMS["bonus token"] in shown and TERMS["prefix"] not in shown
    at.text_input(key="glossary_search").set_value("no such word at all").run()
    assert "No term" in at.info[0].value
    at.text_input(key="glossary_search").set_value("").run()
    at.button_group(key="glossary_group").set_value("Verifiers").run()
    shown = html.unescape("".join(element.proto.body for element in at.get("html")))
    assert all(kind.label in shown and kind.summary in shown for kind in VERIFIERS.values())

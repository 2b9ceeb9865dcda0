"""Step through: decode, go back and forth, save and open; what goes wrong is one sentence and the run stays."""

import io
from collections import Counter
from dataclasses import replace

import pytest
from streamlit.testing.v1 import AppTest

from decoding.common.notices import tell
from decoding.methods.methods import METHODS, PRESETS, START, method_label
from decoding.recorded import home_run, recorded_run
from decoding.trace.run_file import load_run
from pages.ui.common.models import manager
from pages.ui.common.state import Run
from pages.ui.widgets.controls import set_method
from pages.ui.widgets.prompts import DEFAULT_PROMPT, sample_prompts
from tests.pages.apptest import finish, open_page, sentences
from viz.learn.tour import STORY

PAGE = "pages/step_through.py"
PROMPT = "Once upon a time there was a little girl who"


@pytest.fixture
def page():
    """The page after Start: a run of its own with one iteration."""
    at = open_page(PAGE)
    at.session_state["prompt_text"] = PROMPT
    at.session_state["max_new_tokens"] = 24
    return press(at, "start")


def press(at, key: str):
    at.button(key=key).click().run()
    return finish(at, "step")


def run_of(at):
    return at.session_state["run"]


def test_a_recorded_run_is_there_before_anything_is_decoded():
    at = open_page(PAGE)
    assert sentences(at) == []
    assert run_of(at).source == "recorded"
    assert "one_more" not in [button.key for button in at.button]


def test_start_decodes_the_prompt(page):
    assert sentences(page) == []
    run = run_of(page)
    assert run.source == "decoded"
    assert len(run.trace.iterations) == 1
    assert "".join(run.trace.prompt_texts) == PROMPT


@pytest.mark.slow
def test_starting_again_with_the_same_choices_says_what_comes_of_it(page):
    assert not run_of(page).origin
    press(page, "start")
    assert run_of(page).origin == "Started again with the same settings: greedy decoding gives the same tokens."
    page.session_state["sampling_temperature"] = 0.9
    page.run()
    press(page, "start")
    assert not run_of(page).origin, "other choices"
    first = run_of(page)
    press(page, "start")
    again = run_of(page)
    assert again is not first and again.trace.output_ids == first.trace.output_ids
    assert "and seed 0: the same draws, so the same tokens come out" in again.origin
    assert any("the same draws" in each.value for each in page.caption)
    first.trace = replace(first.trace, pair=replace(first.trace.pair, name="Another pair"))
    page.session_state["run"] = first
    press(page, "start")
    assert not run_of(page).origin, "another pair's run is no repetition"


def test_step_ten_more_and_to_the_end(page):
    first = run_of(page)
    press(page, "one_more")
    assert len(first.trace.iterations) == 2
    assert page.session_state["iteration"] == 1
    press(page, "to_end")
    assert run_of(page) is first
    assert first.trace.totals.stopped != "unfinished"
    assert page.session_state["iteration"] == len(first.trace.iterations) - 1
    assert page.button(key="one_more").disabled


@pytest.mark.slow
def test_output_is_that_of_the_target_alone(page):
    press(page, "to_end")
    set_to(page, "method", "autoregressive")
    tree = run_of(page).trace.output_ids
    press(page, "start")
    press(page, "to_end")
    assert run_of(page).trace.method == "autoregressive"
    assert run_of(page).trace.output_ids == tree


def set_to(at, key: str, value):
    at.selectbox(key=key).set_value(value).run()
    assert sentences(at) == []


@pytest.mark.slow
def test_a_run_decoded_to_the_end_has_the_costs_of_its_pair_checked(page, monkeypatch):
    checked = []
    monkeypatch.setattr("decoding.session.session.doubt", lambda pair, found: checked.append(len(found)))
    monkeypatch.setattr(manager(), "mend_costs", lambda: checked and tell("Times were measured again."))
    press(page, "one_more")
    assert not checked, "a single step must not wait"
    press(page, "to_end")
    assert checked == [len(run_of(page).trace.iterations)]
    assert any("Times were measured again." in each.value for each in page.caption)


def test_cancel_keeps_what_was_decoded(page):
    import threading

    from pages.ui.common.state import decode_more
    from pages.ui.common.worker import ModelTask

    run, seen = run_of(page), threading.Event()
    job = ModelTask("Decoding", lambda job: decode_more(run, None, job))
    job.report = lambda *progress: (seen.set(), job.cancel())
    job.run()
    assert seen.is_set()
    assert job.state == "cancelled"
    assert len(run.trace.iterations) == 2
    assert sentences(page.run()) == []


@pytest.mark.slow
def test_every_iteration_can_be_looked_at(page):
    press(page, "ten_more")
    for index in range(len(run_of(page).trace.iterations)):
        page.session_state["iteration"] = index
        page.run()
        assert sentences(page) == []


@pytest.mark.slow
def test_bad_input_is_one_sentence_and_the_run_stays(page):
    before = run_of(page)
    for prompt, tokens, words in (
        ("  ", 24, "prompt is empty"),
        ("word " * 3000, 24, "shorten the prompt"),
        ("word " * 100, 2560, "request at most"),
    ):
        page.text_area(key="prompt_text").set_value(prompt)
        page.number_input(key="max_new_tokens").set_value(tokens)
        press(page, "start")
        reported = sentences(page)
        assert len(reported) == 1
        assert words in reported[0]
        assert run_of(page) is before
    page.text_area(key="prompt_text").set_value(PROMPT)
    page.number_input(key="max_new_tokens").set_value(8)
    press(page, "start")
    assert sentences(page) == []
    assert run_of(page) is not before


@pytest.mark.slow
def test_contradictory_settings_are_reported_and_the_run_stays(page):
    before = run_of(page)
    page.slider(key="method_dynatree_base_depth").set_value(8)
    page.slider(key="method_dynatree_max_depth").set_value(6).run()
    reported = sentences(page)
    assert len(reported) == 1
    assert "“Base depth”" in reported[0]
    assert "“Maximum depth”" in reported[0]
    assert page.button(key="start").disabled
    assert run_of(page) is before
    page.slider(key="method_dynatree_max_depth").set_value(9).run()
    assert sentences(page) == []
    assert not page.button(key="start").disabled


@pytest.mark.slow
def test_a_run_saves_and_opens_again(page, monkeypatch):
    from pages.ui.app import file_menu

    saved = file_menu.run_bytes(run_of(page), with_rows=False)
    assert load_run(io.BytesIO(saved)).output_ids == run_of(page).trace.output_ids
    upload(monkeypatch, saved)
    assert file_menu.st.session_state["run"].source == "opened"
    assert file_menu.st.session_state["run"].trace.prompt_ids == run_of(page).trace.prompt_ids


@pytest.mark.slow
def test_a_damaged_file_is_one_sentence_and_the_run_stays(page, monkeypatch):
    from pages.ui.app import file_menu

    data, before = file_menu.run_bytes(run_of(page), with_rows=False), run_of(page)
    for damaged in (data[: len(data) // 2], b"not a run", b""):
        with monkeypatch.context() as patched:
            state = upload(patched, damaged)
        assert "run" not in state
        assert str(state[file_menu.ERROR]).count("\n") == 0
        page.session_state[file_menu.ERROR] = state[file_menu.ERROR]
        assert len(sentences(page.run())) == 1
        assert run_of(page) is before


def upload(monkeypatch, data: bytes) -> dict:
    """What opening a file leaves in the session state."""
    from pages.ui.app import file_menu
    from pages.ui.common import state

    session = {"open_run": io.BytesIO(data)}
    monkeypatch.setattr(file_menu.st, "session_state", session)
    monkeypatch.setattr(state.st, "session_state", session)
    file_menu._open()
    return session


@pytest.mark.slow
def test_choices_outlive_a_page_switch(page):
    page.slider(key="method_dynatree_node_budget").set_value(17).run()
    page.switch_page("app.py").run()
    page.switch_page(PAGE).run()
    assert page.slider(key="method_dynatree_node_budget").value == 17
    assert page.text_area(key="prompt_text").value == PROMPT
    assert run_of(page).source == "decoded"


def pickers():
    """A page with nothing but the two pickers."""
    import streamlit as st

    from pages.ui.widgets.controls import method_picker, picked_sampling
    from pages.ui.widgets.prompts import prompt_picker

    prompt_picker()
    method_picker("method", picked_sampling(), st.container())


@pytest.mark.parametrize(
    ("asked", "prompt", "method"),
    [
        ({"prompt": "Code · Grid paths", "method": "Linear chain"}, "code/grid_paths", "linear"),
        ({"prompt": "no/such", "method": "no_such"}, DEFAULT_PROMPT, "dynatree"),
    ],
)
def test_prompt_and_method_come_from_the_address(asked, prompt, method):
    at = AppTest.from_function(pickers, default_timeout=30)
    for key, value in asked.items():
        at.query_params[key] = value
    at.run()
    assert sentences(at) == []
    assert at.selectbox(key="prompt").value == prompt
    assert at.selectbox(key="method").value == method
    assert at.text_area(key="prompt_text").value == sample_prompts()[prompt].text


def test_a_preset_sets_method_and_settings():
    at = open_page(PAGE)
    at.selectbox(key="method_preset").set_value("fixed tree D5 B2 (ablation)").run()
    assert sentences(at) == []
    assert at.selectbox(key="method").value == "fixed_tree"
    assert at.slider(key="method_fixed_tree_max_depth").value == 5
    assert at.slider(key="method_fixed_tree_branching").value == 2
    at.button(key="method_reset").click().run()
    assert at.slider(key="method_fixed_tree_max_depth").value == 8


@pytest.mark.slow
def test_released_models_are_reported(page):
    from pages.ui.common.models import manager

    manager().load(manager().settings)
    page.run()
    assert page.button(key="one_more").disabled
    assert "no longer in memory" in page.button(key="one_more").help
    assert sentences(page) == []


def test_set_method_covers_every_setting():
    from pages.ui.widgets import controls

    session: dict = {}
    original = controls.st.session_state
    try:
        controls.st.session_state = session
        for method in PRESETS.values():
            set_method("m", method)
            expected = method.settings()
            if method.verifier.greedy_only:  # left open, so that a temperature can put NSS in its place
                expected["verifier"] = None
            assert all(session[f"m_{method.name}_{name}"] == value for name, value in expected.items())
    finally:
        controls.st.session_state = original


@pytest.mark.slow
def test_the_first_start_shows_a_tree_and_the_papers_default_is_one_click_away():
    at = press(open_page(PAGE), "start")
    run = run_of(at)
    verdicts = [node.verdict for node in run.trace.iterations[0].nodes]
    assert verdicts.count("accepted") and verdicts.count("rejected")
    assert max(Counter(node.parent_id for node in run.trace.iterations[0].nodes).values()) > 1, "it branches"
    assert run.trace.settings == START.settings() and run.trace.label == method_label(START) == home_run().label
    assert run.trace.settings == home_run().settings == recorded_run(STORY).settings, "Home and the tour say the same"
    at.button(key="method_other").click().run()
    assert not at.toggle(key="method_dynatree_branch_first_level").value
    assert run_of(press(at, "start")).trace.settings == METHODS["dynatree"].settings()
    at.button(key="method_other").click().run()
    assert at.toggle(key="method_dynatree_branch_first_level").value
    at.slider(key="method_dynatree_node_budget").set_value(17).run()
    assert "method_other" not in [button.key for button in at.button], "settings of the user's own are kept"


@pytest.mark.slow
def test_choices_that_are_not_what_is_on_screen_are_marked_until_they_are_run():
    def marked(at) -> list[str]:
        return [each.value.replace("\\", "") for each in at.caption if "Not run yet" in each.value]

    at = open_page(PAGE)
    assert marked(at) == [], "the recorded run on screen is the one that the widgets ask for"
    at.slider(key="method_dynatree_node_budget").set_value(17).run()
    assert marked(at) == ["Not run yet: settings. Press Start. A recorded run."]
    press(at, "start")
    assert marked(at) == []
    for change, word in ((lambda: at.slider(key="sampling_temperature").set_value(0.5), "sampling"),
                         (lambda: at.text_area(key="prompt_text").set_value(PROMPT), "prompt"),
                         (lambda: at.number_input(key="max_new_tokens").set_value(5), "length")):  # fmt: skip
        change().run()
        assert word in marked(at)[0]
    at.session_state["run"] = Run(recorded_run(STORY), "recorded")
    at.run()
    assert "prompt" in marked(at)[0]
    at = press(at, "start")
    assert marked(at) == []

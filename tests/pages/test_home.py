"""Home: one screen around a real iteration, drawn before torch is loaded."""

import pytest

from decoding.recorded import home_run, telling_iteration
from pages.ui.app.home import _steps
from tests.helpers.process import printed
from tests.pages.apptest import open_page, sentences
from viz.explain.iteration import lost_node


@pytest.mark.slow
def test_home_draws_without_torch():
    code = (
        "from streamlit.testing.v1 import AppTest\n"
        "import sys\n"
        "at = AppTest.from_file('app.py', default_timeout=30).run()\n"
        "assert not at.error, at.error\n"
        "assert at.title[0].value\n"
        "print(*sorted(m for m in sys.modules if m in ('torch', 'transformers')))"
    )
    assert printed(code).strip() == ""


def test_the_shown_iteration_tells_the_story():
    run = home_run()
    iteration = run.iterations[telling_iteration(run)]
    verdicts = {node.verdict for node in iteration.nodes}
    assert len(iteration.accepted) >= 2
    assert "rejected" in verdicts
    assert iteration.final_kind in ("recovered", "bonus")
    assert not iteration.in_loop
    assert iteration.drafted <= 20, "more do not fit on one screen"


def test_every_step_can_be_looked_at():
    at = open_page()
    for step in ("1 Draft", "2 Verify", "3 Accept", "4 Commit"):
        at.session_state["home_step"] = step
        at.run()
        assert sentences(at) == []


def test_numbers_of_the_steps_are_those_of_the_run():
    from pages.ui.app.home import _steps

    run = home_run()
    iteration = run.iterations[telling_iteration(run)]
    words = _steps(iteration)
    assert f"{iteration.drafted} nodes" in words["1 Draft"]
    assert f"the other {iteration.verified} in one pass" in words["2 Verify"]
    assert f"{len(iteration.accepted)} of them" in words["3 Accept"]
    assert f"{len(iteration.committed_ids)} tokens for one pass" in words["4 Commit"]


def test_text_of_the_models_is_escaped():
    from dataclasses import replace

    from pages.ui.app.home import _text_html

    run = home_run()
    index = telling_iteration(run)
    evil = replace(run.iterations[index], committed_texts=("<img src=x>", "<b>", "<i>", "</div>"))
    assert "<img" not in _text_html(run, evil)


def test_a_token_that_was_drafted_and_pruned_is_not_called_free():
    run = home_run()
    reported = {lost_node(each) is None: _steps(each)["3 Accept"] for each in run.iterations if each.final_text}
    assert reported[True].endswith("is added for free.") and reported[False].endswith(
        "it had been drafted, then pruned."
    )

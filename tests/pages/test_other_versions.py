"""Runs in files of other versions, whose method, settings or sampling are unknown here: every page shows them."""

from dataclasses import replace

import pytest

from decoding.recorded import home_run
from decoding.trace.records import RunTrace, SamplingTrace
from pages.ui import PAGES
from pages.ui.common.state import Run
from tests.helpers.families import family
from tests.pages.apptest import open_page, sentences

PAGE = PAGES["What if"]


def of_another_version() -> dict[str, RunTrace]:
    run = home_run()
    worded = {name: value if isinstance(value, str | bool) else "text" for name, value in run.settings.items()}
    return {
        "no method 'newest'": replace(run, method="newest", label="Newest"),
        "has no setting 'novelty'": replace(run, settings={**run.settings, "novelty": 3}),
        "unknown verifier 'newest'": replace(run, settings={**run.settings, "verifier": "newest"}),
        "must be a whole number": replace(run, settings=worded),
    }


@pytest.mark.parametrize("said", list(of_another_version()))
def test_a_run_of_another_version_can_be_looked_at_and_says_what_is_unknown(said: str):
    at = open_page(PAGE)
    at.session_state["run"] = Run(of_another_version()[said], "opened")
    at.run()
    words = " ".join(element.value for element in at.markdown).replace("\\", "")
    assert "can be viewed but not changed" in words and said in words
    assert at.button(key="what_if_fork").disabled and "what_if_again" not in [button.key for button in at.button]
    at.session_state["what_if"].nodes["A"] = 1
    at.run()
    at.button(key="what_if_reject").click().run()
    assert sentences(at) == [] and at.button(key="what_if_fork").disabled


@pytest.mark.parametrize(
    "page",
    family([page for page in PAGES.values() if page != PAGE], "app.py"),
)
def test_every_page_draws_with_a_run_of_another_version(page: str):
    run = of_another_version()["no method 'newest'"]
    iterations = tuple(replace(each, settings={**each.settings, "novelty": "much"}) for each in run.iterations)
    at = open_page(None if page == "app.py" else page)
    at.session_state["run"] = Run(replace(run, iterations=iterations), "opened")
    assert sentences(at.run()) == []


def test_sampling_that_no_widget_can_hold_is_moved_into_its_range():
    at = open_page(PAGE)
    far = replace(home_run(), sampling=SamplingTrace(3.5, 0.01, 5.0, 2**40))
    at.session_state["run"] = Run(far, "opened")
    assert sentences(at.run()) == []
    assert at.session_state["what_if_sampling_temperature"] == 2.0

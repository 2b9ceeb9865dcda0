"""A heap and a search by rounds, stepped in a real browser: by keys, buttons and the slider."""

import pytest

from decoding.methods.methods import METHODS
from decoding.sampling.sampling import Sampling
from decoding.session.session import DecodeSession, Limits
from decoding.trace.run_file import save_run
from tests.browser.test_scope import SCOPE, open_file, press, value

pytestmark = pytest.mark.slow

SHOWN = f"{SCOPE} .tree g.n:not(.s-hidden)"
METHOD = {"dyspec": {"node_budget": 12}, "salf": {"gain_threshold": 0.2}}


@pytest.fixture(params=METHOD)
def opened(request, open_page, pair, tmp_path):
    """A run of a method whose drafting is stepped, at its first iteration and phase, and that iteration."""
    method = METHODS[request.param].with_settings(**METHOD[request.param])
    sampling = Sampling(temperature=0.8 * (request.param == "dyspec"))
    session = DecodeSession(pair, method, pair.vocabulary.encode("Once upon a time"), sampling, Limits(24))
    first, _ = session.step(), session.step()
    save_run(session.trace(), tmp_path / "run.dscope")
    page = open_page("/step_through")
    open_file(page, tmp_path / "run.dscope")
    page.locator(SCOPE).focus()
    press(page, "Home", "[")
    return page, first


def steps(page) -> tuple[int, int]:
    """The step shown, from 1, and how many there are."""
    shown, count = page.locator(f"{SCOPE} .step-place").inner_text().split(" of ")
    return int(shown), int(count)


def test_drafting_is_stepped_from_the_first_to_the_last_phase(opened):
    page, first = opened
    press(page, *[","] * len(first.nodes))
    assert steps(page)[0] == 1 and page.locator(f"{SCOPE} .search .tool").first.is_disabled()
    assert not page.locator(f"{SCOPE} .mask").is_visible() and not page.locator(f"{SCOPE} .kv").is_visible()
    count, said, marks = steps(page)[1], set(), [page.locator(SHOWN).count()]
    for place in range(2, count + 1):
        press(page, ".")
        assert steps(page)[0] == place and value(page, "step") == str(place - 1)
        said.add(page.locator(f"{SCOPE} .said").inner_text())
        marks.append(page.locator(SHOWN).count())
    assert len(said) == count - 1 and marks == sorted(marks) and marks[-1] == len(first.nodes)
    if first.rule.drafter == "dyspec":
        assert count == len(first.nodes) - 1 and marks == list(range(2, count + 2)), "one node by every pop"
    else:
        assert count == first.draft_forwards + 1 and value(page, "phase") == "tree"
    press(page, "]")
    assert value(page, "step") == "" and page.locator(f"{SCOPE} .mask").is_visible()
    press(page, ",")
    assert steps(page) == (count, count)


def test_the_slider_keeps_its_own_keys_and_a_draw_points_at_its_node(opened):
    page, _ = opened
    slider = page.locator(f"{SCOPE} .search input")
    slider.focus()
    press(page, "Home")
    assert steps(page)[0] == 1
    press(page, "ArrowRight")
    assert steps(page)[0] == 2
    page.locator(f"{SCOPE} .search .tool").last.click()
    assert steps(page)[0] == 3
    row = page.locator(f"{SCOPE} .list-row[data-node]").first
    row.hover()
    assert value(page, "hovered") == row.get_attribute("data-node")

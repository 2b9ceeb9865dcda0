"""The Tune live journey in a real browser: turn a setting, see the new tree and what changed, pin, run a whole text."""

import re

import pytest
from playwright.sync_api import expect

from benchmarks.browser_app import SETTLED

pytestmark = pytest.mark.slow

NOW = ".st-key-tune_tree_now .ds-root[data-drawn-scene]"
PINNED = ".st-key-tune_tree_pinned .ds-root[data-drawn-scene]"


def settle(page) -> None:
    """The figures stand beside the trees once both have been measured."""
    page.wait_for_timeout(200)
    page.wait_for_selector(SETTLED)
    page.locator(".tune-changes").get_by_text("median of").wait_for()


def scene(page, root: str = NOW) -> str:
    return page.locator(root).get_attribute("data-drawn-scene")


def press(page, setting: str, key: str, times: int = 1) -> None:
    """Arrow keys on a slider, each a commit that draws another tree."""
    slider = page.locator(f".st-key-tune_dynatree_{setting} input[type=range]")
    slider.focus()
    for _ in range(times):
        before = scene(page)
        page.keyboard.press(key)
        for _ in range(200):
            if scene(page) != before:
                break
            page.wait_for_timeout(50)
        assert scene(page) != before, "no new tree was drawn"
        settle(page)


def test_keys_pressed_while_the_page_works_all_count(tune):
    page = tune
    for key in ("tune_dynatree_node_budget", "sampling_draft_temperature"):
        slider = page.locator(f".st-key-{key} input[type=range]").first
        slider.focus()
        before, step = float(slider.input_value()), float(slider.get_attribute("step"))
        for _ in range(8):
            page.keyboard.press("ArrowLeft")
            page.wait_for_timeout(120)
        settle(page)
        assert float(slider.input_value()) == pytest.approx(before - 8 * step)


def reported(page) -> str:
    return page.inner_text(".st-key-tune_changes")


def points(page) -> int:
    return page.locator(".st-key-tune_chart .scatterlayer .trace").first.locator("path.point").count()


@pytest.fixture
def tune(open_page):
    page = open_page("/tune_live")
    page.locator(NOW).wait_for(state="attached")
    settle(page)
    return page


def assert_one_screen(page) -> None:
    for key in ("tune_settings", "tune_trees", "tune_changes", "tune_chart", "tune_whole"):
        box = page.locator(f".st-key-{key}").first.bounding_box()
        assert box["x"] >= 0
        assert box["x"] + box["width"] <= 1280, key
        assert box["y"] + box["height"] <= 810, key


def test_a_slider_draws_a_new_tree_beside_the_pinned_one(tune):
    page = tune
    assert_one_screen(page)
    assert "move a slider" in reported(page)
    before, pinned = points(page), scene(page, PINNED)
    press(page, "prune_probability", "ArrowLeft", 3)
    assert scene(page, PINNED) == pinned
    assert "Now · DynaTree · τ 0.02, first level may branch" in page.locator(NOW).inner_text()
    words = reported(page)
    assert "Same text as far as both go, different work" in words
    beside = re.search(r"nodes verified\n\d+ → \d+", words)
    assert beside, "the pinned tree's verified nodes stand beside those of the new tree"
    assert points(page) == before + 3
    assert page.locator("[data-testid=stException]").count() == 0


OVERLAPS = """tree => {
  const boxes = selector => [...tree.querySelectorAll(selector)].map(each => each.getBoundingClientRect())
    .filter(box => box.width);
  const marks = boxes(".n .mk"), texts = boxes(".n .label, .n .detail");
  return texts.filter(t => marks.some(m => m.left > t.left && m.left < t.right - 1 && m.top + 4 < t.bottom
    && m.bottom - 4 > t.top)).length;
}"""


def test_no_label_lies_on_a_node_and_every_row_of_a_small_tree_stands(open_page):
    text = "Once+upon+a+time,+a+little+robot+lived+on+the+moon.+He+had+no+friends,+so+he+built+a"
    page = open_page(f"/step_through?text={text}&max_new_tokens=96&iteration=22")
    page.set_viewport_size({"width": 1440, "height": 900})
    page.locator(".ds-root").get_by_text(re.compile(r"iteration 22 of [0-9]+ ")).wait_for()
    page.get_by_role("link", name="Tune live").first.click()
    settle(page)
    for _ in range(20):  # 17 nodes
        page.locator(".st-key-tune_dynatree_confidence_low input[type=range]").press("ArrowRight")
    settle(page)
    for root in (NOW, PINNED):
        tree = page.locator(f"{root} .tree-svg")
        assert tree.locator(".n").count() > 8
        assert tree.evaluate(OVERLAPS) == 0
        stage = tree.bounding_box()
        lowest = max(each["y"] + each["height"] for n in tree.locator(".n .mk").all() if (each := n.bounding_box()))
        assert lowest <= stage["y"] + stage["height"]


def test_nodes_of_one_tree_only_are_framed(tune):
    page = tune
    for key in ("tune_reset", "tune_pin"):  # the paper's default is pinned
        page.click(f".st-key-{key} button")
        settle(page)
    page.locator(".st-key-tune_dynatree_branch_first_level label").first.click()
    page.locator(f"{NOW} .diff").first.wait_for(state="attached")
    settle(page)
    framed = page.locator(f"{NOW} .diff").count()
    assert f"{framed} only in this one (framed)" in reported(page)


def test_a_contradiction_keeps_the_last_tree(tune):
    page = tune
    press(page, "base_depth", "ArrowRight", 2)
    before = scene(page)
    page.locator(".st-key-tune_dynatree_base_depth input[type=range]").focus()
    page.keyboard.press("ArrowRight")
    page.get_by_text("must be below “Maximum depth").wait_for()
    assert scene(page) == before
    page.keyboard.press("ArrowLeft")
    settle(page)


def test_pin_then_whole_generation(tune):
    page = tune
    press(page, "node_budget", "ArrowLeft")
    page.click(".st-key-tune_pin button")
    page.wait_for_function("() => document.querySelector('.st-key-tune_pin button').disabled")
    settle(page)
    assert scene(page) == scene(page, PINNED)
    page.locator(".st-key-tune_whole_run button").first.click()
    page.get_by_text("tokens/s without prefill").wait_for()
    page.locator(".st-key-tune_chart .legend").get_by_text("whole generation").first.wait_for()


def test_a_whole_generation_can_be_cancelled(open_page):
    page = open_page("/tune_live?prompt=Encyclopedia+·+Grey+owl")
    settle(page)
    page.locator(".st-key-tune_tokens input").fill("1500")
    page.keyboard.press("Enter")
    settle(page)
    page.locator(".st-key-tune_whole_run button").first.click()
    page.locator(".st-key-cancel_tune_whole button").click()
    page.get_by_text("an incomplete generation adds no point").wait_for()
    settle(page)


def test_it_opens_where_a_late_iteration_of_the_run_begins(open_page):
    text = "Once+upon+a+time+a+little+girl+named+Mia+found+a+red+ball+in+the+garden.+Her+dog+Max+wanted+to+play+with+it"
    page = open_page(f"/step_through?text={text}+too,+so&max_new_tokens=96&iteration=25")
    page.locator(".ds-root").get_by_text(re.compile(r"iteration 25 of [0-9]+ ")).wait_for()
    root = page.locator(".ds-root [data-node='0']").first.text_content()
    page.get_by_role("link", name="Tune live").first.click()
    settle(page)
    slider = page.locator(".st-key-tune_position input[type=range]").first
    assert float(slider.input_value()) > 63, "a prompt is continued for 64 tokens, the run goes on"
    assert page.locator(f"{NOW} [data-node='0']").first.text_content() == root
    expect(page.locator(".st-key-tune_prefix")).to_contain_text("Run in Step through")

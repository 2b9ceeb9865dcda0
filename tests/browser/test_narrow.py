"""Every page in a window of 390 px: nothing beside the window, the tree first, the menu in reach."""

import re

import pytest

from benchmarks.browser_app import SETTLED
from pages.ui import LAB, PAGES
from tests.browser.axe import axe_script, violations
from tests.browser.conftest import new_context
from tests.browser.test_accessibility import settle, visit

WIDTH = 390
DRAWN = {"Papers": ".st-key-papers_chart"}  # its list is judged for long after the page is there
# Whatever of the page's own lies beyond the window's right edge and is not in a box that clips or scrolls inside it.
BEYOND = """
() => {
  const main = document.querySelector("[data-testid=stMain]");
  const wide = [document.scrollingElement, main].filter((box) => box.scrollWidth > innerWidth);
  const lost = [...document.querySelectorAll(".st-key-menu a, .st-key-menu button, [data-testid=stBaseButton-primary]")]
    .filter((one) => {
      const { left, right, width } = one.getBoundingClientRect();
      return width && (left < 0 || right > innerWidth);
    });
  return [...wide.map((box) => "scrolls sideways: " + box.tagName), ...lost.map((one) => one.innerText)];
}
"""


@pytest.fixture(scope="module")
def narrow(browser):
    """One page of a phone's width for all tests here."""
    context = new_context(browser, viewport={"width": WIDTH, "height": 844}, bypass_csp=True, reduced_motion="reduce")
    context.add_init_script(axe_script())
    yield context.new_page()
    context.close()


@pytest.mark.slow
def test_every_page_fits_its_menu_is_in_reach_and_it_has_no_grave_violation(narrow, app_server):
    from playwright.sync_api import expect

    found = []
    for title in PAGES:
        visit(narrow, app_server, title)
        narrow.locator(DRAWN.get(title, SETTLED)).first.wait_for()
        expect(narrow.locator(".st-key-menu a:visible")).to_have_count(len(PAGES) - len(LAB))
        found += [f"{title}: {each}" for each in narrow.evaluate(BEYOND)]
        found += violations(narrow, f"{title}, {WIDTH} px")
    assert not found, "\n".join(map(str, found))


@pytest.mark.slow
def test_the_tree_comes_before_its_panels(narrow, app_server):
    visit(narrow, app_server, "Step through")
    narrow.locator(".ds-scope .tree").wait_for()
    tree = narrow.locator(".ds-scope .tree").bounding_box()
    others = [each.bounding_box() for each in narrow.locator(".ds-scope .panel:not(.tree):visible").all()]
    assert tree["width"] >= 300 and tree["x"] + tree["width"] <= WIDTH
    assert len(others) >= 5 and all(tree["y"] + tree["height"] <= box["y"] for box in others)


@pytest.mark.slow
def test_the_focus_of_the_keyboard_is_not_the_look_of_hovering(narrow, app_server):
    visit(narrow, app_server, "Step through")
    start, outline = narrow.locator(".st-key-start button"), "one => getComputedStyle(one).outlineStyle"
    start.hover()
    assert start.evaluate(outline) == "none"
    narrow.keyboard.press("Tab")
    start.focus()
    assert start.evaluate(outline) == "solid"


def test_reduced_motion_is_kept(narrow, app_server):
    visit(narrow, app_server, "Race")
    settle(narrow)
    assert narrow.locator(".race-root").get_attribute("data-playing") == "false"
    seconds = "one => getComputedStyle(one).transitionDuration"
    assert narrow.locator(".st-key-race_start button").evaluate(seconds) == "0s"


@pytest.mark.slow
def test_panels_of_a_pass_are_whole_or_say_where_they_go_on(browser, app_server):
    context = new_context(browser, reduced_motion="reduce")
    page = context.new_page()
    page.goto(app_server + "/step_through")
    for width, height in ((1280, 800), (1440, 900), (1024, 768), (820, 900)):
        page.set_viewport_size({"width": width, "height": height})
        page.locator(".ds-root[data-drawn-scene] .step").filter(has_text="Commit").click()
        page.wait_for_timeout(300)
        for heading in (".times .side", ".times .time-share >> nth=0"):
            box = page.locator(f".ds-root {heading}")
            assert box.is_visible() and box.evaluate("box => box.scrollWidth <= box.clientWidth"), (width, heading)
        slots = page.locator(".ds-root .kv > .body")
        hidden = slots.evaluate("box => box.scrollHeight - box.clientHeight")
        assert hidden == 0 or width < 1280, (width, hidden)
        assert "gradient" in slots.evaluate("box => getComputedStyle(box).backgroundImage")
    page.locator(".ds-root .step").filter(has_text="Draft 1").click()
    said = page.locator(".ds-root .card .why").inner_text()
    assert re.search(r"The pinned .+ comes in a later phase", said)
    context.close()

"""Every page in a window of 390 px: nothing beside the window, the tree first, the menu in reach."""

from pathlib import Path

import pytest

from benchmarks.browser_app import SETTLED
from pages.ui import LAB, PAGES
from tests.browser.axe import axe_script, violations
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
    context = browser.new_context(viewport={"width": WIDTH, "height": 844}, bypass_csp=True, reduced_motion="reduce")
    context.add_init_script(axe_script())
    context.set_default_timeout(60_000)
    yield context.new_page()
    context.close()


def test_every_page_fits_and_its_menu_is_in_reach(narrow, app_server):
    from playwright.sync_api import expect

    found = {}
    for title in PAGES:
        narrow.goto(app_server + ("/" if title == "Home" else "/" + Path(PAGES[title]).stem))
        narrow.locator(DRAWN.get(title, SETTLED)).first.wait_for()
        expect(narrow.locator(".st-key-menu a:visible")).to_have_count(len(PAGES) - len(LAB))
        found[title] = narrow.evaluate(BEYOND)
    assert not any(found.values()), found


@pytest.mark.slow
def test_no_grave_violation_on_any_page(narrow, app_server):
    found = []
    for title in PAGES:
        visit(narrow, app_server, title)
        found.extend(violations(narrow, f"{title}, {WIDTH} px"))
    assert not found, "\n".join(map(str, found))


def test_the_tree_comes_before_its_panels(narrow, app_server):
    visit(narrow, app_server, "Step through")
    narrow.locator(".ds-scope .tree").wait_for()
    tree = narrow.locator(".ds-scope .tree").bounding_box()
    others = [each.bounding_box() for each in narrow.locator(".ds-scope .panel:not(.tree):visible").all()]
    assert tree["width"] >= 300 and tree["x"] + tree["width"] <= WIDTH
    assert len(others) >= 5 and all(tree["y"] + tree["height"] <= box["y"] for box in others)


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

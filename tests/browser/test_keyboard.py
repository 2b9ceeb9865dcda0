"""Step through without a mouse: everything is reached with Tab, worked with keys, and shows where the focus is."""

import re

import pytest

from benchmarks.browser_app import SETTLED

ROOT = ".ds-root"
MOST_STOPS = 80
# The focused element, also inside the shadow roots of components.
FOCUSED = "let at = document.activeElement; while (at.shadowRoot?.activeElement) at = at.shadowRoot.activeElement;"


def settle(page) -> None:
    page.wait_for_timeout(150)
    page.wait_for_selector(SETTLED)


def tab_to(page, selector: str, key: str = "Tab") -> None:
    """Press Tab until an element is focused that matches, as a person would."""
    for _ in range(MOST_STOPS):
        page.keyboard.press(key)
        if page.evaluate(f"selector => {{ {FOCUSED} return at.matches(selector) }}", selector):
            return
    raise AssertionError(f"{selector} is not reached with {key}")


def shows_focus(page, what: str) -> None:
    """The focused element looks different from the same one without the focus."""
    box = page.evaluate(
        f"() => {{ {FOCUSED} const b = at.getBoundingClientRect(); return [b.x, b.y, b.width, b.height] }}"
    )
    size = page.viewport_size
    clip = {"x": max(box[0] - 4, 0), "y": max(box[1] - 4, 0)}
    clip["width"] = min(box[2] + 8, size["width"] - clip["x"])
    clip["height"] = min(box[3] + 8, size["height"] - clip["y"])
    page.wait_for_timeout(250)  # colours change in a short transition
    focused = page.screenshot(clip=clip)
    page.evaluate(f"() => {{ {FOCUSED} window.held = at; at.blur() }}")
    page.wait_for_timeout(250)
    assert page.screenshot(clip=clip) != focused, f"the focus on {what} cannot be seen"
    page.evaluate("() => window.held.focus()")


def shows_iteration(page, number: int, count: int) -> None:
    page.locator(ROOT).get_by_text(re.compile(rf"iteration {number} of {count} ")).wait_for()
    settle(page)


@pytest.mark.slow
def test_step_through_with_the_keyboard_alone(open_page):
    page = open_page("/step_through")
    page.wait_for_selector(f"{ROOT}[data-drawn-scene]")

    tab_to(page, ".st-key-start button")
    shows_focus(page, "Start")
    page.keyboard.press("Enter")
    shows_iteration(page, 1, 1)
    tab_to(page, ".st-key-ten_more button")
    page.keyboard.press("Enter")
    shows_iteration(page, 11, 11)

    # The scope is one stop; arrows go through phases and iterations, with Shift through the nodes of the tree.
    tab_to(page, ROOT)
    shows_focus(page, "the scope")
    root = page.locator(ROOT)
    phase = root.get_attribute("data-phase")
    page.keyboard.press("ArrowLeft")
    page.locator(f"{ROOT}:not([data-phase='{phase}'])").wait_for()
    page.keyboard.press("End")
    page.keyboard.press("ArrowUp")
    shows_iteration(page, 10, 11)
    selected = root.get_attribute("data-selected")
    for key in ("Shift+ArrowLeft", "Shift+ArrowRight", "Shift+ArrowDown"):
        page.keyboard.press(key)
        if root.get_attribute("data-selected") != selected:
            break
    page.locator(f"{ROOT}:not([data-selected='{selected}'])").wait_for()
    card = page.locator(f"{ROOT} .card").inner_text()
    node = root.get_attribute("data-selected")
    assert f"node {node} " in card or "last committed token" in card or "after node" in card
    assert len(page.locator(f"{ROOT} .card .why").inner_text()) > 20, "the card says why"
    settle(page)

    # What is behind the scope is reached by going on, what is before it by going back.
    tab_to(page, ".st-key-as_text summary")
    shows_focus(page, "As text")
    page.keyboard.press("Enter")
    page.locator(".st-key-as_text li").first.wait_for()
    settle(page)
    assert page.locator(".st-key-as_text").get_by_text(re.compile("^Iteration 10: ")).is_visible()
    tab_to(page, ".st-key-file_open button", "Shift+Tab")
    shows_focus(page, "File")
    page.keyboard.press("Enter")
    body = page.locator("[data-testid=stPopoverBody]")
    body.wait_for()
    tab_to(page, ".st-key-save_run button")
    assert "iteration=10" in body.locator("code").inner_text()
    page.keyboard.press("Escape")
    body.wait_for(state="detached")
    assert page.locator("[data-testid=stException]").count() == 0

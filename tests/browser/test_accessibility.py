"""No page has a serious or critical violation of accessibility rules, in the light and in the dark theme."""

from collections.abc import Callable

import pytest

from pages.ui.setup import PAGES, ROOT
from tests.browser.app import SETTLED
from tests.browser.axe import axe_script, violations

WAIT_MS = 60_000
POPOVER = "[data-testid=stPopoverBody]"
DRAWN = ".ds-root[data-drawn-scene]"


def settle(page) -> None:
    page.wait_for_timeout(150)
    page.wait_for_selector(SETTLED, timeout=WAIT_MS)


def step_through(page, judge: Callable) -> None:
    """A run of one's own, every popover, the text of the views."""
    page.locator(DRAWN).wait_for(timeout=WAIT_MS)
    page.click(".st-key-start button")
    page.locator(".ds-root").get_by_text("iteration 1 of 1 ").wait_for(timeout=WAIT_MS)
    settle(page)
    page.click(".st-key-as_text summary")
    page.locator(".st-key-as_text li").first.wait_for(timeout=WAIT_MS)
    settle(page)
    judge("with a run, as text")
    for name in ("prompt_open", "method_open", "file_open", "numbers"):
        page.locator(f".st-key-{name} button, [class*=_{name}] button").first.click()
        page.locator(POPOVER).wait_for(timeout=WAIT_MS)
        settle(page)
        judge(name, POPOVER)
        page.keyboard.press("Escape")
        page.locator(POPOVER).wait_for(state="detached", timeout=WAIT_MS)


def verifiers(page, judge: Callable) -> None:
    page.click(".st-key-verify_sampled button")
    page.locator(".vt-row[data-name=nss]").wait_for(timeout=WAIT_MS)
    settle(page)
    judge("with a sampled run")


def tune_live(page, judge: Callable) -> None:
    page.locator(".tune-told").get_by_text("median of").wait_for(timeout=WAIT_MS)
    settle(page)
    judge("measured")


def learn(page, judge: Callable) -> None:
    """Its views, one after the other."""
    views = page.locator(".st-key-learn_view button").all_inner_texts()
    for name in views:
        page.locator(".st-key-learn_view button", has_text=name).click()
        settle(page)
        judge(name)


# What is done on a page before it is judged; a page without an entry is judged as it opens.
JOURNEYS = {"Learn": learn, "Step through": step_through, "Tune live": tune_live, "Verifiers": verifiers}


@pytest.mark.parametrize("scheme", ["light", pytest.param("dark", marks=pytest.mark.slow)])
def test_no_grave_violation_on_any_page(browser, app_server, scheme):
    script, found = axe_script(), []
    context = browser.new_context(viewport={"width": 1280, "height": 800}, color_scheme=scheme, bypass_csp=True)
    context.add_init_script(script)
    page = context.new_page()
    for title, path in PAGES.items():
        if not (ROOT / path).is_file():
            continue
        page.goto(app_server + ("/" if title == "Home" else f"/{path.removeprefix('pages/').removesuffix('.py')}"))
        settle(page)

        def judge(state: str, within: str | None = None, title: str = title) -> None:
            found.extend(violations(page, f"{title}, {state}, {scheme}", within))

        JOURNEYS.get(title, lambda page, judge: judge("as it opens"))(page, judge)
    context.close()
    assert not found, "\n".join(map(str, found))


def test_a_violation_is_found_also_inside_a_component(browser):
    """The judge itself: a nameless button and pale words, in the page and in a shadow root."""
    context = browser.new_context(bypass_csp=True)
    context.add_init_script(axe_script())
    page = context.new_page()
    page.set_content(
        "<html lang=en><title>t</title><main><h1>t</h1><button></button><div id=host></div></main></html>"
        "<script>document.getElementById('host').attachShadow({mode: 'open'}).innerHTML ="
        "'<p style=\"color:#ccc;background:#fff\">pale</p>'</script>"
    )
    page.evaluate(axe_script())
    found = violations(page, "made up")
    context.close()
    assert {each.rule for each in found} == {"button-name", "color-contrast"}
    assert "host" in next(each.target for each in found if each.rule == "color-contrast")

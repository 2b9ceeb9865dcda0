"""No run is lost: Back, Forward, a reload, a second tab, the menu and a new server lead to the very run."""

import os
import re
from pathlib import Path

import pytest
from playwright.sync_api import expect

from benchmarks.browser_app import SETTLED, running_app
from tests.browser.conftest import new_context
from tests.browser.test_links import ROOT, holds, query, shows

pytestmark = pytest.mark.slow

ADDRESS = "/step_through?method=Linear+chain&length=4&max_new_tokens=40&text=Once+upon+a+time"
ENDED = re.compile("end of text|length limit")


def settled(page) -> None:
    page.wait_for_selector(SETTLED)


def menu(page, label: str) -> None:
    """Go to another page by the menu."""
    page.get_by_role("link", name=label, exact=True).first.click()
    expect(page).to_have_url(re.compile(label.lower().replace(" ", "_")))
    settled(page)


def run_key(page) -> str:
    """What the scope knows the run on screen by; another decoding of the same request has another."""
    return page.locator(ROOT).first.get_attribute("data-drawn-scene").split(":")[0]


def run_id(page) -> str:
    return query(page)["run"][0].split(".")[0]


def status(page) -> str:
    return page.locator(".st-key-status").inner_text()


def decoded(page) -> str:
    """Decode to the end, go to iteration 3 and to a node of it; returns what names the run."""
    page.click(".st-key-start button")
    shows(page, 1)
    page.click(".st-key-to_end button")
    page.locator(".st-key-status").get_by_text(ENDED).wait_for()
    settled(page)
    page.locator(ROOT).focus()
    for key, place in (("Home", 1), ("ArrowDown", 2), ("ArrowDown", 3)):
        page.keyboard.press(key)
        shows(page, place)
    page.locator(f"{ROOT} .tree g.n[data-node='2'] .hit").click()
    holds(page, iteration="3", node="2")
    settled(page)
    return run_key(page)


def shows_the_run(page, key: str) -> None:
    """Wait until the run is there as it was left, and nothing is being decoded or drawn."""
    shows(page, 3, 2)
    settled(page)  # Forward cannot leave a page that is still being drawn
    page.locator(".st-key-status").get_by_text(ENDED).wait_for()
    assert run_key(page) == key
    assert page.locator(".st-key-messages [data-testid=stAlert]").count() == 0
    assert page.locator("[data-testid=stException]").count() == 0


@pytest.fixture
def ended(open_page):
    """A page with a run decoded to its end, and what names the run."""
    page = open_page(ADDRESS)
    return page, decoded(page)


def test_back_forward_and_the_menu_return_to_the_run(ended):
    page, key = ended
    said = status(page)
    menu(page, "Compare")  # whose address keeps the prompt, too
    page.go_back()
    shows_the_run(page, key)
    page.go_forward()
    expect(page).to_have_url(re.compile("/compare.*prompt="))
    settled(page)
    menu(page, "Step through")
    shows_the_run(page, key)
    assert status(page) == said

    # A later run has taken its place: Back goes to the one that the address names, and to where the buttons go on.
    menu(page, "Learn")
    menu(page, "Step through")
    page.click(".st-key-start button")
    shows(page, 1)
    holds(page, iteration="1")
    settled(page)  # what is still drawn would write its address after Back
    later = run_key(page)
    assert later != key
    page.go_back()
    expect(page).to_have_url(re.compile("/learn"))
    settled(page)
    page.go_back()
    shows_the_run(page, key)
    page.go_forward()
    expect(page).to_have_url(re.compile("/learn"))
    settled(page)
    page.go_forward()
    shows(page, 1)
    assert run_key(page) == later


def test_a_reload_and_a_second_tab_show_the_very_run_with_what_goes_on_from_it(ended):
    page, key = ended
    page.reload()
    shows_the_run(page, key)
    second = page.context.new_page()
    second.goto(page.url)
    shows_the_run(second, key)
    second.close()
    # Reloaded on any page it is still the open run, at the same place.
    shown = {"What if": "Iteration 3 of the run", "Verifiers": "Linear chain.*, of the run"}
    for label in ("Compare", "What if", "Verifiers", "Tune live"):
        menu(page, label)
        holds(page, iteration="3", node="2")
        name = run_id(page)
        page.reload()
        page.get_by_text(re.compile(f"^{shown.get(label, label)}")).first.wait_for()
        settled(page)
        assert run_id(page) == name
    menu(page, "Step through")
    shows_the_run(page, key)


def test_a_run_left_while_it_is_decoded_keeps_what_it_has(open_page):
    page = open_page("/step_through?prompt=Encyclopedia+·+Grey+owl&max_new_tokens=1800")
    page.click(".st-key-start button")
    expect(page).to_have_url(re.compile("run="))
    settled(page)
    key = run_key(page)
    page.click(".st-key-to_end button")
    page.locator(".st-key-status").get_by_text(re.compile(r"[1-9]\d+ of at most 1800")).wait_for()
    page.goto("about:blank")
    page.go_back()
    page.click(".st-key-cancel_step button")
    page.locator(".st-key-status").get_by_text(re.compile(r"^\d+ of \d+ tokens$")).wait_for()
    assert run_key(page) == key and 10 <= int(status(page).split()[0]) < 1800
    expect(page.locator(".st-key-to_end button").first).to_be_enabled()


def test_a_run_that_is_not_known_here_is_decoded_again_to_its_length_and_said_so(ended, open_page):
    page, key = ended
    elsewhere = open_page("/step_through?" + page.url.partition("?")[2].replace(run_id(page), "A" * 22), fresh=True)
    shows(elsewhere, 3, 2)
    assert status(elsewhere) == status(page), "as many tokens"
    assert run_key(elsewhere) != key
    elsewhere.get_by_text("so it is decoded again").wait_for()
    again = run_id(elsewhere)
    assert again not in ("A" * 22, run_id(page)), "who wrote the link does not know the id of what it made"

    # Entries of the history before it name the unknown run: they lead to the one that was decoded in its place.
    menu(elsewhere, "Learn")
    elsewhere.evaluate(f"history.replaceState(null, '', '/learn?run={'A' * 22}')")
    menu(elsewhere, "Race")
    elsewhere.go_back()
    expect(elsewhere).to_have_url(re.compile(f"/learn.*run={re.escape(again)}"))


def test_a_new_server_has_the_run_until_it_is_forgotten(browser, tmp_path: Path):
    environment = os.environ | {"XDG_CACHE_HOME": str(tmp_path)}
    folder = tmp_path / "draftscope" / "runs"
    context = new_context(browser)
    page = context.new_page()
    with running_app(environment) as server:
        page.goto(server + ADDRESS)
        settled(page)
        decoded(page)
        said, drawn, left = status(page), page.locator(ROOT).inner_text(), page.url.removeprefix(server)
        for _ in range(100):  # a server that ends while it writes leaves a part of a file
            if folder.is_dir() and sorted(file.suffix for file in folder.iterdir()) == [".dscope", ".json"]:
                break
            page.wait_for_timeout(100)
    assert sorted(file.suffix for file in folder.iterdir()) == [".dscope", ".json"]
    with running_app(environment) as server:
        page.goto(server + left)
        shows(page, 3, 2)
        assert (status(page), page.locator(ROOT).inner_text()) == (said, drawn), "its measured times are in it"
        assert page.locator(".st-key-messages [data-testid=stAlert]").count() == 0
        holds(page, iteration="3", node="2", length="4")
        assert page.url.removeprefix(server) == left
        page.click(".st-key-file_open button")
        page.locator(".st-key-keep_on_disk label").click()
        settled(page)
        expect(page.locator(".st-key-keep_on_disk input")).not_to_be_checked()
        assert list(folder.iterdir()) == []
    assert list(folder.iterdir()) == [], "nor does the end of the server write it"
    context.close()


@pytest.mark.parametrize(
    ("path", "popover"),
    [
        ("step_through", "method_open"),
        ("what_if", "what_if_editor"),
        ("what_if", "what_if_child_open"),
    ],
)
def test_the_menu_opens_another_page_while_a_popover_is_open(open_page, path, popover):
    page = open_page(f"/{path}")
    if popover == "what_if_child_open":
        page.locator(f".st-key-what_if_tree_a {ROOT} .n .hit").nth(1).dispatch_event("click")
    page.locator(f".st-key-{popover} button:enabled").first.click()
    page.locator("[data-testid=stPopoverBody]").wait_for()
    settled(page)
    menu(page, "Tune live")
    page.locator(".st-key-tune_settings").first.wait_for()
    settled(page)
    expect(page).to_have_url(re.compile("tune_live"))

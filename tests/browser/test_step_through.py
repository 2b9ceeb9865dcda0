"""The Step through journey in a real browser: start, look, walk, decode on, cancel, save and open."""

import re

import pytest
from playwright.sync_api import expect

from benchmarks.browser_app import POPOVER, SETTLED, close_popover

ROOT_ELEMENT = ".ds-root"


def settled(page) -> None:
    page.wait_for_selector(SETTLED)


def shows_iteration(page, number: int, count: int | None = None) -> None:
    """Wait until the scope shows an iteration (1-based), of `count` if given."""
    words = rf"iteration {number} of {count if count else '[0-9]+'} "
    page.locator(ROOT_ELEMENT).get_by_text(re.compile(words)).wait_for()


def no_stack_trace(page) -> None:
    assert page.locator("[data-testid=stException]").count() == 0
    assert "Traceback" not in page.inner_text("body")


@pytest.fixture(scope="module")
def kept(open_kept):
    """The page of this file that begins another run for each test; tests leave its settings as they were."""
    page = open_kept("/step_through")
    page.wait_for_selector(f"{ROOT_ELEMENT}[data-drawn-scene]")
    return page


@pytest.fixture
def started(kept):
    """The page with a run of its own, one iteration decoded."""
    page = kept
    page.keyboard.press("Escape")
    close_popover(page)
    before = page.locator(ROOT_ELEMENT).get_attribute("data-drawn-scene").split(":")[0]
    page.click(".st-key-start button")
    page.locator(f"{ROOT_ELEMENT}:not([data-drawn-scene^='{before}:'])").wait_for()
    shows_iteration(page, 1, 1)
    settled(page)
    return page


def test_recorded_run_is_there_at_once_and_everything_fits_on_one_screen(open_page):
    page = open_page("/step_through")
    page.wait_for_selector(f"{ROOT_ELEMENT}[data-drawn-scene]")
    assert page.get_by_text("A recorded run").count()
    no_stack_trace(page)
    box = page.locator(ROOT_ELEMENT).bounding_box()
    assert box["y"] >= 0
    assert box["y"] + box["height"] <= 800
    assert box["x"] >= 0
    assert box["x"] + box["width"] <= 1280
    # The settings stand beside the tree.
    page.click(".st-key-method_open button")
    page.locator(f"{POPOVER} .st-key-settings_panel").wait_for()
    settled(page)
    panel = page.locator(POPOVER).bounding_box()
    scope = page.locator(ROOT_ELEMENT).bounding_box()
    assert scope["x"] + scope["width"] <= panel["x"]
    assert panel["y"] >= page.locator(".st-key-toolbar").bounding_box()["y"]
    assert panel["x"] + panel["width"] <= 1280 and panel["y"] + panel["height"] <= 800
    inside = page.evaluate("document.querySelector('[data-testid=stMain]').scrollWidth")
    assert inside <= 1280


@pytest.mark.slow
def test_to_the_end_and_no_further(started):
    page = started
    page.click(".st-key-to_end button")
    page.locator(".st-key-status").get_by_text(re.compile("end of text|length limit")).wait_for()
    settled(page)
    assert page.locator(".st-key-one_more button").first.is_disabled()
    no_stack_trace(page)


@pytest.mark.slow
def test_cancel_keeps_the_iterations(open_page):
    page = open_page("/step_through?prompt=Encyclopedia+·+Grey+owl&max_new_tokens=1800")
    page.click(".st-key-start button")
    shows_iteration(page, 1, 1)
    page.click(".st-key-to_end button")
    cancel = page.locator(".st-key-cancel_step button")
    words, line = cancel.locator("p").bounding_box(), page.locator(".st-key-toolbar").bounding_box()
    assert words["width"] > 36 and cancel.bounding_box()["width"] >= words["width"] + 8 and line["height"] < 50
    cancel.click()
    page.locator(".st-key-to_end button:not([disabled])").first.wait_for()
    words = page.get_by_text(re.compile(r"^\d+ of \d+ tokens$")).inner_text()
    assert 1 < int(words.split()[0]) < 1800
    no_stack_trace(page)


@pytest.mark.slow
def test_bad_settings_are_one_sentence_and_the_run_stays(started):
    page = started
    page.click(".st-key-method_open button")
    slider = page.locator(".st-key-method_dynatree_base_depth input[type=range]")
    for depth in (6, 7, 8):  # the popover is drawn anew each time, which may take the focus
        slider.press("ArrowRight")
        expect(slider).to_have_value(str(depth))
        settled(page)
    page.locator("[data-testid=stAlert]").get_by_text("“Base depth").wait_for()
    assert page.locator(".st-key-start button").first.is_disabled()
    shows_iteration(page, 1, 1)
    for depth in (7, 6, 5):
        slider.press("ArrowLeft")
        expect(slider).to_have_value(str(depth))
        settled(page)
    expect(page.locator(".st-key-start button").first).to_be_enabled()
    no_stack_trace(page)


@pytest.mark.slow
def test_save_open_and_a_damaged_file(started, tmp_path):
    page = started
    page.click(".st-key-file_open button")
    with page.expect_download() as download:
        page.click(".st-key-save_run button")
    saved = tmp_path / "run.dscope"
    download.value.save_as(saved)
    damaged = tmp_path / "damaged.dscope"
    damaged.write_bytes(saved.read_bytes()[:500])
    page.set_input_files(".st-key-open_run input[type=file]", str(damaged))
    page.locator("[data-testid=stAlert]").get_by_text("damaged").wait_for()
    shows_iteration(page, 1, 1)
    page.set_input_files(".st-key-open_run input[type=file]", str(saved))
    page.get_by_text("Opened from a file").wait_for()
    shows_iteration(page, 1, 1)
    no_stack_trace(page)


@pytest.mark.slow
def test_reload_keeps_prompt_and_method(open_page):
    page = open_page("/step_through?method=Linear+chain")
    page.locator(".st-key-method_open").get_by_text("Linear chain").wait_for()
    page.reload()
    settled(page)
    page.locator(".st-key-method_open").get_by_text("Linear chain").wait_for()


def test_nothing_leaves_the_machine(open_page):
    page = open_page("/")
    asked = []
    page.on("request", lambda request: asked.append(request.url))
    for path in ("/", "/step_through"):
        page.goto(page.url.split("/")[0] + "//" + page.url.split("/")[2] + path)
        settled(page)
        page.wait_for_timeout(500)
    assert asked
    assert [url for url in asked if not url.startswith(("http://127.0.0.1", "data:", "blob:"))] == []


@pytest.mark.slow
def test_sampling_and_prompt_go_along_to_other_pages(open_page):
    page = open_page("/step_through")
    page.get_by_role("link", name="Tune live").first.click()
    expect(page.locator(".st-key-sampling_draft_temperature input[type=range]").first).to_have_value("1")
    page.get_by_role("link", name="Compare").first.click()
    page.click(".st-key-compare_prompt_open button")
    expect(page.locator(".st-key-prompt_text textarea")).not_to_have_value("")


@pytest.mark.slow
def test_a_text_that_was_typed_stays_the_prompt_while_the_run_goes_on(open_page):
    page = open_page("/step_through")
    prompt = page.locator(".st-key-prompt_open button").first
    prompt.click()
    start = page.locator(".st-key-start button").first
    before = start.bounding_box()["x"]
    page.locator(".st-key-prompt_text textarea").first.fill("The old man looked at the boats.")
    start.click()
    page.get_by_role("button", name="Step", exact=True).first.wait_for()
    for _ in range(3):
        page.get_by_role("button", name="Step", exact=True).first.click()
        page.wait_for_timeout(300)
        page.wait_for_selector(SETTLED)
        assert "Own text" in prompt.inner_text()
    assert start.bounding_box()["x"] == before


@pytest.mark.slow
def test_the_card_asks_which_setting_would_have_included_it_and_shows_the_answer(open_page):
    page = open_page("/step_through?recorded=home&iteration=1&node=10")
    expect(page.locator(".strip .axis").first).to_contain_text("tokens")
    page.locator(".card .asks").click()
    answer = page.locator(".st-key-why").get_by_text("Smallest changes that include it")
    expect(answer).to_be_visible()
    expect(answer).to_be_in_viewport()


@pytest.mark.slow
def test_a_method_set_beside_its_closed_settings_stays(open_page):
    page = open_page("/step_through")
    page.wait_for_selector(f"{ROOT_ELEMENT}[data-drawn-scene]")
    method = page.locator(".st-key-method_open button").first
    method.click()
    page.locator(f"{POPOVER} .st-key-settings_panel").wait_for()
    page.wait_for_timeout(300)
    settled(page)
    close_popover(page)
    page.wait_for_timeout(300)
    settled(page)
    page.get_by_role("button", name="Paper's default").click()
    expect(method.locator("p")).to_have_text("DynaTree")
    page.wait_for_timeout(1000)  # the browser has forgotten or kept what it held by then
    settled(page)
    page.locator(".st-key-prompt_open button").first.click()
    length = page.locator(".st-key-max_new_tokens input")
    page.wait_for_timeout(1000)
    length.fill("20")
    length.press("Enter")
    page.wait_for_timeout(1000)
    settled(page)
    page.locator(".st-key-start button").first.click()
    expect(page.get_by_text(re.compile("of 20 tokens"))).to_be_visible()
    expect(method.locator("p")).to_have_text("DynaTree")
    method.click()
    toggle = page.locator(".st-key-method_dynatree_branch_first_level input")
    expect(toggle).not_to_be_checked()
    no_stack_trace(page)


@pytest.mark.slow
def test_settings_keep_the_focus_while_they_are_open_and_their_button_tells_them_then(open_page):
    page = open_page("/step_through")
    page.wait_for_selector(f"{ROOT_ELEMENT}[data-drawn-scene]")
    method = page.locator(".st-key-method_open button").first
    before = method.inner_text()
    method.click()
    slider = page.locator(f"{POPOVER} .st-key-sampling_temperature input[type=range]")
    slider.wait_for()
    settled(page)
    start = float(slider.input_value())
    for presses in (1, 2, 3):
        page.keyboard.press("ArrowRight") if presses > 1 else slider.press("ArrowRight")
        expect(slider).to_have_value(f"{start + 0.05 * presses:g}")
        page.wait_for_timeout(1000)  # what is drawn anew loses the focus, or closes
        settled(page)
    close_popover(page)
    expect(method).not_to_have_text(before)
    expect(page.locator(POPOVER)).to_have_count(0)


@pytest.mark.slow
def test_the_newest_tokens_stay_in_view_beside_the_settings(open_page):
    page = open_page("/step_through?recorded=home&iteration=20")
    page.wait_for_selector(f"{ROOT_ELEMENT}[data-drawn-scene]")
    newest = page.locator(".text .body .t.now").last
    expect(newest).to_be_in_viewport()
    page.locator(".st-key-method_open button").first.click()
    page.locator(f"{POPOVER} .st-key-settings_panel").wait_for()
    page.wait_for_timeout(500)
    box, panel = newest.bounding_box(), page.locator(".text .body").bounding_box()
    assert panel["width"] < 250, "the panels have made room"
    assert panel["y"] <= box["y"] and box["y"] + box["height"] <= panel["y"] + panel["height"] + 1
    whole = "each => each.scrollWidth <= each.clientWidth + 1"
    for part in (".strip .end span", ".tree .note", ".mask .orders", ".mask > header"):
        assert page.locator(part).last.evaluate(whole), part


@pytest.mark.slow
def test_an_answer_about_a_token_that_is_not_drafted_appears_where_it_was_asked_for(open_page):
    page = open_page("/step_through?recorded=home&iteration=1&node=1")
    chip = page.locator("[class*=st-key-why_absent] button").first
    chip.scroll_into_view_if_needed()
    place = "() => document.querySelector('[data-testid=stMain]').scrollTop"
    before = page.evaluate(place)
    assert before > 0
    chip.click()
    expect(page.locator(".st-key-why .why").get_by_text("not in the draft tree")).to_be_in_viewport()
    settled(page)
    assert page.evaluate(place) == before


WITH_SLOW = """() => {
  const bar = document.querySelector(".st-key-toolbar");
  const child = (key) => [...bar.children].find((each) => each.matches(key) || each.querySelector(key));
  const slow = child(".st-key-slow_open");
  if (slow) return slow.remove();
  const file = child(".st-key-file_open"), copy = file.cloneNode(true);
  for (const each of [copy, ...copy.querySelectorAll("*")])
    each.classList?.replace("st-key-file_open", "st-key-slow_open");
  copy.querySelector("p").textContent = "Slow";
  file.before(copy);
}"""


@pytest.mark.slow
def test_no_button_of_the_toolbar_moves_when_the_end_is_reached_or_a_warning_appears(started):
    page = started
    keys = ("start", "one_more", "to_end", "what_if_from_here", "fastest", "file_open")

    def places() -> list[float]:
        return [page.locator(f".st-key-{key} button").first.bounding_box()["x"] for key in keys]

    before = places()
    page.get_by_role("button", name="To the end").first.click()
    page.locator(".st-key-status").get_by_text(re.compile("length limit|end of text")).wait_for()
    settled(page)
    assert places() == pytest.approx(before, abs=2)
    page.evaluate(WITH_SLOW)  # there is one now, unless there was one
    assert places() == pytest.approx(before, abs=2)

"""The linked scope in a real browser: it steps without Python, links its views, compares, and saves its picture."""

import re

import pytest

from decoding.trace_file import save_run
from tests import traces
from tests.browser.app import SETTLED

SCOPE = ".ds-root"


def scene(page) -> str:
    return page.locator(SCOPE).get_attribute("data-drawn-scene").split(":")[1]


def value(page, name: str) -> str:
    return page.locator(SCOPE).get_attribute(f"data-{name}") or ""


def press(page, *keys: str) -> None:
    for key in keys:
        page.keyboard.press(key)
    page.wait_for_timeout(60)


@pytest.fixture
def shown(open_page):
    """Step through with the recorded run, the scope in focus at its first iteration."""
    page = open_page("/step_through")
    page.wait_for_selector(f"{SCOPE}[data-drawn-scene]")
    page.locator(SCOPE).focus()
    press(page, "Home")
    return page


@pytest.fixture
def big(open_page, tmp_path):
    """A run of three trees of 1,024 nodes, opened from a file."""
    path = tmp_path / "big.dscope"
    save_run(traces.run_of([traces.big(1024, seed) for seed in range(3)]), path)
    page = open_page("/step_through")
    page.click(".st-key-file_open button")
    page.set_input_files(".st-key-open_run input[type=file]", str(path))
    page.get_by_text("Opened from a file").wait_for()
    page.wait_for_selector(SETTLED)
    page.keyboard.press("Escape")
    page.wait_for_selector(f"{SCOPE} .legend-item")
    return page


def test_iterations_are_stepped_without_a_word_to_python_until_it_rests(shown):
    page = shown
    page.wait_for_timeout(600)
    page.wait_for_selector(SETTLED)
    frames = []
    # Streamlit marks a running script on the app element: none may run between the keys and the drawn scene.
    page.evaluate(
        """() => { window.ran = 0; new MutationObserver((all) => all.forEach(() => { window.ran += 1; })).observe(
            document.querySelector('[data-testid=stApp]'), {attributeFilter: ['data-test-script-state']}); }"""
    )
    for step in range(1, 5):
        page.keyboard.press("ArrowDown")
        frames.append((scene_after_frame(page), page.evaluate("window.ran")))
        assert frames[-1][0] == str(step)
    assert frames[0][1] == 0, "the first step was drawn before any script ran"
    page.wait_for_function("window.ran > 0", timeout=30_000)  # where it came to rest is reported
    page.wait_for_selector(SETTLED)
    assert scene(page) == "4"


def scene_after_frame(page) -> str:
    page.evaluate("() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")
    return scene(page)


def test_a_late_answer_does_not_throw_the_browser_back(shown):
    page = shown
    press(page, "ArrowDown", "ArrowDown")
    page.wait_for_timeout(200)  # reported: Python is at work on iteration 2 now
    press(page, *["ArrowDown"] * 6)
    page.wait_for_timeout(150)
    page.wait_for_selector(SETTLED)
    assert scene(page) == "8"
    page.wait_for_timeout(500)
    page.wait_for_selector(SETTLED)
    assert scene(page) == "8"


def test_the_iteration_survives_another_page(shown):
    page = shown
    press(page, *["ArrowDown"] * 3)
    page.wait_for_timeout(400)
    page.wait_for_selector(SETTLED)
    page.get_by_role("link", name="Home").first.click()
    page.get_by_text("tree speculative decoding").first.wait_for()
    page.get_by_role("link", name="Step through").first.click()
    page.wait_for_selector(f"{SCOPE}.ds-scope[data-drawn-scene]")
    page.get_by_text(re.compile("iteration 4 of")).wait_for()


def test_playing_goes_on_into_the_next_iteration(shown):
    page = shown
    press(page, "]", " ")
    page.wait_for_function(
        """() => { const find = (node) => { for (const child of node.querySelectorAll('*')) {
            if (child.classList.contains('ds-root')) return child;
            const inner = child.shadowRoot && find(child.shadowRoot); if (inner) return inner; } };
            return find(document).dataset.drawnScene.endsWith(':1'); }""",
        timeout=5000,
    )
    assert value(page, "phase").startswith("draft")
    press(page, " ")
    assert page.locator(SCOPE).get_attribute("data-playing") is None


def test_pointing_at_a_mask_cell_says_why_and_lights_both_nodes(shown):
    page = shown
    box = page.locator(f"{SCOPE} .mask canvas").bounding_box()
    rows = int(page.locator(f"{SCOPE} .mask-svg").get_attribute("aria-label").split(" x ")[0])
    cell = box["width"] / rows
    page.mouse.move(box["x"] + 0.5 * cell, box["y"] + 1.5 * cell)
    words = page.locator(f"{SCOPE} .mask footer")
    assert words.inner_text() == "1 sees 0: ancestor"
    assert page.locator(f"{SCOPE} .tree g.n[data-node='1'].lit").count() == 1
    assert page.locator(f"{SCOPE} .tree g.n[data-node='0'].lit-too").count() == 1
    page.mouse.move(box["x"] + 1.5 * cell, box["y"] + 0.5 * cell)
    assert words.inner_text() == "0 does not see 1: its descendant"
    page.mouse.move(box["x"] + 2.5 * cell, box["y"] + 2.5 * cell)
    assert words.inner_text() == "2 sees itself"
    page.locator(f"{SCOPE} .order").nth(1).click()
    assert page.locator(f"{SCOPE} .order").nth(1).get_attribute("aria-pressed") == "true"


def test_two_nodes_are_compared_and_escape_lets_go(shown):
    page = shown
    page.locator(f"{SCOPE} .tree g.n[data-node='1'] .hit").click()
    page.locator(f"{SCOPE} .tree g.n[data-node='2'] .hit").click(modifiers=["Shift"])
    assert (value(page, "selected"), value(page, "second")) == ("1", "2")
    told = page.locator(f"{SCOPE} .compare").inner_text()
    assert "node 1" in told and "node 2" in told and "difference" in told
    assert page.locator(f"{SCOPE} .kv-cell.second").count() >= 1
    press(page, "Escape")
    assert (value(page, "selected"), value(page, "second")) == ("1", "")
    press(page, "Escape")
    assert value(page, "selected") == ""


def test_the_bars_hold_every_node_and_open_the_place_of_a_hidden_one(big):
    page = big
    page.locator(f"{SCOPE} .tool", has_text="all 1,024").click()
    bars = page.locator(f"{SCOPE} canvas.bars")
    box = bars.bounding_box()
    drawn = {int(mark.get_attribute("data-node")) for mark in page.locator(f"{SCOPE} .tree g.n").all()}
    hidden = None
    for share in range(10, 95):
        page.mouse.move(box["x"] + 0.93 * box["width"], box["y"] + box["height"] * share / 100)
        found = value(page, "hovered")
        if found and int(found) not in drawn:
            hidden = found
            break
    assert hidden, "the last column has nodes that the tree folds"
    page.mouse.down()
    page.mouse.up()
    page.locator(f"{SCOPE}[data-selected='{hidden}']").wait_for()
    assert page.locator(f"{SCOPE} .tree g.n[data-node='{hidden}']").count() == 1


def test_the_picture_stands_alone(shown, tmp_path):
    page = shown
    with page.expect_download() as download:
        page.locator(f"{SCOPE} .tool", has_text="svg").click()
    download.value.save_as(tmp_path / "tree.svg")
    text = (tmp_path / "tree.svg").read_text()
    assert text.startswith("<svg") and "iteration 1" in text and "accepted" in text
    assert "var(--" not in text and "class=" not in text and "stroke-width" in text
    with page.expect_download() as download:
        page.locator(f"{SCOPE} .tool", has_text="png").click()
    download.value.save_as(tmp_path / "tree.png")
    assert (tmp_path / "tree.png").read_bytes()[:4] == b"\x89PNG"


def test_many_iterations_come_in_windows(open_page, tmp_path):
    path = tmp_path / "long.dscope"
    trees = [traces.big(300, seed) for seed in range(3)]
    save_run(traces.run_of([trees[place % 3] for place in range(12)]), path)
    page = open_page("/step_through")
    page.click(".st-key-file_open button")
    page.set_input_files(".st-key-open_run input[type=file]", str(path))
    page.get_by_text("Opened from a file").wait_for()
    page.wait_for_selector(SETTLED)
    page.keyboard.press("Escape")
    page.locator(SCOPE).focus()
    press(page, "End")
    page.get_by_text("iteration 12 of 12").wait_for()
    press(page, *["ArrowUp"] * 7)
    page.get_by_text("iteration 5 of 12").wait_for()
    page.wait_for_timeout(300)
    page.wait_for_selector(SETTLED)
    assert scene(page) == "4"

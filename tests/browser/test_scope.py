"""The linked scope in a real browser: it steps without Python, links its views, compares, and saves its picture."""

import re
from dataclasses import replace

import pytest

from benchmarks.browser_app import SETTLED
from decoding.recorded import recorded_run
from decoding.trace.run_file import save_run
from tests.helpers import traces

SCOPE = ".ds-root"
# What a scope says and marks, whatever fractions of a pixel it stands at.
SAID = """root => JSON.stringify([root, ...root.querySelectorAll("*")].map(each => [
    each.localName, [...each.classList].sort(), each.dataset, each.ariaPressed, each.disabled,
    each.matches(".world") && each.getAttribute("transform"), each.children.length ? "" : each.textContent]))"""


def scene(page) -> str:
    return page.locator(SCOPE).get_attribute("data-drawn-scene").split(":")[1]


def value(page, name: str) -> str:
    return page.locator(SCOPE).get_attribute(f"data-{name}") or ""


def press(page, *keys: str) -> None:
    for key in keys:
        page.keyboard.press(key)
    page.wait_for_timeout(60)


@pytest.fixture(scope="module")
def kept() -> dict:
    """The page of this file that tests look at one after the other, and what its scope is like at first."""
    return {}


@pytest.fixture
def shown(open_kept, kept: dict):
    """Step through with the recorded run, the scope in focus at its first iteration.

    A page that does not come back to exactly that after a test is given up for another one.
    """
    if kept and let_go(kept["page"], kept["phase"], kept["selected"]) == kept["drawn"]:
        return kept["page"]
    if kept:
        kept["page"].close()
    page = open_kept("/step_through")
    page.wait_for_selector(f"{SCOPE}[data-drawn-scene]")
    page.locator(SCOPE).focus()
    press(page, "Home")
    kept.update(page=page, phase=value(page, "phase"), selected=value(page, "selected"))
    kept["drawn"] = let_go(page, kept["phase"], kept["selected"])
    return page


def let_go(page, phase: str, selected: str) -> str:
    """Back to the first iteration, a phase and a node, with nothing pointed at; what the scope is like then."""
    page.mouse.move(0, 0)
    page.locator(f"{SCOPE} .order").first.click()
    page.locator(SCOPE).focus()
    press(page, "Escape", "Escape", "Escape", "Home", "0", "[")
    page.wait_for_timeout(150)  # where it came to rest is reported by then
    page.wait_for_selector(SETTLED)
    for _ in range(20):
        if value(page, "phase") == phase:
            break
        press(page, "ArrowRight")
    page.locator(f"{SCOPE} .tree g.n[data-node='{selected}'] .hit").click()
    page.mouse.move(0, 0)
    page.locator(SCOPE).focus()
    page.wait_for_timeout(60)
    return page.locator(SCOPE).evaluate(SAID)


def open_file(page, path) -> None:
    """Open a saved run on Step through, and close the panel of the file again."""
    page.click(".st-key-file_open button")
    page.set_input_files(".st-key-open_run input[type=file]", str(path))
    page.get_by_text("Opened from a file").wait_for()
    page.wait_for_selector(SETTLED)
    page.keyboard.press("Escape")


@pytest.fixture
def big(open_page, tmp_path):
    """A run of three trees of 1,024 nodes, opened from a file."""
    path = tmp_path / "big.dscope"
    save_run(traces.run_of([traces.big(1024, seed) for seed in range(3)]), path)
    page = open_page("/step_through")
    open_file(page, path)
    page.wait_for_selector(f"{SCOPE} .legend-item")
    return page


def test_iterations_are_stepped_without_a_word_to_python_until_it_rests(shown):
    page = shown
    # Streamlit marks a running script on the app element: none may run between the keys and the drawn scene.
    page.evaluate(
        """() => { window.last = performance.now(); window.ran = 0;
            new MutationObserver(() => { window.last = performance.now(); window.ran += 1; }).observe(
                document.querySelector('[data-testid=stApp]'), {attributeFilter: ['data-test-script-state']}); }"""
    )
    page.wait_for_function("performance.now() - window.last > 1000")  # what opened the page has been answered
    page.wait_for_selector(SETTLED)
    page.evaluate("window.ran = 0")
    frames = []
    for step in range(1, 5):
        page.keyboard.press("ArrowDown")
        frames.append((scene_after_frame(page), page.evaluate("window.ran")))
        assert frames[-1][0] == str(step)
    assert frames[0][1] == 0, "the first step was drawn before any script ran"
    page.wait_for_function("window.ran > 0")  # where it came to rest is reported
    page.wait_for_selector(SETTLED)
    assert scene(page) == "4"


def scene_after_frame(page) -> str:
    page.evaluate("() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")
    return scene(page)


@pytest.mark.slow
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


# Keys and a click that come faster than the browser reports where it rests.
AT_ONCE = """(root, [keys, node]) => { for (const key of keys) {
    root.dispatchEvent(new KeyboardEvent("keydown", {key, bubbles: true, composed: true}));
    if (key === "Home") root.querySelector(`.tree g.n[data-node='${node}'] .hit`).dispatchEvent(
        new MouseEvent("click", {bubbles: true})); } }"""


@pytest.mark.slow
def test_an_iteration_that_was_reported_before_is_reported_again(shown):
    page = shown
    press(page, *["ArrowDown"] * 3)
    page.wait_for_url("**iteration=4**")
    # The click tells Python of the first iteration; the browser is back before it reports for itself.
    page.locator(SCOPE).evaluate(AT_ONCE, [["Home", *["ArrowDown"] * 3], 0])
    page.wait_for_timeout(600)
    page.wait_for_selector(SETTLED)
    assert scene(page) == "3"
    page.wait_for_url("**iteration=4**")


@pytest.mark.slow
def test_what_is_pressed_next_comes_after_the_report_of_the_iteration(shown):
    page = shown
    link = page.get_by_role("link", name="Home").first.element_handle()
    page.locator(SCOPE).evaluate(
        """(root, link) => {
        for (let times = 0; times < 3; times++) root.dispatchEvent(
            new KeyboardEvent("keydown", {key: "ArrowDown", bubbles: true, composed: true}));
        link.dispatchEvent(new PointerEvent("pointerdown", {bubbles: true, composed: true}));
        link.click(); }""",
        link,
    )
    page.get_by_text("tree speculative decoding").first.wait_for()
    page.get_by_role("link", name="Step through").first.click()
    page.locator(SCOPE).get_by_text(re.compile("iteration 4 of")).wait_for()


@pytest.mark.slow
def test_iteration_and_zoom_survive_another_page(shown):
    page = shown
    press(page, *["ArrowDown"] * 3, "+", "+")
    page.wait_for_timeout(400)
    page.wait_for_selector(SETTLED)
    zoomed = page.locator(f"{SCOPE} .world").get_attribute("transform")
    page.get_by_role("link", name="Home").first.click()
    page.get_by_text("tree speculative decoding").first.wait_for()
    page.get_by_role("link", name="Step through").first.click()
    page.wait_for_selector(f"{SCOPE}.ds-scope[data-drawn-scene]")
    page.locator(SCOPE).get_by_text(re.compile("iteration 4 of")).wait_for()
    assert page.locator(f"{SCOPE} .world").get_attribute("transform") == zoomed


@pytest.mark.slow
def test_a_phase_that_the_next_iteration_lacks_becomes_verify(open_page, tmp_path):
    first, second, *_ = recorded_run("history").iterations
    save_run(traces.run_of([first, replace(second, history=None)]), tmp_path / "adapts.dscope")
    page = open_page("/step_through")
    open_file(page, tmp_path / "adapts.dscope")
    page.locator(SCOPE).focus()
    press(page, "Home")
    for _ in first.nodes:
        if value(page, "phase") != "history":
            press(page, "ArrowRight")
    assert (scene(page), value(page, "phase")) == ("0", "history")
    press(page, "ArrowDown")
    assert (scene(page), value(page, "phase")) == ("1", "verify")


@pytest.mark.slow
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


@pytest.mark.slow
def test_pointing_at_a_mask_cell_says_why_and_lights_both_nodes(shown):
    page = shown
    box = page.locator(f"{SCOPE} .mask canvas").bounding_box()
    rows = int(page.locator(f"{SCOPE} .mask-svg").get_attribute("aria-label").split(" x ")[0])
    cell = box["width"] / rows
    page.mouse.move(box["x"] + 0.5 * cell, box["y"] + 1.5 * cell)
    words = page.locator(f"{SCOPE} .mask footer")
    assert words.inner_text() == "1 attends to 0: ancestor"
    assert page.locator(f"{SCOPE} .tree g.n[data-node='1'].lit").count() == 1
    assert page.locator(f"{SCOPE} .tree g.n[data-node='0'].lit-too").count() == 1
    page.mouse.move(box["x"] + 1.5 * cell, box["y"] + 0.5 * cell)
    assert words.inner_text() == "0 does not attend to 1: its descendant"
    page.mouse.move(box["x"] + 2.5 * cell, box["y"] + 2.5 * cell)
    third = recorded_run("home").iterations[0].flatten_order[2]
    assert words.inner_text() == f"{third} attends to itself"
    page.locator(f"{SCOPE} .order").nth(1).click()
    assert page.locator(f"{SCOPE} .order").nth(1).get_attribute("aria-pressed") == "true"


@pytest.mark.slow
def test_what_is_drawn_anew_below_a_pointer_at_rest_is_not_pointed_at(shown):
    page = shown
    iterations = recorded_run("home").iterations
    index = next(i for i, each in enumerate(iterations) if each.final_kind == "fallback")
    press(page, *["ArrowDown"] * index)
    page.locator(f"{SCOPE} .tree g.n[data-node='0'] .hit").click()
    page.locator(f"{SCOPE} .card button.name[data-node='-2']").click()
    page.wait_for_timeout(300)  # the browser looks what is below the pointer once it has drawn
    assert (value(page, "selected"), value(page, "hovered")) == ("-2", "-2")
    assert page.locator(f"{SCOPE} .mask .lit-row").count() == 0


@pytest.mark.slow
def test_two_nodes_are_compared_and_escape_lets_go(shown):
    page = shown
    page.locator(f"{SCOPE} .tree g.n[data-node='1'] .hit").click()
    third = recorded_run("home").iterations[0].flatten_order[2]
    page.locator(f"{SCOPE} .tree g.n[data-node='{third}'] .hit").click(modifiers=["Shift"])
    assert (value(page, "selected"), value(page, "second")) == ("1", str(third))
    reported = page.locator(f"{SCOPE} .compare").inner_text()
    assert "node 1" in reported and f"node {third}" in reported and "difference" in reported
    assert page.locator(f"{SCOPE} .kv-cell.second").count() >= 1
    press(page, "Escape")
    assert (value(page, "selected"), value(page, "second")) == ("1", "")
    press(page, "Escape")
    assert value(page, "selected") == ""


@pytest.mark.slow
def test_two_nodes_are_compared_without_a_mouse(shown):
    page = shown
    press(page, "Shift+ArrowLeft")  # from the final token, which is in no row of the mask, to the node before it
    held = value(page, "selected")
    press(page, "Shift+Enter", "Shift+ArrowLeft")
    node = value(page, "selected")
    assert node != held and value(page, "second") == held
    assert "difference" in page.locator(f"{SCOPE} .compare").inner_text()
    # The two nodes are a row and a column of the mask.
    assert page.locator(f"{SCOPE} .mask footer").inner_text() == f"{node} does not attend to {held}: its descendant"
    press(page, "Escape")
    assert (value(page, "selected"), value(page, "second")) == (node, "")


@pytest.mark.slow
def test_a_button_keeps_the_focus_when_it_is_drawn_anew(shown):
    page = shown
    # The order that is pressed counts its blocks in a word more.
    told = "at.className + (at.children[0] ?? at).textContent"
    focused = f"root => {{ const at = root.getRootNode().activeElement; return {told} }}"
    for place in (".order[aria-pressed=false]", ".probs button.no-node:enabled"):
        button = page.locator(f"{SCOPE} {place}").first
        button.focus()
        before = page.locator(SCOPE).evaluate(focused)
        press(page, "Enter")
        assert page.locator(SCOPE).evaluate(focused) == before, place


@pytest.mark.slow
def test_the_marks_of_one_iteration_become_those_of_the_next(shown):
    page = shown
    marks = page.locator(f"{SCOPE} .tree g.n").element_handles()
    press(page, "ArrowDown", "ArrowUp", "ArrowDown")
    now = page.locator(f"{SCOPE} .tree g.n").count()
    assert [mark.evaluate("mark => mark.isConnected") for mark in marks[:2]] == [True, True]
    assert page.locator(f"{SCOPE} .tree .e").count() == now - 1
    assert page.locator(f"{SCOPE} .tree g.n.sel").count() == 1


@pytest.mark.slow
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


@pytest.mark.slow
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


@pytest.mark.slow
def test_many_iterations_come_in_windows(open_page, tmp_path):
    path = tmp_path / "long.dscope"
    trees = [traces.big(300, seed) for seed in range(3)]
    save_run(traces.run_of([trees[place % 3] for place in range(12)]), path)
    page = open_page("/step_through")
    open_file(page, path)
    page.locator(SCOPE).focus()
    press(page, "End")
    page.get_by_text("iteration 12 of 12").wait_for()
    press(page, *["ArrowUp"] * 7)
    page.get_by_text("iteration 5 of 12").wait_for()
    page.wait_for_timeout(300)
    page.wait_for_selector(SETTLED)
    assert scene(page) == "4"


@pytest.mark.slow
def test_the_keys_work_before_anything_is_clicked(open_page):
    page = open_page("/step_through")
    page.wait_for_selector(f"{SCOPE}[data-drawn-scene]")
    page.wait_for_selector(SETTLED)
    assert page.evaluate("document.activeElement === document.body")
    before, phase = int(scene(page)), value(page, "phase")
    press(page, "ArrowDown")
    assert int(scene(page)) == before + 1
    press(page, "ArrowUp", "ArrowRight")
    assert int(scene(page)) == before and value(page, "phase") != phase
    # Fields and open panels keep their own keys.
    page.click(".st-key-prompt_open button")
    page.locator("[data-testid=stPopoverBody] textarea, [data-testid=stPopoverBody] input").first.focus()
    press(page, "ArrowDown", "ArrowUp", "ArrowUp")
    assert int(scene(page)) == before
    page.mouse.click(1100, 72)  # beside it, on nothing: the panel closes
    page.locator("[data-testid=stPopoverBody]").wait_for(state="detached")
    page.mouse.move(640, 400)
    page.mouse.wheel(0, 5000)
    page.wait_for_timeout(300)
    press(page, "ArrowDown")
    assert int(scene(page)) == before, "out of view the keys scroll the page"


# Pairs of texts of different nodes that lie on one another, by more than the room a font keeps around its letters.
COVERED = """root => { const texts = [...root.querySelectorAll('.tree g.n:not(.quiet) text')].map(each =>
        ({node: each.parentNode, said: each.textContent, box: each.getBoundingClientRect()})).filter(e => e.box.width);
    return texts.flatMap((one, place) => texts.slice(place + 1).filter(({node, box}) => node !== one.node &&
        Math.min(box.right, one.box.right) - Math.max(box.left, one.box.left) > 1 &&
        Math.min(box.bottom, one.box.bottom) - Math.max(box.top, one.box.top) > 3).map(e => [one.said, e.said])) }"""


@pytest.mark.slow
def test_no_text_of_a_small_tree_lies_on_another(shown):
    page, sizes = shown, []
    for _ in range(12):
        sizes.append(page.locator(f"{SCOPE} .tree g.n .label").count())
        assert page.locator(SCOPE).evaluate(COVERED) == [], scene(page)
        press(page, "ArrowDown")
    assert max(sizes) > 10


@pytest.mark.slow
def test_root_and_accepted_path_are_in_view_where_the_tree_is_larger(open_page, tmp_path):
    path = tmp_path / "chain.dscope"
    words = [f" word{place}" for place in range(18)]
    verdicts = ["accepted"] * 9 + ["rejected"] + ["not_reached"] * 8
    specs = [traces.Spec(place, word, 0.5, 0.5, verdicts[place]) for place, word in enumerate(words)]
    save_run(traces.run_of([traces.iteration_of(specs, final=(9, " end", 0.4), final_kind="recovered")]), path)
    page = open_page("/step_through")
    open_file(page, path)
    stage = page.locator(f"{SCOPE} .stage").bounding_box()
    for node in (0, 9, -2):
        mark = page.locator(f"{SCOPE} .tree g.n[data-node='{node}'] .mk").bounding_box()
        assert stage["x"] <= mark["x"] and mark["x"] + mark["width"] <= stage["x"] + stage["width"], node
        assert stage["y"] <= mark["y"] and mark["y"] + mark["height"] <= stage["y"] + stage["height"], node


@pytest.mark.slow
def test_pointing_at_a_cache_row_says_what_became_of_it(shown):
    page = shown
    press(page, "]")
    page.locator(f"{SCOPE} .kv-line.written .kv-cell.kept").first.hover()
    reported = page.locator(f"{SCOPE} .kv footer").inner_text()
    assert re.fullmatch(r"slot \d+: node 0 .*, kept", reported)
    assert "no slot: " in page.locator(f"{SCOPE} .kv-line.after").first.inner_text()


@pytest.mark.slow
def test_the_card_and_the_caches_are_not_ahead_of_the_phase(open_page):
    from playwright.sync_api import expect

    page = open_page("/step_through?recorded=home&iteration=1")
    page.wait_for_selector(SETTLED)
    card, caches = page.locator(".card .side").first, page.locator(".kv-strip").first
    decided = page.locator(".kv-cell:is(.kept, .freed, [title*=freed])")
    page.locator(".step").first.click()
    expect(card).to_contain_text("drafted")
    assert "has not run yet" in page.locator(".card").first.inner_text()
    given = [float(each.lstrip("<")) for each in page.locator(".card .probs .left .value").all_inner_texts()[:-1]]
    assert len(given) > 3 and given == sorted(given, reverse=True)
    expect(page.locator(".tree footer .note")).to_contain_text(re.compile(r"^[0-9]+ of [0-9]+ nodes"))
    assert "kept" not in caches.inner_text()
    page.locator(".step", has_text="Verify").first.click()
    expect(page.locator(".tree footer .note")).to_contain_text(re.compile("^[0-9]+ nodes"))
    assert page.locator(".card .absent, .card .probs .right").count() > 0
    assert "kept" not in caches.inner_text() and decided.count() == 0
    page.locator(".step", has_text="Commit & KV").first.click()
    expect(caches).to_contain_text("kept")
    assert decided.count() > 0
    expect(card).to_contain_text("bonus")

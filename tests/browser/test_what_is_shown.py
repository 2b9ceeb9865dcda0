"""What a first Start shows, and that the page names what is on screen: in a real browser."""

import re
from urllib.parse import quote

import pytest
from playwright.sync_api import expect

from benchmarks.browser_app import SETTLED
from decoding.recorded import recorded_run
from decoding.trace.run_file import save_run
from tests.browser.test_scope import SCOPE, open_file
from tests.helpers import traces
from viz.explain.iteration import history_changes
from viz.learn.tour import ADAPTING
from viz.tokens import PIECE

pytestmark = pytest.mark.slow


def drawn(page) -> None:
    page.wait_for_selector(f"{SCOPE}[data-drawn-scene]")
    page.wait_for_selector(SETTLED)


def test_the_first_start_is_a_tree_and_a_changed_choice_is_marked_until_it_is_run(open_page):
    page = open_page("/step_through", fresh=True)
    drawn(page)
    pending = page.locator(".st-key-status").get_by_text("Not run yet: settings. Press Start.")
    expect(pending).to_have_count(0)
    page.click(".st-key-start button")
    page.locator(SCOPE).get_by_text(re.compile("iteration 1 of 1 ")).wait_for()
    page.wait_for_selector(SETTLED)
    for state in ("accepted", "rejected"):
        assert page.locator(f"{SCOPE} .tree .s-{state}").count() > 0
    expect(page.locator(".st-key-method_open")).to_contain_text("first level may branch")
    still = [page.locator(each).first for each in (SCOPE, ".st-key-start", ".st-key-fastest")]
    before = [each.bounding_box() for each in still]
    page.click(".st-key-method_other button")
    expect(page.locator(".st-key-method_open")).not_to_contain_text("first level may branch")
    expect(pending).to_be_visible()
    assert [each.bounding_box() for each in still] == before, "nothing moves"
    expect(page.locator(f"{SCOPE} .strip")).to_contain_text("first level may branch")
    page.click(".st-key-start button")
    expect(pending).to_have_count(0)
    page.click(".st-key-method_other button")
    expect(page.locator(".st-key-method_open")).to_contain_text("first level may branch")


def test_characters_of_another_script_are_whole(open_page):
    text = "سلام، 日本 🦊"
    page = open_page(f"/step_through?text={quote(text)}&max_new_tokens=4&iteration=1")
    page.locator(SCOPE).get_by_text(re.compile("iteration 1 of 1 ")).wait_for()
    shown = "".join(page.locator(f"{SCOPE} .t.p-prompt").all_inner_texts())
    assert shown.replace(PIECE, "").replace("·", " ").endswith(text)
    assert PIECE in shown


def test_the_strip_marks_the_iterations_after_which_history_changed_settings(open_page):
    page = open_page(f"/step_through?recorded={ADAPTING}")
    drawn(page)
    changes = [history_changes(iteration.history) for iteration in recorded_run(ADAPTING).iterations]
    columns = page.locator(f"{SCOPE} .strip .column")
    assert [columns.nth(place).locator(".moved").count() > 0 for place in range(len(changes))] == list(
        map(bool, changes)
    )
    place = next(place for place, each in enumerate(changes) if each)
    assert changes[place] in columns.nth(place).get_attribute("title")


def test_a_crowded_tree_uses_its_room_and_counts_the_labels_that_are_there(open_page, tmp_path):
    specs = [traces.Spec(0, f" w{place}", 0.1, 0.01, "rejected") for place in range(8)]
    specs += [traces.Spec(1, f" l{place}", 0.015, 0.01, "not_reached") for place in range(44)]
    specs += [traces.Spec(8 if place == 52 else place, " c", 0.9, 0.9, "not_reached") for place in range(52, 64)]
    trace = traces.iteration_of(specs, final=(0, " end", 0.4), final_kind="fallback")
    save_run(traces.run_of([trace]), tmp_path / "a.dscope")
    page = open_page("/step_through")
    open_file(page, tmp_path / "a.dscope")
    there = "marks => marks.filter(each => each.checkVisibility({visibilityProperty: true}) && each.textContent).length"
    first = page.locator(f"{SCOPE} .tree g.n:nth-child(n + 2):nth-child(-n + 9)")
    counted = set()
    for step in page.locator(f"{SCOPE} .step").all():
        step.click()
        assert first.locator(".label").evaluate_all(there) == first.locator(".detail").evaluate_all(there) == 8
        labels = page.locator(f"{SCOPE} .tree g.n:not([data-node='0'], [data-node='-2']) .label").evaluate_all(there)
        note = page.locator(f"{SCOPE} .tree .note").inner_text()
        said = re.search("([0-9]+) of ([0-9]+) labels", note)
        nodes = page.locator(f"{SCOPE} .tree g.n:not(.s-hidden, [data-node='0'], [data-node='-2'])").count()
        assert (labels, nodes) == ((int(said[1]), int(said[2])) if said else (nodes, nodes))
        counted.add(nodes)
    assert len(counted) > 3 and max(counted) == 64
    seen = "(lines, width) => lines.filter(each => Number(each.getAttribute('x1')) <= width).length"
    width = page.locator(f"{SCOPE} .tree-svg").bounding_box()["width"]
    heads = page.locator(f"{SCOPE} .heads text").all_inner_texts()
    assert len(heads) == page.locator(f"{SCOPE} .guides line").evaluate_all(seen, width) > 5


def test_every_caption_is_whole_and_what_is_below_stays_where_it_is(open_page):
    page = open_page("/step_through?recorded=home&iteration=1")
    page.wait_for_selector(f"{SCOPE}[data-drawn-scene]")
    page.set_viewport_size({"width": 600, "height": 800})
    heights, tops = set(), set()
    for step in page.locator(f"{SCOPE} .step").all():
        step.click()
        line, caption = (page.locator(f"{SCOPE} {each}").first.bounding_box() for each in (".caption-line", ".caption"))
        assert caption["y"] + caption["height"] <= line["y"] + line["height"] + 1
        heights.add(caption["height"])
        tops.add(page.locator(f"{SCOPE} .tree").bounding_box()["y"])
    assert len(heights) > 1 and max(heights) > 40 and len(tops) == 1, "they differ, and nothing moves"

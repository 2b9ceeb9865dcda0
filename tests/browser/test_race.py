"""The race in a real browser: replayed in its recorded time, by the keys, still where motion is unwelcome, recorded."""

import pytest
from playwright.sync_api import expect

from benchmarks.browser_app import SETTLED, close_popover
from decoding.recorded import race_runs
from pages.ui.race import recorded_race
from viz.race.data import partings, race_data, readable
from viz.race.lanes import lane_of

pytestmark = pytest.mark.slow

ROOT = ".race-root"


def texts(page) -> list[str]:
    return page.locator(f"{ROOT} .lane .text").all_text_contents()


def place(page) -> float:
    return float(page.locator(ROOT).get_attribute("data-at"))


@pytest.fixture
def race(open_page):
    """The page with the race that comes with the program, standing at its beginning with the focus on it."""
    page = open_page("/race")
    page.locator(ROOT).wait_for()
    page.wait_for_selector(SETTLED)
    page.locator(ROOT).focus()
    page.keyboard.press("Home")
    expect(page.locator(ROOT)).to_have_attribute("data-at", "0")
    return page


def test_the_replay_takes_the_recorded_time_and_ends_with_the_result(race):
    page = race
    longest_ms = 1e3 * max(run.iterations[-1].ended_s for run in race_runs())
    page.locator(ROOT).get_by_role("button", name="1/4 of real speed").click()
    took_ms = page.locator(ROOT).evaluate(
        """root => new Promise((resolve) => {
            root.querySelector(".play").click();
            const begun = performance.now();
            const look = () => {
                if (root.dataset.done === "true") resolve(performance.now() - begun);
                else requestAnimationFrame(look);
            };
            look();
        })"""
    )
    assert 4 * longest_ms - 20 <= took_ms <= 4 * longest_ms + 400
    assert page.locator(f"{ROOT} .headline").inner_text()
    assert page.locator(f"{ROOT} .lane.finished").count() == len(race_runs())
    shown = recorded_race()
    fastest = [lane["fastest"] for lane in race_data(shown.lanes, shown.key)["lanes"]]
    assert page.locator(f"{ROOT} .lane .place").count() == sum(fastest) <= 1


def test_keys_go_from_token_to_token_and_the_text_is_that_of_the_run(race):
    page, runs = race, race_runs()
    assert texts(page) == [""] * len(runs)
    assert page.locator(f"{ROOT} [role=status]").inner_text() == ""
    moments = sorted({iteration.ended_s for run in runs for iteration in run.iterations})
    for moment in moments[:5]:
        page.keyboard.press("ArrowRight")
        assert place(page) == pytest.approx(moment)
        for run, shown in zip(runs, texts(page), strict=True):
            there = [each for each in run.iterations if each.ended_s <= moment + 1e-9]
            assert shown == "".join(readable(text) for each in there for text in each.committed_texts)
    page.keyboard.press("ArrowLeft")
    assert place(page) == pytest.approx(moments[3])
    page.keyboard.press("End")
    assert texts(page) == [
        "".join(readable(text) for each in run.iterations for text in each.committed_texts) for run in runs
    ]
    page.locator(ROOT).get_by_role("button", name="By iteration").click()
    page.keyboard.press("Home")
    page.keyboard.press("ArrowRight")
    assert place(page) == 1
    assert [int(n) for n in page.locator(f"{ROOT} .lane").evaluate_all("all => all.map(e => e.dataset.tokens)")] == [
        len(run.iterations[0].committed_ids) for run in runs
    ]
    page.keyboard.press(" ")
    expect(page.locator(ROOT)).to_have_attribute("data-playing", "true")
    page.keyboard.press(" ")
    expect(page.locator(ROOT)).to_have_attribute("data-playing", "false")


def test_a_key_and_a_button_go_to_the_next_place_where_the_methods_part(race):
    page = race
    moments = partings([lane_of(run) for run in race_runs()])
    page.keyboard.press("n")
    assert place(page) == pytest.approx(moments["time"][0])
    page.locator(ROOT).get_by_role("button", name="Next place where the methods part").click()
    assert place(page) == pytest.approx(moments["time"][1])
    page.locator(ROOT).get_by_role("button", name="By iteration").click()
    page.locator(ROOT).focus()
    page.keyboard.press("End")
    page.keyboard.press("n")
    assert place(page) == moments["iteration"][0], "behind the last one it begins again"


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_it_stands_at_its_end_where_motion_is_unwelcome_and_fits_on_one_screen(open_page, scheme):
    page = open_page("/race", color_scheme=scheme)
    page.emulate_media(reduced_motion="reduce")
    page.reload()
    page.wait_for_selector(f"{ROOT}[data-done=true][data-playing=false]")
    box = page.locator(ROOT).bounding_box()
    assert box["x"] >= 0 and box["x"] + box["width"] <= 1280
    assert box["y"] >= 0 and box["y"] + box["height"] <= 800
    for part in (".headline", ".identity", ".why"):
        assert page.locator(f"{ROOT} {part}").is_visible()
    assert page.locator(f"{ROOT} .finish").evaluate("e => e.scrollHeight <= e.clientHeight + 1")


def test_a_race_of_ones_own_is_recorded_and_replayed(race):
    page = race
    page.locator(".st-key-race_plan_open button").first.click()
    for key, value in (("max_new_tokens", 16), ("race_repeats", 1), ("race_warmup", 0)):
        field = page.locator(f".st-key-{key} input")
        field.fill(str(value))
        field.press("Enter")
        page.wait_for_timeout(250)
        page.wait_for_selector(SETTLED)
    close_popover(page)
    page.locator(".st-key-race_start button").click()
    page.wait_for_selector(f"{ROOT}[data-race]:not([data-race=recorded])")
    page.wait_for_selector(SETTLED)
    assert page.locator(f"{ROOT} .lane").count() == 3
    page.locator(ROOT).focus()
    page.keyboard.press("End")
    assert len(set(texts(page))) == 1 and texts(page)[0]
    assert page.locator(f"{ROOT} .identity.same").count() == 1
    assert page.locator("[data-testid=stException]").count() == 0

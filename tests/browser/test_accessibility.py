"""No page has a serious or critical violation of accessibility rules, in the light and in the dark theme."""

import shutil
from collections.abc import Callable

import pytest

from benchmarks.browser_app import POPOVER, SETTLED, close_popover
from decoding.common.files import training_home
from decoding.experiments.experiment import experiments_home
from decoding.jobs.job import Status
from pages.ui import PAGES
from tests.browser.axe import axe_script, violations
from tests.browser.conftest import new_context
from tests.helpers.experiments import made_experiment
from tests.helpers.trainings import made_training

DIALOG = "[role=dialog]"
DRAWN = ".ds-root[data-drawn-scene]"
RACE = ".race-root"
# All that another theme changes.
COLOURS = ("color-contrast", "link-in-text-block")


def settle(page) -> None:
    page.wait_for_timeout(150)
    page.wait_for_selector(SETTLED)


def step_through(page, judge: Callable) -> None:
    """A run of one's own, every popover, the text of the views."""
    page.locator(DRAWN).first.wait_for()
    page.click(".st-key-start button")
    page.locator(".ds-root").get_by_text("iteration 1 of 1 ").wait_for()
    settle(page)
    page.click(".st-key-as_text summary")
    page.locator(".st-key-as_text li").first.wait_for()
    settle(page)
    judge("with a run, as text")
    for name in ("prompt_open", "method_open", "file_open", "numbers"):
        page.locator(f".st-key-{name} button, [class*=_{name}] button").first.click()
        page.locator(POPOVER).wait_for()
        settle(page)
        judge(name, POPOVER)
        close_popover(page)


def verifiers(page, judge: Callable) -> None:
    page.locator(".vt-row[data-name=nss]").wait_for()
    settle(page)
    judge("with a sampled run")


def tune_live(page, judge: Callable) -> None:
    page.locator(".tune-changes").get_by_text("median of").wait_for()
    settle(page)
    judge("measured")


def learn(page, judge: Callable) -> None:
    """Its views, one after the other, and a stop of the guided tour."""
    page.locator(".st-key-learn_view button").first.wait_for()
    views = page.locator(".st-key-learn_view button").all_inner_texts()
    for name in views:
        page.locator(".st-key-learn_view button", has_text=name).click()
        settle(page)
        judge(name)
    page.locator(".st-key-learn_view button", has_text=views[0]).click()
    page.click(".st-key-tour_start button")
    page.locator("[data-tour]").wait_for()
    page.locator(DRAWN).first.wait_for()
    settle(page)
    judge("first stop of the tour")


def home(page, judge: Callable) -> None:
    """The choice of a pair."""
    page.click(".st-key-pair_open button")
    page.locator(DIALOG).wait_for()
    settle(page)
    judge("choice of a pair", DIALOG)
    page.get_by_role("tab", name="Time per pass").click()
    page.locator(".pair-times").wait_for()
    judge("times of passes", DIALOG)
    page.get_by_role("tab", name="Acceptance doctor").click()
    page.click(".st-key-doctor_check button")
    page.locator(".st-key-doctor_rows").wait_for()
    settle(page)
    judge("what the doctor found", DIALOG)


def race(page, judge: Callable) -> None:
    """In the middle, where tokens have just appeared, and at the end."""
    page.locator(RACE).wait_for()
    settle(page)
    page.locator(RACE).focus()
    page.keyboard.press("Home")
    for _ in range(20):
        page.keyboard.press("ArrowRight")
    judge("lanes in the middle")
    page.locator(RACE).focus()
    page.keyboard.press("End")
    page.locator(f"{RACE}[data-done=true]").wait_for()
    judge("finished")


def compare(page, judge: Callable) -> None:
    """A small comparison: table, charts, outputs, trees, and what can be taken along."""
    page.locator(".st-key-compare_plan_open button").first.click()
    for key, value in (("max_new_tokens", 12), ("compare_repeats", 1), ("compare_warmup", 0)):
        field = page.locator(f".st-key-{key} input")
        field.fill(str(value))
        field.press("Enter")
        settle(page)
    close_popover(page)
    page.click(".st-key-compare_start button")
    page.locator(".ds-table").wait_for()
    settle(page)
    judge("overview")
    for name in ("Time", "Outputs", "Trees"):
        page.locator(".st-key-compare_view").get_by_text(name, exact=True).click()
        settle(page)
        judge(name)
    page.click(".st-key-compare_files button")
    page.locator(".st-key-compare_csv").wait_for()
    settle(page)
    judge("export", POPOVER)


def what_if(page, judge: Callable) -> None:
    """With a replayed branch, with a live one whose text is biased beside it."""
    page.locator(DRAWN).first.wait_for()
    page.locator(".bg-root[data-lanes='2']").wait_for()
    page.locator(".st-key-what_if_tree_a .n.s-rejected").first.click()
    page.click(".st-key-what_if_accept button:enabled")
    settle(page)
    judge("a replayed branch and a change to come")
    page.click(".st-key-what_if_fork button:enabled")
    page.locator(".bg-root[data-lanes='3']").wait_for()
    settle(page)
    judge("two branches")


def train(page, judge: Callable) -> None:
    """The form with all of its settings, a training that has stopped, and what it printed."""
    page.get_by_text("More settings").click()
    settle(page)
    judge("all settings")
    folder = made_training(training_home(), "stopped", Status("stopped", message="Stopped; resume continues it."))
    page.goto(page.url.split("?")[0] + "?run=stopped")
    page.locator(DRAWN).first.wait_for()
    settle(page)
    judge("a training")
    page.click(".st-key-train_output button")
    page.locator(POPOVER).wait_for()
    settle(page)
    judge("its output", POPOVER)
    folder.delete()


def papers(page, judge: Callable) -> None:
    """A table and a figure with what is claimed of them, and the numbers of a chart."""
    page.locator(".papers-claims").wait_for()
    settle(page)
    judge("a table")
    page.click(".st-key-papers_figure_described [data-testid=stPopover] button")
    page.locator(POPOVER).wait_for()
    settle(page)
    judge("numbers of its chart", POPOVER)
    page.goto(page.url.split("?")[0] + "?exhibit=pruned/table-6")
    page.locator(".papers-claims").wait_for()
    settle(page)
    judge("a figure")


def sweep(page, judge: Callable) -> None:
    """The form, then an experiment: its table of ways, every chart, the runs behind one of them."""
    page.goto(page.url.split("?")[0] + "?experiment=new")
    page.locator(".st-key-sweep_start button:enabled").first.wait_for()
    settle(page)
    judge("the form")
    folder = made_experiment(experiments_home(), "made-for-a-test")
    page.goto(page.url.split("?")[0] + f"?experiment={folder.name}")
    page.locator(".st-key-sweep_part_best").wait_for()
    settle(page)
    for number in range(page.locator(".st-key-sweep_chart_panel button[role=radio]").count()):
        page.locator(".st-key-sweep_chart_panel button[role=radio]").nth(number).click()
        settle(page)
        judge(f"chart {number + 1}")
    page.click(".st-key-sweep_numbers button")
    page.locator(POPOVER).wait_for()
    settle(page)
    judge("numbers of its chart", POPOVER)
    shutil.rmtree(folder)


def your_engine(page, judge: Callable) -> None:
    """The example, what pays, and what is said of something foreign."""
    page.get_by_text("One figure, many names").click()
    page.locator(".engine-names").first.wait_for()
    settle(page)
    judge("an example")
    page.locator(".st-key-engine_view").get_by_text("What pays at your batch").click()
    page.locator(".engine-names").first.wait_for()
    settle(page)
    judge("what pays")
    page.fill(".st-key-engine_text textarea", "the weather is fine")
    page.press(".st-key-engine_text textarea", "Control+Enter")
    page.locator("[data-testid=stAlertContentError]").first.wait_for()
    settle(page)
    judge("foreign words")


# What is done on a page, and in which states it is judged.
JOURNEYS = {
    "Home": home,
    "Learn": learn,
    "Step through": step_through,
    "What if": what_if,
    "Tune live": tune_live,
    "Verifiers": verifiers,
    "Compare": compare,
    "Race": race,
    "Train": train,
    "Sweep": sweep,
    "Papers": papers,
    "Your engine": your_engine,
}


def visit(page, app_server: str, title: str) -> None:
    """Go to a page by its title in the menu."""
    path = PAGES[title]
    page.goto(app_server + ("/" if title == "Home" else f"/{path.removeprefix('pages/').removesuffix('.py')}"))
    settle(page)


@pytest.mark.slow
def test_no_grave_violation_in_any_state_of_a_page(browser, app_server):
    found = []
    context = new_context(browser, color_scheme="light", bypass_csp=True)
    context.add_init_script(axe_script())
    page = context.new_page()
    for title, journey in JOURNEYS.items():
        visit(page, app_server, title)

        def judge(state: str, within: str | None = None, title: str = title) -> None:
            found.extend(violations(page, f"{title}, {state}, light", within))
            page.emulate_media(color_scheme="dark")
            page.wait_for_timeout(300)  # until the page that is drawn in the dark has begun
            settle(page)
            found.extend(violations(page, f"{title}, {state}, dark", within, COLOURS))
            page.emulate_media(color_scheme="light")
            settle(page)

        judge("as it opens")
        journey(page, judge)
    context.close()
    assert not found, "\n".join(map(str, found))


def test_every_page_has_a_journey():
    assert set(JOURNEYS) == set(PAGES)


def test_a_violation_is_found_also_inside_a_component(browser):
    """The judge itself: a nameless button and pale words, in the page and in a shadow root."""
    context = new_context(browser, bypass_csp=True)
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

"""Forks in a real browser: from the click on Fork to the frame that shows the other tree."""

from urllib.parse import urlencode

from benchmarks.answer_times import FULL_TREE
from benchmarks.browser_app import SETTLED
from benchmarks.browser_clock import open_page, timed

TREES = [f".st-key-what_if_tree_{side} .ds-root[data-drawn-scene]" for side in "ab"]
KIND_OF_B = ".st-key-what_if_history li.row.b .kind"
WAIT_MS = 60_000


def measure_forks(browser, url: str, nodes: int, repeats: int, live: bool) -> list[float]:
    """Milliseconds of forks in which a rejected node of a tree of `nodes` nodes is forced to pass.

    The run is decoded by the app, so that its rows are there; `live` has the models run all the same.
    """
    page = open_run_of(browser, url, nodes)
    if live:
        page.locator(".st-key-what_if_live label").first.click()
        page.wait_for_selector(SETTLED)
    values = []
    for repeat in range(-1, repeats):  # the first fork of a session loads what later ones find there
        rejected = page.locator(f"{TREES[0]} .n.s-rejected .hit")
        # Marks of large trees lie on each other: the event goes to the node itself.
        rejected.nth((repeat + 1) % rejected.count()).dispatch_event("click")
        page.wait_for_timeout(400)
        page.wait_for_selector(SETTLED)
        page.locator(".st-key-what_if_accept button:enabled").first.click(timeout=WAIT_MS)
        fork = page.locator(".st-key-what_if_fork button:enabled").first
        fork.wait_for(timeout=WAIT_MS)
        fork.hover()
        page.wait_for_timeout(400)
        page.wait_for_selector(SETTLED)
        value = timed(page, fork.click)
        if repeat >= 0:
            values.append(value)
        page.locator(TREES[1]).wait_for(state="attached", timeout=WAIT_MS)
        page.wait_for_timeout(300)
        page.wait_for_selector(SETTLED)
        kind = page.locator(KIND_OF_B).inner_text()
        assert kind == ("live" if live else "replayed"), f"the fork was {kind}"
    page.context.close()
    return values


def open_run_of(browser, url: str, nodes: int):
    """What if, at an iteration of a run with trees of `nodes` nodes that the app has just decoded."""
    settings = {name: "on" if value is True else value for name, value in FULL_TREE.items()}
    settings |= {"method": "Fixed tree", "node_budget": nodes, "iteration": 3}
    page = open_page(browser, url, f"/step_through?{urlencode(settings)}")
    page.locator(".st-key-one_more button:enabled").first.wait_for(timeout=WAIT_MS)
    page.wait_for_selector(SETTLED)
    page.locator(".st-key-what_if_from_here button").first.click()
    page.locator(TREES[0]).first.wait_for(state="attached", timeout=WAIT_MS)
    page.wait_for_selector(SETTLED)
    return page

"""How fast the app answers in a real headless Chromium: from the input event to the frame that shows the answer.

The clock is the browser's: it starts at the key or mouse event and ends at the first animation frame in which the
scope carries the new state, so that the server, the wire, the layout and the drawing are all in it.
"""

import tempfile
import time
from pathlib import Path
from urllib.parse import urlencode

import numpy as np
import torch

from benchmarks.browser_app import NODE_PLACES, SETTLED, close_popover, launched_chromium, open_page, running_app, timed
from benchmarks.forks import FULL_TREE, SIZES, full_tree, goal_words, verdicts
from decoding.common.errors import run_main
from decoding.experiments.command import arguments, choose_prompts, goal_line, print_table, save_figures
from decoding.models.pair import embedded_pair
from decoding.session.session import DecodeSession, Limits
from decoding.trace.metrics import spread
from decoding.trace.run_file import save_run

TREES = [f".st-key-what_if_tree_{side} .ds-root[data-drawn-scene]" for side in "ab"]
KIND_OF_B = ".st-key-what_if_history li.row.b .kind"
WAIT_MS = 60_000


def measure_forks(browser, url: str, nodes: int, repeats: int, live: bool) -> list[float]:
    """Milliseconds of forks in which a rejected node of a tree of `nodes` nodes is forced to pass.

    The run is decoded by the app, so that its rows are there; `live` has the models run all the same.
    """
    settings = {name: "on" if value is True else value for name, value in FULL_TREE.items()}
    settings |= {"method": "Fixed tree", "node_budget": nodes, "iteration": 3}
    page = open_page(browser, url, f"/step_through?{urlencode(settings)}")
    page.locator(".st-key-one_more button:enabled").first.wait_for(timeout=WAIT_MS)
    page.wait_for_selector(SETTLED)
    page.locator(".st-key-what_if_from_here button").first.click()
    page.locator(TREES[0]).first.wait_for(state="attached", timeout=WAIT_MS)
    page.wait_for_selector(SETTLED)
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


# Steps over which the browser's heap is watched, and what it may grow by.
HEAP_STEPS = 200
HEAP_GOAL_MB = 20.0
HEAP_PARTS = ("usedSize", "embedderHeapUsedSize", "backingStorageSize")  # older browsers tell only the first


def run_file(folder: Path, nodes: int, prompt: str) -> Path:
    """A few iterations of a real run whose trees have `nodes` nodes, as a file to open in Step through."""
    pair = embedded_pair()
    session = DecodeSession(pair, full_tree(nodes), pair.vocabulary.encode(prompt), limits=Limits(max_new_tokens=200))
    for _ in range(4):
        if not session.finished:
            session.step()
    path = folder / f"{nodes}.dscope"
    save_run(session.trace(), path)
    return path


def open_run(browser, url: str, file: Path):
    """Step through with a run opened from a file."""
    page = open_page(browser, url, "/step_through")
    page.locator(".st-key-file_open button").first.click()
    page.locator(".st-key-open_run input[type=file]").set_input_files(str(file))
    page.wait_for_selector(f"text={file.stem}.dscope", timeout=30_000)
    page.wait_for_selector(SETTLED)
    close_popover(page)
    page.locator(".ds-root").first.wait_for()
    time.sleep(1.0)
    return page


def measure_step_through(browser, url: str, file: Path, repeats: int) -> dict[str, list[float]]:
    """Pointing at nodes, node clicks, phase steps and iteration steps on an opened run, and heap growth in MB."""
    page = open_run(browser, url, file)
    figures: dict[str, list[float]] = {"hover": [], "node click": [], "phase step": [], "iteration step": []}
    root = page.locator(".ds-root").first
    places = page.evaluate(NODE_PLACES)
    for repeat in range(repeats):
        x, y = places[repeat % len(places)]
        figures["hover"].append(timed(page, lambda x=x, y=y: page.mouse.move(x, y), ("pointermove",)))
    for repeat in range(repeats):
        x, y = places[repeat % len(places)]
        page.mouse.move(x, y)
        figures["node click"].append(timed(page, lambda x=x, y=y: page.mouse.click(x, y)))
    root.focus()
    for name, keys in (("phase step", ("ArrowLeft", "ArrowRight")), ("iteration step", ("ArrowDown", "ArrowUp"))):
        for repeat in range(repeats):
            figures[name].append(timed(page, lambda key=keys[repeat % 2]: page.keyboard.press(key)))
    figures["heap growth"] = [heap_growth(page, HEAP_STEPS)]
    page.context.close()
    return figures


def heap_growth(page, steps: int) -> float:
    """Megabytes that the page has gained after iteration steps back and forth, garbage collected before both.

    Counted are JavaScript's heap, the browser's own objects behind the page's elements, and array buffers.
    """
    client = page.context.new_cdp_session(page)

    def used_mb() -> float:
        page.wait_for_timeout(600)
        page.wait_for_selector(SETTLED)
        client.send("HeapProfiler.collectGarbage")
        usage = client.send("Runtime.getHeapUsage")
        return sum(usage.get(part, 0) for part in HEAP_PARTS) / 1e6

    def walk(count: int) -> None:
        for step in range(count):
            page.keyboard.press("ArrowDown" if step % 6 < 3 else "ArrowUp")

    walk(12)  # what is read once, such as the frames themselves, is no growth
    before = used_mb()
    walk(steps)
    return used_mb() - before


def slider_of(page, key: str):
    """The range input of a slider; it is hidden behind the drawn thumb, takes the focus and knows the value."""
    return page.locator(f".st-key-{key} input[type=range]")


def set_slider(page, key: str, value: float) -> None:
    """Bring a slider to a value, or as near as its track allows: by pointer first, then by arrow keys."""
    slider = slider_of(page, key)
    track = page.locator(f".st-key-{key} [role=group] > div").first
    track.scroll_into_view_if_needed()
    box = track.bounding_box()
    low, high = (float(slider.get_attribute(end)) for end in ("min", "max"))
    share = (value - low) / (high - low)
    page.mouse.click(box["x"] + min(max(share * box["width"], 1), box["width"] - 1), box["y"] + box["height"] / 2)
    page.wait_for_timeout(700)
    page.wait_for_selector(SETTLED)
    slider.focus()
    for _ in range(12):
        off = value - float(slider.input_value())
        if abs(off) < 1e-9:
            break
        page.keyboard.press("ArrowRight" if off > 0 else "ArrowLeft")
    page.wait_for_timeout(700)
    page.wait_for_selector(SETTLED)


def measure_slider(browser, url: str, nodes: int, repeats: int) -> list[float]:
    """Slider commits on Tune live: the prefix is drafted and verified again, and the new tree is drawn.

    The slider that moves is the node budget itself, so that each commit gives another tree of about that size.
    """
    page = open_page(browser, url, "/tune_live")
    page.locator(".ds-root[data-drawn-scene]").first.wait_for(timeout=60_000)
    page.wait_for_selector(SETTLED)
    time.sleep(1.0)
    page.locator(".st-key-tune input").click()
    page.wait_for_timeout(500)
    page.get_by_role("option", name="Fixed tree").click()
    slider_of(page, "tune_fixed_tree_node_budget").wait_for(state="attached")
    page.wait_for_selector(SETTLED)
    set_slider(page, "tune_fixed_tree_prune_probability", 0)
    set_slider(page, "tune_fixed_tree_branching", 4)
    set_slider(page, "tune_fixed_tree_node_budget", nodes)
    time.sleep(1.0)
    slider = slider_of(page, "tune_fixed_tree_node_budget")
    slider.focus()
    at_end = float(slider.input_value()) >= float(slider.get_attribute("max"))
    keys = ("ArrowLeft", "ArrowRight") if at_end else ("ArrowRight", "ArrowLeft")
    values = []
    for repeat in range(repeats):
        values.append(timed(page, lambda key=keys[repeat % 2]: page.keyboard.press(key)))
        time.sleep(0.4)
    page.context.close()
    return values


def measure_all(sizes: tuple[int, ...], repeats: int, prompt: str) -> dict[str, list[float]]:
    """Every interaction at every tree size, in milliseconds."""
    figures: dict[str, list[float]] = {}
    with tempfile.TemporaryDirectory() as folder, running_app() as url, launched_chromium() as browser:
        files = {nodes: run_file(Path(folder), nodes, prompt) for nodes in sizes}
        for nodes in sizes:
            figures[f"slider, {nodes} nodes"] = measure_slider(browser, url, nodes, repeats)
            for name, values in measure_step_through(browser, url, files[nodes], repeats).items():
                figures[f"{name}, {nodes} nodes"] = values
            for live in (False, True):
                name = f"{'live' if live else 'replayed'} fork, {nodes} nodes"
                figures[name] = measure_forks(browser, url, nodes, repeats, live)
        # Between Step through and Tune live by the menu, until the other page's tree is drawn.
        page, switches = open_page(browser, url, "/step_through"), []
        for repeat in range(repeats + 2):
            name = "Tune live" if repeat % 2 == 0 else "Step through"
            switches.append(timed(page, lambda name=name: page.get_by_role("link", name=name).first.click()))
            time.sleep(0.5)
        page.context.close()
        figures["page switch"] = switches[2:]
    return figures


def main() -> int:
    args = arguments(__doc__.splitlines()[0]).parse_args()
    sizes, repeats = ((64,), 6) if args.quick else (SIZES, 12)
    prompt = choose_prompts(args.prompts, 1)[0].text
    measured = measure_all(sizes, repeats, prompt)
    heap = {name: values[0] for name, values in measured.items() if name.startswith("heap")}
    figures = {
        name: {
            "median_ms": spread(values).median,
            "p95_ms": float(np.percentile(values, 95, method="nearest")),
            "count": len(values),
        }
        for name, values in measured.items()
        if name not in heap
    }
    print_table(
        ("interaction", "median ms", "95th percentile ms", "goal ms"),
        [(name, f"{f['median_ms']:.0f}", f"{f['p95_ms']:.0f}", goal_words(name)) for name, f in figures.items()],
    )
    print_table(
        (f"browser heap, {HEAP_STEPS} iteration steps", "growth MB", "goal MB"),
        [(name.removeprefix("heap growth, "), f"{mb:.1f}", f"{HEAP_GOAL_MB:.0f}") for name, mb in heap.items()],
    )
    print("\n".join(verdicts({name: f["median_ms"] for name, f in figures.items()})))
    for name, mb in heap.items():
        print(goal_line(mb <= HEAP_GOAL_MB, f"{name} {mb:.0f} MB, goal {HEAP_GOAL_MB:.0f} MB"))
    save_figures(args, "interaction", {"figures": figures, "heap_growth_mb": heap}, torch.device("cpu"))
    return 0


if __name__ == "__main__":
    run_main(main)

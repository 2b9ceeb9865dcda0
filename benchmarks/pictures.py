"""`python -m benchmarks.pictures`: make every picture of the docs from the real app, in a headless Chromium.

All are in the light theme, of runs that come with the program or of what a link decodes: `step_through.gif` goes
through the phases of one iteration and on to the next, the others are single pages. A person looks at them before they
are committed.
"""

import argparse
import io
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from urllib.parse import urlencode

from PIL import Image, ImageColor

from benchmarks.browser_app import SETTLED, launched_chromium, running_app
from decoding.common.errors import DraftscopeError, run_main
from decoding.common.files import ROOT
from viz.theme import MARKS

FOLDER = ROOT / "docs" / "pictures"
SIZE = {"width": 1280, "height": 800}
WAIT_MS = 90_000
REST_MS = 900  # until what moves in a page has come to rest
MOVING = "step_through.gif"
MOVING_SIZE = (960, 600)
BRIGHT, GREY, BRIGHTNESS = 150, 60, 48  # colours of the palette, and the difference of channels that makes one bright
COUNTED = 200  # pixels of a colour beyond these give it no larger share of the palette
PHASE_MS, LAST_MS = 1300, 2600  # how long a frame of the moving picture stands
FEWEST_PHASES = 6
MOST_BYTES = 2_000_000


@dataclass(frozen=True)
class Picture:
    """A page, what must be on it before it is taken, and what a person would do there first."""

    name: str
    path: str
    ready: str
    act: Callable = lambda page: None


def spread(page) -> None:
    """Verifiers: once the seeds are re-rolled, so that every row has its histogram."""
    page.locator(".vt-row .column .bar").first.wait_for(state="attached", timeout=WAIT_MS)


def drafting(page, steps: int) -> None:
    """Step through: so many steps of drafting after its first phase."""
    scope = page.locator(SCOPE)
    scope.get_by_text(f"iteration {DECODED} of {DECODED} ").wait_for(timeout=WAIT_MS)
    scope.focus()
    for key in ("[", *"." * steps):
        page.keyboard.press(key)
        page.wait_for_timeout(100)


def shapes(page) -> None:
    """Step through: the map of all shapes that a selector could choose, with the trees that were measured."""
    why = page.locator(".st-key-why")
    why.get_by_text("Why this shape", exact=True).click()
    find = why.locator(".st-key-why_best_action")
    find.locator("button").first.click(timeout=WAIT_MS)
    find.wait_for(state="detached", timeout=WAIT_MS)
    why.evaluate("each => each.scrollIntoView()")


def finish(page) -> None:
    """Race: to the end, where the result stands."""
    page.locator(".race-root").focus()
    page.keyboard.press("End")


def link(**view: str | float) -> str:
    """The last iteration of a run that the page decodes first, by the words of a link."""
    view = {"prompt": "Stories · Frog and boat", "seed": 3, "iteration": DECODED} | view
    return "/step_through?" + urlencode(view)


SCOPE = ".ds-root[data-drawn-scene]"
DECODED = 3  # iterations
WARM = {"temperature": 0.8, "draft_temperature": 0.8}
PICTURES = (
    Picture("step_through", "/step_through", SCOPE),
    Picture("heap", link(method="DySpec greedy", node_budget=16, **WARM), SCOPE, partial(drafting, steps=9)),
    Picture(
        "rounds", link(method="SALF", node_budget=40, batch=8, gain_threshold=0.5), SCOPE, partial(drafting, steps=2)
    ),
    Picture(
        "shapes", link(method="Delayed expansion", selector="specinfer", verifier="specinfer", **WARM), SCOPE, shapes
    ),
    Picture("verifiers", "/verifiers", f".st-key-verify_tree {SCOPE}", spread),
    Picture("race", "/race", ".race-root", finish),
    Picture("papers", "/papers", ".st-key-papers_list"),
)


def take(page) -> Image.Image:
    """The page as it is, once nothing moves in it any more."""
    page.wait_for_timeout(REST_MS)
    page.wait_for_selector(SETTLED, timeout=WAIT_MS)
    return Image.open(io.BytesIO(page.screenshot())).convert("RGB")


def opened(browser, url: str, picture: Picture):
    """A fresh browser on a page, in the light theme and without transitions."""
    page = browser.new_context(viewport=SIZE, color_scheme="light", reduced_motion="reduce").new_page()
    page.goto(url + picture.path)
    page.wait_for_selector(SETTLED, timeout=WAIT_MS)
    page.wait_for_selector(picture.ready, timeout=WAIT_MS)
    picture.act(page)
    return page


def stepping(page) -> list[Image.Image]:
    """One iteration phase by phase, then the next one: a frame each, by the keys of the page.

    Raises:
        DraftscopeError: the keys do not lead there.
    """
    scope, frames = page.locator(SCOPE).first, []
    for iteration in range(2):
        page.keyboard.press("[")
        last = None
        while (phase := scope.get_attribute("data-phase")) != last:
            frames.append(take(page))
            page.keyboard.press("ArrowRight")
            page.wait_for_timeout(REST_MS)
            last = phase
        if iteration == 0:
            scene = scope.get_attribute("data-drawn-scene")
            page.keyboard.press("ArrowDown")
            page.wait_for_timeout(REST_MS)
            if len(frames) < FEWEST_PHASES or scope.get_attribute("data-drawn-scene") == scene:
                raise DraftscopeError("The keys do not step through an iteration: look at viz/scope/keys.js.")
    return frames


def save_moving(frames: list[Image.Image], path: Path) -> None:
    """An animated GIF in one palette for all frames, so that nothing flickers between them."""
    small = [frame.resize(MOVING_SIZE, Image.Resampling.LANCZOS) for frame in frames]
    palette = palette_of(small)
    drawn = [frame.quantize(palette=palette, dither=Image.Dither.NONE) for frame in small]
    times = [PHASE_MS] * (len(drawn) - 1) + [LAST_MS]
    drawn[0].save(path, save_all=True, append_images=drawn[1:], duration=times, loop=0, optimize=False)


def palette_of(frames: list[Image.Image]) -> Image.Image:
    """A palette of what these frames show: most of it for bright colours, which the small marks of a tree have."""
    pixels: Counter[tuple[int, int, int]] = Counter()
    for frame in frames:
        pixels.update({color: count for count, color in frame.getcolors(MOVING_SIZE[0] * MOVING_SIZE[1])})
    # Colours of marks come first, with what their edges make of them: a cross of few pixels wins no place of its own.
    shades = [(mark.color, share) for mark in MARKS.values() for share in (1, 0.8, 0.6, 0.4)]
    colors = [part for color, share in shades for part in mixed(color, share)]
    for bright, size in ((True, BRIGHT), (False, GREY)):
        found = {color: count for color, count in pixels.items() if (max(color) - min(color) > BRIGHTNESS) == bright}
        flat = sorted(found, key=found.get, reverse=True)[: size // 2]  # as they are: areas and bars
        sample = [color for color, count in found.items() for _ in range(min(count, COUNTED))]
        sheet = Image.new("RGB", (len(sample), 1))
        sheet.putdata(sample)
        colors += [part for color in flat for part in color]
        colors += sheet.quantize(size // 2, method=Image.Quantize.MEDIANCUT).getpalette()[: size // 2 * 3]
    palette = Image.new("P", (1, 1))
    palette.putpalette(colors)
    return palette


def mixed(color: str, share: float) -> list[int]:
    """A share of a colour `#rrggbb` on white."""
    parts = ImageColor.getrgb(color)
    return [round(255 + share * (part - 255)) for part in parts]


def save_still(image: Image.Image, path: Path) -> None:
    """A PNG of few colours: what stands on a page has few."""
    image.quantize(256, dither=Image.Dither.NONE).save(path, optimize=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=FOLDER, help="folder to write to (default: docs/pictures)")
    parser.add_argument("--only", choices=[each.name for each in PICTURES] + ["moving"], nargs="*", default=())
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    written = []
    with running_app() as url, launched_chromium() as browser:
        for picture in PICTURES:
            if not args.only or picture.name in args.only:
                written.append(args.out / f"{picture.name}.png")
                save_still(take(opened(browser, url, picture)), written[-1])
        if not args.only or "moving" in args.only:
            written.append(args.out / MOVING)
            save_moving(stepping(opened(browser, url, PICTURES[0])), written[-1])
    for path in written:
        size = path.stat().st_size
        print(f"{path.name}: {size / 1e6:.2f} MB")
        if size > MOST_BYTES:
            raise DraftscopeError(f"{path.name} is too large for the repository: take fewer colours or frames.")
    return 0


if __name__ == "__main__":
    run_main(main)

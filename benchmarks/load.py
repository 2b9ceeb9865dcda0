"""The app under load: browsers with methods of their own, reloads and closed tabs in the middle, cancelling, downloads.

Held against it: every run equals the one decoded alone, every download arrives, a reloaded page finds its work, work
ends within a second of Cancel, the models are free five seconds after the last browser, memory comes back.
"""

import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlencode

import torch
from playwright.sync_api import Error as PlaywrightError

from benchmarks.browser_app import SETTLED, launched_chromium, served
from decoding.common.errors import DraftscopeError, run_main
from decoding.experiments.command import arguments, choose_prompts, print_table, save_figures
from decoding.methods.methods import METHODS
from decoding.models.pair import Pair, embedded_pair
from decoding.replay.stored_state import method_of, sampling_of
from decoding.sampling.sampling import Sampling
from decoding.session.session import DecodeSession, Limits
from decoding.trace.metrics import spread
from decoding.trace.records import IterationTrace, RunTrace
from decoding.trace.run_file import load_run

TOKENS, LONGER = 96, 400  # the longer ones for pages that are reloaded while they decode
# Methods by browser; those that measure the pair before they draft come first. Each with temperature and seed.
RUNS = (
    ("sequoia", 0.0), ("dynatree", 0.0), ("hardware_aware", 0.0), ("dyspec", 0.8), ("eagle2", 0.0),
    ("linear", 0.0), ("opt_tree", 0.0), ("specinfer", 0.9),
)  # fmt: skip
DOWNLOADS = ("save_run", "export_nodes", "export_iterations", "export_timeline", "export_scope", "export_figures")
FORGOTTEN_S = 135.0  # the app forgets a session after two minutes without a browser, then gives its memory back
CANCEL_GOAL_S, FREE_GOAL_S, MEMORY_GOAL_MB = 1.0, 5.0, 200.0
CANCELLED_SHARE = 1 / 3  # of the attempts: the others may find that the work has ended
WAIT_S = 240.0
ENDED = re.compile(r"job '(.*)' ended: (\w+) after ([\d.]+) s(?:, ([\d.]+) s after it was asked to)?")
# The app as `streamlit run` starts it, with what its worker logs written to a file.
SERVER = """
import logging, sys
log = logging.getLogger("draftscope")
log.setLevel(logging.INFO)
log.addHandler(logging.FileHandler(sys.argv.pop(1)))
from streamlit.web.cli import main
main()
"""


@dataclass
class Visitor:
    """One browser: what it decodes, how far it is, and what it saw.

    Attributes:
        first_s: from Start to the first iteration on screen.
    """

    number: int
    method: str
    sampling: Sampling
    prompt: str
    page: object = None
    started_s: float = 0.0
    first_s: float | None = None
    reloads: bool = False
    reloaded: bool = False
    found_again: bool = False
    done: bool = False
    run: RunTrace | None = None
    files: list[str] = field(default_factory=list)
    lost: list[str] = field(default_factory=list)

    @property
    def address(self) -> str:
        """Of Step through with its choices."""
        tokens = LONGER if self.reloads else TOKENS
        chosen = {"method": METHODS[self.method].label, "text": self.prompt, "max_new_tokens": tokens}
        if not self.sampling.greedy:
            chosen |= {"temperature": self.sampling.temperature, "seed": self.sampling.seed}
        return f"/step_through?{urlencode(chosen)}"


@dataclass(frozen=True)
class Server:
    """The app in a process of its own, and what its worker logs."""

    url: str
    process: subprocess.Popen
    log: Path

    def memory_mb(self) -> float:
        """Resident memory of the process."""
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        return int(re.search(r"VmRSS:\s+(\d+) kB", status)[1]) / 1024

    def ended(self) -> list[tuple[str, str, float, float | None]]:
        """Title, state, seconds, and seconds from Cancel to the end, of every job that has ended."""
        if not self.log.exists():
            return []
        found = ENDED.findall(self.log.read_text())
        return [(title, state, float(took), float(late) if late else None) for title, state, took, late in found]


def is_as_alone(visitor: Visitor, pair: Pair) -> bool:
    """Whether a run has the text and the trees that the same prompt, method and sampling give when decoded alone.

    A tree that was shaped by measured times has another shape each time: of those the text alone counts.
    """
    run = visitor.run
    if run is None or run.method != visitor.method or run.prompt_ids != tuple(pair.vocabulary.encode(visitor.prompt)):
        return False
    session = DecodeSession(pair, method_of(run), list(run.prompt_ids), sampling_of(run), Limits(run.max_new_tokens))
    trees = [_tree(iteration) for iteration in session]
    same = run.output_ids == session.trace().output_ids
    return same and (visitor.method == "hardware_aware" or trees == [_tree(each) for each in run.iterations])


def _tree(iteration: IterationTrace) -> list[tuple[int, int | None]]:
    return [(node.token_id, node.parent_id) for node in iteration.nodes]


def open_page(browser, server: Server, address: str):
    """A page in a browser of its own."""
    page = browser.new_context(viewport={"width": 1280, "height": 800}, accept_downloads=True).new_page()
    page.set_default_timeout(WAIT_S * 1000)
    page.goto(server.url + address)
    page.wait_for_selector(SETTLED)
    return page


def press(page, key: str) -> None:
    """Click a button by the key of its element."""
    page.locator(f".st-key-{key} button").first.click()


def until(condition: Callable[[], bool], what: str, limit_s: float = WAIT_S) -> float:
    """Wait for something; returns the seconds it took."""
    started = time.perf_counter()
    while not condition():
        if time.perf_counter() - started > limit_s:
            raise DraftscopeError(f"The app did not get there within {limit_s:.0f} s: {what}.")
        time.sleep(0.05)
    return time.perf_counter() - started


def watch(visitor: Visitor) -> None:
    """One look at a visitor's page; does what comes next there."""
    page = visitor.page
    if visitor.done:
        return
    going = page.locator(".st-key-cancel_step").count() > 0
    if visitor.first_s is None:
        if not going and page.locator(".st-key-status", has_text="tokens").count():
            visitor.first_s = time.perf_counter() - visitor.started_s
            page.wait_for_selector(SETTLED)
            press(page, "to_end")
            page.wait_for_timeout(200)
            if visitor.reloads:
                _reload(visitor)
        return
    if not going:
        words = page.locator(".st-key-status").inner_text()
        visitor.done = _has_ended(words)
        if not visitor.done:
            try:  # the first click came while the page was drawn anew
                page.locator(".st-key-to_end button:enabled").first.click(timeout=1000)
            except PlaywrightError:
                return  # it has ended meanwhile
            page.wait_for_timeout(500)


def _reload(visitor: Visitor) -> None:
    """Reload a page while it decodes to the end."""
    page = visitor.page
    page.locator(".st-key-cancel_step").wait_for()
    page.reload()
    page.wait_for_selector(SETTLED)
    words = page.locator(".st-key-status").inner_text()
    visitor.reloaded = True
    visitor.found_again = page.locator(".st-key-cancel_step").count() > 0 or _has_ended(words)


def _has_ended(words: str) -> bool:
    """Whether the status of a page tells of a run that is at its end."""
    return "length limit" in words or "end of text" in words


def download_all(visitor: Visitor, folder: Path) -> None:
    """Take every file of the run along, and keep the run that is in its file."""
    page = visitor.page
    page.wait_for_selector(SETTLED)
    press(page, "file_open")
    for key in DOWNLOADS:
        try:
            with page.expect_download(timeout=60_000) as coming:
                press(page, key)
            file = folder / f"{visitor.number}-{key}"
            coming.value.save_as(file)
        except PlaywrightError as error:  # a file that did not come is what is counted here
            visitor.lost.append(f"{key}: {str(error).splitlines()[0]}")
            continue
        visitor.files.append(key)
        if key == "save_run":
            visitor.run = load_run(file)


def decode_together(browser, server: Server, visitors: list[Visitor], folder: Path) -> dict:
    """All visitors at once, and two more whose tabs are closed while they compare."""
    closing = [open_page(browser, server, "/compare") for _ in range(2 if len(visitors) > 3 else 1)]
    for visitor in visitors:
        visitor.page = open_page(browser, server, visitor.address)
    for page in closing:
        press(page, "compare_start")
        page.locator(".st-key-cancel_compare").wait_for()
    for visitor in visitors:
        visitor.started_s = time.perf_counter()
        press(visitor.page, "start")
        visitor.page.wait_for_timeout(50)
    for page in closing:
        page.context.close()
    most = server.memory_mb()
    started = time.perf_counter()
    while not all(visitor.done for visitor in visitors):
        for visitor in visitors:
            watch(visitor)
        most = max(most, server.memory_mb())
        if time.perf_counter() - started > WAIT_S:
            raise DraftscopeError(f"Not done: {[visitor.method for visitor in visitors if not visitor.done]}.")
    for visitor in visitors:
        download_all(visitor, folder)
        most = max(most, server.memory_mb())
    return {"most_mb": most, "together_s": time.perf_counter() - started}


def warm_up(browser, server: Server, folder: Path) -> None:
    """One browser that has everything loaded which is loaded once: the pair, what decodes, compares and draws."""
    visitor = Visitor(-1, "dynatree", Sampling(), "")
    visitor.page = open_page(browser, server, "/step_through")
    press(visitor.page, "start")
    visitor.page.locator(".st-key-status", has_text=re.compile(r"\d of \d+ tokens")).first.wait_for()
    download_all(visitor, folder)
    visitor.page.goto(f"{server.url}/compare")
    visitor.page.wait_for_selector(SETTLED)
    press(visitor.page, "compare_start")
    visitor.page.locator(".ds-table").wait_for()
    visitor.page.context.close()


def cancel_often(browser, server: Server, count: int) -> list[float]:
    """Start what measures a method first, cancel it at moments spread over its time; seconds until it ended.

    How long it takes here is seen first, of one that is not cancelled.
    """
    page = open_page(browser, server, "/step_through")
    found, whole_s = [], 0.0
    for attempt in range(count + 1):
        # A temperature that nobody has used: the method has to measure its rates anew.
        chosen = {"method": METHODS["sequoia"].label, "temperature": round(0.31 + 0.02 * attempt, 2)}
        page.goto(f"{server.url}/step_through?{urlencode(chosen)}")
        page.wait_for_selector(SETTLED)
        before = len(server.ended())
        press(page, "start")
        if attempt:
            page.wait_for_timeout(1000 * whole_s * attempt / (count + 1))
            try:
                page.locator(".st-key-cancel_step button:enabled").first.click(timeout=10_000)
            except PlaywrightError:
                continue  # it has ended, or is about to
        until(lambda before=before: len(server.ended()) > before, "a job ends", 60.0)
        ended = server.ended()[before:]
        whole_s = whole_s or max(took for _, _, took, _ in ended)
        found += [late for *_, late in ended if late is not None]
        page.locator(".st-key-start button:enabled").wait_for()
    page.context.close()
    return found


def measure(count: int, cancels: int) -> tuple[list[Visitor], dict]:
    """The whole trial."""
    prompts = [prompt.text for prompt in choose_prompts(None, count)]
    visitors = [
        Visitor(number, name, Sampling(temperature, seed=number), prompts[number], reloads=number % 3 == 1)
        for number, (name, temperature) in enumerate(RUNS[:count])
    ]
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        log = folder / "worker.log"
        command = (sys.executable, "-c", SERVER, str(log), "run", "app.py")
        environment = {**os.environ, "XDG_CACHE_HOME": str(folder / "cache")}  # what a pair costs is measured anew
        with (
            (folder / "server.log").open("w+") as output,
            served(command, output, environment) as (url, process),
            launched_chromium() as browser,
        ):
            server = Server(url, process, log)
            warm_up(browser, server, folder)
            before_mb = server.memory_mb()
            figures = decode_together(browser, server, visitors, folder)
            figures["cancelled_s"] = cancel_often(browser, server, cancels)
            for visitor in visitors:
                visitor.page.context.close()
            page = open_page(browser, server, "/compare")  # the last browser is closed while it compares
            press(page, "compare_start")
            page.get_by_text(re.compile(r"call \d+ of")).first.wait_for()
            page.context.close()
            time.sleep(FREE_GOAL_S)
            fresh = open_page(browser, server, "/step_through")
            noted = fresh.locator(".st-key-worker_note").get_by_text("In use").count()
            started = time.perf_counter()
            press(fresh, "start")
            fresh.locator(".st-key-status", has_text="tokens").first.wait_for()
            figures["free_s"] = float("inf") if noted else time.perf_counter() - started
            fresh.context.close()
            time.sleep(FORGOTTEN_S)
            figures |= {"before_mb": before_mb, "after_mb": server.memory_mb(), "jobs": server.ended()}
    return visitors, figures


def checks_of(visitors: list[Visitor], same: dict[int, bool], figures: dict, cancels: int) -> dict[str, bool]:
    """What has to hold of a trial, whether it does.

    Args:
        same: whether the run of a visitor, by its number, is that of one decoded alone.
        cancels: how often something was to be cancelled; what had ended before was not.
    """
    cancelled, reloading = figures["cancelled_s"], [each for each in visitors if each.reloads]
    return {
        "every run as alone": all(same.values()),
        "every download arrived": not any(each.lost for each in visitors),
        "pages were reloaded in the middle": bool(reloading) and all(each.reloaded for each in reloading),
        "reloaded pages found their work": all(each.found_again for each in reloading if each.reloaded),
        "a third of the cancelled were at work": len(cancelled) >= CANCELLED_SHARE * cancels,
        f"cancelled within {CANCEL_GOAL_S:.0f} s": bool(cancelled) and max(cancelled) <= CANCEL_GOAL_S,
        f"free {FREE_GOAL_S:.0f} s after the last browser": figures["free_s"] != float("inf"),
        f"memory back within {MEMORY_GOAL_MB:.0f} MB": figures["after_mb"] - figures["before_mb"] <= MEMORY_GOAL_MB,
    }


def main() -> int:
    args = arguments(__doc__.splitlines()[0]).parse_args()
    cancels = 4 if args.quick else 12
    visitors, figures = measure(3 if args.quick else len(RUNS), cancels)
    pair = embedded_pair()
    same = {each.number: is_as_alone(each, pair) for each in visitors}
    print_table(
        ("method", "first iteration s", "as alone", "downloads", "reloaded, found again"),
        [
            (each.method, f"{each.first_s:.1f}", "yes" if same[each.number] else "NO",
             f"{len(each.files)} of {len(DOWNLOADS)}", ("yes" if each.found_again else "NO") if each.reloaded else "–")
            for each in visitors
        ],
    )  # fmt: skip
    cancelled, checks = figures["cancelled_s"], checks_of(visitors, same, figures, cancels)
    firsts = [each.first_s for each in visitors]
    print(f"\nfirst iteration: median {spread(firsts).median:.1f} s, longest {max(firsts):.1f} s; "
          f"all decoded and downloaded in {figures['together_s']:.0f} s")  # fmt: skip
    print(f"{len(cancelled)} cancelled: {', '.join(f'{late:.2f}' for late in cancelled)} s")
    print(f"a first iteration after the last browser had gone: {figures['free_s']:.1f} s")
    megabytes = [f"{figures[name]:.0f}" for name in ("before_mb", "most_mb", "after_mb")]
    print("memory: {} MB before, at most {}, {} after the last session was forgotten".format(*megabytes))
    for each in visitors:
        for lost in each.lost:
            print(f"lost by {each.method}: {lost}")
    for title in dict.fromkeys(title for title, *_ in figures["jobs"]):
        took = [seconds for name, _, seconds, _ in figures["jobs"] if name == title]
        print(f"job {title}: {len(took)}, median {spread(took).median:.1f} s, longest {max(took):.1f} s")
    for what, holds in checks.items():
        print(f"{'holds' if holds else 'FAILS'}: {what}")
    rows = [{"method": each.method, "first_s": each.first_s, "files": len(each.files)} for each in visitors]
    save_figures(args, "load", {"visitors": rows, "checks": checks, **figures}, torch.device("cpu"))
    return 0 if all(checks.values()) else 1


if __name__ == "__main__":
    run_main(main)

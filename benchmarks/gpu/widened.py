"""The pair of a part: widened to the papers' shapes on a GPU, the embedded pair on a CPU."""

import contextlib
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from benchmarks.gpu.report import Report
from decoding.experiments.command import choose_prompts, encode, engine_lines
from decoding.models.pair import Pair, PairSettings, embedded_pair, load_pair, release
from decoding.widen import widened_pair_folders

CONTEXT = 2048


@contextlib.contextmanager
def loaded_pair(report: Report) -> Iterator[Pair]:
    """The pair, its engines told; gone with the files that it was written to."""
    if not report.cuda:
        pair = embedded_pair("cpu").with_engine("static")
        yield pair
        release(pair)
        return
    with tempfile.TemporaryDirectory() as temporary:
        folder = report.args.folder or Path(temporary)
        begun = time.perf_counter()
        target, draft = widened_pair_folders(report.args.like, folder, report.args.dtype, "cuda")
        widened = time.perf_counter()
        settings = PairSettings(str(target), str(draft), "cuda", report.args.dtype, context_length=CONTEXT)
        pair = load_pair(settings)
        seconds = {"widen_s": widened - begun, "load_s": time.perf_counter() - widened}
        report.figures["pair"] = {"name": pair.info.name, **seconds, "engines": engine_lines(pair)}
        tell_engines(report, pair)
        report.works(f"{pair.info.name}: widened in {seconds['widen_s']:.0f} s, loaded in {seconds['load_s']:.0f} s")
        yield pair
        release(pair)


def tell_engines(report: Report, pair: Pair) -> None:
    """Which engine runs each model and why; on a CUDA device anything but the static one is wrong."""
    for line, model in zip(engine_lines(pair), (pair.info.target, pair.info.draft), strict=True):
        report.judge("works" if model.engine == "static" else "wrong", line)


def prompt_of(report: Report, pair: Pair, number: int = 0) -> list[int]:
    """Token ids of a sample prompt."""
    return encode(pair, choose_prompts(report.args.prompts, number + 1)[number].text)

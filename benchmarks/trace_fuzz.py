"""Opens thousands of spoiled trace files: each must open and draw, or be refused in one sentence, fast and small.

A table says for every kind of damage how many files opened, were refused and failed; a failure ends it with code 1.
The files are spoiled versions of runs decoded here with the embedded pair; a seed gives the same files again. Seconds
are processor time.
"""

import argparse
import faulthandler
import io
import json
import multiprocessing
import random
import sys
import time
import tracemalloc
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from pathlib import Path

from benchmarks.trace_document_mutations import Saved
from benchmarks.trace_drawing import draw_everything
from benchmarks.trace_mutations import KINDS
from decoding.common.errors import TraceFileError
from decoding.trace.archive import load_run, save_run
from decoding.trace.records import RunTrace

COUNT, QUICK_COUNT = 2400, 400
MOST_SECONDS, MOST_BYTES = 4.0, 768 * 2**20
MOST_CHARACTERS = 300
ROOM = 3 * 2**30  # address space of a worker: what asks for more than this fails at once
HANGS_AFTER_S = 240  # by the clock, while a full file's memory is traced and other programs run
# What these spoil, checksums cover: where such a file opens at all, it is the run that was saved.
SAME_RUN = ("bits flipped", "bytes put in or taken out", "file cut", "archive records", "encrypted or other packing",
            "names of entries", "an entry twice")  # fmt: skip
METHODS = (("dynatree", 0.0, "top"), ("dyspec:node_budget=12", 0.8, "full"), ("autoregressive", 0.0, "top"),
           ("delayed", 0.7, "top"))  # fmt: skip


@dataclass(frozen=True)
class Outcome:
    """What became of one spoiled file.

    Attributes:
        verdict: `opened`, `refused` or `failed`.
        words: the sentence of a refusal, or what went wrong.
        seconds: processor time of opening it. peak: most bytes that Python and numpy held meanwhile.
    """

    kind: str
    number: int
    verdict: str
    words: str
    seconds: float
    peak: int


_bases: list[Saved] = []


def try_one(kind: str, number: int, seed: int, saved: Saved) -> Outcome:
    """Spoil a file in one way and open it."""
    data = KINDS[kind](saved, random.Random(f"{seed}:{kind}:{number}"))
    started = time.process_time()
    verdict, words, run = _opened(data)
    seconds = time.process_time() - started
    peak = _peak(data)
    if verdict != "failed" and seconds > MOST_SECONDS:
        verdict, words = "failed", f"{verdict} after {seconds:.1f} s: {words}"
    if verdict != "failed" and peak > MOST_BYTES:
        verdict, words = "failed", f"{verdict} with {peak / 2**20:.0f} MB: {words}"
    if verdict == "opened":
        verdict, words = _after_opening(run, saved, kind in SAME_RUN)
    return Outcome(kind, number, verdict, words, seconds, peak)


def _opened(data: bytes) -> tuple[str, str, RunTrace | None]:
    """Verdict, words and run of a file."""
    try:
        return "opened", "", load_run(io.BytesIO(data))
    except TraceFileError as error:
        words = str(error)
        if "\n" in words or len(words) >= MOST_CHARACTERS or not words.endswith("."):
            return "failed", f"not one short sentence: {words[:500]!r}", None
        return "refused", words, None
    except BaseException as error:  # noqa: BLE001 - what else can come out of a file is what is looked for
        return "failed", f"loading: {type(error).__name__}: {str(error)[:200]}", None


def _peak(data: bytes) -> int:
    """Bytes held at most while a file is opened; apart from the timing, which tracing would double."""
    tracemalloc.start()
    try:
        _opened(data)
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def _after_opening(run: RunTrace, saved: Saved, same: bool) -> tuple[str, str]:
    """Whether everything can be drawn of a run that opened, and saved again, to the bytes that it must be."""
    started = time.process_time()
    try:
        draw_everything(run, load_run(io.BytesIO(saved.data)))
        again = io.BytesIO()
        save_run(run, again)
        load_run(again)
        if same and again.getvalue() != saved.data:
            return "failed", "opened as another run"
    except BaseException as error:  # noqa: BLE001
        place = error.__traceback__
        while place.tb_next is not None:
            place = place.tb_next
        where = f"{Path(place.tb_frame.f_code.co_filename).name}:{place.tb_lineno}"
        return "failed", f"drawing: {type(error).__name__} in {where}: {str(error)[:200]}"
    seconds = time.process_time() - started
    return ("opened", "") if seconds < 5 * MOST_SECONDS else ("failed", f"drawing took {seconds:.1f} s")


def _start_worker(bases: list[bytes]) -> None:
    _bases[:] = [Saved.of(data) for data in bases]
    for run in map(load_run, map(io.BytesIO, bases)):
        draw_everything(run, run)  # what is imported on the way belongs to no file
    _limit_memory()


def _limit_memory() -> None:
    try:
        import resource

        resource.setrlimit(resource.RLIMIT_AS, (ROOM, ROOM))
    except ImportError:  # not on Windows
        return


def _work(tasks: list[tuple[str, int, int]]) -> list[Outcome]:
    """Some files one after the other; one that never ends takes its process with it."""
    outcomes = []
    for kind, number, seed in tasks:
        faulthandler.dump_traceback_later(HANGS_AFTER_S, exit=True)
        outcomes.append(try_one(kind, number, seed, _bases[number % len(_bases)]))
        faulthandler.cancel_dump_traceback_later()
    return outcomes


def fuzz(bases: list[bytes], count: int, seed: int, processes: int) -> Iterator[Outcome]:
    """Outcomes of `count` spoiled files, kinds in turn.

    Raises:
        BrokenProcessPool: a file hung or ended its process.
    """
    kinds = list(KINDS)
    tasks = [(kinds[number % len(kinds)], number // len(kinds), seed) for number in range(count)]
    if processes == 1:
        _start_worker(bases)
        yield from _work(tasks)
        return
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(processes, context, _start_worker, (bases,)) as pool:
        parts = [pool.submit(_work, tasks[start : start + 20]) for start in range(0, len(tasks), 20)]
        for part in as_completed(parts):
            yield from part.result()


def saved_runs() -> list[bytes]:
    """Files of short runs decoded here: a tree, a sampled tree with all rows, no tree, a sampled delayed one."""
    from decoding.compare.contestants import parse_contestant
    from decoding.methods.method import fitted
    from decoding.models.pair import embedded_pair
    from decoding.sampling.sampling import Sampling
    from decoding.session.session import DecodeSession, Limits

    pair = embedded_pair()
    prompt_ids = pair.vocabulary.encode("Once upon a time there was a little dog. He liked to")
    files = []
    for text, temperature, rows in METHODS:
        sampling = Sampling(temperature, seed=1)
        method = fitted(parse_contestant(text).method, sampling)
        session = DecodeSession(pair, method, prompt_ids, sampling, Limits(10, ignore_end_of_text=True, rows=rows))
        list(session)
        file = io.BytesIO()
        save_run(session.trace(), file)
        files.append(file.getvalue())
    return files


def table(outcomes: list[Outcome]) -> list[tuple[object, ...]]:
    """A row per kind of damage and one for all: counts by verdict, slowest file, largest peak."""
    rows = []
    for kind in (*KINDS, "all"):
        those = [outcome for outcome in outcomes if kind in (outcome.kind, "all")]
        counts = Counter(outcome.verdict for outcome in those)
        slowest, largest = max((o.seconds for o in those), default=0), max((o.peak for o in those), default=0)
        rows.append((kind, *(counts[verdict] for verdict in ("opened", "refused", "failed")), f"{slowest:.2f}",
                     f"{largest / 2**20:.0f}"))  # fmt: skip
    return rows


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--count", type=int, help=f"files to spoil, {COUNT} by default")
    parser.add_argument("--quick", action="store_true", help=f"{QUICK_COUNT} files")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the table to FILE")
    args = parser.parse_args()
    from decoding.experiments.command import print_table

    count, started, outcomes = args.count or (QUICK_COUNT if args.quick else COUNT), time.perf_counter(), []
    try:
        outcomes.extend(fuzz(saved_runs(), count, args.seed, args.processes))
    except BrokenProcessPool:
        print("failed: a file ended its process or hung; what was on its stack stands above", file=sys.stderr)
    header = ("kind of damage", "opened", "refused", "failed", "slowest s", "peak MB")
    rows = table(outcomes)
    print_table(header, rows)
    failed = [outcome for outcome in outcomes if outcome.verdict == "failed"]
    for outcome in failed[:40]:
        print(f"failed: {outcome.kind} {outcome.number}: {outcome.words}")
    missing = count - len(outcomes)
    untried = f", {missing} not tried" if missing else ""
    taken_s = time.perf_counter() - started
    print(f"{len(outcomes)} files, seed {args.seed}, {len(failed)} failed{untried}; {taken_s:.0f} s")
    if args.json:
        figures = [dict(zip(header, row, strict=True)) for row in rows]
        args.json.write_text(json.dumps({"seed": args.seed, "files": len(outcomes), "table": figures}) + "\n")
    return 1 if failed or missing else 0


if __name__ == "__main__":
    sys.exit(main())

"""Thousands of random runs: none may crash, and every greedy one must give the text of transformers' `generate`.

Pair, method, settings, verifier, cache policy, prompt, stop tokens, and what is done with a session on the way (forks,
rewinds, edits, released caches) are drawn from the number of a run alone; `--only` repeats one. A difference counts as
a near tie where a float64 forward puts the target's two best logits within 1e-4. Sampled runs, their forks and rewinds
are held against the same run undisturbed. Exit code 1 if a run crashed, differed, was refused or was not tried, or near
ties are too many.
"""

import faulthandler
import multiprocessing
import os
import re
import signal
import sys
import tempfile
import time
import traceback
import warnings
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
import transformers

from benchmarks.random_player import PAIRS, Player, draw_case
from benchmarks.tiny_models import PairPlan, load_tiny_pair
from decoding.common.errors import DraftscopeError, run_main
from decoding.experiments.command import arguments, print_table, save_figures
from decoding.models.pair import release

RUNS, QUICK_RUNS = 10_000, 60
MOST_NEAR_TIES = 5
CHUNK = 25  # runs of one pair that a process takes at once
PROGRESS_S = 20.0
VERDICTS = ("equal", "repeated", "near tie", "differs", "crash", "refused")


@dataclass(frozen=True)
class RunResult:
    """What became of one run.

    Attributes:
        verdict: one of `VERDICTS`: greedy text as it must be, sampled text as it is undisturbed, or what went wrong.
        words: what went wrong.
        outputs: texts that were compared, those of forks and rewinds included.
        accepted: accepted drafted tokens of the first session; None where nothing is drafted.
        processor_s: processor time.
    """

    number: int
    architecture: str
    method: str
    verifier: str
    verdict: str
    words: str = ""
    outputs: int = 0
    tokens: int = 0
    iterations: int = 0
    accepted: int | None = None
    processor_s: float = 0.0


def run_numbers(numbers: Sequence[int], deadline: float | None = None, loud: bool = False) -> list[RunResult]:
    """Outcomes of runs that share a pair; those that the clock (`time.time`) leaves no time for are missing."""
    plan, outcomes = PairPlan.numbered(numbers[0] % PAIRS), []
    if deadline is not None and time.time() > deadline:
        return []
    with tempfile.TemporaryDirectory() as folder:
        try:
            player = Player(*load_tiny_pair(plan, Path(folder)))
        except Exception as error:  # noqa: BLE001 - whatever comes out of a run is what is looked for
            verdict, words = _failure(error)
            return [RunResult(number, plan.architecture, "-", "-", verdict, f"loading: {words}") for number in numbers]
    for number in numbers:
        if deadline is not None and time.time() > deadline:
            break
        outcomes.append(_run(number, player, loud))
    release(player.pair)
    return outcomes


def _run(number: int, player: Player, loud: bool) -> RunResult:
    started = time.process_time()
    about = (number, PairPlan.numbered(number % PAIRS).architecture)
    names = ("-", "-")
    try:
        case = draw_case(number)
        names = (case.method.name, case.method.verifier.name)
        if loud:
            print(f"run {number}: {case}")
        played = player.play(case)
    except Exception as error:  # noqa: BLE001 - whatever comes out of a run is what is looked for
        if loud:
            traceback.print_exc()
        return RunResult(*about, *names, *_failure(error), processor_s=time.process_time() - started)
    good = "repeated" if case.kind == "sampled" else "equal"
    found = min(played.found, key=lambda found: found.near_tie, default=None)
    verdict = good if found is None else "near tie" if found.near_tie else "differs"
    accepted = played.accepted if case.method.drafter.drafts else None
    return RunResult(*about, *names, verdict, "" if found is None else found.words, played.outputs, played.tokens,
                   played.iterations, accepted, time.process_time() - started)  # fmt: skip


def _failure(error: Exception) -> tuple[str, str]:
    """Verdict and words of an error: ours are refusals in a sentence, all others crashes."""
    if isinstance(error, DraftscopeError):
        return "refused", str(error)
    frames = traceback.extract_tb(error.__traceback__)
    at = ([frame for frame in frames if "/decoding/" in frame.filename] or frames)[-1]
    first = (str(error).strip().splitlines() or [""])[0][:200]
    return "crash", f"{type(error).__name__} in {Path(at.filename).name}:{at.name}: {first}"


def in_parts(numbers: Sequence[int]) -> list[list[int]]:
    """Numbers that share a pair together, few enough at once; every pair comes before one comes again."""
    by_pair: dict[int, list[int]] = defaultdict(list)
    for number in numbers:
        by_pair[number % PAIRS].append(number)
    parts = [those[start : start + CHUNK] for those in by_pair.values() for start in range(0, len(those), CHUNK)]
    return sorted(parts)


def outcomes_of(
    numbers: Sequence[int], workers: int, deadline: float | None = None, loud: bool = False
) -> Iterator[RunResult]:
    """Outcomes of all runs in any order; fewer where the time does not suffice or nobody asks for more.

    Raises:
        BrokenProcessPool: a run ended its process.
    """
    parts = in_parts(numbers)
    if workers == 1:
        start_worker()
        for part in parts:
            yield from run_numbers(part, deadline, loud)
        return
    context = multiprocessing.get_context("spawn")
    pool = ProcessPoolExecutor(workers, context, start_worker, (True,))
    try:
        for done in as_completed([pool.submit(run_numbers, part, deadline) for part in parts]):
            yield from done.result()
    finally:
        pool.shutdown(cancel_futures=True)


def start_worker(beside_others: bool = False) -> None:
    """Compute with one thread and say nothing; beside others Ctrl+C is for the process that started them."""
    if beside_others:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
    faulthandler.enable(sys.__stderr__)
    torch.set_num_threads(1)
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    warnings.simplefilter("ignore")


def with_progress(outcomes: Iterator[RunResult], count: int, minutes: float | None) -> Iterator[RunResult]:
    """The same, with a line now and then on what was found and how long it will take, and each new kind of failure."""
    started = reported = time.perf_counter()
    counts: Counter[str] = Counter()
    kinds: set[str] = set()
    for done, outcome in enumerate(outcomes, start=1):
        counts[outcome.verdict] += 1
        yield outcome
        if outcome.words and (kind := f"{outcome.verdict}: {without_numbers(outcome.words)}") not in kinds:
            kinds.add(kind)
            about = f"run {outcome.number} ({outcome.architecture}, {outcome.method}), {outcome.verdict}"
            print(f"{about}: {outcome.words}", file=sys.stderr, flush=True)
        taken = time.perf_counter() - started
        if time.perf_counter() - reported > PROGRESS_S:
            reported = time.perf_counter()
            left = taken / done * (count - done)
            left = left if minutes is None else min(left, 60 * minutes - taken)
            bad = ", ".join(f"{counts[verdict]} {verdict}" for verdict in VERDICTS[2:] if counts[verdict])
            print(f"{done:,} of {count:,} runs in {taken / 60:.1f} min, {left / 60:.1f} min to go; {bad or 'all well'}",
                  file=sys.stderr, flush=True)  # fmt: skip


def without_numbers(words: str) -> str:
    """What a sentence says but for its numbers."""
    return re.sub(r"\d[\d.,e+-]*", "#", words)


def grouped(outcomes: Sequence[RunResult], verdict: str) -> list[tuple[str, list[RunResult]]]:
    """Outcomes of a verdict by what they say, numbers left out, the most frequent first."""
    groups: dict[str, list[RunResult]] = defaultdict(list)
    for outcome in sorted(outcomes, key=lambda outcome: outcome.number):
        if outcome.verdict == verdict:
            groups[without_numbers(outcome.words)].append(outcome)
    return sorted(groups.items(), key=lambda group: -len(group[1]))


def table(outcomes: Sequence[RunResult], attribute: str) -> list[tuple[object, ...]]:
    """A row per architecture or method and one for all: counts by verdict, accepted tokens and processor time."""
    names = [*sorted({getattr(outcome, attribute) for outcome in outcomes}), "all"]
    rows = []
    for name in names:
        those = [outcome for outcome in outcomes if name in (getattr(outcome, attribute), "all")]
        counts = Counter(outcome.verdict for outcome in those)
        drafting = [outcome for outcome in those if outcome.accepted is not None]
        iterations = sum(outcome.iterations for outcome in drafting)
        accepted = f"{sum(o.accepted or 0 for o in drafting) / iterations:.2f}" if iterations else "-"
        spent = sum(outcome.processor_s for outcome in those) / max(len(those), 1)
        rows.append((name, len(those), *(counts[verdict] for verdict in VERDICTS), accepted, f"{1000 * spent:.0f}"))
    return rows


def report(outcomes: Sequence[RunResult]) -> None:
    """Tables, then what went wrong by kind, each with the command that repeats it."""
    for attribute in ("architecture", "method", "verifier"):
        print_table((attribute, "runs", *VERDICTS, "accepted/iter", "ms/run"), table(outcomes, attribute))
        print()
    for verdict in VERDICTS[2:]:
        for _, group in grouped(outcomes, verdict):
            print(f"{verdict}, {len(group)} runs: {group[0].words}")
            where = Counter(f"{outcome.architecture} {outcome.method}" for outcome in group).most_common(6)
            print(f"    {', '.join(f'{name} {count}' for name, count in where)}; "
                  f"python -m benchmarks.random_runs --only {' '.join(str(o.number) for o in group[:4])}")  # fmt: skip


def summary(outcomes: Sequence[RunResult], count: int) -> tuple[str, bool]:
    """One line on all runs, and whether they are as they must be."""
    counts = Counter(outcome.verdict for outcome in outcomes)
    missing = count - len(outcomes)
    greedy = sum(counts[verdict] for verdict in ("equal", "near tie", "differs"))
    line = (
        f"{len(outcomes):,} runs with {sum(o.outputs for o in outcomes):,} texts, {counts['crash']} crashed; "
        f"{greedy:,} greedy: {counts['differs']} differ, {counts['near tie']} near ties ({MOST_NEAR_TIES} allowed); "
        f"{counts['repeated']:,} sampled; {counts['refused']} refused ({counts['refused'] / max(len(outcomes), 1):.1%})"
    )
    line += f", {missing:,} not tried" if missing else ""
    bad = counts["crash"] + counts["differs"] + counts["refused"] + missing
    return line, not bad and counts["near tie"] <= MOST_NEAR_TIES


def main() -> int:
    parser = arguments(__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, metavar="N", help=f"how many, {RUNS} by default, {QUICK_RUNS} with --quick")
    parser.add_argument("--first", type=int, default=0, metavar="N", help="number of the first run")
    parser.add_argument("--only", type=int, nargs="+", metavar="N", help="repeat runs, and say what they are")
    parser.add_argument("--workers", type=int, default=min(2, os.cpu_count() or 1), help="processes")
    parser.add_argument("--minutes", type=float, help="end after so many minutes with what there is")
    args = parser.parse_args()
    started, outcomes = time.perf_counter(), []
    count = len(args.only or ()) or args.runs or (QUICK_RUNS if args.quick else RUNS)
    numbers = args.only or range(args.first, args.first + count)
    workers, deadline = 1 if args.only else args.workers, None
    if args.minutes is not None:
        deadline = time.time() + 60 * args.minutes
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # what is stopped from outside ends its processes too
    try:
        found = outcomes_of(numbers, workers, deadline, loud=bool(args.only))
        outcomes.extend(with_progress(found, count, args.minutes))
    except BrokenProcessPool:
        print("A run ended its process: with --workers 1 its stack is printed.", file=sys.stderr)
    except KeyboardInterrupt:
        print("Interrupted: what there is follows.", file=sys.stderr)
    report(outcomes)
    line, good = summary(outcomes, count)
    spent = sum(outcome.processor_s for outcome in outcomes)
    print(f"{line}; {(time.perf_counter() - started) / 60:.1f} min with {workers} processes, whose runs took "
          f"{spent / 60:.1f} min of processor time")  # fmt: skip
    bad = [asdict(o) for o in outcomes if o.verdict not in ("equal", "repeated")]
    header = ("name", "runs", *VERDICTS, "accepted_per_iteration")  # counts, which no load of the machine changes
    tables = {
        attribute: [dict(zip(header, row[:-1], strict=True)) for row in table(outcomes, attribute)]
        for attribute in ("architecture", "method", "verifier")
    }
    save_figures(args, "random_runs", {"summary": line, **tables, "not_well": bad}, torch.device("cpu"))
    return 0 if good else 1


if __name__ == "__main__":
    run_main(main)

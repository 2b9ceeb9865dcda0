"""What the benchmarks share: arguments, prompts, tables, and the JSON with hardware, versions and commit."""

import argparse
import json
import re
import shlex
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TypeVar

import pandas as pd
import torch

from decoding.common.errors import PromptError
from decoding.common.files import utc_stamp, write_whole
from decoding.common.prompts import EMBEDDED_KINDS, Prompt, in_turn, load_prompts
from decoding.engines.clock import describe_hardware
from decoding.experiments.executors import code_version
from decoding.experiments.experiment import RESULTS, records_beside
from decoding.experiments.rows import LOOP_FREE
from decoding.jobs.job import Job, Status
from decoding.jobs.process import FINISHED, ProgressLine, StoppedError, conduct
from decoding.models.embedded import EMBEDDED_NAME, embedded_weights
from decoding.models.pair import Pair, load_pair
from decoding.models.presets import pair_settings
from decoding.trace.metrics import COUNTINGS, Counting

LOST = "Stopped: what it had measured is lost, and what was stored before stays."
Item = TypeVar("Item")
Figures = dict[str, float]


def arguments(description: str) -> argparse.ArgumentParser:
    """The arguments that every benchmark takes."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the results to FILE")
    how = parser.add_mutually_exclusive_group()  # what is kept is a whole run
    how.add_argument("--quick", action="store_true", help="finish within 45 seconds on two cores")
    how.add_argument("--save", action="store_true", help="save the figures for the README")
    parser.add_argument("--prompts", type=Path, metavar="DIR", help="a folder of .txt files instead of the samples")
    return parser


def parse_amounts(parser: argparse.ArgumentParser, **amounts: tuple[int, int, str]) -> argparse.Namespace:
    """What was typed; each amount is `(of a whole run, with --quick, what of)` and is what was typed for it, if any."""
    for name, (whole, quick, what) in amounts.items():
        said = f"{what} ({whole}; {quick} with --quick)"
        parser.add_argument(f"--{name.replace('_', '-')}", type=int, metavar="N", help=said)
    args = parser.parse_args()
    for name, (whole, quick, _) in amounts.items():
        setattr(args, name, getattr(args, name) or (quick if args.quick else whole))
    return args


def add_job_argument(parser: argparse.ArgumentParser) -> None:
    """An argument that names the job by which the app follows a benchmark."""
    parser.add_argument("--job", type=Path, metavar="DIR", help="write how far it is into the job of this folder")


def add_counting_argument(parser: argparse.ArgumentParser, default: Counting = "loop_free") -> None:
    """An argument that chooses what figures count."""
    parser.add_argument(
        "--counted", choices=tuple(COUNTINGS), default=default,
        help=f"whole texts, or what came before a text began to repeat itself (default: {default})",
    )  # fmt: skip


def pair_from(args: argparse.Namespace) -> Pair:
    """Load the pair that the arguments name, and say on stderr which engines run it and why."""
    pair = load_pair(pair_settings(args))
    print("\n".join(engine_lines(pair)), file=sys.stderr)
    return pair


def engine_lines(pair: Pair) -> list[str]:
    """Which engine runs each model of a pair, and why."""
    models = (pair.info.target, pair.info.draft)
    return [f"{model.name}: engine {model.engine} ({model.engine_reason})" for model in models]


def goal_line(reached: bool, what: str) -> str:
    """Whether a goal is reached, and which."""
    return f"goal {'reached' if reached else 'MISSED'}: {what}"


def choose_prompts(folder: Path | None, count: int, kinds: Sequence[str] = EMBEDDED_KINDS) -> list[Prompt]:
    """`count` prompts, one kind after another in turn, all kinds where a folder is given; `PromptError` without any."""
    chosen = in_turn(load_prompts(folder), () if folder is not None else kinds)[:count]
    if not chosen:
        raise PromptError("There are no prompts to measure on: give --prompts a folder with .txt files.")
    return chosen


def encoded_prompts(pair: Pair, folder: Path | None, count: int) -> list[tuple[str, list[int]]]:
    """The same as `(kind/name, token ids)`."""
    return [(prompt.title, pair.vocabulary.encode_prompt(prompt.text)) for prompt in choose_prompts(folder, count)]


def encoded_texts(pair: Pair, folder: Path | None, count: int) -> list[tuple[dict[str, str], list[int]]]:
    """The same as (columns that name the text in a record, token ids)."""
    return [
        (text_columns(prompt, folder), pair.vocabulary.encode_prompt(prompt.text))
        for prompt in choose_prompts(folder, count)
    ]


def text_columns(prompt: Prompt, folder: Path | None) -> dict[str, str]:
    """What a record says of the text it was measured on."""
    return {"sample": prompt.title, "prompt_set": "samples" if folder is None else folder.name,
            "kind": prompt.kind, "text_hash": prompt.hash}  # fmt: skip


def in_both_ways(
    items: Sequence[Item], outside: Sequence[bool], figures: Callable[[Sequence[Item]], Figures]
) -> Figures:
    """Figures of all items and, under their names for loop-free text, of those outside loops; the latter if any."""
    free = [item for item, is_outside in zip(items, outside, strict=True) if is_outside]
    return {**figures(items), **({LOOP_FREE + name: value for name, value in figures(free).items()} if free else {})}


def as_job(args: argparse.Namespace, measure: Callable[[argparse.Namespace], None]) -> int:
    """Measure what the arguments ask for; returns the exit code. The app's job, if there is one, says how it ended."""
    if args.job is not None:
        return conduct(Job(args.job), lambda: partial(measure, args))
    measure(args)
    return FINISHED


def in_steps(args: argparse.Namespace, items: Iterable[Item], total: int, phase: str = "measuring") -> Iterator[Item]:
    """Each item in turn, saying on stderr and in the status of the app's job, if there is one, how many are done.

    Raises:
        StoppedError: somebody asked the job to stop.
    """
    job, tell, started = args.job and Job(args.job), ProgressLine(), time.perf_counter()
    for done, item in enumerate(items):
        left_s = (time.perf_counter() - started) * (total - done) / done if done else None
        status = Status("running", phase, done, total, left_s=left_s)
        if job is not None and job.asked_to_stop():
            raise StoppedError(LOST)
        if job is not None:
            job.write_status(status)
        tell(status)
        yield item
    tell(Status("running", phase, total, total))
    if sys.stderr.isatty():
        print(file=sys.stderr)


def print_table(header: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """Print aligned columns: the first to the left, the others to the right."""
    cells = [[str(cell) for cell in row] for row in (header, *rows)]
    widths = [max(len(row[column]) for row in cells) for column in range(len(header))]
    for index, row in enumerate(cells):
        line = [cell.ljust(w) if i == 0 else cell.rjust(w) for i, (cell, w) in enumerate(zip(row, widths, strict=True))]
        print("  ".join(line).rstrip())
        if index == 0:
            print("  ".join("-" * width for width in widths))


def save_figures(
    args: argparse.Namespace,
    name: str,
    figures: dict,
    device: torch.device,
    part: str | None = None,
    by_processor: bool = False,
) -> None:
    """Write figures where `--json` asks for them, and with `--save` to `RESULTS`, one file per GPU or kind of device.

    What was run of the benchmark, where that is not all of it, is its `part`, which gets a file of its own. Of figures
    `by_processor` the short name belongs to the processor that came first; those of another stand beside it.
    """
    write_json(args.json, name, figures, device)
    if args.save:
        RESULTS.mkdir(exist_ok=True)
        hardware, part = describe_hardware(device), part and part.replace("=", "")
        gpu = hardware.get("gpu", "").removeprefix("NVIDIA ").replace(" ", "-")
        path = RESULTS / f"{'-'.join(filter(None, (name, device.type, gpu, part)))}.json"
        if by_processor and _processor_of(path) not in ("", hardware["processor"]):
            processor = re.sub(r"[^\w.]+", "-", hardware["processor"]).strip("-")
            path = RESULTS / f"{'-'.join(filter(None, (name, device.type, gpu or processor, part)))}.json"
        write_json(path, name, figures, device)


def _processor_of(path: Path) -> str:
    """What the figures of a file were measured on; empty where there is none that says so: it may be overwritten."""
    try:
        return json.loads(path.read_text("utf-8"))["hardware"]["processor"]
    except (OSError, ValueError, KeyError, TypeError):
        return ""


def save_records(
    args: argparse.Namespace, name: str, pair: Pair, records: list[dict], started: float, **more: object
) -> None:
    """Say how long a benchmark took that `started` by `time.perf_counter`, and keep its records and `more` figures."""
    took_s = time.perf_counter() - started
    print(f"{took_s:.0f} s")
    weights = embedded_weights() if pair.info.name.startswith(EMBEDDED_NAME) else None
    figures = {"pair": pair.info.name, "weights": weights, "took_s": took_s, **more, "records": records}
    save_figures(args, name, figures, pair.target.device)


def write_json(path: Path | None, name: str, figures: dict, device: torch.device) -> None:
    """Write figures with hardware, versions, commit and command; nothing if no path is given.

    Floats are written to 6 digits. A list `records` goes as a table beside them, to 5 digits.
    """
    if path is None:
        return
    figures = dict(figures)
    if (records := figures.pop("records", None)) is not None:
        pd.DataFrame(records).to_csv(
            records_beside(path), index=False, float_format="%.5g", compression={"method": "gzip", "mtime": 0}
        )
    record = {
        "benchmark": name,
        "created": utc_stamp(),
        "command": typed_command(),
        "commit": code_version(),
        "hardware": describe_hardware(device),
        **figures,
    }
    rounded = json.loads(json.dumps(record), parse_float=lambda digits: float(f"{float(digits):.6g}"))
    write_whole(path, (json.dumps(rounded, indent=1) + "\n").encode())
    print(f"written to {path}")


def typed_command() -> str:
    """The command as it can be typed elsewhere: without `--json`, `--job`, and of absolute paths only the last part."""
    words, kept = iter(sys.argv[1:]), []
    for word in words:
        if word in ("--json", "--job"):
            next(words, None)
        elif not word.startswith(("--json=", "--job=")):
            kept.append(re.sub(r"^(--[\w-]+=)?/(?:[^/]*/)*", r"\1", word))
    file = Path(sys.argv[0])
    name = file.parent.name if file.stem == "__main__" else file.stem
    return f"python -m benchmarks.{name} {shlex.join(kept)}".rstrip()

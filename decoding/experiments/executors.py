"""Who makes the runs of an experiment: this process with its pair, a process for each of several devices, or Ray.

An executor plans everything that a grid comes to (which takes a tokenizer and the identity of the pair), and gives the
rows of all missing runs as they are made, until somebody asks it to stop (`CancelledError`). Each block runs on one
device, every method is warmed up first, and a row says what it ran on.
"""

import json
import multiprocessing
import os
import signal
import subprocess
import time
import traceback
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import cached_property, partial
from importlib.metadata import version
from itertools import pairwise
from multiprocessing.connection import Connection, wait
from typing import Any

import torch

from decoding.common.errors import DraftscopeError, ExperimentError, require
from decoding.common.files import ROOT
from decoding.common.interruption import CancelledError
from decoding.common.prompts import Prompt
from decoding.compare.comparison import Result, measured_call, warm_call
from decoding.compare.contestants import format_contestant
from decoding.costs.measuring import machine_words, settle_doubts
from decoding.experiments.grid import Grid
from decoding.experiments.plan import Block, PlannedRun, blocks
from decoding.experiments.rows import LOOP_FREE, MEASURED, Row
from decoding.models.embedded import EMBEDDED_NAME, embedded_weights
from decoding.models.pair import Pair, load_pair, pair_identity
from decoding.models.presets import PairSettings
from decoding.session.session import Limits, unrecorded
from decoding.trace.metrics import RunMetrics
from decoding.trace.records import PHASES

WARM_UP_TOKENS = 8
LOOK_S = 0.2  # between two looks whether somebody wants to stop
LOCAL = "local"  # where Ray is to start on this machine


def code_version() -> str | None:
    """Commit of the code, with `-dirty` where anything but results differs from it; None where none is known.

    Without git or outside a checkout it is what the environment variable `DRAFTSCOPE_COMMIT` says.
    """
    commit = _git("rev-parse", "HEAD")
    if commit is None or _git("rev-parse", "--show-cdup"):  # installed into somebody else's checkout
        return os.environ.get("DRAFTSCOPE_COMMIT")
    return commit + ("-dirty" if _git("status", "--porcelain", "--", ".", ":!decoding/experiments/results") else "")


def _git(*words: str) -> str | None:
    try:
        answer = subprocess.run(["git", "-C", str(ROOT), *words], capture_output=True, text=True, check=False)
    except FileNotFoundError:
        return None
    return answer.stdout.strip() if answer.returncode == 0 else None


def row_of(block: Block, run: PlannedRun, result: Result, started: float) -> dict[str, Any]:
    """The columns that a run, `started` so many seconds after 1970, has beside those of all runs of an executor."""
    conditions, contestant = block.conditions, run.contestant
    method, sampling = contestant.method, conditions.sampling
    return {
        "key": run.key,
        "block": block.name,
        "reference": run.reference,
        "method": contestant.name,
        "label": contestant.label,
        "line": format_contestant(contestant),
        "settings": json.dumps({} if method is None else method.settings(), sort_keys=True),
        "prompt_set": conditions.prompt_set,
        "kind": conditions.prompt.kind,
        "prompt": conditions.prompt.name,
        "text_hash": conditions.prompt.hash,
        "cut": conditions.cut,
        "prompt_tokens": len(conditions.ids),
        "asked_tokens": conditions.new_tokens,
        "temperature": sampling.temperature,
        "top_p": sampling.top_p,
        "draft_temperature": sampling.draft_temperature,
        "seed": sampling.seed,
        "repeat": conditions.repeat,
        "started": datetime.fromtimestamp(started, UTC).isoformat(timespec="milliseconds"),
        "failure": result.failure,
        "loop_free_tokens": result.loop_free_tokens,
        "output_ids": list(result.output_ids),
        **_figures(result.metrics, ""),
        **_figures(result.loop_free, LOOP_FREE),
        **_series(result),
    }


def _figures(metrics: RunMetrics | None, prefix: str) -> dict[str, Any]:
    if metrics is None:
        return {}
    phases = metrics.phase_s or {}
    found = {name: getattr(metrics, name) for name in MEASURED if hasattr(metrics, name)}
    return {prefix + name: value for name, value in (found | {f"{p}_s": phases.get(p) for p in PHASES}).items()}


def _series(result: Result) -> dict[str, Any]:
    if result.metrics is None:
        return {}
    timeline, iterations = result.metrics.timeline, None if result.run is None else result.run.iterations
    ended_us = [round(1e6 * seconds) for seconds in timeline.seconds]
    return {
        "accepted_lengths": result.metrics.accepted_lengths and list(result.metrics.accepted_lengths),
        "drafted_nodes": iterations and [each.drafted for each in iterations],
        "committed_tokens": list(timeline.tokens),
        "pass_us": [end - before for before, end in pairwise((0, *ended_us))],
    }


@dataclass(frozen=True)
class Todo:
    """A block with the runs of it that are not kept yet."""

    block: Block
    missing: tuple[PlannedRun, ...]


class LocalExecutor:
    """This process, with a pair that is loaded, and which ways to decode have been warmed up with it.

    The name of the grid, `experiment`, stands in every row.
    """

    def __init__(self, pair: Pair, experiment: str):
        target = pair.target.info
        self._pair = pair
        self._warm: set[tuple[str, str | None]] = set()  # kinds of call that have run once
        self._common = {
            "experiment": experiment,
            "pair": pair.info.name,
            "target": target.name,
            "draft": pair.info.draft.name,
            "weights": embedded_weights() if pair.info.name.startswith(EMBEDDED_NAME) else None,
            "device": target.device,
            "dtype": target.dtype,
            "engine": target.engine,
            "machine": machine_words(pair),
            "versions": ", ".join(f"{name} {version(name)}" for name in ("torch", "transformers")),
            "commit": code_version(),
        }

    def plan(self, grid: Grid, prompts: Sequence[Prompt]) -> list[Block]:
        return list(blocks(grid, self._pair, pair_identity(self._pair), prompts))

    def rows(self, todos: Iterable[Todo], stopped: Callable[[], bool]) -> Iterator[Row]:
        for todo, run in ((each, run) for each in todos for run in each.missing):
            if stopped():
                raise CancelledError
            started, conditions, contestant = time.time(), todo.block.conditions, run.contestant
            limits = Limits(conditions.new_tokens, conditions.ignore_end_of_text, record="summary")
            pair = self._pair.with_engine(contestant.engine) if contestant.engine else self._pair
            ids, sampling = list(conditions.ids), conditions.sampling
            call = partial(measured_call, pair, contestant, ids, sampling=sampling, cancelled=stopped)
            kind = (contestant.name, contestant.engine)
            if kind not in self._warm:
                call(limits=replace(limits, max_new_tokens=min(WARM_UP_TOKENS, limits.max_new_tokens)))
                self._warm.add(kind)
            yield self._common | row_of(todo.block, run, warm_call(pair, partial(call, limits=limits)), started)
        settle_doubts(unrecorded)


def devices_here(settings: PairSettings) -> tuple[str, ...]:
    """The devices that a pair can be loaded on side by side: every GPU, or the one device there is."""
    count = torch.cuda.device_count() if settings.device in ("auto", "cuda") and not settings.split else 0
    return tuple(f"cuda:{number}" for number in range(count)) if count > 1 else (settings.device,)


class DeviceExecutor:
    """A process for each device, all with the same pair.

    Devices are such as `("cuda:0", "cuda:1")`; `cpu` may stand there more than once, and shares the cores.
    """

    def __init__(self, settings: PairSettings, devices: Sequence[str], experiment: str):
        require(bool(devices), "Name at least one device.")
        context = multiprocessing.get_context("spawn")
        self._members: list[tuple[Connection, Any]] = []
        threads = max(1, (os.cpu_count() or 1) // len(devices))
        for device in devices:
            mine, theirs = context.Pipe()
            member = context.Process(target=_serve, args=(theirs, settings, device, threads, experiment), daemon=True)
            member.start()
            theirs.close()
            self._members.append((mine, member))

    def plan(self, grid: Grid, prompts: Sequence[Prompt]) -> list[Block]:
        connection = self._members[0][0]
        connection.send(("plan", grid, prompts))
        return _received(connection)[1]

    def rows(self, todos: Iterable[Todo], stopped: Callable[[], bool]) -> Iterator[Row]:
        """A block goes to whichever device is free."""
        left = iter(todos)
        busy: set[Connection] = set()
        for connection, _ in self._members:
            self._next(connection, left, busy)
        while busy:
            if stopped():
                raise CancelledError
            ready = {id(each) for each in wait(busy, timeout=LOOK_S)}
            for connection in [each for each in busy if id(each) in ready]:
                kind, content = _received(connection)
                if kind == "row":
                    yield content
                else:
                    busy.discard(connection)
                    self._next(connection, left, busy)

    def close(self) -> None:
        """End all processes; what they are at is not kept."""
        for connection, member in self._members:
            member.terminate()
            member.join()
            connection.close()

    def _next(self, connection: Connection, left: Iterator[Todo], busy: set[Connection]) -> None:
        todo = next(left, None)
        if todo is not None:
            connection.send(("rows", todo))
            busy.add(connection)


def _received(connection: Connection) -> tuple[str, Any]:
    """What a process sent; what went wrong there goes wrong here."""
    try:
        kind, content = connection.recv()
    except EOFError:
        raise ExperimentError("A worker ended without an error message: re-run the grid to continue.") from None
    if kind == "refused":
        raise ExperimentError(content)
    if kind == "broken":
        raise RuntimeError(content)
    return kind, content


def _serve(connection: Connection, settings: PairSettings, device: str, threads: int, experiment: str) -> None:
    """A process with a pair of its own, asked for plans and blocks until it is ended."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl+C reaches every process of a terminal; the first one stops all
    kind, _, number = device.partition(":")
    if number:
        os.environ["CUDA_VISIBLE_DEVICES"] = number
    torch.set_num_threads(threads)
    executor: LocalExecutor | None = None
    try:
        while True:
            asked, *words = connection.recv()
            executor = executor or LocalExecutor(load_pair(replace(settings, device=kind)), experiment)
            if asked == "plan":
                connection.send(("plan", executor.plan(*words)))
                continue
            for row in executor.rows(words, lambda: False):
                connection.send(("row", row))
            connection.send(("done", None))
    except DraftscopeError as error:
        connection.send(("refused", str(error)))
    except (EOFError, BrokenPipeError):
        return
    except Exception:  # noqa: BLE001 - the process that asked raises it
        connection.send(("broken", traceback.format_exc()))


class RayExecutor:
    """Workers that Ray starts, here or on a cluster at an address, a pair in each; the package is optional.

    Without a number of workers there is one per GPU, or one per core where there is none. Raises `ExperimentError`
    where Ray is not installed, or no cluster answers at the address.
    """

    def __init__(self, settings: PairSettings, experiment: str, address: str = LOCAL, workers: int | None = None):
        try:
            import ray
        except ModuleNotFoundError:
            raise ExperimentError("Running on Ray needs the package ray: pip install ray, or omit --ray.") from None
        self._ray = ray
        try:
            ray.init(
                address=None if address == LOCAL else address,
                num_cpus=workers if address == LOCAL and workers else None,
                include_dashboard=False,
                log_to_driver=False,
            )
        except (ConnectionError, RuntimeError, ValueError) as error:
            said = str(error).split("\n")[0]
            raise ExperimentError(f"No Ray cluster answers at {address} ({said}): start one with ray start.") from None
        there = ray.cluster_resources()
        gpus = int(there.get("GPU", 0)) if settings.device in ("auto", "cuda") else 0
        count = workers or gpus or int(there.get("CPU", 1))
        share = {"num_cpus": 1, "num_gpus": min(1.0, gpus / count) if gpus else 0}
        member = ray.remote(**share)(_Member)
        self._members = [member.remote(settings, experiment) for _ in range(count)]

    def plan(self, grid: Grid, prompts: Sequence[Prompt]) -> list[Block]:
        return self._got(self._members[0].plan.remote(grid, prompts))

    def rows(self, todos: Iterable[Todo], stopped: Callable[[], bool]) -> Iterator[Row]:
        """A block goes to whichever worker is free, and its rows come one by one."""
        left = iter(todos)
        busy: dict[Any, Todo] = {}
        for member in self._members:
            self._next(member, left, busy)
        while busy:
            if stopped():
                raise CancelledError
            ready, _ = self._ray.wait(list(busy), num_returns=1, timeout=LOOK_S)
            for stream in ready:
                try:
                    yield self._got(next(stream))
                except StopIteration:
                    self._next(busy.pop(stream), left, busy)

    def close(self) -> None:
        """End all workers; what they are at is not kept. A cluster that was there before stays."""
        for member in self._members:
            self._ray.kill(member)
        self._ray.shutdown()

    def _next(self, member: Any, left: Iterator[Todo], busy: dict[Any, Any]) -> None:
        todo = next(left, None)
        if todo is not None:
            busy[member.rows.options(num_returns="streaming").remote(todo)] = member

    def _got(self, reference: Any) -> Any:
        try:
            return self._ray.get(reference)
        except self._ray.exceptions.RayTaskError as error:
            if isinstance(error.cause, DraftscopeError):
                raise ExperimentError(str(error.cause)) from None
            raise
        except self._ray.exceptions.RayError as error:
            said = str(error).split("\n")[0]
            raise ExperimentError(f"A worker was lost ({said}): re-run the grid to continue.") from None


class _Member:
    """A worker: its pair is loaded when it is first asked, so that what prevents it is reported."""

    def __init__(self, settings: PairSettings, experiment: str):
        self._settings, self._experiment = settings, experiment

    @cached_property
    def _own(self) -> LocalExecutor:
        return LocalExecutor(load_pair(self._settings), self._experiment)

    def plan(self, grid: Grid, prompts: Sequence[Prompt]) -> list[Block]:
        return self._own.plan(grid, prompts)

    def rows(self, todo: Todo) -> Iterator[Row]:
        yield from self._own.rows([todo], lambda: False)


Executor = LocalExecutor | DeviceExecutor | RayExecutor

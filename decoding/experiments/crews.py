"""Who makes the runs of an experiment: this process with its pair, a process for each of several devices, or Ray.

A crew plans a grid (which takes a tokenizer and the identity of the pair), and makes blocks, each on one device.
"""

import multiprocessing
import os
import signal
import traceback
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import cached_property
from multiprocessing.connection import Connection, wait
from typing import Any, Protocol

import torch

from decoding.common.errors import DraftscopeError, ExperimentError, require
from decoding.common.interruption import CancelledError
from decoding.common.prompts import Prompt
from decoding.experiments.grid import Grid
from decoding.experiments.plan import Block
from decoding.experiments.rows import Row
from decoding.experiments.worker import OwnCrew, Todo
from decoding.models.pair import load_pair
from decoding.models.presets import PairSettings

LOOK_S = 0.2  # between two looks whether somebody wants to stop
LOCAL = "local"  # where Ray is to start on this machine


class Crew(Protocol):
    """Makes the runs of one experiment."""

    def plan(self, grid: Grid, prompts: Sequence[Prompt]) -> list[Block]:
        """Everything that a grid comes to."""

    def rows(self, todos: Iterable[Todo], stopped: Callable[[], bool]) -> Iterator[Row]:
        """The rows of all missing runs, as they are made.

        Raises:
            CancelledError: somebody asked to stop.
        """


def devices_here(settings: PairSettings) -> tuple[str, ...]:
    """The devices that a pair can be loaded on side by side: every GPU, or the one device there is."""
    count = torch.cuda.device_count() if settings.device in ("auto", "cuda") and not settings.split else 0
    return tuple(f"cuda:{number}" for number in range(count)) if count > 1 else (settings.device,)


class DeviceCrew:
    """A process for each device, all with the same pair.

    Args:
        devices: such as `("cuda:0", "cuda:1")`; `cpu` may stand there more than once, and shares the cores.
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
        """See `Crew`."""
        connection = self._members[0][0]
        connection.send(("plan", grid, prompts))
        return _received(connection)[1]

    def rows(self, todos: Iterable[Todo], stopped: Callable[[], bool]) -> Iterator[Row]:
        """See `Crew`; a block goes to whichever device is free."""
        left, busy = iter(todos), set()
        for connection, _ in self._members:
            self._next(connection, left, busy)
        while busy:
            if stopped():
                raise CancelledError
            for connection in wait(list(busy), timeout=LOOK_S):
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
            connection.send(("rows", todo.block, todo.missing))
            busy.add(connection)


def _received(connection: Connection) -> tuple[str, Any]:
    """What a process sent; what went wrong there goes wrong here."""
    try:
        kind, content = connection.recv()
    except EOFError:
        raise ExperimentError("A worker ended without a word: run the grid again, it goes on.") from None
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
    crew: OwnCrew | None = None
    try:
        while True:
            asked, *words = connection.recv()
            crew = crew or OwnCrew(load_pair(replace(settings, device=kind)), experiment)
            if asked == "plan":
                connection.send(("plan", crew.plan(*words)))
                continue
            for row in crew.rows([Todo(*words)], lambda: False):
                connection.send(("row", row))
            connection.send(("done", None))
    except DraftscopeError as error:
        connection.send(("refused", str(error)))
    except (EOFError, BrokenPipeError):
        return
    except Exception:  # noqa: BLE001 - the process that asked raises it
        connection.send(("broken", traceback.format_exc()))


class RayCrew:
    """Workers that Ray starts, here or on a cluster, a pair in each; the package is optional.

    Args:
        address: of a cluster; `local` starts Ray on this machine.
        workers: how many; None: one per GPU, or one per core where there is none.

    Raises:
        ExperimentError: Ray is not installed, or no cluster answers at the address.
    """

    def __init__(self, settings: PairSettings, experiment: str, address: str = LOCAL, workers: int | None = None):
        try:
            import ray
        except ModuleNotFoundError:
            raise ExperimentError(
                "Running on Ray needs the package ray: pip install ray, or leave --ray away."
            ) from None
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
        """See `Crew`."""
        return self._got(self._members[0].plan.remote(grid, prompts))

    def rows(self, todos: Iterable[Todo], stopped: Callable[[], bool]) -> Iterator[Row]:
        """See `Crew`; a block goes to whichever worker is free, and its rows come one by one."""
        left, busy = iter(todos), {}
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
            raise ExperimentError(f"A worker was lost ({said}): run the grid again, it goes on.") from None


class _Member:
    """A worker: its pair is loaded when it is first asked, so that what stands against it is told."""

    def __init__(self, settings: PairSettings, experiment: str):
        self._settings, self._experiment = settings, experiment

    @cached_property
    def _own(self) -> OwnCrew:
        return OwnCrew(load_pair(self._settings), self._experiment)

    def plan(self, grid: Grid, prompts: Sequence[Prompt]) -> list[Block]:
        return self._own.plan(grid, prompts)

    def rows(self, todo: Todo) -> Iterator[Row]:
        yield from self._own.rows([todo], lambda: False)

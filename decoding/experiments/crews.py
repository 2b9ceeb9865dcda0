"""Who makes the runs of an experiment: this process with its pair, or a process for each of several devices.

A crew plans a grid (which takes a tokenizer and the identity of the pair), and makes blocks, each on one device.
"""

import multiprocessing
import os
import signal
import traceback
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection, wait
from typing import Any, Protocol

import torch

from decoding.common.errors import DraftscopeError, ExperimentError, require
from decoding.common.interruption import CancelledError
from decoding.common.prompts import Prompt
from decoding.experiments.grid import Grid
from decoding.experiments.plan import Block, Run, blocks
from decoding.experiments.rows import Row
from decoding.experiments.worker import Worker
from decoding.models.pair import Pair, load_pair, pair_identity
from decoding.models.presets import PairSettings

LOOK_S = 0.2  # between two looks whether somebody wants to stop


@dataclass(frozen=True)
class Todo:
    """A block with the runs of it that are not kept yet."""

    block: Block
    missing: tuple[Run, ...]


class Crew(Protocol):
    """Makes the runs of one experiment."""

    def plan(self, grid: Grid, prompts: Sequence[Prompt]) -> list[Block]:
        """Everything that a grid comes to."""

    def rows(self, todos: Iterable[Todo], stopped: Callable[[], bool]) -> Iterator[Row]:
        """The rows of all missing runs, as they are made.

        Raises:
            CancelledError: somebody asked to stop.
        """


class OwnCrew:
    """This process, with a pair that is loaded."""

    def __init__(self, pair: Pair, experiment: str):
        self._pair, self._worker = pair, Worker(pair, experiment)

    def plan(self, grid: Grid, prompts: Sequence[Prompt]) -> list[Block]:
        """See `Crew`."""
        return list(blocks(grid, self._pair, pair_identity(self._pair), prompts))

    def rows(self, todos: Iterable[Todo], stopped: Callable[[], bool]) -> Iterator[Row]:
        """See `Crew`."""
        for todo in todos:
            yield from self._worker.rows(todo.block, todo.missing, stopped)


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

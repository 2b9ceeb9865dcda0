"""The runs of an experiment on Ray: workers on this machine or on a cluster, a pair in each. Ray is optional."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from decoding.common.errors import DraftscopeError, ExperimentError
from decoding.common.interruption import CancelledError
from decoding.common.prompts import Prompt
from decoding.experiments.crews import LOOK_S, OwnCrew, Todo
from decoding.experiments.grid import Grid
from decoding.experiments.plan import Block
from decoding.experiments.rows import Row
from decoding.models.presets import PairSettings

LOCAL = "local"


class RayCrew:
    """Workers that Ray starts.

    Args:
        address: of a cluster; `local` starts Ray on this machine.
        workers: how many; None: one per GPU, or one per core where there is none.

    Raises:
        ExperimentError: Ray is not installed, or no cluster answers at the address.
    """

    def __init__(self, settings: PairSettings, experiment: str, address: str = LOCAL, workers: int | None = None):
        self._ray = ray = _ray()
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
        """See `crews.Crew`."""
        return self._got(self._members[0].plan.remote(grid, prompts))

    def rows(self, todos: Iterable[Todo], stopped: Callable[[], bool]) -> Iterator[Row]:
        """See `crews.Crew`; a block goes to whichever worker is free, and its rows come one by one."""
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
    """A worker: its pair is loaded when it is first asked."""

    def __init__(self, settings: PairSettings, experiment: str):
        self._asked, self._crew = (settings, experiment), None

    def plan(self, grid: Grid, prompts: Sequence[Prompt]) -> list[Block]:
        return self._own().plan(grid, prompts)

    def rows(self, todo: Todo) -> Iterator[Row]:
        yield from self._own().rows([todo], lambda: False)

    def _own(self) -> OwnCrew:
        if self._crew is None:
            from decoding.models.pair import load_pair

            settings, experiment = self._asked
            self._crew = OwnCrew(load_pair(settings), experiment)
        return self._crew


def _ray() -> Any:
    try:
        import ray
    except ModuleNotFoundError:
        raise ExperimentError("Running on Ray needs the package ray: pip install ray, or leave --ray away.") from None
    return ray

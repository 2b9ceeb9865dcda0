"""CUDA graphs of the passes of one model: captured when they come up again, kept as long as what they are bound to."""

import contextlib
import gc
import warnings
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

import torch
from torch import Tensor

from decoding.common.errors import is_out_of_memory

T = TypeVar("T", bound=Tensor | tuple[Tensor, ...] | None)

# Graphs of one model that are kept, each of some megabytes: a method needs about a hundred for a text, and ten methods
# that take turns find theirs again.
MOST_GRAPHS = 1024
# Graphs whose capture was broken off: the allocators of PyTorch may go on asking them which memory is theirs.
_BROKEN: list[Any] = []


@dataclass(eq=False)
class _Captured:
    """A graph, what it gives back, and when it was last replayed."""

    graph: Any
    results: Any
    used: int = 0


class Graphs:
    """Runs functions of static tensors: on CUDA as graphs from their second call on, elsewhere as they are.

    Every call does the work of the function exactly once, so that it may move rows or grow a tree: the first call with
    a key runs it on the stream that will capture, which is the warm-up that capturing needs; the second captures, which
    executes nothing, and replays; later ones replay. What a graph gives back stands in memory that the next call of
    any graph may overwrite, so callers use it or copy it at once; whatever one function hands to another goes through
    tensors that were made outside of them.

    Attributes:
        capture: whether calls become graphs; without, they run as they are, in the same sizes.
        cold: calls that warmed up or captured. A timed run that raises it was not at full speed.
        evicted: graphs given up because others were used more recently.
        failure: why a capture failed, after which all calls run as they are; empty while none has.
    """

    def __init__(self, device: torch.device):
        self.capture = device.type == "cuda"
        self.captured = self.cold = self.evicted = 0
        self.failure = ""
        self._device = device
        self._stream: Any = None
        self._graphs: WeakKeyDictionary[Any, dict[Hashable, _Captured | None]] = WeakKeyDictionary()
        self._clock = count(1)

    def call(self, owner: Any, key: Hashable, body: Callable[[], T]) -> T:
        """Do what `body` does; what it gives back is valid until the next call.

        The work is bound to the memory of `owner`: its graphs go when it goes. `key` names everything that it depends
        on besides the contents of static tensors, sizes above all. `body` takes nothing and synchronises with nothing;
        all tensors it reads and changes keep their addresses. Raises `RuntimeError` where memory ran out while it was
        captured.
        """
        if not self.capture:
            return body()
        graphs = self._graphs.setdefault(owner, {})
        if key not in graphs:
            results = self._warm_up(body)
            self.cold += 1
            graphs[key] = None
            return results
        entry = graphs[key]
        if entry is None:
            held = self._held()
            if len(held) >= MOST_GRAPHS:
                _, of_owner, unused = min(held, key=lambda each: each[0].used)
                del of_owner[unused]
                self.evicted += 1
            try:
                entry = graphs[key] = _Captured(*self._record(body))
            except RuntimeError as error:
                cause = error.__context__ or error  # what broke the capture, rather than that it could not be ended
                if is_out_of_memory(cause):
                    raise cause from None
                self.capture, self.failure = False, (str(cause).strip().splitlines() or [type(cause).__name__])[0][:160]
                self._graphs.clear()
                warnings.warn(
                    f"A CUDA graph could not be captured ({self.failure}): passes run without graphs, which is slower.",
                    RuntimeWarning,
                    stacklevel=2,
                )
                return body()
            self.captured += 1
            self.cold += 1
        entry.used = next(self._clock)
        entry.graph.replay()
        return entry.results

    def _warm_up(self, body: Callable[[], T]) -> T:
        if self._stream is None:
            self._stream = torch.cuda.Stream(self._device)
        current = torch.cuda.current_stream(self._device)
        self._stream.wait_stream(current)
        with torch.cuda.stream(self._stream):
            results = body()
        current.wait_stream(self._stream)
        made: Tensor | tuple[Tensor, ...] | None = results
        for tensor in (made,) if isinstance(made, Tensor) else made or ():
            tensor.record_stream(current)  # or its memory could be given away while the current stream still reads it
        return results

    def _record(self, body: Callable[[], T]) -> tuple[Any, T]:
        torch.cuda.synchronize(self._device)
        torch.cuda.empty_cache()  # during a capture the allocator cannot free what it holds to make room
        graph, held = torch.cuda.CUDAGraph(), self._held()
        # All graphs share one pool; where there is none to hold it, a new one is made.
        pool = held[0][0].graph.pool() if held else torch.cuda.graph_pool_handle()
        # Whatever happens, `stream` makes the stream of before the current one again.
        with _undisturbed(), torch.cuda.stream(self._stream):
            try:
                # thread_local: what other threads of the app do on the device meanwhile does not end the capture.
                graph.capture_begin(pool=pool, capture_error_mode="thread_local")
                results = body()
            finally:
                self._end(graph, pool)
        return graph, results

    def _end(self, graph: Any, pool: Any) -> None:
        """End a capture; one that something has broken ends with an error, and is cleared away first."""
        try:
            graph.capture_end()
        except RuntimeError:
            _BROKEN.append(graph)
            # PyTorch 2.11 to 2.13 leaves its allocator in the pool of the capture; a later one may have left it.
            with contextlib.suppress(RuntimeError):
                torch._C._cuda_endAllocateToPool(torch.cuda.current_device(), pool)
                torch._C._cuda_releasePool(torch.cuda.current_device(), pool)
            # Up to PyTorch 2.11 only a capture that succeeds tells the default generator that none is under way any
            # more. Until then nothing can be drawn from it, and graphs that others have captured cannot be replayed.
            with contextlib.suppress(RuntimeError):  # where this fails too, the first error says more
                number, other = torch.zeros(1, device=self._device), torch.cuda.CUDAGraph()
                other.capture_begin(pool=torch.cuda.graph_pool_handle(), capture_error_mode="thread_local")
                number.zero_()
                other.capture_end()
            raise

    def _held(self) -> list[tuple[_Captured, dict[Hashable, _Captured | None], Hashable]]:
        """Every graph, where it is held, and under which key."""
        return [(entry, graphs, key) for graphs in self._graphs.values() for key, entry in graphs.items() if entry]


@contextmanager
def _undisturbed() -> Iterator[None]:
    """No garbage collection and workspaces of its own for what is captured.

    A collection could free device memory or a graph in the middle of it. cuBLAS keeps one workspace per stream: from
    PyTorch 2.12 on destroying any graph frees that of the stream it was captured on, to which the other graphs of this
    stream would go on writing.
    """
    collects = gc.isenabled()
    gc.disable()
    torch._C._cuda_clearCublasWorkspaces()
    try:
        yield
    finally:
        torch._C._cuda_clearCublasWorkspaces()
        if collects:
            gc.enable()

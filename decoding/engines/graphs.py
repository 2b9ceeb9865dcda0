"""CUDA graphs of the passes of one model: captured when they come up again, kept as long as what they are bound to."""

import gc
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

import torch
from torch import Tensor

T = TypeVar("T", bound=Tensor | tuple[Tensor, ...] | None)


class Graphs:
    """Runs functions of static tensors: on CUDA as graphs from their second call on, elsewhere as they are.

    Every call does the work of the function exactly once, so that it may move rows or grow a tree: the first call with
    a key runs it on the stream that will capture, which is the warm-up that capturing needs; the second captures, which
    executes nothing, and replays; later ones replay. What a graph gives back stands in memory that the next call of
    any graph may overwrite, so callers use it or copy it at once; whatever one function hands to another goes through
    tensors that were made outside of them.

    Attributes:
        capture: whether calls become graphs; without, they run as they are, in the same sizes.
        captured: graphs captured so far. A timed run that raises it was not at full speed.
    """

    def __init__(self, device: torch.device):
        self.capture = device.type == "cuda"
        self.captured = 0
        self._device = device
        self._stream: Any = None
        self._graphs: WeakKeyDictionary[Any, dict[Hashable, tuple[Any, Any] | None]] = WeakKeyDictionary()

    def call(self, owner: Any, key: Hashable, body: Callable[[], T]) -> T:
        """Do what `body` does.

        Args:
            owner: whose memory the work is bound to; its graphs go when it goes.
            key: names everything that the work depends on besides the contents of static tensors, sizes above all.
            body: takes nothing and synchronises with nothing; all tensors it reads and changes keep their addresses.

        Returns:
            What `body` gives back, valid until the next call.
        """
        if not self.capture:
            return body()
        graphs = self._graphs.setdefault(owner, {})
        if key not in graphs:
            results = self._warm_up(body)
            graphs[key] = None
            return results
        if graphs[key] is None:
            graphs[key] = self._record(body)
        graph, results = graphs[key]
        graph.replay()
        return results

    def _warm_up(self, body: Callable[[], T]) -> T:
        if self._stream is None:
            self._stream = torch.cuda.Stream(self._device)
        current = torch.cuda.current_stream(self._device)
        self._stream.wait_stream(current)
        with torch.cuda.stream(self._stream):
            results = body()
        current.wait_stream(self._stream)
        for tensor in (results,) if isinstance(results, Tensor) else results or ():
            tensor.record_stream(current)  # or its memory could be given away while the current stream still reads it
        return results

    def _record(self, body: Callable[[], T]) -> tuple[Any, T]:
        graph = torch.cuda.CUDAGraph()
        # thread_local: what other threads of the app do on the device meanwhile does not end the capture.
        how = {"pool": self._living_pool(), "stream": self._stream, "capture_error_mode": "thread_local"}
        with _no_collection(), torch.cuda.graph(graph, **how):
            results = body()
        self.captured += 1
        return graph, results

    def _living_pool(self) -> Any:
        """The memory pool that all graphs share; None, which makes a new one, where there is no graph to hold it."""
        captured = (entry for graphs in self._graphs.values() for entry in graphs.values() if entry is not None)
        graph, _ = next(captured, (None, None))
        return graph.pool() if graph is not None else None


@contextmanager
def _no_collection() -> Iterator[None]:
    """No garbage collection meanwhile: it could free device memory or a graph in the middle of a capture."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()

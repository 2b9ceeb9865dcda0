"""Graphs without a GPU: what a capture would record is written on a tape, and replaying runs the tape.

Like a CUDA graph, a tape repeats the operations on the tensors of the day it was recorded, whatever Python would do
now. So it shows where a pass depends on a number of the host that its key does not name, or on a tensor that has moved.
What other tapes computed is overwritten before each call, as graphs that share a memory pool do to each other.
"""

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from decoding.engines.graphs import Graphs


class Tape(TorchDispatchMode):
    """Records operations while they run; `replay` runs them again on the same memory."""

    def __init__(self):
        super().__init__()
        self._steps, self._made, self._fresh = [], [], True

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        results = func(*args, **kwargs)
        given = {leaf.untyped_storage().data_ptr() for leaf in tree_leaves((args, kwargs)) if _is_tensor(leaf)}
        new = [leaf for leaf in tree_leaves(results) if _is_tensor(leaf)]
        own = [leaf for leaf in new if leaf.numel() and leaf.untyped_storage().data_ptr() not in given]
        changes = any(a.alias_info is not None and a.alias_info.is_write for a in func._schema.arguments)
        if own or changes:  # the rest are views: their memory stays where it is
            self._steps.append((func, args, kwargs, new if own else []))
            self._made += own
        return results

    def replay(self):
        """Run the tape; the recording itself has done the work of the first replay."""
        if self._fresh:
            self._fresh = False
            return
        for func, args, kwargs, before in self._steps:
            again = [leaf for leaf in tree_leaves(func(*args, **kwargs)) if _is_tensor(leaf)]
            for old, new in zip(before, again, strict=True) if before else ():
                old.copy_(new)

    def spoil(self):
        """Overwrite everything that was computed."""
        if not self._fresh:
            for tensor in self._made:
                tensor.fill_(torch.nan if tensor.is_floating_point() else 1)


class TapeGraphs(Graphs):
    """`Graphs` whose graphs are tapes."""

    def __init__(self, device):
        super().__init__(device)
        self.capture, self.tapes = True, []

    def call(self, owner, key, body):
        for tape in self.tapes:
            tape.spoil()
        return super().call(owner, key, body)

    def _warm_up(self, body):
        return body()

    def _record(self, body):
        tape = Tape()
        with tape:
            results = body()
        self.tapes.append(tape)
        return tape, results


def _is_tensor(leaf):
    return isinstance(leaf, torch.Tensor) and leaf.layout == torch.strided  # packed weights have no memory to look at

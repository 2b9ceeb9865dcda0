"""Passes over several sequences at once, each with rows of its own: what a batch costs, and nothing else runs on it.

    engine = BatchEngine(plain, model.engine, model.network, model.positions, batch=8)
    logits = engine.run(BatchCache(8, 300), ids, positions, Visibility.causal(0, 256))     # ids [8, 256]

All sequences have one length and their trees one shape. Products run over the rows of all together, attention over
the rows of each.
"""

from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from decoding.common.errors import PairError
from decoding.engines.attention import shared_rows
from decoding.engines.base import EagerEngine, Visibility
from decoding.engines.choose import Engine
from decoding.engines.graphs import Graphs
from decoding.engines.kv_cache import LayerCache
from decoding.engines.packed import LlamaForward, NeoXForward, PackedForward, StreamingEngine


class BatchCache(LayerCache):
    """Keys and values of several sequences of `length` rows each, `[batch, kv_heads, capacity, head_dim]` by layer."""

    def __init__(self, batch: int, capacity: int):
        self.batch, self.capacity, self.length = batch, capacity, 0
        self._rows: dict[int, tuple[Tensor, Tensor]] = {}

    def update(self, keys: Tensor, values: Tensor, layer_idx: int, *_args, **_kwargs) -> tuple[Tensor, Tensor]:
        """Write the rows of one layer after those held, return all `[batch, kv_heads, length + new, head_dim]`.

        New ones are `[batch, kv_heads, new, head_dim]`, or those of all sequences in a row, `[1, kv_heads, batch * new,
        ...]`.
        """
        found = []
        for place, rows in enumerate((keys, values)):
            if len(rows) != self.batch:
                rows = rows[0].unflatten(1, (self.batch, -1)).transpose(0, 1)
            if layer_idx not in self._rows or len(self._rows[layer_idx]) == place:
                room = rows.new_empty((self.batch, rows.shape[1], self.capacity, rows.shape[3]))
                self._rows[layer_idx] = (*self._rows.get(layer_idx, ()), room)
            end = self.length + rows.shape[2]
            room = self._rows[layer_idx][place]
            room[:, :, self.length : end] = rows
            found.append(room[:, :, :end])
        return found[0], found[1]

    def write(self, pair: Tensor | np.ndarray, layer_idx: int) -> tuple[Tensor, Tensor]:
        """The same for keys and values in one tensor `[2, 1, kv_heads, batch * new, head_dim]`."""
        return self.update(*torch.as_tensor(pair), layer_idx)

    def get_seq_length(self, _layer_idx: int = 0) -> int:
        """Rows held of each sequence."""
        return self.length

    def reserve(self, _new_rows: int) -> None:
        """There is room from the start."""

    def advance(self, new_rows: int) -> None:
        """Count rows that a pass has written in every layer, those of all sequences."""
        self.length += new_rows // self.batch


@dataclass(frozen=True)
class BatchMask:
    """One mask for the trees of all sequences, bool `[1, 1, num_queries, num_rows]`; None where nothing is hidden."""

    batch: int
    mask: Tensor | None

    @staticmethod
    def of(seen: Visibility, batch: int, device: torch.device) -> "BatchMask":
        """Who sees whom, the same in every sequence."""
        return BatchMask(batch, None if seen.sees_all else torch.from_numpy(seen.dense())[None, None].to(device))

    def attend(self, queries: Tensor, keys: Tensor, values: Tensor, scale: float) -> Tensor:
        """`attention.attend` sequence by sequence: queries `[batch * num_queries, heads, head_dim]`."""
        heads = queries.unflatten(0, (self.batch, -1)).transpose(1, 2)
        groups = heads.shape[1] // keys.shape[1]
        if groups > 1:
            heads = heads.reshape(-1, groups, *heads.shape[2:])
            keys, values = shared_rows(keys, groups), shared_rows(values, groups)
        out = functional.scaled_dot_product_attention(heads, keys, values, self.mask, scale=scale)
        return out.reshape(self.batch, -1, *out.shape[2:]).transpose(1, 2).flatten(0, 1)


class BatchEngine:
    """A model over batches: by its packed forward where it has one, on CUDA as a graph, else as transformers runs it.

    `plain` is the model's engine `transformers`, `engine` the one that runs it alone; `PairError` where that one
    attends in a way of its own, to which no batch is fitted.
    """

    def __init__(self, plain: Engine, engine: Engine, network: Any, positions: int, batch: int):
        if isinstance(engine, StreamingEngine):
            raise PairError("StreamingLLM attention does not run in batches: load the pair with the engine auto.")
        self.batch, self._plain, self._network = batch, plain, network
        self.graphs = Graphs(plain.device)
        self._inputs: dict[Any, tuple[Tensor, ...]] = {}  # of what is captured
        self._packed: Any = None  # a `PackedForward`
        if not isinstance(engine, EagerEngine):  # the kernels of a graph write the rows of one sequence
            kind = next((kind for kind in (NeoXForward, LlamaForward) if kind.fits(network)), None)
            self._packed = kind(network, positions) if kind else None
        elif isinstance(engine.forward, PackedForward):
            self._packed = engine.forward

    def run(
        self, cache: BatchCache, token_ids: np.ndarray, positions: np.ndarray, seen: Visibility, keep: int = 0
    ) -> Tensor:
        """Raw logits `[batch * num_queries, vocab_size]`, fewer where `keep` is 1, of one pass over tokens `[batch,
        num_queries]` at positions `[num_queries]` of their sequences.
        """
        ids = torch.from_numpy(np.ascontiguousarray(token_ids)).to(self._plain.device)
        places = torch.from_numpy(np.asarray(positions, dtype=np.int64)).to(ids.device)
        if self._packed is not None:
            mask = BatchMask.of(seen, self.batch, ids.device).mask
            inputs = (ids.flatten(), places.repeat(self.batch), *([] if mask is None else [mask]))
            logits = self._packed_pass(cache, inputs, keep or ids.numel())
        else:
            logits = self._network(
                input_ids=ids,
                position_ids=places.expand(self.batch, -1),
                attention_mask=self._plain.mask(seen),
                past_key_values=cache,
                use_cache=True,
                logits_to_keep=keep,
            ).logits.flatten(0, 1)
        cache.advance(ids.numel())
        return logits

    def _packed_pass(self, cache: BatchCache, inputs: tuple[Tensor, ...], keep: int) -> Tensor:
        """A pass over token ids, positions and a mask; the same sizes after as many rows are one graph."""
        key = cache.length, keep, len(inputs[0]), len(inputs)
        if self.graphs.capture:
            if key in self._inputs:
                for held, new in zip(self._inputs[key], inputs, strict=True):
                    held.copy_(new)
            inputs = self._inputs.setdefault(key, inputs)

        def one_pass(ids: Tensor, places: Tensor, mask: Tensor | None = None) -> Tensor:
            return self._packed(ids, places, BatchMask(self.batch, mask), cache, keep)

        logits = self.graphs.call(cache, key, partial(one_pass, *inputs))
        return logits.clone() if self.graphs.capture else logits

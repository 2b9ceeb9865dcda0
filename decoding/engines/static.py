"""The engine of static shapes: passes padded to a few sizes, over rows at fixed addresses, replayed as CUDA graphs."""

import weakref
from functools import partial
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from decoding.engines.base import Forward, Visibility
from decoding.engines.graphs import Graphs
from decoding.engines.static_cache import BlockPool, StaticKVCache
from decoding.engines.static_pass import PassInputs, StaticPass, host_pass
from decoding.engines.static_shapes import PassShape
from decoding.engines.transfers import Transfers


class StaticEngine:
    """Passes of a few sizes; see `Engine`. On CUDA each becomes a graph the second time it comes up.

    Args:
        forward: runs the layers; takes masks that are added, whatever `mask_kind` says of the eager ones.
        mask_kind: `bool` for attention that takes -inf in a mask, `additive` where it must be the dtype's minimum.
        mask_layer_types: keys of the dict of masks that the model takes, None if it takes one mask.
        name: `static`, or `static-host` where whole iterations are left to the host.

    Attributes:
        graphs, transfers: graphs of this model and its traffic with the host, with their counters.
        forward_pass: the model as a function of tensors on the device.
        trees: room that iterations on the device work in, by size (see `decoding.device.iteration`).
    """

    def __init__(
        self,
        forward: Forward,
        num_layers: int,
        device: torch.device,
        dtype: torch.dtype,
        mask_kind: Literal["bool", "additive"] = "bool",
        mask_layer_types: tuple[str, ...] | None = None,
        name: Literal["static", "static-host"] = "static",
    ):
        self.name, self.device = name, device
        self.graphs, self.transfers = Graphs(device), Transfers(device)
        floor = -torch.inf if mask_kind == "bool" else torch.finfo(dtype).min
        self.forward_pass = StaticPass(forward, dtype, floor, mask_layer_types)
        self._num_layers = num_layers
        self._pool = BlockPool(num_layers)
        self.trees: dict[Any, Any] = {}
        self._inputs: dict[PassShape, PassInputs] = {}

    def new_cache(self, capacity: int) -> StaticKVCache:
        """An empty cache with room for `capacity` rows; more room would cost it its graphs."""
        return StaticKVCache(self._num_layers, capacity, weakref.ref(self._pool))

    def mask(self, seen: Visibility) -> Visibility:
        """Who sees whom, as it is: the mask is made on the device, inside the pass."""
        return seen

    def run(
        self, cache: StaticKVCache, token_ids: np.ndarray, positions: np.ndarray, mask: Visibility, keep: int
    ) -> Tensor:
        """One pass; see `Engine.run`. The logits stay as they are whatever runs later."""
        return self._run(cache, token_ids, positions, mask, keep, features=False)

    @torch.inference_mode()
    def run_with_features(
        self,
        cache: StaticKVCache,
        token_ids: np.ndarray,
        positions: np.ndarray,
        mask: Visibility,
        keep: int,
        project: int | None = None,
    ) -> tuple[Tensor, Tensor]:
        """One pass with its features; see `Engine.run_with_features`. Logits are made behind the pass."""
        features = self._run(cache, token_ids, positions, mask, keep, features=True)
        return self.project(features if project is None else features[-project:]), features

    @torch.inference_mode()
    def project(self, features: Tensor) -> Tensor:
        """See `Engine.project`."""
        return self.forward_pass.project(features)

    @torch.inference_mode()
    def _run(
        self,
        cache: StaticKVCache,
        token_ids: np.ndarray,
        positions: np.ndarray,
        mask: Visibility,
        keep: int,
        features: bool,
    ) -> Tensor:
        """Logits or features of the kept queries."""
        count, kept = len(token_ids), keep or len(token_ids)
        shape = PassShape.of(mask, kept)
        cache.reserve(shape.queries)
        inputs = self._static_inputs(shape)
        staged = PassInputs(shape, self.transfers.staging(inputs.buffer))
        staged.fill(token_ids, positions, mask.among, mask.past, cache.length, kept)
        self.transfers.upload(staged.buffer, inputs.buffer)
        body = partial(host_pass, self.forward_pass, cache.blocks, inputs, shape, features)
        # The first pass over new blocks makes them, which no graph may do.
        recurs = shape.recurs and all(cache.blocks.placed)
        rows = self.graphs.call(cache.blocks, (shape, features), body) if recurs else body()
        cache.advance(count)
        # A pass that computes every query says nothing of which were asked for: the last ones of those that are real.
        first = count - kept if shape.kept == shape.queries else 0
        rows = rows[first : first + kept]
        return rows.clone() if self.graphs.capture else rows

    def _static_inputs(self, shape: PassShape) -> PassInputs:
        if not shape.recurs:
            return PassInputs.on(shape, self.device)
        if shape not in self._inputs:
            self._inputs[shape] = PassInputs.on(shape, self.device)
        return self._inputs[shape]

"""What runs a model: who sees whom in a pass, and the engine that runs each at its own size, on any device."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any, Literal, Protocol

import numpy as np
import torch
from torch import Tensor

from decoding.common.errors import PairError, is_out_of_memory
from decoding.engines.kv_cache import KVCache

MaskKind = Literal["bool", "additive"]  # true where a query sees, or added to the scores
# Largest difference of log-probabilities between a tree forward and plain forwards that rounding explains.
TOLERANCE = {torch.float32: 2e-3, torch.float16: 5e-2, torch.bfloat16: 2e-1}

# What a forward pass of a model that is none of ours can fail with.
FORWARD_ERRORS = (TypeError, ValueError, ArithmeticError, RuntimeError, LookupError, AttributeError, AssertionError)


@dataclass(frozen=True)
class Visibility:
    """Who sees whom in one pass: every query sees all rows before `past` and some of the rows after."""

    past: int
    # Bool `[num_queries, num_rows]`, which of the rows after the past each query sees; the queries' own rows are the
    # last `num_queries` of them
    among: np.ndarray

    @staticmethod
    def causal(past: int, num_queries: int) -> "Visibility":
        """Of a pass over consecutive tokens after `past` rows."""
        return Visibility(past, _triangle(num_queries) if num_queries <= 16 else np.tri(num_queries, dtype=bool))

    @property
    def shape(self) -> tuple[int, int]:
        """Queries and rows, the past included."""
        return self.among.shape[0], self.past + self.among.shape[1]

    @property
    def sees_all(self) -> bool:
        """True where no query misses a row."""
        return bool(self.among.all())

    def dense(self) -> np.ndarray:
        """Bool `[num_queries, past + num_rows]`, True where a query sees a row."""
        mask = np.ones(self.shape, dtype=bool)
        mask[:, self.past :] = self.among
        return mask


@lru_cache
def _triangle(size: int) -> np.ndarray:
    """What the one row or the few that are pending in each iteration see of each other; nobody writes into it."""
    triangle = np.tri(size, dtype=bool)
    triangle.flags.writeable = False
    return triangle


# What a configuration may say that its model does to the product: (name of the setting, function of product and value).
_BEHIND_THE_PRODUCT = (
    ("final_logit_softcapping", lambda product, cap: torch.tanh(product / cap) * cap),
    ("logits_scaling", lambda product, scale: product / scale),
    ("logit_scale", lambda product, scale: product * scale),
    ("lm_head_multiplier", lambda product, scale: product * scale),
)


class OutputHead:
    """Features `[num_rows, hidden_size]` to raw logits `[num_rows, vocab_size]`, exactly as a transformers model does.

    The model is tried once with a few tokens: the product of its head, `module`, with what its configuration says is
    done to it, must give its own logits. Raises `PairError` where there is no such head, or something unknown comes
    after it.
    """

    def __init__(self, network: Any, name: str):
        self.module = network.get_output_embeddings()
        behind: tuple | None = None
        failure: Exception | None = None
        if self.module is not None:
            try:
                behind = self._found(network)
            except FORWARD_ERRORS as error:
                if is_out_of_memory(error):
                    raise
                failure = error
        if behind is None:
            raise PairError(
                f"{name} gives no hidden states before its output head, which a draft head needs; "
                "choose a model such as Pythia, Llama, Qwen2.5 or GPT-2."
            ) from failure
        self._behind = behind

    @torch.inference_mode()
    def _found(self, network: Any) -> tuple | None:
        """The function that makes logits of the product, with its number; None where no known one does."""
        config, weight = network.config.get_text_config(), network.get_input_embeddings().weight
        ids = torch.arange(1, 10, 2, device="cpu" if weight.is_meta else weight.device)[None] * config.vocab_size // 10
        with watched(self.module) as seen:
            logits = network(input_ids=ids).logits[0]
        if len(seen) != 1 or seen[0].dim() != 3 or seen[0].shape[1] != len(logits):
            return None
        factors = [(function, getattr(config, name, None)) for name, function in _BEHIND_THE_PRODUCT]
        product = self.module(seen[0][0])
        for function, value in [(None, None), *((f, v) for f, v in factors if v)]:
            made = product if function is None else function(product, value)
            error = (made.float().log_softmax(-1) - logits.to(made.device).float().log_softmax(-1)).abs().max()
            # A cap changes small logits by little: it is left out only where it changes nothing.
            exact = 1e-5 if product.dtype == torch.float32 else TOLERANCE[product.dtype] / 10
            if float(error) <= exact:
                return function, value
        return None

    def __call__(self, features: Tensor) -> Tensor:
        return self.behind(self.module(features))

    def behind(self, product: Tensor) -> Tensor:
        """Logits of the product, of any of its columns."""
        function, value = self._behind
        return product if function is None else function(product, value)


@contextmanager
def watched(head: Any, project: int | None = None) -> Iterator[list[Tensor]]:
    """Note what the output head of a model is given meanwhile by this thread, each `[1, num_rows, hidden_size]`.

    With `project` the head itself is given only the last so many rows of it.
    """
    seen: list[Tensor] = []
    thread = threading.get_ident()

    def note(_module: Any, args: tuple) -> tuple | None:
        if threading.get_ident() != thread:
            return None
        seen.append(args[0])
        return None if project is None else (args[0][:, -project:], *args[1:])

    handle = head.register_forward_pre_hook(note, prepend=True)
    try:
        yield seen
    finally:
        handle.remove()


class Forward(Protocol):
    """What runs the layers of a model and makes logits or features; `TransformersForward` says what it takes."""

    @property
    def project(self) -> Callable[[Tensor], Tensor]: ...
    def __call__(self, *inputs: Any, **named: Any) -> Tensor: ...
    def with_features(self, *inputs: Any, **named: Any) -> tuple[Tensor, Tensor]: ...


class EagerEngine:
    """Passes of the size that the tree has; the reference for every other engine, which all have its signature.

    Caches that an engine makes are only for its own passes.

    Args:
        name: `transformers` with a `TransformersForward`; `packed` or `streaming-<rows>` with one of our own.
        mask_kind: `bool` (True = attend) or `additive` (0 and the dtype's minimum).
        mask_layer_types: keys of the dict of masks that the model takes, None if it takes one mask.
    """

    def __init__(
        self,
        name: str,
        forward: Forward,
        num_layers: int,
        device: torch.device,
        dtype: torch.dtype,
        mask_kind: MaskKind = "bool",
        mask_layer_types: tuple[str, ...] | None = None,
    ):
        self.name, self.device, self.forward = name, device, forward
        self._num_layers, self._dtype = num_layers, dtype
        self._mask_layer_types, self._may_be_none = mask_layer_types, mask_kind == "bool" and not mask_layer_types
        floor = torch.finfo(dtype).min if mask_kind == "additive" else None
        self._floor: float | None = getattr(forward, "floor", floor)

    def new_cache(self, capacity: int) -> KVCache:
        """An empty cache with room for `capacity` rows; it grows when a pass needs more."""
        return KVCache(self._num_layers, capacity)

    def mask(self, seen: Visibility) -> Any:
        """The mask in the 4-D form that the attention in use really takes: bool for SDPA, additive for eager.

        A lone query that sees every row needs none: SDPA is about 3% faster without.
        """
        if self._may_be_none and len(seen.among) == 1 and seen.sees_all:
            return None
        if self._floor is None:
            mask = torch.from_numpy(seen.dense()[None, None]).to(self.device, non_blocking=True)
        else:
            added = np.zeros((1, 1, *seen.shape), dtype=np.float32)
            added[0, 0, :, seen.past :][~seen.among] = self._floor
            mask = torch.from_numpy(added).to(self.device, self._dtype, non_blocking=True)
        if self._mask_layer_types:
            return {layer_type: mask for layer_type in self._mask_layer_types}
        return mask

    def run(self, cache: KVCache, token_ids: np.ndarray, positions: np.ndarray, mask: Any, keep: int) -> Tensor:
        """Raw logits `[keep or num_queries, vocab_size]` of the last `keep` queries (0: of all) of one pass.

        The rows of its `[num_queries]` tokens, which stand at `positions`, are appended to the cache.
        """
        return self._pass(self.forward, cache, token_ids, positions, mask, keep)

    def run_with_features(
        self, cache: KVCache, token_ids, positions, mask: Any, keep: int, project: int | None = None
    ) -> tuple[Tensor, Tensor]:
        """The same pass; logits of the last `project` kept queries (None: of all), features `[kept, hidden_size]`.

        Raises `PairError` where the model has no features: what the output head multiplies.
        """
        return self._pass(self.forward.with_features, cache, token_ids, positions, mask, keep, project)

    def project(self, features: Tensor) -> Tensor:
        """Raw logits `[num_rows, vocab_size]` of features `[num_rows, hidden_size]`; see `run_with_features`."""
        return self.forward.project(features)

    def _pass(self, forward: Callable, cache: KVCache, token_ids, positions, mask: Any, keep: int, *project):
        cache.reserve(len(token_ids))
        ids = torch.from_numpy(np.asarray(token_ids, dtype=np.int64)).to(self.device, non_blocking=True)
        places = torch.from_numpy(np.asarray(positions, dtype=np.int64)).to(self.device, non_blocking=True)
        found = forward(ids, places, mask, cache, keep or len(token_ids), *project)
        cache.advance(len(token_ids))
        return found


class TransformersForward:
    """The transformers model as a forward, see `Forward`; its features are caught where they enter the output head."""

    def __init__(self, network: Any, name: str = "The target"):
        self._network, self._name = network, name

    def __call__(self, ids: Tensor, positions: Tensor, mask: Any, cache: KVCache, keep: int | Tensor) -> Tensor:
        """Raw logits `[num_kept, vocab_size]` of the last `keep` queries, or of those at an index `[num_kept]`.

        `ids` and `positions` are `[num_queries]`, the mask is as `EagerEngine.mask` made it.
        """
        output = self._network(
            input_ids=ids[None],
            position_ids=positions[None],
            attention_mask=mask,
            past_key_values=cache,
            use_cache=True,
            logits_to_keep=keep,
        )
        return output.logits[0]

    def with_features(
        self, ids: Tensor, positions: Tensor, mask: Any, cache: KVCache, keep: int | Tensor, project: int | None = None
    ) -> tuple[Tensor, Tensor]:
        """Logits of the last `project` kept queries (None: of all) and features `[num_kept, hidden_size]`."""
        with watched(self._output_head.module, project) as seen:
            logits = self(ids, positions, mask, cache, keep)
        return logits, seen[0][0]

    def project(self, features: Tensor) -> Tensor:
        """Features `[num_rows, hidden_size]` to raw logits `[num_rows, vocab_size]`."""
        return self._output_head(features)

    @cached_property
    def _output_head(self) -> OutputHead:  # when it is first asked for, as making it tries the model
        return OutputHead(self._network, self._name)

"""The draft model as a source of probabilities: its cache, its rows of this iteration, its forwards."""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from decoding.engines.base import Visibility
from decoding.engines.clock import PhaseClock
from decoding.engines.kv_cache import FeatureRows, KVCache
from decoding.models.pair import Model, match_vocabulary, tree_forward
from decoding.sampling.sampling import Sampling
from decoding.selector.features import Past
from decoding.tree.draft import TokenTree


@dataclass(frozen=True)
class TargetPast:
    """What the target has said of a text: the feature of every token but the last.

    Attributes:
        sampling: under which its laws are read.
    """

    model: Model
    features: FeatureRows
    sampling: Sampling


class ModelSource:
    """Asks the draft model about nodes of one iteration's tree; one forward per call, the cache is never refilled.

    The first call also feeds the committed tokens that the draft has not seen yet (its cache ends where the last
    accepted path left what it had drafted), with the root as the last of them.

    Args:
        past: of the target, for a drafter that asks for `past()`; the draft then reads the token before the root again.
    """

    def __init__(
        self,
        model: Model,
        cache: KVCache,
        tokens: list[int],
        width: int,
        depth_limit: int,
        clock: PhaseClock,
        temperature: float = 1.0,
        past: TargetPast | None = None,
    ):
        if past is not None:
            cache.rollback(max(0, min(cache.length, len(tokens) - 2)))
        self.depth_limit = depth_limit
        self.forwards = 0
        self.row_nodes: list[int] = []
        self.logits: list[Tensor] = []
        self.rows_before = cache.length
        self._model, self._cache, self._clock = model, cache, clock
        self._pending = tokens[cache.length :]
        self._root_position = len(tokens) - 1
        self._width, self._temperature = width, temperature
        self._past, self._length = past, len(tokens)
        self._root_logits: Tensor | None = None

    def past(self) -> Past | None:
        """What both models say at the end of the text; None where no token stands before the root."""
        if self._past is None:
            raise ValueError("this source was not made to tell the past")
        if self._length < 2:
            return None
        self._clock.mark("draft_logic")
        positions, mask = self._pending_pass()
        engine = self._model.engine
        pending = np.array(self._pending)
        logits, features = engine.run_with_features(self._cache, pending, positions, engine.mask(mask), keep=2)
        logits = match_vocabulary(logits, self._width).float()
        self._root_logits = logits[1:]
        target, before = self._past.model.engine, self._past.features.between(self._length - 2, self._length - 1)
        self._clock.mark("draft_level")
        return Past(
            before[0], target.project(before)[0], features, self._laws(logits), self._length, self._past.sampling
        )

    def expand(self, tree: TokenTree, nodes: np.ndarray) -> Tensor:
        """Draft probabilities after `nodes` in float32, `[len(nodes), vocab_size of the target]`."""
        self.forwards += 1
        if nodes[0] == 0 and self._root_logits is not None:  # read by the pass that told the past
            self.logits.append(self._root_logits)
            return self._laws(self._root_logits)
        self._clock.mark("draft_logic")
        logits = self._forward_pending() if nodes[0] == 0 else self._forward_level(tree, nodes)
        logits = match_vocabulary(logits, self._width).float()
        self.logits.append(logits)
        probs = self._laws(logits)
        self._clock.mark("draft_level")
        return probs

    def _laws(self, logits: Tensor) -> Tensor:
        return torch.softmax(logits if self._temperature == 1 else logits / self._temperature, -1)

    def _forward_pending(self) -> Tensor:
        positions, mask = self._pending_pass()
        return tree_forward(self._model, self._cache, self._pending, positions, mask, keep=1)

    def _pending_pass(self) -> tuple[np.ndarray, Visibility]:
        """Positions and mask of the pass over what is pending, whose rows are noted."""
        count = len(self._pending)
        self.row_nodes = [-1] * (count - 1) + [0]
        positions = np.arange(self._root_position - count + 1, self._root_position + 1)
        return positions, Visibility.causal(self._cache.length, count)

    def _forward_level(self, tree: TokenTree, nodes: np.ndarray) -> Tensor:
        committed = self.rows_before + len(self._pending)
        self.row_nodes.extend(nodes.tolist())
        drafted_rows = self.row_nodes[len(self._pending) :]
        mask = Visibility(committed, tree.ancestors[nodes][:, drafted_rows])
        return tree_forward(
            self._model, self._cache, tree.tokens[nodes], self._root_position + tree.depths[nodes], mask
        )


class NoSource:
    """Stands in where a method drafts nothing; asking it is a mistake in the drafter."""

    def __init__(self, depth_limit: int):
        self.depth_limit = depth_limit
        self.forwards = 0
        self.row_nodes: list[int] = []
        self.logits: list[Tensor] = []
        self.rows_before = 0

    def expand(self, tree: TokenTree, nodes: np.ndarray) -> Tensor:
        raise ValueError("this method has no draft model to ask")

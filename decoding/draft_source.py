"""The draft model as a source of probabilities: its cache, its rows of this iteration, its forwards."""

import numpy as np
import torch
from torch import Tensor

from decoding.clock import PhaseClock
from decoding.kv_cache import KVCache
from decoding.pair import Model, match_vocabulary
from decoding.token_tree import TokenTree
from decoding.tree_attention import causal_visibility, tree_forward, visibility


class ModelSource:
    """Asks the draft model about nodes of one iteration's tree; one forward per call, the cache is never refilled.

    The first call also feeds the committed tokens that the draft has not seen yet (its cache ends where the last
    accepted path left what it had drafted), with the root as the last of them.
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
    ):
        self.depth_limit = depth_limit
        self.forwards = 0
        self.row_nodes: list[int] = []
        self.logits: list[Tensor] = []
        self.rows_before = cache.length
        self._model, self._cache, self._clock = model, cache, clock
        self._pending = tokens[cache.length :]
        self._root_position = len(tokens) - 1
        self._width, self._temperature = width, temperature

    def expand(self, tree: TokenTree, nodes: np.ndarray) -> Tensor:
        """Draft probabilities after `nodes` in float32, `[len(nodes), vocab_size of the target]`."""
        self._clock.mark("draft_logic")
        logits = self._forward_pending() if nodes[0] == 0 else self._forward_level(tree, nodes)
        logits = match_vocabulary(logits, self._width).float()
        self.forwards += 1
        self.logits.append(logits)
        probs = torch.softmax(logits if self._temperature == 1 else logits / self._temperature, -1)
        self._clock.mark("draft_level")
        return probs

    def _forward_pending(self) -> Tensor:
        count = len(self._pending)
        positions = np.arange(self._root_position - count + 1, self._root_position + 1)
        mask = causal_visibility(self._cache.length, count)
        self.row_nodes = [-1] * (count - 1) + [0]
        return tree_forward(self._model, self._cache, self._pending, positions, mask, keep=1)

    def _forward_level(self, tree: TokenTree, nodes: np.ndarray) -> Tensor:
        committed = self.rows_before + len(self._pending)
        self.row_nodes.extend(nodes.tolist())
        drafted_rows = self.row_nodes[len(self._pending) :]
        mask = visibility(committed, tree.ancestors[nodes][:, drafted_rows])
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

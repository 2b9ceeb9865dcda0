"""A draft head as a source of probabilities: its cache, its rows of this iteration, its forwards."""

import numpy as np
import torch
from torch import Tensor

from decoding.engines.base import Visibility
from decoding.engines.clock import PhaseClock
from decoding.engines.kv_cache import FeatureRows, KVCache
from decoding.heads.head import Head
from decoding.tree.draft import TokenTree


class HeadSource:
    """Asks a head about nodes of one iteration's tree, as `ModelSource` asks a draft model; one forward per call.

    The first call also runs the tokens committed since the last iteration, the root as the last of them, with the
    target's true features of their parents. A drafted token takes the head's own output for its parent instead; its row
    is of this iteration only. The first token of a text has no parent and no row: row r belongs to position r + 1, and
    below a text of one token nothing can be drafted.

    Args:
        cache: of the head.
        features: of the target, one for every token but the last.
        tokens: the text.
    """

    def __init__(
        self,
        head: Head,
        cache: KVCache,
        features: FeatureRows,
        tokens: list[int],
        depth_limit: int,
        clock: PhaseClock,
        temperature: float = 1.0,
    ):
        self.depth_limit = depth_limit if len(tokens) > 1 else 0
        self.forwards = 0
        self.row_nodes: list[int] = []
        self.logits: list[Tensor] = []
        self.rows_before = cache.length
        self._head, self._cache, self._clock = head, cache, clock
        self._true, self._own = features, FeatureRows(64)
        self._tokens, self._pending = list(tokens), len(tokens) - 1 - cache.length
        self._root_position = len(tokens) - 1
        self._temperature = temperature
        self._places: dict[int, int] = {}

    def expand(self, tree: TokenTree, nodes: np.ndarray) -> Tensor:
        """Draft probabilities after `nodes` in float32, `[len(nodes), vocab_size of the target]`."""
        self._clock.mark("draft_logic")
        predicted = self._forward_pending() if nodes[0] == 0 else self._forward_level(tree, nodes)
        self._places.update(zip(nodes.tolist(), range(self._own.length, self._own.length + len(nodes)), strict=True))
        self._own.append(predicted)
        logits = self._head.logits(predicted).float()
        self.forwards += 1
        self.logits.append(logits)
        probs = torch.softmax(logits if self._temperature == 1 else logits / self._temperature, -1)
        self._clock.mark("draft_level")
        return probs

    def _forward_pending(self) -> Tensor:
        """The predicted feature of the root, `[1, hidden_size]`."""
        self.row_nodes = [-1] * (self._pending - 1) + [0]
        return self._head.read(self._cache, self._true, self._tokens)[-1:]

    def _forward_level(self, tree: TokenTree, nodes: np.ndarray) -> Tensor:
        committed = self.rows_before + self._pending
        self.row_nodes.extend(nodes.tolist())
        drafted_rows = self.row_nodes[self._pending :]
        seen = Visibility(committed, tree.ancestors[nodes][:, drafted_rows])
        before = self._own.at([self._places[parent] for parent in tree.parents[nodes].tolist()])
        positions = self._root_position + tree.depths[nodes]
        return self._head.engine.run(self._cache, tree.tokens[nodes], positions, seen, before)

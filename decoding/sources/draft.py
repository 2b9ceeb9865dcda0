"""The draft as a source of probabilities, a draft model or a draft head: its rows of this iteration, its forwards."""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from decoding.engines.base import Visibility
from decoding.engines.clock import PhaseClock
from decoding.engines.kv_cache import FeatureRows, KVCache
from decoding.heads.head import Head
from decoding.models.pair import Model, match_vocabulary, tree_forward
from decoding.sampling.sampling import Sampling
from decoding.selector.network import Past
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


class NoSource:
    """Stands in where a method drafts nothing; asking it is a mistake in the drafter.

    Attributes:
        depth_limit: most depth that a node can have. forwards: passes of the draft so far.
        rows_before: rows of its cache before the iteration.
        row_nodes: node of each row behind; -1 for committed tokens.
        logits: of the nodes of each pass.
    """

    def __init__(self, depth_limit: int, rows_before: int = 0):
        self.depth_limit, self.rows_before, self.forwards = depth_limit, rows_before, 0
        self.row_nodes: list[int] = []
        self.logits: list[Tensor] = []

    def expand(self, tree: TokenTree, nodes: np.ndarray) -> Tensor:
        """Draft probabilities after `nodes` in float32, `[len(nodes), vocab_size of the target]`."""
        raise ValueError("this method has no draft model to ask")


class _DraftSource(NoSource):
    """A draft that is asked about nodes of one iteration's tree; one forward per call, the cache is never refilled.

    The first call also runs the tokens committed since the last iteration, with the root as the last of them.
    """

    def __init__(
        self,
        cache: KVCache,
        tokens: list[int],
        num_pending: int,
        depth_limit: int,
        clock: PhaseClock,
        temperature: float,
    ):
        super().__init__(depth_limit, cache.length)
        self._cache, self._tokens, self._num_pending = cache, list(tokens), num_pending
        self._clock, self._temperature = clock, temperature

    def expand(self, tree: TokenTree, nodes: np.ndarray) -> Tensor:
        """See `NoSource.expand`."""
        self._clock.mark("draft_logic")
        if nodes[0] == 0:
            self.row_nodes = [-1] * (self._num_pending - 1) + [0]
        else:
            self.row_nodes.extend(nodes.tolist())
        logits = self._logits(tree, nodes).float()
        self.forwards += 1
        self.logits.append(logits)
        probs = self._laws(logits)
        self._clock.mark("draft_level")
        return probs

    def _logits(self, tree: TokenTree, nodes: np.ndarray) -> Tensor:
        """Raw logits after `nodes`, whose rows are noted, `[len(nodes), vocab_size of the target]`."""
        raise NotImplementedError

    def _level(self, tree: TokenTree, nodes: np.ndarray) -> tuple[np.ndarray, np.ndarray, Visibility]:
        """Tokens and positions of nodes below the root, and who sees whom in a pass over them."""
        seen = tree.ancestors[nodes][:, self.row_nodes[self._num_pending :]]
        positions = len(self._tokens) - 1 + tree.depths[nodes]
        return tree.tokens[nodes], positions, Visibility(self.rows_before + self._num_pending, seen)

    def _laws(self, logits: Tensor) -> Tensor:
        return torch.softmax(logits if self._temperature == 1 else logits / self._temperature, -1)


class ModelSource(_DraftSource):
    """The draft model: its cache ends where the last accepted path left what it had drafted.

    Args:
        width: size of the target's vocabulary.
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
        super().__init__(cache, tokens, len(tokens) - cache.length, depth_limit, clock, temperature)
        self._model, self._width, self._past = model, width, past
        self._root_logits: Tensor | None = None

    def past(self) -> Past | None:
        """What both models say at the end of the text; None where no token stands before the root."""
        if self._past is None:
            raise ValueError("this source was not made to tell the past")
        length = len(self._tokens)
        if length < 2:
            return None
        self._clock.mark("draft_logic")
        self.row_nodes = [-1] * (self._num_pending - 1) + [0]
        tokens, positions, seen = self._pending()
        engine = self._model.engine
        logits, features = engine.run_with_features(self._cache, tokens, positions, engine.mask(seen), keep=2)
        logits = match_vocabulary(logits, self._width).float()
        self._root_logits = logits[1:]
        target, before = self._past.model.engine, self._past.features.between(length - 2, length - 1)
        self._clock.mark("draft_level")
        return Past(before[0], target.project(before)[0], features, self._laws(logits), length, self._past.sampling)

    def expand(self, tree: TokenTree, nodes: np.ndarray) -> Tensor:
        """See `NoSource.expand`."""
        if nodes[0] != 0 or self._root_logits is None:
            return super().expand(tree, nodes)
        self.forwards += 1  # the pass that told the past
        self.logits.append(self._root_logits)
        return self._laws(self._root_logits)

    def _logits(self, tree: TokenTree, nodes: np.ndarray) -> Tensor:
        tokens, positions, seen = self._pending() if nodes[0] == 0 else self._level(tree, nodes)
        logits = tree_forward(self._model, self._cache, tokens, positions, seen, keep=len(nodes))
        return match_vocabulary(logits, self._width)

    def _pending(self) -> tuple[np.ndarray, np.ndarray, Visibility]:
        """Tokens and positions of what is pending, and who sees whom in a pass over it."""
        start, end = len(self._tokens) - self._num_pending, len(self._tokens)
        return np.array(self._tokens[start:]), np.arange(start, end), Visibility.causal(self._cache.length, end - start)


class HeadSource(_DraftSource):
    """A draft head: the first call takes the target's true features of the parents of what is pending.

    A drafted token takes the head's own output for its parent instead; its row is of this iteration only. The first
    token of a text has no parent and no row: row r belongs to position r + 1, and below a text of one token nothing can
    be drafted.

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
        depth_limit = depth_limit if len(tokens) > 1 else 0
        super().__init__(cache, tokens, len(tokens) - 1 - cache.length, depth_limit, clock, temperature)
        self._head, self._true, self._own = head, features, FeatureRows(64)
        self._places: dict[int, int] = {}

    def _logits(self, tree: TokenTree, nodes: np.ndarray) -> Tensor:
        if nodes[0] == 0:
            predicted = self._head.read(self._cache, self._true, self._tokens)[-1:]
        else:
            before = self._own.at([self._places[parent] for parent in tree.parents[nodes].tolist()])
            predicted = self._head.engine.run(self._cache, *self._level(tree, nodes), before)
        self._places.update(zip(nodes.tolist(), range(self._own.length, self._own.length + len(nodes)), strict=True))
        self._own.append(predicted)
        return self._head.logits(predicted)

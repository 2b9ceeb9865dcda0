"""Both models of a session with the KV slots of the text they have read: prefill, drafting, verification."""

import copy
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from decoding.common.interruption import check_wanted, turn
from decoding.device.iteration import NoSource
from decoding.engines.base import Visibility
from decoding.engines.clock import PhaseClock
from decoding.engines.kv_cache import FeatureRows, KVCache
from decoding.heads.head import Head
from decoding.models.pair import Model, Pair, match_vocabulary, tree_forward
from decoding.sampling.sampling import Sampling, target_distribution
from decoding.selector.features import Past
from decoding.tree.draft import Draft, TokenTree


class _DraftSource(NoSource):
    """A draft that is asked about nodes of one iteration's tree; one forward per call, the cache is never refilled.

    The first call also runs the tokens committed since the last iteration, with the root as the last of them.
    """

    def __init__(
        self, cache: KVCache, tokens: list[int], pending: int, depth_limit: int, clock: PhaseClock, temperature: float
    ):
        self._cache, self._tokens, self._num_pending = cache, list(tokens), pending
        super().__init__(depth_limit, cache.length, self._tokens)
        self._clock, self._temperature = clock, temperature

    def expand(self, tree: TokenTree, nodes: np.ndarray) -> Tensor:
        self._clock.mark("draft_logic")
        if nodes[0] == 0:
            self.slot_nodes = [-1] * (self._num_pending - 1) + [0]
        else:
            self.slot_nodes.extend(nodes.tolist())
        logits = self._logits(tree, nodes).float()
        self.forwards += 1
        self.logits.append(logits)
        probs = self._distributions(logits)
        self._clock.mark("draft_level")
        return probs

    def _logits(self, tree: TokenTree, nodes: np.ndarray) -> Tensor:
        """Raw logits after `nodes`, whose rows are noted, `[len(nodes), vocab_size of the target]`."""
        raise NotImplementedError

    def _level(self, tree: TokenTree, nodes: np.ndarray) -> tuple[np.ndarray, np.ndarray, Visibility]:
        """Tokens and positions of nodes below the root, and who sees whom in a pass over them."""
        seen = tree.ancestors[nodes][:, self.slot_nodes[self._num_pending :]]
        positions = len(self._tokens) - 1 + tree.depths[nodes]
        return tree.tokens[nodes], positions, Visibility(self.slots_before + self._num_pending, seen)

    def _distributions(self, logits: Tensor) -> Tensor:
        return torch.softmax(logits if self._temperature == 1 else logits / self._temperature, -1)


@dataclass(frozen=True)
class BeforeRoot:
    """What the last iteration's passes gave after the token that now stands before the root."""

    length: int  # tokens of the text then, the root included
    target_logits: Tensor  # raw, `[vocab_size]`
    # Feature `[hidden_size]` and raw logits `[vocab_size]`; None where the draft has not read it yet
    draft: tuple[Tensor, Tensor] | None


@dataclass(frozen=True)
class PastRows:
    """What a source needs for `past()`: the target, its features of every token but the last, the sampling, and what is
    known of the token before the root.
    """

    target: Model
    features: FeatureRows
    sampling: Sampling
    before: BeforeRoot | None


class ModelSource(_DraftSource):
    """The draft model: its cache ends where the last accepted path left what it had drafted.

    Args:
        width: size of the target's vocabulary.
        past: for a drafter that asks for `past()`; where the token before the root is not known, the draft reads it
            again.

    Attributes:
        features: of the nodes of each call, `[len(nodes), hidden_size]`; kept for `past()` alone.
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
        past: PastRows | None = None,
    ):
        self.features: list[Tensor] = []
        self._before = past.before if past is not None and past.before and past.before.length == len(tokens) else None
        if past is not None and (self._before is None or self._before.draft is None):
            cache.rollback(max(0, min(cache.length, len(tokens) - 2)))
        super().__init__(cache, tokens, len(tokens) - cache.length, depth_limit, clock, temperature)
        self._model, self._width, self._past = model, width, past
        self._root_logits: Tensor | None = None

    def past(self) -> Past | None:
        """What both models say at the end of the text; None where no token stands before the root."""
        if self._past is None:
            raise ValueError("this source does not record history")
        length = len(self._tokens)
        if length < 2:
            return None
        self._clock.mark("draft_logic")
        self.slot_nodes = [-1] * (self._num_pending - 1) + [0]
        sampling, known = self._past.sampling, self._before
        drafted = None if known is None else known.draft
        logits, features = self._read(*self._pending(), keep=2 if drafted is None else 1)
        self.features, self._root_logits = [features[-1:]], logits[-1:]
        feature = self._past.features.between(length - 2, length - 1)
        target = self._past.target.engine.project(feature)[0] if known is None else known.target_logits
        if drafted is not None:
            features, logits = torch.cat([drafted[0][None], features]), torch.cat([drafted[1][None], logits])
        probs = self._distributions(logits)
        self._clock.mark("draft_level")
        return Past(
            feature[0].float().numpy(force=True),
            target_distribution(target, sampling).numpy(force=True),
            features.float().numpy(force=True),
            probs.numpy(force=True),
            length,
            sampling.temperature,
            sampling.top_p,
            sampling.draft_temperature,
        )

    def before_next(self, draft: Draft, logits: Tensor, node: int, length: int) -> BeforeRoot:
        """What this iteration's passes gave after the last accepted node, after which a text of `length` goes on."""
        # Copies: a view would hold on to the rows of the whole tree.
        target, level = logits[int(np.flatnonzero(draft.order == node)[0])].clone(), int(draft.tree.level[node])
        if level < 0:
            return BeforeRoot(length, target, None)
        row = int(np.flatnonzero(draft.rows[level][0] == node)[0])
        return BeforeRoot(length, target, (self.features[level][row].clone(), self.logits[level][row].clone()))

    def expand(self, tree: TokenTree, nodes: np.ndarray) -> Tensor:
        if nodes[0] != 0 or self._root_logits is None:
            return super().expand(tree, nodes)
        self.forwards += 1  # the pass that read the past
        self.logits.append(self._root_logits)
        return self._distributions(self._root_logits)

    def _logits(self, tree: TokenTree, nodes: np.ndarray) -> Tensor:
        tokens, positions, seen = self._pending() if nodes[0] == 0 else self._level(tree, nodes)
        if self._past is None:
            logits = tree_forward(self._model, self._cache, tokens, positions, seen, keep=len(nodes))
            return match_vocabulary(logits, self._width)
        logits, features = self._read(tokens, positions, seen, len(nodes))
        self.features.append(features)
        return logits

    def _read(self, tokens: np.ndarray, positions: np.ndarray, seen: Visibility, keep: int) -> tuple[Tensor, Tensor]:
        """Raw logits `[keep, vocab_size of the target]` and features of the last rows of a pass."""
        engine = self._model.engine
        logits, features = engine.run_with_features(self._cache, tokens, positions, engine.mask(seen), keep)
        return match_vocabulary(logits, self._width).float(), features

    def _pending(self) -> tuple[np.ndarray, np.ndarray, Visibility]:
        """Tokens and positions of what is pending, and who sees whom in a pass over it."""
        start, end = len(self._tokens) - self._num_pending, len(self._tokens)
        return np.array(self._tokens[start:]), np.arange(start, end), Visibility.causal(self._cache.length, end - start)


class HeadSource(_DraftSource):
    """A draft head: the first call takes the target's true features of the parents of what is pending.

    A drafted token takes the head's own output for its parent instead; its row is of this iteration only. The first
    token of a text has no parent and no row: row r belongs to position r + 1, and below a text of one token nothing can
    be drafted.
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


class CachedModels:
    """The models of a pair, each with the key/value rows of one text; the models are shared, the rows are not.

    Attributes:
        draft_cache: rows of the draft model or head, None where a method never asks it.
        features: the target's, as many as rows of its cache; None where neither a draft head nor a selector reads them.
        prefilled: whether the prompt has been read, by all of them.
    """

    def __init__(self, pair: Pair, capacity: int, uses_draft: bool, needs_past: bool = False):
        self.pair, self.prefilled, self._peak_of = pair, False, turn()
        self.target_cache = pair.target.engine.new_cache(capacity)
        self.draft_cache = pair.drafting.engine.new_cache(capacity) if uses_draft else None
        self.features = FeatureRows(capacity) if pair.head is not None or needs_past else None
        self.before_root: BeforeRoot | None = None

    def clone(self, pair: Pair, uses_draft: bool, needs_past: bool = False) -> "CachedModels":
        """With an independent copy of all rows, and a cache for the draft if one is needed from here on.

        The target stays the same; where `pair` has another draft, that begins without rows.
        """
        draft_rows = 0 if uses_draft else None
        if self.draft_cache is not None and self.pair.drafting.engine is pair.drafting.engine:
            draft_rows = self.draft_cache.length
        other = self.cut_clone(pair, self.target_cache.length, draft_rows, needs_past)
        other.before_root = self.before_root if draft_rows and needs_past else None
        return other

    def cut_clone(
        self, pair: Pair, target_rows: int, draft_rows: int | None, needs_past: bool = False
    ) -> "CachedModels":
        """With a copy of the first rows, of the draft too unless that is None; released ones have to be read again."""
        capacity, other = self.target_cache.capacity, copy.copy(self)
        same_draft = self.pair.drafting.engine is pair.drafting.engine
        other.pair, other.features, other.draft_cache, other.before_root = pair, None, None, None
        other.target_cache = _first_rows(self.target_cache, target_rows)
        other.prefilled = self.prefilled and other.target_cache.length >= target_rows
        if draft_rows is not None and self.draft_cache is not None and same_draft:
            other.draft_cache = _first_rows(self.draft_cache, draft_rows)
        elif draft_rows is not None:
            other.draft_cache, other.prefilled = pair.drafting.engine.new_cache(capacity), False
        if pair.head is not None or needs_past:
            other.features = FeatureRows(capacity) if self.features is None else self.features.first(target_rows)
            # A head reads the text while the caches are filled: its first forward takes what was committed last.
            read = (same_draft or pair.head is None) and other.features.length >= target_rows
            other.prefilled = other.prefilled and read
        return other

    def release(self) -> None:
        """Give all rows back."""
        self.target_cache = self.target_cache.fresh(1)
        self.draft_cache = self.draft_cache.fresh(1) if self.draft_cache else None
        self.features = FeatureRows(1) if self.features is not None else None
        self.before_root, self.prefilled = None, False

    def prefill(self, tokens: list[int], again: bool = False) -> float:
        """Read every token but the last with both models; return the seconds it took.

        Without a draft the target reads the prompt in its first verification pass, as `generate` does; a text read
        `again` is read here, so that no pass is timed with it.
        """
        device, self._peak_of = self.pair.target.device, turn()
        if device.type == "cuda":
            torch.cuda.reset_peak_memory_stats(device)
        clock = PhaseClock(device)
        if again or self.draft_cache is not None:
            self.fill_target(tokens)
        check_wanted()
        if self.pair.head is not None:
            self.pair.head.fill(self.draft_cache, self.features, tokens)
        elif self.draft_cache is not None:
            _fill(self.pair.draft, self.draft_cache, tokens)
        clock.mark("prefill")
        self.prefilled = True
        return sum(seconds for _, seconds in clock.durations())

    def fill_target(self, tokens: list[int]) -> None:
        """Run the tokens that the target has not read, all but the last one, and note features where they are read."""
        if self.features is not None and self.features.length < self.target_cache.length:
            # Another draft read this text: its features come from a pass of their own, beside the rows that are there.
            read = [*tokens[: self.target_cache.length], tokens[-1]]
            _fill(self.pair.target, self.pair.target.engine.new_cache(len(read)), read, self.features)
        _fill(self.pair.target, self.target_cache, tokens, self.features)

    def source(
        self, tokens: list[int], depth_limit: int, clock: PhaseClock, temperature: float,
        sampling: Sampling | None = None,
    ) -> NoSource:  # fmt: skip
        """The draft as a drafter asks it about the tree below the last token; `sampling` is the target's."""
        if self.draft_cache is None:
            return NoSource(depth_limit, prefix=tuple(tokens))
        head, features = self.pair.head, self.features
        if head is not None and features is not None:
            return HeadSource(head, self.draft_cache, features, tokens, depth_limit, clock, temperature)
        width = self.pair.logits_size
        past = None
        if features is not None and sampling is not None:
            past = PastRows(self.pair.target, features, sampling, self.before_root)
        return ModelSource(self.pair.draft, self.draft_cache, tokens, width, depth_limit, clock, temperature, past)

    def verify(self, draft: Draft, text: list[int], clock: PhaseClock) -> torch.Tensor:
        """Target logits after every verified node, `[num_verified + 1, vocab_size]`, in one pass."""
        tree, order, cache = draft.tree, draft.order, self.target_cache
        tokens, positions = tree.tokens[order], len(text) - 1 + tree.depths[order]
        among, missing = tree.ancestors[order][:, order], text[cache.length : -1]
        if missing:  # only without a draft: the first pass reads the prompt, which every node sees, and the tree
            tree_among, among = among, np.tri(len(missing) + len(tokens), dtype=bool)
            among[len(missing) :, len(missing) :] = tree_among
            tokens = np.concatenate([missing, tokens])
            positions = np.concatenate([np.arange(cache.length, len(text) - 1), positions])
        mask = self.pair.target.engine.mask(Visibility(cache.length, among))
        clock.mark("mask")
        logits = tree_forward(self.pair.target, cache, tokens, positions, mask, len(order), self.features)
        clock.mark("verify")
        return logits

    def peak_memory(self) -> int | None:
        """Peak bytes on CUDA since the prefill, None where other work was there too; weights and rows elsewhere."""
        device = self.pair.target.device
        if device.type == "cuda":
            return torch.cuda.max_memory_allocated(device) if turn() == self._peak_of else None
        rows = (self.target_cache, self.features, self.draft_cache)
        taken = sum(held.allocated_bytes for held in rows if held is not None) + self.pair.info.target.weight_bytes
        return taken if self.draft_cache is None else taken + self.pair.info.draft.weight_bytes


def _fill(model: Model, cache: KVCache, tokens: list[int], features: FeatureRows | None = None) -> None:
    missing = np.array(tokens[cache.length : -1], dtype=np.int64)
    if len(missing):
        positions = np.arange(cache.length, cache.length + len(missing))
        mask = Visibility.causal(cache.length, len(missing))
        tree_forward(model, cache, missing, positions, mask, keep=1, features=features)


def _first_rows(cache: KVCache, count: int) -> KVCache:
    """An independent copy of the first rows of a cache; fewer where it was released meanwhile."""
    rows = cache.clone()
    rows.rollback(min(count, rows.length))
    return rows

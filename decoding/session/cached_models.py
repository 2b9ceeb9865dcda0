"""Both models of a session with the rows that they have read: prefill, drafting, verification, and what they hold."""

import copy

import numpy as np
import torch

from decoding.common.interruption import check_wanted, turn
from decoding.engines.base import Visibility
from decoding.engines.clock import PhaseClock
from decoding.engines.kv_cache import FeatureRows, KVCache
from decoding.models.pair import Model, Pair, tree_forward
from decoding.sampling.sampling import Sampling
from decoding.sources.draft import HeadSource, ModelSource, NoSource, TargetPast
from decoding.trace.records import KVTrace
from decoding.tree.draft import Draft


class CachedModels:
    """The models of a pair, each with the key/value rows of one text; the models are shared, the rows are not.

    Attributes:
        target_cache: rows of the target.
        draft_cache: rows of the draft model or head, None where a method never asks it.
        features: the target's, as many as rows of its cache; None where neither a draft head nor a selector reads them.
        prefilled: whether the prompt has been read, by all of them.
    """

    def __init__(self, pair: Pair, capacity: int, uses_draft: bool, needs_past: bool = False):
        self.pair, self.prefilled, self._peak_of = pair, False, turn()
        self.target_cache = pair.target.engine.new_cache(capacity)
        self.draft_cache = pair.drafting.engine.new_cache(capacity) if uses_draft else None
        self.features = FeatureRows(capacity) if pair.head is not None or needs_past else None

    def clone(self, pair: Pair, uses_draft: bool, needs_past: bool = False) -> "CachedModels":
        """With an independent copy of all rows, and a cache for the draft if one is needed from here on.

        Args:
            pair: the same target; where it has another draft, that begins without rows.
            needs_past: whether a selector reads the target's features.
        """
        kept = self.draft_cache is not None and self._same_draft(pair)
        draft_rows = self.draft_cache.length if kept else 0 if uses_draft else None
        return self.cut_clone(pair, self.target_cache.length, draft_rows, needs_past)

    def cut_clone(
        self, pair: Pair, target_rows: int, draft_rows: int | None, needs_past: bool = False
    ) -> "CachedModels":
        """With a copy of the first rows; where they were released meanwhile the prompt has to be read again.

        Args:
            draft_rows: None: without a cache for the draft.
        """
        capacity, other = self.target_cache.capacity, copy.copy(self)
        other.pair, other.features, other.draft_cache = pair, None, None
        other.target_cache = _first_rows(self.target_cache, target_rows)
        other.prefilled = self.prefilled and other.target_cache.length >= target_rows
        if draft_rows is not None and self.draft_cache is not None and self._same_draft(pair):
            other.draft_cache = _first_rows(self.draft_cache, draft_rows)
        elif draft_rows is not None:
            other.draft_cache = pair.drafting.engine.new_cache(capacity)
        if pair.head is not None or needs_past:
            other.features = FeatureRows(capacity) if self.features is None else self.features.first(target_rows)
            # A head reads the text while the caches are filled: its first forward takes what was committed last.
            read = self._same_draft(pair) or pair.head is None
            other.prefilled = other.prefilled and read and other.features.length >= target_rows
        return other

    def _same_draft(self, pair: Pair) -> bool:
        return self.pair.drafting.engine is pair.drafting.engine

    def release(self) -> None:
        """Give all rows back."""
        self.target_cache = self.target_cache.fresh(1)
        self.draft_cache = self.draft_cache.fresh(1) if self.draft_cache else None
        self.features = FeatureRows(1) if self.features is not None else None
        self.prefilled = False

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

    def keep_features(self, moved: KVTrace) -> None:
        """Leave the features of those tokens whose rows the target's cache has kept."""
        if self.features is not None:
            self.features.compact(moved.rows_before, () if moved.rebuilt else moved.kept_from)

    def source(
        self, tokens: list[int], depth_limit: int, clock: PhaseClock, temperature: float,
        sampling: Sampling | None = None,
    ) -> ModelSource | HeadSource | NoSource:  # fmt: skip
        """The draft as a drafter asks it about the tree below the last token.

        Args:
            temperature: of the draft. sampling: of the target, which a selector reads.
        """
        if self.draft_cache is None:
            return NoSource(depth_limit)
        if self.pair.head is not None:
            return HeadSource(self.pair.head, self.draft_cache, self.features, tokens, depth_limit, clock, temperature)
        width = self.pair.logits_size
        past = None if self.features is None else TargetPast(self.pair.target, self.features, sampling)
        return ModelSource(self.pair.draft, self.draft_cache, tokens, width, depth_limit, clock, temperature, past)

    def verify(self, draft: Draft, text: list[int], clock: PhaseClock) -> torch.Tensor:
        """Target logits after every verified node, `[num_verified + 1, vocab_size]`, in one pass."""
        tree, order, cache = draft.tree, draft.order, self.target_cache
        tokens, positions = tree.tokens[order], len(text) - 1 + tree.depths[order]
        mask = Visibility(cache.length, tree.ancestors[order][:, order])
        missing = text[cache.length : -1]
        if missing:  # only without a draft, where the tree is its root and the pass a causal one
            tokens, positions = np.concatenate([missing, tokens]), np.arange(len(text))[-len(missing) - 1 :]
            mask = Visibility.causal(cache.length, len(tokens))
        mask = self.pair.target.engine.mask(mask)
        clock.mark("mask")
        logits = tree_forward(self.pair.target, cache, tokens, positions, mask, len(order), self.features)
        clock.mark("verify")
        return logits

    def peak_memory(self) -> int | None:
        """Peak bytes on CUDA since the prefill, None where other work was there too; weights and rows elsewhere."""
        device = self.pair.target.device
        if device.type == "cuda":
            return torch.cuda.max_memory_allocated(device) if turn() == self._peak_of else None
        taken = self.target_cache.allocated_bytes + self.pair.info.target.weight_bytes
        if self.features is not None:
            taken += self.features.allocated_bytes
        if self.draft_cache is not None:
            taken += self.draft_cache.allocated_bytes + self.pair.info.draft.weight_bytes
        return taken


def _fill(model: Model, cache: KVCache, tokens: list[int], features: FeatureRows | None = None) -> None:
    missing = tokens[cache.length : -1]
    if missing:
        positions = np.arange(cache.length, cache.length + len(missing))
        mask = Visibility.causal(cache.length, len(missing))
        tree_forward(model, cache, missing, positions, mask, keep=1, features=features)


def _first_rows(cache: KVCache, count: int) -> KVCache:
    """An independent copy of the first rows of a cache; fewer where it was released meanwhile."""
    rows = cache.clone()
    rows.rollback(min(count, rows.length))
    return rows

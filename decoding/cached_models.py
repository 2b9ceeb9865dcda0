"""Both models of a session with the rows that they have read: prefill, drafting, verification, and what they hold."""

import copy

import numpy as np
import torch

from decoding.clock import PhaseClock
from decoding.draft_source import ModelSource, NoSource
from decoding.drafters.base import Draft
from decoding.kv_cache import KVCache
from decoding.pair import Model, Pair
from decoding.tree_attention import causal_visibility, tree_forward, visibility


class CachedModels:
    """The models of a pair, each with the key/value rows of one text; the models are shared, the rows are not.

    Attributes:
        target_cache: rows of the target.
        draft_cache: rows of the draft, None where a method never asks it.
        prefilled: whether the prompt has been read.
    """

    def __init__(self, pair: Pair, capacity: int, uses_draft: bool):
        self.pair, self.prefilled = pair, False
        self.target_cache = pair.target.engine.new_cache(capacity)
        self.draft_cache = pair.draft.engine.new_cache(capacity) if uses_draft else None

    def clone(self, uses_draft: bool) -> "CachedModels":
        """With an independent copy of all rows, and a cache for the draft if one is needed from here on."""
        other = copy.copy(self)
        other.target_cache = self.target_cache.clone()
        if self.draft_cache is not None:
            other.draft_cache = self.draft_cache.clone()
        elif uses_draft:
            other.draft_cache = self.pair.draft.engine.new_cache(self.target_cache.capacity)
        return other

    def cut_clone(self, target_rows: int, draft_rows: int | None) -> "CachedModels":
        """With a copy of the first rows; where they were released meanwhile the prompt has to be read again."""
        other = copy.copy(self)
        other.target_cache = _first_rows(self.target_cache, target_rows)
        other.draft_cache = None if draft_rows is None else _first_rows(self.draft_cache, draft_rows)
        other.prefilled = self.prefilled and other.target_cache.length >= target_rows
        return other

    def release(self) -> None:
        """Give all rows back."""
        self.target_cache = self.target_cache.fresh(1)
        self.draft_cache = self.draft_cache.fresh(1) if self.draft_cache else None
        self.prefilled = False

    def prefill(self, tokens: list[int], again: bool = False) -> float:
        """Read every token but the last with both models; return the seconds it took.

        Without a draft the target reads the prompt in its first verification pass, as `generate` does; a text read
        `again` is read here, so that no pass is timed with it.
        """
        device = self.pair.target.device
        if device.type == "cuda":
            torch.cuda.reset_peak_memory_stats(device)
        clock = PhaseClock(device)
        if again or self.draft_cache is not None:
            self.fill_target(tokens)
        if self.draft_cache is not None:
            _fill(self.pair.draft, self.draft_cache, tokens)
        clock.mark("prefill")
        self.prefilled = True
        return sum(seconds for _, seconds in clock.durations())

    def fill_target(self, tokens: list[int]) -> None:
        """Run the tokens that the target has not read, all but the last one."""
        _fill(self.pair.target, self.target_cache, tokens)

    def source(
        self, tokens: list[int], depth_limit: int, clock: PhaseClock, temperature: float
    ) -> ModelSource | NoSource:
        """The draft as a drafter asks it about the tree below the last token."""
        if self.draft_cache is None:
            return NoSource(depth_limit)
        width = self.pair.logits_size
        return ModelSource(self.pair.draft, self.draft_cache, tokens, width, depth_limit, clock, temperature)

    def verify(self, draft: Draft, text: list[int], clock: PhaseClock) -> torch.Tensor:
        """Target logits after every verified node, `[num_verified + 1, vocab_size]`, in one pass."""
        tree, order, cache = draft.tree, draft.order, self.target_cache
        tokens, positions = tree.tokens[order], len(text) - 1 + tree.depths[order]
        mask = visibility(cache.length, tree.ancestors[order][:, order])
        missing = text[cache.length : -1]
        if missing:  # only without a draft, where the tree is its root and the pass a causal one
            tokens, positions = np.concatenate([missing, tokens]), np.arange(len(text))[-len(missing) - 1 :]
            mask = causal_visibility(cache.length, len(tokens))
        mask = self.pair.target.engine.mask(mask)
        clock.mark("mask")
        logits = tree_forward(self.pair.target, cache, tokens, positions, mask, keep=len(order))
        clock.mark("verify")
        return logits

    def peak_memory(self) -> int:
        """Peak bytes on CUDA since the prefill; weights and rows elsewhere."""
        device = self.pair.target.device
        if device.type == "cuda":
            return torch.cuda.max_memory_allocated(device)
        taken = self.target_cache.allocated_bytes + self.pair.info.target.weight_bytes
        if self.draft_cache is not None:
            taken += self.draft_cache.allocated_bytes + self.pair.info.draft.weight_bytes
        return taken


def _fill(model: Model, cache: KVCache, tokens: list[int]) -> None:
    missing = tokens[cache.length : -1]
    if missing:
        positions = np.arange(cache.length, cache.length + len(missing))
        tree_forward(model, cache, missing, positions, causal_visibility(cache.length, len(missing)), keep=1)


def _first_rows(cache: KVCache, count: int) -> KVCache:
    """An independent copy of the first rows of a cache; fewer where it was released meanwhile."""
    rows = cache.clone()
    rows.rollback(min(count, rows.length))
    return rows

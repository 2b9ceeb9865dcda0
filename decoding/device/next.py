"""Autoregressive decoding on the device: one pass over one token, the host waits for the next one alone."""

from functools import partial

import torch
from torch import Tensor

from decoding.device.iteration import DeviceOutcome
from decoding.device.record import greedy_verification
from decoding.drafters import NoDrafter
from decoding.engines.clock import PhaseClock
from decoding.engines.kv_cache import KVBlocks
from decoding.engines.static import StaticEngine, StaticPass
from decoding.engines.static_cache import StaticKVCache, row_bucket
from decoding.sources.draft import NoSource


class NextToken:
    """The iteration of a method that drafts nothing, as lean as the methods that it is compared with.

    Args:
        root: the last committed token.
        record: whether the logits are given back.
    """

    def __init__(self, engine: StaticEngine, cache: StaticKVCache, root: int, record: bool):
        self._engine, self._cache, self._root, self._record = engine, cache, root, record

    @torch.inference_mode()
    def run(self, clock: PhaseClock) -> DeviceOutcome:
        """One token; its row is in the cache."""
        engine, cache = self._engine, self._cache
        source = NoSource(0)
        draft = NoDrafter().draft(None, source, self._root, None)
        clock.mark("draft_logic")
        cache.reserve(1)
        rows = row_bucket(cache.length + 1)
        if "next" not in engine.trees:
            engine.trees["next"] = torch.zeros(3, dtype=torch.int64, device=engine.device)
        static = engine.trees["next"]
        staged = engine.transfers.staging(static[:2])
        staged.numpy()[:] = self._root, cache.length
        engine.transfers.upload(staged, static[:2])
        clock.mark("mask")
        body = partial(next_pass, engine.forward_pass, cache.blocks, static, rows, self._record)
        logits = engine.graphs.call(cache.blocks, (next_pass, rows, self._record), body)
        logits = logits.clone() if logits is not None else None
        cache.advance(1)
        clock.mark("verify")
        preferred = engine.transfers.read(static[2:])
        verification = greedy_verification(draft, preferred, (), self._record)
        clock.mark("select")
        return DeviceOutcome(source, draft, logits, verification)


def next_pass(run: StaticPass, blocks: KVBlocks, static: Tensor, rows: int, record: bool) -> Tensor | None:
    """The target's favourite after one token.

    Args:
        static: the token, its position, which is its row too, and then the answer.
    """
    token, position, answer = static.split(1)
    mask = run.mask(torch.arange(rows, device=static.device)[None] <= position)
    logits = run(blocks, token, position, position, mask, keep=1)
    answer.copy_(logits.argmax(-1))
    return logits if record else None

"""One iteration whose tree never leaves the device until it is verified: the host waits once, and once per level."""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor

from decoding.device.beam import BeamTree
from decoding.device.drafting import Asked, level_pass, pending_pass
from decoding.device.greedy import accept, keep_draft_rows, keep_target_rows, order_nodes, verify_pass
from decoding.device.levels import LevelTree
from decoding.device.record import DeviceReport, DraftedRows, greedy_verification
from decoding.device.rules import BeamRule, Rule
from decoding.device.tree import FRONTIER, VERIFIED, DeviceTree, TreeInputs, places_for
from decoding.drafters.base import Drafter
from decoding.engines.clock import PhaseClock
from decoding.engines.static import StaticEngine
from decoding.engines.static_cache import StaticKVCache, bucket, row_bucket
from decoding.tree.draft import Draft
from decoding.verifiers.base import Verification


class DeviceOutcome(NamedTuple):
    """What an iteration on the device gives back; both caches hold the accepted path and whatever stands behind it.

    Attributes:
        logits: the target's after each verified node, `[num_verified + 1, vocab_size]`; None without a record.
    """

    source: Any
    draft: Draft
    logits: Tensor | None
    verification: Verification


class DeviceIteration:
    """One iteration of a drafter that has a `Rule`, with greedy verification, in static shapes.

    Args:
        engines, caches: of target and draft.
        drafter, state, rule: the drafter in its state, and how it grows a tree.
        tokens: the committed tokens.
        asked: how the draft is read, and whether its laws and the target's logits are given back.
    """

    def __init__(
        self,
        engines: tuple[StaticEngine, StaticEngine],
        caches: tuple[StaticKVCache, StaticKVCache],
        drafter: Drafter,
        state: Any,
        rule: Rule,
        tokens: list[int],
        asked: Asked,
    ):
        self._target, self._draft = engines
        self._target_cache, self._draft_cache = caches
        self._drafter, self._state, self._rule, self._asked = drafter, state, rule, asked
        self._pending = tokens[self._draft_cache.length :]
        self._root_position = len(tokens) - 1
        self._longest = bucket(rule.forwards)
        self._source = DraftedRows(rows_before=self._draft_cache.length)
        self._tree = self._working_tree()

    @torch.inference_mode()
    def run(self, clock: PhaseClock) -> DeviceOutcome:
        """Draft, verify, and move the accepted rows; what the caches then hold is left to `settle`."""
        self._upload()
        verified = self._grow(clock)
        clock.mark("draft_logic")
        logits = self._verify(verified, clock)
        self._move_rows()
        report = DeviceReport(self._target.transfers.read(self._tree.report))
        self._source.note_rows(report.tree, len(self._pending))
        draft = report.draft(self._drafter, self._state, self._source)
        logits = logits[: len(report.order)] if logits is not None else None
        verification = greedy_verification(draft, report.preferred, report.accepted, self._asked.rows)
        return DeviceOutcome(self._source, draft, logits, verification)

    def _working_tree(self) -> DeviceTree:
        """The tree of this size that all iterations on the target work in, one after another."""
        rule, trees = self._rule, self._target.trees
        beam = isinstance(rule, BeamRule)
        size = (places_for(rule.nodes), rule.top, rule.candidates if beam else 0)
        if size not in trees:
            trees[size] = BeamTree(*size, self._target.device) if beam else LevelTree(*size[:2], self._target.device)
        return trees[size]

    def _upload(self) -> None:
        static, transfers = self._tree.inputs.buffer, self._target.transfers
        staged = TreeInputs(buffer=transfers.staging(static))
        past = (self._draft_cache.length, self._target_cache.length)
        staged.fill(self._pending, *past, self._root_position, self._rule)
        transfers.upload(staged.buffer, static)

    def _grow(self, clock: PhaseClock) -> int:
        """Grow the tree level by level; the number of nodes to verify."""
        rule, source, count = self._rule, self._source, 1
        sizes, verified = [*rule.level_sizes, 0] if rule.certain else None, rule.tree_size if rule.certain else 1
        while count:
            clock.mark("draft_logic")
            self._ask(count if source.forwards else len(self._pending))
            clock.mark("draft_level")
            queries = bucket(count)
            self._call(self._tree, ("grow", queries), partial(self._tree.grow, queries))
            source.forwards += 1
            if sizes is not None:
                count = sizes[source.forwards]
            else:
                counters = self._target.transfers.read(self._tree.level_counters)
                count, verified = int(counters[FRONTIER]), int(counters[VERIFIED])
        if self._tree.finishes:
            self._call(self._tree, ("finish",), self._tree.finish)
        return verified

    def _ask(self, count: int) -> None:
        """One draft forward: of the pending tokens the first time, of the frontier from then on."""
        cache, queries, first = self._draft_cache, bucket(count), self._source.forwards == 0
        cache.reserve(max(queries, count + self._longest))
        rows = row_bucket(cache.length + queries)
        one_pass = pending_pass if first else level_pass
        body = partial(one_pass, self._draft.forward_pass, cache.blocks, self._tree, self._asked, queries, rows)
        laws = self._call(cache.blocks, (one_pass, self._tree, self._asked, queries, rows), body)
        cache.advance(count)
        if laws is not None:
            logits, probs = (part[: 1 if first else count].clone() for part in laws)
            self._source.logits.append(logits)
            self._source.probs.append(probs)

    def _verify(self, verified: int, clock: PhaseClock) -> Tensor | None:
        """The target's pass and what it accepts; its logits where they are recorded."""
        tree, cache, run, queries = self._tree, self._target_cache, self._target.forward_pass, bucket(verified)
        cache.reserve(max(queries, 1 + self._longest))
        rows = row_bucket(cache.length + queries)
        mask = tree.mask_for(queries, rows, run.dtype)
        self._call(tree, ("order", queries, rows), partial(order_nodes, run, tree, queries, mask))
        clock.mark("mask")
        body = partial(verify_pass, run, cache.blocks, tree, queries, mask, self._asked.rows)
        logits = self._call(cache.blocks, (verify_pass, tree, queries, rows, self._asked.rows), body)
        logits = logits.clone() if logits is not None else None
        cache.advance(verified)
        clock.mark("verify")
        self._call(tree, ("accept", queries), partial(accept, tree, queries))
        clock.mark("select")
        return logits

    def _move_rows(self) -> None:
        """Bring the rows of the accepted path together in both caches."""
        for cache, keep in ((self._target_cache, keep_target_rows), (self._draft_cache, keep_draft_rows)):
            body = partial(keep, cache.blocks, self._tree, self._longest)
            self._call(cache.blocks, (keep, self._tree, self._longest), body)

    def _call(self, owner: Any, key: tuple, body: Callable[[], Any]) -> Any:
        return self._target.graphs.call(owner, key, body)

"""One iteration on the device: a tree that never leaves it until it is verified, or the next token alone.

The host waits once, and once per level where the draft decides how large a level is.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor

from decoding.common.settings import STATIC_HOST
from decoding.device.passes import (
    Asked,
    accept,
    keep_draft_rows,
    keep_target_rows,
    level_pass,
    order_nodes,
    pending_pass,
    verify_pass,
)
from decoding.device.record import DeviceReport, DraftedRows, greedy_verification
from decoding.device.rules import BeamRule, Rule, device_rule
from decoding.device.tree import FRONTIER, PENDING, VERIFIED, BeamTree, DeviceTree, LevelTree, TreeInputs, places_for
from decoding.drafters import NoDrafter
from decoding.drafters.base import Drafter
from decoding.engines.clock import PhaseClock
from decoding.engines.kv_cache import KVBlocks, KVCache
from decoding.engines.static import StaticEngine, StaticPass
from decoding.engines.static_cache import LARGEST, StaticKVCache, bucket, row_bucket
from decoding.methods.method import Method
from decoding.models.pair import Model, Pair
from decoding.sources.draft import NoSource
from decoding.tree.draft import Draft
from decoding.verifiers import GreedyVerifier
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


def choose_iteration(
    pair: Pair,
    method: Method,
    state: Any,
    tokens: list[int],
    caches: tuple[KVCache, KVCache | None],
    depth_limit: int,
    draft_temperature: float,
    record: bool,
) -> DeviceIteration | NextToken | None:
    """Drafting, verification and compaction on the device; None where the reference path has to do it.

    Args:
        state: of the drafter.
        tokens: the committed tokens.
        caches: of target and draft, None without a draft.
        depth_limit: no node may be deeper.
        record: whether laws and logits are wanted.
    """
    target, draft = caches
    usual = (method.cache_policy, method.node_order) == ("compaction", "breadth")
    if not usual or not isinstance(method.verifier, GreedyVerifier):
        return None
    if not _ready(pair.target, target) or target.length != len(tokens) - 1:
        return None
    if isinstance(method.drafter, NoDrafter):
        return NextToken(pair.target.engine, target, tokens[-1], record)
    # A draft that is behind by a whole text catches up in one eager pass.
    if draft is None or not _ready(pair.draft, draft) or len(tokens) - draft.length > PENDING:
        return None
    rule = device_rule(method.drafter, state, depth_limit) if depth_limit > 0 else None
    if rule is None or places_for(rule.nodes) > LARGEST or rule.top > pair.logits_size:
        return None
    if pair.target.device != pair.draft.device:
        return None
    asked = Asked(pair.logits_size, draft_temperature, record)
    engines = (pair.target.engine, pair.draft.engine)
    return DeviceIteration(engines, caches, method.drafter, state, rule, tokens, asked)


def _ready(model: Model, cache: KVCache) -> bool:
    """Whether a model runs whole iterations in static shapes and its cache has blocks: an eager pass makes them."""
    if not isinstance(model.engine, StaticEngine) or model.engine.name == STATIC_HOST:
        return False
    # Trees on the device hold probabilities in float64, which an Apple GPU does not have.
    return model.device.type != "mps" and cache.length > 0 and all(cache.blocks.placed)

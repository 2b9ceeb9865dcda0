"""One iteration on the device: a tree that never leaves it until it is verified, or the next token alone.

The draft reads the committed tokens that it lacks, then the tree level by level; the target verifies the tree greedily:
order and mask, its pass, acceptance, rows that move. The host waits once, and once per level where the draft decides
how large a level is.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from decoding.common.errors import SettingsError
from decoding.common.settings import STATIC_HOST
from decoding.device.tree import (
    ACCEPTED,
    COLUMNS,
    FLOATS,
    FRONTIER,
    PENDING,
    ROWS,
    SIZE,
    VERIFIED,
    BeamRule,
    BeamTree,
    DeviceTree,
    LevelTree,
    Rule,
    TreeInputs,
    device_rule,
    places_for,
)
from decoding.drafters import NoDrafter
from decoding.drafters.base import Drafter
from decoding.engines.clock import PhaseClock
from decoding.engines.cuda_graph import LARGEST, CudaGraphEngine, CudaGraphPass, bucket, row_bucket, visible_rows
from decoding.engines.kv_cache import KVBlocks, KVCache
from decoding.methods.method import Method
from decoding.models.pair import Model, Pair, match_vocabulary
from decoding.sampling.sampling import TargetDistributions
from decoding.tree.draft import Draft, TokenTree
from decoding.verifiers import GreedyVerifier
from decoding.verifiers.base import Verification, VerifiedTree, final_kind


@dataclass(frozen=True)
class DraftReadout:
    """How the draft's logits are read: the target's vocabulary size, temperature, and whether rows are given back."""

    width: int
    temperature: float
    rows: bool


def pending_pass(
    run: CudaGraphPass, blocks: KVBlocks, tree: DeviceTree, asked: DraftReadout, queries: int, rows: int
) -> tuple[Tensor, Tensor] | None:
    """Start the tree and ask the draft about its root, after the committed tokens that it has not seen."""
    tree.start()
    inputs, place = tree.inputs, tree.lanes(queries)
    slots = inputs.draft_past + place
    positions = tree.or_zero(place < inputs.pending_count, inputs.root_position - inputs.pending_count + 1 + place)
    mask = run.mask(torch.arange(rows, device=tree.device) <= slots[:, None])
    logits = run(blocks, inputs.pending[:queries], positions, slots, mask, keep=inputs.pending_count - 1)
    return look(tree, logits, asked)


def level_pass(
    run: CudaGraphPass, blocks: KVBlocks, tree: DeviceTree, asked: DraftReadout, queries: int, rows: int
) -> tuple[Tensor, Tensor] | None:
    """Ask the draft about the nodes of the frontier; `[queries, ...]`, the last ones padding."""
    tree.enter_level()
    inputs, nodes = tree.inputs, tree.level_nodes(queries)
    real = nodes < tree.bin
    drafted = tree.counter(ROWS)
    row = drafted + tree.lanes(queries)
    tree.row_of.index_copy_(0, nodes, row)
    tree.slot_nodes.index_copy_(0, tree.or_bin(real, row), nodes)

    past = inputs.draft_past + inputs.pending_count
    slots = past + row
    written = tree.lanes(tree.capacity) < drafted
    among = tree.ancestors.index_select(0, nodes).index_select(1, tree.slot_nodes) & written
    depths = tree.column("depths").index_select(0, nodes)
    positions = tree.or_zero(real, inputs.root_position + depths)
    ids = tree.column("tokens").index_select(0, nodes)
    mask = run.mask(visible_rows(past, among, slots, rows))
    logits = run(blocks, ids, positions, slots, mask, keep=queries)
    drafted.add_(tree.counter(FRONTIER))
    return look(tree, logits, asked)


def look(tree: DeviceTree, logits: Tensor, asked: DraftReadout) -> tuple[Tensor, Tensor] | None:
    """Note the best children of each node; logits and probabilities where they are asked for."""
    logits = match_vocabulary(logits, asked.width).float()
    probs = torch.softmax(logits if asked.temperature == 1 else logits / asked.temperature, -1)
    best = probs.topk(tree.top, dim=-1)
    count = logits.shape[0]
    tree.top_tokens[:count].copy_(best.indices)
    tree.top_probs[:count].copy_(best.values)
    return (logits, probs) if asked.rows else None


def order_nodes(run: CudaGraphPass, tree: DeviceTree, queries: int, mask: Tensor) -> None:
    """Lay out the verification pass, breadth first, without the nodes that are not verified, and fill its mask."""
    tree.flat_of.copy_(tree.breadth_first(tree.kept()))
    tree.column("order").index_copy_(0, tree.flat_of, tree.lanes(tree.capacity))

    nodes, real = verified_nodes(tree, queries)
    among = tree.ancestors.index_select(0, nodes).index_select(1, nodes) & real
    tree.among[:queries, :queries].copy_(among)
    depths = tree.column("depths").index_select(0, nodes)
    tree.ids[:queries].copy_(tree.column("tokens").index_select(0, nodes))
    tree.positions[:queries].copy_(tree.or_zero(real, tree.inputs.root_position + depths))
    past = tree.inputs.target_past
    mask.copy_(run.mask(visible_rows(past, among, past + tree.lanes(queries), mask.shape[-1])))


def verify_pass(
    run: CudaGraphPass, blocks: KVBlocks, tree: DeviceTree, queries: int, mask: Tensor, rows: bool
) -> Tensor | None:
    """What the target prefers after each node; its logits `[queries, vocab_size]` where `rows` asks for them."""
    slots = tree.inputs.target_past + tree.lanes(queries)
    logits = run(blocks, tree.ids[:queries], tree.positions[:queries], slots, mask, keep=queries)
    tree.column("preferred")[:queries].copy_(logits.argmax(-1))
    return logits if rows else None


def accept(tree: DeviceTree, queries: int) -> None:
    """Keep the nodes all of whose path is what the target prefers; siblings differ, so that they are one path.

    `path` then holds the accepted node of depth 1, 2, ..., and the counter how many there are.
    """
    nodes, real = verified_nodes(tree, queries)
    lanes = tree.lanes(queries)
    parent = tree.column("parents").index_select(0, nodes).clamp(min=0)
    wanted = tree.column("preferred").index_select(0, tree.flat_of.index_select(0, parent))
    wrong = (tree.ids[:queries] != wanted) & (lanes > 0)
    accepted = ~(tree.among[:queries, :queries] & wrong).any(1) & real
    depth = tree.column("depths").index_select(0, nodes)
    below = accepted & (lanes > 0)
    tree.column("path").index_copy_(0, tree.or_bin(below, depth - 1), nodes)
    tree.counter(ACCEPTED).copy_(below.sum(0, keepdim=True))


def keep_target_rows(blocks: KVBlocks, tree: DeviceTree, longest: int) -> None:
    """Move the rows of the accepted path after the root's; `longest` is the most nodes that it may have."""
    nodes, real = _path(tree, longest)
    past = tree.inputs.target_past
    places = past + 1 + tree.lanes(longest)
    sources = past + tree.flat_of.index_select(0, nodes)
    blocks.move_rows(torch.where(real, sources, places), places)


def keep_draft_rows(blocks: KVBlocks, tree: DeviceTree, longest: int) -> None:
    """Move the rows of the accepted path, as far as the draft has processed it, after the committed ones."""
    nodes, real = _path(tree, longest)
    processed = real & (tree.column("level").index_select(0, nodes) >= 0)
    past = tree.inputs.draft_past + tree.inputs.pending_count
    places = past + tree.lanes(longest)
    sources = past + tree.row_of.index_select(0, nodes)
    blocks.move_rows(torch.where(processed, sources, places), places)


def verified_nodes(tree: DeviceTree, queries: int) -> tuple[Tensor, Tensor]:
    """The nodes of the verification pass in order, the bin where padded, and which are real; `[queries]` each."""
    real = tree.lanes(queries) < tree.counter(VERIFIED)
    return tree.or_bin(real, tree.column("order")[:queries]), real


def _path(tree: DeviceTree, longest: int) -> tuple[Tensor, Tensor]:
    real = tree.lanes(longest) < tree.counter(ACCEPTED)
    return tree.or_bin(real, tree.column("path")[:longest]), real


class NoSource:
    """What a draft was asked in an iteration; without a draft, or where the device asks it, it cannot be asked itself.

    Attributes:
        prefix: the text so far, prompt and all.
        slots_before: rows of its cache before the iteration.
        slot_nodes: node of each row after; -1 for committed tokens.
        logits: of the nodes of each pass.
    """

    def __init__(self, depth_limit: int, slots_before: int = 0, prefix: Sequence[int] = ()):
        self.depth_limit, self.slots_before, self.prefix, self.forwards = depth_limit, slots_before, prefix, 0
        self.slot_nodes: list[int] = []
        self.logits: list[Tensor] = []

    def expand(self, tree: TokenTree, nodes: np.ndarray) -> Tensor:
        """Draft probabilities after `nodes` in float32, `[len(nodes), vocab_size of the target]`."""
        raise SettingsError("This method asks no draft model: choose one that does before a node is forced in.")


class ReadTree(TokenTree):
    """A tree that has been read from the device; it does not grow."""

    def __init__(self, columns: dict[str, np.ndarray], size: int):
        self.size = size
        names = [name for name in self.COLUMNS if name != "multiplicity"]
        self._arrays = {name: columns[name][:size] for name in names} | {"multiplicity": np.ones(size, dtype=np.int64)}

    @property
    def ancestors(self) -> np.ndarray:
        """Bool `[size, size]`: row i marks the ancestors of node i and itself."""
        seen = np.eye(self.size, dtype=bool)
        for node in range(1, self.size):  # parents come before children
            seen[node] |= seen[self.parents[node]]
        return seen


def greedy_verification(draft: Draft, preferred: np.ndarray, accepted: tuple[int, ...], record: bool) -> Verification:
    """What greedy verification decided, given what the target prefers after each verified node, `[num_verified + 1]`.

    Args:
        accepted: ids of the accepted nodes from the root down.
        record: say how it was decided too: the tests one by one, and the decision for other draws.
    """
    decision = GreedyVerifier().decide(_ReadVerifiedTree(draft, _Preferred(preferred))) if record else None
    last = accepted[-1] if accepted else 0
    kind = final_kind(accepted, above_leaf=bool((draft.tree.parents[draft.order] == last).any()))
    final = int(preferred[draft.order == last][0])
    return Verification(accepted, final, kind, decision.walk(None).tests if decision else (), decision)


class _Preferred(TargetDistributions):
    """The target's most likely tokens alone, known on the host."""

    def __init__(self, tokens: np.ndarray):
        self._tokens = torch.from_numpy(tokens)

    def __len__(self) -> int:
        return len(self._tokens)

    @property
    def argmax(self) -> Tensor:
        return self._tokens


class _ReadVerifiedTree(VerifiedTree):
    """A verified tree whose distributions have been used on the device already."""

    def _check(self) -> None:
        """Nothing: order and parents were made by the device from one tree, and no distribution is read here."""


# What an iteration gives back: what was asked of the draft, the draft, the target's logits after each verified node
# `[num_verified + 1, vocab_size]` (None without a record), and what was decided. Both caches hold the accepted path.
DeviceOutcome = tuple[NoSource, Draft, Tensor | None, Verification]


class DeviceIteration:
    """One iteration of a drafter that has a `Rule`, with greedy verification, in static shapes."""

    def __init__(
        self,
        engines: tuple[CudaGraphEngine, CudaGraphEngine],
        caches: tuple[KVCache, KVCache],
        drafter: Drafter,
        state: Any,
        rule: Rule,
        tokens: list[int],
        asked: DraftReadout,
    ):
        self._target, self._draft = engines
        self._target_cache, self._draft_cache = caches
        self._drafter, self._state, self._rule, self._asked = drafter, state, rule, asked
        self._pending = tokens[self._draft_cache.length :]
        self._root_position = len(tokens) - 1
        self._longest = bucket(rule.forwards)
        self._source = NoSource(0, self._draft_cache.length)
        self._probs: list[Tensor] = []
        # All iterations on the target work in one tree of a size, one after another.
        trees, candidates = self._target.trees, rule.candidates if isinstance(rule, BeamRule) else 0
        size = (places_for(rule.nodes), rule.top, candidates)
        if size not in trees:
            trees[size] = (
                BeamTree(*size, self._target.device) if candidates else LevelTree(*size[:2], self._target.device)
            )
        self._tree: DeviceTree = trees[size]

    @torch.inference_mode()
    def run(self, clock: PhaseClock) -> DeviceOutcome:
        """Draft, verify, and move the accepted rows; what the caches then hold is left to `keep_rows`."""
        static, transfers = self._tree.inputs.buffer, self._target.transfers
        staged = TreeInputs(buffer=transfers.staging(static))
        past = (self._draft_cache.length, self._target_cache.length)
        staged.fill(self._pending, *past, self._root_position, self._rule)
        transfers.upload(staged.buffer, static)
        verified = self._grow(clock)
        clock.mark("draft_logic")
        logits = self._verify(verified, clock)
        for cache, keep in ((self._target_cache, keep_target_rows), (self._draft_cache, keep_draft_rows)):
            body = partial(keep, cache.blocks, self._tree, self._longest)
            self._call(cache.blocks, (keep, self._tree, self._longest), body)
        arrays = zip(COLUMNS, transfers.read(self._tree.report), strict=True)
        columns = {name: part.view(np.float64) if name in FLOATS else part for name, part in arrays}
        counters = columns["counters"]
        draft = self._drafted(ReadTree(columns, int(counters[SIZE])), columns["order"][: int(counters[VERIFIED])])
        logits = logits[: len(draft.order)] if logits is not None else None
        preferred = columns["preferred"][: len(draft.order)]
        accepted = tuple(columns["path"][: int(counters[ACCEPTED])].tolist())
        verification = greedy_verification(draft, preferred, accepted, self._asked.rows)
        return self._source, draft, logits, verification

    def _drafted(self, tree: ReadTree, order: np.ndarray) -> Draft:
        """The draft; its distributions level by level where they were asked for. Making the mask has pruned it."""
        source, drafter = self._source, self._drafter
        # The pending tokens, the root last, and the nodes in the order of their ids.
        source.slot_nodes = [-1] * (len(self._pending) - 1) + np.flatnonzero(tree.level >= 0).tolist()
        levels = [np.flatnonzero(tree.level == forward) for forward in range(len(self._probs))]
        source.logits = [logits[: len(nodes)] for nodes, logits in zip(levels, source.logits, strict=True)]
        rows = tuple((nodes, probs[: len(nodes)]) for nodes, probs in zip(levels, self._probs, strict=True))
        return Draft(tree, order, drafter.draft_sampling, self._state, rows, drafter.in_force(self._state))

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
        distributions = self._call(cache.blocks, (one_pass, self._tree, self._asked, queries, rows), body)
        cache.advance(count)
        if distributions is not None:
            logits, probs = (part[: 1 if first else count].clone() for part in distributions)
            self._source.logits.append(logits)
            self._probs.append(probs)

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

    def _call(self, owner: Any, key: tuple, body: Callable[[], Any]) -> Any:
        return self._target.graphs.call(owner, key, body)


class NextToken:
    """The iteration of a method that drafts nothing, as lean as the methods that it is compared with."""

    def __init__(self, engine: CudaGraphEngine, cache: KVCache, root: int, record: bool):
        self._engine, self._cache, self._root, self._record = engine, cache, root, record

    @torch.inference_mode()
    def run(self, clock: PhaseClock) -> DeviceOutcome:
        """One token; its row is in the cache."""
        engine, cache = self._engine, self._cache
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
        source = NoSource(0)  # made while the device works
        draft = NoDrafter().draft(None, source, self._root, None)
        preferred = engine.transfers.read(static[2:])
        verification = greedy_verification(draft, preferred, (), self._record)
        clock.mark("select")
        return source, draft, logits, verification


def next_pass(run: CudaGraphPass, blocks: KVBlocks, static: Tensor, rows: int, record: bool) -> Tensor | None:
    """The target's favourite after one token; `static` holds the token, its position (its row too) and the answer."""
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
        caches: of target and draft, None without a draft.
        depth_limit: no node may be deeper.
        record: whether distributions and logits are wanted.
    """
    target, draft = caches
    usual = (method.cache_policy, method.node_order) == ("compaction", "breadth")
    if not usual or not isinstance(method.verifier, GreedyVerifier):
        return None
    verifies = _static_engine(pair.target, target)
    if verifies is None or target.length != len(tokens) - 1:
        return None
    if isinstance(method.drafter, NoDrafter):
        return NextToken(verifies, target, tokens[-1], record)
    # A draft that is behind by a whole text catches up in one eager pass.
    drafts = None if draft is None else _static_engine(pair.draft, draft)
    if draft is None or drafts is None or len(tokens) - draft.length > PENDING:
        return None
    rule = device_rule(method.drafter, state, depth_limit) if depth_limit > 0 else None
    if rule is None or places_for(rule.nodes) > LARGEST or rule.top > pair.logits_size:
        return None
    if pair.target.device != pair.draft.device:
        return None
    asked = DraftReadout(pair.logits_size, draft_temperature, record)
    return DeviceIteration((verifies, drafts), (target, draft), method.drafter, state, rule, tokens, asked)


def _static_engine(model: Model, cache: KVCache) -> CudaGraphEngine | None:
    """What runs a model in static shapes; None where that is not for whole iterations, or an eager pass has yet to make
    the cache's blocks.
    """
    engine = model.engine
    if not isinstance(engine, CudaGraphEngine) or engine.name == STATIC_HOST:
        return None
    # Trees on the device hold probabilities in float64, which an Apple GPU does not have.
    ready = model.device.type != "mps" and cache.length > 0 and all(cache.blocks.placed)
    return engine if ready else None

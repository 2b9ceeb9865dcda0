"""What one iteration leaves behind, and its record: what both models' distributions give the nodes of the tree."""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from decoding.drafters.base import IterationFeedback
from decoding.engines.kv_cache import KVCache, keep_rows
from decoding.methods.method import Method
from decoding.sampling.sampling import Sampling, target_distribution, topk_rows
from decoding.trace.interventions import Verdicts
from decoding.trace.records import (
    STOP_REASONS,
    TOP_TOKENS,
    Breadth,
    DrawTrace,
    FinalKind,
    HistoryTrace,
    IterationTrace,
    KVTrace,
    LeftOut,
    NodeTrace,
    PhaseTimes,
    Record,
    SelectorTrace,
    Setting,
    VerificationStep,
)
from decoding.tree.draft import Draft
from decoding.verifiers.base import Verification


def token_probabilities(draft: Draft, probs: Tensor) -> np.ndarray:
    """What distributions `[num_rows, vocab_size]` give each verified node after its parent, `[num_nodes]`; else nan."""
    tree, order = draft.tree, draft.order
    result = np.full(tree.size, np.nan)
    if len(order) > 1:
        row_of = np.zeros(tree.size, dtype=np.int64)
        row_of[order] = np.arange(len(order))
        result[order[1:]] = _at(probs, row_of[tree.parents[order[1:]]], tree.tokens[order[1:]])
    return result


def top_probabilities(draft: Draft, probs: Tensor, ids: np.ndarray) -> np.ndarray:
    """What a distribution gives tokens `ids` picked after each node, `[num_nodes, count]`; nan where the id is -1."""
    row_of = np.full(len(ids), -1, dtype=np.int64)
    row_of[draft.order] = np.arange(len(draft.order))
    result = np.full(ids.shape, np.nan, dtype=np.float32)
    filled = (ids >= 0) & (row_of >= 0)[:, None]
    rows = np.broadcast_to(row_of[:, None], ids.shape)[filled]
    result[filled] = _at(probs, rows, ids[filled].astype(np.int64))
    return result


def _at(probs: Tensor, rows: np.ndarray, tokens: np.ndarray) -> np.ndarray:
    """Single entries of a distribution, read on its device and brought over together."""
    places = torch.from_numpy(np.ascontiguousarray(rows)).to(probs.device)
    picked = probs[places, torch.from_numpy(np.ascontiguousarray(tokens)).to(probs.device)]
    return picked.double().cpu().numpy()


@dataclass
class IterationState:
    """What one iteration leaves behind, filled as it runs: what a step finds is not there before it."""

    index: int
    prefix_length: int
    in_loop: bool
    started_s: float
    ended_s: float = 0.0
    target_slots_before: int = 0
    method: Method = field(init=False)
    source: Any = field(init=False)
    draft: Draft = field(init=False)
    logits: Tensor = field(init=False)
    verification: Verification = field(init=False)
    committed: tuple[int, ...] = ()
    kept: tuple[int, ...] = ()
    final_kind: FinalKind = "none"
    kv_target: KVTrace = field(init=False)
    kv_draft: KVTrace | None = None
    history: HistoryTrace | None = None
    times: PhaseTimes = field(init=False)
    draws: tuple[DrawTrace, ...] = ()

    @property
    def rebuilds(self) -> bool:
        """Whether the target's rows of the tree go and the committed tokens are run again."""
        return self.method.cache_policy == "rebuild" and self.method.drafter.drafts

    def keep_rows(self, target: KVCache, draft: KVCache | None, moved: bool = False) -> None:
        """Leave the rows of every committed token but the last one in both caches, and note what moved.

        Rows that a draft head drafted go, for they rest on its own features: the next iteration runs the accepted
        tokens again with the target's. `moved`: the device has moved the accepted rows already.
        """
        end, before = self.prefix_length + len(self.committed) - 1, self.target_slots_before
        order = (*[-1] * (self.prefix_length - 1 - before), *self.draft.order.tolist())
        path = {-1, 0, *self.kept}
        kept = [before + row for row, node in enumerate(order) if node in path][: end - before]
        self.kv_target = keep_rows(target, before, order, kept, drop_all=self.rebuilds, moved=moved)
        if draft is None:
            return
        path = {-1, 0} if self.method.draft_head else path
        before, order = self.source.slots_before, tuple(self.source.slot_nodes)
        kept = [before + row for row, node in enumerate(order) if node in path][: end - before]
        self.kv_draft = keep_rows(draft, before, order, kept, moved=moved)

    @property
    def tree_depth(self) -> int:
        """Depth of the verified tree."""
        return int(self.draft.tree.depths[self.draft.order].max())

    def agreement(self) -> tuple[int, int] | None:
        """Drafted tokens that the target likes best after their parents, and those of which that is known.

        None for an iteration that left its logits on the device.
        """
        if not hasattr(self, "logits"):
            return None
        tree, row_of = self.draft.tree, np.full(self.draft.tree.size, -1)
        row_of[self.draft.order] = np.arange(len(self.draft.order))
        rows = row_of[tree.parents[1:]]
        best = self.logits.argmax(-1).cpu().numpy()
        return int((best[rows] == tree.tokens[1:])[rows >= 0].sum()), int((rows >= 0).sum())

    @property
    def settings(self) -> dict[str, Setting]:
        """Settings in force, the draft head among them where one drafted."""
        head = self.method.draft_head
        return self.draft.settings | ({"draft_head": head} if head else {})

    def outcome(self) -> IterationFeedback:
        """What the drafter may learn from this iteration."""
        return IterationFeedback(
            accepted=len(self.verification.accepted),
            committed=len(self.committed),
            drafted=self.draft.tree.size - 1,
            verified=len(self.draft.order) - 1,
            depth=self.tree_depth,
            path=tuple(self.verification.accepted),
            tokens=tuple(self.committed),
            tree=self.draft.tree,
            order=self.draft.order,
            top=lambda: self.target_top,
        )

    @cached_property
    def target_probs(self) -> Tensor:
        """The target's distribution after each verified node at temperature 1, `[num_verified + 1, vocab_size]`."""
        return torch.softmax(self.logits.float(), -1)

    @cached_property
    def target_top(self) -> tuple[np.ndarray, np.ndarray]:
        """Ids and probabilities of its likeliest tokens by node, `[num_nodes, 20]`; see `top_by_node`."""
        return top_by_node(self.draft.tree.size, [(self.draft.order, self.target_probs)])


WRITTEN_LATER = (
    "nodes", "steps", "texts", "draft_top_ids", "draft_top_probs", "target_top_ids", "target_top_probs",
    "tested_top_probs", "selector",
)  # fmt: skip


@dataclass(frozen=True)
class TreeFigures:
    """A tree with all that its record takes from the rows of both models: it is written without them."""

    columns: dict[str, np.ndarray]  # those of `TokenTree`
    order: np.ndarray
    breadths: list[Breadth | None]
    left_out: LeftOut | None
    steps: tuple[VerificationStep, ...]
    acceptance_probability: np.ndarray  # `[num_verified + 1]`, in the order of the verification pass
    accepted: tuple[int, ...]  # by the verifier
    kept: tuple[int, ...]  # those whose tokens were committed
    final_token: int
    tests_first_path: bool
    selector: SelectorTrace | None
    # Ids and probabilities of the likeliest tokens, `[num_nodes, 20]`; those that the verifier saw of the target's are
    # None in greedy decoding, which asks for no probabilities
    draft_top: tuple[np.ndarray, np.ndarray]
    target_top: tuple[np.ndarray, np.ndarray]
    tested_top_probs: np.ndarray | None
    # What the target gives each token after its parent, at temperature 1 and as tested, `[num_nodes]`; else nan
    target_probs: np.ndarray
    tested_probs: np.ndarray


class UnwrittenTrace(IterationTrace):
    """A full record whose tree is written when it is first read.

    Until then it holds the rows of both models, or what it takes from them.

    Attributes:
        waiting_bytes: of those rows, 0 once they are gone.
    """

    __slots__ = ("_read", "_text_of", "waiting_bytes")

    def wait(self, read: Callable[[], TreeFigures], text_of: Callable[[int], str], waiting_bytes: int) -> None:
        """Leave the fields that the tree gives for later."""
        for name in WRITTEN_LATER:
            object.__delattr__(self, name)
        object.__setattr__(self, "_read", read)
        object.__setattr__(self, "_text_of", text_of)
        object.__setattr__(self, "waiting_bytes", waiting_bytes)

    def let_rows_go(self) -> None:
        """Take what the tree needs from the rows, and hold that in their place."""
        if (read := self._read) is not None:
            tree = read()
            object.__setattr__(self, "_read", lambda: tree)
            object.__setattr__(self, "waiting_bytes", 0)

    def __getattr__(self, name: str) -> Any:
        if name == "waiting_bytes":
            return 0  # of a copy, which is made of what has been written
        if name not in WRITTEN_LATER:
            raise AttributeError(name)
        if (read := self._read) is not None:  # of two threads both may write, which gives the same
            for field_name, value in _written(read(), self._text_of).items():
                object.__setattr__(self, field_name, value)
            object.__setattr__(self, "_read", None)
            object.__setattr__(self, "waiting_bytes", 0)
        return object.__getattribute__(self, name)


def write_iteration(
    step: IterationState, text_of: Callable[[int], str], sampling: Sampling, record: Record, full_rows: bool
) -> IterationTrace:
    """Write the record of an iteration; what the writing takes is noted and is no part of the iteration's time.

    The tree of a full record is written when it is read, unless its rows lie on another device or stay in the record;
    what that takes is noted nowhere.
    """
    started = time.perf_counter()
    full: dict[str, Any] = {"nodes": (), "steps": ()}
    later = record == "full" and not full_rows and step.logits.device.type == "cpu"
    if record == "full" and not later:
        full = _written(_read(step, sampling), text_of) | (_all_logits(step) if full_rows else {})
    committed_texts = tuple(text_of(token) for token in step.committed)
    times = replace(step.times, record_s=time.perf_counter() - started)
    trace = (UnwrittenTrace if later else IterationTrace)(
        index=step.index,
        prefix_length=step.prefix_length,
        settings=step.settings,
        flatten_order=tuple(step.draft.order.tolist()),
        accepted=step.kept,
        committed_ids=step.committed,
        committed_texts=committed_texts,
        final_kind=step.final_kind,
        draws=step.draws,
        draft_sampling=step.draft.draft_sampling,
        drawn=() if step.draft.drawn is None else tuple(step.draft.drawn.tolist()),
        kv_target=step.kv_target,
        kv_draft=step.kv_draft,
        times=times,
        started_s=step.started_s,
        ended_s=step.ended_s,
        drafted=step.draft.tree.size - 1,
        verified=len(step.draft.order) - 1,
        tree_depth=step.tree_depth,
        draft_forwards=step.source.forwards,
        target_passes=1 + step.kv_target.rebuilt,
        in_loop=step.in_loop,
        history=step.history,
        sampling=sampling.trace(),
        rule=step.method.drafter.rule(step.settings),
        **full,
    )
    step.source = None  # it holds on to the cache
    if isinstance(trace, UnwrittenTrace):
        rows = sum(probs.nbytes for _, probs in step.draft.rows)
        vars(step).pop("target_probs", None)  # as many bytes again, where a drafter asked
        trace.wait(partial(_read, step, sampling), text_of, step.logits.nbytes + rows)
    return trace


def _read(step: IterationState, sampling: Sampling) -> TreeFigures:
    """What the record of an iteration takes from the rows of both models."""
    draft, verification = step.draft, step.verification
    probs = None  # what the verifier used; greedy decoding asks for none
    if not sampling.greedy:
        plain = sampling.temperature == 1 and sampling.top_p == 1
        probs = step.target_probs if plain else target_distribution(step.logits, sampling)
    return TreeFigures(
        columns={name: getattr(draft.tree, name).copy() for name in draft.tree.COLUMNS},
        order=draft.order,
        breadths=step.method.drafter.breadths(draft),
        left_out=step.method.drafter.rule(step.settings).left_out,
        steps=verification.steps,
        acceptance_probability=verification.acceptance_probability,
        accepted=verification.accepted,
        kept=step.kept,
        final_token=verification.final_token,
        tests_first_path=step.method.verifier.tests_first_path,
        selector=None if draft.choice is None else draft.choice.trace(),
        draft_top=top_by_node(draft.tree.size, list(draft.rows)),
        target_top=step.target_top,
        tested_top_probs=None if probs is None else top_probabilities(draft, probs, step.target_top[0]),
        target_probs=token_probabilities(draft, step.target_probs),
        tested_probs=np.full(draft.tree.size, np.nan) if probs is None else token_probabilities(draft, probs),
    )


def _written(tree: TreeFigures, text_of: Callable[[int], str]) -> dict[str, Any]:
    """The fields of `IterationTrace` that only a full record has, raw logits apart."""
    (draft_ids, draft_probs), (target_ids, target_probs) = tree.draft_top, tree.target_top
    ids = {*draft_ids.ravel().tolist(), *target_ids.ravel().tolist(), *tree.columns["tokens"].tolist()}
    texts = {i: text_of(i) for i in sorted(ids | {tree.final_token}) if i >= 0}
    for test in tree.steps:
        for token in (test.token_id, *test.residual_ids):
            if token not in texts:
                texts[token] = text_of(token)
    return {
        "steps": tree.steps,
        "nodes": _nodes(tree, texts),
        "texts": texts,
        "draft_top_ids": draft_ids,
        "draft_top_probs": draft_probs,
        "target_top_ids": target_ids,
        "target_top_probs": target_probs,
        "tested_top_probs": tree.tested_top_probs,
        "selector": tree.selector,
    }


def _all_logits(step: IterationState) -> dict[str, np.ndarray]:
    """The raw logits of both models, by the fields of `IterationTrace` that hold them."""
    size, width = step.draft.tree.size, step.logits.shape[-1]
    levels = [(nodes, rows) for (nodes, _), rows in zip(step.draft.rows, step.source.logits, strict=True)]
    return {
        "draft_logits": _full_rows(size, width, levels),
        "target_logits": _full_rows(size, width, [(step.draft.order, step.logits)]),
    }


def top_by_node(size: int, levels: list[tuple[np.ndarray, Tensor]]) -> tuple[np.ndarray, np.ndarray]:
    """Ids and probabilities of the top tokens after each node, `[num_nodes, 20]`; -1 and nan where not computed."""
    ids = np.full((size, TOP_TOKENS), -1, dtype=np.int32)
    probs = np.full((size, TOP_TOKENS), np.nan, dtype=np.float32)
    for nodes, rows in levels:
        best_probs, best_ids = topk_rows(rows, min(TOP_TOKENS, rows.shape[-1]))
        width = best_ids.shape[-1]
        ids[nodes, :width] = best_ids.cpu().numpy()
        probs[nodes, :width] = best_probs.float().cpu().numpy()
    return ids, probs


def _full_rows(size: int, width: int, levels: list[tuple[np.ndarray, Tensor]]) -> np.ndarray:
    rows = np.full((size, width), np.nan, dtype=np.float32)
    for nodes, logits in levels:
        rows[nodes] = logits.float().cpu().numpy()
    return rows


def _nodes(tree: TreeFigures, texts: Mapping[int, str]) -> tuple[NodeTrace, ...]:
    flat = {int(node): row for row, node in enumerate(tree.order)}
    verdicts = Verdicts(tree.steps, flat, tree.accepted, tree.kept, tree.left_out, tree.tests_first_path)
    columns = {name: column.tolist() for name, column in tree.columns.items()}  # plain numbers: each is read once
    child_probs, tested = tree.target_probs.tolist(), tree.tested_probs.tolist()
    best_ids, best_probs = (top[:, 0].tolist() for top in tree.target_top)
    breadths, passes = tree.breadths, tree.acceptance_probability.tolist()
    nodes = []
    for i in range(len(breadths)):
        parent, row = columns["parents"][i], flat.get(i)
        verdict, reason = verdicts.of(i, parent, columns["tokens"][i])
        argmax = best_ids[i] if row is not None else None
        nodes.append(
            NodeTrace(
                node_id=i,
                parent_id=parent,
                depth=columns["depths"][i],
                token_id=columns["tokens"][i],
                text=texts[columns["tokens"][i]],
                multiplicity=columns["multiplicity"][i],
                draft_probability=None if i == 0 else columns["draft_probs"][i],
                path_probability=columns["path_probs"][i],
                confidence=_or_none(columns["confidence"][i]),
                branching=None if columns["branching"][i] < 0 else columns["branching"][i],
                stop_reason=STOP_REASONS[columns["stop_reason"][i]],
                pruned=row is None,
                target_probability=None if row is None else _or_none(child_probs[i]),
                target_argmax=argmax,
                target_argmax_text=None if argmax is None else texts[argmax],
                target_argmax_probability=None if row is None else best_probs[i],
                acceptance_probability=None if row is None else passes[row],
                verdict=verdict,
                flat_index=row,
                draft_level=None if columns["level"][i] < 0 else columns["level"][i],
                tested_probability=_or_none(tested[i]),
                breadth=breadths[i],
                reason=reason,
            )
        )
    return tuple(nodes)


def _or_none(value: float) -> float | None:
    return None if value != value else value  # nan

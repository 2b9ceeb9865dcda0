"""Turns what one iteration left behind into its `IterationTrace`."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from decoding.drafters.base import Draft
from decoding.pair import Vocabulary
from decoding.trace import GROWTHS, TOP_TOKENS, NodeTrace
from decoding.verifiers.base import Verification


@dataclass(frozen=True)
class Tops:
    """Top tokens of a law after each node, `[num_nodes, 20]`; -1 / nan where it was not computed."""

    ids: np.ndarray
    probs: np.ndarray


@dataclass(frozen=True)
class Recorded:
    """The parts of an `IterationTrace` that only a full record has."""

    nodes: tuple[NodeTrace, ...]
    texts: Mapping[int, str]
    draft: Tops
    target: Tops
    draft_logits: np.ndarray | None
    target_logits: np.ndarray | None


def record(
    draft: Draft,
    verification: Verification,
    committed: int,
    draft_logits: list[Tensor],
    target_logits: Tensor,
    vocabulary: Vocabulary,
    full_rows: bool,
) -> Recorded:
    """Record one iteration in full.

    Args:
        committed: accepted nodes that were really committed; an end of text may cut the path.
        draft_logits: raw logits of each draft forward, aligned with `draft.rows`.
        target_logits: `[num_verified + 1, vocab_size]` in the order of the verification pass.
    """
    size = draft.tree.size
    target_probs = torch.softmax(target_logits.float(), -1)
    draft_tops = _tops(size, [(nodes, probs) for nodes, probs in draft.rows])
    target_tops = _tops(size, [(draft.order, target_probs)])
    child_probs = _target_probability_of_nodes(draft, target_probs)
    ids = np.unique(np.concatenate([draft_tops.ids.ravel(), target_tops.ids.ravel(), draft.tree.tokens]))
    texts = {int(i): vocabulary.text(int(i)) for i in ids if i >= 0}
    texts[verification.final_token] = vocabulary.text(verification.final_token)
    draft_rows = target_rows = None
    if full_rows:
        width = target_logits.shape[-1]
        levels = [(nodes, rows) for (nodes, _), rows in zip(draft.rows, draft_logits, strict=True)]
        draft_rows = _full_rows(size, width, levels)
        target_rows = _full_rows(size, width, [(draft.order, target_logits)])
    nodes = _nodes(draft, verification, committed, child_probs, target_tops, texts)
    return Recorded(nodes, texts, draft_tops, target_tops, draft_rows, target_rows)


def _tops(size: int, levels: list[tuple[np.ndarray, Tensor]]) -> Tops:
    ids = np.full((size, TOP_TOKENS), -1, dtype=np.int32)
    probs = np.full((size, TOP_TOKENS), np.nan, dtype=np.float32)
    for nodes, rows in levels:
        best = rows.topk(min(TOP_TOKENS, rows.shape[-1]), dim=-1)
        width = best.indices.shape[-1]
        ids[nodes, :width] = best.indices.cpu().numpy()
        probs[nodes, :width] = best.values.float().cpu().numpy()
    return Tops(ids, probs)


def _full_rows(size: int, width: int, levels: list[tuple[np.ndarray, Tensor]]) -> np.ndarray:
    rows = np.full((size, width), np.nan, dtype=np.float32)
    for nodes, logits in levels:
        rows[nodes] = logits.float().cpu().numpy()
    return rows


def _target_probability_of_nodes(draft: Draft, target_probs: Tensor) -> np.ndarray:
    """Target's probability of each verified node after its parent, `[num_nodes]`; nan where it was not verified."""
    tree, order = draft.tree, draft.order
    result = np.full(tree.size, np.nan)
    if len(order) > 1:
        row_of = np.zeros(tree.size, dtype=np.int64)
        row_of[order] = np.arange(len(order))
        rows = torch.from_numpy(row_of[tree.parents[order[1:]]]).to(target_probs.device)
        tokens = torch.from_numpy(tree.tokens[order[1:]]).to(target_probs.device)
        result[order[1:]] = target_probs[rows, tokens].double().cpu().numpy()
    return result


def _nodes(
    draft: Draft,
    verification: Verification,
    committed: int,
    child_probs: np.ndarray,
    target_tops: Tops,
    texts: Mapping[int, str],
) -> tuple[NodeTrace, ...]:
    tree = draft.tree
    flat = {int(node): row for row, node in enumerate(draft.order)}
    accepted = set(verification.accepted[:committed])
    reached = {0, *verification.accepted}
    columns = {name: getattr(tree, name).tolist() for name, _ in tree._COLUMNS}
    nodes = []
    for i in range(tree.size):
        parent, row = columns["parents"][i], flat.get(i)
        verdict, reason = _verdict(i, parent, row, accepted, reached, target_tops, texts, child_probs[i])
        argmax = int(target_tops.ids[i, 0]) if row is not None else None
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
                growth=GROWTHS[columns["growth"][i]],
                pruned=row is None,
                target_probability=None if row is None else _or_none(float(child_probs[i])),
                target_argmax=argmax,
                target_argmax_text=None if argmax is None else texts[argmax],
                target_argmax_probability=None if row is None else float(target_tops.probs[i, 0]),
                acceptance_probability=None if row is None else float(verification.acceptance_probability[row]),
                verdict=verdict,
                reason=reason,
                flat_index=row,
                draft_level=None if columns["level"][i] < 0 else columns["level"][i],
            )
        )
    return tuple(nodes)


def _verdict(
    node: int,
    parent: int,
    row: int | None,
    accepted: set[int],
    reached: set[int],
    tops: Tops,
    texts,
    probability: float,
) -> tuple[str, str]:
    """The verdict on a node and the sentence that explains it."""
    if node == 0:
        return "root", "The last committed token: the tree grows from here."
    if row is None:
        return "not_verified", "Removed before verification: its path probability is below the pruning threshold."
    if parent not in reached:
        return "not_reached", "An ancestor was rejected, so this node was never reached."
    preferred, best = texts[int(tops.ids[parent, 0])], float(tops.probs[parent, 0])
    if node in accepted:
        return "accepted", f"The target's most likely token here, at {best:.2f}."
    if node in reached:
        return "not_reached", "The text ended before this token."
    return "rejected", f"The target prefers {preferred!r} at {best:.2f}; this token has {probability:.2f}."


def _or_none(value: float) -> float | None:
    return None if np.isnan(value) else value

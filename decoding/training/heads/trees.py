"""The trees that a target grows itself: EAGLE-2's beam below every token of a window, with the features of all nodes.

TALF trains on them (SALF & TALF, Algorithm 1): the soft label of a node is the target's law after it, which its output
head makes of the node's feature.
"""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from decoding.engines.base import Visibility
from decoding.engines.kv_cache import KVCache
from decoding.models.pair import Model

ROOTS_TOGETHER = 64  # more of them let every pass attend to more nodes of other roots in vain


@dataclass(frozen=True)
class TargetTrees:
    """Trees below the roots of a window, level by level; a level holds the `top_k` nodes that a beam expands.

    Attributes:
        tokens: int64 `[levels, roots, top_k]`, best first.
        parents: int64 `[levels, roots, top_k]`, place of each node's parent in the level above; 0 in the first.
        features: the target's, after each node, `[levels, roots, top_k, hidden_size]`.
    """

    tokens: Tensor
    parents: Tensor
    features: Tensor


@torch.inference_mode()
def text_features(model: Model, tokens: np.ndarray) -> Tensor:
    """The target's feature after each token of a text `[size]`: `[size, hidden_size]`."""
    return _read(model, model.engine.new_cache(len(tokens)), tokens)[1]


@torch.inference_mode()
def target_trees(model: Model, tokens: np.ndarray, top_k: int, levels: int) -> TargetTrees:
    """EAGLE-2's beam of width `top_k` below every token of a text but the first, grown with the model's own laws.

    Roots are taken together, and the nodes of a level are run in one pass under tree attention.

    Args:
        tokens: `[1 + roots]`.
        levels: of drafted nodes.
    """
    cache = model.engine.new_cache(len(tokens) + levels * ROOTS_TOGETHER * top_k)
    logits, _ = _read(model, cache, tokens)
    grown: list[TargetTrees] = []
    for first in range(1, len(tokens), ROOTS_TOGETHER):
        roots = np.arange(first, min(first + ROOTS_TOGETHER, len(tokens)))
        grown.append(_below(model, cache, roots, logits[first : first + len(roots)], top_k, levels))
        cache.rollback(len(tokens))
    parts = [[getattr(part, name) for part in grown] for name in ("tokens", "parents", "features")]
    return TargetTrees(*(torch.cat(part, 1) for part in parts))


@torch.inference_mode()
def children_features(model: Model, tokens: np.ndarray, children: Tensor) -> Tensor:
    """The target's features after given children of every token of a text but the first.

    Args:
        tokens: `[1 + roots]`.
        children: int64 `[roots, num_children]`.

    Returns:
        `[roots, num_children, hidden_size]`.
    """
    count = children.shape[1]
    cache = model.engine.new_cache(len(tokens) + ROOTS_TOGETHER * count)
    _read(model, cache, tokens)
    found = []
    for first in range(1, len(tokens), ROOTS_TOGETHER):
        roots = np.arange(first, min(first + ROOTS_TOGETHER, len(tokens)))
        seen = np.repeat(np.arange(len(tokens)) <= roots[:, None], count, 0)
        mask = np.concatenate([seen, np.eye(len(seen), dtype=bool)], 1)
        ids = children[first - 1 : first - 1 + len(roots)].flatten().cpu().numpy()
        _, features = _run(model, cache, ids, np.repeat(roots + 1, count), mask)
        found.append(features.view(len(roots), count, -1))
        cache.rollback(len(tokens))
    return torch.cat(found)


def _run(
    model: Model, cache: KVCache, ids: np.ndarray, positions: np.ndarray, seen: np.ndarray
) -> tuple[Tensor, Tensor]:
    """Logits and features of nodes, each of which sees the rows marked in `seen` `[nodes, cache.length + nodes]`."""
    return model.engine.run_with_features(cache, ids, positions, model.engine.mask(Visibility(0, seen)), 0)


def _read(model: Model, cache: KVCache, tokens: np.ndarray) -> tuple[Tensor, Tensor]:
    """Logits and features after every token of a text."""
    mask = model.engine.mask(Visibility.causal(0, len(tokens)))
    return model.engine.run_with_features(cache, tokens, np.arange(len(tokens)), mask, 0)


def _below(model: Model, cache: KVCache, roots: np.ndarray, logits: Tensor, top_k: int, levels: int) -> TargetTrees:
    """The trees below some roots whose text the cache holds; `logits` `[roots, vocab_size]` are those after them."""
    values, tokens = torch.log_softmax(logits.float(), -1).topk(top_k)
    parents = torch.zeros_like(tokens)
    text_seen = np.repeat(np.arange(cache.length) <= roots[:, None], top_k, 0)
    own = np.eye(len(text_seen), dtype=bool)
    above = np.zeros((len(text_seen), 0), dtype=bool)  # nodes of the levels above that each node sees
    kept: list[tuple[Tensor, Tensor, Tensor]] = []
    for level in range(levels):
        seen, positions = np.concatenate([text_seen, above, own], 1), np.repeat(roots + 1 + level, top_k)
        logits, features = _run(model, cache, tokens.flatten().cpu().numpy(), positions, seen)
        kept.append((tokens, parents, features.view(*tokens.shape, -1)))
        if level + 1 < levels:
            values, tokens, parents = _best_children(logits.view(*tokens.shape, -1), values, top_k)
            flat = (parents.cpu().numpy() + top_k * np.arange(len(roots))[:, None]).flatten()
            above = np.concatenate([above, own], 1)[flat]
    return TargetTrees(*(torch.stack(part) for part in zip(*kept, strict=True)))


def _best_children(logits: Tensor, values: Tensor, top_k: int) -> tuple[Tensor, Tensor, Tensor]:
    """Of the `top_k` best children of every node the `top_k` of highest path probability.

    Args:
        logits: after each node, `[roots, top_k, vocab_size]`.
        values: logarithm of each node's path probability, `[roots, top_k]`.

    Returns:
        Values, tokens and places of the parents, `[roots, top_k]` each, best first.
    """
    scores, tokens = torch.log_softmax(logits.float(), -1).topk(top_k)
    values, places = (values[..., None] + scores).flatten(1).topk(top_k)
    return values, tokens.flatten(1).gather(1, places), places // top_k

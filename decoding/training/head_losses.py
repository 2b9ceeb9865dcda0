"""What draft heads are trained on: EAGLE, HASS and TALF, each a function of the head, the text and the target's labels.

All are means over the roots of a batch; over the forwards and nodes below a root they are sums. Gradients flow into
the head alone: embedding and output head are the target's, and soft labels are made of its features.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor

from decoding.common.errors import require
from decoding.heads.network import HeadNetwork, Past

ROOTS_TOGETHER = 32  # rows of so many roots share a pass's columns: more of them cost attention in vain
LOGITS_AT_ONCE = 2**20  # a block of rows whose logits stay in the cache of a CPU, and never fill a GPU

LossName = Literal["eagle", "hass", "talf"]
Embed = Callable[[Tensor], Tensor]
Project = Callable[[Tensor], Tensor]


@dataclass(frozen=True)
class TextWindows:
    """Windows of text with the target's features.

    Attributes:
        tokens: int64 `[batch, size]`, `size = roots + depth`; the roots are tokens 1 to `roots`.
        features: after each token, `[batch, size, hidden_size]`.
        depth: forwards of the head that labels are there for.
    """

    tokens: Tensor
    features: Tensor
    depth: int

    @property
    def roots(self) -> int:
        """Tokens of a window below which the head drafts."""
        return self.tokens.shape[1] - self.depth


@dataclass(frozen=True)
class Drafted:
    """What the head is to read below the roots, level by level; of one window without the batch.

    Attributes:
        tokens: int64 `[batch, levels, roots, top_k]`.
        parents: int64, the same; place of each node's parent in the level above, 0 in the first level.
        labels: the target's features after each node, `[batch, levels, roots, top_k, hidden_size]`.
    """

    tokens: Tensor
    parents: Tensor
    labels: Tensor

    @property
    def levels(self) -> int:
        """Levels of drafted tokens."""
        return self.tokens.shape[1]


def following_text(text: TextWindows) -> Drafted:
    """The text itself as a chain below every root: what HASS reads, `top_k` 1."""
    roots, levels = text.roots, text.depth - 1

    def shifted(x: Tensor) -> Tensor:
        """`[batch, levels, roots, ...]`: the row of level j and root i is row 2 + i + j of `[batch, size, ...]`."""
        parts = [x[:, 2 + level : 2 + level + roots] for level in range(levels)]
        return torch.stack(parts, 1) if parts else x[:, None, :roots][:, :0]

    tokens = shifted(text.tokens)[..., None]
    return Drafted(tokens, torch.zeros_like(tokens), shifted(text.features)[..., None, :])


def labels_of(text: TextWindows, drafted: Drafted | None) -> list[Tensor]:
    """The target's features after the roots and after every drafted node, in the places of what `unroll` gives."""
    roots = text.features[:, 1 : 1 + text.roots, None]
    return [roots, *(drafted.labels.unbind(1) if drafted is not None else ())]


def unroll(head: HeadNetwork, embed: Embed, text: TextWindows, drafted: Drafted | None) -> list[Tensor]:
    """The features that the head gives at the roots and, where there are any, at every drafted node.

    Gradients flow through the features that are fed back, and into nothing but the head.

    Returns:
        `[batch, roots, 1, hidden_size]` of the roots, then `[batch, roots, top_k, hidden_size]` per level.
    """
    roots = text.roots
    positions = torch.arange(1, roots + 1, device=text.tokens.device)
    causal = torch.ones(roots, roots, dtype=torch.bool, device=text.tokens.device).tril()[None]
    out, keys, values = head(
        embed(text.tokens[:, 1 : roots + 1]).detach(),
        text.features[:, :roots],
        positions.expand(len(text.tokens), -1),
        causal,
    )
    found = [out[:, :, None]]
    if drafted is not None:
        level = _Levels(head, embed, drafted, causal[0], (keys, values))
        for number in range(drafted.levels):
            found.append(level.run(number, found[-1]))
    return found


class _Levels:
    """Drafted levels one after another; roots stand in groups of `ROOTS_TOGETHER`, each a row of the batch."""

    def __init__(self, head: HeadNetwork, embed: Embed, drafted: Drafted, causal: Tensor, text: Past):
        self.head, self.embed, self.drafted = head, embed, drafted
        batch, _, roots, self.top_k = drafted.tokens.shape
        together = max(size for size in range(1, min(ROOTS_TOGETHER, roots) + 1) if roots % size == 0)
        self.groups = batch * (roots // together)
        self.seen_text = self._grouped(causal.expand(batch, -1, -1)).repeat_interleave(self.top_k, 1)
        self.past = tuple(part.repeat_interleave(roots // together, 0) for part in text)
        self.own = torch.eye(together * self.top_k, dtype=torch.bool, device=causal.device).expand(self.groups, -1, -1)
        self.above = self.own[:, :, :0]
        self.first = torch.arange(together, device=causal.device).repeat_interleave(self.top_k) * self.top_k

    def run(self, number: int, parents_out: Tensor) -> Tensor:
        """One level: `[batch, roots, top_k, hidden_size]` from the features of the level above."""
        tokens, parents = self.drafted.tokens[:, number], self.drafted.parents[:, number]
        batch, roots, _ = tokens.shape
        size = parents_out.shape[-1]
        features = parents_out.gather(2, parents[..., None].expand(-1, -1, -1, size))
        positions = torch.arange(1, roots + 1, device=tokens.device)[None, :, None] + 1 + number
        mask = torch.cat([self.seen_text, self.above, self.own], 2)
        out, keys, values = self.head(
            self._grouped(self.embed(tokens).detach()).flatten(1, 2),
            self._grouped(features).flatten(1, 2),
            self._grouped(positions.expand(batch, -1, self.top_k)).flatten(1, 2),
            mask,
            self.past,
        )
        self.past = tuple(torch.cat(both, 2) for both in zip(self.past, (keys, values), strict=True))
        self.above = torch.cat([self.above, self.own], 2)
        if number + 1 < self.drafted.levels:  # what the children see above themselves
            following = self._grouped(self.drafted.parents[:, number + 1]).flatten(1, 2) + self.first
            self.above = self.above.gather(1, following[..., None].expand(-1, -1, self.above.shape[2]))
        return out.reshape(batch, roots, self.top_k, size)

    def _grouped(self, x: Tensor) -> Tensor:
        """`[batch, roots, ...]` as `[groups, roots together, ...]`."""
        return x.reshape(self.groups, -1, *x.shape[2:])


@dataclass(frozen=True)
class Weights:
    """Weights of the parts of EAGLE's and HASS's losses, as SALF & TALF sets them (Section 4.1).

    Attributes:
        regression: of the mean absolute difference of the features (the public code of EAGLE averages over their
            entries, too).
        classification: of the cross-entropy with the target's distribution.
        distillation: of the same over the target's `top` likeliest tokens alone (HASS).
    """

    regression: float = 1.0
    classification: float = 10.0
    distillation: float = 10.0
    top: int = 10

    def __post_init__(self) -> None:
        for name in ("regression", "classification", "distillation"):
            value = getattr(self, name)
            require(0 <= value < math.inf, f"The weight of {name} is {value}: give 0 or more.")
        require(self.top >= 1, f"top is {self.top}: give at least 1.")


@dataclass(frozen=True)
class Sides:
    """The target's two frozen ends.

    Attributes:
        embed: token ids to embeddings `[..., hidden_size]`. project: features `[rows, hidden_size]` to raw logits.
    """

    embed: Embed
    project: Project


def eagle_loss(head: HeadNetwork, sides: Sides, text: TextWindows, weights: Weights) -> dict[str, Tensor]:
    """EAGLE: at every root, the target's features and next token's distribution; the loss, and its parts unweighted."""
    (out,), (label,) = unroll(head, sides.embed, text, None), labels_of(text, None)
    regression, classification = feature_difference(out, label), cross_entropies(sides.project, out, label)[0]
    loss = weights.regression * regression + weights.classification * classification
    return {"loss": loss, "regression": regression.detach(), "classification": classification.detach()}


def hass_loss(head: HeadNetwork, sides: Sides, text: TextWindows, weights: Weights) -> dict[str, Tensor]:
    """HASS: EAGLE's two terms and top-K distillation at `text.depth` forwards along the text, own features fed back."""
    chain = following_text(text)
    levels = list(zip(unroll(head, sides.embed, text, chain), labels_of(text, chain), strict=True))
    regression = sum(feature_difference(out, label) for out, label in levels)
    both = [cross_entropies(sides.project, out, label, weights.top) for out, label in levels]
    classification, distillation = (sum(part) for part in zip(*both, strict=True))
    parts = {"regression": regression, "classification": classification, "distillation": distillation}
    loss = sum((getattr(weights, name) * part for name, part in parts.items()), torch.zeros(()))
    return {"loss": loss, **{name: part.detach() for name, part in parts.items()}}


def talf_loss(head: HeadNetwork, sides: Sides, text: TextWindows, trees: Drafted | None) -> dict[str, Tensor]:
    """TALF (Algorithm 1): cross-entropy at the root and at every node of the target's own tree, features fed back.

    Without trees the root alone is left, which makes it EAGLE's classification loss.
    """
    both = zip(unroll(head, sides.embed, text, trees), labels_of(text, trees), strict=True)
    by_level = [cross_entropies(sides.project, out, label)[0] for out, label in both]
    levels = {f"classification_{depth}": part.detach() for depth, part in enumerate(by_level, 1)}
    return {"loss": sum(by_level, torch.zeros(())), **levels}


Loss = Callable[[HeadNetwork, Sides, TextWindows, Any], dict[str, Tensor]]
LOSS_OF: dict[LossName, Loss] = {"eagle": eagle_loss, "hass": hass_loss, "talf": talf_loss}


def feature_difference(out: Tensor, labels: Tensor) -> Tensor:
    """Mean absolute difference per entry of `[batch, roots, nodes, hidden_size]`, summed over the nodes of a root."""
    return (out.float() - labels.detach().float()).abs().mean(-1).sum(-1).mean()


def cross_entropies(project: Project, out: Tensor, labels: Tensor, top: int = 0) -> tuple[Tensor, Tensor]:
    """-sum p log q over the vocabulary, p made of `labels` and q of `out`, both `[batch, roots, nodes, hidden_size]`.

    Summed over the nodes of a root, mean over roots; and the part that the target's `top` likeliest tokens make up.
    """
    rows = _SoftLabels.apply(out.flatten(0, -2), labels.detach().flatten(0, -2), project, top)
    whole, likeliest = rows.view(2, *out.shape[:-1]).sum(-1).mean((1, 2))
    return whole, likeliest


class _SoftLabels(torch.autograd.Function):
    """Cross-entropies `[2, rows]` of rows of features, made block by block so that few logits exist at a time.

    The gradients of a block are found while its logits are there.
    """

    @staticmethod
    def forward(ctx: Any, out: Tensor, labels: Tensor, project: Project, top: int) -> Tensor:
        losses = torch.zeros(2, len(out), device=out.device)
        slopes = [torch.empty_like(out) for _ in range(2 if top else 1)] if ctx.needs_input_grad[0] else []
        block = max(1, LOGITS_AT_ONCE // max(1, project(labels[:1]).shape[-1]))
        for first in range(0, len(out), block):
            rows = slice(first, first + block)
            probs = torch.softmax(project(labels[rows]).float(), -1)
            with torch.enable_grad():
                part = out[rows].detach().requires_grad_()
                surprise = -torch.log_softmax(project(part).float(), -1)
                found = [(probs * surprise).sum(-1)]
                if top:
                    best, tokens = probs.topk(min(top, probs.shape[-1]))
                    found.append((best * surprise.gather(-1, tokens)).sum(-1))
            for slope, loss in zip(slopes, found, strict=False):
                (slope[rows],) = torch.autograd.grad(loss, part, torch.ones_like(loss), retain_graph=True)
            losses[: len(found), rows] = torch.stack(found).detach()
        ctx.save_for_backward(*slopes)
        return losses

    @staticmethod
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor, None, None, None]:
        both = zip(upstream, ctx.saved_tensors, strict=False)
        return sum(above[:, None].to(slope.dtype) * slope for above, slope in both), None, None, None

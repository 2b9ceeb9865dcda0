"""What draft heads are trained on: EAGLE, HASS and TALF, each a function of the head, the text and the target's labels.

All are means over the roots of a batch; over the forwards and nodes below a root they are sums. Gradients flow into
the head alone: embedding and output head are the target's, and soft labels are made of its features.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor

from decoding.common.errors import require
from decoding.heads.network import HeadNetwork
from decoding.training.unroll import Drafted, Embed, Text, following_text, root_labels, unroll

LossName = Literal["eagle", "hass", "talf"]
LOSSES: tuple[LossName, ...] = ("eagle", "hass", "talf")
LOGITS_AT_ONCE = 2**20  # a block of rows whose logits stay in the cache of a CPU, and never fill a GPU

Project = Callable[[Tensor], Tensor]


@dataclass(frozen=True)
class Weights:
    """Weights of the parts of EAGLE's and HASS's losses, as SALF & TALF sets them (Section 4.1).

    Attributes:
        regression: of the mean absolute difference of the features (the public code of EAGLE averages over their
            entries, too).
        classification: of the cross-entropy with the target's law.
        distillation: of the same over the target's `top` likeliest tokens alone (HASS).
    """

    regression: float = 1.0
    classification: float = 10.0
    distillation: float = 10.0
    top: int = 10

    def __post_init__(self) -> None:
        for name in ("regression", "classification", "distillation"):
            require(getattr(self, name) >= 0, f"The weight of {name} is {getattr(self, name)}: give 0 or more.")
        require(self.top >= 1, f"top is {self.top}: at least one token is distilled.")


@dataclass(frozen=True)
class Sides:
    """The target's two frozen ends.

    Attributes:
        embed: token ids to embeddings `[..., hidden_size]`. project: features `[rows, hidden_size]` to raw logits.
    """

    embed: Embed
    project: Project


def eagle_loss(head: HeadNetwork, sides: Sides, text: Text, weights: Weights) -> dict[str, Tensor]:
    """EAGLE: at every root, features as the target's and the next token's law as the target's.

    Returns:
        `loss`, the weighted sum, and its parts unweighted.
    """
    (out,) = unroll(head, sides.embed, text, None)
    regression = feature_difference(out, root_labels(text))
    classification = cross_entropy(sides.project, out, root_labels(text))
    loss = weights.regression * regression + weights.classification * classification
    return {"loss": loss, "regression": regression.detach(), "classification": classification.detach()}


def hass_loss(head: HeadNetwork, sides: Sides, text: Text, weights: Weights) -> dict[str, Tensor]:
    """HASS: EAGLE's two terms and top-K distillation at `text.depth` forwards along the text, own features fed back."""
    chain = following_text(text)
    found = unroll(head, sides.embed, text, chain)
    labels = [root_labels(text), *chain.labels.unbind(1)]
    regression = sum(feature_difference(out, label) for out, label in zip(found, labels, strict=True))
    both = [cross_entropies(sides.project, out, label, weights.top) for out, label in zip(found, labels, strict=True)]
    classification, distillation = (sum(part) for part in zip(*both, strict=True))
    loss = (
        weights.regression * regression + weights.classification * classification + weights.distillation * distillation
    )
    return {
        "loss": loss,
        "regression": regression.detach(),
        "classification": classification.detach(),
        "distillation": distillation.detach(),
    }


def talf_loss(head: HeadNetwork, sides: Sides, text: Text, trees: Drafted | None) -> dict[str, Tensor]:
    """TALF (Algorithm 1): cross-entropy at the root and at every node of the target's own tree, features fed back.

    Args:
        trees: None leaves the root alone, which makes it EAGLE's classification loss.
    """
    found = unroll(head, sides.embed, text, trees)
    labels = [root_labels(text), *(trees.labels.unbind(1) if trees is not None else ())]
    by_level = [cross_entropy(sides.project, out, label) for out, label in zip(found, labels, strict=True)]
    levels = {f"classification_{depth}": part.detach() for depth, part in enumerate(by_level, 1)}
    return {"loss": sum(by_level), **levels}


def feature_difference(out: Tensor, labels: Tensor) -> Tensor:
    """Mean absolute difference per entry of `[batch, roots, nodes, hidden_size]`, summed over the nodes of a root."""
    return (out.float() - labels.detach().float()).abs().mean(-1).sum(-1).mean()


def cross_entropy(project: Project, out: Tensor, labels: Tensor) -> Tensor:
    """-sum p log q over the vocabulary, p made of `labels` and q of `out`, both `[batch, roots, nodes, hidden_size]`.

    Summed over the nodes of a root, mean over roots.
    """
    return cross_entropies(project, out, labels, 0)[0]


def cross_entropies(project: Project, out: Tensor, labels: Tensor, top: int) -> tuple[Tensor, Tensor]:
    """The cross-entropy, and the part of it that the target's `top` likeliest tokens make up."""
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
            law = torch.softmax(project(labels[rows]).float(), -1)
            with torch.enable_grad():
                part = out[rows].detach().requires_grad_()
                surprise = -torch.log_softmax(project(part).float(), -1)
                found = [(law * surprise).sum(-1)]
                if top:
                    best, tokens = law.topk(min(top, law.shape[-1]))
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

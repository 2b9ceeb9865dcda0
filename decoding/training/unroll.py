"""A draft head as it drafts, but below every token of a window at once: its own features are fed back level by level.

The head's row of a token reads the feature of its parent: the target's where the parent is text, its own where the
parent was drafted. A drafted row sees the text up to its root, its drafted ancestors and itself, and nothing of other
roots, so one pass per level serves all roots of a batch (the attention mask of HASS, widened to trees as TALF does).
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from decoding.heads.network import HeadNetwork, Past

ROOTS_TOGETHER = 32  # rows of so many roots share a pass's columns: more of them cost attention in vain

Embed = Callable[[Tensor], Tensor]


@dataclass(frozen=True)
class Text:
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
    """What the head is to read below the roots, level by level.

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


def following_text(text: Text) -> Drafted:
    """The text itself as a chain below every root: what HASS reads, `top_k` 1."""
    roots, levels = text.roots, text.depth - 1
    tokens = _shifted(text.tokens, 2, roots, levels)[..., None]
    labels = _shifted(text.features, 2, roots, levels)[..., None, :]
    return Drafted(tokens, torch.zeros_like(tokens), labels)


def root_labels(text: Text) -> Tensor:
    """The target's features after the roots, `[batch, roots, 1, hidden_size]`."""
    return text.features[:, 1 : 1 + text.roots, None]


def unroll(head: HeadNetwork, embed: Embed, text: Text, drafted: Drafted | None) -> list[Tensor]:
    """The features that the head gives at the roots and at every drafted node.

    Gradients flow through the features that are fed back, and into nothing but the head.

    Args:
        embed: the target's embedding of token ids.
        drafted: None asks at the roots alone.

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
        self.groups, self.nodes = batch * (roots // together), together * self.top_k
        self.seen_text = self._grouped(causal.expand(batch, -1, -1)).repeat_interleave(self.top_k, 1)
        self.past = tuple(part.repeat_interleave(roots // together, 0) for part in text)
        self.own = torch.eye(self.nodes, dtype=torch.bool, device=causal.device).expand(self.groups, -1, -1)
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


def _shifted(x: Tensor, first: int, roots: int, levels: int) -> Tensor:
    """`[batch, levels, roots, ...]`: the row of level j and root i is row `first + i + j` of `[batch, size, ...]`."""
    parts = [x[:, first + level : first + level + roots] for level in range(levels)]
    return torch.stack(parts, 1) if parts else x[:, None, :roots][:, :0]

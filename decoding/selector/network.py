"""The selector's network (Eq. 10), and what it reads at a root (appendix E): hidden states, distributions, length,
costs.

At the previous token both models are known; at the root only the draft is, whose first pass reads it anyway.
"""

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor, nn

from decoding.sampling.sampling import Sampling, target_distribution
from decoding.selector.actions import ACTIONS, SCALARS

FLOOR = 1e-8  # a nucleus makes a divergence infinite: below this a probability counts as this in logarithms


@dataclass(frozen=True)
class Past:
    """What both models say at the end of a text, before anything is drafted.

    Attributes:
        target_feature: of the previous token, `[target_size]`: what the target's output head multiplies there.
        target_logits: after the previous token, `[vocab_size]`.
        draft_features: of the previous token and the root, `[2, draft_size]`.
        draft_distributions: after them, that draft tokens are drawn from, `[2, vocab_size]`.
        length: tokens of the text, the root included.
        sampling: of the target.
    """

    target_feature: Tensor
    target_logits: Tensor
    draft_features: Tensor
    draft_distributions: Tensor
    length: int
    sampling: Sampling


class Features(NamedTuple):
    """The inputs of Eq. 10: `target [target_size]`, both of the draft `[draft_size]`, `scalars [len(SCALARS)]`.

    A batch has one more dimension in front of each.
    """

    target: Tensor
    draft_previous: Tensor
    draft_root: Tensor
    scalars: Tensor


def features_of(past: Past, draft_s: float, target_s: float) -> Features:
    """The features at a root, float32 on the CPU, with measured seconds of one pass of each model at this length."""
    target = target_distribution(past.target_logits, past.sampling).to(past.draft_distributions)
    known = divergences(target, *past.draft_distributions)
    rest = [past.length, past.sampling.temperature, past.sampling.top_p, draft_s, target_s]
    previous, root = past.draft_features.float().cpu()
    return Features(past.target_feature.float().cpu(), previous, root, torch.tensor(known + rest))


def divergences(target: Tensor, previous: Tensor, root: Tensor) -> list[float]:
    """Entropies of three distributions in nats, and how far the first two are apart: KL both ways, and L1."""
    distributions = torch.stack([target, previous, root])
    logs = distributions.clamp(min=FLOOR).log()
    crossed = torch.stack([distributions[0] * logs[1], distributions[1] * logs[0]])
    entropies, cross_entropies = -(distributions * logs).sum(-1), -crossed.sum(-1)
    apart = (target - previous).abs().sum()
    return torch.cat([entropies, cross_entropies - entropies[:2], apart[None]]).tolist()


@dataclass(frozen=True)
class SelectorConfig:
    """Sizes of a selector's network.

    Attributes:
        target_size, draft_size: of the hidden states it reads.
        width: that each of them is projected to (d).
        hidden: of the two hidden layers.
        dropout: share of the hidden units left out while training.
        state_dropout: the same of what is read from the hidden states: among few roots they tell each from all others,
            and the scalars have to be learned from first.
    """

    target_size: int
    draft_size: int
    width: int = 128
    hidden: tuple[int, int] = (512, 32)
    dropout: float = 0.1
    state_dropout: float = 0.8


class SelectorNetwork(nn.Module):
    """Three projections with layer norms, standardised scalars and two hidden layers: one logit per action."""

    def __init__(self, config: SelectorConfig):
        super().__init__()
        self.config = config
        sizes = (config.target_size, config.draft_size, config.draft_size)
        self.projections = nn.ModuleList(nn.Linear(size, config.width) for size in sizes)
        self.norms = nn.ModuleList(nn.LayerNorm(config.width) for _ in sizes)
        self.state_dropout = nn.Dropout(config.state_dropout)
        first, second = config.hidden
        self.layers = nn.Sequential(
            nn.Linear(3 * config.width + len(SCALARS), first),
            nn.GELU(),
            nn.Dropout(config.dropout),
            nn.Linear(first, second),
            nn.GELU(),
            nn.Dropout(config.dropout),
            nn.Linear(second, len(ACTIONS)),
        )

    def forward(self, features: Features) -> Tensor:
        """Logits `[..., len(ACTIONS)]`."""
        hidden = (features.target, features.draft_previous, features.draft_root)
        read = [norm(project(h)) for norm, project, h in zip(self.norms, self.projections, hidden, strict=True)]
        return self.layers(torch.cat([self.state_dropout(torch.cat(read, -1)), features.scalars], -1))


@dataclass(frozen=True)
class Scaler:
    """Mean and spread of each scalar over the roots that a selector was trained on, `[len(SCALARS)]`.

    A scalar is cut at `MOST` spreads from its mean: farther out nothing was learned.
    """

    mean: tuple[float, ...]
    spread: tuple[float, ...]

    MOST = 4.0

    @classmethod
    def of(cls, scalars: Tensor) -> "Scaler":
        """The scaler of some roots, `[num_roots, len(SCALARS)]`; what never varies is left as if it had spread 1."""
        spread = scalars.double().std(0, correction=0)
        spread = torch.where(spread > 1e-12, spread, 1.0)
        return cls(tuple(scalars.double().mean(0).tolist()), tuple(spread.tolist()))

    def scaled(self, features: Features) -> Features:
        """The same features with standardised scalars."""
        mean, spread = (torch.tensor(each, dtype=torch.float64) for each in (self.mean, self.spread))
        scalars = ((features.scalars.double() - mean) / spread).clamp(-self.MOST, self.MOST)
        return features._replace(scalars=scalars.float())

"""The selector's network (Eq. 10): three projections with layer norms, scalars, and two hidden layers above them."""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from decoding.selector.actions import ACTIONS, SCALARS
from decoding.selector.features import Features


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
    """Features to one logit per action; scalars come standardised."""

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

"""The selector's network (Eq. 10) as it is trained."""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from decoding.selector.actions import DISTINCT
from decoding.selector.features import SCALARS, Features


@dataclass(frozen=True)
class SelectorConfig:
    """Sizes of a selector's network; the paper's has a width of 128 and 512 hidden units first, but asking it counts.

    Attributes:
        target_size, draft_size: of the hidden states it reads.
        width: that each of them is projected to (d).
        hidden: of the two hidden layers.
        dropout: share of the hidden units left out while training.
        state_dropout: the same of what is read from the hidden states: among few roots they tell each from all others,
            and the scalars have to be learned from first.
        scalars, outputs: numbers read beside the hidden states, and actions.
    """

    target_size: int
    draft_size: int
    width: int = 32
    hidden: tuple[int, int] = (128, 32)
    dropout: float = 0.1
    state_dropout: float = 0.8
    scalars: int = len(SCALARS)
    outputs: int = len(DISTINCT)


class SelectorNetwork(nn.Module):
    """Three projections with layer norms, standardised scalars and two hidden layers: one number per action."""

    def __init__(self, config: SelectorConfig):
        super().__init__()
        self.config = config
        sizes = (config.target_size, config.draft_size, config.draft_size)
        self.projections = nn.ModuleList(nn.Linear(size, config.width) for size in sizes)
        self.norms = nn.ModuleList(nn.LayerNorm(config.width) for _ in sizes)
        self.state_dropout = nn.Dropout(config.state_dropout)
        first, second = config.hidden
        self.layers = nn.Sequential(
            nn.Linear(3 * config.width + config.scalars, first),
            nn.GELU(),
            nn.Dropout(config.dropout),
            nn.Linear(first, second),
            nn.GELU(),
            nn.Dropout(config.dropout),
            nn.Linear(second, config.outputs),
        )

    def forward(self, features: Features) -> Tensor:
        """Outputs `[..., outputs]` of features with standardised scalars."""
        hidden = (features.target, features.draft_previous, features.draft_root)
        read = [norm(project(h)) for norm, project, h in zip(self.norms, self.projections, hidden, strict=True)]
        return self.layers(torch.cat([self.state_dropout(torch.cat(read, -1)), features.scalars], -1))

"""How the pair's weights are moved: Muon for matrices, AdamW for the rest, and learning rates over a phase."""

from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch import Tensor, nn

EMBEDDINGS = ("embed_in.weight", "embed_out.weight")
CLIP = 1.0  # largest norm of a gradient


class MuonAndAdamW:
    """Muon (orthogonalised momentum) on the matrices of the layers, AdamW on embeddings, biases and norms.

    Args:
        matrix_rate, other_rate: learning rates at a factor of 1.
    """

    def __init__(self, network: nn.Module, matrix_rate: float, other_rate: float, weight_decay: float = 0.0):
        matrices, others = split(network.named_parameters())
        self.parts = (
            torch.optim.Muon(matrices, lr=matrix_rate, weight_decay=weight_decay),
            torch.optim.AdamW(others, lr=other_rate, betas=(0.9, 0.98), weight_decay=0.0),
        )
        self.rates = (matrix_rate, other_rate)
        self.weights = (*matrices, *others)

    def step(self, factor: float) -> float:
        """Move the weights with the learning rates times `factor`; returns the norm of the gradient."""
        norm = float(torch.nn.utils.clip_grad_norm_(self.weights, CLIP))
        for optimiser, rate in zip(self.parts, self.rates, strict=True):
            for group in optimiser.param_groups:
                group["lr"] = rate * factor
            optimiser.step()
            optimiser.zero_grad(set_to_none=True)
        return norm

    def state(self) -> Mapping[str, Any]:
        """For a checkpoint."""
        return {"parts": [optimiser.state_dict() for optimiser in self.parts]}

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Take a state that `state` gave."""
        for optimiser, part in zip(self.parts, state["parts"], strict=True):
            optimiser.load_state_dict(part)


def split(named: Iterable[tuple[str, Tensor]]) -> tuple[list[Tensor], list[Tensor]]:
    """Matrices of the layers, and all other weights."""
    matrices: list[Tensor] = []
    others: list[Tensor] = []
    for name, weight in named:
        (matrices if weight.ndim == 2 and not name.endswith(EMBEDDINGS) else others).append(weight)
    return matrices, others


def warmed_up(step: int, warm_up: int) -> float:
    """Factor that rises from near 0 to 1 over the first `warm_up` steps."""
    return min(1.0, (step + 1) / warm_up)


def cooled_down(share: float, floor: float = 0.0) -> float:
    """Factor that falls from 1 to `floor` over a phase, in a straight line."""
    return max(floor, 1.0 - share)

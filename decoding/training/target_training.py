"""Training the target on text: the stable part, and cooling it down."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor
from transformers import GPTNeoXForCausalLM

from decoding.trace.records import RunTrace
from decoding.training.fast_forward import compute_dtype, head_logits, hidden_states
from decoding.training.optimisers import MuonAndAdamW, cooled_down, warmed_up
from decoding.training.token_arrays import TokenArrays

ROWS_AT_ONCE = 1024  # logits of this many tokens are held at once
HELD_OUT_WINDOW, HELD_OUT_ROWS = 512, 8


@dataclass(frozen=True)
class TargetSettings:
    """How the target is trained.

    Attributes:
        matrix_rate, other_rate: learning rates of Muon and AdamW.
        warm_up: steps over which they rise.
        batch_tokens: tokens of a step.
        window, long_window: tokens of a row: usual ones, and those of every `long_every`-th step.
        cooling_window: tokens of a row in place of `long_window` while the rates fall, on every other step.
    """

    matrix_rate: float = 0.02
    other_rate: float = 3e-3
    warm_up: int = 100
    batch_tokens: int = 6144
    window: int = 256
    long_window: int = 1024
    long_every: int = 4
    cooling_window: int = 1536

    def window_of(self, step: int, cooling: bool) -> int:
        """Tokens of a row in a step."""
        if cooling:
            return self.cooling_window if step % 2 else self.window
        return self.long_window if step % self.long_every == self.long_every - 1 else self.window


def token_losses(network: GPTNeoXForCausalLM, windows: Tensor) -> Tensor:
    """Cross-entropy in nats of every token behind the first of its row, `[rows * (window - 1)]`."""
    hidden = hidden_states(network, windows[:, :-1], compute_dtype(windows.device)).flatten(0, 1)
    pieces = zip(hidden.split(ROWS_AT_ONCE), windows[:, 1:].flatten().split(ROWS_AT_ONCE), strict=True)
    return torch.cat([F.cross_entropy(head_logits(network, h), t, reduction="none") for h, t in pieces])


class TargetLearner:
    """Next-token prediction on windows of text.

    Args:
        cooling: let the learning rates fall to 0 over the phase.
        tree: draws the held-out prompt with the target as it is.
    """

    def __init__(
        self,
        network: GPTNeoXForCausalLM,
        arrays: TokenArrays,
        settings: TargetSettings,
        seed: int,
        tree: Callable[[], RunTrace | None] = lambda: None,
    ):
        self.device = network.device
        self.network, self.arrays, self.settings, self.seed = network, arrays, settings, seed
        self.optimiser = MuonAndAdamW(network, settings.matrix_rate, settings.other_rate)
        self.cooling = False
        self._tree = tree

    def step(self, number: int, share: float) -> Mapping[str, float]:
        """One step; while cooling the rates fall with `share`."""
        settings = self.settings
        window = settings.window_of(number, self.cooling)
        # Cooling begins with windows that the stable part has not drawn: another stream of the seed.
        rows = self.arrays.batch(
            self.seed * 2 + self.cooling, number, max(1, settings.batch_tokens // window), window + 1
        )
        loss = token_losses(self.network, torch.from_numpy(rows).to(self.device)).mean()
        loss.backward()
        norm = self.optimiser.step(cooled_down(share) if self.cooling else warmed_up(number, settings.warm_up))
        return {"loss": float(loss.detach()), "gradient_norm": norm}

    def evaluate(self) -> Mapping[str, float]:
        """Held-out nats per token by kind."""
        return held_out_losses(self.network, self.arrays)

    def tree(self) -> RunTrace | None:
        """The held-out prompt, drafted."""
        return self._tree()

    def state(self) -> Mapping[str, Any]:
        """Weights and optimiser."""
        return {"network": self.network.state_dict(), "optimiser": self.optimiser.state()}

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Take a state that `state` gave."""
        self.network.load_state_dict(state["network"])
        self.optimiser.load_state(state["optimiser"])


@torch.no_grad()
def held_out_losses(network: GPTNeoXForCausalLM, arrays: TokenArrays) -> dict[str, float]:
    """Nats per token of text that is not trained on: `held_out_KIND`, and their mean `held_out`."""
    losses = {}
    for kind in arrays.kinds:
        rows = torch.from_numpy(arrays.held_out_rows(kind, HELD_OUT_ROWS, HELD_OUT_WINDOW + 1)).to(network.device)
        losses[f"held_out_{kind}"] = float(token_losses(network, rows).mean())
    return {"held_out": sum(losses.values()) / len(losses), **losses}

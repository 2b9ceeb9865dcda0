"""Distilling the draft: towards the target's whole distribution at every token of a text."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from transformers import GPTNeoXForCausalLM

from decoding.trace.records import RunTrace
from decoding.training.fast_forward import compute_dtype, head_logits, hidden_states
from decoding.training.optimisers import MuonAndAdamW, cooled_down, warmed_up
from decoding.training.target_training import HELD_OUT_ROWS, HELD_OUT_WINDOW, ROWS_AT_ONCE
from decoding.training.token_arrays import TokenArrays

STREAM = 2**21  # batches of this phase: another stream of the seed than those of the phases before


@dataclass(frozen=True)
class DraftSettings:
    """How the draft is distilled.

    Attributes:
        matrix_rate, other_rate: learning rates of Muon and AdamW.
        steady: share of the phase before the rates begin to fall.
        overlap_weight: of the distributions' distance in the loss, from 0 to 1; the rest is the divergence.
        batch_tokens, window: of a step.
        long_window: tokens of a row on every fourth step.
    """

    matrix_rate: float = 0.02
    other_rate: float = 4e-3
    warm_up: int = 50
    steady: float = 0.4
    overlap_weight: float = 0.5
    batch_tokens: int = 6144
    window: int = 256
    long_window: int = 1024

    def window_of(self, step: int) -> int:
        """Tokens of a row in a step."""
        return self.long_window if step % 4 == 3 else self.window


class DraftLearner:
    """Soft labels computed on the fly; the target stays as it is."""

    def __init__(
        self,
        target: GPTNeoXForCausalLM,
        draft: GPTNeoXForCausalLM,
        arrays: TokenArrays,
        settings: DraftSettings,
        seed: int,
        tree: Callable[[], RunTrace | None] = lambda: None,
    ):
        self.device = draft.device
        self.target, self.draft = target.requires_grad_(False), draft
        self.arrays, self.settings, self.seed = arrays, settings, seed + STREAM
        self.optimiser = MuonAndAdamW(draft, settings.matrix_rate, settings.other_rate)
        self._tree = tree

    def step(self, number: int, share: float) -> Mapping[str, float]:
        """One step; the learning rates fall with `share` once the steady part is over."""
        settings = self.settings
        window = settings.window_of(number)
        rows = self.arrays.batch(self.seed, number, max(1, settings.batch_tokens // window), window)
        divergences, overlaps = [], []
        for theirs, mine in laws(self.target, self.draft, torch.from_numpy(rows).to(self.device)):
            divergences.append(divergence(theirs, mine))
            overlaps.append(overlap(theirs, mine))
        apart, common = torch.cat(divergences).mean(), torch.cat(overlaps).mean()
        ((1 - settings.overlap_weight) * apart + settings.overlap_weight * (1 - common)).backward()
        falling = max(0.0, (share - settings.steady) / (1 - settings.steady))
        norm = self.optimiser.step(cooled_down(falling) * warmed_up(number, settings.warm_up))
        return {"divergence": float(apart.detach()), "overlap": float(common.detach()), "gradient_norm": norm}

    @torch.no_grad()
    def evaluate(self) -> Mapping[str, float]:
        """On held-out text by kind: overlap of the two laws, and how often both have the same likeliest token."""
        figures = {}
        for kind in self.arrays.kinds:
            rows = torch.from_numpy(self.arrays.held_out_rows(kind, HELD_OUT_ROWS, HELD_OUT_WINDOW)).to(self.device)
            found = list(laws(self.target, self.draft, rows))
            figures[f"held_out_overlap_{kind}"] = float(torch.cat([overlap(*pair) for pair in found]).mean())
            same = torch.cat([theirs.argmax(-1) == mine.argmax(-1) for theirs, mine in found])
            figures[f"held_out_agreement_{kind}"] = float(same.float().mean())
        common = [value for name, value in figures.items() if "overlap" in name]
        return {"held_out_overlap": sum(common) / len(common), **figures}

    def tree(self) -> RunTrace | None:
        """The held-out prompt, drafted."""
        return self._tree()

    def state(self) -> Mapping[str, Any]:
        """Weights and optimiser of the draft."""
        return {"network": self.draft.state_dict(), "optimiser": self.optimiser.state()}

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Take a state that `state` gave."""
        self.draft.load_state_dict(state["network"])
        self.optimiser.load_state(state["optimiser"])


def laws(target: GPTNeoXForCausalLM, draft: GPTNeoXForCausalLM, rows: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
    """Log-probabilities of both behind every token of `[rows, window]`, some tokens at a time: `[tokens, vocab_size]`.

    Gradients flow into the draft alone.
    """
    dtype = compute_dtype(rows.device)
    with torch.no_grad():
        theirs = hidden_states(target, rows, dtype).flatten(0, 1)
    mine = hidden_states(draft, rows, dtype).flatten(0, 1)
    for label, hidden in zip(theirs.split(ROWS_AT_ONCE), mine.split(ROWS_AT_ONCE), strict=True):
        with torch.no_grad():
            law = head_logits(target, label).log_softmax(-1)
        yield law, head_logits(draft, hidden).log_softmax(-1)


def divergence(target: Tensor, draft: Tensor) -> Tensor:
    """Kullback-Leibler divergence of the target's law from the draft's in nats, `[tokens]`, of log-probabilities."""
    return (target.exp() * (target - draft)).sum(-1)


def overlap(target: Tensor, draft: Tensor) -> Tensor:
    """Sum of the smaller of the two probabilities, `[tokens]`: the chance that a drawn draft token is accepted."""
    return torch.minimum(target, draft).exp().sum(-1)

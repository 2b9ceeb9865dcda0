"""Unlearning loops: what the target repeats under greedy decoding is made unlikely (Welleck et al. 2020).

The target writes; where a text falls into a loop, every token of the runs that it repeats up to a little after that
place is made unlikely, not only those that complete a loop: a loop has to be left before it counts as one.
"""

import copy
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor
from transformers import GPTNeoXForCausalLM

from decoding.trace.metrics import NGRAM, tokens_before_loop
from decoding.training.pair_networks import compute_dtype, continuations, head_logits, hidden_states
from decoding.training.pair_phases import (
    ROWS_AT_ONCE,
    OwnTextSettings,
    PairLearner,
    distributions,
    divergence,
    token_losses,
)
from decoding.training.pair_tokens import END_ID

HELD_OUT_PROMPTS = 12  # of each kind


@dataclass(frozen=True)
class LoopSettings(OwnTextSettings):
    """How loops are unlearned.

    Attributes:
        run: tokens that must have been seen before, in the same order, for a text to be in a loop.
        least: tokens of a run from which on it is made unlikely in texts with a loop; ordinary text repeats short ones.
        weight: of the loss of texts with loops, by their share of all texts, beside that of ordinary text.
        temperature: of `unlikelihood`.
        anchor: weight of the divergence from what the network said of ordinary text before the phase.
        kept: share of the way that the weights went which is kept at the end; ordinary text loses less by going a part
            of it than loops do (Wortsman et al. 2022, on other tasks).
    """

    matrix_rate: float = 0.003
    other_rate: float = 4e-4
    warm_up: int = 10
    batch_tokens: int = 3072
    window: int = 1024  # what is to stay includes what the network copies from far back
    run: int = NGRAM
    least: int = 8
    weight: float = 1.0
    temperature: float = 0.25
    anchor: float = 3.0
    kept: float = 1.0


class LoopLearner(PairLearner):
    """Unlikelihood of what the network's own text repeats in loops; what it says of ordinary text is to stay.

    Args:
        before: weights of the network before the phase.
    """

    settings: LoopSettings

    def __init__(self, network: GPTNeoXForCausalLM, before: Mapping[str, Tensor], *more: Any):
        super().__init__(network, *more)
        self._before = copy.deepcopy(network).requires_grad_(False)
        self._before.load_state_dict(before)
        self._own = torch.empty(0, dtype=torch.long)

    def step(self, number: int, share: float) -> Mapping[str, float]:
        """One step; the learning rates fall with `share`."""
        settings, seed = self.settings, self.seed + 2**20
        window = settings.window_of(number)
        rows = self.batch(seed, 2 * number, window, window + 1)
        if window == settings.window:  # its own distributions are labels with less noise than the text
            found = distributions(self._before, self.network, rows[:, :-1])
            loss = settings.anchor * torch.cat([divergence(*both) for both in found]).mean()
        else:  # it may never have seen windows of that length
            loss = token_losses(self.network, rows).mean()
        loss.backward()
        turn, place = divmod(number, settings.steps_each)
        if place == 0:
            self._own = self.own_texts(self.network, seed, 2 * turn + 1, self._done)
        marked, ends = loops(self._own.cpu().numpy(), settings.run, settings.least, settings.prompt)
        by_length = np.argsort(ends, kind="stable")[: (ends < len(marked[0])).sum()]
        mine = np.array_split(by_length, settings.steps_each)[place]
        unlikely = 0.0
        if len(mine):
            size = int(ends[mine].max()) + 1
            weights = marked[mine, :size] / marked[mine, :size].sum(1, keepdims=True)
            weights *= settings.weight * settings.steps_each / settings.rows
            penalty = unlikelihood(
                self.network, self._own[mine, :size], torch.from_numpy(weights).float(), settings.temperature
            )
            penalty.backward()
            unlikely = float(penalty.detach())
        norm = self.optimiser.step((1.0 - share) * settings.warmed_up(number))
        name = "divergence_loss" if window == settings.window else "loss"
        return {name: float(loss.detach()), "unlikelihood_loss": unlikely, "looping": len(by_length) / settings.rows,
                "gradient_norm": norm}  # fmt: skip

    def _done(self, texts: Tensor) -> Tensor:
        """Which texts are in a loop or at their end."""
        behind = texts[:, self.settings.prompt :]
        _, ends = loops(texts.cpu().numpy(), self.settings.run, self.settings.least, self.settings.prompt)
        return torch.from_numpy(ends < texts.shape[1]).to(texts.device) | (behind == END_ID).any(1)

    def evaluate(self) -> Mapping[str, float]:
        """Held-out nats per token, and the share of held-out prompts whose greedy text falls into a loop, by kind."""
        settings, shares = self.settings, {}
        for kind in self.arrays.kinds:
            prompts = self.held_out(kind, HELD_OUT_PROMPTS, settings.prompt)
            found = continuations(self.network, prompts, settings.continuation, done=self._done).tolist()
            ended = [row[: row.index(END_ID)] if END_ID in row else row for row in found]
            shares[f"looping_{kind}"] = float(np.mean([tokens_before_loop(row) < len(row) for row in ended]))
        return {**super().evaluate(), "looping_held_out": sum(shares.values()) / len(shares), **shares}

    def state(self) -> Mapping[str, Any]:
        """With the texts that are being learned from: the weights that wrote them are gone."""
        return {**super().state(), "own": self._own}

    def load_state(self, state: Mapping[str, Any]) -> None:
        super().load_state(state)
        self._own = state["own"].to(self.device)


def go_back(network: GPTNeoXForCausalLM, before: Mapping[str, Tensor], kept: float) -> None:
    """Set weights between those of `before` (at 0) and those that the network has (at 1)."""
    with torch.no_grad():
        for name, weights in network.named_parameters():
            weights.lerp_(before[name].to(weights), 1 - kept)


def run_lengths(rows: np.ndarray) -> np.ndarray:
    """How many tokens up to each one stand in the same order earlier in its row, int `[rows, window]`."""
    found = np.zeros(rows.shape, dtype=int)
    before = np.zeros(rows.shape, dtype=int)  # length of the run that ends at the token before, and at each earlier one
    for end in range(1, rows.shape[1]):
        now = np.zeros(rows.shape, dtype=int)
        same = rows[:, :end] == rows[:, end : end + 1]
        now[:, 1:end] = before[:, : end - 1] + 1
        now[:, 0] = 1
        now[:, :end] *= same
        found[:, end] = now.max(1)
        before = now
    return found


def loops(rows: np.ndarray, run: int, least: int, prompt: int) -> tuple[np.ndarray, np.ndarray]:
    """What is to be unlearned of texts `[rows, window]` after their prompts.

    Returns:
        Which tokens of texts with a loop end a run of at least `least`, bool like `rows`, and where each text may be
        cut `[rows]`: `run` tokens after the first that completes a loop; the window's size where none does.
    """
    lengths, size = run_lengths(rows), rows.shape[1]
    lengths[:, :prompt] = 0
    ended = (rows == END_ID) & (np.arange(size) >= prompt)
    lengths[np.maximum.accumulate(ended, axis=1)] = 0  # what comes after an end of text is another text
    looped = lengths.max(1) >= run
    ends = np.where(looped, np.minimum((lengths >= run).argmax(1) + run, size - 1), size)
    return (lengths >= least) & looped[:, None] & (np.arange(size) <= ends[:, None]), ends


def unlikelihood(network: GPTNeoXForCausalLM, rows: Tensor, weights: Tensor, temperature: float) -> Tensor:
    """Sum of -T log(1 - p) over tokens of rows, each given what stands before it; both `[rows, window]`.

    `p` is the chance at temperature T, so that a gradient is as large for a likeliest token of a flat distribution as
    for a sure one: both are what greedy decoding takes.
    """
    hidden, weights = hidden_states(network, rows[:, :-1], compute_dtype(rows.device)), weights[:, 1:].to(rows.device)
    marked = weights > 0
    pieces = (part.split(ROWS_AT_ONCE) for part in (hidden[marked], rows[:, 1:][marked], weights[marked]))
    found = []
    for some, tokens, shares in zip(*pieces, strict=True):
        logits = head_logits(network, some) / temperature
        chosen = logits.gather(-1, tokens[:, None])[:, 0]
        others = logits.scatter(-1, tokens[:, None], -torch.inf).logsumexp(-1)
        found.append((shares * F.softplus(chosen - others)).sum())  # -log(1 - p), also where p is nearly 1
    return temperature * torch.stack(found).sum()

"""Training the target out of its loops: what it repeats under greedy decoding is made unlikely.

Unlikelihood training on the network's own continuations (Welleck et al. 2020): every token of a greedy continuation
that ends a run of tokens seen before costs -log(1 - p). Ordinary text in the same step keeps the rest as it was.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor
from transformers import GPTNeoXForCausalLM

from decoding.trace.metrics import NGRAM, tokens_before_loop
from decoding.trace.records import RunTrace
from decoding.training.fast_forward import compute_dtype, greedy_continuations, head_logits, hidden_states
from decoding.training.optimisers import MuonAndAdamW, cooled_down, warmed_up
from decoding.training.pair_tokenizer import END_ID
from decoding.training.target_training import ROWS_AT_ONCE, held_out_losses, token_losses
from decoding.training.token_arrays import TokenArrays

LEAST_CHANCE = 1e-4  # of any other token: keeps the logarithm finite
HELD_OUT_PROMPTS = 12  # of each kind
STREAM = 2**20  # batches of this phase: another stream of the seed than those of the phases before


@dataclass(frozen=True)
class LoopSettings:
    """How loops are unlearned.

    Attributes:
        matrix_rate, other_rate: learning rates of Muon and AdamW.
        rows, prompt, continuation: continuations of a step, tokens they begin with, and tokens they go on for.
        run: tokens that must have been seen before, in the same order, for the last of them to count as repeated; as
            long as what counts as a loop everywhere else, for ordinary text repeats shorter runs all the time.
        weight: of the repeated tokens' loss beside that of ordinary text.
        kept: share of the way that the weights went which is kept at the end; ordinary text loses less by going a part
            of it than loops do (Wortsman et al. 2022, on other tasks).
        batch_tokens, window: of ordinary text in a step.
    """

    matrix_rate: float = 0.001
    other_rate: float = 1.5e-4
    warm_up: int = 5
    rows: int = 32
    prompt: int = 48
    continuation: int = 160
    run: int = NGRAM
    weight: float = 0.5
    kept: float = 0.6
    batch_tokens: int = 6144
    window: int = 256


class LoopLearner:
    """Unlikelihood of repeated tokens in the network's own greedy text, and likelihood of ordinary text."""

    def __init__(
        self,
        network: GPTNeoXForCausalLM,
        arrays: TokenArrays,
        settings: LoopSettings,
        seed: int,
        tree: Callable[[], RunTrace | None] = lambda: None,
    ):
        self.device = network.device
        self.network, self.arrays, self.settings, self.seed = network, arrays, settings, seed + STREAM
        self.optimiser = MuonAndAdamW(network, settings.matrix_rate, settings.other_rate)
        self._tree = tree

    def step(self, number: int, share: float) -> Mapping[str, float]:
        """One step; the learning rates fall with `share`."""
        settings = self.settings
        rows = settings.batch_tokens // settings.window
        text = self._batch(2 * number, max(1, rows), settings.window + 1)
        loss = token_losses(self.network, text).mean()
        loss.backward()
        prompts = self._batch(2 * number + 1, settings.rows, settings.prompt)
        found = torch.cat((prompts, greedy_continuations(self.network, prompts, settings.continuation)), dim=1)
        repeated = repeats(found.cpu().numpy(), settings.run, settings.prompt)
        unlikely = 0.0
        if repeated.any():
            penalty = unlikelihood(self.network, found, torch.from_numpy(repeated).to(self.device))
            (settings.weight * penalty).backward()
            unlikely = float(penalty.detach())
        factor = cooled_down(share) * warmed_up(number, settings.warm_up)
        norm = self.optimiser.step(factor)
        share_repeated = float(repeated[:, settings.prompt :].mean())
        return {"loss": float(loss.detach()), "unlikelihood_loss": unlikely, "looping": share_repeated,
                "gradient_norm": norm}  # fmt: skip

    def evaluate(self) -> Mapping[str, float]:
        """Held-out nats per token, and the share of held-out prompts whose greedy text falls into a loop, by kind."""
        return {**held_out_losses(self.network, self.arrays), **looping(self.network, self.arrays, self.settings)}

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

    def _batch(self, number: int, rows: int, window: int) -> Tensor:
        return torch.from_numpy(self.arrays.batch(self.seed, number, rows, window)).to(self.device)


def go_back(network: GPTNeoXForCausalLM, before: Mapping[str, Tensor], kept: float) -> None:
    """Set weights between those of `before` (at 0) and those that the network has (at 1)."""
    with torch.no_grad():
        for name, weights in network.named_parameters():
            weights.lerp_(before[name].to(weights), 1 - kept)


def repeats(rows: np.ndarray, run: int, prompt: int) -> np.ndarray:
    """Which tokens behind the prompt end a run of `run` tokens that stands earlier in their row: bool like `rows`."""
    found = np.zeros(rows.shape, dtype=bool)
    for row, marks in zip(rows.tolist(), found, strict=True):
        seen: set[tuple[int, ...]] = set()
        for end in range(run, len(row) + 1):
            tokens = tuple(row[end - run : end])
            marks[end - 1] = tokens in seen and end > prompt
            seen.add(tokens)
    return found


def unlikelihood(network: GPTNeoXForCausalLM, rows: Tensor, marked: Tensor) -> Tensor:
    """Mean of -log(1 - p) over the marked tokens of rows `[rows, window]`, each given what stands before it."""
    hidden = hidden_states(network, rows[:, :-1], compute_dtype(rows.device))
    chosen, tokens = hidden[marked[:, 1:]], rows[:, 1:][marked[:, 1:]]
    pieces = zip(chosen.split(ROWS_AT_ONCE), tokens.split(ROWS_AT_ONCE), strict=True)
    chances = [head_logits(network, h).softmax(-1).gather(-1, t[:, None])[:, 0] for h, t in pieces]
    return -torch.log((1 - torch.cat(chances)).clamp(min=LEAST_CHANCE)).mean()


def looping(network: GPTNeoXForCausalLM, arrays: TokenArrays, settings: LoopSettings) -> dict[str, float]:
    """Share of held-out prompts whose greedy continuation falls into a loop before the text ends, by kind."""
    shares = {}
    for kind in arrays.kinds:
        prompts = torch.from_numpy(arrays.held_out_rows(kind, HELD_OUT_PROMPTS, settings.prompt)).to(network.device)
        found = greedy_continuations(network, prompts, settings.continuation).tolist()
        ended = [row[: row.index(END_ID)] if END_ID in row else row for row in found]
        shares[f"looping_{kind}"] = float(np.mean([tokens_before_loop(row) < len(row) for row in ended]))
    return {"looping_held_out": sum(shares.values()) / len(shares), **shares}

"""The phases of a pair's training: the target on text, then out of its loops, and the draft distilled from it.

Text is learned with Muon for matrices and AdamW for the rest. What the target repeats under greedy decoding is made
unlikely by training on its own continuations (Welleck et al. 2020). The draft is trained towards the target's whole
distribution at every token of a text.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn
from transformers import GPTNeoXForCausalLM

from decoding.trace.metrics import NGRAM, tokens_before_loop
from decoding.trace.records import RunTrace
from decoding.training.loop import Learner
from decoding.training.pair_networks import compute_dtype, greedy_continuations, head_logits, hidden_states
from decoding.training.pair_tokens import END_ID, TokenArrays

EMBEDDINGS = ("embed_in.weight", "embed_out.weight")
CLIP = 1.0  # largest norm of a gradient
ROWS_AT_ONCE = 1024  # logits of this many tokens are held at once
HELD_OUT_WINDOW, HELD_OUT_ROWS = 512, 8
HELD_OUT_PROMPTS = 12  # of each kind
LONG_EVERY = 4  # steps: the last of them has long rows
LEAST_CHANCE = 1e-4  # of any other token: keeps the logarithm finite


@dataclass(frozen=True)
class PhaseSettings:
    """What is set in every phase.

    Attributes:
        matrix_rate, other_rate: learning rates of Muon and AdamW.
        warm_up: steps over which they rise.
        batch_tokens, window: tokens of a step, and of a row.
    """

    matrix_rate: float = 0.02
    other_rate: float = 3e-3
    warm_up: int = 100
    batch_tokens: int = 6144
    window: int = 256

    def warmed_up(self, step: int) -> float:
        """Factor of the rates that rises from near 0 to 1."""
        return min(1.0, (step + 1) / self.warm_up)


class MuonAndAdamW:
    """Muon (orthogonalised momentum) on the matrices of the layers, AdamW on embeddings, biases and norms."""

    def __init__(self, network: nn.Module, matrix_rate: float, other_rate: float):
        matrices: list[Tensor] = []
        others: list[Tensor] = []
        for name, weight in network.named_parameters():
            (matrices if weight.ndim == 2 and not name.endswith(EMBEDDINGS) else others).append(weight)
        self.parts = (
            torch.optim.Muon(matrices, lr=matrix_rate, weight_decay=0.0),
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

    def state_dict(self) -> Mapping[str, Any]:
        """For a checkpoint."""
        return {"parts": [optimiser.state_dict() for optimiser in self.parts]}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take a state that `state_dict` gave."""
        for optimiser, part in zip(self.parts, state["parts"], strict=True):
            optimiser.load_state_dict(part)


class PairLearner(Learner):
    """One network of a pair.

    Args:
        seed: of the batches; each phase takes them from another stream.
        tree: drafts the held-out prompt with the network as it is.
    """

    network: GPTNeoXForCausalLM

    def __init__(
        self,
        network: GPTNeoXForCausalLM,
        arrays: TokenArrays,
        settings: PhaseSettings,
        seed: int,
        tree: Callable[[], RunTrace | None] = lambda: None,
    ):
        self.device, self._tree = network.device, tree
        self.network, self.arrays, self.settings, self.seed = network, arrays, settings, seed
        self.optimiser = MuonAndAdamW(network, settings.matrix_rate, settings.other_rate)

    def tree(self) -> RunTrace | None:
        """What `tree` drafts."""
        return self._tree()

    def batch(self, seed: int, number: int, window: int, size: int) -> Tensor:
        """As many rows of `size` tokens as rows of `window` tokens make a step: `[rows, size]`."""
        rows = max(1, self.settings.batch_tokens // window)
        return torch.from_numpy(self.arrays.batch(seed, number, rows, size)).to(self.device)

    def held_out(self, kind: str, rows: int, size: int) -> Tensor:
        """Text of a kind that is not trained on, at most `rows` rows: `[rows, size]`."""
        return torch.from_numpy(self.arrays.held_out_rows(kind, rows, size)).to(self.device)

    @torch.no_grad()
    def evaluate(self) -> Mapping[str, float]:
        """Held-out nats per token: `held_out_KIND`, and their mean `held_out`."""
        losses = {}
        for kind in self.arrays.kinds:
            rows = self.held_out(kind, HELD_OUT_ROWS, HELD_OUT_WINDOW + 1)
            losses[f"held_out_{kind}"] = float(token_losses(self.network, rows).mean())
        return {"held_out": sum(losses.values()) / len(losses), **losses}


def token_losses(network: GPTNeoXForCausalLM, windows: Tensor) -> Tensor:
    """Cross-entropy in nats of every token behind the first of its row, `[rows * (window - 1)]`."""
    hidden = hidden_states(network, windows[:, :-1], compute_dtype(windows.device)).flatten(0, 1)
    pieces = zip(hidden.split(ROWS_AT_ONCE), windows[:, 1:].flatten().split(ROWS_AT_ONCE), strict=True)
    return torch.cat([F.cross_entropy(head_logits(network, h), t, reduction="none") for h, t in pieces])


@dataclass(frozen=True)
class TargetSettings(PhaseSettings):
    """How the target is trained.

    Attributes:
        long_window: tokens of a row on the last of every `LONG_EVERY` steps.
        cooling_window: tokens of a row in place of `long_window` while the rates fall, on every other step.
    """

    long_window: int = 1024
    cooling_window: int = 1536

    def window_of(self, step: int, cooling: bool) -> int:
        """Tokens of a row in a step."""
        if cooling:
            return self.cooling_window if step % 2 else self.window
        return self.long_window if step % LONG_EVERY == LONG_EVERY - 1 else self.window


class TargetLearner(PairLearner):
    """Next-token prediction on windows of text.

    Attributes:
        cooling: let the learning rates fall to 0 over the phase.
    """

    settings: TargetSettings
    cooling = False

    def step(self, number: int, share: float) -> Mapping[str, float]:
        """One step; while cooling the rates fall with `share`."""
        window = self.settings.window_of(number, self.cooling)
        # Cooling begins with windows that the stable part has not drawn: another stream of the seed.
        rows = self.batch(self.seed * 2 + self.cooling, number, window, window + 1)
        loss = token_losses(self.network, rows).mean()
        loss.backward()
        norm = self.optimiser.step(1.0 - share if self.cooling else self.settings.warmed_up(number))
        return {"loss": float(loss.detach()), "gradient_norm": norm}


@dataclass(frozen=True)
class LoopSettings(PhaseSettings):
    """How loops are unlearned.

    Attributes:
        rows, prompt, continuation: continuations of a step, tokens they begin with, and tokens they go on for.
        run: tokens that must have been seen before, in the same order, for the last of them to count as repeated; as
            long as what counts as a loop everywhere else, for ordinary text repeats shorter runs all the time.
        weight: of the repeated tokens' loss beside that of ordinary text.
        kept: share of the way that the weights went which is kept at the end; ordinary text loses less by going a part
            of it than loops do (Wortsman et al. 2022, on other tasks).
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


class LoopLearner(PairLearner):
    """Unlikelihood of repeated tokens in the network's own greedy text, and likelihood of ordinary text."""

    settings: LoopSettings

    def step(self, number: int, share: float) -> Mapping[str, float]:
        """One step; the learning rates fall with `share`."""
        settings, seed = self.settings, self.seed + 2**20
        loss = token_losses(self.network, self.batch(seed, 2 * number, settings.window, settings.window + 1)).mean()
        loss.backward()
        prompts = torch.from_numpy(self.arrays.batch(seed, 2 * number + 1, settings.rows, settings.prompt))
        prompts = prompts.to(self.device)
        found = torch.cat((prompts, greedy_continuations(self.network, prompts, settings.continuation)), dim=1)
        repeated = repeats(found.cpu().numpy(), settings.run, settings.prompt)
        unlikely = 0.0
        if repeated.any():
            penalty = unlikelihood(self.network, found, torch.from_numpy(repeated).to(self.device))
            (settings.weight * penalty).backward()
            unlikely = float(penalty.detach())
        norm = self.optimiser.step((1.0 - share) * settings.warmed_up(number))
        share_repeated = float(repeated[:, settings.prompt :].mean())
        return {"loss": float(loss.detach()), "unlikelihood_loss": unlikely, "looping": share_repeated,
                "gradient_norm": norm}  # fmt: skip

    def evaluate(self) -> Mapping[str, float]:
        """Held-out nats per token, and the share of held-out prompts whose greedy text falls into a loop, by kind."""
        settings, shares = self.settings, {}
        for kind in self.arrays.kinds:
            prompts = self.held_out(kind, HELD_OUT_PROMPTS, settings.prompt)
            found = greedy_continuations(self.network, prompts, settings.continuation).tolist()
            ended = [row[: row.index(END_ID)] if END_ID in row else row for row in found]
            shares[f"looping_{kind}"] = float(np.mean([tokens_before_loop(row) < len(row) for row in ended]))
        return {**super().evaluate(), "looping_held_out": sum(shares.values()) / len(shares), **shares}


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


@dataclass(frozen=True)
class DraftSettings(PhaseSettings):
    """How the draft is distilled.

    Attributes:
        long_window: tokens of a row on the last of every `LONG_EVERY` steps.
        steady: share of the phase before the rates begin to fall.
        overlap_weight: of the distributions' distance in the loss, from 0 to 1; the rest is the divergence.
    """

    other_rate: float = 4e-3
    warm_up: int = 50
    long_window: int = 1024
    steady: float = 0.4
    overlap_weight: float = 0.5


class DraftLearner(PairLearner):
    """Soft labels computed on the fly; the target stays as it is."""

    settings: DraftSettings

    def __init__(self, target: GPTNeoXForCausalLM, draft: GPTNeoXForCausalLM, *more: Any):
        super().__init__(draft, *more)
        self.target = target.requires_grad_(False)

    def step(self, number: int, share: float) -> Mapping[str, float]:
        """One step; the learning rates fall with `share` once the steady part is over."""
        settings = self.settings
        window = settings.long_window if number % LONG_EVERY == LONG_EVERY - 1 else settings.window
        divergences, overlaps = [], []
        for theirs, mine in distributions(
            self.target, self.network, self.batch(self.seed + 2**21, number, window, window)
        ):
            divergences.append(divergence(theirs, mine))
            overlaps.append(overlap(theirs, mine))
        apart, common = torch.cat(divergences).mean(), torch.cat(overlaps).mean()
        ((1 - settings.overlap_weight) * apart + settings.overlap_weight * (1 - common)).backward()
        falling = max(0.0, (share - settings.steady) / (1 - settings.steady))
        norm = self.optimiser.step((1.0 - falling) * settings.warmed_up(number))
        return {"divergence": float(apart.detach()), "overlap": float(common.detach()), "gradient_norm": norm}

    @torch.no_grad()
    def evaluate(self) -> Mapping[str, float]:
        """On held-out text by kind: overlap of the two distributions, and how often both have the same likeliest
        token.
        """
        figures = {}
        for kind in self.arrays.kinds:
            found = list(distributions(self.target, self.network, self.held_out(kind, HELD_OUT_ROWS, HELD_OUT_WINDOW)))
            figures[f"held_out_overlap_{kind}"] = float(torch.cat([overlap(*pair) for pair in found]).mean())
            same = torch.cat([theirs.argmax(-1) == mine.argmax(-1) for theirs, mine in found])
            figures[f"held_out_agreement_{kind}"] = float(same.float().mean())
        common = [value for name, value in figures.items() if "overlap" in name]
        return {"held_out_overlap": sum(common) / len(common), **figures}


def distributions(
    target: GPTNeoXForCausalLM, draft: GPTNeoXForCausalLM, rows: Tensor
) -> Iterator[tuple[Tensor, Tensor]]:
    """Log-probabilities of both behind every token of `[rows, window]`, some tokens at a time: `[tokens, vocab_size]`.

    Gradients flow into the draft alone.
    """
    dtype = compute_dtype(rows.device)
    with torch.no_grad():
        theirs = hidden_states(target, rows, dtype).flatten(0, 1)
    mine = hidden_states(draft, rows, dtype).flatten(0, 1)
    for label, hidden in zip(theirs.split(ROWS_AT_ONCE), mine.split(ROWS_AT_ONCE), strict=True):
        with torch.no_grad():
            probs = head_logits(target, label).log_softmax(-1)
        yield probs, head_logits(draft, hidden).log_softmax(-1)


def divergence(target: Tensor, draft: Tensor) -> Tensor:
    """Kullback-Leibler divergence of the target's distribution from the draft's in nats, `[tokens]`, of
    log-probabilities.
    """
    return (target.exp() * (target - draft)).sum(-1)


def overlap(target: Tensor, draft: Tensor) -> Tensor:
    """Sum of the smaller of the two probabilities, `[tokens]`: the chance that a drawn draft token is accepted."""
    return torch.minimum(target, draft).exp().sum(-1)

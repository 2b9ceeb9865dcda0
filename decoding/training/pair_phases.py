"""What the phases of a pair's training share, the target's training on text, and the draft's distillation from it.

Text is learned with Muon for matrices and AdamW for the rest. The draft is trained towards the target's whole
distribution at every token of a text, and of what the target itself writes.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn
from transformers import GPTNeoXForCausalLM

from decoding.trace.records import RunTrace
from decoding.training.loop import Learner
from decoding.training.pair_networks import compute_dtype, continuations, head_logits, hidden_states
from decoding.training.pair_tokens import CONTEXT, TokenArrays

EMBEDDINGS = ("embed_in.weight", "embed_out.weight")
CLIP = 1.0  # largest norm of a gradient
ROWS_AT_ONCE = 1024  # logits of this many tokens are held at once
HELD_OUT_WINDOW, HELD_OUT_ROWS = 512, 8
LONG_EVERY = 4  # steps: the last of them has long rows


@dataclass(frozen=True)
class PhaseSettings:
    """What is set in every phase.

    Attributes:
        matrix_rate, other_rate: learning rates of Muon and AdamW.
        warm_up: steps over which they rise.
        batch_tokens, window: tokens of a step, and of a row.
        long_window: tokens of a row on the last of every `LONG_EVERY` steps.
    """

    matrix_rate: float = 0.02
    other_rate: float = 3e-3
    warm_up: int = 100
    batch_tokens: int = 6144
    window: int = 256
    long_window: int = CONTEXT

    def window_of(self, step: int) -> int:
        """Tokens of a row of the corpus in a step."""
        return self.long_window if step % LONG_EVERY == LONG_EVERY - 1 else self.window

    def warmed_up(self, step: int) -> float:
        """Factor of the rates that rises from near 0 to 1."""
        return min(1.0, (step + 1) / self.warm_up)


@dataclass(frozen=True)
class OwnTextSettings(PhaseSettings):
    """A phase that also learns from what the target writes.

    Attributes:
        rows, prompt, continuation: texts that are written together, tokens of the corpus that they begin with, and
            tokens that they go on for.
        steps_each: steps until others are written.
        warm: share of the texts that are drawn, at temperatures up to 1; the others are greedy.
    """

    rows: int = 64
    prompt: int = 48
    continuation: int = 256
    steps_each: int = 4
    warm: float = 0.25


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
        return self._tree()

    def own_texts(self, network: GPTNeoXForCausalLM, seed: int, number: int, done: Any = None) -> Tensor:
        """What a network writes after beginnings of text, these included: `[rows, prompt + continuation]`.

        `done` is that of `continuations`.
        """
        settings: Any = self.settings
        prompts = torch.from_numpy(self.arrays.batch(seed, number, settings.rows, settings.prompt)).to(self.device)
        warmth = torch.linspace(1, 1 - 1 / max(settings.warm, 1e-9), settings.rows).clamp(min=0).to(self.device)
        draws = torch.Generator().manual_seed(seed + number)
        return torch.cat((prompts, continuations(network, prompts, settings.continuation, warmth, draws, done)), dim=1)

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
    """Cross-entropy in nats of every token after the first of its row, `[rows * (window - 1)]`."""
    hidden = hidden_states(network, windows[:, :-1], compute_dtype(windows.device)).flatten(0, 1)
    pieces = zip(hidden.split(ROWS_AT_ONCE), windows[:, 1:].flatten().split(ROWS_AT_ONCE), strict=True)
    return torch.cat([F.cross_entropy(head_logits(network, h), t, reduction="none") for h, t in pieces])


@dataclass(frozen=True)
class TargetSettings(PhaseSettings):
    """How the target is trained.

    Attributes:
        cooling_window: tokens of a row in place of `long_window` while the rates fall, on every other step.
    """

    long_window: int = 1024
    cooling_window: int = 1536

    def window_of(self, step: int, cooling: bool = False) -> int:
        if cooling:
            return self.cooling_window if step % 2 else self.window
        return super().window_of(step)


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
class DraftSettings(OwnTextSettings):
    """How the draft is distilled.

    Attributes:
        steady: share of the phase before the rates begin to fall.
        overlap_weight: of the distributions' distance in the loss, from 0 to 1; the rest is the divergence.
        own_weight: of the target's own texts in the loss, from 0 to 1; the rest is the corpus.
    """

    other_rate: float = 4e-3
    warm_up: int = 50
    batch_tokens: int = 4096
    steps_each: int = 8
    warm: float = 0.75
    steady: float = 0.4
    overlap_weight: float = 0.5
    own_weight: float = 0.5


class DraftLearner(PairLearner):
    """Soft labels computed on the fly, on text and on what the target writes; the target stays as it is."""

    settings: DraftSettings

    def __init__(self, target: GPTNeoXForCausalLM, draft: GPTNeoXForCausalLM, *more: Any):
        super().__init__(draft, *more)
        self.target, self._own = target.requires_grad_(False), (-1, torch.empty(0))

    def step(self, number: int, share: float) -> Mapping[str, float]:
        """One step; the learning rates fall with `share` once the steady part is over."""
        settings, seed = self.settings, self.seed + 2**21
        window = settings.window_of(number)
        figures: dict[str, float] = {}
        for name, rows, weight in (
            ("", self.batch(seed, number, window, window), 1 - settings.own_weight),
            ("own_", self._own_rows(number), settings.own_weight),
        ):
            found = [(divergence(*both), overlap(*both)) for both in distributions(self.target, self.network, rows)]
            apart, common = (torch.cat(parts).mean() for parts in zip(*found, strict=True))
            loss = (1 - settings.overlap_weight) * apart + settings.overlap_weight * (1 - common)
            (weight * loss).backward()
            figures |= {f"{name}divergence": float(apart.detach()), f"{name}overlap": float(common.detach())}
        falling = max(0.0, (share - settings.steady) / (1 - settings.steady))
        figures["gradient_norm"] = self.optimiser.step((1.0 - falling) * settings.warmed_up(number))
        return figures

    def _own_rows(self, number: int) -> Tensor:
        """As much of the target's own texts as of the corpus; every `steps_each` steps it writes others."""
        turn, place = divmod(number, self.settings.steps_each)
        if self._own[0] != turn:
            self._own = turn, self.own_texts(self.target, self.seed + 2**22, turn)
        texts = self._own[1]
        count = max(1, self.settings.batch_tokens // texts.shape[1])
        # Neighbours are drawn at like temperatures: take rows far from each other.
        return texts[
            torch.arange(count, device=texts.device) * len(texts) // count + place % (len(texts) // count or 1)
        ]

    @torch.no_grad()
    def evaluate(self) -> Mapping[str, float]:
        """On held-out text by kind: overlap of the distributions, and how often both have the same likeliest token."""
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
    """Log-probabilities of both after every token of `[rows, window]`, some tokens at a time: `[tokens, vocab_size]`.

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
    """Kullback-Leibler divergence in nats of target from draft, both log-probabilities, `[tokens]`."""
    return (target.exp() * (target - draft)).sum(-1)


def overlap(target: Tensor, draft: Tensor) -> Tensor:
    """Sum of the smaller of the two probabilities, `[tokens]`: the chance that a drawn draft token is accepted."""
    return torch.minimum(target, draft).exp().sum(-1)

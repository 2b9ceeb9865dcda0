"""Temperature, top-p, and randomness as an object: drawn, recorded, replayed or enumerated."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Protocol, TypeVar

import torch
from torch import Tensor

from decoding.errors import require
from decoding.trace import DrawTrace

T = TypeVar("T")


@dataclass(frozen=True)
class Sampling:
    """How tokens are chosen: `temperature` 0 is greedy; `top_p` cuts the target's law to its nucleus."""

    temperature: float = 0.0
    top_p: float = 1.0
    draft_temperature: float = 1.0
    seed: int = 0

    def __post_init__(self):
        require(self.temperature >= 0, f"temperature must be 0 or more, not {self.temperature}: 0 decodes greedily.")
        require(0 < self.top_p <= 1, f"top_p must be above 0 and at most 1, not {self.top_p}.")
        require(self.draft_temperature > 0, f"draft_temperature must be above 0, not {self.draft_temperature}.")

    @property
    def greedy(self) -> bool:
        """True if the target's law is its argmax."""
        return self.temperature == 0


def target_law(logits: Tensor, sampling: Sampling) -> Tensor:
    """The law to reproduce, `[num_rows, vocab_size]` in float32: scaled by temperature, cut to the nucleus.

    The nucleus is the smallest prefix in descending order whose mass reaches `top_p`, the crossing token kept.
    """
    logits = logits.float()
    if sampling.greedy:
        return torch.nn.functional.one_hot(logits.argmax(-1), logits.shape[-1]).float()
    probs = torch.softmax(logits / sampling.temperature, -1)
    if sampling.top_p < 1:
        ordered, order = probs.sort(-1, descending=True)
        before = ordered.cumsum(-1) - ordered
        probs = torch.zeros_like(probs).scatter_(-1, order, ordered.masked_fill(before >= sampling.top_p, 0.0))
        probs /= probs.sum(-1, keepdim=True)
    return probs


class TargetRows:
    """The target's law after each verified node, in the order of the verification pass; computed when asked for.

    Greedy verification needs only the argmax of the raw logits: probabilities in float32 can tie where logits do not.
    """

    def __init__(self, logits: Tensor, sampling: Sampling):
        self.logits = logits
        self.sampling = sampling
        self._probs: Tensor | None = None

    @property
    def argmax(self) -> Tensor:
        """Most likely token after each node, `[num_rows]`."""
        return self.logits.argmax(-1)

    @property
    def probs(self) -> Tensor:
        """Law after temperature and top-p, `[num_rows, vocab_size]`."""
        if self._probs is None:
            self._probs = target_law(self.logits, self.sampling)
        return self._probs


class Draws(Protocol):
    """Every random decision of drafters and verifiers goes through one of these."""

    def accept(self, probability: float) -> bool:
        """True with the given probability."""
        ...

    def choose(self, weights: Tensor) -> int:
        """Index i with probability `weights[i]` / their sum; `[num_choices]`, not all 0."""
        ...


class GeneratorDraws:
    """Draws from a seeded generator on the host; keeps a record of every decision."""

    def __init__(self, seed: int):
        self._generator = torch.Generator().manual_seed(seed)
        self.record: list[DrawTrace] = []

    def accept(self, probability: float) -> bool:
        uniform = self._uniform()
        outcome = uniform < probability
        self.record.append(DrawTrace("accept", float(probability), int(outcome), uniform))
        return outcome

    def choose(self, weights: Tensor) -> int:
        uniform = self._uniform()
        cumulative = weights.double().cumsum(-1)
        point = torch.as_tensor(uniform * cumulative[-1].item(), dtype=torch.float64, device=weights.device)
        outcome = min(int(torch.searchsorted(cumulative, point, right=True)), weights.numel() - 1)
        probability = float(weights[outcome] / cumulative[-1])
        self.record.append(DrawTrace("choose", probability, outcome, uniform))
        return outcome

    def fork(self) -> "GeneratorDraws":
        """A copy that continues with the same numbers and an empty record."""
        copy = GeneratorDraws(0)
        copy._generator.set_state(self._generator.get_state())
        return copy

    def _uniform(self) -> float:
        return torch.rand((), generator=self._generator, dtype=torch.float64).item()


class ReplayDraws:
    """Repeats recorded decisions in order; raises `ValueError` when asked for other ones."""

    def __init__(self, record: tuple[DrawTrace, ...]):
        self._left = iter(record)

    def accept(self, probability: float) -> bool:
        return bool(self._next("accept").outcome)

    def choose(self, weights: Tensor) -> int:
        return self._next("choose").outcome

    def _next(self, kind: str) -> DrawTrace:
        draw = next(self._left, None)
        if draw is None or draw.kind != kind:
            raise ValueError(
                f"the recorded draws do not fit: asked to {kind}, recorded {draw.kind if draw else 'none'}"
            )
        return draw


class _ScriptedDraws:
    """Follows a list of outcomes, then takes the first possible one; notes what else was possible."""

    def __init__(self, script: tuple[int, ...]):
        self.script = script
        self.taken: list[int] = []
        self.branches: list[list[int]] = []
        self.probability = 1.0

    def accept(self, probability: float) -> bool:
        probability = min(max(float(probability), 0.0), 1.0)
        return bool(self._take([1.0 - probability, probability]))

    def choose(self, weights: Tensor) -> int:
        weights = weights.double()
        return self._take((weights / weights.sum()).tolist())

    def _take(self, law: list[float]) -> int:
        possible = [i for i, p in enumerate(law) if p > 0]
        position = len(self.taken)
        outcome = self.script[position] if position < len(self.script) else possible[0]
        self.taken.append(outcome)
        self.branches.append([i for i in possible if i > outcome] if position >= len(self.script) else [])
        self.probability *= law[outcome]
        return outcome


def enumerate_draws(run: Callable[[Draws], T]) -> Iterator[tuple[T, float]]:
    """Every outcome of `run` with its probability: each decision with more than one possibility is taken all ways."""
    scripts: list[tuple[int, ...]] = [()]
    while scripts:
        draws = _ScriptedDraws(scripts.pop())
        result = run(draws)
        for position, others in enumerate(draws.branches):
            scripts.extend((*draws.taken[:position], other) for other in others)
        yield result, draws.probability

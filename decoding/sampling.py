"""Temperature, top-p, and randomness as an object: drawn, recorded, replayed or enumerated."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Protocol, TypeVar

import numpy as np

from decoding.errors import require
from decoding.optional_torch import Tensor, torch
from decoding.row_search import argmax_rows
from decoding.trace import DrawTrace
from decoding.uniforms import Uniforms

T = TypeVar("T")
NUCLEUS_GUESS = 1024  # a nucleus is rarely wider, and the top of a vocabulary is found faster than its order
LAW_ROUNDING = 1e-3  # float32 and half precision sums of 152,000 probabilities stay well within


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
        require(self.seed >= 0, f"seed must be 0 or more, not {self.seed}.")
        require(self.draft_temperature > 0, f"draft_temperature must be above 0, not {self.draft_temperature}.")

    @property
    def greedy(self) -> bool:
        """True if the target's law is its argmax."""
        return self.temperature == 0


def exact_dtype(device: "torch.device") -> "torch.dtype":
    """The widest float of a device: verifiers compute in it."""
    return torch.float32 if device.type == "mps" else torch.float64


def target_law(logits: Tensor, sampling: Sampling) -> Tensor:
    """The law to reproduce, `[..., vocab_size]` in float32 or wider: scaled by temperature, cut to the nucleus."""
    logits = logits if logits.dtype == torch.float64 else logits.float()
    if sampling.greedy:
        return torch.nn.functional.one_hot(logits.argmax(-1), logits.shape[-1]).to(logits.dtype)
    probs = torch.softmax(logits / sampling.temperature, -1)
    return nucleus(probs, sampling.top_p) if sampling.top_p < 1 else probs


def nucleus(probs: Tensor, top_p: float) -> Tensor:
    """The smallest prefix in descending order whose mass reaches `top_p`, the crossing token kept, renormalised."""
    size = probs.shape[-1]
    ordered, order = probs.topk(min(size, NUCLEUS_GUESS), -1)
    if size > NUCLEUS_GUESS and bool((ordered.sum(-1) < top_p).any()):  # a flat law: only a whole sort will do
        ordered, order = probs.sort(-1, descending=True)
    before = ordered.cumsum(-1) - ordered
    kept = torch.zeros_like(probs).scatter_(-1, order, ordered.masked_fill(before >= top_p, 0.0))
    return kept / kept.sum(-1, keepdim=True)


class TargetRows:
    """The target's law after each verified node, in the order of the verification pass; computed when asked for.

    Greedy verification needs only the argmax of the raw logits: probabilities in float32 can tie where logits do not.
    Where the laws are known already, `probs` takes their place.
    """

    def __init__(self, logits: Tensor | None, sampling: Sampling, probs: Tensor | None = None):
        self.logits = logits if probs is None else probs
        self.sampling = sampling
        self._probs = probs

    def check(self) -> None:
        """Raise `ValueError` where a row holds no law, or no finite logits."""
        if self._probs is not None:
            check_laws(self._probs, "target_probs")
        else:
            _refuse(~self.logits.amax(-1).isfinite(), "target_logits", "must hold finite logits")

    def __len__(self) -> int:
        return len(self.logits)

    @property
    def argmax(self) -> Tensor:
        """Most likely token after each node, `[num_rows]`."""
        return argmax_rows(self.logits)

    def law(self, row: int) -> Tensor:
        """Law after temperature and top-p after one node, `[vocab_size]`, in the widest float of the device.

        Raises:
            ValueError: the row is no law.
        """
        wide = exact_dtype(self.logits.device)
        if self._probs is not None:
            return checked_law(self._probs[row].to(wide), f"target_probs[{row}]")
        return checked_law(target_law(self.logits[row].to(wide), self.sampling), f"target_logits[{row}]")


def check_laws(probs: Tensor, name: str) -> None:
    """Raise `ValueError` unless every row sums to 1 within rounding and nothing is negative."""
    bad = ~((probs.sum(-1, dtype=torch.float32) - 1).abs() <= LAW_ROUNDING) | (probs.amin(-1) < 0)
    _refuse(bad, name, "must hold probabilities that sum to 1")


def _refuse(bad: Tensor, name: str, rule: str) -> None:
    if bool(bad.any()):
        raise ValueError(f"{name} {rule}: row {int(bad.int().argmax())} does not.")


def checked_law(probs: Tensor, name: str) -> Tensor:
    """The row divided by its sum; raises `ValueError` unless that is 1 within rounding and nothing is negative."""
    total, least = torch.stack([probs.sum(), probs.min()]).tolist()
    if not abs(total - 1) <= LAW_ROUNDING:  # also nan
        raise ValueError(f"{name} sums to {total:.6g}: a law of probabilities sums to 1.")
    if least < 0:
        raise ValueError(f"{name} holds the negative probability {least:.6g}.")
    return probs / total


class Draws(Protocol):
    """Every random decision of drafters and verifiers goes through one of these, one uniform number each.

    A drafter draws first, level by level and in each level as it documents; then the verifier, test by test, and last
    the final token. The record of these decisions replays the iteration.

    Attributes:
        last_uniform: the number behind the latest decision, None where none was drawn.
    """

    last_uniform: float | None

    def accept(self, probability: float) -> bool:
        """True with the given probability."""
        ...

    def choose(self, weights: Tensor) -> int:
        """Index i with probability `weights[i]` / their sum; `[num_choices]`, not all 0."""
        ...

    def choose_each(self, weights: Tensor) -> list[int]:
        """One index per row of `[num_rows, num_choices]`: the same as `choose` row by row."""
        ...


class GeneratorDraws:
    """Draws with the numbers of a seed; keeps a record of every decision."""

    def __init__(self, seed: int):
        # Neighbouring seeds of the generator begin with numbers that are alike: seeds are scattered first.
        scattered = int(np.random.SeedSequence(seed).generate_state(1, np.uint64)[0])
        self._numbers, self._place = Uniforms(scattered >> 1), 0
        self.record: list[DrawTrace] = []
        self.last_uniform: float | None = None

    def accept(self, probability: float) -> bool:
        uniform = self.last_uniform = self._uniforms(1)[0]
        outcome = uniform < probability
        self.record.append(DrawTrace("accept", float(probability), int(outcome), uniform))
        return outcome

    def choose(self, weights: Tensor) -> int:
        return self.choose_each(weights[None])[0]

    def choose_each(self, weights: Tensor) -> list[int]:
        uniforms = self._uniforms(len(weights))
        on_host = weights.device.type == "cpu"
        indices, probabilities = (_invert_on_host if on_host else _invert)(weights, uniforms)
        self.record.extend(map(DrawTrace, ["choose"] * len(indices), probabilities, indices, uniforms))
        self.last_uniform = uniforms[-1]
        return indices

    def fork(self, skipped: int = 0) -> "GeneratorDraws":
        """A copy that continues with the same numbers, some decisions further on, and an empty record."""
        copy = GeneratorDraws(0)
        copy._numbers, copy._place = self._numbers, self._place + skipped
        return copy

    def ahead(self, count: int) -> list[float]:
        """The numbers of the next decisions, none of which is taken."""
        return self._numbers.read(self._place, count)

    def _uniforms(self, count: int) -> list[float]:
        numbers = self.ahead(count)
        self._place += count
        return numbers


def _invert(weights: Tensor, uniforms: list[float]) -> tuple[list[int], list[float]]:
    """Per row the first index whose cumulative weight exceeds the uniform's share of the total, and its probability."""
    cumulative = weights.to(exact_dtype(weights.device)).cumsum(-1)
    totals = cumulative[:, -1:].contiguous()
    points = torch.tensor(uniforms, dtype=cumulative.dtype, device=weights.device)[:, None] * totals
    # Rounding may lift a point to the total, past every weight: it belongs to the last one that is not 0.
    last = torch.searchsorted(cumulative, totals)
    outcomes = torch.minimum(torch.searchsorted(cumulative, points, right=True), last)
    return outcomes[:, 0].tolist(), (weights.gather(1, outcomes) / totals)[:, 0].tolist()


def _invert_on_host(weights: Tensor, uniforms: list[float]) -> tuple[list[int], list[float]]:
    """The same with numpy's search, which takes half the time for a row: drafters that draw node by node live on it."""
    indices, probabilities = [], []
    sums = weights.double().cumsum(-1).numpy()
    for row, cumulative, uniform in zip(weights.numpy(), sums, uniforms, strict=True):
        total = cumulative[-1]
        index = int(cumulative.searchsorted(uniform * total, side="right"))
        if index == len(row):
            index = int(cumulative.searchsorted(total))
        indices.append(index)
        probabilities.append(float(row[index] / total))
    return indices, probabilities


class ReplayDraws:
    """Repeats recorded decisions in order; raises `ValueError` when asked for other ones."""

    def __init__(self, record: tuple[DrawTrace, ...]):
        self._left = iter(record)
        self.last_uniform: float | None = None

    def accept(self, probability: float) -> bool:
        return bool(self._next("accept").outcome)

    def choose(self, weights: Tensor) -> int:
        return self._next("choose").outcome

    def choose_each(self, weights: Tensor) -> list[int]:
        return [self.choose(row) for row in weights]

    def _next(self, kind: str) -> DrawTrace:
        draw = next(self._left, None)
        if draw is None or draw.kind != kind:
            raise ValueError(
                f"the recorded draws do not fit: asked to {kind}, recorded {draw.kind if draw else 'none'}"
            )
        self.last_uniform = draw.uniform
        return draw


class _ScriptedDraws:
    """Follows a list of outcomes, then takes the first possible one; notes what else was possible."""

    def __init__(self, script: tuple[int, ...]):
        self.script = script
        self.taken: list[int] = []
        self.branches: list[list[int]] = []
        self.probability = 1.0
        self.last_uniform = None

    def accept(self, probability: float) -> bool:
        probability = min(max(float(probability), 0.0), 1.0)
        return bool(self._take([1.0 - probability, probability]))

    def choose(self, weights: Tensor) -> int:
        weights = weights.double()
        return self._take((weights / weights.sum()).tolist())

    def choose_each(self, weights: Tensor) -> list[int]:
        return [self.choose(row) for row in weights]

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

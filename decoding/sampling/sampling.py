"""Temperature and top-p; the largest entries of rows, which PyTorch is slow to find on a CPU."""

import math
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from decoding.common.errors import PairError, require
from decoding.common.settings import wrong_sampling
from decoding.trace.records import SamplingTrace

BLOCK = 64
# From here on two steps take less time than one. Of equal entries, which stored logits have many of, each way takes
# others first, so that a change of these numbers shows in what recorded runs are compared with.
FEWEST_ROWS, LARGE_VOCABULARY = 12, 2**14


def argmax_rows(rows: Tensor) -> Tensor:
    """Index of the largest entry of each row, the first of equals, `[num_rows]`."""
    if rows.device.type == "cpu" and rows.dtype in (torch.float32, torch.float64):
        return torch.from_numpy(rows.numpy().argmax(-1))  # ten times as fast as that of PyTorch
    return rows.argmax(-1)


def topk_rows(rows: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """The `count` largest entries of each row in descending order and their indices, `[num_rows, count]` each.

    They stand in the `count` blocks with the largest maxima; where it pays only those are searched.
    """
    many, size = len(rows) >= FEWEST_ROWS or rows.shape[1] >= LARGE_VOCABULARY, rows.shape[1]
    if rows.device.type != "cpu" or not many or size % BLOCK or 2 * count * BLOCK > size:
        values, indices = rows.topk(count, -1)
        return values, indices
    blocks = rows.unflatten(1, (-1, BLOCK))
    best = blocks.amax(-1).topk(count, -1, sorted=False).indices.sort(-1).values  # in order, as the whole row stands
    candidates = blocks.gather(1, best[..., None].expand(-1, -1, BLOCK)).flatten(1)
    values, places = candidates.topk(count, -1)
    return values, best.gather(1, places // BLOCK) * BLOCK + places % BLOCK


NUCLEUS_GUESS = 1024  # a nucleus is rarely wider, and the top of a vocabulary is found faster than its order
DISTRIBUTION_ROUNDING = 1e-3  # float32 and half precision sums of 152,000 probabilities stay well within


@dataclass(frozen=True)
class Sampling:
    """How tokens are chosen: `temperature` 0 is greedy; `top_p` cuts the target's distribution to its nucleus."""

    temperature: float = 0.0
    top_p: float = 1.0
    draft_temperature: float = 1.0
    seed: int = 0

    def __post_init__(self):
        require(not (wrong := wrong_sampling(self)), wrong)

    @property
    def greedy(self) -> bool:
        """True if the target's distribution is its argmax."""
        return self.temperature == 0

    def trace(self) -> SamplingTrace:
        """The record of it."""
        return SamplingTrace(self.temperature, self.top_p, self.draft_temperature, self.seed)


def exact_dtype(device: torch.device) -> torch.dtype:
    """The widest float of a device: verifiers compute in it."""
    return torch.float32 if device.type == "mps" else torch.float64


def target_distribution(logits: Tensor, sampling: Sampling) -> Tensor:
    """The distribution to reproduce, `[..., vocab_size]` in float32 or wider: tempered, cut to the nucleus."""
    logits = logits if logits.dtype == torch.float64 else logits.float()
    if sampling.greedy:
        return torch.nn.functional.one_hot(logits.argmax(-1), logits.shape[-1]).to(logits.dtype)
    probs = torch.softmax(logits / sampling.temperature, -1)
    return nucleus(probs, sampling.top_p) if sampling.top_p < 1 else probs


def nucleus(probs: Tensor, top_p: float) -> Tensor:
    """The smallest prefix in descending order whose mass reaches `top_p`, the crossing token kept, renormalised."""
    size = probs.shape[-1]
    ordered, order = probs.topk(min(size, NUCLEUS_GUESS), -1)
    if size > NUCLEUS_GUESS and bool((ordered.sum(-1) < top_p).any()):  # a flat distribution: only a whole sort will do
        ordered, order = probs.sort(-1, descending=True)
    before = ordered.cumsum(-1) - ordered
    kept = torch.zeros_like(probs).scatter_(-1, order, ordered.masked_fill(before >= top_p, 0.0))
    return kept / kept.sum(-1, keepdim=True)


class TargetDistributions:
    """The target's distribution after each verified node, in the order of the verification pass; computed when asked
    for.

    Greedy verification needs only the argmax of the raw logits: probabilities in float32 can tie where logits do not.
    Where the distributions are known already, `probs` takes their place.
    """

    def __init__(self, logits: Tensor | None, sampling: Sampling, probs: Tensor | None = None):
        shown = logits if probs is None else probs
        if shown is None:
            raise ValueError("what the target gives must be logits or probs, not None for both.")
        self.logits = shown
        self.sampling = sampling
        self._probs = probs

    def check(self) -> None:
        """Raise `ValueError` at rows that hold no distribution, `PairError` at numbers beyond their dtype's range."""
        if self._probs is not None:
            check_distributions(self._probs, "target_probs")
        elif not math.isfinite(self.logits.gather(1, self.argmax[:, None]).sum(dtype=torch.float32)):
            dtype = str(self.logits.dtype).removeprefix("torch.")
            raise PairError(
                f"The target gives nan or infinite logits for this text in {dtype}; load the pair in "
                "float32, or choose another model."
            )

    def __len__(self) -> int:
        return len(self.logits)

    @cached_property
    def argmax(self) -> Tensor:
        """Most likely token after each node, `[num_rows]`."""
        return argmax_rows(self.logits)

    def probs(self, row: int) -> Tensor:
        """Distribution after temperature and top-p after one node, `[vocab_size]`, in the device's widest float."""
        wide = exact_dtype(self.logits.device)
        if self._probs is not None:
            return checked_distribution(self._probs[row].to(wide), f"target_probs[{row}]")
        if self.sampling.greedy:
            favourite = torch.zeros(self.logits.shape[-1], dtype=wide, device=self.logits.device)
            favourite[self.argmax[row]] = 1.0
            return favourite
        return checked_distribution(
            target_distribution(self.logits[row].to(wide), self.sampling), f"target_logits[{row}]"
        )


def check_distributions(probs: Tensor, name: str) -> None:
    """Raise `ValueError` unless every row sums to 1 within rounding and nothing is negative."""
    bad = ~((probs.sum(-1, dtype=torch.float32) - 1).abs() <= DISTRIBUTION_ROUNDING) | (probs.amin(-1) < 0)
    if bool(bad.any()):
        raise ValueError(f"{name} must hold probabilities that sum to 1: row {int(bad.int().argmax())} does not.")


def checked_distribution(probs: Tensor, name: str) -> Tensor:
    """The row divided by its sum; raises `ValueError` unless that is 1 within rounding and nothing is negative."""
    total, least = torch.stack([probs.sum(), probs.min()]).tolist()
    if not abs(total - 1) <= DISTRIBUTION_ROUNDING:  # also nan
        raise ValueError(f"{name} sums to {total:.6g}: probabilities must sum to 1.")
    if least < 0:
        raise ValueError(f"{name} contains the negative probability {least:.6g}.")
    return probs / total

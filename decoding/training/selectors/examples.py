"""Labelled roots as a selector learns from them, and what it is trained for: modelled tokens per second."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from decoding.common.errors import TrainingError
from decoding.sampling.sampling import Sampling
from decoding.selector.actions import ACTIONS
from decoding.selector.card import Static
from decoding.selector.features import Features
from decoding.selector.latency import LatencyModel, Way, same_chain
from decoding.training.selectors.data import Roots


def policy_rate(logits: Tensor, expected: Tensor, seconds: Tensor) -> Tensor:
    """Tokens per second of a policy at each root (Eq. 4): expected tokens over expected time, `[num_roots]`.

    Args:
        logits, expected, seconds: by action, `[num_roots, len(ACTIONS)]` each.
    """
    policy = logits.softmax(-1)
    return (policy * expected).sum(-1) / (policy * seconds).sum(-1)


def objective(rate: Tensor, base_rate: Tensor, penalty: float, worst: float) -> tuple[Tensor, Tensor, Tensor]:
    """The loss (Eq. 12), its mean -log ratio (Eq. 5), and its penalty before it is weighted.

    Args:
        rate, base_rate: tokens per second of the policy and of the static action, `[num_roots]`.
        penalty: weight of regressions (lambda).
        worst: share of the roots, those that lose most, whose squared losses are averaged (alpha).
    """
    ratio = rate / base_rate
    gain = -ratio.log().mean()
    lost = (1 - ratio).clamp(min=0).square()
    regressions = lost.topk(max(1, math.ceil(worst * len(lost)))).values.mean()
    return gain + penalty * regressions, gain, regressions


def shared_labels(expected: np.ndarray) -> np.ndarray:
    """Labels in which actions that draft trees of the same law have the mean of their labels.

    Args:
        expected: `[..., len(ACTIONS)]`.
    """
    first = same_chain()
    counts = np.bincount(first, minlength=len(ACTIONS))
    which = np.zeros((len(ACTIONS), len(ACTIONS)))
    which[np.arange(len(ACTIONS)), first] = 1 / counts[first]
    return (expected @ which)[..., first]


def best_static(expected: np.ndarray, seconds: np.ndarray, sampling: Sampling) -> Static:
    """The actions that are best where every root takes the same: in tokens per second, and in tokens per pass.

    Args:
        expected, seconds: at the roots of one sampling, `[num_roots, len(ACTIONS)]`.
    """
    tokens, taken = expected.mean(0), seconds.mean(0)
    found = []
    for places in (range(len(ACTIONS)), [place for place, action in enumerate(ACTIONS) if not action.trunk]):
        found.append(ACTIONS[max(places, key=lambda place: tokens[place] / taken[place])])
        # Of actions that are as good the one that takes the least time.
        found.append(ACTIONS[max(places, key=lambda place: (round(float(tokens[place]), 9), -taken[place]))])
    return Static(sampling.temperature, sampling.top_p, sampling.draft_temperature, *found)


def total_rate(expected: Tensor, seconds: Tensor, chosen: Tensor) -> float:
    """Tokens per second over all roots where each takes the action chosen there, `chosen [num_roots]`."""
    place = chosen[:, None]
    return float(expected.gather(1, place).sum() / seconds.gather(1, place).sum())


def mean_tokens(expected: Tensor, chosen: Tensor) -> float:
    """Expected tokens per pass over all roots."""
    return float(expected.gather(1, torch.as_tensor(chosen)[:, None]).mean())


@dataclass(frozen=True)
class Examples:
    """Roots under each of the samplings, one after another, ready for the network.

    Attributes:
        features: with a row per example; scalars as they are.
        expected: labels, `[num_examples, len(ACTIONS)]`.
        seconds, static_s: modelled time of each action where a selector chooses and where nothing does, the same shape.
        sampling: number of the sampling of each example.
    """

    features: Features
    expected: Tensor
    seconds: Tensor
    static_s: Tensor
    sampling: Tensor

    def __len__(self) -> int:
        return len(self.sampling)


def examples(
    roots: Roots, verifier: str, samplings: Sequence[Sampling], latency: LatencyModel, way: Way
) -> Examples:  # fmt: skip
    """The examples of some roots for one verifier.

    Raises:
        TrainingError: no root is labelled for it outside of text that repeats itself.
    """
    roots = roots.labelled(verifier)
    if not len(roots):
        raise TrainingError(
            f"No root is labelled for {verifier}: make more with --texts, or leave others out of loops."
        )
    count = len(samplings)
    length = roots.length[:, None].repeat(count, 1)
    drawn = np.array([[each.temperature, each.top_p] for each in samplings])[None].repeat(len(roots), 0)
    passes = np.stack([latency.draft_pass_s(length), latency.target_pass_s(length)], -1)
    scalars = np.concatenate([roots.divergences, length[..., None], drawn, passes], -1).reshape(len(roots) * count, -1)
    hidden = [torch.from_numpy(each).repeat_interleave(count, 0)
              for each in (roots.target, roots.draft_previous, roots.draft_root)]  # fmt: skip
    seconds, static_s = (
        torch.from_numpy(latency.action_s(roots.length, way, selecting)).repeat_interleave(count, 0).float()
        for selecting in (True, False)
    )
    labels = shared_labels(roots.expected[verifier].astype(np.float64)).reshape(-1, len(ACTIONS))
    return Examples(
        features=Features(*hidden, torch.from_numpy(scalars).float()),
        expected=torch.from_numpy(labels).float(),
        seconds=seconds,
        static_s=static_s,
        sampling=torch.arange(count).repeat(len(roots)),
    )

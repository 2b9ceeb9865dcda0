"""What a selector reads at a root (appendix E): hidden states, distributions, length, sampling, costs. Torch-free.

At the previous token both models are known; at the root only the draft is, whose first pass reads it anyway.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from decoding.selector.actions import LatencyModel

FLOOR = 1e-8  # a nucleus makes a divergence infinite: below this a probability counts as this in logarithms
TREE = 16  # rows of the pass whose time tells how much more a tree costs than one token

DIVERGENCES = ("target_entropy", "draft_entropy", "root_entropy", "target_to_draft", "draft_to_target", "l1_distance")
CONTEXT = ("log_length", "temperature", "top_p", "draft_temperature")
# Logarithms: another machine is a step to the side, not a value that was never seen.
LATENCIES = ("log_draft_s", "log_target_s", "log_tree_s")
SCALARS: tuple[str, ...] = (*DIVERGENCES, *CONTEXT, *LATENCIES)
# What selectors of version 1 read.
SCALARS_1: tuple[str, ...] = (*DIVERGENCES, "length", "temperature", "top_p", "draft_s", "target_s")


@dataclass(frozen=True)
class Past:
    """What both models say at the end of a text, before anything is drafted.

    Attributes:
        target_feature: of the previous token, `[target_size]`: what the target's output head multiplies there.
        target_probs: the distribution to reproduce after the previous token, `[vocab_size]`.
        draft_features: of the previous token and the root, `[2, draft_size]`.
        draft_probs: after them, what draft tokens are drawn from, `[2, vocab_size]`.
        length: tokens of the text, the root included.
        temperature, top_p, draft_temperature: the sampling.
    """

    target_feature: np.ndarray
    target_probs: np.ndarray
    draft_features: np.ndarray
    draft_probs: np.ndarray
    length: int
    temperature: float
    top_p: float
    draft_temperature: float


class Features(NamedTuple):
    """The inputs of Eq. 10: `target [target_size]`, both of the draft `[draft_size]`, `scalars [num_scalars]`.

    A batch has one more dimension in front of each.
    """

    target: Any
    draft_previous: Any
    draft_root: Any
    scalars: Any


def divergences(target: np.ndarray, previous: np.ndarray, root: np.ndarray) -> list[float]:
    """Entropies of three distributions in nats, and how far the first two are apart: KL both ways, and L1."""
    probs = np.stack((target, previous, root))
    crossed = -(probs @ np.log(np.maximum(probs, FLOOR)).T).astype(float)  # row p, column q: sum of -p log q
    entropies = crossed.diagonal().tolist()
    to_draft, to_target = crossed[0, 1] - entropies[0], crossed[1, 0] - entropies[1]
    return [*entropies, float(to_draft), float(to_target), float(np.abs(probs[0] - probs[1]).sum())]


def scalars_of(
    names: Sequence[str], known: Iterable[Any], context: Mapping[str, Any], latency: LatencyModel
) -> np.ndarray:
    """Scalars by name at one root or many, `[len(names)]` or `[num_roots, len(names)]`.

    Args:
        known: what `divergences` gives, the six of a root or a column for each.
        context: `length`, `temperature`, `top_p` and `draft_temperature`, a number or a column each.
    """
    values = dict(zip(DIVERGENCES, known, strict=True)) | dict(context)
    length = context["length"]
    values["log_length"] = np.log(length)
    if set(names) & {*LATENCIES, "draft_s", "target_s"}:
        values["draft_s"], values["target_s"] = latency.draft_pass_s(length), latency.target_pass_s(length)
        more_s = float(latency.costs.target.seconds(TREE) - latency.costs.target.seconds(1))
        tree_s = values["target_s"] + more_s
        for name, seconds in zip(LATENCIES, (values["draft_s"], values["target_s"], tree_s), strict=True):
            values[name] = np.log(np.maximum(seconds, 1e-9))
    if np.ndim(length) == 0:  # one root while decoding, where every call counts
        return np.array([values[name] for name in names], dtype=float)
    return np.stack([np.broadcast_to(values[name], np.shape(length)) for name in names], -1).astype(float)


def features_of(past: Past, names: Sequence[str], latency: LatencyModel) -> Features:
    """The features at a root, with the costs of passes at this length."""
    context = {name: getattr(past, name) for name in ("length", "temperature", "top_p", "draft_temperature")}
    known = divergences(past.target_probs, *past.draft_probs)
    previous, root = past.draft_features
    return Features(past.target_feature, previous, root, scalars_of(names, known, context, latency))


@dataclass(frozen=True)
class Scaler:
    """Mean and spread of each scalar, `[num_scalars]`: of the roots trained on, and of costs as they are scattered.

    A scalar is cut at `MOST` spreads from its mean: farther out nothing was learned.
    """

    mean: tuple[float, ...]
    spread: tuple[float, ...]

    MOST = 4.0

    @classmethod
    def of(cls, scalars: np.ndarray, names: Sequence[str]) -> "Scaler":
        """The scaler of some roots, `[num_roots, num_scalars]`; what never varies is left as if it had spread 1.

        Logarithms of costs have spread 1 always: what one machine's vary by says nothing of another.
        """
        spread = scalars.std(0)
        fixed = np.array([name in LATENCIES for name in names]) | (spread <= 1e-12)
        return cls(tuple(scalars.mean(0).tolist()), tuple(np.where(fixed, 1.0, spread).tolist()))

    def scaled(self, scalars: np.ndarray) -> np.ndarray:
        """Standardised scalars, the same shape."""
        mean, spread = self._arrays
        return np.minimum(np.maximum((scalars - mean) / spread, -self.MOST), self.MOST)

    @cached_property
    def _arrays(self) -> tuple[np.ndarray, np.ndarray]:
        return np.array(self.mean), np.array(self.spread)

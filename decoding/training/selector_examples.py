"""Labelled roots as a selector learns from them: features, labels and modelled times, a row per root and sampling."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from decoding.common.errors import TrainingError
from decoding.sampling.sampling import Sampling
from decoding.selector.actions import ACTIONS
from decoding.selector.features import Features
from decoding.selector.latency import LatencyModel, Way
from decoding.training.selector_data import Roots
from decoding.training.selector_objective import shared_labels


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

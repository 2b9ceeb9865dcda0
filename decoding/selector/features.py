"""What a selector reads at a root: hidden states and laws of both models there, sampling, length, costs (appendix E).

At the previous token both models are known; at the root only the draft is, whose first pass reads it anyway.
"""

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from decoding.sampling.sampling import Sampling, target_law

FLOOR = 1e-8  # a nucleus makes a divergence infinite: below this a probability counts as this in logarithms


@dataclass(frozen=True)
class Past:
    """What both models say at the end of a text, before anything is drafted.

    Attributes:
        target_feature: of the previous token, `[target_size]`: what the target's output head multiplies there.
        target_logits: after the previous token, `[vocab_size]`.
        draft_features: of the previous token and the root, `[2, draft_size]`.
        draft_laws: after them, that draft tokens are drawn from, `[2, vocab_size]`.
        length: tokens of the text, the root included.
        sampling: of the target.
    """

    target_feature: Tensor
    target_logits: Tensor
    draft_features: Tensor
    draft_laws: Tensor
    length: int
    sampling: Sampling


class Features(NamedTuple):
    """The inputs of Eq. 10: `target [target_size]`, both of the draft `[draft_size]`, `scalars [len(SCALARS)]`.

    A batch has one more dimension in front of each.
    """

    target: Tensor
    draft_previous: Tensor
    draft_root: Tensor
    scalars: Tensor


def features_of(past: Past, draft_s: float, target_s: float) -> Features:
    """The features at a root, float32 on the CPU.

    Args:
        draft_s, target_s: measured seconds of one pass of each model at this length.
    """
    target = target_law(past.target_logits, past.sampling).to(past.draft_laws)
    known = divergences(target, *past.draft_laws)
    rest = [past.length, past.sampling.temperature, past.sampling.top_p, draft_s, target_s]
    previous, root = past.draft_features.float().cpu()
    return Features(past.target_feature.float().cpu(), previous, root, torch.tensor(known + rest))


def divergences(target: Tensor, previous: Tensor, root: Tensor) -> list[float]:
    """Entropies of three laws in nats, and how far the first two are apart: KL both ways, and L1."""
    laws = torch.stack([target, previous, root])
    logs = laws.clamp(min=FLOOR).log()
    crossed = torch.stack([laws[0] * logs[1], laws[1] * logs[0]])
    entropies, cross_entropies = -(laws * logs).sum(-1), -crossed.sum(-1)
    apart = (target - previous).abs().sum()
    return torch.cat([entropies, cross_entropies - entropies[:2], apart[None]]).tolist()

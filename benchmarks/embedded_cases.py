"""What the transform test runs on: small trees of every drafter, sampling settings, and where in a text to start."""

import numpy as np
import torch
from torch import Tensor

from decoding.drafters import (
    DelayedDrafter,
    DynaTreeDrafter,
    DySpecDrafter,
    DySpecThresholdDrafter,
    Eagle2Drafter,
    FixedTreeDrafter,
    HardwareAwareDrafter,
    IIDPathsDrafter,
    LinearDrafter,
    NoDrafter,
    OptTreeDrafter,
    SalfDrafter,
    SequoiaDrafter,
    SpecExecDrafter,
    SpecInferWidthsDrafter,
)
from decoding.drafters.base import Drafter
from decoding.engines.base import Visibility
from decoding.methods.method import fitting
from decoding.models.pair import Model, Pair, tree_forward
from decoding.sampling.sampling import Sampling

SAMPLINGS = {
    "T 0.6": Sampling(temperature=0.6),
    "T 1": Sampling(temperature=1.0),
    "T 1, top-p 0.9": Sampling(temperature=1.0, top_p=0.9),
}
# By the name they have in METHODS.
DRAFTERS: dict[str, Drafter] = {
    "autoregressive": NoDrafter(),
    "linear": LinearDrafter(length=4),
    "linear, sampled": LinearDrafter(length=4, sampled=True),
    "fixed_tree": FixedTreeDrafter(max_depth=2, branching=2, prune_probability=0.01, branch_first_level=True),
    "dynatree": DynaTreeDrafter(
        base_depth=1,
        max_depth=2,
        stop_probability=0.01,
        deep_probability=0.05,
        prune_probability=0.01,
        branch_first_level=True,
        history=False,
    ),
    "dyspec": DySpecDrafter(node_budget=8, max_depth=4),
    "dyspec_threshold": DySpecThresholdDrafter(threshold=0.5, node_budget=8, max_depth=3),
    "specinfer": SpecInferWidthsDrafter(widths="2,2,1"),
    "specinfer, top-k": SpecInferWidthsDrafter(widths="3,2", sampled=False),
    "sequoia": SequoiaDrafter(node_budget=8, max_depth=3, acceptance="0.5,0.3,0.1"),
    "opt_tree": OptTreeDrafter(node_budget=8, gain_threshold=0.0, max_depth=3),
    "eagle2": Eagle2Drafter(node_budget=8, beam_width=3, max_depth=3),
    "hardware_aware": HardwareAwareDrafter(node_budget=8, max_depth=4, verify_ms="1:3 9:4", level_ms="0.3", odds="1 1"),
    "specexec": SpecExecDrafter(node_budget=8, batch=3, max_depth=4),
    "salf": SalfDrafter(node_budget=8, batch=3, gain_threshold=0.3, max_depth=4),
    "iid_paths": IIDPathsDrafter(paths=3, length=3),
    "delayed": DelayedDrafter(paths=3, trunk=1, branch=2),
}
MOST_TOKENS = 5  # no block of these trees is longer
QUICK = ("sequoia", "eagle2", "delayed")  # one for each law of a tree
# Refused pairs whose bias must be noticed, so that silence about the allowed ones means something.
REFUSED = (("sequoia", "specinfer"), ("eagle2", "naive_tree"))

FEWEST_TOKENS, MOST_PROMPT_TOKENS = 8, 512


def verifiers_for(drafter: str, sampling: Sampling) -> list[str]:
    """Verifiers that a drafter is tested with: all that are allowed, and those whose bias is to be noticed."""
    return [*fitting(DRAFTERS[drafter].law, sampling), *(verifier for name, verifier in REFUSED if name == drafter)]


@torch.inference_mode()
def telling_prefix(pair: Pair, text: str) -> list[int]:
    """Tokens of a text up to where a method has most to get wrong, at least `FEWEST_TOKENS` if there are so many.

    Where both models agree nothing is rejected, and where they have nothing in common everything is; where the draft
    is flat, nearly every draw is a new token and the ways to draw and to test hardly differ. With d the total variation
    between the two laws, the prefix has the largest d (1 - d) sum draft^2.
    """
    tokens = pair.vocabulary.encode(text)[:MOST_PROMPT_TOKENS]
    target, draft = _laws(pair.target, tokens), _laws(pair.draft, tokens)
    distance = (target - draft).abs().sum(-1) / 2
    score = distance * (1 - distance) * draft.square().sum(-1)
    first = min(FEWEST_TOKENS, len(tokens)) - 1
    return tokens[: first + int(score[first:].argmax()) + 1]


def _laws(model: Model, tokens: list[int]) -> Tensor:
    """Law after every token, `[len(tokens), vocab_size]`."""
    count = len(tokens)
    cache, mask = model.engine.new_cache(count), Visibility.causal(0, count)
    return torch.softmax(tree_forward(model, cache, tokens, np.arange(count), mask), -1)

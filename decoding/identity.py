"""Is the output token for token that of the reference, and if not, is it a near tie? (Greedy identity.)"""

import copy
from dataclasses import dataclass

import torch

from decoding.pair import Model, Pair

TIE_MARGIN = 1e-4
FLOAT64_LIMIT_BYTES = 2 * 2**30


@dataclass(frozen=True)
class Difference:
    """The first place where two outputs part.

    Attributes:
        position: index into the output, 0-based.
        ours, reference: the two tokens, None where an output had already ended.
        margin: top logit minus second logit of the target there.
        exact: True if the margin is from a float64 forward, False if from the dtype in use.
        explanation: one sentence for a person.
    """

    position: int
    ours: int | None
    reference: int | None
    margin: float
    exact: bool
    explanation: str

    @property
    def near_tie(self) -> bool:
        """True if the target itself is undecided there to within 1e-4."""
        return self.margin <= TIE_MARGIN


def first_difference(ours: tuple[int, ...], reference: tuple[int, ...]) -> int | None:
    """Index of the first differing token, None if the outputs are equal."""
    for position, (a, b) in enumerate(zip(ours, reference, strict=False)):
        if a != b:
            return position
    return None if len(ours) == len(reference) else min(len(ours), len(reference))


class MarginJudge:
    """Measures how decided the target is after a text; keeps a float64 copy of targets that are small enough."""

    def __init__(self, target: Model):
        self.exact = target.info.weight_bytes * 2 <= FLOAT64_LIMIT_BYTES and target.device.type == "cpu"
        self._network = copy.deepcopy(target.network).double() if self.exact else target.network
        self._device = target.device

    @torch.inference_mode()
    def margin(self, tokens: list[int]) -> float:
        """Top logit minus second logit after `tokens`."""
        logits = self._network(input_ids=torch.tensor([tokens], device=self._device), logits_to_keep=1).logits[0, -1]
        top = logits.topk(2).values
        return float(top[0] - top[1])


def explain_difference(
    pair: Pair,
    prompt_ids: list[int],
    ours: tuple[int, ...],
    reference: tuple[int, ...],
    judge: MarginJudge | None = None,
) -> Difference | None:
    """Where two greedy outputs part and how undecided the target is there; None if they are equal."""
    position = first_difference(ours, reference)
    if position is None:
        return None
    judge = judge or MarginJudge(pair.target)
    margin = judge.margin([*prompt_ids, *reference[:position]])
    tokens = [output[position] if position < len(output) else None for output in (ours, reference)]
    texts = ["the end" if token is None else repr(pair.vocabulary.text(token)) for token in tokens]
    how = "in float64" if judge.exact else f"in {pair.target.info.dtype}"
    cause = (
        "a near tie, which rounding decides"
        if margin <= TIE_MARGIN
        else "within the rounding of this dtype"
        if pair.target.info.dtype in ("bfloat16", "float16") and margin < 0.25
        else "not a tie: this needs looking into"
    )
    explanation = (
        f"Token {position + 1} is {texts[0]} instead of {texts[1]}; the target's two best logits there lie "
        f"{margin:.2g} apart {how}: {cause}."
    )
    return Difference(position, tokens[0], tokens[1], margin, judge.exact, explanation)

"""Is the output token for token that of the reference, and if not, is it a near tie? (Greedy identity.)"""

import copy
from dataclasses import dataclass

import numpy as np
import torch

from decoding.common.settings import streamed_rows
from decoding.engines.base import Visibility
from decoding.models.loading import free_bytes, is_offloaded
from decoding.models.pair import Model, Pair
from decoding.trace.metrics import shared_tokens

TIE_MARGIN = 1e-4
FLOAT64_LIMIT_BYTES = 2 * 2**30
FLOAT32_MEMORY_SHARE = 0.8
# How far below the best logit a 16-bit forward may choose: logits near 16 are 0.06 to 0.12 apart in bfloat16, and a
# tree pass rounds in another order than a causal one.
HALF_PRECISION_MARGIN = 0.25


@dataclass(frozen=True)
class OutputDifference:
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
    return None if ours == reference else shared_tokens(ours, reference)


class MarginJudge:
    """Measures how decided the target is after a text, in a wider dtype than the target's where memory allows.

    Attributes:
        dtype: float64 for small targets on a CPU, else float32 where a copy fits, else the target's own.
        exact: whether that is float64.
    """

    def __init__(self, target: Model):
        parameters = sum(weight.numel() for weight in target.network.parameters())
        # A window of attention is no distribution of the network: only the engine itself can say what it prefers.
        self._windowed = target.engine if streamed_rows(target.info.engine) is not None else None
        self.dtype = target.dtype if self._windowed else _judging_dtype(target, parameters)
        self.exact = self.dtype == torch.float64
        own = self.dtype == target.dtype
        self._network = target.network if own else copy.deepcopy(target.network).to(self.dtype)
        self._device = target.device

    @torch.inference_mode()
    def margin(self, tokens: list[int]) -> float:
        """Top logit minus second logit after `tokens`."""
        if self._windowed is not None:
            count, engine = len(tokens), self._windowed
            seen = engine.mask(Visibility(0, np.tri(count, dtype=bool)))
            logits = engine.run(engine.new_cache(count), np.array(tokens), np.arange(count), seen, 1)[0]
        else:
            ids = torch.tensor([tokens], device=self._device)
            logits = self._network(input_ids=ids, logits_to_keep=1).logits[0, -1]
        top = logits.topk(2).values
        return float(top[0] - top[1])

    @torch.inference_mode()
    def shortfall(self, prompt_ids: list[int], output_ids: tuple[int, ...]) -> float:
        """How far below the best logit the worst token of an output lies; 0 where each is the target's favourite."""
        ids = torch.tensor([[*prompt_ids, *output_ids]], device=self._device)
        logits = self._network(input_ids=ids, logits_to_keep=len(output_ids) + 1).logits[0, :-1]
        chosen = logits.gather(1, ids[0, len(prompt_ids) :, None].to(logits.device))
        return float((logits.amax(-1, keepdim=True) - chosen).max())


def _judging_dtype(target: Model, parameters: int) -> torch.dtype:
    if is_offloaded(target.network):  # its weights come over one layer at a time, and a copy's would not
        return target.dtype
    if target.device.type == "cpu" and 8 * parameters <= FLOAT64_LIMIT_BYTES:
        return torch.float64
    free = free_bytes(str(target.device))
    if target.dtype.itemsize < 4 and free is not None and 4 * parameters < FLOAT32_MEMORY_SHARE * free:
        return torch.float32
    return target.dtype


def explain_difference(
    pair: Pair,
    prompt_ids: list[int],
    ours: tuple[int, ...],
    reference: tuple[int, ...],
    judge: MarginJudge,
) -> OutputDifference | None:
    """Where two greedy outputs part and how undecided the target is there; None if they are equal."""
    position = first_difference(ours, reference)
    if position is None:
        return None
    margin = judge.margin([*prompt_ids, *reference[:position]])
    tokens = [output[position] if position < len(output) else None for output in (ours, reference)]
    texts = ["the end" if token is None else repr(pair.vocabulary.text(token)) for token in tokens]
    how = f"in {str(judge.dtype).removeprefix('torch.')}"
    cause = (
        "a near tie, decided by rounding"
        if margin <= TIE_MARGIN
        else "within the rounding of this dtype"
        if pair.target.info.dtype in ("bfloat16", "float16") and margin < HALF_PRECISION_MARGIN
        else "not a tie: this needs investigation"
    )
    explanation = (
        f"Token {position + 1} is {texts[0]} instead of {texts[1]}; the target's top two logits there are "
        f"{margin:.2g} apart {how}: {cause}."
    )
    return OutputDifference(position, tokens[0], tokens[1], margin, judge.exact, explanation)

"""The held-out prompt drafted by a pair that is still in training."""

from pathlib import Path

import transformers
from transformers import GPTNeoXForCausalLM

from decoding.methods.methods import METHODS
from decoding.models.pair import load_pair, release
from decoding.models.presets import PairSettings
from decoding.sampling.sampling import Sampling
from decoding.session.session import DecodeSession, Limits
from decoding.trace.records import RunTrace
from decoding.training.pair_models import save_network
from decoding.training.pair_tokenizer import END_ID
from decoding.training.token_arrays import TokenArrays

METHOD = "dynatree"
PROMPT_TOKENS, NEW_TOKENS = 48, 24


def held_out_prompt(arrays: TokenArrays) -> list[int]:
    """The beginning of what is held out of the kind with the most text."""
    kind = max(arrays.kinds, key=lambda kind: len(arrays.trained[kind]))
    return [int(token) for token in arrays.held_out[kind][: PROMPT_TOKENS + 1] if token != END_ID][:PROMPT_TOKENS]


def drafted(
    target: GPTNeoXForCausalLM, draft: GPTNeoXForCausalLM, arrays: TokenArrays, tokenizer: Path, place: Path
) -> RunTrace:
    """A short greedy run of both networks as they are, which are stored below `place` for it.

    Raises:
        TrainingError: the disk is full, or the place cannot be written.
    """
    transformers.logging.set_verbosity_error()
    for name, network in (("target", target), ("draft", draft)):
        save_network(network, tokenizer, place / name)
    pair = load_pair(PairSettings(target=str(place / "target"), draft=str(place / "draft"), device="cpu"))
    try:
        limits = Limits(NEW_TOKENS, ignore_end_of_text=True)
        session = DecodeSession(pair, METHODS[METHOD], held_out_prompt(arrays), Sampling(), limits)
        for _ in session:
            pass
        return session.trace()
    finally:
        release(pair)

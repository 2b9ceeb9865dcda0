"""What turns a model's features into logits: its output head, and what the model does to the product behind it."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from decoding.common.errors import PairError
from decoding.common.forward_errors import FORWARD_ERRORS, TOLERANCE, is_out_of_memory

# What a configuration may say that its model does to the product: (name of the setting, function of product and value).
_BEHIND_THE_PRODUCT = (
    ("final_logit_softcapping", lambda product, cap: torch.tanh(product / cap) * cap),
    ("logits_scaling", lambda product, scale: product / scale),
    ("logit_scale", lambda product, scale: product * scale),
    ("lm_head_multiplier", lambda product, scale: product * scale),
)


class OutputHead:
    """Features `[num_rows, hidden_size]` to raw logits `[num_rows, vocab_size]`, exactly as a transformers model does.

    Args:
        network: tried once with a few tokens: the head's product, with what its configuration says is done to it, must
            give the model's own logits.
        name: the model, for the message.

    Raises:
        PairError: the model has no output head that multiplies a hidden state, or does something unknown behind it.
    """

    def __init__(self, network: Any, name: str):
        self._head = network.get_output_embeddings()
        self._behind = None
        vocab = network.config.get_text_config().vocab_size
        weight = network.get_input_embeddings().weight
        ids = torch.arange(1, 10, 2, device="cpu" if weight.is_meta else weight.device)[None] * vocab // 10
        if self._head is None:
            raise _no_features(name)
        try:
            with torch.inference_mode(), watched(self._head) as seen:
                logits = network(input_ids=ids).logits[0]
            self._behind = self._found(network.config.get_text_config(), seen, logits)
        except FORWARD_ERRORS as error:
            if is_out_of_memory(error):
                raise
            raise _no_features(name) from error
        if self._behind is None:
            raise _no_features(name)

    def __call__(self, features: Tensor) -> Tensor:
        function, value = self._behind
        product = self._head(features)
        return product if function is None else function(product, value)

    @property
    def module(self) -> Any:
        """The module whose input the features are."""
        return self._head

    def _found(self, config: Any, seen: list[Tensor], logits: Tensor) -> tuple | None:
        """The function that makes logits of the product, with its number; None where no known one does."""
        if len(seen) != 1 or seen[0].dim() != 3 or seen[0].shape[1] != len(logits):
            return None
        told = [(function, getattr(config, name, None)) for name, function in _BEHIND_THE_PRODUCT]
        with torch.inference_mode():
            product = self._head(seen[0][0])
            for function, value in [(None, None), *((f, v) for f, v in told if v)]:
                made = product if function is None else function(product, value)
                error = (made.float().log_softmax(-1) - logits.to(made.device).float().log_softmax(-1)).abs().max()
                # A cap changes small logits by little: it is left out only where it changes nothing.
                exact = 1e-5 if product.dtype == torch.float32 else TOLERANCE.get(product.dtype, 2e-1) / 10
                if float(error) <= exact:
                    return function, value
        return None


@contextmanager
def watched(head: Any, project: int | None = None) -> Iterator[list[Tensor]]:
    """Note what the output head of a model is given meanwhile by this thread, each `[1, num_rows, hidden_size]`.

    Args:
        project: give the head only the last so many rows of it; None: all.
    """
    seen: list[Tensor] = []
    thread = threading.get_ident()

    def note(_module: Any, args: tuple) -> tuple | None:
        if threading.get_ident() != thread:
            return None
        seen.append(args[0])
        return None if project is None else (args[0][:, -project:], *args[1:])

    handle = head.register_forward_pre_hook(note, prepend=True)
    try:
        yield seen
    finally:
        handle.remove()


def _no_features(name: str) -> PairError:
    return PairError(
        f"{name} is a target without hidden states that its output head multiplies, which a draft head reads; "
        "choose a model such as Pythia, Llama, Qwen2.5 or GPT-2."
    )

"""What a forward pass can fail with, and how far rounding may move its log-probabilities."""

import torch

from decoding.common.errors import MEMORY_SIGNS

# Largest difference of log-probabilities between a tree forward and plain forwards that rounding explains.
TOLERANCE = {torch.float32: 2e-3, torch.float16: 5e-2, torch.bfloat16: 2e-1}
FORWARD_ERRORS = (
    TypeError,
    ValueError,
    ArithmeticError,
    RuntimeError,
    LookupError,
    AttributeError,
    NotImplementedError,
    AssertionError,
)


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an error of any device means that memory ran out."""
    text = str(error).lower()
    return isinstance(error, (MemoryError, torch.OutOfMemoryError)) or (
        isinstance(error, RuntimeError) and any(sign in text for sign in MEMORY_SIGNS)
    )

"""What a user can do wrong: each error says in one sentence what is wrong and what to do about it."""

# How devices word it when memory runs out (CUDA and MPS, the CPU allocator, cuBLAS), in lower case.
MEMORY_SIGNS = ("out of memory", "can't allocate memory", "not enough memory", "cublas_status_alloc_failed")

NEEDS_TORCH = "Decoding needs torch: pip install -r requirements.txt."


class DraftscopeError(Exception):
    """An error whose message is written for the person at the screen."""


class PromptError(DraftscopeError):
    """The prompt is empty or does not fit the context."""


class PairError(DraftscopeError):
    """A draft/target pair cannot be loaded or cannot work together."""


class OutOfMemoryError(DraftscopeError):
    """A device has no room for the models or their caches."""


class TrainingError(DraftscopeError):
    """A training cannot begin, go on or be kept: its text, its checkpoint, its pair or the disk does not allow it."""


class ExperimentError(DraftscopeError):
    """A grid of experiments, its rows or a set of prompts cannot be used."""


class TorchMissingError(DraftscopeError):
    """Something is to be computed on a machine without torch."""


class TraceFileError(DraftscopeError):
    """A trace file is damaged, foreign, too large or of another version."""


class SettingsError(DraftscopeError, ValueError):
    """A setting is out of its range or contradicts another; the message names it and the accepted range."""


def require(condition: bool, message: str) -> None:
    """Raise `SettingsError(message)` unless `condition` holds."""
    if not condition:
        raise SettingsError(message)

"""Errors for the user: each message says in one sentence what is wrong and how to fix it."""

import os
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from typing import NoReturn, ParamSpec

# Out-of-memory messages of CUDA, MPS, the CPU allocator and cuBLAS, in lower case.
MEMORY_SIGNS = ("out of memory", "can't allocate memory", "not enough memory", "cublas_status_alloc_failed")

NEEDS_TORCH = "This computation needs torch, which is not installed: pip install -r requirements.txt."
TORCH_PACKAGES = ("torch", "transformers", "safetensors")  # needed for computation
P = ParamSpec("P")
# Exit codes of commands: stopped, out of memory or failed; refused.
ENDED, REFUSED = 1, 2


class DraftscopeError(Exception):
    """An error whose message is written for the person at the screen."""


class PromptError(DraftscopeError):
    """The prompt is empty or does not fit the context."""


class PairError(DraftscopeError):
    """A draft/target pair cannot be loaded or cannot work together."""


class OutOfMemoryError(DraftscopeError):
    """A device has no room for the models or their caches."""


class TrainingError(DraftscopeError):
    """A training run cannot start, resume or be saved because of its text, its checkpoint or its pair."""


class ExperimentError(DraftscopeError):
    """A grid of experiments, its results or a set of prompts cannot be used."""


class JobError(DraftscopeError):
    """A training, sweep or benchmark cannot be started, stopped, resumed or deleted."""


class DiskError(DraftscopeError):
    """A disk is full, or a file cannot be written to it."""


class TorchMissingError(DraftscopeError):
    """A computation was requested on a machine without torch."""


class TraceFileError(DraftscopeError):
    """A trace file is damaged, too large, of another version or not a trace."""


class EngineMetricsError(DraftscopeError):
    """What an inference engine says about its speculative decoding is foreign, damaged, empty or too large."""


class SettingsError(DraftscopeError, ValueError):
    """A setting is out of its range or contradicts another; the message names it and the accepted range."""


def require(condition: bool, message: str) -> None:
    """Raise `SettingsError(message)` unless `condition` holds."""
    if not condition:
        raise SettingsError(message)


def is_torch_missing(error: BaseException) -> bool:
    """Whether an import failed because torch or one of its packages is not installed."""
    return isinstance(error, ModuleNotFoundError) and error.name in TORCH_PACKAGES


@contextmanager
def needing_torch() -> Iterator[None]:
    """Import torch inside this context; raises `TorchMissingError` where it is not installed."""
    try:
        yield
    except ModuleNotFoundError as error:
        if not is_torch_missing(error):
            raise
        raise TorchMissingError(NEEDS_TORCH) from error


def is_failure(error: BaseException) -> bool:
    """Whether a library failed; a panic in a Rust extension is not an `Exception`."""
    return isinstance(error, Exception) or type(error).__name__ == "PanicException"


# Python spellings and what JSON files and people write instead.
PLAIN = {r"\bNone\b": "null", r"\bTrue\b": "true", r"\bFalse\b": "false", r"<class '([\w.]+)'>": r"\1"}
KINDS = {"int": "a whole number", "float": "a number", "bool": "true or false", "str": "a string"}
FIELD = re.compile(r"Field '([\w.]+)' (?:expected (\w+), got \w+ \(value: (.*)\)|with value (.*?) doesn't match)")


def printable(text: str) -> str:
    """A text from a file as it may stand in a sentence or on a terminal."""
    return "".join(char if char.isprintable() else "?" for char in text)


def first_line(error: BaseException) -> str:
    """The message of a library error in one line of plain text; of a wrapper, the message of the error it wraps."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()] or [type(error).__name__]
    if "alidation error for" in lines[0] and len(lines) > 1:
        lines = lines[1:]
    line = re.sub(r"^(?:\w*(?:Error|Exception)|\w+ error|Error while \w+ \w+): ", "", lines[0]).rstrip(".")
    if isinstance(error, KeyError):
        line = line.strip("'\"")
        line = f"{line} is unknown" if " " not in line else line
    if field := FIELD.match(line):
        line = f"{field[1]} is {field[3] or field[4]}"
        line += f", which is not {KINDS[field[2]]}" if field[2] in KINDS else ", which is not allowed"
    line = re.sub(r"(, expected|[.;:] Choose) one of\b.*", "", line)  # dozens of names
    for python, plain in PLAIN.items():
        line = re.sub(python, plain, line)
    return line if len(line) <= 200 else f"{line[:197]}..."


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an error of any device means that memory ran out; torch is not imported to find out."""
    named = type(error).__name__ == "OutOfMemoryError" or any(sign in str(error).lower() for sign in MEMORY_SIGNS)
    return isinstance(error, MemoryError) or (isinstance(error, RuntimeError) and named)


def print_error(message: object, after_progress: bool = False) -> None:
    """Print a sentence about an error, on a terminal below a line of progress that may stand there."""
    below = after_progress and sys.stderr.isatty()
    print(f"\nerror: {message}" if below else f"error: {message}", file=sys.stderr)


def command(main: Callable[P, int], undone: str = "") -> Callable[P, int]:
    """A command that returns its exit code: user errors are printed in one sentence.

    One that makes something and shows progress says what is `undone` where Ctrl+C interrupts it: then that end, and one
    for want of memory, is no refusal but `ENDED`.
    """

    @wraps(main)
    def run(*args: P.args, **kwargs: P.kwargs) -> int:
        try:
            with needing_torch():
                code = main(*args, **kwargs)
            sys.stdout.flush()
            return code
        except KeyboardInterrupt:
            if not undone:
                raise
            print_error(f"Interrupted: {undone}.", after_progress=True)
            return ENDED
        except DraftscopeError as error:
            print_error(error, after_progress=bool(undone))
            return ENDED if undone and isinstance(error, OutOfMemoryError) else REFUSED
        except BrokenPipeError:
            try:
                print(flush=True)
            except BrokenPipeError:  # `| head` has read enough; what is still buffered has nowhere to go
                os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
                return 0
            raise  # another pipe broke: to a process of the command's own

    return run


def run_main(main: Callable[[], int]) -> NoReturn:
    """Run a command without warnings from transformers and exit with its exit code."""

    @command
    def quietly() -> int:
        from transformers.utils import logging

        logging.set_verbosity_error()
        return main()

    sys.exit(quietly())

"""How a command ends: with its exit code, or with one sentence on what the user can do."""

import sys
from collections.abc import Callable
from typing import NoReturn

from decoding.common.errors import NEEDS_TORCH, DraftscopeError

REFUSED = 2  # exit code of what cannot be done


def run_command(main: Callable[[], int]) -> int:
    """The exit code of a command; what a user can do wrong is said in one sentence."""
    try:
        return main()
    except DraftscopeError as error:
        print(f"error: {error}", file=sys.stderr)
    except ModuleNotFoundError as error:
        if error.name not in ("torch", "transformers", "safetensors"):
            raise
        print(f"error: {NEEDS_TORCH}", file=sys.stderr)
    return REFUSED


def run_main(main: Callable[[], int]) -> NoReturn:
    """Run a command, transformers without its warnings, and end with its exit code."""

    def quietly() -> int:
        from transformers.utils import logging

        logging.set_verbosity_error()
        return main()

    sys.exit(run_command(quietly))

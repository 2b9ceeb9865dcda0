"""How a command ends: with its exit code, or with one sentence on what the user can do."""

import sys
from collections.abc import Callable
from typing import NoReturn

from transformers.utils import logging

from decoding.common.errors import DraftscopeError


def run_main(main: Callable[[], int]) -> NoReturn:
    """Run a command; what a user can do wrong is said in one sentence, with exit code 2."""
    logging.set_verbosity_error()
    try:
        code = main()
    except DraftscopeError as error:
        print(f"error: {error}", file=sys.stderr)
        code = 2
    sys.exit(code)

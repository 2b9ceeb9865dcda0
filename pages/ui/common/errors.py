"""What goes wrong is told in one sentence, and the run on screen stays."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from uuid import uuid4

import streamlit as st
from streamlit import error_util

from decoding.common.errors import (
    MEMORY_SIGNS,
    NEEDS_TORCH,
    DraftscopeError,
    OutOfMemoryError,
    SettingsError,
    TorchMissingError,
    is_torch_missing,
)
from pages.ui.common.sentences import as_labelled, on_page

OUT_OF_MEMORY = (
    "The device ran out of memory: shorten the prompt, lower node_budget or max_new_tokens, or load a smaller pair."
)
UNEXPECTED = (
    "Something unexpected went wrong ({kind}); the details are in the server's log. Try again or reload the page."
)


def show_error(error: BaseException, place=None) -> None:
    """Show an error as one sentence, in `place` (default: here)."""
    (place or st).error(sentence(error), icon=":material/error:")


def sentence(error: BaseException) -> str:
    """What to say about an error: its own words if they were written for the screen, escaped for Markdown."""
    if isinstance(error, SettingsError):
        return escape_markdown(as_labelled(on_page(str(error))))
    if isinstance(error, DraftscopeError):
        return escape_markdown(on_page(str(error)))
    if is_out_of_memory(error):
        return OUT_OF_MEMORY
    if is_torch_missing(error):
        return escape_markdown(NEEDS_TORCH)
    return UNEXPECTED.format(kind=type(error).__name__)


def word_uncaught_errors() -> None:
    """Have Streamlit say what nothing caught - in a page, a fragment or a callback - in a sentence of ours.

    Its own box names the exception's class and offers links to search for it outside. It writes the log before this.
    """
    error_util.show_uncaught_app_exception = _draw_uncaught


def _draw_uncaught(error: BaseException) -> None:
    """The sentence, and a way to go on: after a failed callback nothing else of the page is drawn."""
    show_error(error)
    st.button("Draw the page again", key=f"draw_again_{uuid4().hex}", icon=":material/refresh:")


def as_draftscope_error(error: BaseException) -> DraftscopeError | None:
    """The error as one that can be shown, None if it is a defect of the program."""
    if isinstance(error, DraftscopeError):
        return error
    if is_torch_missing(error):
        return TorchMissingError(NEEDS_TORCH)
    return OutOfMemoryError(OUT_OF_MEMORY) if is_out_of_memory(error) else None


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an error says that a device is full; torch is not imported to find out."""
    if isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError":
        return True
    return isinstance(error, RuntimeError) and any(sign in str(error).lower() for sign in MEMORY_SIGNS)


@contextmanager
def guarded(place=None) -> Iterator[None]:
    """Show what a user can do wrong as one sentence and go on after the block; defects pass through.

    with guarded():
        method = method.with_settings(**values)
    """
    try:
        yield
    except (DraftscopeError, RuntimeError, MemoryError, ModuleNotFoundError) as error:
        known = as_draftscope_error(error)
        if known is None:
            raise
        show_error(known, place)


# What the browser rewrites after escapes are taken away; a joiner without width inside keeps it as it is.
REWRITTEN = re.compile(
    r"(?<=https:)(?=//)|(?<=http:)(?=//)|(?<=www)(?=\.)|(?<=@)"  # addresses become links
    r"|(?<=:)(?=[\w+-][\w+/-]*:)"  # :streamlit:, :material/name: and the names of emoji become pictures
    r"|(?:(?<=\s[-<>~])|(?<=^[-<>~]))(?=(?:->|[->=])(?:\s|$))",  # words of such signs become arrows, dashes and ≥
    re.IGNORECASE,
)
JOINER = "\u2060"


def escape_markdown(text: str) -> str:
    """Text for `st.error`, `st.markdown`, labels and captions that shows as written: file and model names are data."""
    text = REWRITTEN.sub(JOINER, text)
    return "".join(f"\\{char}" if char in r"\`*_{}[]<>()#+-!|$:~" else char for char in text.replace("\n", " "))

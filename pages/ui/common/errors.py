"""Errors, and features that need torch, are reported in one sentence, and the run on screen stays.

Sentences of the engine and of commands name settings and options as their widgets do: a page has no
`--out` and no `--resume`.
"""

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from uuid import uuid4

import streamlit as st
from streamlit import error_util

from decoding.common.errors import (
    NEEDS_TORCH,
    TORCH_PACKAGES,
    DraftscopeError,
    OutOfMemoryError,
    SettingsError,
    TorchMissingError,
    is_out_of_memory,
    is_torch_missing,
)
from decoding.common.settings import SettingInfo, settings_of
from decoding.training.command import FIELDS

OUT_OF_MEMORY = (
    "The device ran out of memory: shorten the prompt, lower node_budget or max_new_tokens, or load a smaller pair."
)
WITHOUT = "Without it, recorded and opened runs can still be viewed, compared and exported on Step through."
UNEXPECTED = "Unexpected error ({kind}); the details are in the server's log. Try again or reload the page."


def show_error(error: BaseException, place=None) -> None:
    """Show an error as one sentence, in `place` (default: here)."""
    (place or st).error(sentence(error), icon=":material/error:")


def sentence(error: BaseException) -> str:
    """The sentence for an error: its own text if written for the screen, escaped for Markdown."""
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
    """Have Streamlit report uncaught errors - in a page, a fragment or a callback - in our own sentence.

    Its own box names the exception's class and offers links to search for it outside. It writes the log before this.
    """
    error_util.show_uncaught_app_exception = _draw_uncaught


def _draw_uncaught(error: BaseException) -> None:
    """The sentence and a button to redraw: after a failed callback nothing else of the page is drawn."""
    show_error(error)
    st.button("Redraw the page", key=f"draw_again_{uuid4().hex}", icon=":material/refresh:")


def as_draftscope_error(error: BaseException) -> DraftscopeError | None:
    """The error as one that can be shown, None if it is a defect of the program."""
    if isinstance(error, DraftscopeError):
        return error
    if is_torch_missing(error):
        return TorchMissingError(NEEDS_TORCH)
    return OutOfMemoryError(OUT_OF_MEMORY) if is_out_of_memory(error) else None


@contextmanager
def guarded(place=None) -> Iterator[None]:
    """Show user errors as one sentence and continue after the block; defects pass through.

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


# What the browser rewrites once escapes are removed; a zero-width joiner inside prevents it.
REWRITTEN = re.compile(
    r"(?<=https:)(?=//)|(?<=http:)(?=//)|(?<=www)(?=\.)|(?<=@)"  # addresses become links
    r"|(?<=:)(?=[\w+-][\w+/-]*:)"  # :streamlit:, :material/name: and the names of emoji become pictures
    r"|(?:(?<=\s[-<>~])|(?<=^[-<>~]))(?=(?:->|[->=])(?:\s|$))",  # words of such signs become arrows, dashes and ≥
    re.IGNORECASE,
)
JOINER = "\u2060"


def escape_markdown(text: str) -> str:
    """Text shown literally by `st.error`, `st.markdown`, labels and captions: file and model names are data."""
    text = REWRITTEN.sub(JOINER, text)
    return "".join(f"\\{char}" if char in r"\`*_{}[]<>()#+-!|$:~" else char for char in text.replace("\n", " "))


@cache
def torch_there() -> bool:
    """Whether torch and its companions are installed; imports nothing."""
    return all(find_spec(package) is not None for package in TORCH_PACKAGES)


def need_torch() -> bool:
    """Say what a page that computes needs; True if it is installed and the page can continue."""
    if not torch_there():
        st.info(escape_markdown(f"{NEEDS_TORCH} {WITHOUT}"), icon=":material/info:")
    return torch_there()


def load_torch() -> None:
    """Load what the widgets of methods need: only the first page after the server starts waits, and says for what."""
    if torch_there():
        with st.spinner("Loading torch, a few seconds"):  # always drawn, or what follows would be remounted
            import_module("decoding.methods.methods")


def why_not(help_text: str) -> str:
    """Help for a control that is disabled without torch: what it needs, else its own help."""
    return help_text if torch_there() else escape_markdown(NEEDS_TORCH)


# Settings of a call, whose widgets are not a method's.
CALL_LABELS = {"draft_temperature": "Draft temperature", "top_p": "Top-p", "max_new_tokens": "Maximum new tokens"}


@cache
def known_settings() -> Mapping[str, SettingInfo]:
    """Every setting of every drafter, verifier and method by name; settings of one name share their text.

    They are defined next to the code that computes: none is known without torch.
    """
    if not torch_there():
        return {}
    from decoding.drafters import DRAFTERS
    from decoding.methods.method import Method
    from decoding.verifiers import VERIFIERS

    known: dict[str, SettingInfo] = {}
    for kind in (*DRAFTERS.values(), *VERIFIERS.values(), Method):
        known |= settings_of(kind)
    return known


def info_of(name: str) -> SettingInfo:
    """Label and help of a setting; its name alone where it is unknown."""
    return known_settings().get(name) or SettingInfo(None, name.replace("_", " ").capitalize(), name=name)


def as_labelled(sentence: str) -> str:
    """A sentence of the engine with settings named as their widgets name them: `“Children, confident (B_min)”`."""

    def label(found: re.Match) -> str:
        name, opening = found.groups()
        if name in CALL_LABELS:
            return f"“{CALL_LABELS[name]}”{opening}"
        info = info_of(name)
        # In brackets follows the symbol, or the value with it.
        return f"“{info.label}”{opening}" if opening else f"“{info.title}”"

    names = "|".join(name for name in (*known_settings(), *CALL_LABELS) if "_" in name)
    return re.sub(rf"\b({names})\b( \(|)", label, sentence)


# Phrases about the command line, and what a page says instead; longer ones first.
PHRASES = (
    (
        r"(cannot be written \([^)]*\)): choose another --out",
        r"\1: make it writable, or name another folder in DRAFTSCOPE_TRAINING or DRAFTSCOPE_EXPERIMENTS",
    ),
    (r"continue with --resume or choose another --out", "resume it or start a new one"),
    (r"start (?:the training )?again in another --out", "start a new training"),
    (r"move it or choose another --out", "move it away and start again"),
    (r"choose another --out", "start a new one"),
    (r"continue with --resume", "resume it to continue"),
    (r"start the training without --resume", "start a new training"),
    (r"start one with --out .+?(?=\.?$)", "start a new one"),
    (r"name (?:an empty|another) folder with --(?:prepared|data)", "move its files away and start again"),
    (r"choose another --start-from", "choose another one to start from"),
    (r"load the pair with --dtype bfloat16", "load the pair in bfloat16"),
    (r"resume it without", "resume it"),
    (r"run its benchmark with --save", "run its benchmark again"),
    (r"pip install ray, or omit --ray", "pip install ray"),
)
LABELS = {field.flag: f"“{field.label}”" for fields in FIELDS.values() for field in fields}


def on_page(sentence: str) -> str:
    """The sentence for a page: command-line options become the names of their widgets."""
    for said, instead in PHRASES:
        sentence = re.sub(said, instead, sentence)
    # Only options of a training are replaced: a command to type, such as `hf download`, keeps its own.
    return re.sub(r"--[a-z][a-z-]+", lambda found: LABELS.get(found[0], found[0]), sentence)

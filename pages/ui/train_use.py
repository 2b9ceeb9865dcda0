"""Where the result of a finished training can be used, with a button that goes there."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import streamlit as st

from decoding.errors import DraftscopeError
from decoding.presets import PairSettings
from decoding.training.follow import Followed
from pages.ui.errors import show_error
from pages.ui.menu import PAGES
from pages.ui.models import manager
from pages.ui.torch_there import torch_there, why_not
from pages.ui.worker import run_now

if TYPE_CHECKING:
    from decoding.method import Method

RESULTS = {"head": "head", "selector": "selector", "embedded": "out/draft"}


def use_words(followed: Followed) -> str:
    """Where the result of a finished training is found, empty where there is none."""
    if not _result(followed):
        return ""
    name = followed.folder.path.name
    if followed.kind == "head":
        return f"The head drafts for every tree method with the target of {_pair_name(followed)}: draft_head={name}."
    if followed.kind == "selector":
        return f"The selector shapes delayed trees of {_pair_name(followed)}: selector={name}."
    return f"The pair is ready in {followed.folder.path / 'out'}."


def use_button(followed: Followed) -> None:
    """A button that goes where the result of a finished training is used; nothing where there is none."""
    if not _result(followed):
        return
    name = followed.folder.path.name
    if followed.kind == "head":
        _compare_button("eagle2", draft_head=name)
    elif followed.kind == "selector":
        _compare_button("delayed", verifier=str(followed.settings.settings["verifier"]), selector=name)
    elif st.button(
        "Load this pair", key="train_load", type="primary", disabled=not torch_there(), icon=":material/memory:",
        help=why_not("It takes the place of the pair in memory, and every page uses it."),
    ):  # fmt: skip
        _load(*(followed.folder.path / "out" / role for role in ("target", "draft")))


def _result(followed: Followed) -> bool:
    place = RESULTS.get(followed.kind)
    return place is not None and (followed.folder.path / place).is_dir()


def _load(target: Path, draft: Path) -> None:
    models, settings = manager(), PairSettings(target=str(target), draft=str(draft))
    try:
        run_now("Loading the trained pair", lambda job: models.load(settings), alone=True)
    except DraftscopeError as error:
        show_error(error)
        return
    st.switch_page(PAGES["Step through"])


def _compare_button(method_name: str, verifier: str = "", **result: str) -> None:
    """A button that puts a method with and without the result, and plain decoding, on the page Compare.

    Args:
        verifier: of both, where the result serves one alone.
        result: the setting that names it.
    """
    if not st.button(
        "Use in Compare", key="train_use", type="primary", disabled=not torch_there(), icon=":material/compare_arrows:",
        help=why_not("Plain decoding, the method as it is and with this result stand ready there."),
    ):  # fmt: skip
        return
    from decoding.methods import METHODS

    method = METHODS[method_name]
    if verifier:
        method = method.with_settings(verifier=verifier)
        if not st.session_state.get("sampling_temperature"):
            st.session_state["sampling_temperature"] = 1.0  # under greedy decoding all verifiers do the same
    place_contestants([METHODS["autoregressive"], method, method.with_settings(**result)])
    st.switch_page(PAGES["Compare"])


def place_contestants(methods: "Sequence[Method]") -> None:
    """Have these methods, with their settings, stand ready on Compare."""
    from pages.ui.contestants import COMPARE, add_slot
    from pages.ui.controls import set_method

    st.session_state["compare_slots"] = []
    for method in methods:
        set_method(add_slot(COMPARE, method.name), method)


def _pair_name(followed: Followed) -> str:
    return str(followed.settings.pair.get("name", "its pair")) if followed.settings is not None else "its pair"

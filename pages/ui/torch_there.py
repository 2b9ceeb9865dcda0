"""Whether this machine can decode: without torch, recorded and opened runs are all there is, and pages say so."""

from functools import lru_cache
from importlib.util import find_spec

import streamlit as st

from decoding.errors import NEEDS_TORCH
from pages.ui.errors import escape_markdown

PACKAGES = ("torch", "transformers", "safetensors")
WITHOUT = "Recorded and opened runs can be looked at without it, on Step through."


@lru_cache(maxsize=1)
def torch_there() -> bool:
    """Whether what decodes is installed; nothing is imported to find out."""
    return all(find_spec(package) is not None for package in PACKAGES)


def need_torch() -> bool:
    """Say what a page that runs or replays models needs; True if it is there and the page can go on."""
    if not torch_there():
        st.info(escape_markdown(f"{NEEDS_TORCH} {WITHOUT}"), icon=":material/info:")
    return torch_there()

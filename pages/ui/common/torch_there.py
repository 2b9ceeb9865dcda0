"""Whether this machine can compute: without torch, recorded and opened runs are all there is, and pages say so.

need_torch()                                     # in the place of what cannot be shown
st.button(..., disabled=not torch_there(), help=why_not("What it does"))
"""

from functools import lru_cache
from importlib.util import find_spec

import streamlit as st

from decoding.common.errors import NEEDS_TORCH, TORCH_PACKAGES
from pages.ui.common.errors import escape_markdown

WITHOUT = "Recorded and opened runs can be looked at, compared and exported without it, on Step through."


@lru_cache(maxsize=1)
def torch_there() -> bool:
    """Whether what computes is installed; nothing is imported to find out."""
    return all(find_spec(package) is not None for package in TORCH_PACKAGES)


def need_torch() -> bool:
    """Say what a page that computes needs; True if it is there and the page can go on."""
    if not torch_there():
        st.info(escape_markdown(f"{NEEDS_TORCH} {WITHOUT}"), icon=":material/info:")
    return torch_there()


def why_not(help_text: str = "") -> str:
    """Help for a control that computes, and is disabled without torch: what it needs, else its own help."""
    return help_text if torch_there() else escape_markdown(NEEDS_TORCH)

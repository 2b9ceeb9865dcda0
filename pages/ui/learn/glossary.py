"""Every term of the glossary: the words of the screen, and what each verifier and method says of itself."""

import streamlit as st

from pages.ui.common.errors import torch_there
from viz.glossary import GROUPS


def registries() -> tuple[str, ...]:
    """Names of the groups that are read from the registries; none without torch, which these need."""
    return ("Verifiers", "Methods") if torch_there() else ()


def all_terms() -> dict[str, dict[str, str]]:
    """Terms with their sentences by group, those of the registries last."""
    if not registries():
        return GROUPS
    with st.spinner("Getting ready, a few seconds"):  # torch; only the first page of a server's life waits for it
        from decoding.methods.methods import METHODS
        from decoding.verifiers import VERIFIERS
    summaries = (
        {kind.label: kind.summary for kind in VERIFIERS.values()},
        {m.label: m.summary for m in METHODS.values()},
    )
    return GROUPS | dict(zip(registries(), summaries, strict=True))

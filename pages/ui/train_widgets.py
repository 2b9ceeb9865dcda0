"""Widgets that the parts of the page Train share."""

import streamlit as st


def keep_latest(key: str, options: list) -> None:
    """Set a choice to its last option, which moves on, for as long as it is left there; call it before the widget."""
    last, chosen = st.session_state.get(f"{key}_last"), st.session_state.get(key)
    if chosen is None or chosen == last or chosen not in options:
        chosen = options[-1]
    st.session_state[key] = chosen  # said again, or a widget of the same key elsewhere would reset it
    st.session_state[f"{key}_last"] = options[-1]

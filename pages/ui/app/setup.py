"""The start of every page: page config, menu, the pair in use."""

from pathlib import Path

import streamlit as st

from decoding.common.errors import NEEDS_TORCH
from decoding.models.presets import wide_words
from pages.ui import LAB, PAGES, ROOT
from pages.ui.app.address import OBEYED, keep_open_run
from pages.ui.common.downloads import page_begins
from pages.ui.common.errors import escape_markdown, torch_there, word_uncaught_errors
from pages.ui.common.models import describe_pair, manager
from pages.ui.common.state import DRAWINGS
from pages.ui.common.worker import DIALOG, come_back, entered_by_history, worker_note
from viz.tables import STYLE as TABLES

# Colours of .streamlit/config.toml that style sheets of pages name; Streamlit itself gives them to components alone.
COLOURS = {
    "--st-background-color": "backgroundColor", "--st-secondary-background-color": "secondaryBackgroundColor",
    "--st-border-color": "borderColor", "--st-primary-color": "primaryColor",
}  # fmt: skip
ICON = ROOT / "pages" / "ui" / "app" / "icon.svg"  # Streamlit would fetch a named icon from the network


def setup(title: str) -> None:
    """Configure the page, draw the menu and the pair, whose button opens its dialog; call it before anything else."""
    word_uncaught_errors()
    st.set_page_config(page_title=f"{title} · Draftscope", page_icon=str(ICON), layout="wide")
    entered = st.session_state.get("page") != title or entered_by_history()
    st.session_state[DRAWINGS] = st.session_state.get(DRAWINGS, 0) + (2 if entered else 1)
    if entered:
        st.session_state["page"] = title
        st.session_state[OBEYED] = False  # an address is applied once, when its page is entered
    come_back()
    page_begins()
    if title != "Step through":
        keep_open_run(title, entered)
    st.html(f"<style>[data-testid=stApp] {{ {_colours()} }}</style>")
    st.html(Path(__file__).with_suffix(".css"))
    st.html(TABLES)
    with st.container(key="menu", horizontal=True, vertical_alignment="center", gap="small"):
        with st.container(key="brand", width="content"):
            st.markdown("Draftscope", width="content")
        for label in PAGES:
            if label not in LAB:
                _link(label, title)
        here = title in LAB
        with st.popover(f"Lab · **{title}**" if here else "Lab", key="menu_lab_here" if here else "menu_lab"):
            for label in LAB:
                _link(label, title)
        st.space("stretch")
        with st.container(key="worker_note", width="content"):
            worker_note(page_has_clock=here)
        models, there = manager(), torch_there()
        words = describe_pair(models.info) if models.info else "Embedded pair · loads when needed"
        words = escape_markdown(
            words + models.memory_words() if there else "torch is not installed · recorded and opened runs only"
        )
        wide = f"It {said}. " if models.info and (said := wide_words(models.settings.widen)) else ""
        hint = f"{wide}Choose another pair of models" if there else NEEDS_TORCH
        st.session_state[DIALOG] = st.button(
            words, key="pair_open", help=hint, icon=":material/memory:", disabled=not there
        )
        if st.session_state[DIALOG]:
            # Imported here, as Home has to draw soon.
            from pages.ui.app.pair_dialog import pair_dialog

            pair_dialog()
    if "tour" in st.session_state:
        from pages.ui.learn.tour import tour_bar

        tour_bar(title)


def _colours() -> str:
    both = (
        (name, *(st.get_option(f"theme.{kind}.{field}") for kind in ("light", "dark")))
        for name, field in COLOURS.items()
    )
    return " ".join(f"{name}: light-dark({light}, {dark});" for name, light, dark in both)


def _link(label: str, title: str) -> None:
    st.page_link(PAGES[label], label=f"**{label}**" if label == title else label)

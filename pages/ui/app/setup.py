"""What every page begins with: page config, menu, the pair in use.

setup("Step through")        # first call of a page; the title is one of PAGES
"""

import streamlit as st

from decoding.common.errors import NEEDS_TORCH
from pages.ui import LAB, PAGES, ROOT
from pages.ui.common.downloads import page_begins
from pages.ui.common.errors import escape_markdown, torch_there, word_uncaught_errors
from pages.ui.common.models import describe_pair, manager
from pages.ui.common.worker import come_back, worker_note
from viz.formats import byte_size

ICON = ROOT / "pages" / "ui" / "app" / "icon.svg"  # Streamlit would fetch a named icon from the network
STYLE = """
<style>
[data-testid=stMainBlockContainer] { padding: 0.5rem 1.5rem 1rem; max-width: 1920px; }
[data-testid=stMainBlockContainer] > [data-testid=stVerticalBlock] { gap: 0.5rem; }
[data-testid=stHeader] { height: 3rem; min-height: 0; background: transparent; z-index: 5; }
[data-testid=stHeader], [data-testid=stHeader] * { pointer-events: none; }
[data-testid=stHeader] button, [data-testid=stHeader] button *, [data-testid=stStatusWidget] { pointer-events: auto; }
/* The page's own menu stays in place while the page scrolls: in the margin, so that it never lies on a panel. */
[data-testid=stMainMenu] { width: 20px; margin-right: -4px; }
[data-testid=stMainMenu] [data-testid=stMainMenuButton] { width: 20px; min-width: 0; padding: 0; }
/* At the right there is room for the sign that a page runs, with its button Stop. */
.st-key-menu { min-height: 2.3rem; padding-right: 7.6rem; flex-wrap: nowrap; gap: 0.5rem; }
.st-key-menu > * { flex-shrink: 0; }
.st-key-menu > :has(> .st-key-pair_open), .st-key-menu > .st-key-pair_open { flex-shrink: 1; min-width: 0; }
.st-key-worker_note { flex-shrink: 1 !important; min-width: 0; }
.st-key-worker_note [data-testid=stCaptionContainer] { margin: 0; }
.st-key-status [data-testid=stProgress] p { white-space: nowrap; overflow: hidden; text-overflow: ellipsis; }
.st-key-worker_note p { white-space: nowrap; overflow: hidden; text-overflow: ellipsis; }
.st-key-menu p { margin: 0; }
.st-key-menu [data-testid=stMarkdownContainer] { margin: 0; }
[class*="st-key-menu_lab"] button { border: 0; background: transparent; min-height: 2rem; padding: 0 0.5rem; }
.st-key-menu_lab_here button { background: rgba(128, 128, 128, 0.15); }
.st-key-brand p { font-size: 1.15rem; font-weight: 700; padding-right: 0.5rem; }
.st-key-pair_open button { border-radius: 1rem; min-height: 1.9rem; height: 1.9rem; padding: 0 0.8rem; }
.st-key-pair_open, .st-key-pair_open * { max-width: 100%; }
.st-key-pair_open button p { font-size: 0.82rem; white-space: nowrap; overflow: hidden; text-overflow: ellipsis; }
.st-key-toolbar { min-height: 2.4rem; flex-wrap: nowrap; }
.st-key-status { min-width: 0; }
.st-key-status [data-testid=stCaptionContainer] { margin: 0; }
/* White words on the dark theme's primary colour would be hard to read. */
[data-testid=stBaseButton-primary]:not(:disabled) { background: #00795A; border-color: #00795A; color: #FFFFFF; }
[data-testid=stWidgetLabel][disabled], [data-testid=stWidgetLabel][disabled] * { color: inherit; }
[data-testid=stWidgetLabel][disabled] p { opacity: 0.68; }
[class*="_described"] { position: relative; }
[class*="_described"] > :has(> [data-testid=stPopover]) { position: absolute; right: 0; bottom: 0; width: auto; }
[class*="_described"] [data-testid=stPopover] button { min-height: 1.4rem; height: 1.4rem; padding: 0 0.3rem; }
[class*="_described"] [data-testid=stPopover] button p { font-size: 0.78rem; }
[data-testid=stPopoverBody] { padding: 1rem 1.2rem; max-height: 84vh; }
.st-key-status [data-testid=stCaptionContainer] p {
  white-space: nowrap; overflow: hidden; text-overflow: ellipsis; margin: 0;
}
.st-key-toolbar button { min-height: 2.1rem; height: 2.1rem; padding: 0 0.75rem; }
[class*="_verifier_choice"] button { min-height: 1.9rem; height: 1.9rem; padding: 0 0.6rem; }
[class*="_verifier_choice"] button p { font-size: 0.85rem; white-space: nowrap; }
.st-key-messages [data-testid=stAlertContainer] { padding: 0.45rem 0.9rem; min-height: 0; }
</style>
"""


def setup(title: str) -> None:
    """Configure the page and draw menu and pair; call it before anything else."""
    word_uncaught_errors()
    st.set_page_config(page_title=f"{title} · Draftscope", page_icon=str(ICON), layout="wide")
    if st.session_state.get("page") != title:
        st.session_state["page"] = title
        st.session_state["address_obeyed"] = False  # an address is obeyed once, when its page is entered
    come_back()
    page_begins()
    st.html(STYLE)
    with st.container(key="menu", horizontal=True, vertical_alignment="center", gap="small"):
        with st.container(key="brand", width="content"):
            st.markdown("Draftscope", width="content")
        for label in PAGES:
            if label not in LAB:
                _link(label, title)
        here = title in LAB
        with st.popover(f"**{title}**" if here else "Lab", key="menu_lab_here" if here else "menu_lab"):
            for label in LAB:
                _link(label, title)
        st.space("stretch")
        with st.container(key="worker_note", width="content"):
            worker_note(page_has_clock=here)
        _pair_pill()
    if "tour" in st.session_state:
        from pages.ui.learn.tour import tour_bar

        tour_bar(title)


def _link(label: str, title: str) -> None:
    st.page_link(PAGES[label], label=f"**{label}**" if label == title else label)


def _pair_pill() -> None:
    """The pair in memory in one line; opens the dialog in which another is chosen."""
    models = manager()
    memory = models.memory()
    words = describe_pair(models.info) if models.info else "Embedded pair · loads when it is needed"
    if memory:
        words += f" · GPU {byte_size(memory[0])} used, {byte_size(memory[1])} free"
    told = "Choose another pair of models"
    if not torch_there():
        words, told = "No torch here · recorded and opened runs only", NEEDS_TORCH
    if st.button(
        escape_markdown(words), key="pair_open", help=told, icon=":material/memory:", disabled=not torch_there()
    ):
        # Imported here: asking for the memory a pair needs may ask torch, and Home must draw without it.
        from pages.ui.app.pair_dialog import pair_dialog

        pair_dialog()

"""What every page begins with: page config, menu, the pair in use, and the dialog in which another is chosen.

setup("Step through")        # first call of a page; the title is one of PAGES
"""

from dataclasses import replace

import streamlit as st

from decoding.common.errors import NEEDS_TORCH, DraftscopeError
from decoding.common.settings import ENGINES
from decoding.models.presets import (
    DEVICES,
    DTYPES,
    MAX_CONTEXT,
    MIN_CONTEXT,
    PRESETS,
    PairSettings,
    cpu_computes_bfloat16,
    memory_estimate,
)
from pages.ui import LAB, PAGES, ROOT
from pages.ui.common.downloads import page_begins
from pages.ui.common.errors import escape_markdown, guarded, show_error, word_uncaught_errors
from pages.ui.common.models import describe_pair, engine_words, gibibytes, manager
from pages.ui.common.torch_there import torch_there
from pages.ui.common.worker import come_back, run_now, worker_note
from pages.ui.widgets.costs import draw_costs

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
    info, told = manager().info, "Choose another pair of models"
    words = (describe_pair(info) if info else "Embedded pair · loads when it is needed") + _memory_words()
    if not torch_there():
        words, told = "No torch here · recorded and opened runs only", NEEDS_TORCH
    if st.button(
        escape_markdown(words), key="pair_open", help=told, icon=":material/memory:", disabled=not torch_there()
    ):
        pair_dialog()


OWN_PAIR = "own"
PRECISION_HELP = (
    "auto takes float32 on a CPU and for the embedded pair. bfloat16 halves the memory that every pass reads; on a CPU "
    "it is offered where the processor has instructions for it, and never taken by itself."
)
ENGINE_HELP = (
    "library: the forward of transformers. lean: our own forward with packed weights, about twice as fast on a CPU. "
    "static: fixed shapes that a CUDA GPU replays as graphs. auto takes the fastest that fits the models."
)
LIMIT_HELP = (
    "What the target's weights may take of the device. The rest waits in CPU memory (on a CPU: on disk) and comes over "
    "for every pass, so that a target larger than the GPU runs, slowly."
)


@st.dialog("Choose a pair of models", width="medium")
def pair_dialog() -> None:
    """Choose, see the memory needed, load; and what passes of the pair in memory cost on this machine."""
    choose, costs = st.tabs(["Pair", "What passes cost here"])
    with choose:
        _choose()
    with costs:
        draw_costs()


def _choose() -> None:
    """The widgets to choose and load a pair. The old pair leaves memory before the new one comes."""
    models = manager()
    if models.info is not None:
        st.caption("In memory: " + escape_markdown(describe_pair(models.info)) + _memory_words())
        st.caption(escape_markdown(engine_words(models.info)))
    chosen = st.radio("Pair", [*PRESETS, OWN_PAIR], format_func=_preset_words, key="pair_preset")
    if chosen in PRESETS:
        st.caption(escape_markdown(PRESETS[chosen].note))
    settings = None
    with guarded():
        settings = _settings(chosen)
        need = memory_estimate(settings) if settings else None
        if settings is None:
            st.caption("Give a Hugging Face id or a folder for each of both models.")
        elif need is None:
            st.caption("How much memory this pair needs is known once its configuration is on this machine.")
        else:
            parts = f"weights, caches of {settings.context_length:,} tokens, logits of a tree"
            st.caption(f"Needs about {gibibytes(need)}: {parts}.")
    place = st.container()
    if st.button("Load this pair", type="primary", key="pair_load", disabled=settings is None):
        with place:
            _load(settings)


def _settings(chosen: str) -> PairSettings | None:
    """What to load as chosen in the widgets, None while a name is missing."""
    preset = PRESETS.get(chosen)
    if preset is None:
        left, right = st.columns(2)
        target = left.text_input("Target", key="pair_target", placeholder="EleutherAI/pythia-1.4b or a folder")
        draft = right.text_input("Draft", key="pair_draft", placeholder="EleutherAI/pythia-70m or a folder")
        chat_possible, chat_default = True, False
    else:
        target, draft = preset.settings.target, preset.settings.draft
        chat_possible = chat_default = preset.settings.chat
    device_place, dtype_place, engine_place = st.columns(3, vertical_alignment="bottom")
    context_place, limit_place, split_place = st.columns(3, vertical_alignment="bottom")
    device = device_place.selectbox("Device", DEVICES, key="pair_device")
    dtype = dtype_place.selectbox("Precision", precisions(device), key="pair_dtype", help=PRECISION_HELP)
    engine = engine_place.selectbox("Engine", ENGINES, key="pair_engine", help=ENGINE_HELP)
    context = context_place.number_input(
        "Context, tokens", MIN_CONTEXT, MAX_CONTEXT, 2048, step=256, key="pair_context"
    )
    limit = limit_place.number_input(
        "Device limit, GiB", min_value=0.1, value=None, step=1.0, key="pair_limit", placeholder="none", help=LIMIT_HELP
    )
    with split_place:
        split = st.toggle("Split over GPUs", key="pair_split", help="For a target larger than one GPU.")
        chat = st.toggle("Chat template", chat_default, key=f"pair_chat_{chosen}", disabled=not chat_possible)
    if not target.strip() or not draft.strip():
        return None
    return PairSettings(
        target=target.strip(),
        draft=draft.strip(),
        device=device,
        dtype=dtype,
        split=split,
        context_length=int(context),
        chat=chat,
        engine=engine,
        max_memory_gib=limit,
    )


def precisions(device: str) -> list[str]:
    """What can be chosen on a device: a CPU without bfloat16 instructions would only be slower in it."""
    slow_on_cpu = {"float16"} if cpu_computes_bfloat16() else {"float16", "bfloat16"}
    if device == "auto":
        from decoding.models.presets import choose_device

        device = choose_device(device)
    return [name for name in DTYPES if device != "cpu" or name not in slow_on_cpu]


def _memory_words() -> str:
    memory = manager().memory()
    return f" · GPU {gibibytes(memory[0])} used, {gibibytes(memory[1])} free" if memory else ""


def _preset_words(name: str) -> str:
    """A ready-made pair and the memory it needs with the device and precision chosen below."""
    if name not in PRESETS:
        return "Your own pair: two ids or folders"
    chosen = {
        "device": st.session_state.get("pair_device", "auto"),
        "dtype": st.session_state.get("pair_dtype", "auto"),
    }
    need = memory_estimate(replace(PRESETS[name].settings, **chosen))
    return escape_markdown(PRESETS[name].label) + (f" :gray[· {gibibytes(need)}]" if need else "")


def _load(settings: PairSettings) -> None:
    models = manager()
    try:
        run_now("Loading the pair", lambda job: models.load(settings), alone=True)
    except DraftscopeError as error:
        show_error(error)
        return
    st.rerun()

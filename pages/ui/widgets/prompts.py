"""The choice of a prompt, and how prompts are named on the screen."""

from functools import lru_cache
from urllib.parse import quote_plus

import streamlit as st

from decoding.common.errors import PromptError
from decoding.common.prompts import Prompt, load_prompts
from decoding.recorded import PROMPT as HOME_PROMPT
from decoding.trace.records import RunTrace
from pages.ui.common.errors import show_error
from pages.ui.common.models import manager
from pages.ui.common.state import PromptChoice
from pages.ui.widgets.controls import picked, say_again, seed

OWN_TEXT = "own text"
TITLE_CHARACTERS = 20
MAX_TEXT = 2_000  # characters of the user's own prompt once percent-encoded: some programs cut longer addresses
DEFAULT_PROMPT = HOME_PROMPT


@lru_cache(maxsize=1)
def sample_prompts() -> dict[str, Prompt]:
    """The sample prompts shipped with Draftscope, by `kind/name`."""
    return {f"{prompt.kind}/{prompt.name}": prompt for prompt in load_prompts()}


def prompt_of(run: RunTrace) -> PromptChoice:
    """The prompt of a run: the sample with its text, or the text alone."""
    text = "".join(run.prompt_texts)
    name = next((name for name, sample in sample_prompts().items() if sample.text == text), OWN_TEXT)
    return PromptChoice(name, text)


def prompt_words(name: str) -> str:
    """A prompt's name as shown on the screen: `Stories · Tim and the bell`."""
    return " · ".join(part.replace("_", " ").capitalize() for part in name.split("/"))


def prompt_title(prompt: PromptChoice) -> str:
    """A prompt as a title names it: a sample by its name, a text of one's own by how it begins."""
    words = prompt_words(prompt.name)
    begins = " ".join(prompt.text.split())
    if prompt.name != OWN_TEXT or not begins:
        return words
    return f"{words} ‘{begins[:TITLE_CHARACTERS].rstrip()}{'…' if len(begins) > TITLE_CHARACTERS else ''}’"


def prompt_picker(key: str = "prompt", bind: bool = True) -> PromptChoice:
    """Pick a sample prompt or type one; with a chat pair also whether the chat template is used."""
    samples = _samples_or_sentence()
    names = [*samples, OWN_TEXT]
    text_key = f"{key}_text"
    seed(key, DEFAULT_PROMPT if samples else OWN_TEXT, {name: prompt_words(name) for name in names})

    def take_sample() -> None:
        sample = samples.get(st.session_state[key])
        st.session_state[text_key] = sample.text if sample else ""

    name = st.selectbox(
        "Prompt",
        names,
        key=key,
        format_func=prompt_words,
        on_change=take_sample,
        persist_state="session",
        bind="query-params" if bind else None,
    )
    if text_key not in st.session_state:
        take_sample()
    else:
        say_again(text_key)

    text = st.text_area(
        "Text to continue · Ctrl+Enter keeps it, Start keeps and runs it, Escape drops it",
        key=text_key,
        height=160,
        persist_state="session",
        placeholder="Type what the models should continue",
        help="Overwrite it, or choose “Own text” above for an empty field.",
    )
    # The selection stays: setting it here does not reach a browser that has closed the popover meanwhile, and would
    # come back as a choice.
    own = _named_by_text(name, text)
    if own != name:
        st.caption("Edited: a text of your own now.")
    if bind:
        _keep_in_address((text or "") if own == OWN_TEXT else "")
    chat = manager().settings.chat
    if chat:
        seed(f"{key}_chat", True)
        hint = "Off: the models get the text unchanged."
        chat = st.toggle("Chat template", key=f"{key}_chat", persist_state="session", help=hint)
    return PromptChoice(own, text or "", chat)


def _keep_in_address(text: str) -> None:
    """Keep a text of one's own in the address of the page, where it fits, so that a reload has it."""
    if text.strip() and len(quote_plus(text)) <= MAX_TEXT:
        if st.query_params.get("text") != text:
            st.query_params["text"] = text
    elif "text" in st.query_params:
        del st.query_params["text"]


def picked_prompt_words() -> str:
    """The name of the chosen prompt, for a button."""
    name = picked("prompt", DEFAULT_PROMPT, {name: prompt_words(name) for name in _samples_or_sentence()})
    text = st.session_state.get("prompt_text")
    return prompt_title(PromptChoice(_named_by_text(name, text), text or ""))


def _named_by_text(name: str, text: str | None) -> str:
    """A sample whose text was edited is a text of one's own, whatever the browser still says of the selection."""
    sample = sample_prompts().get(name)
    return name if sample is None or text is None or text == sample.text else OWN_TEXT


def _samples_or_sentence() -> dict[str, Prompt]:
    try:
        return sample_prompts()
    except PromptError as error:
        show_error(error)
        return {}

"""The choice of a prompt, and how prompts are named on the screen."""

from functools import lru_cache
from urllib.parse import quote_plus

import streamlit as st

from decoding.common.errors import PromptError
from decoding.common.prompts import Prompt, load_prompts
from decoding.recorded import PROMPT as DEFAULT_PROMPT
from decoding.trace.records import RunTrace
from pages.ui.common.errors import show_error
from pages.ui.common.models import manager
from pages.ui.common.state import PromptChoice, keep_parameter
from pages.ui.widgets.controls import say_again, seed

OWN_TEXT = "own text"
TITLE_CHARACTERS = 20
MAX_TEXT = 2_000  # characters of the user's own prompt once percent-encoded: some programs cut longer addresses


@lru_cache(maxsize=1)
def sample_prompts() -> dict[str, Prompt]:
    """The sample prompts shipped with Draftscope, by `kind/name`."""
    return {f"{prompt.kind}/{prompt.name}": prompt for prompt in load_prompts()}


def prompt_of(run: RunTrace) -> PromptChoice:
    """The prompt of a run, told by its text."""
    return prompt_with("".join(run.prompt_texts))


def prompt_with(text: str) -> PromptChoice:
    """The prompt of a text: the sample that has it, or the text alone."""
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


def prompt_picker() -> None:
    """Pick a sample prompt or type one; with a chat pair also whether the chat template is used."""
    samples, prompt, text_key = _samples_or_sentence(), picked_prompt(), "prompt_text"

    def take_sample() -> None:
        sample = samples.get(st.session_state["prompt"])
        st.session_state[text_key] = sample.text if sample else ""

    name = st.selectbox(
        "Prompt",
        [*samples, OWN_TEXT],
        key="prompt",
        format_func=prompt_words,
        on_change=take_sample,
        persist_state="session",
    )
    say_again(text_key)
    st.text_area(
        "Text to continue · Ctrl+Enter keeps it, Start keeps and runs it, Escape drops it",
        key=text_key,
        height=160,
        persist_state="session",
        placeholder="Type what the models should continue",
        help="Overwrite it, or choose “Own text” above for an empty field.",
    )
    if manager().settings.chat:
        seed("prompt_chat", True)
        hint = "Off: the models get the text unchanged."
        st.toggle("Chat template", key="prompt_chat", persist_state="session", help=hint)
    if prompt.name != name:
        st.caption("Edited: a text of your own now.")


def picked_prompt() -> PromptChoice:
    """The prompt in the widgets, drawn or not; a sample whose text was edited is a text of one's own."""
    samples = _samples_or_sentence()
    names = (DEFAULT_PROMPT, *samples, OWN_TEXT) if samples else (OWN_TEXT,)
    asked = next((name for name in names if prompt_words(name) == st.query_params.get("prompt")), names[0])
    name = st.session_state.setdefault("prompt", asked)  # it and the text outlast a widget that another page interrupts
    given = samples[name].text if name in samples else ""
    text = st.session_state.setdefault("prompt_text", given) or ""
    chat = manager().settings.chat and st.session_state.get("prompt_chat", True)
    return PromptChoice(name if text == given else OWN_TEXT, text, chat)


def keep_in_address(prompt: PromptChoice) -> None:
    """Keep the prompt in the address of the page, a text of one's own where it fits, so that a reload has it."""
    own = prompt.name == OWN_TEXT
    fits = prompt.text.strip() and len(quote_plus(prompt.text)) <= MAX_TEXT
    keep_parameter("prompt", prompt_words(prompt.name))
    keep_parameter("text", prompt.text if own and fits else "")


def _samples_or_sentence() -> dict[str, Prompt]:
    try:
        return sample_prompts()
    except PromptError as error:
        show_error(error)
        return {}

"""A run of a sweep in Step through: it is decoded again, in the worker, and compared with what was kept of it."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import streamlit as st

from decoding.errors import NEEDS_TORCH
from decoding.experiments.again import begin_again, kept_output, same_text
from decoding.experiments.followed import FollowedExperiment
from decoding.methods import METHODS
from pages.ui.address import take_over
from pages.ui.controls import OWN_TEXT
from pages.ui.models import manager
from pages.ui.state import ROW_BYTES, Asked, PromptChoice, Run, decode_more, keep_run
from pages.ui.torch_there import torch_there
from pages.ui.worker import Job, job_bar, start_job, take_result

if TYPE_CHECKING:
    from decoding.prompts import Prompt
    from decoding.session import DecodeSession

SLOT = "sweep_open"


def why_not_open(row: Mapping[str, Any]) -> str | None:
    """Why a run cannot be looked into, None where it can."""
    if not torch_there():
        return f"It would have to be decoded again. {NEEDS_TORCH}"
    if row["method"] not in METHODS:
        return "Hugging Face's own loop drafts no tree of ours: there is nothing to step through."
    return None


def open_run(followed: FollowedExperiment, row: Mapping[str, Any]) -> None:
    """Begin to decode a run again; `show_opened` goes to Step through once it is there."""
    kept, folder = dict(row), followed.folder
    past_end = bool(followed.asked.get("ignore_end_of_text", True))
    start_job(SLOT, "Decoding this run again", lambda job: decode_again(job, kept, folder, past_end))
    st.rerun()


def decode_again(job: Job, row: Mapping[str, Any], folder: Path, past_end: bool) -> Run:
    """Decode what a row was measured on; call it in the worker.

    Args:
        folder: of the experiment. past_end: whether it decoded past the stop tokens.

    Raises:
        DraftscopeError: another pair is in memory, or its prompt cannot be had here.
    """
    from decoding.limits import Limits

    models = manager()
    job.report(0, 0, "" if models.loaded else "loading the models, a few seconds")
    limits = Limits(int(row["asked_tokens"]), past_end, rows="full", row_bytes=ROW_BYTES)
    session, prompt = begin_again(models.pair(), row, limits)
    run = Run(session.trace(), session=session, asked=_asked(session, prompt, row))
    decode_more(run, None, job)
    same = same_text(kept_output(folder, row["key"]), session.tokens[len(session.prompt_ids) :])
    run.told = f"Decoded again, a run of the sweep {row['experiment']}: {same}; its times are those of this time."
    return run


def show_opened() -> None:
    """Progress of a run that is decoded again, or why it cannot be; Step through once it is there."""
    run = take_result(SLOT)
    if isinstance(run, Run) and run.trace.iterations:
        keep_run(run)
        if run.asked is not None:
            take_over(run.asked)
        st.switch_page("pages/step_through.py", query_params={})
    with st.container(key="sweep_opening"):
        job_bar(SLOT)


def _asked(session: "DecodeSession", prompt: "Prompt", row: Mapping[str, Any]) -> Asked | None:
    """What the widgets of Step through would have to hold for the same run; None where they cannot."""
    vocabulary, chat = session.pair.vocabulary, bool(session.pair.vocabulary.chat)
    choice = PromptChoice(f"{prompt.kind}/{prompt.name}", prompt.text, chat)
    whole = vocabulary.encode_chat(prompt.text) if chat else vocabulary.encode(prompt.text)
    if tuple(whole) != session.prompt_ids:
        choice = PromptChoice(OWN_TEXT, vocabulary.decode(session.prompt_ids))
        if chat or tuple(vocabulary.encode(choice.text)) != session.prompt_ids:
            return None
    if "@" in str(row["line"]).partition(":")[0]:  # another engine than that of the pair in memory
        return None
    return Asked(choice, session.method, session.sampling, session.limits.max_new_tokens)

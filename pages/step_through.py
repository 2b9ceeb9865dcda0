"""Step through: one run, one iteration at a time, one phase at a time."""

import streamlit as st

from decoding.common.errors import NEEDS_TORCH
from decoding.recorded import home_run, telling_iteration
from pages.ui.app.address import (
    Arrival,
    address_message,
    arrive,
    forget_message,
    go_there,
    keep_address,
    link_here,
    restore,
)
from pages.ui.app.run_file import file_menu, file_messages
from pages.ui.app.setup import setup
from pages.ui.common.errors import escape_markdown, torch_there, why_not
from pages.ui.common.models import manager
from pages.ui.common.state import (
    Asked,
    Run,
    current_run,
    decode_more,
    keep_run,
    new_run,
    selected_iteration,
    selected_node,
)
from pages.ui.common.worker import Job, is_busy, job_error, job_progress, start_job, take_result
from pages.ui.explain.view import draw_run
from pages.ui.what_if.branches import ask_what_if
from pages.ui.widgets.controls import (
    error_key,
    length_control,
    method_picker,
    method_words,
    picked_prompt_words,
    picked_sampling,
    prompt_picker,
    reset_button,
    sampling_controls,
    sampling_words,
)

SLOT = "step"
MORE = ((1, "one_more", "Step"), (10, "ten_more", "+10"), (None, "to_end", "To the end"))


def main() -> None:
    """Toolbar, scope, charts."""
    setup("Step through")
    restore(SLOT)
    adopt()
    if current_run() is None:
        recorded = home_run()
        keep_run(Run(recorded, "recorded"), telling_iteration(recorded))
    with st.container(key="toolbar", horizontal=True, vertical_alignment="center", gap="small"):
        asked = to_decode()
        more_buttons()
        what_if_button()
        with st.container(key="status"):
            if not job_progress(SLOT):
                st.caption(escape_markdown(status_words(current_run())))
        link = link_here(asked)
        file_menu(link)
    with st.container(key="messages"):  # always there: an element that comes and goes would remount the scope below it
        address_message()
        file_messages()
        if current_run().told:
            st.caption(f":material/replay: {escape_markdown(current_run().told)}")
        job_error(SLOT)
    draw_run(current_run())
    if not is_busy(SLOT):
        keep_address(link)


def adopt() -> None:
    """Show what the worker has finished since the page was last drawn: a new run, or new iterations of this one."""
    result = take_result(SLOT)
    if isinstance(result, Arrival):
        arrive(result)
    if isinstance(result, Run) and result.trace.iterations:
        keep_run(result, len(result.trace.iterations) - 1)


def to_decode() -> Asked | None:
    """What is chosen and the button that decodes it; None where settings contradict one another or torch is missing."""
    if not torch_there():
        st.button("Start", type="primary", key="start", disabled=True, icon=":material/play_arrow:", help=NEEDS_TORCH)
        return None
    chosen = choices()
    go_there(*chosen, SLOT)
    start_button(*chosen)
    return None if chosen[1] is None else Asked(*chosen)


def choices() -> tuple:
    """Prompt, method and length, behind two buttons that say what is chosen."""
    with (
        st.popover(escape_markdown(picked_prompt_words()), key="prompt_open", icon=":material/edit_note:"),
        st.container(width=460),
    ):
        prompt = prompt_picker("prompt", bind=False)
        tokens = length_control()
    with (
        st.popover(escape_markdown(chosen_words()), key="method_open", icon=":material/tune:"),
        st.container(width=700),
    ):
        sampling = sampling_controls("sampling")
        method = method_picker("method", columns=3, sampling=sampling, bind=False)
        reset_button("method")
    return prompt, method, sampling, tokens


def chosen_words() -> str:
    """Method, what was changed, and sampling unless it is greedy."""
    sampling = picked_sampling()
    return method_words("method") if sampling.greedy else f"{method_words('method')} · {sampling_words(sampling)}"


def start_button(prompt, method, sampling, tokens: int) -> None:
    """Begin a run with its first iteration. Values are read here, not in a callback, which would see older ones."""
    models = manager()

    def begin(job: Job) -> Run:
        job.report(0, 0, "" if models.loaded else "loading the models, a few seconds")
        run = new_run(models.pair(), method, prompt, sampling, tokens)
        decode_more(run, 1, job)
        return run

    ready = method is not None and not is_busy(SLOT)
    if st.button("Start", type="primary", key="start", disabled=not ready, icon=":material/play_arrow:"):
        forget_message()
        start_job(SLOT, "First iteration", begin)
        st.rerun()


def more_buttons() -> None:
    """Decode on from where the run stands."""
    run = current_run()
    for count, key, label in MORE:
        st.button(
            label,
            key=key,
            disabled=is_busy(SLOT) or not run.can_continue,
            help=more_help(run, count),
            on_click=decode,
            args=(count,),
        )


def decode(count: int | None) -> None:
    """Decode `count` more iterations of the run on screen in the worker."""
    run = current_run()
    forget_message()

    def more(job: Job) -> Run:
        decode_more(run, count, job)
        return run

    start_job(SLOT, "Next iteration" if count == 1 else "Decoding", more)


def what_if_button() -> None:
    """Go to What if, to the iteration and the node looked at."""
    if st.button(
        "What if",
        key="what_if_from_here",
        disabled=not (current_run().trace.iterations and torch_there()),
        icon=":material/call_split:",
        help=why_not("What if from here: change one thing in this iteration and see both courses side by side"),
    ):
        ask_what_if(selected_iteration(), selected_node())
        st.switch_page("pages/what_if.py", query_params={})


def status_words(run: Run) -> str:
    """What is wrong with the settings, or what is on screen, in a line."""
    contradiction = st.session_state.get(error_key("method"))
    if contradiction is not None:
        return str(contradiction)
    if run.source == "recorded":
        return f"A recorded run. {'Press Start to decode what is chosen here.' if torch_there() else NEEDS_TORCH}"
    if run.source == "opened":
        return f"Opened from a file: {run.trace.pair.name}, {run.trace.created[:10]}"
    if run.source == "forked":
        return "A branch made on What if"
    ends = {"length": "length limit reached", "end_of_text": "end of text"}.get(run.trace.totals.stopped, "can go on")
    return f"{run.trace.totals.new_tokens} of at most {run.trace.max_new_tokens} tokens · {ends}"


def more_help(run: Run, count: int | None) -> str:
    """What a button does, or why it cannot."""
    if run.released:
        return "The models of this run have left memory: press Start."
    if run.session is None:
        forked = "This branch was replayed: go on with it on What if."
        recorded = "This run was recorded before and has no models behind it: press Start for one of your own."
        return forked if run.source == "forked" else recorded
    if run.session.finished:
        return "This run has ended: press Start for a new one."
    return {1: "Decode one more iteration", None: "Decode until the text ends"}.get(count, f"Decode {count} iterations")


main()

"""What the worker does for What if: make a branch, decode further on one, decode a recorded run again.

    start_fork(history, wish)                    # a branch more, shown as B beside the one it comes from
    start_go_on(history, number, 1)              # one iteration more of a branch, None: to the end

Each waits a moment for the work, so that what is drawn next has it already; longer work shows its progress.
"""

from typing import TYPE_CHECKING

import streamlit as st

from decoding.common.errors import require
from decoding.trace.records import RunTrace
from pages.ui.common.models import manager
from pages.ui.common.state import ROW_BYTES, Asked, PromptChoice, Run, decode_more, keep_run
from pages.ui.common.worker import Job, start_job
from pages.ui.what_if.branches import KEY, SLOT, Branch, History, Wish, mark_used
from pages.ui.widgets.controls import OWN_TEXT, sample_prompts

if TYPE_CHECKING:
    from decoding.models.pair import Pair


def start_fork(history: History, wish: Wish) -> None:
    """Make a fork in the worker; a short wait, so that what is drawn next has it already."""
    start_job(SLOT, "Forking", lambda job: make_fork(history, wish, job), keeps=(KEY,))


def start_go_on(history: History, number: int, iterations: int | None) -> None:
    """Decode further in the worker."""
    title = "Next iteration" if iterations == 1 else "Decoding to the end"
    start_job(SLOT, title, lambda job: go_on_with(history, number, iterations, job), keeps=(KEY,))


def make_fork(history: History, wish: Wish, job: Job) -> None:
    """Make a branch and show it as B, beside the one it comes from. Call it in the worker.

    Raises:
        DraftscopeError: neither stored rows nor a model can answer, or the change does not fit.
    """
    from decoding.replay.forks import fork, fork_again

    parent, live = history.branches[wish.branch], True if wish.live else None
    if parent.fork is None:
        made = fork(parent.run.trace, parent.run.session, wish.index, wish.change(), live=live)
    else:
        made = fork_again(parent.as_it_is(), wish.index, wish.change(), live=live)
    if job.cancelled:
        return
    history.count += 1
    branch = Branch(history.count, Run(made.trace, "forked", made.session), wish.branch, made)
    history.branches = {**history.branches, branch.number: branch}  # a page may be going through the old one
    history.b, history.index = history.count, wish.index
    history.nodes.pop("B", None)
    history.edits, history.edited, history.deleted = (), None, None
    mark_used(history, branch.number)


def go_on_with(history: History, number: int, iterations: int | None, job: Job) -> None:
    """Decode further on a branch and look at its last iteration, or at the last that both sides can have.

    Call it in the worker.
    """
    branch = history.branches[number]
    if branch.fork is None:
        decode_more(branch.run, iterations, job)
    else:
        from decoding.replay.forks import go_on

        def proceed(done: int, total: int) -> bool:
            job.report(done, total, f"{done} of at most {total} tokens")
            return job.go_on()

        branch.fork = go_on(branch.as_it_is(), iterations, proceed)
        branch.run.trace, branch.run.session = branch.fork.trace, branch.fork.session
        mark_used(history, number)
    ended = [other for other in history.shown() if other.ended]
    history.look_at(min(len(each.run.trace.iterations) for each in (branch, *ended)) - 1)


def start_again(trace: RunTrace) -> None:
    """Decode a run anew in the worker, so that its models and rows are there; the page takes it when it is done."""
    start_job(SLOT, "Decoding this run again", lambda job: decode_again(trace, job))


def decode_again(trace: RunTrace, job: Job) -> Run:
    """The same prompt, method and sampling decoded here, as many iterations as the record has.

    Raises:
        DraftscopeError: another pair is in memory, or the settings are unknown to this version.
    """
    from decoding.replay.stored_state import method_of, sampling_of
    from decoding.session.session import DecodeSession, Limits

    models = manager()
    job.report(0, 0, "" if models.loaded else "loading the models, a few seconds")
    pair = models.pair()
    require(
        pair.info.name == trace.pair.name,
        f"This run was decoded by {trace.pair.name}, the pair in memory is {pair.info.name}: load that pair with the "
        "button above, or start a run in Step through.",
    )
    limits = Limits(trace.max_new_tokens, rows="full", row_bytes=ROW_BYTES)
    method, sampling, prompt_ids = method_of(trace), sampling_of(trace), list(trace.prompt_ids)
    session = DecodeSession(pair, method, prompt_ids, sampling, limits)
    prompt = prompt_of(pair, prompt_ids)
    asked = None if prompt is None else Asked(prompt, method, sampling, trace.max_new_tokens)
    run = Run(session.trace(), session=session, asked=asked)
    decode_more(run, len(trace.iterations), job)
    return run


def prompt_of(pair: "Pair", prompt_ids: list[int]) -> PromptChoice | None:
    """The prompt of a record as it would be picked or typed, None where its text gives other tokens."""
    text = pair.vocabulary.decode(prompt_ids)
    name = next((name for name, sample in sample_prompts().items() if sample.text == text), OWN_TEXT)
    return PromptChoice(name, text) if pair.vocabulary.encode(text) == prompt_ids else None


def adopt(result: object) -> None:
    """Put a run that was decoded again on screen, at the iteration looked at before."""
    if isinstance(result, Run) and result.trace.iterations:
        index = st.session_state[KEY].index if KEY in st.session_state else 0
        keep_run(result, min(index, len(result.trace.iterations) - 1))

"""What the worker does for What if: make a branch, decode further on one, decode a recorded run again.

    start_fork(history, wish)                    # a branch more, shown as B beside the one it comes from
    start_go_on(history, number, 1)              # one iteration more of a branch, None: to the end

Each waits a moment for the work, so that what is drawn next has it already; longer work shows its progress.
"""

import streamlit as st

from decoding.errors import require
from decoding.trace import RunTrace
from pages.ui.models import manager
from pages.ui.state import ROW_BYTES, Run, decode_more, keep_run
from pages.ui.what_if import KEY, SLOT, Branch, History, Wish
from pages.ui.worker import Job, start_job


def start_fork(history: History, wish: Wish) -> None:
    """Make a fork in the worker; a short wait, so that what is drawn next has it already."""
    start_job(SLOT, "Forking", lambda job: make_fork(history, wish, job))


def start_go_on(history: History, number: int, iterations: int | None) -> None:
    """Decode further in the worker."""
    title = "Next iteration" if iterations == 1 else "Decoding to the end"
    start_job(SLOT, title, lambda job: go_on_with(history, number, iterations, job))


def make_fork(history: History, wish: Wish, job: Job) -> None:
    """Make a branch and show it as B, beside the one it comes from. Call it in the worker.

    Raises:
        DraftscopeError: neither stored rows nor a model can answer, or the change does not fit.
    """
    from decoding.forks import fork, fork_again

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
    history.edits, history.edited = (), None


def go_on_with(history: History, number: int, iterations: int | None, job: Job) -> None:
    """Decode further on a branch and look at its last iteration. Call it in the worker."""
    branch = history.branches[number]
    if branch.fork is None:
        decode_more(branch.run, iterations, job)
    else:
        from decoding.forks import go_on

        def proceed(done: int, total: int) -> bool:
            job.report(done, total, f"{done} of at most {total} tokens")
            return not job.cancelled

        branch.fork = go_on(branch.as_it_is(), iterations, proceed)
        branch.run.trace, branch.run.session = branch.fork.trace, branch.fork.session
    history.look_at(len(branch.run.trace.iterations) - 1)


def start_again(trace: RunTrace) -> None:
    """Decode a run anew in the worker, so that its models and rows are there; the page takes it when it is done."""
    start_job(SLOT, "Decoding this run again", lambda job: decode_again(trace, job))


def decode_again(trace: RunTrace, job: Job) -> Run:
    """The same prompt, method and sampling decoded here, as many iterations as the record has.

    Raises:
        DraftscopeError: another pair is in memory, or the settings are unknown to this version.
    """
    from decoding.session import DecodeSession, Limits
    from decoding.stored_state import method_of, sampling_of

    models = manager()
    job.report(0, 0, "" if models.loaded else "loading the models, a few seconds")
    pair = models.pair()
    require(
        pair.info.name == trace.pair.name,
        f"This run was decoded by {trace.pair.name}, the pair in memory is {pair.info.name}: load that pair with the "
        "button above, or start a run in Step through.",
    )
    limits = Limits(trace.max_new_tokens, rows="full", row_bytes=ROW_BYTES)
    session = DecodeSession(pair, method_of(trace), list(trace.prompt_ids), sampling_of(trace), limits)
    run = Run(session.trace(), session=session)
    decode_more(run, len(trace.iterations), job)
    return run


def adopt(result: object) -> None:
    """Put a run that was decoded again on screen, at the iteration looked at before."""
    if isinstance(result, Run) and result.trace.iterations:
        index = st.session_state[KEY].index if KEY in st.session_state else 0
        keep_run(result, min(index, len(result.trace.iterations) - 1))

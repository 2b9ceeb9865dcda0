"""What stood behind an iteration of a recorded run: method, sampling, the drafter's state, the draws."""

from dataclasses import replace
from itertools import accumulate, takewhile
from typing import Any

from decoding.common.errors import SettingsError
from decoding.methods.method import Method
from decoding.methods.methods import METHODS, method_label
from decoding.sampling.draws import GeneratorDraws
from decoding.sampling.sampling import Sampling
from decoding.session.iteration import SessionState
from decoding.trace.records import IterationTrace, RunTrace


def iteration_at(run: RunTrace, index: int) -> IterationTrace:
    """The iteration of a run with this index; raises `SettingsError` where there is none."""
    found = next((each for each in run.iterations if each.index == index), None)
    if found is None:
        known = [each.index + 1 for each in run.iterations]  # counted as the screen does
        there = f"it has {known[0]} to {known[-1]}" if known else "it has none"
        raise SettingsError(f"This run has no iteration {index + 1}: {there}.")
    return found


def method_of(run: RunTrace) -> Method:
    """The method of a run with its settings, the measured ones included.

    Raises `SettingsError` where this program does not know it.
    """
    if run.method not in METHODS:
        raise SettingsError(f"Draftscope has no method {run.method!r}: choose one of {', '.join(METHODS)}.")
    try:
        return METHODS[run.method].with_settings(**run.settings)
    except TypeError:
        named = METHODS[run.method].label
        raise SettingsError(
            f"This run has text where {named} needs a number, or a number where it needs text."
        ) from None


def unknown_words(run: RunTrace) -> str:
    """What this program does not know of a run, which it can show but neither change nor go on with; empty if nothing.

    Files of other versions may name methods, settings and values that this one does not have.
    """
    try:
        method_of(run), sampling_of(run)
    except SettingsError as error:
        return str(error)
    return ""


def sampling_of(run: RunTrace) -> Sampling:
    """The sampling of a run."""
    kept = run.sampling
    return Sampling(kept.temperature, kept.top_p, kept.draft_temperature, kept.seed)


def as_made(run: RunTrace, standing: SessionState) -> RunTrace:
    """The record of a run with method and sampling as they stood at one iteration.

    What was decoded before a fork was made by the settings of the fork's parent.
    """
    method, sampling = standing.method, standing.sampling.trace()
    return replace(
        run, method=method.name, label=method_label(method), settings=method.settings(), sampling=sampling, own_from=0
    )


def filled_in(method: Method, known: Method) -> Method:
    """The method with what was measured for another one of its kind, where its own is left empty to be measured.

    What was measured of one draft says nothing of another: where that differs, it is left to be measured.
    """
    if type(method.drafter) is not type(known.drafter):
        return method
    own, other = method.drafter.settings(), known.drafter.settings()
    if method.draft_head != known.draft_head:  # what is empty at first, and now as in the other one, was measured
        first = type(method.drafter)().settings()
        changes = {name: "" for name in own if first.get(name) == "" and own[name] == other[name]}
    else:
        texts = {name: value for name, value in other.items() if isinstance(value, str)}
        changes = {name: value for name, value in texts.items() if value and own[name] == ""}
    return replace(method, drafter=method.drafter.with_settings(**changes)) if changes else method


def session_state_before(run: RunTrace, index: int) -> SessionState:
    """How an iteration was made, as the record alone tells.

    Raises `SettingsError` where there is no such iteration, the method is not known here, or another one made it.
    """
    method, iteration = method_of(run), iteration_at(run, index)
    if index < run.own_from or not _made_by(method, iteration):
        raise SettingsError(_of_parent(run, index))
    return SessionState(method, sampling_of(run), state_before(run, index, method), draws_before(run, index))


def draws_before(run: RunTrace, index: int) -> GeneratorDraws:
    """The draws as they stood before an iteration: the run's seed, gone on by what was drawn since.

    A fork with another seed begins its draws anew, so the recorded numbers decide from which iteration on to count.

    Raises `SettingsError` where there is no such iteration, or its numbers are not those of the run's seed.
    """
    first, recorded = GeneratorDraws(run.sampling.seed), iteration_at(run, index).draws
    counts = [len(each.draws) for each in reversed(run.iterations) if each.index < index]
    since = [*accumulate(counts, initial=0)]  # draws taken, by how many iterations before this one began them
    if not recorded or recorded[0].uniform is None:
        return first.fork(since[-1])
    numbers = first.ahead(since[-1] + 1)
    taken = next((count for count in reversed(since) if numbers[count] == recorded[0].uniform), None)
    if taken is None:
        raise SettingsError(_of_parent(run, index))
    return first.fork(taken)


def _of_parent(run: RunTrace, index: int) -> str:
    """What to do about an iteration that was run with another method, settings or seed."""
    later = f"iteration {max(run.own_from, index + 1) + 1} or a later one"
    return (
        f"Iteration {index + 1} used another method, settings or seed, which this run does not record: "
        f"choose {later}, or open the run that this one was forked from."
    )


def state_before(run: RunTrace, index: int, method: Method) -> Any:
    """The state of the drafter of the run's own method before an iteration, as its record tells."""
    # The iterations of a fork's parent may be another drafter's.
    before = reversed([each for each in run.iterations if each.index < index])
    own = [*takewhile(lambda iteration: _made_by(method, iteration), before)]
    state = method.drafter.start(list(run.prompt_ids))
    for iteration in reversed(own):
        state = method.drafter.resumed(state, iteration)
    return state


def _made_by(method: Method, iteration: IterationTrace) -> bool:
    """Whether the settings in force in an iteration are those of a method's drafter, but for what history moves."""
    drafter = method.drafter
    own = drafter.settings() | ({"draft_head": method.draft_head} if method.draft_head else {})
    mine, theirs = (
        {name: value for name, value in each.items() if name not in drafter.moving}
        for each in (own, iteration.settings)
    )
    return mine == theirs

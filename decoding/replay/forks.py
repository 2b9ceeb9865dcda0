"""Forks: a run that parts from another one at an iteration, replayed from its stored rows or decoded live."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Literal

from decoding.common.errors import require
from decoding.methods.method import Method
from decoding.methods.methods import METHODS, PRESETS
from decoding.replay.iteration import replay_step
from decoding.replay.stored_rows import RowsMissing
from decoding.replay.stored_state import filled_in
from decoding.sampling.sampling import Sampling
from decoding.trace.edits import Edits, edits_at, edits_of
from decoding.trace.records import RunTrace, Setting

SAMPLING = ("temperature", "top_p", "draft_temperature", "seed")


def change_words(before: RunTrace, after: RunTrace) -> str:
    """`node_budget 64 → 16 · seed 0 → 3`; another method is named with the settings that its name does not say."""
    words = []
    if before.method != after.method:
        words.append(f"{before.label} → {_named(after)}")
    else:
        words += _differences(before.settings, after.settings)
    words += _drafts(before, after)
    one, other = ({name: getattr(run.sampling, name) for name in SAMPLING} for run in (before, after))
    return " · ".join(words + _differences(one, other))


def _differences(before, after) -> list[str]:
    changed = [name for name in after if name in before and before[name] != after[name] and name != "draft_head"]
    return [f"{name} {_written(before[name])} → {_written(after[name])}" for name in changed]


def _drafts(before: RunTrace, after: RunTrace) -> list[str]:
    """Another draft, by its name: the pair's draft model is no setting."""
    drafting = after.method not in METHODS or METHODS[after.method].drafter.uses_draft_model
    same = before.settings.get("draft_head") == after.settings.get("draft_head")
    return [] if same or not drafting else [f"draft {before.pair.draft.name} → {after.pair.draft.name}"]


def _named(run: RunTrace) -> str:
    base = PRESETS.get(run.label) or METHODS.get(run.method)
    if base is None or base.name != run.method or base.label != run.label:
        return run.label
    # What is empty by default is measured with the pair: long, and nobody's choice.
    own = {name: value for name, value in base.settings().items() if value != ""}
    changed = [f"{name} {_written(run.settings[name])}" for name in own if run.settings.get(name) != own[name]]
    return f"{run.label} ({', '.join(changed)})" if changed else run.label


def _written(value: Setting) -> str:
    if isinstance(value, bool):
        return "on" if value else "off"
    return f"{value:g}" if isinstance(value, float) else str(value)


if TYPE_CHECKING:
    from decoding.session.session import DecodeSession

Kind = Literal["replayed", "live"]


@dataclass(frozen=True)
class Change:
    """What is to be different; None leaves it as it was.

    Attributes:
        sampling: with the seed as it was the draws go on where they stand, with another one they begin at it.
        edits: to the first iteration alone.
    """

    method: Method | None = None
    sampling: Sampling | None = None
    edits: Edits = field(default_factory=Edits)

    def __bool__(self) -> bool:
        return self.method is not None or self.sampling is not None or bool(self.edits)


@dataclass(frozen=True, eq=False)
class Origin:
    """Where a fork comes from, so that a replayed one can be run after all."""

    run: RunTrace
    session: "DecodeSession | None"
    change: Change


@dataclass(frozen=True, eq=False)
class Fork:
    """A run that parts from another one.

    Attributes:
        trace: the parent's iterations before `at`, then this fork's own; times of a replayed one are 0, not measured.
        at: index of the iteration where it parts from its parent.
        words: what was changed: `node_budget 64 -> 16 · seed 0 -> 3`. Token text in it comes from a model.
        kind: `replayed` from stored rows, or `live`: the models ran.
        session: live forks can go on with it; it moves on with the latest fork made of it.
        made_s: measured wall time of making it.
        origin: what it was made from.
    """

    trace: RunTrace
    at: int
    words: str
    kind: Kind
    session: "DecodeSession | None"
    made_s: float
    origin: Origin


def fork(
    run: RunTrace, session: "DecodeSession | None", index: int, change: Change, *, live: bool | None = None
) -> Fork:
    """Part from a run before an iteration, with something changed, and make that iteration.

    What was changed by hand in that iteration of the run stays so.

    Args:
        session: what decoded the run; None for one opened from a file, which can only be replayed.
        index: of the iteration; with a session it may be the next one.
        live: None replays where stored rows suffice and else runs the models; False only replays, True only runs.

    Raises:
        RowsMissing: stored rows cannot answer and no model may.
        SettingsError: no such iteration, an edit that does not fit the tree, a verifier that would bias the output.
        PairError: the models are needed and were released.
    """
    _check_text(session, run, index)
    change = replace(change, edits=edits_of((*edits_at(run.iterations, index), *change.edits)))
    can_run = session is not None and not session.pair.target.released
    # What comes after the last iteration is in no record.
    follows = live is None and can_run and index == (run.iterations[-1].index + 1 if run.iterations else 0)
    if live is not True and not follows:
        try:
            return _replayed(run, session, index, change)
        except RowsMissing:
            if live is False or not can_run:
                raise
    return _live(run, session, index, change)


def fork_again(parent: Fork, index: int, change: Change, *, live: bool | None = None) -> Fork:
    """Part from a fork, before the iteration where it parted itself or a later one; earlier ones part from its parent.

    Raises:
        DraftscopeError: see `fork`.
    """
    if parent.kind == "live" or parent.origin.session is None:
        return fork(parent.trace, parent.session, index, change, live=live)
    if index == parent.at:
        origin, before = parent.origin, parent.origin.change
        edits = edits_of((*before.edits, *change.edits))
        both = Change(change.method or before.method, change.sampling or before.sampling, edits)
        return fork(origin.run, origin.session, index, both, live=live)
    ran = parent if index < parent.at else run_fork(parent)
    source = (parent.origin.run, parent.origin.session) if index < parent.at else (ran.trace, ran.session)
    return fork(*source, index, change, live=live)


def run_fork(replayed: Fork) -> Fork:
    """The same fork, made by the models: a replayed one needs it to go on.

    Raises:
        SettingsError: there is no session to run it.
    """
    if replayed.kind == "live":
        return replayed
    origin = replayed.origin
    return _live(origin.run, origin.session, replayed.at, origin.change)


def go_on(
    parted: Fork, iterations: int | None = None, proceed: Callable[[int, int], bool] = lambda _done, _total: True
) -> Fork:
    """Decode a fork on; one that was replayed is first run by its parent's session.

    Args:
        iterations: at most so many more; None: to the end.
        proceed: asked after each with the new tokens so far and at most; False stops.

    Raises:
        SettingsError: the text has ended, or there is no session.
    """
    started = time.perf_counter()
    live = run_fork(parted)
    session, count = live.session, 0
    require(not session.finished, "This fork has ended: nothing comes after its last token.")
    while not session.finished and (iterations is None or count < iterations):
        session.step()
        count += 1
        if not proceed(session.new_tokens, session.limits.max_new_tokens):
            break
    return replace(live, trace=session.trace(), made_s=time.perf_counter() - started)


def _replayed(run: RunTrace, session: "DecodeSession | None", index: int, change: Change) -> Fork:
    started = time.perf_counter()
    trace = replay_step(run, session, index, change.method, change.sampling, change.edits)
    return _fork(run, trace, index, change, "replayed", None, session, started)


def _live(run: RunTrace, session: "DecodeSession | None", index: int, change: Change) -> Fork:
    started = time.perf_counter()
    require(
        session is not None, "No models are loaded for this run: load its pair and decode it again, or only replay it."
    )
    before = session.rewind(index)
    ended = "This run ended there: choose an iteration before its end, or decode with a higher max_new_tokens."
    require(not before.finished, ended)
    method = None if change.method is None else filled_in(change.method, before.method)
    same_seed = change.sampling is not None and change.sampling.seed == before.sampling.seed
    limits = replace(before.limits, record="full")
    parted = before.fork(method, limits, change.sampling, change.edits, draws_go_on=same_seed)
    parted.step()
    return _fork(run, parted.trace(), index, change, "live", parted, session, started)


def _fork(
    run: RunTrace,
    trace: RunTrace,
    index: int,
    change: Change,
    kind: Kind,
    session: "DecodeSession | None",
    parent: "DecodeSession | None",
    started: float,
) -> Fork:
    """The fork around its trace."""
    texts = {token: text for each in trace.iterations for token, text in each.texts.items()}
    before = set(edits_at(run.iterations, index))
    edited = edits_of(edit for edit in change.edits if edit not in before).words(
        lambda token: texts.get(token, f"<{token}>")
    )
    return Fork(
        trace=trace,
        at=index,
        words=" · ".join(filter(None, (change_words(run, trace), edited))) or "nothing changed",
        kind=kind,
        session=session,
        made_s=time.perf_counter() - started,
        origin=Origin(run, parent, change),
    )


def _check_text(session: "DecodeSession | None", run: RunTrace, index: int) -> None:
    """Raise `SettingsError` where a session decoded another text than the run before an iteration."""
    if session is None:
        return
    text = (*run.prompt_ids, *(token for each in run.iterations if each.index < index for token in each.committed_ids))
    same = session.prompt_ids == run.prompt_ids and tuple(session.tokens[: len(text)]) == text
    require(same, "The session given decoded another text than this run: give the one that decoded it.")

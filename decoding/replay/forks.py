"""Forks: a run that parts from another one at an iteration, replayed from its stored rows or decoded live.

A replayed iteration is drafted, verified and recorded as the session would have done it, without a model.
"""

import time
from collections.abc import Callable, Container
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Literal

from decoding.common.errors import SettingsError, require
from decoding.common.files import utc_stamp
from decoding.engines.kv_cache import KVCache
from decoding.methods.method import Method
from decoding.methods.methods import METHODS, method_label
from decoding.replay.recorded_logits import LogitsMissing, RecordedLogits, RecordedSource, draft_from
from decoding.replay.stored_state import filled_in, session_state_before
from decoding.sampling.sampling import Sampling, TargetDistributions
from decoding.session.iteration import SessionState, edit_logits, explain_interventions, nodes_by_path
from decoding.session.recorder import IterationState, write_iteration
from decoding.trace.interventions import Interventions, interventions_at, interventions_of
from decoding.trace.records import IterationTrace, KVTrace, PhaseTimes, RunTrace, Setting, Stopped
from decoding.verifiers.base import cut_path

if TYPE_CHECKING:
    from decoding.session.session import DecodeSession

NO_MODELS = "The models of this run are not loaded: load its pair and re-run it, or only replay it."
NO_TIMES = PhaseTimes(0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0)


def change_words(before: RunTrace, after: RunTrace) -> str:
    """`N_max 64 → 16 · seed 0 → 3`; another method by its label."""
    if before.method != after.method:
        words = [f"{before.label} → {after.label}"]
    else:
        words = _differences(before.settings, after.settings, after.method)
    # The pair's draft model is no setting.
    drafted, drafting = (each.method not in METHODS or METHODS[each.method].drafter.uses_draft_model
                         for each in (before, after))  # fmt: skip
    if drafting and not drafted and after.draft_head:
        words.append(f"draft {after.pair.draft.name}")
    elif drafting and drafted and before.settings.get("draft_head") != after.settings.get("draft_head"):
        words.append(f"draft {before.pair.draft.name} → {after.pair.draft.name}")
    return " · ".join(words + _differences(asdict(before.sampling), asdict(after.sampling)))


def _differences(before, after, method: str = "") -> list[str]:
    changed = [name for name in after if name in before and before[name] != after[name] and name != "draft_head"]
    return [f"{_short(method, name)} {_written(before[name])} → {_written(after[name])}" for name in changed]


def _short(method: str, name: str) -> str:
    """The symbol of a setting, or its label; its name where the method is not known here."""
    infos = METHODS[method].infos if method in METHODS else {}
    return infos[name].short if name in infos else name


def _written(value: Setting) -> str:
    if isinstance(value, bool):
        return "on" if value else "off"
    return f"{value:g}" if isinstance(value, float) else str(value)


@dataclass(frozen=True)
class ForkChange:
    """What is to be different; None leaves it as it was."""

    method: Method | None = None
    # With the seed as it was the draws go on where they stand, with another one they begin at it
    sampling: Sampling | None = None
    interventions: Interventions = field(default_factory=Interventions)  # to the first iteration alone

    def __bool__(self) -> bool:
        return self.method is not None or self.sampling is not None or bool(self.interventions)


@dataclass(frozen=True, eq=False)
class Origin:
    """Where a fork comes from, so that a replayed one can be run after all."""

    run: RunTrace
    session: "DecodeSession | None"
    change: ForkChange


@dataclass(frozen=True, eq=False)
class Fork:
    """A run that parts from another one."""

    # The parent's iterations before `at`, then this fork's own; times of a replayed one are 0, not measured
    trace: RunTrace
    at: int  # index of the iteration where it parts from its parent
    words: str  # what was changed: `node_budget 64 -> 16 · seed 0 -> 3`. Token text in it comes from a model
    kind: Literal["replayed", "live"]  # `replayed` from stored rows, or `live`: the models ran
    session: "DecodeSession | None"  # live forks can go on with it; it moves on with the latest fork made of it
    made_s: float  # measured wall time of making it
    origin: Origin


def fork(
    run: RunTrace, session: "DecodeSession | None", index: int, change: ForkChange, *, live: bool | None = None
) -> Fork:
    """Part from a run before an iteration, with something changed, and make that iteration.

    What was changed by hand in that iteration of the run stays so.

    Args:
        session: what decoded the run; None for one opened from a file, which can only be replayed.
        index: of the iteration; with a session it may be the next one.
        live: None replays where stored rows suffice and else runs the models; False only replays, True only runs.

    Raises `LogitsMissing` where stored rows cannot answer and no model may; `SettingsError` where there is no such
    iteration, an edit does not fit the tree or a verifier would bias the output; `PairError` where the models needed
    were released.
    """
    if session is not None:
        before = (token for each in run.iterations if each.index < index for token in each.committed_ids)
        text = (*run.prompt_ids, *before)
        same = session.prompt_ids == run.prompt_ids and tuple(session.tokens[: len(text)]) == text
        require(same, "This session decoded a different text: give the session that decoded this run.")
    change = replace(
        change, interventions=interventions_of((*interventions_at(run.iterations, index), *change.interventions))
    )
    origin = Origin(run, session, change)
    can_run = session is not None and not session.pair.target.released
    # What comes after the last iteration is in no record.
    follows = live is None and can_run and index == (run.iterations[-1].index + 1 if run.iterations else 0)
    if live is not True and not follows:
        try:
            return _made(origin, index, live=False)
        except LogitsMissing:
            if live is False or not can_run:
                raise
    return _made(origin, index, live=True)


def fork_again(parent: Fork, index: int, change: ForkChange, *, live: bool | None = None) -> Fork:
    """Part from a fork, before the iteration where it parted itself or a later one; earlier ones part from its parent.

    Raises what `fork` does.
    """
    if parent.kind == "live" or parent.origin.session is None:
        return fork(parent.trace, parent.session, index, change, live=live)
    if index == parent.at:
        origin, before = parent.origin, parent.origin.change
        interventions = interventions_of((*before.interventions, *change.interventions))
        both = ForkChange(change.method or before.method, change.sampling or before.sampling, interventions)
        return fork(origin.run, origin.session, index, both, live=live)
    ran = parent if index < parent.at else run_fork(parent)
    source = (parent.origin.run, parent.origin.session) if index < parent.at else (ran.trace, ran.session)
    return fork(*source, index, change, live=live)


def run_fork(replayed: Fork) -> Fork:
    """The same fork, made by the models: a replayed one needs it to go on.

    Raises `SettingsError` where there is no session to run it.
    """
    return replayed if replayed.kind == "live" else _made(replayed.origin, replayed.at, live=True)


def go_on(
    parted: Fork, iterations: int | None = None, proceed: Callable[[int, int], bool] = lambda _done, _total: True
) -> Fork:
    """Decode a fork on; one that was replayed is first run by its parent's session.

    Args:
        iterations: at most so many more; None: to the end.
        proceed: asked after each with the new tokens so far and at most; False stops.

    Raises `SettingsError` where the text has ended, or there is no session.
    """
    started = time.perf_counter()
    live = run_fork(parted)
    session, count = live.session, 0
    if session is None:
        raise SettingsError(NO_MODELS)
    require(not session.finished, "This fork has ended: there is nothing after its last token.")
    while not session.finished and (iterations is None or count < iterations):
        session.step()
        count += 1
        if not proceed(session.new_tokens, session.limits.max_new_tokens):
            break
    return replace(live, trace=session.trace(), made_s=time.perf_counter() - started)


def _made(origin: Origin, index: int, live: bool) -> Fork:
    started = time.perf_counter()
    run, change = origin.run, origin.change
    parted = _run_live(origin, index) if live else None
    trace = parted.trace() if parted else _replayed(origin, index)
    texts = {token: text for each in trace.iterations for token, text in each.texts.items()}
    before = set(interventions_at(run.iterations, index))
    edited = interventions_of(edit for edit in change.interventions if edit not in before)
    words = (
        change_words(run, trace),
        edited.words(lambda token: f"‘{texts.get(token, f'<{token}>').replace(' ', '·')}’"),
    )
    return Fork(
        trace=trace,
        at=index,
        words=" · ".join(filter(None, words)) or "nothing changed",
        kind="live" if live else "replayed",
        session=parted,
        made_s=time.perf_counter() - started,
        origin=origin,
    )


def _run_live(origin: Origin, index: int) -> "DecodeSession":
    session, change = origin.session, origin.change
    if session is None:
        raise SettingsError(NO_MODELS)
    before = session.rewind(index)
    ended = "This run ended there: choose an earlier iteration, or decode with a higher max_new_tokens."
    require(not before.finished, ended)
    method = None if change.method is None else filled_in(change.method, before.method)
    same_seed = change.sampling is not None and change.sampling.seed == before.sampling.seed
    limits = replace(before.limits, record="full")
    parted = before.fork(method, limits, change.sampling, change.interventions, draws_go_on=same_seed)
    parted.step()
    return parted


class _CountedRows(KVCache):
    """Counts rows as a cache does and holds none; `kv` is how those of the recorded iteration were counted."""

    def __init__(self, kv: KVTrace):
        super().__init__(0, 0)
        self.length, self._row = kv.slots_before, kv.bytes_per_slot

    @property
    def bytes_per_slot(self) -> int:
        return self._row


def _replayed(origin: Origin, index: int) -> RunTrace:
    """The run up to an iteration, and that iteration made anew from its stored rows.

    The session knows state, draws and tokens exactly; without it they are what the record tells.

    Raises `LogitsMissing` where a model was never asked what this needs, or the method must first be measured with its
    pair; `SettingsError` where a change that does not fit.
    """
    run, session, change = origin.run, origin.session, origin.change
    rows, method = RecordedLogits(run, index), change.method
    rows.require_any()
    before = session.standing(index) if session else session_state_before(run, index)
    if method is not None:
        method = filled_in(method, before.method)
        if empty := [name for name, value in method.drafter.settings().items() if value == ""]:
            raise LogitsMissing(
                f"{method.label} needs measurements with its pair first: give {' and '.join(empty)} yourself, or "
                "re-run with its pair loaded."
            )
    standing = before.changed(method, change.sampling)
    rows.require_draft(standing.method.draft_head)
    stops = session.stops if session else run.ending_ids
    step = _step(rows, standing, change.interventions, stops)
    text_of = session.pair.vocabulary.text if session else rows.text
    trace = write_iteration(step, text_of, standing.sampling, "full", full_rows=False)
    draft_logits, target_logits = rows.of_tree("draft", trace), rows.of_tree("target", trace)
    trace = replace(trace, times=NO_TIMES, draft_logits=draft_logits, target_logits=target_logits)
    trace = explain_interventions(trace, change.interventions, standing.method.verifier, standing.sampling)
    if session:
        own_from = session.own_from(index, standing)
    else:
        same = (standing.method, standing.sampling) == (before.method, before.sampling)
        own_from = run.own_from if same else index
    if step.committed[-1] in stops:
        stopped: Stopped = "end_of_text"
    else:
        stopped = "length" if len(step.committed) >= rows.room else "unfinished"
    return _with_iteration(run, standing, trace, own_from, stopped)


def _step(
    rows: RecordedLogits, standing: SessionState, interventions: Interventions, stops: Container[int]
) -> IterationState:
    recorded, drawn = rows.iteration, len(standing.draws.record)
    step = IterationState(
        recorded.index, recorded.prefix_length, recorded.in_loop, recorded.started_s, recorded.started_s
    )
    step.method = standing.method
    step.target_slots_before = recorded.kv_target.slots_before
    draft_rows = recorded.kv_draft.slots_before if recorded.kv_draft else 0
    step.source = RecordedSource(
        rows, standing.sampling.draft_temperature, draft_rows, bool(standing.method.draft_head)
    )
    step.draft = draft_from(step.source, rows, standing, interventions)
    paths = list(nodes_by_path(step.draft.tree))
    step.logits = rows.find("target", [paths[node] for node in step.draft.order.tolist()])
    target = TargetDistributions(edit_logits(step.logits, step.draft, interventions), standing.sampling)
    step.verification = standing.method.verifier.verify(step.draft, target, standing.draws)
    path = cut_path(step.draft, step.verification, rows.room, stops)
    step.committed, step.kept, step.final_kind = path
    # The movement of both caches as the engine would have made it.
    draft_cache = _CountedRows(recorded.kv_draft) if recorded.kv_draft else None
    step.keep_rows(_CountedRows(recorded.kv_target), draft_cache, moved=True)
    _, step.history = standing.method.drafter.observe(step.draft.state, step.outcome())
    step.draws, step.times = tuple(standing.draws.record[drawn:]), NO_TIMES
    return step


def _with_iteration(
    run: RunTrace, standing: SessionState, trace: IterationTrace, own_from: int, stopped: Stopped
) -> RunTrace:
    """The run with this iteration as its last one; what was not measured is 0."""
    method, earlier = standing.method, tuple(each for each in run.iterations if each.index < trace.index)
    totals = replace(
        run.totals,
        new_tokens=sum(len(each.committed_ids) for each in (*earlier, trace)),
        prefill_s=run.totals.prefill_s if trace.kv_draft or earlier else 0.0,
        ttft_s=run.totals.ttft_s if earlier else 0.0,
        wall_s=trace.started_s,
        stopped=stopped,
    )
    return replace(
        run,
        created=utc_stamp(),
        method=method.name,
        label=method_label(method),
        settings=method.settings(),
        sampling=standing.sampling.trace(),
        iterations=(*earlier, trace),
        totals=totals,
        own_from=own_from,
    )

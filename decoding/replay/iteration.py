"""One iteration made from stored rows: drafted, verified and recorded as the session would have, without a model."""

import time
from collections.abc import Container
from dataclasses import replace
from typing import TYPE_CHECKING

from decoding.engines.kv_cache import KVCache
from decoding.methods.method import Method
from decoding.replay.stored_rows import RowsMissing, StoredRows, StoredSource, draft_from
from decoding.replay.stored_state import filled_in, standing_before
from decoding.sampling.sampling import Sampling, TargetRows
from decoding.session.iteration import Standing, edit_rows, explain_edits, nodes_by_path
from decoding.session.recorder import Step, write_iteration
from decoding.trace.edits import Edits
from decoding.trace.records import KVTrace, PhaseTimes, RunTrace, Totals
from decoding.verifiers.base import cut_path

if TYPE_CHECKING:
    from decoding.session.session import DecodeSession

NO_TIMES = PhaseTimes(0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0)


class CountedRows(KVCache):
    """Counts rows as a cache does and holds none.

    Args:
        kv: how the rows of the recorded iteration were counted.
    """

    def __init__(self, kv: KVTrace):
        super().__init__(0, 0)
        self.length, self._row = kv.rows_before, kv.bytes_per_row

    @property
    def bytes_per_row(self) -> int:
        return self._row


def replay_step(
    run: RunTrace,
    session: "DecodeSession | None",
    index: int,
    method: Method | None,
    sampling: Sampling | None,
    edits: Edits,
) -> RunTrace:
    """The run up to an iteration, and that iteration made anew from its stored rows.

    Args:
        session: knows state, draws and tokens exactly; without it they are what the record tells.
        method, sampling: None: as they were.

    Raises:
        RowsMissing: a model was never asked what this needs, or the method has first to be measured with its pair.
        SettingsError: a change that does not fit.
    """
    rows = StoredRows(run, index)
    rows.require_any()
    before = session.standing(index) if session else standing_before(run, index)
    if method is not None:
        method = filled_in(method, before.method)
        _require_measured(method)
    standing = before.changed(method, sampling)
    rows.require_draft(standing.method.draft_head)
    step = _made(rows, session, standing, edits)
    vocabulary = session.pair.vocabulary if session else rows
    trace = write_iteration(step, vocabulary, standing.sampling, "full", full_rows=False)
    kept = {f"{side}_logits": rows.of_tree(side, trace) for side in ("draft", "target")}
    trace = replace(trace, times=NO_TIMES, **kept)
    trace = explain_edits(trace, edits, standing.method.verifier, standing.sampling)
    if session:
        own_from = session.own_from(index, standing)
    else:
        same = (standing.method, standing.sampling) == (before.method, before.sampling)
        own_from = run.own_from if same else index
    return _with_iteration(run, standing, trace, own_from, _stopped(step, rows, _stops(run, session)))


def _require_measured(method: Method) -> None:
    """Raise `RowsMissing` where the drafter lacks what only its models can tell: replaying runs none."""
    empty = [name for name, value in method.drafter.settings().items() if value == ""]
    if empty:
        raise RowsMissing(
            f"{method.label} has first to be measured with its pair: give {' and '.join(empty)} yourself, or decode "
            "this run again with its pair loaded."
        )


def _made(rows: StoredRows, session: "DecodeSession | None", standing: Standing, edits: Edits) -> Step:
    """The iteration as its steps leave it."""
    recorded = rows.iteration
    drawn = len(standing.draws.record)
    step = Step(recorded.index, recorded.prefix_length, recorded.in_loop, recorded.started_s, recorded.started_s)
    step.method = standing.method
    step.target_rows_before = recorded.kv_target.rows_before
    draft_rows = recorded.kv_draft.rows_before if recorded.kv_draft else 0
    step.source = StoredSource(rows, standing.sampling.draft_temperature, draft_rows, bool(standing.method.draft_head))
    step.draft = draft_from(step.source, rows, standing, edits)
    paths = list(nodes_by_path(step.draft.tree))
    step.logits = rows.find("target", [paths[node] for node in step.draft.order.tolist()])
    target = TargetRows(edit_rows(step.logits, step.draft, edits), standing.sampling)
    step.verification = standing.method.verifier.verify(step.draft, target, standing.draws)
    cut = cut_path(step.draft, step.verification, rows.room, _stops(rows.run, session))
    step.committed, step.kept, step.final_kind = cut.committed, cut.kept, cut.final_kind
    # The movement of both caches as the engine would have made it.
    target, draft = (CountedRows(kv) if kv else None for kv in (recorded.kv_target, recorded.kv_draft))
    step.keep_rows(target, draft, moved=True)
    _, step.history = standing.method.drafter.observe(step.draft.state, step.outcome())
    step.draws, step.times = tuple(standing.draws.record[drawn:]), NO_TIMES
    return step


def _stops(run: RunTrace, session: "DecodeSession | None") -> Container[int]:
    """Tokens that end the text; a record alone tells only the one that ended it."""
    if session is not None:
        return () if session.limits.ignore_end_of_text else session.pair.vocabulary.stop_ids
    return run.output_ids[-1:] if run.totals.stopped == "end_of_text" else ()


def _stopped(step: Step, rows: StoredRows, stops: Container[int]) -> str:
    if step.committed[-1] in stops:
        return "end_of_text"
    return "length" if len(step.committed) >= rows.room else "unfinished"


def _with_iteration(run: RunTrace, standing: Standing, trace, own_from: int, stopped: str) -> RunTrace:
    """The run with this iteration as its last one; what was not measured is 0."""
    method, sampling = standing.method, standing.sampling
    earlier = tuple(each for each in run.iterations if each.index < trace.index)
    tokens = sum(len(each.committed_ids) for each in (*earlier, trace))
    kept = run.totals
    totals = Totals(
        new_tokens=tokens,
        prefill_s=kept.prefill_s if trace.kv_draft or earlier else 0.0,
        ttft_s=kept.ttft_s if earlier else 0.0,
        wall_s=trace.started_s,
        stopped=stopped,
        peak_memory_bytes=kept.peak_memory_bytes,
    )
    return replace(
        run,
        created=time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        method=method.name,
        label=method.label,
        settings=method.settings(),
        sampling=sampling.trace(),
        iterations=(*earlier, trace),
        totals=totals,
        own_from=own_from,
    )

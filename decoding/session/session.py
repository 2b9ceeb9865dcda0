"""The session that decodes one iteration at a time, forks and rewinds; how far it may go; a pair opened for it."""

import copy
import operator
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, get_args

import torch

from decoding.common.cost_model import CostModel
from decoding.common.errors import OutOfMemoryError, PairError, PromptError, is_out_of_memory, require
from decoding.common.files import utc_stamp
from decoding.common.interruption import check_wanted
from decoding.costs.measured_pair import MeasuredPair
from decoding.costs.measuring import cost_model, doubt
from decoding.engines.clock import PhaseClock, describe_hardware, phase_times
from decoding.methods.method import Method
from decoding.methods.methods import METHODS, method_label
from decoding.models.loading import drop_frames
from decoding.models.pair import Pair, load_pair, release
from decoding.models.presets import PairSettings
from decoding.sampling.draws import GeneratorDraws
from decoding.sampling.sampling import Sampling, TargetDistributions
from decoding.session.cached_models import CachedModels
from decoding.session.iteration import Checkpoint, Checkpoints, Iteration, SessionState, explain_interventions
from decoding.session.recorder import IterationState, UnwrittenTrace, write_iteration
from decoding.trace.interventions import Interventions, interventions_at
from decoding.trace.metrics import LoopDetector
from decoding.trace.records import FORMAT_VERSION, IterationTrace, Record, RunTrace, Totals
from decoding.tree.draft import Draft

Rows = Literal["top", "open", "full"]
UNWRITTEN_BYTES = 2**25  # of rows that iterations hold until their trees are read


@dataclass(frozen=True)
class Limits:
    """How far to decode and how much to record."""

    max_new_tokens: int = 128
    ignore_end_of_text: bool = False
    # `full` keeps the tree of every iteration, `summary` only counts and times, `none` keeps nothing
    record: Record = "full"
    # `top` keeps the top 20 of each distribution, `open` also the raw logits of the latest iteration, `full` of all
    rows: Rows = "top"
    # Memory that raw logits may take; those of the oldest iterations go first. None sets no limit.
    row_bytes: int | None = None

    def __post_init__(self):
        for name, least in (("max_new_tokens", 1), ("row_bytes", 0)):
            value = getattr(self, name)
            whole = isinstance(value, int) and not isinstance(value, bool) and value >= least
            unlimited = name == "row_bytes" and value is None
            require(whole or unlimited, f"{name} must be a whole number, at least {least}, not {value!r}.")
        for name, choices in (("record", get_args(Record)), ("rows", get_args(Rows))):
            value = getattr(self, name)
            require(value in choices, f"{name} must be one of {', '.join(choices)}, not {value!r}.")


def check_prompt(pair: Pair, prompt_ids: Sequence[int], max_new_tokens: int) -> list[int]:
    """The token ids of a prompt as plain ints, checked; arrays and tensors of them are taken too.

    Raises `PromptError` where they are no ids of this pair, or do not fit its context with what is to follow.
    """
    rule = f"prompt_ids must be token ids, whole numbers from 0 to {pair.logits_size - 1:,}"
    ids: list[int] = []
    try:
        for token in prompt_ids:
            ids.append(operator.index(token))
    except TypeError:
        raise PromptError(f"{rule}; the entry at index {len(ids)} is not.") from None
    wrong = next((place for place, token in enumerate(ids) if not 0 <= token < pair.logits_size), None)
    if wrong is not None:
        raise PromptError(f"{rule}; index {wrong} has {ids[wrong]:,}.")
    if not ids:
        raise PromptError("The prompt is empty: type some text or pick a sample prompt.")
    if len(ids) >= pair.context:
        raise PromptError(
            f"The prompt has {len(ids)} tokens and the context of this pair is {pair.context}: shorten the prompt."
        )
    if len(ids) + max_new_tokens > pair.context:
        raise PromptError(
            f"{len(ids)} prompt tokens and {max_new_tokens} new ones exceed the context of {pair.context}: "
            f"request at most {pair.context - len(ids)} new tokens."
        )
    return ids


class DecodeSession:
    """One call: prompt -> iterations. Models are shared between sessions; caches, draws and state belong to one."""

    def __init__(
        self,
        pair: Pair,
        method: Method,
        prompt_ids: list[int],
        sampling: Sampling | None = None,
        limits: Limits | None = None,
    ):
        self.pair, self.method = method.drafting(pair), method
        self.sampling, self.limits = sampling or Sampling(), limits or Limits()
        self.method.check(self.sampling)
        prompt_ids = check_prompt(self.pair, prompt_ids, self.limits.max_new_tokens)
        self.method = self._prepared(self.method)
        self.prompt_ids = tuple(prompt_ids)
        self.tokens = list(self.prompt_ids)
        self.iterations: list[IterationTrace] = []
        self.stopped: Literal["length", "end_of_text", "unfinished"] = "unfinished"
        self.prefill_s = self.ttft_s = self.elapsed_s = 0.0
        self._count = 0
        self._state: Any = self.method.drafter.start(prompt_ids)
        self.begin_draws(GeneratorDraws(self.sampling.seed))
        self._loops = LoopDetector()
        self._checkpoints = Checkpoints()
        self._interventions = Interventions()
        self._unwritten: list[UnwrittenTrace] = []
        self.last: IterationState | None = None
        capacity = len(prompt_ids) + self.limits.max_new_tokens + 128
        drafter = self.method.drafter
        self._models = CachedModels(self.pair, capacity, drafter.uses_draft_model, drafter.needs_past)

    @property
    def new_tokens(self) -> int:
        """Tokens committed so far, the prompt left out."""
        return len(self.tokens) - len(self.prompt_ids)

    @property
    def finished(self) -> bool:
        """True once the end of text or the length limit is reached."""
        return self.stopped != "unfinished"

    @property
    def stops(self) -> Collection[int]:
        """Tokens that end the text; none where they are ignored."""
        return () if self.limits.ignore_end_of_text else self.pair.vocabulary.stop_ids

    @property
    def in_loop(self) -> bool:
        """Whether the text has begun to repeat itself."""
        return self._loops.in_loop

    def __iter__(self) -> Iterator[IterationTrace]:
        while not self.finished:
            yield self.step()

    @torch.inference_mode()
    def step(self) -> IterationTrace:
        """Run one iteration: draft, prune, mask, verify, select, commit, adapt; record it."""
        require(not self.finished, "This run has ended: start a new one or raise max_new_tokens.")
        committed = len(self.tokens)
        try:
            if not self._models.prefilled:
                self._prefill()
            return self._iteration()
        except (RuntimeError, MemoryError) as error:
            if not is_out_of_memory(error):
                raise
            # What the unfinished iteration may have committed goes too: tokens and iterations must tell one story.
            del self.tokens[committed:]
            self.stopped = "unfinished"
            self.release()
            drop_frames(error)
            raise OutOfMemoryError(
                f"{self.pair.target.info.device} ran out of memory: shorten the prompt, lower node_budget or "
                "max_new_tokens, or load a smaller pair."
            ) from None

    def fork(
        self,
        method: Method | None = None,
        limits: Limits | None = None,
        sampling: Sampling | None = None,
        interventions: Interventions | None = None,
        draws_go_on: bool = False,
    ) -> "DecodeSession":
        """An independent session that continues from this iteration, with the given changes; no forward is run.

        Without another sampling the draws go on where they are; with one they begin at its seed, unless `draws_go_on`.
        The edits are to the first iteration of the fork alone, in place of those that are to be made here.
        """
        other = copy.copy(self)
        other.method = method or self.method
        other.sampling = sampling or self.sampling
        other.limits = limits or self.limits
        other.method.check(other.sampling)
        other.pair = other.method.drafting(self.pair)
        other.method = other._prepared(other.method)
        other.tokens, other.iterations = list(self.tokens), list(self.iterations)
        other.begin_draws(GeneratorDraws(sampling.seed) if sampling and not draws_go_on else self._draws.fork())
        other._loops = self._loops.copy()
        other._checkpoints, other._unwritten, other.last = Checkpoints(self._checkpoints), [], None
        other._interventions = self._interventions if interventions is None else interventions
        drafter = other.method.drafter
        other._models = self._models.clone(other.pair, drafter.uses_draft_model, drafter.needs_past)
        other._state = other.method.carried(self._state, self.method, list(self.prompt_ids))
        if other.new_tokens < other.limits.max_new_tokens and other.stopped == "length":
            other.stopped = "unfinished"
        return other

    def rewind(self, index: int) -> "DecodeSession":
        """An independent session that stands before iteration `index`: text, caches, drafter state and draws as then.

        It decodes on as this one did, to the bit, but for rounding in what a selector reads of the token before the
        root; `index` may be the next iteration. Where the caches were released meanwhile, its first step fills them
        again. Raises `SettingsError` where the iteration is not among those recorded, `PairError` where the pair was
        released.
        """
        if self.pair.target.released:
            raise PairError(f"{self.pair.target.info.name} was released from memory: load the pair and re-run.")
        if index == self._count:
            return self.fork()
        point = self._checkpoints.at(index)
        other = copy.copy(self)
        other.method, other.sampling, other._state = point.method, point.sampling, point.state
        other.pair = point.method.drafting(self.pair)
        other.tokens = self.tokens[: point.tokens]
        other.iterations = [iteration for iteration in self.iterations if iteration.index < index]
        other._checkpoints, other._unwritten, other.last = self._checkpoints.before(index), [], None
        other.begin_draws(point.draws.fork(point.drawn))
        other._loops = LoopDetector.after(other.tokens[len(self.prompt_ids) :])
        other._count, other.stopped = index, "unfinished"
        other._interventions = interventions_at(self.iterations, index)
        other.prefill_s, other.ttft_s, other.elapsed_s = point.prefill_s, point.ttft_s, point.elapsed_s
        needs_past = point.method.drafter.needs_past
        other._models = self._models.cut_clone(other.pair, point.target_rows, point.draft_rows, needs_past)
        return other

    def standing(self, index: int) -> SessionState:
        """How an iteration was, or the next one will be, made; no cache is copied; see `Checkpoints.at`."""
        if index == self._count:
            return SessionState(self.method, self.sampling, self._state, self._draws.fork())
        point = self._checkpoints.at(index)
        return SessionState(point.method, point.sampling, point.state, point.draws.fork(point.drawn))

    def own_from(self, index: int, standing: SessionState) -> int:
        """The first iteration since which all before `index` were made in this way; `index` where none was."""
        return self._checkpoints.before(index).made_by(standing.method, standing.sampling, index)

    def begin_draws(self, draws: GeneratorDraws) -> None:
        """Draw from here on; where the draws began is kept, so that a rewound session can find its place."""
        self._draws, self._first_draws = draws, draws.fork()

    def _prepared(self, method: Method) -> Method:
        try:
            return prepared(method, self.pair, self.sampling)
        except (RuntimeError, MemoryError) as error:
            if not is_out_of_memory(error):
                raise
            drop_frames(error)
            raise OutOfMemoryError(
                f"{self.pair.target.info.device} ran out of memory while {method.label} was calibrated: load a smaller "
                "pair or choose another method."
            ) from None

    @torch.inference_mode()
    def peek(self) -> tuple[Draft, TargetDistributions]:
        """Draft a tree here and run the target over it; nothing is committed, drawn or learned by it.

        Where the text was not read yet it is now, so that the first step does not have to.
        """
        if not self._models.prefilled:
            self._prefill()
        other = self.fork()
        clock = PhaseClock(other.pair.target.device)
        following = other._next()
        draft, _ = following.draft(clock)
        _, edited = following.verified_rows(draft, clock)
        return draft, TargetDistributions(edited, other.sampling)

    def release(self) -> None:
        """Give the caches back; the trace so far stays readable."""
        self._models.release()

    def doubt_costs(self) -> None:
        """Hold the passes so far against the costs kept of the pair, as the end of a recorded run does."""
        doubt(self.pair, self.iterations)

    def trace(self) -> RunTrace:
        """Everything so far as one record."""
        text = self.pair.vocabulary.text
        return RunTrace(
            format_version=FORMAT_VERSION,
            created=utc_stamp(),
            method=self.method.name,
            label=method_label(self.method),
            settings=self.method.settings(),
            pair=self.pair.info,
            sampling=self.sampling.trace(),
            max_new_tokens=self.limits.max_new_tokens,
            prompt_ids=self.prompt_ids,
            prompt_texts=tuple(text(token) for token in self.prompt_ids),
            hardware=describe_hardware(self.pair.target.device),
            iterations=tuple(self.iterations),
            totals=Totals(
                new_tokens=self.new_tokens,
                prefill_s=self.prefill_s,
                ttft_s=self.ttft_s,
                wall_s=self.elapsed_s,
                stopped=self.stopped,
                peak_memory_bytes=self._models.peak_memory(),
            ),
            own_from=self._checkpoints.made_by(self.method, self.sampling, self._count),
            stop_ids=tuple(sorted(self.stops)),
        )

    def _prefill(self) -> None:
        """Fill the caches; reading the text again after they were released is no part of the call."""
        took_s = self._models.prefill(self.tokens, again=self._count > 0)
        if not self._count:
            self.elapsed_s += took_s - self.prefill_s  # in place of the one of the run that this was forked from
            self.prefill_s = took_s

    def _next(self) -> Iteration:
        return Iteration(
            models=self._models,
            standing=SessionState(self.method, self.sampling, self._state, self._draws),
            tokens=self.tokens,
            room=self.limits.max_new_tokens - self.new_tokens,
            stops=self.stops,
            interventions=self._interventions,
            record=self.limits.record == "full",
        )

    def _iteration(self) -> IterationTrace:
        step = IterationState(self._count, len(self.tokens), self.in_loop, started_s=self.elapsed_s)
        checkpoint, iteration = self._here(), self._next()
        draws_before = len(self._draws.record)
        clock = PhaseClock(self.pair.target.device)
        self._state = iteration.run(step, clock)
        if step.committed[-1] in iteration.stops:
            self.stopped = "end_of_text"
        elif len(step.committed) >= iteration.room:
            self.stopped = "length"
        step.times = phase_times(clock, step.draft.prune_s)
        step.draws = tuple(self._draws.record[draws_before:])
        self._loops.push(step.committed)
        self.elapsed_s += step.times.total_s
        step.ended_s = self.elapsed_s
        if self._count == 0:
            self.ttft_s = self.elapsed_s
            if self._models.draft_cache is None:
                self.prefill_s = step.times.verify_s
        self._count += 1
        text, limits = self.pair.vocabulary.text, self.limits
        trace = write_iteration(step, text, self.sampling, limits.record, limits.rows != "top")
        self.last = step
        trace = explain_interventions(trace, self._interventions, self.method.verifier, self.sampling)
        self._interventions = Interventions()
        if limits.record != "none":
            self.iterations.append(trace)
            self._checkpoints[trace.index] = checkpoint
            self._let_rows_go(trace)
            self._drop_old_rows(trace.logits_bytes if limits.rows == "open" else limits.row_bytes)
            if self.finished:
                self.doubt_costs()
        return trace

    def _here(self) -> Checkpoint:
        draft_cache = self._models.draft_cache
        return Checkpoint(
            index=self._count,
            tokens=len(self.tokens),
            target_rows=self._models.target_cache.length,
            draft_rows=None if draft_cache is None else draft_cache.length,
            method=self.method,
            sampling=self.sampling,
            state=self._state,
            draws=self._first_draws,
            drawn=len(self._draws.record),
            prefill_s=self.prefill_s,
            ttft_s=self.ttft_s,
            elapsed_s=self.elapsed_s,
        )

    def _let_rows_go(self, trace: IterationTrace) -> None:
        """Let the rows of the oldest unwritten trees go until those of the others fit into `UNWRITTEN_BYTES`."""
        if not isinstance(trace, UnwrittenTrace):
            return
        self._unwritten = [held for held in (*self._unwritten, trace) if held.waiting_bytes]
        room = UNWRITTEN_BYTES - sum(held.waiting_bytes for held in self._unwritten)
        for held in self._unwritten:
            if room >= 0:
                break
            room += held.waiting_bytes
            held.let_rows_go()

    def _drop_old_rows(self, room: int | None) -> None:
        """Drop the raw logits of the oldest iterations until what is left fits into `room` bytes; None: no limit."""
        if room is None:
            return
        for place in range(len(self.iterations) - 1, -1, -1):
            held = self.iterations[place]
            if held.target_logits is None:  # rows go from the oldest on, so nothing older has any
                break
            room -= held.logits_bytes
            if room < 0:
                self.iterations[place] = replace(held, draft_logits=None, target_logits=None)


def prepared(method: Method, pair: Pair, sampling: Sampling) -> Method:
    """The method with what it has to know of a pair filled in, which may be measured for seconds here."""
    return method.prepared(MeasuredPair(method.drafting(pair), sampling, unrecorded))


def unrecorded(
    pair: Pair, method: Method, prompt_ids: list[int], max_new_tokens: int, sampling: Sampling | None = None
) -> DecodeSession:
    """A session that goes on beyond the end of text and records nothing, for what decodes to be timed."""
    limits = Limits(max_new_tokens, ignore_end_of_text=True, record="none")
    return DecodeSession(pair, method, prompt_ids, sampling, limits)


FIRST_TEXT, FIRST_TOKENS = "One day", 6


def open_pair(settings: PairSettings) -> tuple[Pair, CostModel]:
    """A pair that has decoded, and what its passes cost here; one that fails at that does not stay in memory."""
    pair = load_pair(settings)
    try:
        check_wanted()
        warm_up(pair)
        return pair, cost_model(pair, unrecorded)
    except BaseException:  # whatever stopped it: nobody holds the pair who could release it
        release(pair)
        raise


def warm_up(pair: Pair) -> None:
    """Decode a few tokens: the first passes after loading are many times slower and would mislead on screen."""
    prompt_ids = pair.vocabulary.encode(FIRST_TEXT)
    list(DecodeSession(pair, METHODS["dynatree"], prompt_ids, limits=Limits(FIRST_TOKENS, ignore_end_of_text=True)))

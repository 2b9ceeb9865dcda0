"""DecodeSession: one call of tree speculative decoding, one iteration at a time; it forks, rewinds and resumes."""

import time
from collections.abc import Iterator
from typing import Any, Literal

import numpy as np
import torch

from decoding.cache_update import keep_committed_rows
from decoding.checkpoints import Checkpoint, Checkpoints, Standing, advanced, cut_copy
from decoding.clock import PhaseClock, phase_times
from decoding.committing import cut_path
from decoding.draft_source import ModelSource, NoSource
from decoding.drafters.base import Draft
from decoding.edited_tree import edit_draft, edit_rows, explain_edits
from decoding.edits import Edits
from decoding.engines.device_choice import DeviceIteration, NextToken, choose_iteration
from decoding.errors import OutOfMemoryError, PairError, require
from decoding.hardware import describe_hardware
from decoding.kv_cache import KVCache
from decoding.limits import Limits, check_prompt
from decoding.loops import LoopDetector
from decoding.methods import Method
from decoding.pair import Model, Pair
from decoding.pair_checks import is_out_of_memory
from decoding.pair_loading import drop_frames
from decoding.recorder import Step, write_iteration
from decoding.row_memory import drop_old_rows, trace_bytes
from decoding.sampling import GeneratorDraws, Sampling, TargetRows
from decoding.trace import FORMAT_VERSION, IterationTrace, RunTrace, SamplingTrace, Totals
from decoding.tree_attention import causal_visibility, tree_forward, visibility

__all__ = ["DecodeSession", "Limits", "decode"]


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
        self.pair, self.method = pair, method
        self.sampling, self.limits = sampling or Sampling(), limits or Limits()
        self.method.check(self.sampling)
        check_prompt(pair, prompt_ids, self.limits.max_new_tokens)
        self.method = self._prepared(self.method)
        self.prompt_ids = tuple(int(token) for token in prompt_ids)
        self.tokens = list(self.prompt_ids)
        self.iterations: list[IterationTrace] = []
        self.stopped: Literal["length", "end_of_text", "unfinished"] = "unfinished"
        self.prefill_s = self.ttft_s = self.elapsed_s = 0.0
        self._count = 0
        self._state: Any = self.method.drafter.start(list(prompt_ids))
        self._begin_draws(GeneratorDraws(self.sampling.seed))
        self._loops = LoopDetector()
        self._checkpoints = Checkpoints()
        self._edits = Edits()
        capacity = len(prompt_ids) + self.limits.max_new_tokens + 128
        self._target_cache = pair.target.engine.new_cache(capacity)
        uses_draft = self.method.drafter.uses_draft_model
        self._draft_cache = pair.draft.engine.new_cache(capacity) if uses_draft else None
        self._prefilled = False

    @property
    def new_tokens(self) -> int:
        """Tokens committed so far, the prompt left out."""
        return len(self.tokens) - len(self.prompt_ids)

    @property
    def finished(self) -> bool:
        """True once the end of text or the length limit is reached."""
        return self.stopped != "unfinished"

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
            if not self._prefilled:
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
        edits: Edits | None = None,
        draws_go_on: bool = False,
    ) -> "DecodeSession":
        """An independent session that continues from here, with what is given changed; no forward is run.

        Without another sampling the draws go on where they are; with one they begin at its seed, unless `draws_go_on`.

        Args:
            edits: changes to the first iteration of the fork alone.
        """
        other = DecodeSession.__new__(DecodeSession)
        other.__dict__.update(self.__dict__)
        other.method = method or self.method
        other.sampling = sampling or self.sampling
        other.limits = limits or self.limits
        other.method.check(other.sampling)
        other.method = other._prepared(other.method)
        other.tokens, other.iterations = list(self.tokens), list(self.iterations)
        other._begin_draws(GeneratorDraws(sampling.seed) if sampling and not draws_go_on else self._draws.fork())
        other._loops = self._loops.copy()
        other._checkpoints, other._edits = self._checkpoints.before(), edits or Edits()
        other._target_cache = self._target_cache.clone()
        other._draft_cache = self._draft_cache.clone() if self._draft_cache else None
        if other.method.drafter != self.method.drafter:
            other._state = other.method.drafter.start(list(self.prompt_ids))
        if other.method.drafter.uses_draft_model and other._draft_cache is None:
            other._draft_cache = self.pair.draft.engine.new_cache(self._target_cache.capacity)
        if other.new_tokens < other.limits.max_new_tokens and other.stopped == "length":
            other.stopped = "unfinished"
        return other

    def rewind(self, index: int) -> "DecodeSession":
        """An independent session that stands before iteration `index`: text, caches, drafter state and draws as then.

        It decodes on as this one did, to the bit; `index` may be the next iteration. Where the caches were released
        meanwhile, its first step fills them again.

        Raises:
            SettingsError: the iteration is not among those recorded.
            PairError: the pair was released.
        """
        if self.pair.target.released:
            raise PairError(f"{self.pair.target.info.name} was released from memory: load the pair and decode again.")
        if index == self._count:
            return self.fork()
        point = self._checkpoints.at(index)
        other = DecodeSession.__new__(DecodeSession)
        other.__dict__.update(self.__dict__)
        other.method, other.sampling, other._state = point.method, point.sampling, point.state
        other.tokens = self.tokens[: point.tokens]
        other.iterations = [iteration for iteration in self.iterations if iteration.index < index]
        other._checkpoints = self._checkpoints.before(index)
        other._begin_draws(advanced(point.draws, point.drawn))
        other._loops = LoopDetector.after(other.tokens[len(self.prompt_ids) :])
        other._count, other.stopped, other._edits = index, "unfinished", Edits()
        other.prefill_s, other.ttft_s, other.elapsed_s = point.prefill_s, point.ttft_s, point.elapsed_s
        other._target_cache = cut_copy(self._target_cache, point.target_rows)
        other._draft_cache = None if point.draft_rows is None else cut_copy(self._draft_cache, point.draft_rows)
        other._prefilled = self._prefilled and self._target_cache.length >= point.target_rows
        return other

    def standing(self, index: int) -> Standing:
        """How an iteration was, or the next one will be, made; of the caches nothing is copied.

        Raises:
            SettingsError: the iteration is not among those recorded.
        """
        if index == self._count:
            return Standing(self.method, self.sampling, self._state, self._draws.fork())
        point = self._checkpoints.at(index)
        return Standing(point.method, point.sampling, point.state, advanced(point.draws, point.drawn))

    def _begin_draws(self, draws: GeneratorDraws) -> None:
        """Draw from here on; where the draws began is kept, so that a rewound session can find its place."""
        self._draws, self._first_draws = draws, draws.fork()

    def _prepared(self, method: Method) -> Method:
        """The method with what it has to know of the pair, which may be measured here."""
        try:
            return method.prepared(self.pair, self.sampling)
        except (RuntimeError, MemoryError) as error:
            if not is_out_of_memory(error):
                raise
            drop_frames(error)
            raise OutOfMemoryError(
                f"{self.pair.target.info.device} ran out of memory while {method.label} was calibrated: load a smaller "
                "pair or choose another method."
            ) from None

    @torch.inference_mode()
    def peek(self) -> tuple[Draft, TargetRows]:
        """Draft a tree here and run the target over it; nothing is committed, drawn or learned by it."""
        other = self.fork()
        if not other._prefilled:
            other._prefill()
        clock = PhaseClock(other.pair.target.device)
        draft = other.method.drafter.draft(other._state, other._source(clock), other.tokens[-1], other._draws)
        return draft, TargetRows(other._verify_pass(draft, clock), other.sampling)

    def release(self) -> None:
        """Give the caches back; the trace so far stays readable."""
        self._target_cache = self._target_cache.fresh(1)
        self._draft_cache = self._draft_cache.fresh(1) if self._draft_cache else None
        self.stopped = "unfinished" if not self.finished else self.stopped
        self._prefilled = False

    def trace(self) -> RunTrace:
        """Everything so far as one record."""
        info, text = self.pair.info, self.pair.vocabulary.text
        return RunTrace(
            format_version=FORMAT_VERSION,
            created=time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
            method=self.method.name,
            label=self.method.label,
            settings=self.method.settings(),
            pair=info,
            sampling=SamplingTrace(
                self.sampling.temperature, self.sampling.top_p, self.sampling.draft_temperature, self.sampling.seed
            ),
            max_new_tokens=self.limits.max_new_tokens,
            prompt_ids=self.prompt_ids,
            prompt_texts=tuple(text(token) for token in self.prompt_ids),
            hardware=describe_hardware(self.pair.target.device),
            iterations=tuple(self.iterations),
            totals=Totals(
                self.new_tokens, self.prefill_s, self.ttft_s, self.elapsed_s, self.stopped, self._peak_memory()
            ),
        )

    def _prefill(self) -> None:
        """Fill both caches with everything committed but the root.

        Without a draft the target reads the prompt in its first verification pass, as `generate` does.
        """
        if self.pair.target.device.type == "cuda":
            torch.cuda.reset_peak_memory_stats(self.pair.target.device)
        clock = PhaseClock(self.pair.target.device)
        if self._draft_cache is not None:
            self._fill(self.pair.target, self._target_cache)
            self._fill(self.pair.draft, self._draft_cache)
        clock.mark("prefill")
        self.prefill_s = sum(seconds for _, seconds in clock.durations())
        self.elapsed_s += self.prefill_s
        self._prefilled = True

    def _fill(self, model: Model, cache: KVCache) -> None:
        """Run the committed tokens that a cache lacks, all but the last one."""
        missing = self.tokens[cache.length : -1]
        if missing:
            positions = np.arange(cache.length, cache.length + len(missing))
            tree_forward(model, cache, missing, positions, causal_visibility(cache.length, len(missing)), keep=1)

    def _iteration(self) -> IterationTrace:
        step = Step(self._count, len(self.tokens), self._loops.in_loop, started_s=self.elapsed_s)
        checkpoint = self._here()
        clock = PhaseClock(self.pair.target.device)
        draws_before = len(self._draws.record)

        # Steps 1 to 3: draft a tree below the last committed token, one target pass over it, the verifier's walk.
        step.target_rows_before = self._target_cache.length
        on_device = self._on_device()
        if on_device is not None:
            step.source, step.draft, step.logits, step.verification = on_device.run(clock)
        else:
            self._draft_and_verify(step, clock)

        # Step 4: commit, cut at end of text, and bring both caches to the committed text.
        self._cut(step)
        self.tokens.extend(step.committed)
        self._update_caches(step, on_device is not None, clock)

        # Step 5: the drafter learns from the outcome.
        self._state, step.history = self.method.drafter.observe(step.draft.state, step.outcome())
        clock.mark("adapt")

        step.times = phase_times(clock, step.draft.prune_s)
        step.draws = tuple(self._draws.record[draws_before:])
        self._loops.push(step.committed)
        self.elapsed_s += step.times.total_s
        step.ended_s = self.elapsed_s
        if self._count == 0:
            self.ttft_s = self.elapsed_s
            if self._draft_cache is None:
                self.prefill_s = step.times.verify_s
        self._count += 1
        trace = write_iteration(step, self.pair.vocabulary, self.limits.record, self.limits.rows != "top")
        if self._edits:
            trace, self._edits = explain_edits(trace, self._edits), Edits()
        self._keep(trace, checkpoint)
        return trace

    def _here(self) -> Checkpoint:
        """Where the session stands, for a way back."""
        return Checkpoint(
            index=self._count,
            tokens=len(self.tokens),
            target_rows=self._target_cache.length,
            draft_rows=None if self._draft_cache is None else self._draft_cache.length,
            method=self.method,
            sampling=self.sampling,
            state=self._state,
            draws=self._first_draws,
            drawn=len(self._draws.record),
            prefill_s=self.prefill_s,
            ttft_s=self.ttft_s,
            elapsed_s=self.elapsed_s,
        )

    def _draft_and_verify(self, step: Step, clock: PhaseClock) -> None:
        # Step 1: the draft grows a tree below the last committed token.
        step.source = self._source(clock)
        step.draft = self.method.drafter.draft(self._state, step.source, self.tokens[-1], self._draws)
        if self._edits:
            step.draft = edit_draft(step.draft, step.source, self._edits, self.pair.vocabulary.text)
        clock.mark("draft_logic")

        # Step 2: one target pass over the whole tree.
        step.logits = self._verify_pass(step.draft, clock)

        # Step 3: the verifier walks the tree.
        target = TargetRows(edit_rows(step.logits, step.draft, self._edits), self.sampling)
        step.verification = self.method.verifier.verify(step.draft, target, self._draws)
        clock.mark("select")

    def _on_device(self) -> DeviceIteration | NextToken | None:
        """Steps 1 to 3 as they run without the host, None where this method or pair cannot, or somebody interferes."""
        if self._edits:
            return None
        caches, record = (self._target_cache, self._draft_cache), self.limits.record == "full"
        temperature = self.sampling.draft_temperature
        return choose_iteration(
            self.pair, self.method, self._state, self.tokens, caches, self._depth_limit, temperature, record
        )

    @property
    def _depth_limit(self) -> int:
        """Depth of the deepest node whose token could still be committed with one behind it."""
        return self.limits.max_new_tokens - self.new_tokens - 1

    def _source(self, clock: PhaseClock) -> ModelSource | NoSource:
        if self._draft_cache is None:
            return NoSource(self._depth_limit)
        return ModelSource(
            self.pair.draft,
            self._draft_cache,
            self.tokens,
            self.pair.logits_size,
            self._depth_limit,
            clock,
            self.sampling.draft_temperature,
        )

    def _verify_pass(self, draft: Draft, clock: PhaseClock) -> torch.Tensor:
        """Target logits after every verified node, `[num_verified + 1, vocab_size]`."""
        tree, order = draft.tree, draft.order
        tokens, positions = tree.tokens[order], len(self.tokens) - 1 + tree.depths[order]
        mask = visibility(self._target_cache.length, tree.ancestors[order][:, order])
        missing = self.tokens[self._target_cache.length : -1]
        if missing:  # only without a draft, where the tree is its root and the pass a causal one
            tokens, positions = np.concatenate([missing, tokens]), np.arange(len(self.tokens))[-len(missing) - 1 :]
            mask = causal_visibility(self._target_cache.length, len(tokens))
        mask = self.pair.target.engine.mask(mask)
        clock.mark("mask")
        logits = tree_forward(self.pair.target, self._target_cache, tokens, positions, mask, keep=len(order))
        clock.mark("verify")
        return logits

    def _cut(self, step: Step) -> None:
        """What the iteration commits of its path, cut at end of text or length."""
        room = self.limits.max_new_tokens - self.new_tokens
        stops = () if self.limits.ignore_end_of_text else self.pair.vocabulary.stop_ids
        cut = cut_path(step.draft, step.verification, room, stops)
        step.committed, step.kept, step.final_kind = cut.committed, cut.kept, cut.final_kind
        if cut.ends_text:
            self.stopped = "end_of_text"
        elif len(cut.committed) >= room:
            self.stopped = "length"

    def _update_caches(self, step: Step, moved: bool, clock: PhaseClock) -> None:
        """Both caches end up holding every committed token but the last one."""
        rebuild = self.method.cache_policy == "rebuild" and self.method.drafter.uses_draft_model
        keep_committed_rows(step, len(self.tokens), self._target_cache, self._draft_cache, rebuild, moved)
        clock.mark("commit")
        if rebuild:
            self._fill(self.pair.target, self._target_cache)
            clock.mark("rebuild")

    def _keep(self, trace: IterationTrace, checkpoint: Checkpoint) -> None:
        if self.limits.record == "none":
            return
        self.iterations.append(trace)
        self._checkpoints.keep(checkpoint)
        room = trace_bytes(trace) if self.limits.rows == "open" else self.limits.row_bytes
        if self.limits.rows != "top" and room is not None:
            drop_old_rows(self.iterations, room)

    def _peak_memory(self) -> int | None:
        """Peak bytes on CUDA; weights and caches elsewhere."""
        device = self.pair.target.device
        if device.type == "cuda":
            return torch.cuda.max_memory_allocated(device)
        caches = self._target_cache.allocated_bytes
        weights = self.pair.info.target.weight_bytes
        if self._draft_cache is not None:
            caches += self._draft_cache.allocated_bytes
            weights += self.pair.info.draft.weight_bytes
        return caches + weights


def decode(
    pair: Pair,
    method: Method,
    prompt_ids: list[int],
    sampling: Sampling | None = None,
    limits: Limits | None = None,
) -> Iterator[IterationTrace]:
    """Decode a prompt, one `IterationTrace` at a time."""
    yield from DecodeSession(pair, method, prompt_ids, sampling, limits)

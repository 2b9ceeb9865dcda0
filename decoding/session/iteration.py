"""One iteration of tree decoding: a tree is drafted, verified in one pass and committed, and the drafter learns."""

from collections.abc import Container
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from decoding.device.iteration import DeviceIteration, NextToken, choose_iteration
from decoding.engines.clock import PhaseClock
from decoding.sampling.sampling import TargetRows
from decoding.session.cached_models import CachedModels
from decoding.session.checkpoints import Standing
from decoding.session.edited_tree import edit_draft, edit_rows
from decoding.session.recorder import Step
from decoding.sources.draft import HeadSource, ModelSource, NoSource
from decoding.trace.edits import Edits
from decoding.tree.draft import Draft, in_order
from decoding.verifiers.base import cut_path


@dataclass(frozen=True)
class Iteration:
    """An iteration that is about to be made.

    Attributes:
        models: with the rows of the text.
        standing: method and sampling, the drafter's state, and the draws, which it takes from.
        tokens: the text, prompt and all; what is committed is appended.
        room: tokens that may still be committed.
        stops: tokens that end the text.
        edits: to the tree and its verdicts.
        record: whether laws and logits are wanted.
    """

    models: CachedModels
    standing: Standing
    tokens: list[int]
    room: int
    stops: Container[int]
    edits: Edits
    record: bool

    def run(self, step: Step, clock: PhaseClock) -> Any:
        """Make it, fill `step` in, and return the drafter's next state."""
        # Steps 1 to 3: draft a tree below the last committed token, one target pass over it, the verifier's walk.
        step.target_rows_before = self.models.target_cache.length
        step.method = self.standing.method
        on_device = self._on_device()
        if on_device is not None:
            step.source, step.draft, step.logits, step.verification = on_device.run(clock)
        else:
            self._draft_and_verify(step, clock)

        # Step 4: commit, cut at end of text, and bring both caches to the committed text.
        path = cut_path(step.draft, step.verification, self.room, self.stops)
        step.committed, step.kept, step.final_kind = path
        self.tokens.extend(step.committed)
        self._update_caches(step, on_device is not None, clock)

        # Step 5: the drafter learns from the outcome.
        state, step.history = self.standing.method.drafter.observe(step.draft.state, step.outcome())
        clock.mark("adapt")
        return state

    def draft(self, clock: PhaseClock) -> tuple[Draft, ModelSource | HeadSource | NoSource]:
        """Step 1: a tree below the last committed token, and the source that was asked about it."""
        # No node may be deeper than the last whose token could be committed with one behind it.
        sampling = self.standing.sampling
        source = self.models.source(self.tokens, self.room - 1, clock, sampling.draft_temperature, sampling)
        drafter, state = self.standing.method.drafter, self.standing.state
        draft = drafter.draft(state, source, self.tokens[-1], self.standing.draws)
        if self.edits:
            draft = edit_draft(draft, source, self.edits, self.models.pair.vocabulary.text)
        draft = in_order(draft, self.standing.method.node_order)
        clock.mark("draft_logic")
        return draft, source

    def verified_rows(self, draft: Draft, clock: PhaseClock) -> tuple[Tensor, Tensor]:
        """Step 2: the target's logits of the verified nodes, and as the verifier is to see them after edits."""
        logits = self.models.verify(draft, self.tokens, clock)
        return logits, edit_rows(logits, draft, self.edits)

    def _draft_and_verify(self, step: Step, clock: PhaseClock) -> None:
        """Steps 1 to 3 with the drafter's and the verifier's own code."""
        step.draft, step.source = self.draft(clock)
        step.logits, edited = self.verified_rows(step.draft, clock)
        target = TargetRows(edited, self.standing.sampling)
        step.verification = self.standing.method.verifier.verify(step.draft, target, self.standing.draws)
        clock.mark("select")

    def _on_device(self) -> DeviceIteration | NextToken | None:
        """Steps 1 to 3 as they run without the host, None where this method or pair cannot, or somebody interferes."""
        if self.edits or self.models.features is not None:  # the device knows draft models alone, and keeps no features
            return None
        models, standing = self.models, self.standing
        return choose_iteration(
            models.pair,
            standing.method,
            standing.state,
            self.tokens,
            (models.target_cache, models.draft_cache),
            self.room - 1,
            standing.sampling.draft_temperature,
            self.record,
        )

    def _update_caches(self, step: Step, moved: bool, clock: PhaseClock) -> None:
        """Both caches end up holding every committed token but the last one."""
        step.keep_rows(self.models.target_cache, self.models.draft_cache, moved)
        self.models.keep_features(step.kv_target)
        clock.mark("commit")
        if step.rebuilds:
            self.models.fill_target(self.tokens)
            clock.mark("rebuild")

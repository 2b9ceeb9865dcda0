"""One iteration of tree decoding: a tree is drafted, edited by hand, verified in one pass and committed."""

from collections.abc import Callable, Container
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from decoding.common.errors import SettingsError, require
from decoding.device.iteration import NoSource, choose_iteration
from decoding.drafters.base import ProbabilitySource
from decoding.engines.clock import PhaseClock
from decoding.methods.method import Method
from decoding.sampling.draws import GeneratorDraws
from decoding.sampling.sampling import Sampling, TargetDistributions
from decoding.session.cached_models import CachedModels, ModelSource
from decoding.session.recorder import IterationState
from decoding.trace.interventions import Interventions, Path, intervened_nodes, touches_first_child
from decoding.trace.records import InterventionTrace, IterationTrace
from decoding.tree.draft import Draft, TokenTree, TreePaths, in_order
from decoding.verifiers.base import Verifier, cut_path

# Verifiers that draw from the target's distribution and only look whether a child has the token: any tree will do.
TREE_BLIND = ("nss", "greedy")
# Verifiers that hold only the first child of a node against the distribution it was drawn from; others are only gone on
# through.
FIRST_CHILD = ("naive", "naive_tree", "block")


def nodes_by_path(tree: TokenTree) -> dict[Path, int]:
    """Every node of a tree by its token path; the root's is empty."""
    return {path: node for node, path in enumerate(TreePaths().of(tree, np.arange(tree.size)))}


def edit_draft(
    draft: Draft, source: ProbabilitySource, interventions: Interventions, text_of: Callable[[int], str]
) -> Draft:
    """The draft with nodes put in and taken out; what is put in stands last among its siblings.

    The draft's distribution after the parent of a node that is put in is asked for where the drafter never did, which
    is one more draft forward. Raises `SettingsError` where an edit does not fit this tree.
    """
    require(
        draft.draft_sampling != "none" or not interventions.force_in,
        "This method has no draft: choose another method to force a node in.",
    )
    ids, verified = nodes_by_path(draft.tree), set(draft.order.tolist())
    rows, added = list(draft.rows), []
    for path in sorted(interventions.force_in, key=len):
        node = ids.get(path)
        if node is None:
            node = ids[path] = _add(draft.tree, rows, source, path, ids, text_of)
            added.append(node)
        else:
            require(node not in verified, f"{_named(path, text_of)} is already in the tree: there is nothing to add.")
        verified.update(np.flatnonzero(draft.tree.ancestors[node]).tolist())  # with all above it
    for path in interventions.force_out:
        node = _verified(path, ids, verified, text_of)
        verified -= set(np.flatnonzero(draft.tree.ancestors[:, node]).tolist())
    for path in (*interventions.accept, *interventions.reject):
        _verified(path, ids, verified, text_of)
    keep = np.zeros(draft.tree.size, dtype=bool)
    keep[list(verified)] = True
    drawn = draft.drawn if draft.drawn is None else np.append(draft.drawn, np.array(added, dtype=np.int64))
    return replace(draft, order=draft.tree.breadth_first(keep), rows=tuple(rows), drawn=drawn)


def edit_logits(logits: Tensor, draft: Draft, interventions: Interventions) -> Tensor:
    """The target's raw logits `[num_verified + 1, vocab_size]` with forced verdicts in them: the rest is -inf.

    Temperature and top-p come after it, so what is left of a row is renormalised as they ask.
    """
    if not interventions.rows:
        return logits
    edited, ids = logits.clone(), nodes_by_path(draft.tree)
    row_of = {int(node): row for row, node in enumerate(draft.order)}
    for path, (only, removed) in interventions.rows.items():
        row = edited[row_of[ids[path]]]
        if only is not None:
            kept = float(row[only])
            require(kept > -torch.inf, "The target cannot emit the token that is force-accepted: choose another one.")
            row.fill_(-torch.inf)
            row[only] = kept
        row[list(removed)] = -torch.inf
        require(
            bool(row.isfinite().any()),
            "Every token that the target can emit at this node is force-rejected: leave at least one.",
        )
    return edited


def bias(interventions: Interventions, verifier: Verifier, sampling: Sampling, first_child: bool = True) -> str:
    """One sentence on why the output's distribution is no longer the target's; empty where it still is.

    A forced verdict changes the target itself. The shape of the tree matters only to verifiers that hold a child
    against the distribution it was drawn from: not to NSS and greedy ones, so deterministic trees can be edited freely,
    and at temperature 0 to none, since all that is ever emitted is the target's favourite. Of the others, naive and
    block verification hold only the `first_child` of its parent against it. That nothing is said of an edit means
    that the text keeps the target's distribution over all seeds; choosing the edit after seeing the draws of a seed
    chooses among texts.
    """
    if interventions.accept or interventions.reject:
        return "Forced verdicts replace the target's distribution, so the text no longer follows it."
    if not interventions or sampling.greedy or verifier.name in TREE_BLIND:
        return ""
    if verifier.name in FIRST_CHILD and not first_child:
        return ""
    moved = "a node forced in" if interventions.force_in else "a tree with a node forced out"
    moved = "a tree with forced nodes" if interventions.force_in and interventions.force_out else moved
    return (
        f"{verifier.label} verification relies on children being drawn from the draft's distribution, and "
        f"{moved} is not, so the text no longer follows the target's distribution."
    )


def explain_interventions(
    iteration: IterationTrace, interventions: Interventions, verifier: Verifier, sampling: Sampling
) -> IterationTrace:
    """The record with what was edited, whether that biases the text, and reasons of edited nodes that say so."""
    if not interventions:
        return iteration
    first = not iteration.nodes or touches_first_child(iteration, interventions)
    forced = tuple(InterventionTrace(kind, path) for kind, path in interventions)
    iteration = replace(iteration, interventions=forced, bias=bias(interventions, verifier, sampling, first))
    if not iteration.nodes:
        return iteration
    return replace(iteration, nodes=intervened_nodes(iteration, interventions))


def _add(tree, rows, source, path: Path, ids: dict[Path, int], text_of) -> int:
    """Append one node below its parent, with the draft's probability of it; returns its id."""
    parent = ids.get(path[:-1])
    if parent is None:
        raise SettingsError(f"{_named(path[:-1], text_of)} is not in the tree: force it in first.")
    require(
        len(path) <= source.depth_limit, f"{_named(path, text_of)} is beyond the length limit: raise max_new_tokens."
    )
    places = {int(node): (level, row) for level, (nodes, _) in enumerate(rows) for row, node in enumerate(nodes)}
    if parent not in places:
        probs = source.expand(tree, np.array([parent]))
        rows.append((np.array([parent]), probs))
        places[parent] = len(rows) - 1, 0
        tree.level[parent], tree.confidence[parent] = len(rows) - 1, float(probs.max())
        tree.set_stop_reason(np.array([parent]), "expanded")
    level, row = places[parent]
    probs = rows[level][1][row]
    require(0 <= path[-1] < len(probs), f"There is no token {path[-1]}: ids go from 0 to {len(probs) - 1}.")
    tree.branching[parent] = max(int(tree.branching[parent]), 0) + 1
    return int(tree.append(np.array([parent]), np.array([path[-1]]), np.array([float(probs[path[-1]])]))[0])


def _verified(path: Path, ids: dict[Path, int], verified: set[int], text_of) -> int:
    node = ids.get(path)
    if node is None:
        raise SettingsError(f"{_named(path, text_of)} is not in the tree of this iteration: force it in first.")
    require(node in verified, f"{_named(path, text_of)} was drafted but not verified: force it in first.")
    return node


def _named(path: Path, text_of: Callable[[int], str]) -> str:
    return "The node " + " > ".join(repr(text_of(token)) for token in path) if path else "The root"


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A session before one iteration. Rows of committed text never change, so lengths of the caches are enough."""

    index: int
    tokens: int  # committed tokens, the prompt included
    # target_rows, draft_rows: rows held; `draft_rows` is None where there was no draft cache
    target_rows: int
    draft_rows: int | None
    method: Method
    sampling: Sampling
    state: Any
    # draws, drawn: the draws as a session or fork began with them, and how many were taken since
    draws: GeneratorDraws
    drawn: int
    prefill_s: float
    ttft_s: float
    elapsed_s: float


class Checkpoints(dict[int, Checkpoint]):
    """The checkpoints of the recorded iterations of a session, by index."""

    def at(self, index: int) -> Checkpoint:
        """Where the session stood before a recorded iteration; raises `SettingsError` for others."""
        kept = f"{min(self) + 1} to {max(self) + 1}" if self else "none"
        require(index in self, f"This run has no iteration {index + 1} to go back to: it has recorded {kept}.")
        return self[index]

    def made_by(self, method: Method, sampling: Sampling, end: int) -> int:
        """Index of the first iteration since which all up to `end` were made in this way; `end` where none was."""
        for point in reversed(self.values()):
            if (point.method, point.sampling) != (method, sampling):
                break
            end = point.index
        return end

    def before(self, index: int) -> "Checkpoints":
        """Those before an iteration."""
        return Checkpoints({place: point for place, point in self.items() if place < index})


@dataclass(frozen=True)
class SessionState:
    """How an iteration is about to be made: the method and its sampling, the drafter's state, the draws."""

    method: Method
    sampling: Sampling
    state: Any
    draws: GeneratorDraws

    def changed(self, method: Method | None, sampling: Sampling | None) -> "SessionState":
        """The same with another method or sampling: another drafter begins anew, and so do draws of another seed.

        The same drafter with other settings keeps what it has learned as far as that holds for them.
        """
        method, sampling = method or self.method, sampling or self.sampling
        method.check(sampling)
        draws = self.draws if sampling.seed == self.sampling.seed else GeneratorDraws(sampling.seed)
        return SessionState(method, sampling, method.carried(self.state, self.method, []), draws)


@dataclass(frozen=True)
class Iteration:
    """An iteration that is about to be made."""

    models: CachedModels
    standing: SessionState
    tokens: list[int]  # the text, prompt and all; what is committed is appended
    room: int  # tokens that may still be committed
    stops: Container[int]  # tokens that end the text
    interventions: Interventions
    record: bool  # whether distributions and logits are wanted

    def run(self, step: IterationState, clock: PhaseClock) -> Any:
        """Make it, fill `step` in, and return the drafter's next state."""
        # Steps 1 to 3: draft a tree below the last committed token, one target pass over it, the verifier's walk.
        step.target_slots_before = self.models.target_cache.length
        step.method = self.standing.method
        moved = self._on_device(step, clock)
        if not moved:
            step.draft, step.source = self.draft(clock)
            step.logits, edited = self.verified_rows(step.draft, clock)
            target = TargetDistributions(edited, self.standing.sampling)
            step.verification = self.standing.method.verifier.verify(step.draft, target, self.standing.draws)
            clock.mark("select")

        # Step 4: commit, cut at end of text, and bring both caches to every committed token but the last one.
        path = cut_path(step.draft, step.verification, self.room, self.stops)
        step.committed, step.kept, step.final_kind = path
        self.tokens.extend(step.committed)
        step.keep_rows(self.models.target_cache, self.models.draft_cache, moved)
        if (features := self.models.features) is not None:
            features.compact(step.kv_target.slots_before, () if step.kv_target.rebuilt else step.kv_target.moved_from)
            if isinstance(step.source, ModelSource) and step.final_kind != "none":
                end = step.kept[-1] if step.kept else 0
                self.models.before_root = step.source.before_next(step.draft, step.logits, end, len(self.tokens))
        clock.mark("commit")
        if step.rebuilds:
            self.models.fill_target(self.tokens)
            clock.mark("rebuild")

        # Step 5: the drafter learns from the outcome.
        state, step.history = self.standing.method.drafter.observe(step.draft.state, step.outcome())
        clock.mark("adapt")
        return state

    def draft(self, clock: PhaseClock) -> tuple[Draft, NoSource]:
        """Step 1: a tree below the last committed token, and the source that was asked about it."""
        # No node may be deeper than the last whose token could be committed with one after it.
        sampling = self.standing.sampling
        source = self.models.source(self.tokens, self.room - 1, clock, sampling.draft_temperature, sampling)
        drafter, state = self.standing.method.drafter, self.standing.state
        draft = drafter.draft(state, source, self.tokens[-1], self.standing.draws)
        if self.interventions:
            draft = edit_draft(draft, source, self.interventions, self.models.pair.vocabulary.text)
        draft = in_order(draft, self.standing.method.node_order)
        clock.mark("draft_logic")
        return draft, source

    def verified_rows(self, draft: Draft, clock: PhaseClock) -> tuple[Tensor, Tensor]:
        """Step 2: the target's logits of the verified nodes, and as the verifier is to see them after edits."""
        logits = self.models.verify(draft, self.tokens, clock)
        return logits, edit_logits(logits, draft, self.interventions)

    def _on_device(self, step: IterationState, clock: PhaseClock) -> bool:
        """Steps 1 to 3 without the host; False where this method or pair cannot, or somebody interferes."""
        if self.interventions or self.models.features is not None:  # it knows draft models alone, and keeps no features
            return False
        models, standing = self.models, self.standing
        caches, temperature = (models.target_cache, models.draft_cache), standing.sampling.draft_temperature
        whole = choose_iteration(
            models.pair, standing.method, standing.state, self.tokens, caches, self.room - 1, temperature, self.record
        )
        if whole is not None:
            step.source, step.draft, logits, step.verification = whole.run(clock)
            if logits is not None:
                step.logits = logits
        return whole is not None

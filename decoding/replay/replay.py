"""Verify a recorded tree again from its stored rows: every verifier, exact expectations, as many seeds as wanted."""

from collections import Counter
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from decoding.common.errors import SettingsError
from decoding.common.interruption import pause_point
from decoding.sampling.draws import GeneratorDraws
from decoding.sampling.sampling import Sampling, TargetDistributions, exact_dtype
from decoding.trace.interventions import Verdicts
from decoding.trace.metrics import ended_nodes, expected_tokens
from decoding.trace.records import ROUNDING, FinalKind, IterationTrace, VerificationStep
from decoding.tree.draft import Draft, TokenTree
from decoding.verifiers import VERIFIERS, Verifier
from decoding.verifiers.base import Decision, Verification, VerifiedTree

LONG_DISTRIBUTION = 256  # shorter distributions are summed sooner than looked up
# A distribution, held so that its identity stays taken, its running sums, and the place of its last token that is not
# 0.
KeptSum = tuple[Tensor, np.ndarray, int]


def reroll(decision: Decision, seeds: Sequence[int]) -> list[Verification]:
    """Walk the same tree once per seed."""
    sums: dict[int, KeptSum] = {}
    walks = []
    for seed in seeds:
        pause_point(timed=True)  # a walk is too short for others to have a turn after each
        walks.append(decision.walk(_QuickDraws(seed, sums)))
    return walks


class _QuickDraws(GeneratorDraws):
    """The very draws of `GeneratorDraws` for many walks over one tree: they share long running sums."""

    def __init__(self, seed: int, kept: dict[int, KeptSum]):
        super().__init__(seed)
        self._kept = kept

    def choose(self, weights: Tensor) -> int:
        if len(weights) < LONG_DISTRIBUTION:
            return super().choose(weights)
        known = self._kept.get(id(weights))
        if known is None:
            sums = weights.to(exact_dtype(weights.device)).cumsum(-1).cpu().numpy()
            known = self._kept[id(weights)] = weights, sums, int(np.searchsorted(sums, sums[-1]))
        _, sums, last = known
        self.last_uniform = self._uniforms(1)[0]
        point = sums.dtype.type(self.last_uniform) * sums[-1]
        return min(int(np.searchsorted(sums, point, side="right")), last)


@dataclass(frozen=True)
class WalkResult:
    """What one walk came to."""

    tokens: int  # tokens committed, the final one included
    stop_node: int  # the last accepted node, 0 if none was
    accepted: tuple[int, ...]
    # final_token, final_kind: -1 and `none` where a walk was cut by the end of the text
    final_token: int
    final_kind: FinalKind
    steps: tuple[VerificationStep, ...]
    beyond: tuple[int, ...] = ()  # nodes accepted beyond the end of the text, where that is known


@dataclass(frozen=True)
class Refused:
    """A verifier that would bias the output of a recorded tree, and why."""

    verifier: Verifier
    refusal: str


@dataclass(frozen=True)
class Replayed:
    """One verifier in front of a recorded tree."""

    verifier: Verifier
    expected_tokens: float  # exact expected tokens of this tree, over all draws, up to the end of the text
    acceptance_probability: dict[int, float]  # exact probability of being reached and accepted, by node id
    outcome: WalkResult  # what happened with one seed
    tokens: dict[int, int]  # how many of the re-rolled seeds committed how many tokens
    refusal: None = None


def has_rows(iteration: IterationTrace) -> bool:
    """Whether the full rows of both models are there."""
    needs_draft = iteration.drafted > 0
    return iteration.target_logits is not None and (iteration.draft_logits is not None or not needs_draft)


def stored_tree(iteration: IterationTrace, sampling: Sampling) -> VerifiedTree:
    """The verified tree of a recorded iteration as its verifier saw it, under the sampling given.

    Temperature and top-p may differ from the run's: the tree does not depend on them. The draft's temperature may not,
    since the tree was drawn with it.

    Raises `SettingsError` where the iteration was recorded without its full rows.
    """
    target_logits = iteration.target_logits
    if target_logits is None or not has_rows(iteration):
        raise SettingsError("The full logits of this iteration were not saved: re-run it to compare verifiers.")
    tree = TokenTree.recorded(iteration.nodes)
    order = np.array(iteration.flatten_order)
    rows: tuple[tuple[np.ndarray, Tensor], ...] = ()
    if iteration.draft_logits is not None:
        asked = np.flatnonzero(~np.isnan(iteration.draft_logits).any(axis=1))
        parents = {iteration.nodes[node].parent_id for node in iteration.flatten_order[1:]}
        if not (parents <= set(asked.tolist()) or _drafted_without_model(iteration)):
            raise SettingsError("The draft logits of this iteration do not match its tree: re-run it.")
        logits = torch.from_numpy(iteration.draft_logits[asked]) / sampling.draft_temperature
        rows = ((asked, torch.softmax(logits, -1)),) if len(asked) else ()
    drawn = np.array(iteration.drawn, dtype=np.int64) if iteration.drawn else None
    draft = Draft(tree, order, iteration.draft_sampling, None, rows, dict(iteration.settings), drawn=drawn)
    return VerifiedTree(draft, TargetDistributions(torch.from_numpy(target_logits[order]), sampling))


def _drafted_without_model(iteration: IterationTrace) -> bool:
    """Whether a drafter chose the tree alone: then the children of a node are all that it could draft there.

    Where it drew them, their probabilities add up to 1; where it ranked them, by counts or by what the target said
    before, they may leave room for others.
    """
    if iteration.draft_sampling == "deterministic":
        return not iteration.draft_forwards
    given: dict[int, float] = {}
    for node in iteration.nodes[1:]:
        given[node.parent_id] = given.get(node.parent_id, 0.0) + (node.draft_probability or 0.0)
    return not iteration.draft_forwards and all(abs(each - 1) <= ROUNDING for each in given.values())


def replay(
    iteration: IterationTrace,
    sampling: Sampling,
    verifiers: Sequence[Verifier] | None = None,
    rerolls: int = 1000,
    stops: Collection[int] = (),
) -> tuple[Replayed | Refused, ...]:
    """All verifiers on the same tree: exact expectation, one walk with the sampling's seed, and re-rolled seeds.

    No model is run. The walk is what a run whose draws begin here with that seed would do; re-roll i takes seed i.
    What a walk has beyond `stops`, tokens that end the text, does not count.
    """
    tree, ended = stored_tree(iteration, sampling), ended_nodes(iteration, stops)
    found: list[Replayed | Refused] = []
    for verifier in [kind() for kind in VERIFIERS.values()] if verifiers is None else verifiers:
        refusal = verifier.refusal(iteration.draft_sampling, sampling)
        if refusal:
            found.append(Refused(verifier, refusal))
            continue
        decision = verifier.decide(tree)
        chances = dict(zip(tree.order, decision.acceptance_probability.tolist(), strict=True))
        walks = (outcome_of(walk, ended) for walk in reroll(decision, range(rerolls)))
        replayed = Replayed(
            verifier=verifier,
            expected_tokens=expected_tokens(chances, ended),
            acceptance_probability=chances,
            outcome=outcome_of(decision.walk(GeneratorDraws(sampling.seed)), ended),
            tokens=dict(sorted(Counter(walk.tokens for walk in walks).items())),
        )
        found.append(replayed)
    return tuple(found)


def recorded_outcome(iteration: IterationTrace) -> WalkResult:
    """The walk that the run itself made, with the draws that it made, as the record tells it."""
    return WalkResult(
        tokens=len(iteration.committed_ids),
        stop_node=iteration.accepted[-1] if iteration.accepted else 0,
        accepted=iteration.accepted,
        final_token=-1 if iteration.final_kind == "none" else iteration.committed_ids[-1],
        final_kind=iteration.final_kind,
        steps=iteration.steps,
    )


def outcome_of(verification: Verification, ended: Collection[int] = ()) -> WalkResult:
    """A walk without the tensors behind it, up to the first node that has `ended` the text."""
    accepted = verification.accepted
    end = next((place for place, node in enumerate(accepted, start=1) if node in ended), None)
    kept = accepted[:end]
    return WalkResult(
        tokens=len(kept) + (end is None),
        stop_node=kept[-1] if kept else 0,
        accepted=kept,
        final_token=verification.final_token if end is None else -1,
        final_kind=verification.final_kind if end is None else "none",
        steps=verification.steps,
        beyond=accepted[len(kept) :],
    )


def replayed_iteration(
    iteration: IterationTrace, replayed: Replayed, text_of: Callable[[int], str] | None = None
) -> IterationTrace:
    """The record as it would read had this verifier made this walk: verdicts, path, tests, final token.

    What the run did before and after verification (times, cache rows, draws) is left as it was; `text_of` gives the
    text of a token id that the record does not hold.
    """
    outcome = replayed.outcome
    left_out = iteration.rule.left_out
    path, first_path = outcome.accepted, replayed.verifier.tests_first_path
    reached = (*path, *outcome.beyond)
    verdicts = Verdicts(outcome.steps, iteration.flatten_order, reached, path, left_out, first_path)
    nodes = []
    for node in iteration.nodes:
        chance = replayed.acceptance_probability.get(node.node_id)
        if node.flat_index is not None:
            verdict, reason = verdicts.of(node.node_id, node.parent_id, node.token_id)
            node = replace(node, verdict=verdict, reason=reason)
        nodes.append(replace(node, acceptance_probability=chance))
    final = () if outcome.final_kind == "none" else (outcome.final_token,)
    tokens = [*(step.token_id for step in outcome.steps), *final]
    texts = {token: text_of(token) if text_of else f"<{token}>" for token in tokens} | dict(iteration.texts)
    committed = [*(iteration.nodes[node].text for node in outcome.accepted), *(texts[token] for token in final)]
    return replace(
        iteration,
        nodes=tuple(nodes),
        steps=outcome.steps,
        accepted=outcome.accepted,
        committed_ids=(*(iteration.nodes[node].token_id for node in outcome.accepted), *final),
        committed_texts=tuple(committed),
        final_kind=outcome.final_kind,
        texts=texts,
    )

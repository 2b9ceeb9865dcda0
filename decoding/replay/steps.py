"""One node under one verifier, step by step: its entries, what each test sees, what a rejection leaves."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from decoding.replay.replay import Replayed, WalkResult, stored_tree
from decoding.sampling.sampling import Sampling
from decoding.trace.records import IterationTrace
from decoding.verifiers.base import IID_TREES
from decoding.verifiers.theory import LOWER_BOUNDS, SOLVERS, NodeTests, acceptance_rate, best_acceptance, tests_at
from decoding.verifiers.top_down import TestDistributions

MOST_STAGES = 6
SHOWN_TOKENS, LEAST_SHOWN = 11, 1e-3

Result = Literal["passed", "failed", "picked", "below", ""]


@dataclass(frozen=True)
class EntryStep:
    """One entry of a node's list of children."""

    # child, text: the node and its token; a child drawn twice has two entries
    child: int
    text: str
    # draft, target: what both distributions after the node give the token, before any test
    draft: float
    target: float
    # Probability that its test passes once all tests before it have failed; None if it is never tested
    passes: float | None
    # Chance that its token wins the tournament and is the one tested; None where there is no tournament
    wins: float | None
    taken: float  # exact chance that the path goes on through it, given that it comes through the node
    # tested_at, drawn, result: what this seed did: the probability it was tested with (SpecInfer tests in an order of
    # its own), the number drawn, and whether the test `passed` or `failed`, the token was `picked`, drawn from a
    # distribution, or a node `below` it passed; empty if the walk never came to it
    tested_at: float | None
    drawn: float | None
    result: Result


@dataclass(frozen=True)
class DistributionStage:
    """Both distributions as one test sees them, or the distribution of the final token."""

    rejected: int  # tests that have failed before
    # Places in the list of entries that are tested against these distributions; empty for the final token
    tested: tuple[int, ...]
    target: tuple[float, ...]  # what is left of the target's distribution, for each of `NodeSteps.texts`
    draft: tuple[float, ...] | None  # what the entries are tested against; None for the final token
    # target_rest, draft_rest: probability of all other tokens together
    target_rest: float
    draft_rest: float | None


@dataclass(frozen=True)
class NodeSteps:
    """What a verifier does at one node."""

    node: int
    reached: float  # exact probability that the path comes through the node
    entries: tuple[EntryStep, ...]  # in draw order, with repeats
    # The tokens that the stages speak of: all that were drafted or drawn here, then the likeliest
    texts: tuple[str, ...]
    rows: tuple[int, ...]  # where each entry's token stands among them
    # In the order of the tests, every one after all before it failed; of many the first and the last ones
    stages: tuple[DistributionStage, ...]
    hidden_stages: int  # how many were left out before the last one
    # Bottom-up verifiers: chance that the path ends here once everything below was rejected, else None
    ends: float | None
    factor: float | None  # SpecTr's common division factor, else None
    # rate, best_rate: chance that this solver, and that the best one possible, picks one of as many independent draws,
    # before they are known; None on trees of another kind. `rate_is_bound`: it is at least that
    rate: float | None
    best_rate: float | None
    rate_is_bound: bool
    # Largest difference, over all tokens, of the exact distribution of the token after this node, given the tree, from
    # the target's; None where tests below decide, too
    off_target: float | None


def node_steps(
    iteration: IterationTrace, sampling: Sampling, replayed: Replayed, node: int, text_of: Callable[[int], str]
) -> NodeSteps | None:
    """What a verifier that was replayed on an iteration does at a node; None if no child of it was verified."""
    tree = stored_tree(iteration, sampling)
    entries = tree.entries.get(node)
    if not entries:
        return None
    tokens = [tree.tokens[child] for child in entries]
    target, draft = tree.target_distribution(node), tree.draft_distribution(node)
    tests = tests_at(replayed.verifier, tree, node)
    kept, seen = replayed.acceptance_probability, _seen(entries, replayed.outcome, node)
    made = [
        EntryStep(
            child=child,
            text=text_of(token),
            draft=float(draft[token]),
            target=float(target[token]),
            passes=tests.passes.get(place),
            wins=None if tests.wins is None else tests.wins[token],
            taken=kept[child] / kept[node] if kept[node] > 0 else 0.0,
            tested_at=seen[place][0],
            drawn=seen[place][1],
            result=seen[place][2],
        )
        for place, (child, token) in enumerate(zip(entries, tokens, strict=True))
    ]
    shown = (
        tests.distributions
        if len(tests.distributions) <= MOST_STAGES
        else [*tests.distributions[: MOST_STAGES - 1], tests.distributions[-1]]
    )
    drawn = [step.token_id for step in replayed.outcome.steps if step.node_id == node]
    if replayed.outcome.stop_node == node and replayed.outcome.final_kind != "none":
        drawn.append(replayed.outcome.final_token)
    ids = _shown_tokens([*tokens, *drawn], shown)
    name = replayed.verifier.name
    rated = iteration.draft_sampling in IID_TREES and name in SOLVERS
    return NodeSteps(
        node=node,
        reached=kept[node],
        entries=tuple(made),
        texts=tuple(text_of(token) for token in ids),
        rows=tuple(ids.index(token) for token in tokens),
        stages=tuple(_stage(distributions, ids) for distributions in shown),
        hidden_stages=len(tests.distributions) - len(shown),
        ends=tests.ends,
        factor=tests.factor,
        rate=acceptance_rate(name, target, draft, len(entries)) if rated else None,
        best_rate=best_acceptance(target, draft, len(entries)) if rated else None,
        rate_is_bound=name in LOWER_BOUNDS,
        off_target=_off_target(tests, {tree.tokens[each.child]: each.taken for each in made}, target),
    )


def _off_target(tests: NodeTests, taken: dict[int, float], target: Tensor) -> float | None:
    """How far the token after a node, summed over all draws there, is from the target's distribution.

    Args:
        taken: exact chance that the path goes on through a child, by the child's token.
    """
    if tests.bottom_up:
        return None
    found = tests.distributions[-1].target.clone()  # of the token that ends the path; a child's goes on through it
    places = list(taken)
    found[places] = 0
    found *= (1 - sum(taken.values())) / max(float(found.sum()), 1e-300)
    found[places] = found.new_tensor(list(taken.values()))
    return float((found - target).abs().max())


def _seen(entries: list[int], outcome: WalkResult, node: int) -> list[tuple]:
    """`tested_at`, `drawn`, `result` of each entry: the j-th test of a child belongs to its j-th entry."""
    seen: list[tuple] = [(None, None, "")] * len(entries)
    for step in outcome.steps:
        if step.node_id != node or step.child_id is None or step.kind == "match":
            continue
        places = [place for place, child in enumerate(entries) if child == step.child_id]
        place = next((place for place in places if not seen[place][2]), places[-1])
        result = "picked" if step.kind == "choice" else "passed" if step.accepted else "failed"
        seen[place] = step.acceptance_probability, step.drawn, result
    for child in set(entries) & set(outcome.accepted):
        if all(seen[place][2] in ("", "failed") for place, entry in enumerate(entries) if entry == child):
            seen[entries.index(child)] = None, None, "below"
    return seen


def _shown_tokens(tokens: list[int], distributions: list[TestDistributions]) -> list[int]:
    """Every token drafted or drawn here, those tested one by one first, then the likeliest of any distribution."""
    alone = [tokens[probs.tested[0]] for probs in distributions if len(probs.tested) == 1]
    seen = [
        probs
        for distributions_of_one in distributions
        for probs in (distributions_of_one.target, distributions_of_one.draft)
        if probs is not None
    ]
    best = torch.stack(seen).amax(0)
    likeliest = best.topk(min(SHOWN_TOKENS, best.numel()))
    likely = likeliest.indices[likeliest.values >= LEAST_SHOWN].tolist()
    own = dict.fromkeys([*alone, *tokens])
    return list(dict.fromkeys([*own, *likely]))[: max(SHOWN_TOKENS, len(own))]


def _stage(distributions: TestDistributions, ids: list[int]) -> DistributionStage:
    target = tuple(distributions.target[ids].tolist())
    target_rest = max(0.0, float(distributions.target.sum()) - sum(target))
    if distributions.draft is None:
        return DistributionStage(distributions.rejected, distributions.tested, target, None, target_rest, None)
    draft = tuple(distributions.draft[ids].tolist())
    return DistributionStage(
        distributions.rejected,
        distributions.tested,
        target,
        draft,
        target_rest,
        max(0.0, float(distributions.draft.sum()) - sum(draft)),
    )

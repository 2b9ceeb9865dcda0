"""What theory says of recorded trees: one node under one verifier step by step, and the nodes of a whole run.

At a node: its entries, what each test sees, what a rejection leaves. Over a run: acceptance by depth and by draft
probability, tokens per verifier. All is computed from stored rows under one sampling; no model is run.
"""

from collections import defaultdict
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from decoding.replay.replay import Replayed, WalkResult, has_rows, replay, stored_tree
from decoding.sampling.sampling import Sampling
from decoding.trace.records import IterationTrace
from decoding.verifiers.base import IID_TREES
from decoding.verifiers.theory import (
    LOWER_BOUNDS,
    SOLVERS,
    NodeTests,
    acceptance_rate,
    best_acceptance,
    l1_distance,
    tests_at,
)
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
    """How far the token after a node, summed over all draws there, is from the target's distribution; `taken` is the
    exact chance that the path goes on through a child, by the child's token.
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
    def of(probs: Tensor) -> tuple[tuple[float, ...], float]:
        shown = tuple(probs[ids].tolist())
        return shown, max(0.0, float(probs.sum()) - sum(shown))

    target, target_rest = of(distributions.target)
    draft, draft_rest = (None, None) if distributions.draft is None else of(distributions.draft)
    return DistributionStage(distributions.rejected, distributions.tested, target, draft, target_rest, draft_rest)


DRAWS = (1, 2, 4)
BINS = 10


@dataclass(frozen=True)
class Mean:
    """A mean over `count` values; `error` is its standard error, None for a single value."""

    value: float
    error: float | None
    count: int


@dataclass(frozen=True)
class DepthRow:
    """Nodes of one depth that have both rows; the root has depth 0, its children are drafted at depth 1."""

    depth: int
    rates: dict[tuple[str, int], Mean]  # acceptance rate of each solver by (name, independent draws)
    best: dict[int, Mean]  # alpha_opt by independent draws: no solver accepts more
    l1: Mean  # L1 distance between both distributions


@dataclass(frozen=True)
class ProbabilityBin:
    """Drafted tokens whose draft probability lies in [low, high)."""

    low: float
    high: float
    accepted: Mean  # min(1, target / draft): the chance to be accepted of one draw that is tested first
    target: Mean  # the target's probability


@dataclass(frozen=True)
class RunTheory:
    """Aggregates of a run.

    Attributes:
        trees: iterations that have rows and a drafted tree; `without_logits`: drafted ones whose rows were not kept.
        nodes: nodes with both rows. tokens: drafted tokens that were verified.
        bins: by draft probability, empty ones left out.
        expected: exact expected tokens per tree by verifier; a verifier that refuses these trees is missing.
    """

    sampling: Sampling
    trees: int
    without_logits: int
    nodes: int
    tokens: int
    depths: tuple[DepthRow, ...]
    bins: tuple[ProbabilityBin, ...]
    expected: dict[str, Mean]


def run_theory(
    iterations: Sequence[IterationTrace],
    sampling: Sampling,
    proceed: Callable[[int, int], bool] = lambda done, total: True,
    stops: Collection[int] = (),
) -> RunTheory | None:
    """Aggregate a run; every distinct node counts once.

    Args:
        sampling: temperature and top-p may differ from the run's, the draft's temperature may not.
        proceed: called after each tree with how many of how many are done; its False ends the work with None.
        stops: tokens that end the text, beyond which nothing is committed.
    """
    drafted = [iteration for iteration in iterations if iteration.drafted]
    chosen = [iteration for iteration in drafted if has_rows(iteration)]
    nodes: dict[int, list[dict]] = defaultdict(list)  # by depth, what is computed of each node
    tokens: dict[int, list[tuple[float, float]]] = defaultdict(list)  # by bin, what draft and target give each token
    expected: dict[str, list[float]] = defaultdict(list)
    for done, iteration in enumerate(chosen, start=1):
        tree = stored_tree(iteration, sampling)
        rows = iteration.draft_logits
        for node in (node for node in tree.order if rows is not None and not np.isnan(rows[node]).any()):
            target, draft = tree.target_distribution(node), tree.draft_distribution(node)
            nodes[iteration.nodes[node].depth].append(_of_node(target, draft))
            ids = [tree.tokens[child] for child in dict.fromkeys(tree.entries[node])]
            for pair in zip(draft[ids].tolist(), target[ids].tolist(), strict=True):
                tokens[min(int(pair[0] * BINS), BINS - 1)].append(pair)  # probability 1 belongs to the last bin
        for replayed in replay(iteration, replace(sampling, seed=0), rerolls=0, stops=stops):
            if replayed.refusal is None:
                expected[replayed.verifier.name].append(replayed.expected_tokens)
        if not proceed(done, len(chosen)):
            return None
    return RunTheory(
        sampling=sampling,
        trees=len(chosen),
        without_logits=len(drafted) - len(chosen),
        nodes=sum(map(len, nodes.values())),
        tokens=sum(map(len, tokens.values())),
        depths=tuple(_depth_row(depth, nodes[depth]) for depth in sorted(nodes)),
        bins=tuple(_bin(place, tokens[place]) for place in sorted(tokens)),
        expected={name: mean_of(values) for name, values in expected.items()},
    )


def mean_of(values: Sequence[float]) -> Mean:
    """Mean and standard error of some values."""
    spread = float(np.std(values, ddof=1)) / len(values) ** 0.5 if len(values) > 1 else None
    return Mean(float(np.mean(values)), spread, len(values))


def _of_node(target: Tensor, draft: Tensor) -> dict:
    """L1 distance, alpha_opt by independent draws, acceptance rates by (solver, independent draws)."""
    rates = {(name, draws): acceptance_rate(name, target, draft, draws) for name in SOLVERS for draws in DRAWS}
    best = {draws: best_acceptance(target, draft, draws) for draws in DRAWS}
    return {"l1": l1_distance(target, draft), **best, **rates}


def _depth_row(depth: int, nodes: Sequence[dict]) -> DepthRow:
    means = {key: mean_of([node[key] for node in nodes]) for key in nodes[0]}
    rates = {(name, draws): means[name, draws] for name in SOLVERS for draws in DRAWS}
    return DepthRow(depth, rates, {draws: means[draws] for draws in DRAWS}, means["l1"])


def _bin(place: int, tokens: Sequence[tuple[float, float]]) -> ProbabilityBin:
    accepted = mean_of([min(1.0, target / draft) if draft > 0 else 0.0 for draft, target in tokens])
    return ProbabilityBin(place / BINS, (place + 1) / BINS, accepted, mean_of([target for _, target in tokens]))

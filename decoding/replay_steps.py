"""One node under one verifier, step by step: its entries, what each test sees, what a rejection leaves."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Literal

import torch
from torch import Tensor

from decoding.replay import Replayed, stored_tree
from decoding.sampling import Sampling
from decoding.theory import LOWER_BOUNDS, SOLVERS, acceptance_rate, best_acceptance
from decoding.trace import IterationTrace, VerificationStep
from decoding.verifiers.base import IID_LAWS, Decision
from decoding.verifiers.bottom_up import BottomUp
from decoding.verifiers.khisti import KhistiSolver
from decoding.verifiers.specinfer_wor import WithoutReplacementSolver, without
from decoding.verifiers.spectr import SpecTrSolver
from decoding.verifiers.top_down import Solver, TopDown
from decoding.verifiers.traversal import TraversalWithoutReplacementVerifier

MOST_STAGES = 6
SHOWN_TOKENS = 10

Result = Literal["passed", "failed", "picked", ""]


@dataclass(frozen=True)
class EntryStep:
    """One entry of a node's list of children.

    Attributes:
        child, text: the node and its token; a child drawn twice has two entries.
        draft, target: what both laws after the node give the token, before any test.
        passes: probability that its test passes once all tests before it have failed; None if it is never tested.
        wins: chance that its token wins the tournament and is the one tested; None where there is no tournament.
        taken: exact chance that the path goes on through it, given that it comes through the node.
        drawn, result: what this seed drew and what came of it: its test `passed` or `failed`, or it was `picked` as a
            token drawn from a law; empty if the walk never came to it.
    """

    child: int
    text: str
    draft: float
    target: float
    passes: float | None
    wins: float | None
    taken: float
    drawn: float | None
    result: Result


@dataclass(frozen=True)
class LawStage:
    """Both laws as one test sees them, or the law of the final token.

    Attributes:
        rejected: tests that have failed before.
        tested: places in the list of entries that are tested against these laws; empty for the final token.
        target: what is left of the target's law, for each of `NodeSteps.texts`.
        draft: what the entries are tested against; None for the final token.
        target_rest, draft_rest: probability of all other tokens together.
    """

    rejected: int
    tested: tuple[int, ...]
    target: tuple[float, ...]
    draft: tuple[float, ...] | None
    target_rest: float
    draft_rest: float | None


@dataclass(frozen=True)
class NodeSteps:
    """What a verifier does at one node.

    Attributes:
        reached: exact probability that the path comes through the node.
        entries: in draw order, with repeats.
        texts: the tokens that the stages speak of: the entries' ones first, then the likeliest others.
        stages: in the order of the tests, every one after all before it failed; of many the first and the last ones.
        hidden_stages: how many were left out before the last one.
        ends: bottom-up verifiers: chance that the path ends here once everything below was rejected, else None.
        factor: SpecTr's common division factor, else None.
        rate, best_rate: chance that this solver, and that the best one possible, picks one of as many independent
            draws, before they are known; None on trees of another kind. `rate_is_bound`: it is at least that.
    """

    node: int
    reached: float
    entries: tuple[EntryStep, ...]
    texts: tuple[str, ...]
    stages: tuple[LawStage, ...]
    hidden_stages: int
    ends: float | None
    factor: float | None
    rate: float | None
    best_rate: float | None
    rate_is_bound: bool


@dataclass(frozen=True)
class _Laws:
    """Both laws in full as one test sees them; fields as in `LawStage`."""

    rejected: int
    tested: tuple[int, ...]
    target: Tensor
    draft: Tensor | None


@dataclass
class _Tests:
    """A node's tests in order; `passes` by place in the list of entries, `wins` by token."""

    passes: dict[int, float] = field(default_factory=dict)
    laws: list[_Laws] = field(default_factory=list)
    wins: dict[int, float] | None = None
    ends: float | None = None
    factor: float | None = None

    def see(self, tested: Sequence[int], target: Tensor, draft: Tensor | None, rejected: int) -> None:
        """Note the laws that the next test sees."""
        self.laws.append(_Laws(rejected, tuple(tested), target / target.sum(), draft))


def node_steps(
    iteration: IterationTrace, sampling: Sampling, replayed: Replayed, node: int, text_of: Callable[[int], str]
) -> NodeSteps | None:
    """What a verifier that was replayed on an iteration does at a node; None if no child of it was verified."""
    tree = stored_tree(iteration, sampling)
    entries = tree.entries.get(node)
    if not entries:
        return None
    tokens = [tree.tokens[child] for child in entries]
    target, draft = tree.target_law(node), tree.draft_law(node)
    tests = _tests(replayed.verifier.decide(tree), replayed, node, target, draft)
    kept, seen = replayed.acceptance_probability, _seen(entries, replayed.outcome.steps, node)
    made = [
        EntryStep(
            child=child,
            text=text_of(token),
            draft=float(draft[token]),
            target=float(target[token]),
            passes=tests.passes.get(place),
            wins=None if tests.wins is None else tests.wins[token],
            taken=kept[child] / kept[node] if kept[node] > 0 else 0.0,
            drawn=seen[place][0],
            result=seen[place][1],
        )
        for place, (child, token) in enumerate(zip(entries, tokens, strict=True))
    ]
    shown = tests.laws if len(tests.laws) <= MOST_STAGES else [*tests.laws[: MOST_STAGES - 1], tests.laws[-1]]
    ids = _shown_tokens(tokens, shown)
    name = replayed.verifier.name
    rated = iteration.law in IID_LAWS and name in SOLVERS
    return NodeSteps(
        node=node,
        reached=kept[node],
        entries=tuple(made),
        texts=tuple(text_of(token) for token in ids),
        stages=tuple(_stage(laws, ids) for laws in shown),
        hidden_stages=len(tests.laws) - len(shown),
        ends=tests.ends,
        factor=tests.factor,
        rate=acceptance_rate(name, target, draft, len(entries)) if rated else None,
        best_rate=best_acceptance(target, draft, len(entries)) if rated else None,
        rate_is_bound=name in LOWER_BOUNDS,
    )


def _tests(decision: Decision, replayed: Replayed, node: int, target: Tensor, draft: Tensor) -> _Tests:
    if isinstance(decision, TopDown):
        solver = decision.solver(node)
        kinds = {KhistiSolver: _tournament, SpecTrSolver: _common_factor}
        return kinds.get(type(solver), _one_by_one)(solver)
    if isinstance(decision, BottomUp):
        leaves = isinstance(replayed.verifier, TraversalWithoutReplacementVerifier)
        return _bottom_up(decision, node, target, draft, leaves)
    wanted, tests = int(target.argmax()), _Tests()  # greedy: every child is compared with the target's favourite
    entries = decision.tree.entries[node]
    tests.passes = {place: float(decision.tree.tokens[child] == wanted) for place, child in enumerate(entries)}
    tests.see((), target, None, 0)
    return tests


def _one_by_one(solver: Solver) -> _Tests:
    """Tests in a fixed order, each against what the ones before left (a random order is as good as draw order)."""
    tests, draft, order = _Tests(), solver.draft, tuple(solver.fixed_order())
    for rejected, place in enumerate(order):
        tests.passes[place] = solver.acceptance(rejected, place)
        tests.see((place,), solver.residual(rejected), draft, rejected)
        if isinstance(solver, WithoutReplacementSolver):
            draft = without(draft, solver.tokens[place])
    tests.see((), solver.residual(len(order)), None, len(order))
    return tests


def _common_factor(solver: SpecTrSolver) -> _Tests:
    """All entries against the draft's law times one factor."""
    places = range(len(solver.tokens))
    tests = _Tests({place: solver.acceptance(0, place) for place in places}, factor=solver.factor)
    tests.see(places, solver.target, solver.factor * solver.draft, 0)
    tests.see((), solver.residual(len(places)), None, len(places))
    return tests


def _tournament(solver: KhistiSolver) -> _Tests:
    """Only the winner is tested, against the law that winners have."""
    places = range(len(solver.tokens))
    wins = {solver.tokens[0]: 1.0}
    for played, rival in zip(solver.rounds, solver.tokens[1:], strict=True):
        after = dict.fromkeys((*wins, rival), 0.0)
        for token, chance in wins.items():
            stays = played.stays(token, rival)
            after[token] += chance * stays
            after[rival] += chance * (1 - stays)
        wins = after
    tests = _Tests({place: solver.acceptance(0, place) for place in places}, wins=wins)
    tests.see(places, solver.target, solver.winner_law, 0)
    tests.see((), solver.residual(1), None, 1)
    return tests


def _bottom_up(decision: BottomUp, node: int, target: Tensor, draft: Tensor, leaves: bool) -> _Tests:
    """Children are tested after everything below them; `leaves`: a rejected one leaves the draft's law."""
    tree, tests, rejected = decision.tree, _Tests(), 0
    entries = tree.entries[node]
    first = [place for place, child in enumerate(entries) if child not in entries[:place]]
    places = iter(first if leaves else range(len(entries)))
    for stop in decision.stops():
        if stop.node and tree.parents[stop.node] == node:
            place = next(places)
            tests.passes[place] = stop.passes
            tests.see((place,), target, draft, rejected)
            rejected += 1
            target = target if stop.residual is None else stop.residual
            draft = without(draft, tree.tokens[stop.node]) if leaves else draft
        elif stop.node == node:
            tests.ends = stop.passes
            tests.see((), stop.final_law, None, rejected)
    if not tests.laws:
        tests.see((), target, draft, 0)
    return tests


def _seen(entries: list[int], steps: Sequence[VerificationStep], node: int) -> list[tuple[float | None, Result]]:
    """What this seed did with each entry: the j-th test of a child belongs to its j-th entry."""
    seen: list[tuple[float | None, Result]] = [(None, "")] * len(entries)
    for step in steps:
        if step.node_id != node or step.child_id is None or step.kind == "match":
            continue
        places = [place for place, child in enumerate(entries) if child == step.child_id]
        place = next((place for place in places if not seen[place][1]), places[-1])
        result = "picked" if step.kind == "choice" else "passed" if step.accepted else "failed"
        seen[place] = step.drawn, result
    return seen


def _shown_tokens(tokens: list[int], laws: list[_Laws]) -> list[int]:
    """The entries' tokens in draw order, then the likeliest of any stage."""
    best = torch.stack([law.target for law in laws]).amax(0)
    likely = best.topk(min(SHOWN_TOKENS, best.numel())).indices.tolist()
    entries = list(dict.fromkeys(tokens))
    return list(dict.fromkeys([*entries, *likely]))[: max(SHOWN_TOKENS, len(entries))]


def _stage(laws: _Laws, ids: list[int]) -> LawStage:
    target = tuple(laws.target[ids].tolist())
    draft = None if laws.draft is None else tuple(laws.draft[ids].tolist())
    return LawStage(
        rejected=laws.rejected,
        tested=laws.tested,
        target=target,
        draft=draft,
        target_rest=max(0.0, float(laws.target.sum()) - sum(target)),
        draft_rest=None if draft is None else max(0.0, float(laws.draft.sum()) - sum(draft)),
    )

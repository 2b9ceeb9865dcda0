"""What the tests of a verifier at one node come to: with what probability each passes, and which laws it sees."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from torch import Tensor

from decoding.verifiers.base import Verifier
from decoding.verifiers.bottom_up import BottomUp
from decoding.verifiers.khisti import KhistiSolver
from decoding.verifiers.specinfer import SpecInferSolver
from decoding.verifiers.specinfer_wor import WithoutReplacementSolver, without
from decoding.verifiers.spectr import SpecTrSolver
from decoding.verifiers.top_down import Solver, TopDown
from decoding.verifiers.traversal import TraversalWithoutReplacementVerifier
from decoding.verifiers.verified_tree import VerifiedTree


@dataclass(frozen=True)
class TestLaws:
    """Both laws as one test sees them, `[vocab_size]`.

    Attributes:
        rejected: tests that have failed before.
        tested: places in the list of entries that are tested against these laws; empty for the final token.
        target: what is left of the target's law, normalised.
        draft: what the entries are tested against; None for the final token.
    """

    __test__ = False  # pytest takes classes of this name for tests

    rejected: int
    tested: tuple[int, ...]
    target: Tensor
    draft: Tensor | None


@dataclass
class NodeTests:
    """A verifier's tests at one node, in order.

    Attributes:
        passes: probability that an entry's test passes once all before it have failed, by place; untested ones are
            missing.
        laws: what each test sees.
        wins: chance to win the tournament by token, None where there is none.
        ends: bottom-up verifiers: chance that the path ends here once everything below was rejected, else None.
        factor: SpecTr's common division factor, else None.
    """

    passes: dict[int, float] = field(default_factory=dict)
    laws: list[TestLaws] = field(default_factory=list)
    wins: dict[int, float] | None = None
    ends: float | None = None
    factor: float | None = None

    def see(self, tested: Sequence[int], target: Tensor, draft: Tensor | None, rejected: int) -> None:
        """Note the laws that the next test sees."""
        self.laws.append(TestLaws(rejected, tuple(tested), target / target.sum(), draft))


def tests_at(verifier: Verifier, tree: VerifiedTree, node: int) -> NodeTests:
    """The tests of a verifier at a node that has verified children."""
    decision = verifier.decide(tree)
    if isinstance(decision, TopDown):
        solver = decision.solver(node)
        kinds = {KhistiSolver: _tournament, SpecTrSolver: _common_factor}
        return kinds.get(type(solver), _one_by_one)(solver)
    if isinstance(decision, BottomUp):
        return _bottom_up(decision, node, leaves=isinstance(verifier, TraversalWithoutReplacementVerifier))
    wanted = tree.preferred[tree.row_of[node]]  # greedy: every child is compared with the target's favourite
    tests = NodeTests({place: float(tree.tokens[child] == wanted) for place, child in enumerate(tree.entries[node])})
    tests.see((), tree.target_law(node), None, 0)
    return tests


def _one_by_one(solver: Solver) -> NodeTests:
    """Tests in a fixed order, each against what the ones before left; nothing is tested after a certain pass.

    In a random order what comes later here may come earlier, so there all are told, in draw order.
    """
    tests, draft, order = NodeTests(), solver.draft, tuple(solver.fixed_order())
    fixed = not isinstance(solver, SpecInferSolver)
    for rejected, place in enumerate(order):
        tests.passes[place] = solver.acceptance(rejected, place)
        tests.see((place,), solver.residual(rejected), draft, rejected)
        if fixed and tests.passes[place] >= 1:
            return tests
        if isinstance(solver, WithoutReplacementSolver):
            draft = without(draft, solver.tokens[place])
    tests.see((), solver.residual(len(order)), None, len(order))
    return tests


def _common_factor(solver: SpecTrSolver) -> NodeTests:
    """All entries against the draft's law times one factor."""
    places = range(len(solver.tokens))
    tests = NodeTests({place: solver.acceptance(0, place) for place in places}, factor=solver.factor)
    tests.see(places, solver.target, solver.factor * solver.draft, 0)
    tests.see((), solver.residual(len(places)), None, len(places))
    return tests


def _tournament(solver: KhistiSolver) -> NodeTests:
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
    tests = NodeTests({place: solver.acceptance(0, place) for place in places}, wins=wins)
    tests.see(places, solver.target, solver.winner_law, 0)
    tests.see((), solver.residual(1), None, 1)
    return tests


def _bottom_up(decision: BottomUp, node: int, leaves: bool) -> NodeTests:
    """Children are tested after everything below them; `leaves`: a rejected one leaves the draft's law."""
    tree, tests, rejected = decision.tree, NodeTests(), 0
    target, draft = tree.target_law(node), tree.draft_law(node)
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

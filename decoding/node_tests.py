"""What the tests of a verifier at one node come to: with what probability each passes, and which laws it sees."""

from dataclasses import dataclass, field, replace

from decoding.verifiers.base import Verifier
from decoding.verifiers.bottom_up import BottomUp
from decoding.verifiers.specinfer_wor import without
from decoding.verifiers.top_down import Solver, TestLaws, TopDown
from decoding.verifiers.verified_tree import VerifiedTree


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

    def see(self, laws: TestLaws) -> None:
        """Note the laws that the next test sees, the target's normalised."""
        self.laws.append(replace(laws, target=laws.target / laws.target.sum()))


def tests_at(verifier: Verifier, tree: VerifiedTree, node: int) -> NodeTests:
    """The tests of a verifier at a node that has verified children."""
    decision = verifier.decide(tree)
    if isinstance(decision, TopDown):
        return _top_down(decision.solver(node))
    if isinstance(decision, BottomUp):
        return _bottom_up(decision, node)
    wanted = tree.preferred[tree.row_of[node]]  # greedy: every child is compared with the target's favourite
    tests = NodeTests({place: float(tree.tokens[child] == wanted) for place, child in enumerate(tree.entries[node])})
    tests.see(TestLaws(0, (), tree.target_law(node), None))
    return tests


def _top_down(solver: Solver) -> NodeTests:
    tests = NodeTests(wins=solver.winner_chances(), factor=solver.factor)
    for laws in solver.test_laws():
        tests.passes |= {place: solver.acceptance(laws.rejected, place) for place in laws.tested}
        tests.see(laws)
    return tests


def _bottom_up(decision: BottomUp, node: int) -> NodeTests:
    """Children are tested after everything below them."""
    tree, tests, rejected = decision.tree, NodeTests(), 0
    target, draft = tree.target_law(node), tree.draft_law(node)
    entries, replaced = tree.entries[node], decision.replaced
    first = [place for place, child in enumerate(entries) if child not in entries[:place]]
    places = iter(range(len(entries)) if replaced else first)
    for stop in decision.stops():
        if stop.node and tree.parents[stop.node] == node:
            place = next(places)
            tests.passes[place] = stop.passes
            tests.see(TestLaws(rejected, (place,), target, draft))
            rejected += 1
            target = target if stop.residual is None else stop.residual
            draft = draft if replaced else without(draft, tree.tokens[stop.node])
        elif stop.node == node:
            tests.ends = stop.passes
            tests.see(TestLaws(rejected, (), stop.final_law, None))
    if not tests.laws:
        tests.see(TestLaws(0, (), target, draft))
    return tests

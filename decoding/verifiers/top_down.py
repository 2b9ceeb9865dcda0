"""The frame of all top-down verifiers: at each node a solver picks the next token from its children or beside them.

Lossless because the token picked at a node follows the target's distribution there, whatever the children (App. B of
the delayed-expansion paper); a child drawn m times stands in the list m times.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import numpy as np
from torch import Tensor

from decoding.sampling.draws import Draws
from decoding.verifiers.base import Decision, Test, Verification, VerifiedTree, Verifier

# One match between two entries before the test: both, the chance that the first stays, the number drawn, if it did.
Match = tuple[int, int, float, float | None, bool]


@dataclass(frozen=True)
class TestDistributions:
    """Both distributions in a test, `[vocab_size]`: what is left of the target's, what entries are tested against."""

    __test__ = False  # pytest takes classes of this name for tests

    rejected: int  # tests that have failed before
    # Places in the list of entries that are tested; empty for the final token, where `draft` is None
    tested: tuple[int, ...]
    target: Tensor
    draft: Tensor | None


class Solver:
    """One node: entries are tested in an order, each with a probability; then the final token is drawn.

    Args:
        target: the target's distribution, `[vocab_size]`.
        draft: the distribution the entries were drawn from, `[vocab_size]`; empty for a solver that looks at none.
        tokens: the entries, in draw order with repeats.
    """

    looks_at_draft: ClassVar[bool] = True
    random_order: ClassVar[bool] = False  # the order of tests is drawn

    def __init__(self, target: Tensor, draft: Tensor, tokens: Sequence[int]):
        self.target, self.draft, self.tokens = target, draft, tuple(tokens)

    @property
    def factor(self) -> float | None:
        """What the draft's distribution is multiplied by in every test; None where there is no such factor."""
        return None

    def order(self, draws: Draws, matches: list[Match]) -> Iterator[int]:
        """Entries to test, one by one; draws only for its own choices and notes matches between entries."""
        yield from self.fixed_order()

    def acceptance(self, rejected: int, entry: int) -> float:
        """Probability that an entry passes its test after `rejected` failed ones: min(1, target / draft) by default."""
        token = self.tokens[entry]
        drafted = float(self.drafted_distribution(rejected)[token])
        return min(1.0, float(self.residual(rejected)[token]) / drafted) if drafted > 0 else 0.0

    def residual(self, rejected: int) -> Tensor:
        """What is left of the target's distribution after `rejected` failed tests, `[vocab_size]`, not normalised."""
        raise NotImplementedError

    def changed_residual(self, rejected: int) -> Tensor | None:
        """The residual where the test that failed last has changed it, else None."""
        return self.residual(rejected)

    def branching(self) -> dict[int, float]:
        """Exact probability that the token picked is each of the entries' tokens."""
        picked = dict.fromkeys(self.tokens, 0.0)
        left, rejected = 1.0, 0
        for rejected, entry in enumerate(self.fixed_order(), start=1):
            passes = self.acceptance(rejected - 1, entry)
            picked[self.tokens[entry]] += left * passes
            left *= 1 - passes
        return self.add_residual(picked, self.residual(rejected), left) if left > 0 else picked

    def fixed_order(self) -> Sequence[int]:
        """The order of tests where it takes no draws."""
        return range(len(self.tokens))

    def drafted_distribution(self, rejected: int) -> Tensor:
        """What entries are tested against after `rejected` failed tests, `[vocab_size]`."""
        return self.draft

    def test_distributions(self) -> Iterator[TestDistributions]:
        """What each test sees once all before it have failed; nothing is tested after a certain pass.

        In a random order what comes later here may come earlier, so there all are given, in draw order.
        """
        order = self.fixed_order()
        for rejected, entry in enumerate(order):
            yield TestDistributions(rejected, (entry,), self.residual(rejected), self.drafted_distribution(rejected))
            if not self.random_order and self.acceptance(rejected, entry) >= 1:
                return
        yield TestDistributions(len(order), (), self.residual(len(order)), None)

    def winner_chances(self) -> dict[int, float] | None:
        """Exact chance of each token to win the tournament before the test; None where there is no tournament."""
        return None

    @staticmethod
    def add_residual(picked: dict[int, float], residual: Tensor, left: float) -> dict[int, float]:
        """Add the chance, `left`, that the final token drawn from a residual is one of the tokens."""
        tokens = list(picked)
        shares = (residual[tokens] * (left / residual.sum())).tolist()
        return {token: picked[token] + share for token, share in zip(tokens, shares, strict=True)}


class TopDown(Decision):
    """Walks from the root; every node is solved once, whatever the number of walks."""

    def __init__(self, tree: VerifiedTree, solver: type[Solver], settings: dict, first_child_only: bool = False):
        super().__init__(tree)
        self._solver, self._settings, self._first_only = solver, settings, first_child_only
        self._solved: dict[int, Solver] = {}

    def walk(self, draws: Draws) -> Verification:
        node, accepted = 0, []
        tests: list[Test] = []
        while True:
            entries = self._entries(node)
            if entries:
                picked = self._pick(node, entries, draws, tests)
            else:  # after a leaf the final token follows the target's distribution
                picked = self._draw_final(node, [], self.tree.target_distribution(node), draws, tests)
            if picked not in entries:
                break
            accepted.append(picked)
            node = picked
        return self.verification(tuple(accepted), tests[-1].token_id, tests)

    @cached_property
    def acceptance_probability(self) -> np.ndarray:
        reached = {0: 1.0}
        for node in self.tree.order:
            entries = self._entries(node)
            if entries and reached.get(node, 0.0) > 0:
                chances = self.solver(node).branching()
                reached.update((child, reached[node] * chances[self.tree.tokens[child]]) for child in set(entries))
        return np.array([reached.get(node, 0.0) for node in self.tree.order])

    def solver(self, node: int) -> Solver:
        """The solver of a node that has children."""
        if node not in self._solved:
            tokens = [self.tree.tokens[child] for child in self._entries(node)]
            target = self.tree.target_distribution(node)
            # What no test reads is not made: it would take longer than the walk.
            draft = self.tree.draft_distribution(node) if self._solver.looks_at_draft else target[:0]
            self._solved[node] = self._solver(target, draft, tokens, **self._settings)
        return self._solved[node]

    def _entries(self, node: int) -> list[int]:
        entries = self.tree.entries[node]
        return entries[:1] if self._first_only else entries

    def _pick(self, node: int, entries: list[int], draws: Draws, tests: list[Test]) -> int | None:
        """The child picked at a node, None if the final token was drawn beside the children."""
        solver, rejected = self.solver(node), 0
        matches: list[Match] = []
        for entry in solver.order(draws, matches):
            for first, rival, chance, drawn, kept in matches:
                where = entries[first], solver.tokens[first]
                tests.append(Test(node, *where, chance, drawn, kept, kind="match", rival_id=entries[rival]))
            matches.clear()
            passes = solver.acceptance(rejected, entry)
            accepted = draws.accept(passes)
            rejected += not accepted
            left = None if accepted else solver.changed_residual(rejected)
            child, token = entries[entry], solver.tokens[entry]
            tests.append(Test(node, child, token, passes, draws.last_uniform, accepted, residual=left))
            if accepted:
                return child
        return self._draw_final(node, entries, solver.residual(rejected), draws, tests)

    def _draw_final(self, node: int, entries: list[int], probs: Tensor, draws: Draws, tests: list[Test]) -> int | None:
        token = draws.choose(probs)
        child = next((child for child in entries if self.tree.tokens[child] == token), None)
        chance = float(probs[token] / probs.sum())
        tests.append(Test(node, child, token, chance, draws.last_uniform, True, kind="choice"))
        return child


@dataclass(frozen=True)
class TopDownVerifier(Verifier):
    """A verifier that is a solver in the top-down frame."""

    solver: ClassVar[type[Solver]]  # its class, which takes this verifier's settings

    def decide(self, tree: VerifiedTree) -> TopDown:
        return TopDown(tree, self.solver, self.settings())

    def solve(self, target: Tensor, draft: Tensor, tokens: Sequence[int]) -> Solver:
        """The solver of one node."""
        return self.solver(target, draft, tokens, **self.settings())


def positive_part(probs: Tensor, fallback: Tensor) -> Tensor:
    """max(distribution, 0), or the fallback where nothing is left: then the test before it could not fail."""
    left = probs.clamp(min=0)
    return left if float(left.sum()) > 0 else fallback

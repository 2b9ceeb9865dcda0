"""Labels are exact: for every verifier and action the vectorised figure is that of the verifier's own decision."""

import numpy as np
import pytest
import torch

from benchmarks.enumeration import SAMPLED
from decoding.sampling.draws import GeneratorDraws
from decoding.sampling.sampling import TargetDistributions
from decoding.selector.actions import ACTIONS, SHAPE
from decoding.training.selector_labels import VERIFIER_NAMES, RootDistributions, SuperTrees, draw_super_trees
from decoding.tree.draft import Draft
from decoding.verifiers import VERIFIERS
from decoding.verifiers.base import VerifiedTree
from tests.helpers.families import family


class RandomLaws:
    """A draft whose distribution after every node is random; few tokens, so that paths often share their beginnings."""

    depth_limit = 16

    def __init__(self, seed: int, vocab: int, spread: float):
        self.random, self.vocab, self.spread = np.random.default_rng(seed), vocab, spread

    def rows(self, count: int) -> torch.Tensor:
        return torch.softmax(torch.from_numpy(self.random.normal(0, self.spread, (count, self.vocab))), -1)

    def expand(self, tree, nodes):
        return self.rows(len(nodes))


def root_distributions(
    seed: int, vocab: int = 5, spread: float = 1.5, one_hot: bool = False, cut: bool = False
) -> RootDistributions:
    distributions = RandomLaws(seed, vocab, spread)
    trees = draw_super_trees(distributions, 0, 2, GeneratorDraws(seed))
    target = 0.5 * trees.draft + 0.5 * distributions.rows(len(trees.nodes))  # acceptance neither rare nor certain
    if one_hot:
        target = torch.nn.functional.one_hot(target.argmax(-1), vocab).double()
    if cut:  # as a nucleus: some tokens have no probability
        target = torch.where(target > target.median(-1, keepdim=True).values, target, 0.0)
        target = target / target.sum(-1, keepdim=True)
    return RootDistributions(trees, target, trees.draft)


def delayed_draft(trees: SuperTrees, number: int, paths: int, trunk: int, branch: int) -> Draft:
    """The delayed tree of one action inside a super-tree as its drafter would have made it."""
    ids = {}
    for row, node in enumerate(trees.nodes):
        ids[row] = int(node)
    children = {(int(trees.tree.parents[n]), int(trees.tree.tokens[n])): n for n in range(1, trees.tree.size)}
    drawn = []
    for depth in range(trunk):
        drawn.append(children[ids[trees.trunk[number, depth]], int(trees.trunk_tokens[number, depth])])
    for depth in range(branch):
        for path in range(paths):
            place = (number, trunk, path, depth)
            drawn.append(children[ids[trees.rows[place]], int(trees.tokens[place])])
    order = np.array([0, *dict.fromkeys(drawn)])
    rows = ((trees.nodes, trees.draft),)
    return Draft(trees.tree, order, "iid", None, rows, {}, drawn=np.array(drawn, dtype=np.int64))


def exact(distributions: RootDistributions, verifier: str, action) -> float:
    """The same figure from the verifier itself, tree by tree."""
    row_of = {int(node): row for row, node in enumerate(distributions.trees.nodes)}
    found = []
    for number in range(len(distributions.trees.trunk)):
        draft = delayed_draft(distributions.trees, number, *action)
        # Leaves have no row: nothing below them is tested.
        uniform = torch.full(distributions.target.shape[1:], 1 / distributions.target.shape[1], dtype=torch.float64)
        rows = [distributions.target[row_of[n]] if n in row_of else uniform for n in draft.order.tolist()]
        target = TargetDistributions(None, SAMPLED, probs=torch.stack(rows))
        found.append(VERIFIERS[verifier]().decide(VerifiedTree(draft, target)).expected_tokens)
    return float(np.mean(found))


KINDS = {
    "near": {"spread": 1.0},
    "sharp": {"spread": 4.0, "vocab": 8},
    "cut": {"spread": 1.5, "cut": True},
    "greedy": {"spread": 1.0, "one_hot": True},
}


@pytest.mark.parametrize("kind", family(KINDS, "near"))
@pytest.mark.parametrize("verifier", family(VERIFIER_NAMES, "specinfer", "traversal"))
def test_labels_are_the_verifiers_own_expectations(verifier, kind):
    distributions = root_distributions(sum(map(ord, kind)), **KINDS[kind])
    labels = distributions.expected(verifier)
    assert labels.shape == SHAPE
    count = 12 if verifier == "khisti" else 40
    for number in np.random.default_rng(1).choice(len(ACTIONS), count, replace=False):
        assert labels.ravel()[number] == pytest.approx(exact(distributions, verifier, ACTIONS[number]), abs=1e-9)


def test_overlapping_paths_are_there():
    """The test above would be weak if no two paths shared a node below the branching point."""
    distributions = root_distributions(1, spread=2.0)
    shared = distributions.trees.first[..., 1:-1] != np.arange(4)[:, None]
    assert shared.any((0, 1, 2)).sum() >= 2 and sum(len(rows) for rows, *_ in distributions.trees.lists) > 50


def test_no_branch_makes_paths_meaningless():
    labels = root_distributions(3).expected("specinfer")
    assert np.allclose(labels[:, :, 0], labels[:1, :, 0])
    assert np.allclose(labels[:, 0, 0], 1.0)


def test_more_paths_help_specinfer_in_the_mean():
    """Not tree by tree, but over many."""
    mean = np.mean([root_distributions(seed).expected("specinfer") for seed in range(20)], axis=0)
    assert (np.diff(mean[:, :, 4:].mean((1, 2))) > 0).all()

"""The target's own trees: the beam of EAGLE-2 below every token, and features as of plain text."""

import numpy as np
import pytest
import torch

from benchmarks.fakes import make_pair
from decoding.models.pair import PairSettings, load_pair
from decoding.training.head_data import ROOTS_TOGETHER, target_trees, text_features

TOP_K, LEVELS = 3, 3


@pytest.fixture(scope="module", params=["gpt_neox", pytest.param("gpt2", marks=pytest.mark.slow)])
def pair(request, tmp_path_factory):
    target, draft = make_pair(tmp_path_factory.mktemp(request.param), request.param, sharpness=2.0)
    return load_pair(PairSettings(str(target), str(draft), device="cpu", dtype="float32", context_length=256))


@pytest.fixture(scope="module")
def text():
    return np.random.default_rng(1).integers(3, 4000, ROOTS_TOGETHER + 4)


@pytest.fixture(scope="module")
def trees(pair, text):
    return target_trees(pair.target, text, TOP_K, LEVELS)


def path_to(trees, root: int, level: int, node: int) -> list[int]:
    """Tokens from below the root down to a node."""
    tokens = []
    for above in range(level, -1, -1):
        tokens.append(int(trees.tokens[above, root, node]))
        node = int(trees.parents[above, root, node])
    return tokens[::-1]


def law_after(pair, tokens) -> torch.Tensor:
    """Log-probabilities after a text, by the plain transformers model."""
    with torch.inference_mode():
        return torch.log_softmax(pair.target.network(torch.tensor([list(tokens)])).logits[0, -1].double(), -1)


# The last place of the first group of roots, and the first of the second.
@pytest.mark.parametrize("root", [0, 7, ROOTS_TOGETHER - 1, ROOTS_TOGETHER])
def test_the_beam_is_that_of_eagle_2(pair, text, trees, root):
    prefix = text[: root + 2].tolist()
    beam = [((), 0.0)]
    for level in range(LEVELS):
        children = []
        for path, value in beam:
            scores, tokens = law_after(pair, [*prefix, *path]).topk(TOP_K)
            children += [((*path, int(t)), value + float(s)) for s, t in zip(scores, tokens, strict=True)]
        beam = sorted(children, key=lambda child: -child[1])[:TOP_K]
        found = [tuple(path_to(trees, root, level, node)) for node in range(TOP_K)]
        assert found == [path for path, _ in beam], level


@pytest.mark.parametrize("root", [2, ROOTS_TOGETHER + 1])
def test_features_are_those_of_the_path_as_plain_text(pair, text, trees, root):
    for level in range(LEVELS):
        for node in range(TOP_K):
            tokens = np.array([*text[: root + 2], *path_to(trees, root, level, node)])
            expected = text_features(pair.target, tokens)[-1]
            torch.testing.assert_close(trees.labels[level, root, node], expected, atol=2e-4, rtol=1e-3)


def test_the_output_head_makes_the_law_of_a_feature(pair, text):
    features = text_features(pair.target, text)
    logits = pair.target.engine.project(features)
    expected = pair.target.network(torch.tensor(text[None])).logits[0]
    torch.testing.assert_close(logits, expected, atol=1e-3, rtol=1e-3)

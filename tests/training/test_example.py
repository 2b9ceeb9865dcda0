"""The example of training data that comes with the program: what the embedded pair gives, and a tree to be drawn."""

import json

import pytest

from decoding.heads.store import SHIPPED
from decoding.models.pair import load_pair
from decoding.models.presets import PairSettings
from decoding.training import example
from decoding.training.folder import EXAMPLE
from viz.charts.training_tree import TrainingTree, drafted, sees


@pytest.fixture(scope="module")
def shipped() -> dict:
    return json.loads((SHIPPED / EXAMPLE).read_text())


def test_it_is_what_the_embedded_pair_gives(shipped, tmp_path, monkeypatch):
    monkeypatch.setattr(example, "SHIPPED", tmp_path)
    assert example.main([]) == 0
    assert json.loads((tmp_path / EXAMPLE).read_text()) == shipped


def test_its_text_is_the_prompts_own(shipped):
    (text,) = (prompt.text for prompt in example.load_prompts() if prompt.title == example.PROMPT)
    assert "".join([*shipped["text"], *shipped["chain"]]) in text
    pair = load_pair(PairSettings())
    assert len(pair.vocabulary.encode(text)) >= example.PLAN.size, "the target continues nothing of it"


def test_chain_and_tree_begin_alike_and_end_in_masks_of_their_own(shipped):
    tree = TrainingTree.read(shipped)
    assert tree.chain[0] in [text for text, _ in tree.tree[0]]
    graph = drafted(tree)
    assert max(map(len, sees(graph).values())) == len(tree.chain) - 1 == len(tree.tree) - 1

"""What a head is trained on, drawn: who sees whom, and every token where a person looks for it."""

import pytest

from viz.charts.training_tree import TrainingTree, drafted, sees, training_tree_figure

CONTENT = {
    "text": ["The", " cat"],
    "chain": [" sat", " down"],
    "tree": [[[" sat", 0], [" is", 0]], [[" on", 0], [" <b>", 1]]],
}


def test_a_drafted_token_sees_its_ancestors_alone():
    seen = sees(drafted(TrainingTree.read(CONTENT)))
    assert [seen[node] for node in range(6)] == [[], [], [0], [1], [], [4]], "the chain is a tree of its own"


@pytest.mark.parametrize("dark", [False, True])
def test_tree_chain_and_mask_are_drawn_from_the_same_rows(dark):
    example = TrainingTree.read(CONTENT)
    figure = training_tree_figure(example, dark)
    traces = {trace.name: trace for trace in figure.data if trace.name}
    assert [len(traces[name].x) for name in ("TALF: the target's own tree", "HASS: the text itself")] == [4, 2]
    assert [len(traces[f"sees {what}"].x) for what in ("the text", "ancestors", "itself")] == [12, 3, 6]
    for x, y in zip(traces["sees ancestors"].x, traces["sees ancestors"].y, strict=True):
        own = dict(zip(traces["sees itself"].y, traces["sees itself"].x, strict=True))
        assert x < own[y] and x in own.values(), "an ancestor stands in front of what is below it"
    assert figure.layout.xaxis2.title.text and figure.layout.yaxis2.title.text
    assert figure.layout.yaxis.range[1] > max(traces["TALF: the target's own tree"].y) + 1, "room for its words"
    assert "&lt;b&gt;" in figure.to_json() and "<b>" not in str(traces["TALF: the target's own tree"].text)
    assert list(figure.layout.yaxis2.ticktext) == ["·sat", "·on", "·is", "·&lt;b&gt;", "·sat", "·down"]


def test_a_head_of_depth_1_has_a_root_alone():
    figure = training_tree_figure(TrainingTree.read({"text": ["a"], "chain": [], "tree": []}))
    assert not [trace for trace in figure.data if trace.name == "sees itself" and trace.x]


def test_a_node_without_a_parent_is_no_tree():
    with pytest.raises(ValueError, match="no parent"):
        TrainingTree.read({**CONTENT, "tree": [[[" sat", 0]], [[" on", 1]]]})

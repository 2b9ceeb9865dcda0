"""Lucky or not counts the verifier's walks; where the text ended before one, it says by how many tokens."""

from dataclasses import replace

from decoding.analysis.luck import luck_of, run_luck
from pages.ui.explain.hindsight import luck_html, run_html
from tests.viz.test_cut_short import cut


def test_the_tokens_that_the_text_lacks_are_counted():
    trace = cut()
    kept = (None, 1.0, 0.9, 0.36)
    nodes = tuple(replace(node, acceptance_probability=kept[node.node_id]) for node in trace.nodes)
    iteration = replace(trace, nodes=nodes)
    luck = luck_of(iteration)
    assert luck.tokens == 3 and len(iteration.committed_ids) == 1
    assert "ended after 1 of them" in luck_html(iteration, luck)
    assert "The text has 2 tokens fewer" in run_html(run_luck([iteration]), 2)
    assert "All of these tokens are in the text" in run_html(run_luck([iteration]), 0)

"""Two branches at one iteration: figures, one sentence, and where their texts part."""

from dataclasses import replace

import pytest

from decoding.trace.records import InterventionTrace, node_paths
from tests.helpers.traces import DYNATREE, autoregressive, bonus, dynatree_recovered, iteration_of, run_of, summary
from viz.branches.diff import (
    NO_TIME,
    continuation_html,
    continuations,
    expected,
    fork_measures,
    fork_summary,
    measures_html,
    parting_words,
    same_prefix,
)
from viz.scope.data import compact_data


def smaller_tree():
    """The hand-written tree without its last four nodes; the same two nodes are accepted."""
    return iteration_of(DYNATREE[:9], final=(3, "No", 0.69), final_kind="recovered")


def lasting(iteration, seconds: float):
    """An iteration that took so long in all."""
    return replace(iteration, times=replace(iteration.times, total_s=seconds))


def measure(measures, words: str):
    return next(each for each in measures if each.words == words)


def test_expected_tokens_are_one_more_than_the_chances_of_all_nodes():
    assert expected(dynatree_recovered()) == pytest.approx(3.0)
    assert expected(autoregressive()) == 1.0
    assert expected(summary()) is None
    tree = dynatree_recovered()
    unknown = replace(tree.nodes[3], acceptance_probability=None)
    assert expected(replace(tree, nodes=(*tree.nodes[:3], unknown, *tree.nodes[4:]))) is None


def test_expected_tokens_leave_out_what_was_not_verified():
    tree = dynatree_recovered()
    cut = replace(tree.nodes[13], flat_index=None, acceptance_probability=None)
    assert expected(replace(tree, nodes=(*tree.nodes[:13], cut))) == pytest.approx(3.0)


def test_nothing_is_expected_beyond_a_token_that_ends_the_text():
    tree = dynatree_recovered()
    children = [node for node in tree.nodes if node.parent_id == 0 and node.flat_index is not None]
    stops = {node.token_id for node in children}
    assert expected(tree, stops) == 1.0, "either a child ends the text, or the final token comes at once"
    measures = fork_measures(tree, tree, stops)
    assert measure(measures, "expected tokens").first == "1.00"


def test_measures_say_what_differs():
    measures = fork_measures(lasting(dynatree_recovered(), 0.012), lasting(smaller_tree(), 0.009))
    assert (measure(measures, "nodes only here").first, measure(measures, "nodes only here").second) == ("4", "0")
    assert measure(measures, "nodes only here").difference == "9 nodes in both"
    assert measure(measures, "nodes verified").difference == "−4"
    assert measure(measures, "tokens committed").difference == "same"
    assert measure(measures, "expected tokens").first == "3.00"
    assert measure(measures, "time").difference == "−25%"


def test_the_time_of_the_same_work_differs_by_chance():
    measures = fork_measures(lasting(dynatree_recovered(), 0.004), lasting(dynatree_recovered(), 0.010))
    assert measure(measures, "time").difference == "noise: same work"


def test_a_node_forced_out_is_not_in_both_trees():
    whole = dynatree_recovered()
    path = node_paths(whole)[1]
    out = replace(whole, interventions=(InterventionTrace("force_out", path),))
    below = [node for node, each in enumerate(node_paths(whole)) if each[: len(path)] == path]
    assert out.forced_out == set(below) and not whole.forced_out
    assert measure(fork_measures(whole, out), "nodes only here").first == str(len(below))
    nodes = tuple(replace(node, flat_index=None, pruned=True) if node.node_id in below else node for node in out.nodes)
    data = compact_data(replace(out, nodes=nodes), scene_id="b", title="B")
    states = {node["node_id"]: node["state"] for node in data["scene"]["nodes"]}
    assert {states[node] for node in below if node in states} == {"forced_out"}
    assert "forced out" in [each["words"] for each in data["legend"]]


def test_nearly_the_same_time_is_not_called_the_same():
    measures = fork_measures(lasting(dynatree_recovered(), 0.0120), lasting(smaller_tree(), 0.01201))
    assert measure(measures, "time").difference == "less than 1%"


@pytest.mark.parametrize("times", [(0.0, 0.01), (0.01, 0.0), (0.0, 0.0)])
def test_a_replayed_iteration_has_no_time(times):
    both = map(lasting, (dynatree_recovered(), smaller_tree()), times)
    time = measure(fork_measures(*both), "time")
    assert [time.first, time.second].count(NO_TIME) == times.count(0.0)
    assert time.difference == ""


@pytest.mark.parametrize(
    ("first", "second", "words"),
    [
        (dynatree_recovered(), smaller_tree(), "B committed the same 3 tokens with 4 nodes fewer."),
        (smaller_tree(), dynatree_recovered(), "B committed the same 3 tokens with 4 nodes more."),
        (dynatree_recovered(), dynatree_recovered(), "B committed the same 3 tokens with the same tree."),
        (autoregressive(), dynatree_recovered(), "B committed 2 tokens more with 13 nodes more."),
        (dynatree_recovered(), autoregressive(), "B committed 2 tokens fewer with 13 nodes fewer."),
    ],
)
def test_the_summary_is_one_sentence(first, second, words):
    assert fork_summary(first, second) == words


def test_fewer_drafted_nodes_are_no_same_tree():
    trace = dynatree_recovered()
    *others, last = trace.nodes
    pruned = replace(trace, nodes=(*others, replace(last, flat_index=None)), verified=trace.verified - 1)
    fewer = replace(pruned, nodes=tuple(others), drafted=trace.drafted - 1)
    words = "B committed the same 3 tokens with 1 fewer node drafted and as many verified."
    assert fork_summary(pruned, fewer) == words
    fewest = replace(fewer, drafted=trace.drafted - 7, verified=pruned.verified - 1)
    assert fork_summary(pruned, fewest).endswith("with 7 fewer nodes drafted and 1 fewer verified.")
    assert measure(fork_measures(pruned, fewest), "nodes drafted").difference == "−7"


def test_the_summary_says_when_other_tokens_were_committed():
    words = fork_summary(dynatree_recovered(), bonus())
    assert words == "B committed the same number of tokens (3), but different ones, with 10 nodes fewer."


def test_texts_are_shared_until_they_part():
    first = run_of([dynatree_recovered(), bonus(), dynatree_recovered()])
    second = run_of([dynatree_recovered(), dynatree_recovered()])
    texts = continuations(first, second, 1)
    assert texts.shared == 0 and not texts.same
    assert texts.before[-1] == first.iterations[0].committed_texts[-1]
    assert [span.text for span in texts.second] == list(second.iterations[1].committed_texts)
    words = parting_words(texts)
    assert words.startswith("The texts diverge at once")
    assert "‘·a’" in words and "‘,’" in words


def test_the_same_text_may_be_cut_into_other_iterations():
    whole = dynatree_recovered()
    head = replace(
        whole, committed_ids=whole.committed_ids[:1], committed_texts=whole.committed_texts[:1], accepted=(1,)
    )
    rest = replace(
        whole, committed_ids=whole.committed_ids[1:], committed_texts=whole.committed_texts[1:], accepted=(3,)
    )
    texts = continuations(run_of([whole]), run_of([head, rest]), 0)
    assert texts.same and texts.shared == len(whole.committed_ids)
    assert parting_words(texts) == "The same 3 tokens: the change affects the work, not the text."
    further = continuations(run_of([whole]), run_of([head]), 0)
    assert parting_words(further) == "The same text up to the shorter length (1 token); A is longer."


def test_where_nothing_differs_nothing_is_said_to():
    first, second = (run_of([dynatree_recovered(), bonus()]) for _ in range(2))
    assert parting_words(continuations(first, second, 0)) == "The same 6 tokens: nothing differs."
    kept = smaller_tree()
    other = replace(kept, committed_ids=dynatree_recovered().committed_ids)
    words = parting_words(continuations(run_of([dynatree_recovered()]), run_of([other]), 0))
    assert words == "The same 3 tokens: the change affects the work, not the text."


def test_bold_begins_where_the_texts_part():
    first, second = run_of([dynatree_recovered(), bonus()]), run_of([dynatree_recovered(), dynatree_recovered()])
    html = continuation_html(continuations(first, second, 0))
    assert html.count('<span class="parted">') == 2
    assert html.index("No") < html.index('<span class="parted">') < html.index("·dog")
    longer = continuation_html(continuations(first, run_of([dynatree_recovered()]), 0))
    assert "parted" not in longer, "a text that only goes further does not part"


def test_the_same_token_keeps_where_it_came_from_in_each_branch():
    whole = dynatree_recovered()
    alone = replace(
        whole, committed_ids=whole.committed_ids[:1], committed_texts=whole.committed_texts[:1], accepted=()
    )
    html = continuation_html(continuations(run_of([whole]), run_of([alone]), 0))
    assert html.count('title="drafted and accepted"') == 2
    assert html.count('title="recovered"') == 2


def test_text_of_a_model_is_escaped():
    evil = replace(bonus(), committed_texts=("<img src=x>", "<b>", "</div>"))
    html = continuation_html(continuations(run_of([evil]), run_of([dynatree_recovered()]), 0))
    assert "<img" not in html and "</div>·" not in html
    assert "&lt;img" in html


def test_the_table_has_a_row_per_branch_and_heads_for_readers():
    table = measures_html(fork_measures(lasting(dynatree_recovered(), 0.0), lasting(smaller_tree(), 0.0)))
    assert table.count('<th scope="row">') == 3
    assert table.count('<th scope="col" title="') == 8
    assert NO_TIME in table


def test_prefixes_are_compared_as_texts():
    first, second = run_of([dynatree_recovered(), bonus()]), run_of([dynatree_recovered(), dynatree_recovered()])
    assert same_prefix(first, second, 1)
    assert not same_prefix(first, second, 2)

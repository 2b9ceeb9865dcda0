"""Where the text ended in the middle of a path, every view says so and none takes the rest for committed."""

from dataclasses import replace

from decoding.trace.records import IterationTrace, VerificationStep
from tests.helpers import traces
from viz.explain.iteration import iteration_summary, why_final, why_verdict
from viz.explain.known import cut_nodes, is_cut
from viz.scope.cards import cards, distributions
from viz.scope.outline import steps_table, tree_outline
from viz.scope.scene import build_scene

SPECS = (
    traces.Spec(0, "</s>", 0.9, 0.9, "accepted"),
    traces.Spec(1, " Once", 0.9, 0.8, "not_reached"),
    traces.Spec(2, " upon", 0.5, 0.2, "rejected", "max_depth"),
)


def cut() -> IterationTrace:
    """The text ends with node 1; the verifier went on to node 2, rejected node 3 and drew a final token."""
    trace = traces.iteration_of(SPECS, final=None, final_kind="none", root_text=".")
    tests = ((0, 1, 1.0, 0.3, True), (1, 2, 0.9, 0.2, True), (2, 3, 0.4, 0.6, False))
    steps = [VerificationStep(at, to, trace.nodes[to].token_id, p, drawn, ok) for at, to, p, drawn, ok in tests]
    named = traces._token_id(" named")
    steps.append(VerificationStep(2, None, named, 0.5, 0.1, True, kind="choice"))
    return replace(trace, steps=tuple(steps), texts={**trace.texts, named: " named"})


def test_what_was_accepted_after_the_end_is_known():
    assert is_cut(cut()) and cut_nodes(cut()) == (2,)
    whole = traces.sampled_recovered()
    assert not is_cut(whole) and cut_nodes(whole) == ()


def test_sentences_say_where_the_text_ended_and_what_it_lost():
    assert "no final token as the text ended, or reached its length limit, with ‘</s>’" in iteration_summary(cut())
    assert why_final(cut()).endswith(" after it is discarded: ‘·Once’ and the final token ‘·named’.")
    assert why_verdict(cut(), 2).startswith("The verifier accepted it, but it was not committed")
    assert why_verdict(cut(), 3).startswith("After the end of the text, so without effect. Accepted if the draw")


def test_outline_card_and_tests_do_not_contradict_it():
    words = {line.node_id: line.words for line in tree_outline(cut())}
    assert "not committed. The verifier accepted it" in words[2] and "not reached" not in words[2]
    table = steps_table(cut())
    assert [row[-1] for row in table.rows] == [
        "accepted", "accepted, not committed", "rejected", "chosen, not committed",
    ]  # fmt: skip
    assert "after the end of the text were not committed" in table.note
    scene = build_scene(cut(), scene_id="s")
    assert cards(cut(), scene)["2"]["kind"].endswith("not committed")
    drawn = {node.node_id: state for node, state in zip(scene.nodes, scene.phases[-1].states, strict=True)}
    assert {drawn[2], drawn[3], cards(cut(), scene)["3"]["state"]} == {"not_reached"}, "nothing has a verdict after it"
    tests = distributions(cut(), scene)["2"]["tests"]
    assert [test["words"].split(", ")[-1] for test in tests] == ["after the end of text", "after the end of text"]
    assert [test["state"] for test in tests] == ["rejected", "not_reached"]

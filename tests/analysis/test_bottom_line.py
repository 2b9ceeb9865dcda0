"""The bottom line: what figures allow to say, from figures written by hand."""

from dataclasses import replace
from itertools import accumulate, pairwise
from math import exp, log

import pytest

from decoding.analysis.bottom_line import Interval, Option, between, bottom_line, paired
from decoding.analysis.slowdown import TOKENS, phase_means, slowdown, stretches
from decoding.trace.records import IterationTrace
from tests.helpers.traces import dynatree_recovered, run_autoregressive, run_mixed, run_of, summary
from viz.explain.bottom_line import bottom_line_words, ended_words, stretch_words
from viz.explain.expansion import why_absent

PLAIN = {(0, repeat): speed for repeat, speed in enumerate((50.0, 60.0, 40.0, 50.0))}


def option(label: str, *ratios: float, **changes) -> Option:
    """A way to decode that was so many times as fast as plain decoding in each repeat."""
    speeds = {(0, repeat): ratio * PLAIN[0, repeat] for repeat, ratio in enumerate(ratios)}
    return Option(label, paired(speeds, PLAIN), **changes)


def test_ratios_are_taken_within_each_repeat_so_drift_cancels():
    figure = option("Tree", 2.0, 2.0, 2.0, 2.0).figure
    assert (figure.value, figure.low, figure.high, figure.count) == pytest.approx((2.0, 2.0, 2.0, 4))
    partly = paired({(0, 1): 120.0, (0, 9): 1.0}, PLAIN)
    assert (partly.value, partly.count, partly.decides) == (2.0, 1, False)
    with pytest.raises(ValueError, match="repeat"):
        paired({(7, 7): 1.0}, PLAIN)


def test_an_interval_is_that_of_student_and_over_prompts_each_prompt_counts_once():
    figure = paired({(0, repeat): speed for repeat, speed in enumerate((1.0, 2.0, 4.0))})
    wide = 4.3027 * log(2) / 3**0.5  # the logarithms are log 2 apart
    assert (figure.low, figure.high) == pytest.approx((2 * exp(-wide), 2 * exp(wide)), rel=1e-4)
    speeds = {(prompt, repeat): 10.0 * (prompt + 1) for prompt in range(3) for repeat in range(5)}
    assert (paired(speeds).value, paired(speeds).count, paired(speeds).per) == (20.0, 3, "prompt")


@pytest.mark.parametrize(
    ("ratios", "verdict", "winner"),
    [
        ([(2.0, 2.02, 1.98), (1.5, 1.51, 1.49)], "speculate", True),
        ([(2.0, 2.02, 1.98), (1.99, 2.01, 1.97)], "speculate", False),
        ([(2.0, 2.02, 1.98), (1.5,)], "speculate", False),
        ([(2.58,), (1.2,)], "open", False),
        ([(2.58, 2.57), (1.2, 1.2)], "open", False),
        ([(1.05, 0.98, 1.01), (0.7, 0.71, 0.7)], "open", False),
        ([(0.8, 0.81, 0.79), (0.7, 0.71, 0.7)], "plain", False),
        # A noisy one in front hides neither the sure gain nor that it may be the faster one.
        ([(4.0, 0.5, 3.0), (1.5, 1.51, 1.49)], "speculate", False),
    ],
)
def test_a_winner_needs_three_repeats_and_an_interval_above_all_others(ratios, verdict, winner):
    line = bottom_line([option(f"way {place}", *each) for place, each in enumerate(ratios)], "Plain")
    assert line.verdict == verdict and (line.winner is not None) == winner
    said = bottom_line_words(line)
    assert line.best.label in said and "Plain" in said
    if winner:
        assert line.winner.label == "way 0" and f"{line.winner.figure.low:.2f}" in said


def test_what_would_decide_it_is_a_number_of_repeats_at_the_spread_measured():
    near = bottom_line([option("a", 2.0, 2.04, 1.96), option("b", 1.9, 1.94, 1.86)], "Plain")
    assert not near.winner and 4 < near.needed < 20 and str(near.needed) in bottom_line_words(near)
    gap = log(near.best.figure.value / near.rivals[0].figure.value)
    assert sum(each.figure.half(near.needed) for each in (near.best, *near.rivals)) < gap
    assert sum(each.figure.half(near.needed - 1) for each in (near.best, *near.rivals)) >= gap
    assert bottom_line([option("a", 2.0, 2.2, 1.8), option("b", 2.0, 2.2, 1.8)], "Plain").needed is None
    assert bottom_line([option("a", 2.0), option("b", 1.0)], "Plain").needed == 3


def test_over_prompts_ways_are_compared_on_the_same_prompts():
    """Texts differ far more than the ways do."""
    slow = {(prompt, 0): ratio for prompt, ratio in enumerate((1.2, 2.0, 3.1, 1.6, 2.4))}
    fast = {key: ratio * 1.1 for key, ratio in slow.items()}
    both = [Option("slow", paired(slow), speeds=slow), Option("fast", paired(fast), speeds=fast)]
    assert bottom_line(both, "Plain").winner.label == "fast"
    alone = [replace(each, speeds={}) for each in both]
    assert bottom_line(alone, "Plain").winner is None, "their intervals overlap"


def test_without_plain_decoding_a_method_can_win_but_nothing_says_that_it_pays():
    figures = {"a": Interval(100.0, 98.0, 102.0, 5), "b": Interval(80.0, 79.0, 81.0, 5)}
    line = bottom_line([Option(name, figure) for name, figure in figures.items()])
    assert line.verdict == "open" and line.winner.label == "a" and "a" in bottom_line_words(line)
    assert bottom_line([Option("plain", figures["a"], speculates=False)]) is None and bottom_line_words(None)


def test_the_break_even_is_that_of_the_measured_iterations():
    lost = slowdown(run_mixed(), run_autoregressive())
    line = bottom_line([option("Tree", 2.0, 2.01, 1.99, slowdown=lost, without_prefill=1.25)], "Plain")
    said, needed = bottom_line_words(line), lost.mine.tokens / 1.25
    assert "(1.25×)" in said and f"{needed:.2f}" in said and f"{lost.mine.tokens:.2f}" in said


def test_where_speculating_does_not_pay_the_largest_cost_is_the_cause():
    slow = slowdown(run_mixed(), run_autoregressive())
    mine = replace(slow.mine, seconds=slow.mine.seconds | {"draft": 9.0})
    lost = replace(slow, mine=mine, factors=slow.factors | {"draft": 99.0})
    line = bottom_line([option("Tree", 0.5, 0.51, 0.49, slowdown=lost)], "Plain")
    assert line.verdict == "plain" and "Mostly because drafting took 9" in bottom_line_words(line)
    assert "Mostly" not in bottom_line_words(bottom_line([option("Tree", 0.5, 0.51, 0.49)], "Plain"))


def committed(*lengths: int, seconds: float, first: int = 0) -> list[IterationTrace]:
    """Iterations that commit so many tokens each of the text 0, 1, 2, ... and take so long."""
    ends = list(accumulate(lengths, initial=first))
    return [
        replace(
            summary(),
            committed_ids=tuple(range(start, end)),
            committed_texts=tuple(f" {token}" for token in range(start, end)),
            times=replace(summary().times, total_s=seconds),
        )
        for start, end in pairwise(ends)
    ]


def test_two_runs_of_a_text_are_set_side_by_side_where_both_begin_an_iteration():
    tree = run_of(committed(3, 1, 1, 2, seconds=0.2))
    chain = run_of(committed(2, 2, 3, seconds=0.1))
    # Both begin at token 0; the tree at 3, 4, 5, the chain at 2, 4; both end at 7.
    found = stretches(tree, chain)
    assert [(each.start, each.end, each.mine, each.other) for each in found] == [
        (0, 4, (0, 1), (0, 1)),
        (4, 7, (2, 3), (2,)),
    ]
    assert [each.lost_s for each in found] == pytest.approx([0.4 - 0.2, 0.4 - 0.1]) and all(x.parts for x in found)
    alike = stretches(tree, tree)
    assert len(alike) == 4 and not any(each.parts for each in alike) and {each.lost.ratio for each in alike} == {1.0}


def test_what_reads_the_prompt_is_neither_a_stretch_nor_an_iteration_of_the_means():
    first, *later = committed(1, 2, 2, seconds=0.2)
    first = replace(first, times=replace(first.times, total_s=9.0))
    lookup = run_of([replace(each, kv_draft=None) for each in (first, *later)])
    chain = run_of(committed(1, 1, 3, seconds=0.1))
    for pair in ((lookup, chain), (chain, lookup)):
        assert [(each.start, each.end) for each in stretches(*pair)] == [(1, 5)]
    assert phase_means(lookup).tokens == 2.0 and phase_means(lookup).token_s == pytest.approx(0.1)
    assert phase_means(chain).tokens == pytest.approx(5 / 3)


def test_runs_are_not_compared_beyond_the_place_where_their_texts_differ():
    tree, other = committed(3, 1, 3, seconds=0.02), committed(3, 1, 3, seconds=0.01)
    other[1] = replace(other[1], committed_ids=(99,))
    found = stretches(run_of(tree), run_of(other))
    assert [(each.start, each.end) for each in found] == [(0, 3)]


def test_a_stretch_is_reported_with_its_text_and_its_measured_cause():
    tree, chain = run_of(committed(1, 1, 1, seconds=0.02)), run_of(committed(3, seconds=0.02))
    (stretch,) = stretches(tree, chain)
    assert stretch.lost.reason == TOKENS
    said = " ".join(stretch_words(stretch, (tree, chain), ("Tree", "Chain"), "<b> 0"))
    each, nodes = summary().draft_forwards, summary().drafted
    assert f"Tree took 60.0 ms: 3 iterations, {3 * each} draft forwards, {3 * nodes} nodes" in said
    assert f"Chain took 20.0 ms: 1 iteration, {each} draft forwards, {nodes} nodes" in said
    assert "<b>" in said and "3 tokens. " in said
    assert "Tree lost because an iteration committed 1.0 tokens on average" in said
    assert "instead of 3.0: it drafted at least as deep" in said
    deep = (replace(tree, iterations=tuple(replace(each, tree_depth=1) for each in tree.iterations)), chain)
    said = " ".join(stretch_words(stretch, deep, ("Tree", "Chain"), "<b> 0"))
    depth = chain.iterations[0].tree_depth
    its = f"1 token in iteration 1, 1 in iteration 2, 1 in iteration 3, the other's {depth} tokens in iteration 1"
    assert f"its deepest verified path had {its}" in said, "that of each iteration to which a link leads"


def test_a_path_ended_where_a_setting_left_the_next_token_out():
    iteration = dynatree_recovered(0)
    place, token = iteration.accepted[-1], iteration.committed_ids[-1]
    drafted = [node.token_id for node in iteration.nodes if node.parent_id == place]
    assert token not in drafted
    said = ended_words(iteration)
    assert said.startswith("In iteration 1, ") and iteration.committed_texts[-1].strip() in said
    assert "was not in the tree. " in said and said.endswith(why_absent(iteration, place, token))
    assert ended_words(summary()) == "" and ended_words(replace(iteration, final_kind="none")) == ""
    tree, chain = run_of(committed(1, 1, 1, seconds=0.02)), run_of(committed(3, seconds=0.02))
    (stretch,) = stretches(tree, chain)
    assert stretch_words(stretch, (tree, chain), ("Tree", "Chain"), "a", said)[1] == said


def test_two_methods_are_told_apart_within_each_repeat_as_plain_decoding_is():
    drift = (1.0, 1.15, 0.9)  # intervals over plain decoding overlap, of the one over the other nothing does
    tree, chain = (either(name, *(gain * each for each in drift)) for name, gain in (("Tree", 3.0), ("Chain", 2.5)))
    assert not tree.figure.apart(chain.figure)
    line = bottom_line([tree, chain], "Plain")
    assert line.winner is tree
    slower = either("Chain", *(2.5 * each * off for each, off in zip(drift, (1.1, 0.9, 1.0), strict=True)))
    line = bottom_line([tree, slower], "Plain")
    assert line.winner is None and line.rivals == (slower,)
    ratio = between(tree, slower)
    assert f"Tree over Chain: {ratio.value:.2f}×, {ratio.low:.2f} to {ratio.high:.2f}" in bottom_line_words(line)
    assert ratio.half(line.needed) < log(ratio.value) <= ratio.half(line.needed - 1)


def test_repeats_that_would_decide_are_counted_on_either_side_of_1():
    above, below = (1.03, 1.07, 1.0, 1.04, 0.98), (0.93, 0.97, 1.0, 0.96, 1.02)
    plain = {(0, repeat): 50.0 for repeat in range(5)}
    for ratios in (above, below):
        speeds = {(0, repeat): 50.0 * ratio for repeat, ratio in enumerate(ratios)}
        line = bottom_line([Option("Tree", paired(speeds, plain), speeds=speeds)], "Plain")
        assert line.verdict == "open" and line.needed and line.needed > 5
        assert line.best.figure.half(line.needed) < abs(log(line.best.figure.value))


def test_repeats_that_differ_widely_give_no_advice_to_act_on():
    faster = bottom_line_words(bottom_line([option("Tree", 2.4, 4.9, 3.2)], "Plain"))
    assert faster.startswith("Speculating was faster") and "not decided" in faster and "stop other work" in faster
    open_line = bottom_line_words(bottom_line([option("Tree", 0.6, 2.9, 1.1)], "Plain"))
    assert open_line.startswith("Not decided") and "stop other work" in open_line
    # Where the best one is sure, a noisy rival does not hide by how much it is faster.
    sure = bottom_line([option("Tree", 1.5, 1.51, 1.49), option("Chain", 0.4, 4.0, 3.0)], "Plain")
    said = bottom_line_words(sure)
    assert said.startswith("Speculate ") and "Chain has 3.00×" in said, "why the higher figure is not named first"


def test_an_iteration_cheaper_than_a_plain_token_is_no_rule():
    plain, cheap = run_autoregressive(), run_mixed()
    slow = slowdown(cheap, plain)
    for passes, said in ((0.8, False), (1.6, True)):
        later = slow.mine.tokens / passes
        line = bottom_line([option("Tree", 2.0, 2.02, 1.98, slowdown=slow, without_prefill=later)], "Plain")
        assert ("plain tokens" in bottom_line_words(line)) == said


WITH, WITHOUT = {"draft_model": True}, {"draft_model": False}
PLAIN_ITSELF = Option("Plain", paired(PLAIN, PLAIN), speculates=False, speeds=PLAIN, draft_model=False)


def either(label: str, *ratios: float, **changes) -> Option:
    return option(label, *ratios, speeds={(0, at): ratio * PLAIN[0, at] for at, ratio in enumerate(ratios)}, **changes)


@pytest.mark.parametrize(
    ("tree", "suffix", "verdict", "said"),
    [
        ((2.0, 2.02, 1.98), (1.5, 1.51, 1.49), "yes", "Yes: Tree has 1.33× (95% interval 1.32 to 1.34, 3 repeats)"),
        ((1.5, 1.51, 1.49), (2.0, 2.02, 1.98), "no", "No: without one, Suffix has 1.33× (95% interval 1.32 to 1.34"),
        ((0.5, 0.51, 0.49), (0.8, 0.81, 0.79), "no", "No: without one, Plain has 2.00× (95% interval 1.90 to 2.10"),
        ((2.0, 1.9, 2.1), (1.9, 2.0, 1.8), "open", "Not decided: Tree has 1.05× (95% interval 0.82 to 1.36"),
        ((1.9, 2.0, 1.8), (2.0, 1.9, 2.1), "open", "Not decided: Suffix has 1.05× (95% interval 0.82 to 1.36"),
        ((2.0, 2.0), (1.2, 1.2), "open", "Not decided: Tree has 1.67× (2 repeats) the speed of Suffix; at least 3"),
    ],
)  # fmt: skip
def test_whether_a_draft_model_is_needed_is_said_from_the_pairs_where_both_kinds_drafted(tree, suffix, verdict, said):
    plain = replace(PLAIN_ITSELF, speeds=dict(list(PLAIN.items())[: len(tree)]))
    options = [plain, either("Tree", *tree, **WITH), either("Suffix", *suffix, **WITHOUT)]
    line = bottom_line(options, "Plain")
    assert line.draft_model.verdict == verdict
    words = bottom_line_words(line).partition("Do you need a draft model? ")[2]
    assert words.startswith(said) and words.endswith(".")
    assert bottom_line(options[:2], "Plain").draft_model is None, "plain decoding alone is no other way to draft"
    assert bottom_line([plain, options[2]], "Plain").draft_model is None
    assert "draft model?" not in bottom_line_words(bottom_line(options[:2], "Plain"))


def test_a_way_is_needed_only_where_it_beats_each_way_of_the_other_kind():
    tree, steady = either("Tree", 2.0, 2.02, 1.98, **WITH), either("Suffix", 1.5, 1.51, 1.49, **WITHOUT)
    noisy = either("Lookup", 0.5, 3.5, 0.9, **WITHOUT)
    need = bottom_line([PLAIN_ITSELF, tree, steady, noisy], "Plain").draft_model
    assert (need.verdict, need.best.label, need.other.label) == ("open", "Tree", "Lookup")
    # One that is noisy and in front does not hide that another one is surely faster.
    front = either("Beam", 0.5, 6.0, 3.0, **WITH)
    need = bottom_line([PLAIN_ITSELF, tree, front, steady], "Plain").draft_model
    assert (need.verdict, need.best.label, need.other.label) == ("yes", "Tree", "Suffix")
    apart = replace(steady, speeds={(5, 5): 1.0})
    assert bottom_line([PLAIN_ITSELF, tree, apart], "Plain").draft_model is None, "nothing was measured with both"


@pytest.mark.parametrize(
    ("gains", "said"),
    [
        ({1: 2.0, 64: 1.25}, "pays at every batch size up to 64 (1.25× plain decoding there)."),
        ({1: 2.0, 8: 1.1, 16: 0.8}, "pays up to a batch size of 8 (0.80× plain decoding at 16)."),
        ({1: 0.9, 8: 0.5}, "pays at no batch size (0.90× plain decoding at 1)."),
    ],
)
def test_until_which_batch_the_trees_of_the_best_pay_is_said_where_batches_are_measured(gains, said):
    ratios = (2.0, 2.02, 1.98)
    line = bottom_line(
        [option("Tree", *ratios, batches=gains), option("Chain", 1.2, 1.21, 1.19, batches={1: 1.2})], "Plain"
    )
    assert bottom_line_words(line).endswith(said) and "Modelled from passes measured here" in bottom_line_words(line)
    assert "Modelled" not in bottom_line_words(bottom_line([option("Tree", *ratios)], "Plain"))
    open_line = bottom_line([option("Tree", 0.9, 1.2, 1.1, batches=gains)], "Plain")
    assert open_line.verdict == "open" and "Modelled" not in bottom_line_words(open_line), "it would read as a verdict"

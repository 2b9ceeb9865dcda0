"""Searches done again from their record: by hand, and against what the drafters themselves computed."""

from collections import defaultdict
from dataclasses import replace
from itertools import pairwise
from types import SimpleNamespace

import numpy as np
import pytest

from benchmarks.table_source import TableSource
from decoding.drafters import dyspec
from decoding.drafters.candidates import CandidateTree
from decoding.drafters.dyspec import DySpecDrafter
from decoding.drafters.salf import SalfDrafter
from decoding.drafters.specexec import SpecExecDrafter
from decoding.methods.methods import METHODS
from decoding.sampling.draws import GeneratorDraws
from decoding.sampling.sampling import Sampling
from decoding.session.session import DecodeSession, Limits
from decoding.trace.records import DrawTrace, InterventionTrace
from decoding.trace.run_file import load_run, save_run
from decoding.trace.searches import SHOWN, NextDraw, heap_pops, salf_rounds
from tests.helpers.replayed_draws import ReplayDraws
from tests.helpers.searches import ROOT, searched

# After the root 0 at 0.5, 1 at 0.25, 2 at 0.25; after 0 token 1 at 0.75; elsewhere 0 at 1.
TABLE = {(): [0.5, 0.25, 0.25], (0,): [0.25, 0.75, 0.0]}
SURE = [1.0, 0.0, 0.0]
NEAR = 1e-5  # what float32 and sums in another order leave of a value


class RandomTable(TableSource):
    """A distribution after every path, drawn when it is first asked for."""

    def __init__(self, seed: int, vocab: int, depth_limit: int = 100):
        random = np.random.default_rng(seed)
        sharpness = random.uniform(0.05, 1.0)
        table = defaultdict(lambda: random.dirichlet(np.full(vocab, sharpness)).tolist())
        super().__init__(table, [], depth_limit)
        self._table = SimpleNamespace(get=lambda path, default: table[path])


def replayed(outcomes) -> ReplayDraws:
    return ReplayDraws(tuple(DrawTrace("choose", 1.0, outcome, 0.0) for outcome in outcomes))


def test_the_pops_of_a_small_heap_by_hand():
    made = searched(DySpecDrafter(node_budget=4, max_depth=2), TableSource(TABLE, SURE), replayed([0, 1, 1, 2]))
    first, second, third, fourth = heap_pops(made)
    # The root's first draw is worth 1 and gives token 0: of that 1/2 goes below it, 1/2 to the next draw beside it,
    # which entered the heap first and so wins the tie.
    assert first.draw == NextDraw(1.0, 0, 1) and (first.below, first.beside, first.left) == (0.5, 0.5, 0.5)
    assert first.waiting == (NextDraw(0.5, 0, 2), NextDraw(0.5, 1, 1)) and first.forwards == 1 and first.asked
    assert first.rest == ((1, 0.5), (2, 0.5))
    assert second.draw == NextDraw(0.5, 0, 2) and (second.below, second.beside) == (0.25, 0.25) and not second.asked
    # Below node 1: token 1 at 0.75 of 0.5, on the deepest level, so that nothing can be drawn below it.
    assert third.draw == NextDraw(0.5, 1, 1) and third.below is None and third.beside == 0.125
    assert third.forwards == 2 and third.asked and third.rest == ((0, 1.0),)
    # The last token below the root: nothing is left there, and two draws wait.
    assert fourth.draw == NextDraw(0.25, 0, 3) and fourth.below == 0.25 and fourth.beside is None and fourth.rest == ()
    assert fourth.waiting == (NextDraw(0.25, 2, 1), NextDraw(0.25, 4, 1), NextDraw(0.125, 1, 2)) and fourth.held == 3
    assert [pop.node for pop in (first, second, third, fourth)] == [1, 2, 3, 4]


def test_where_every_token_is_drawn_nothing_waits():
    made = searched(DySpecDrafter(node_budget=2, max_depth=1), TableSource({(): [0.5, 0.5]}, [1.0]), replayed([1, 0]))
    last = heap_pops(made)[-1]
    assert last.below is None and last.beside is None and last.left == 0.0 and last.rest == ()
    assert last.waiting == () and last.held == 0


@pytest.mark.parametrize("seed", range(12))
def test_pops_follow_the_drafters_own_heap(seed, monkeypatch):
    popped = []

    def heappop(heap):
        popped.append(entry := dyspec_heap.heappop(heap))
        return entry

    dyspec_heap = dyspec.heapq
    monkeypatch.setattr(dyspec, "heapq", SimpleNamespace(heappop=heappop, heappush=dyspec_heap.heappush))
    source = RandomTable(seed, vocab=[2, 3, 8, 40][seed % 4], depth_limit=[100, 3][seed % 2])
    made = searched(DySpecDrafter(node_budget=30, max_depth=5), source, GeneratorDraws(seed))
    pops = heap_pops(made)
    assert [pop.node for pop in pops] == [node.node_id for node in made.nodes[1:]] and len(popped) == len(pops)
    for pop, (minus_value, _, node, _, _) in zip(pops, popped, strict=True):
        assert pop.draw.parent == node and pop.draw.value == pytest.approx(-minus_value, abs=NEAR)
    for pop, after in pairwise(pops):
        assert after.draw.value <= pop.draw.value + NEAR, "values never rise from pop to pop"
        assert after.draw.value == pytest.approx(pop.waiting[0].value, abs=NEAR), "the best draw is popped next"
        assert pop.beside is None or pop.below is None or pop.below + pop.beside == pytest.approx(pop.draw.value)
    assert pops[-1].forwards == made.draft_forwards == sum(pop.asked for pop in pops)
    for pop in pops:
        shares = [share for _, share in pop.rest]
        assert shares == sorted(shares, reverse=True) and sum(shares) <= 1 + NEAR


def test_the_rounds_of_a_small_search_by_hand():
    table = {(): [0.5, 0.25, 0.25], (0,): [0.5, 0.5, 0.0], (1,): SURE}
    made = searched(SalfDrafter(node_budget=5, batch=2, gain_threshold=0.7), TableSource(table, SURE))
    first, second, third = salf_rounds(made)
    assert first.batch == (0,) and first.gain == 1.0 and first.bound is None and first.expanded and not first.entered
    assert [each.value for each in first.waiting] == [0.5, 0.25, 0.25]
    # Tokens 0 and 1 leave the queue with 0.5 + 0.25; their children wait beside token 2.
    assert second.gain == 0.75 and second.bound == 1.0 and second.expanded and second.places == 2
    assert [(each.depth, each.value) for each in second.waiting] == [(1, 0.25), (2, 0.25), (2, 0.25), (2, 0.25)]
    # The next two sum to 0.5, less than the threshold: they have places, but the draft is not asked about them.
    assert third.gain == 0.5 and third.bound == 0.75 and not third.expanded
    assert third.places == 4 and third.least == 0.0 and len(third.entered) == 2
    assert {each.node for each in third.entered} == set(third.batch)


def test_a_search_that_no_node_can_improve_any_more_ends_with_an_empty_batch():
    made = searched(SalfDrafter(node_budget=2, batch=4, gain_threshold=0.0), TableSource({(): [0.5, 0.5]}, [0.5, 0.5]))
    *_, last = salf_rounds(made)
    assert last.batch == () and last.gain == 0.0 and not last.expanded and last.places == 2 and last.least == 0.5


def test_only_what_can_still_take_a_place_waits():
    table = {(): [0.5, 0.0625, 0.046875, 0.0], (0,): [0.5, 0.5, 0.0, 0.0]}
    made = searched(SalfDrafter(node_budget=4, batch=2, gain_threshold=0.0), TableSource(table, [1.0, 0.0, 0.0, 0.0]))
    _, second, third, *_ = salf_rounds(made)
    assert [each.value for each in second.waiting] == [0.25, 0.25, 0.0625, 0.046875]
    assert third.places == 4 and third.least == 0.0625 and [each.value for each in third.waiting] == [0.25, 0.25]


def test_nothing_is_said_to_wait_that_an_unrecorded_token_may_precede():
    weights = [(60 - token) / 1620 for token in range(40)]  # the record has the first 20 of them
    drafter = SalfDrafter(node_budget=30, batch=1, gain_threshold=42.5 / 1620)
    *_, before, last = salf_rounds(searched(drafter, TableSource({(): weights}, [1 / 40] * 40)))
    assert before.gain == pytest.approx(weights[17]) and last.gain == pytest.approx(weights[18])
    assert [each.value for each in before.waiting] == pytest.approx([weights[18]])


@pytest.mark.parametrize("seed", range(24))
@pytest.mark.parametrize("top_up", [False, True])
def test_rounds_follow_the_drafters_own_search(seed, top_up, monkeypatch):
    batches, bars, bests = [], [], []
    expand, bar, best = CandidateTree.expand, CandidateTree.bar, CandidateTree.best

    def spied(tree, chosen, least=0.0):
        batches.append(float(tree.values[chosen].sum()))
        return expand(tree, chosen, least)

    def spied_bar(tree, chosen):
        bars.append(bar(tree, chosen))
        return bars[-1]

    def spied_best(tree, chosen, count):
        found = best(tree, chosen, count)
        bests.append(tree.values[found])
        return found

    monkeypatch.setattr(CandidateTree, "expand", spied)
    monkeypatch.setattr(CandidateTree, "best", spied_best)
    monkeypatch.setattr(CandidateTree, "bar", spied_bar)
    random = np.random.default_rng(seed)
    vocab, depth = [(2, 9), (5, 3), (19, 2), (60, 3), (300, 12)][seed % 5]
    settings = {"node_budget": int(random.integers(1, 80)), "batch": int(random.integers(1, 12)), "max_depth": depth}
    threshold = [0.0, 0.2, 0.6][seed % 3]
    drafter = SalfDrafter(**settings, gain_threshold=threshold, top_up=top_up)
    made = searched(drafter, RandomTable(seed, vocab, depth_limit=[100, 4][seed % 2]))
    *rounds, last = salf_rounds(made)
    assert [each.gain for each in rounds] == pytest.approx(batches) and len(rounds) == made.draft_forwards
    assert all(each.gain >= threshold - NEAR and each.expanded for each in rounds)
    assert not last.expanded and (not last.batch or last.gain < threshold)
    for each, after in pairwise([*rounds, last]):
        assert after.gain <= each.gain + NEAR and after.bound == each.gain, "Theorem 1"
        placed = {entry.node for entry in after.entered}
        assert placed >= set(after.batch), "a node that is expanded has a place first"
    own = bars[: 2 * len(rounds) : 2]  # each round asks twice, the last one once
    for each, least in zip([*rounds[1:], last], own, strict=True):
        if each is last and top_up:
            continue  # what is topped up comes after it
        # A node of the deepest level that lost its place again may be missing from the record of a wide vocabulary.
        assert each.least == pytest.approx(least, abs=NEAR) if vocab < 20 else each.least <= least + NEAR
    # After each round but the first the drafter makes its queue, of its children and what waited.
    for each, queue, least in zip(rounds[1:], bests[1 : len(rounds)], own[:-1], strict=True):
        open_to = queue[queue > least]
        assert [one.value for one in each.waiting] == pytest.approx(open_to[: len(each.waiting)], abs=1e-9)
        assert len(each.waiting) == min(SHOWN, len(open_to)) or vocab >= 20, "no unrecorded one can precede"
    places = set()
    for each in [*rounds, last]:
        places = (places | set(each.entered)) - set(each.lost)
        assert len(places) == each.places <= settings["node_budget"]
    verified = {node.node_id for node in made.nodes[1:] if not node.pruned}
    assert {place.node for place in places} == verified, "what has a place in the end is verified"


def test_live_runs_give_their_steps_and_so_does_their_file(pair, tmp_path):
    prompt = pair.vocabulary.encode("Once upon a time")
    for name, settings, steps in (("dyspec", {"node_budget": 12}, heap_pops), ("salf", {"batch": 4}, salf_rounds)):
        method = METHODS[name].with_settings(**settings)
        session = DecodeSession(pair, method, prompt, Sampling(temperature=0.8 * (name == "dyspec")), Limits(8))
        list(session)
        run = session.trace()
        save_run(run, tmp_path / name)
        for live, read in zip(run.iterations, load_run(tmp_path / name).iterations, strict=True):
            made = steps(live)
            assert made == steps(read) and bool(made) == (live.drafted > 0)
            if not made:
                continue
            if name == "salf":
                assert sum(each.expanded for each in made) == live.draft_forwards
                continue
            assert [pop.node for pop in made] == list(range(1, len(live.nodes)))
            assert made[-1].forwards == live.draft_forwards
            for pop, after in pairwise(made):
                assert after.draw.value == pytest.approx(pop.waiting[0].value, abs=NEAR)
                assert after.draw.value <= pop.draw.value + NEAR


def test_other_drafters_and_edited_trees_have_no_steps():
    other = searched(SpecExecDrafter(node_budget=4, batch=2), TableSource(TABLE, SURE))
    assert not salf_rounds(other) and not heap_pops(other)
    made = searched(SalfDrafter(node_budget=4, batch=2), TableSource(TABLE, SURE))
    assert salf_rounds(made) and made.nodes[0].token_id == ROOT
    for kind in ("force_in", "force_out"):
        assert not salf_rounds(replace(made, interventions=(InterventionTrace(kind, (0,)),)))
    assert salf_rounds(replace(made, interventions=(InterventionTrace("accept", (0,)),)))
    for settings in ({}, made.settings | {"batch": 0}, made.settings | {"node_budget": "many"}):
        assert not salf_rounds(replace(made, settings=settings))
    far = replace(made.nodes[1], draft_level=2**40)
    assert not salf_rounds(replace(made, nodes=(made.nodes[0], far, *made.nodes[2:])))

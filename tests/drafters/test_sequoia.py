"""Sequoia: the best shape against all shapes, the tree drawn after it, and the acceptance rates it is made for."""

import heapq
import json
import warnings
from dataclasses import replace
from functools import cache
from itertools import permutations, product

import numpy as np
import pytest
import torch

from decoding.common.errors import SettingsError
from decoding.common.prompts import load_prompts
from decoding.costs import calibration, kept
from decoding.costs.measured import MeasuredPair
from decoding.drafters.sequoia import SequoiaDrafter, best_shape
from decoding.models.pair import embedded_pair
from decoding.sampling.draws import GeneratorDraws, ReplayDraws
from decoding.sampling.sampling import Sampling
from decoding.session.session import unrecorded
from decoding.sources.table import TableSource, path_tokens
from decoding.trace.records import GROWTHS, DrawTrace
from decoding.verifiers.specinfer_wor import SpecInferWithoutReplacementVerifier

FALLING, RISING, WITH_GAP = (0.6, 0.2, 0.1), (0.1, 0.2, 0.5), (0.4, 0.0, 0.3)
ONCE = Sampling(temperature=1.0)


def value(children, acceptance, node=0) -> float:
    """F of a shape: the sum over its nodes of the product of P[slot] along the path."""
    below = zip(acceptance, children[node], strict=False)
    return 1.0 + sum(accepted * value(children, acceptance, child) for accepted, child in below)


def depth_of(children, node=0) -> int:
    return max((1 + depth_of(children, child) for child in children[node]), default=0)


@cache
def all_values(nodes: int, depth: int, acceptance: tuple[float, ...]) -> tuple[float, ...]:
    """F of every shape with exactly this many nodes, its root counted, and at most this depth."""
    found = [1.0] if nodes == 1 else []
    for count in range(1, len(acceptance) + 1) if depth else ():
        for sizes in product(range(1, nodes), repeat=count):
            if sum(sizes) == nodes - 1:
                for below in product(*(all_values(size, depth - 1, acceptance) for size in sizes)):
                    found.append(1.0 + float(np.dot(acceptance[:count], below)))
    return tuple(found)


@pytest.mark.parametrize("acceptance", [FALLING, RISING, WITH_GAP])
@pytest.mark.parametrize(("budget", "depth"), [(1, 3), (3, 2), (5, 1), (6, 2), (6, 3), (6, 6)])
def test_no_shape_is_better(acceptance, budget, depth):
    children = best_shape(acceptance, budget, depth, depth)
    best = max(max(all_values(nodes, depth, acceptance), default=0.0) for nodes in range(1, budget + 2))
    assert value(children, acceptance) == pytest.approx(best, abs=1e-12)
    assert len(children) <= budget + 1 and depth_of(children) <= depth
    assert sorted(child for slots in children for child in slots) == list(range(1, len(children)))


def test_a_large_shape_has_the_likeliest_places():
    """With falling rates a place is never worth more than those it needs: the best ones one by one are optimal."""
    acceptance = tuple(0.55 * 0.6**rank for rank in range(16))
    heap, best, taken = [(-1.0, 0)], 0.0, 0
    while taken < 1025:
        worth, depth = heapq.heappop(heap)
        best, taken = best - worth, taken + 1
        if depth < 9:
            for accepted in acceptance:
                heapq.heappush(heap, (worth * accepted, depth + 1))
    children = best_shape(acceptance, 1024, 9, 9)
    assert value(children, acceptance) == pytest.approx(best, abs=1e-9) and len(children) == 1025


def test_a_shallower_shape_from_the_same_table():
    assert best_shape(FALLING, 12, 2, 5) == best_shape(FALLING, 12, 2, 2) != best_shape(FALLING, 12, 5, 5)


def test_no_place_without_worth():
    assert best_shape((0.7, 0.0), 50, 4, 4) == ((1,), (2,), (3,), (4,), ())
    assert best_shape((0.0,), 50, 4, 4) == ((),)


def replay(drafter, outcomes, source):
    draws = ReplayDraws(tuple(DrawTrace("choose", 1.0, outcome, 0.0) for outcome in outcomes))
    return drafter.draft(None, source, 9, draws)


def test_a_level_is_drawn_child_by_child():
    assert best_shape((0.6, 0.25), 4, 3, 3) == ((1, 2), (3,), (), (4,), ())
    source = TableSource({}, [0.5, 0.3, 0.2])
    draft = replay(SequoiaDrafter(node_budget=4, max_depth=3, acceptance=" 0.6, 0.25"), [2, 0, 1, 1], source)
    assert [path_tokens(draft.tree, node) for node in range(1, 5)] == [(2,), (0,), (2, 1), (2, 1, 1)]
    assert [GROWTHS[code] for code in draft.tree.growth[[2, 4]]] == ["shape", "max_depth"]
    assert draft.tree.branching.tolist() == [2, 1, -1, 1, -1] and source.forwards == 3


def test_every_first_child_comes_before_every_second():
    drafter = SequoiaDrafter(node_budget=6, max_depth=2, acceptance="0.5,0.45")
    draft = replay(drafter, [0, 1, 2, 1, 0, 0], TableSource({}, [0.5, 0.3, 0.2]))
    assert draft.tree.parents.tolist() == [-1, 0, 0, 1, 2, 1, 2]
    assert draft.tree.tokens[1:].tolist() == [0, 1, 2, 1, 0, 0]


def test_where_tokens_run_out_their_places_stay_empty():
    drafter = SequoiaDrafter(node_budget=6, max_depth=2, acceptance="0.5,0.45")
    draft = drafter.draft(None, TableSource({(0,): [0.0, 0.5, 0.5]}, [1.0, 0.0, 0.0]), 9, GeneratorDraws(0))
    assert draft.tree.parents.tolist() == [-1, 0, 1, 1]


def test_the_length_limit_asks_for_the_best_shape_of_that_depth():
    drafter = SequoiaDrafter(node_budget=6, max_depth=6, acceptance="0.9,0.05")
    law = [0.5, 0.3, 0.2]
    assert drafter.draft(None, TableSource({}, law), 9, GeneratorDraws(0)).tree.depths.max() == 6
    limited = drafter.draft(None, TableSource({}, law, depth_limit=2), 9, GeneratorDraws(0))
    assert limited.tree.size == 7 and limited.tree.depths.max() == 2


@pytest.mark.parametrize(
    "changes",
    [
        {"node_budget": 0},
        {"node_budget": 1025},
        {"max_depth": 0},
        {"acceptance": "0.5,x"},
        {"acceptance": "0.5,,0.1"},
        {"acceptance": "nan"},
        {"acceptance": "-0.1"},
        {"acceptance": "0.7,0.4"},
        {"acceptance": ",".join(["0.01"] * 17)},
    ],
)
def test_out_of_range_is_refused(changes):
    with pytest.raises(SettingsError, match=next(iter(changes))):
        SequoiaDrafter(**changes)


def test_without_rates_there_is_no_shape():
    with pytest.raises(SettingsError, match="acceptance is empty"):
        SequoiaDrafter().draft(None, TableSource({}, [0.5, 0.5]), 9, GeneratorDraws(0))


@pytest.mark.parametrize(
    ("target", "draft"),
    [
        ([0.1, 0.2, 0.3, 0.4], [0.4, 0.3, 0.2, 0.1]),
        ([0.0, 0.5, 0.5, 0.0], [0.7, 0.1, 0.1, 0.1]),
        ([0.25, 0.25, 0.25, 0.25], [0.25, 0.25, 0.25, 0.25]),
        ([0.0, 0.0, 0.0, 1.0], [0.5, 0.5, 0.0, 0.0]),
    ],
)
def test_rates_are_those_of_the_verifier(target, draft):
    """For every order of drawing, and for all of them as rows of one call."""
    target, draft = torch.tensor(target, dtype=torch.float64), torch.tensor(draft, dtype=torch.float64)
    support = [token for token, prob in enumerate(draft.tolist()) if prob > 0]
    orders = list(permutations(support))
    total = np.zeros(4)
    for order in orders:
        solver = SpecInferWithoutReplacementVerifier().solve(target, draft, order)
        passes = [solver.acceptance(rank, rank) for rank in range(len(order))]
        expected = [p * np.prod([1 - before for before in passes[:rank]]) for rank, p in enumerate(passes)]
        expected += [0.0] * (4 - len(order))
        draws = ReplayDraws(tuple(DrawTrace("choose", 1.0, token, 0.0) for token in order))
        assert calibration.accepted_by_rank(target[None], draft[None], 4, draws) == pytest.approx(expected, abs=1e-12)
        total += expected
    table = torch.rand(3, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    laws = table / table.sum(-1, keepdim=True)
    one_by_one = [
        calibration.accepted_by_rank(target[None], row[None], 1, ReplayDraws((DrawTrace("choose", 1.0, 1, 0.0),)))
        for row in laws
    ]
    together = calibration.accepted_by_rank(
        target.expand(3, 4), laws, 1, ReplayDraws((DrawTrace("choose", 1.0, 1, 0.0),) * 3)
    )
    assert together == pytest.approx(sum(one_by_one))


@pytest.fixture(scope="module")
def pair():
    return embedded_pair()


@pytest.fixture
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(kept, "_known", {})
    return tmp_path / "draftscope" / "calibration"


def test_rates_of_the_embedded_pair(pair):
    rates = calibration.acceptance_by_rank(pair, ONCE, [prompt.text for prompt in load_prompts()[:6]])
    assert len(rates) == 16 and all(0 <= rate <= 1 for rate in rates) and sum(rates) <= 1
    assert rates[0] > 0.2 and rates[0] > 2 * rates[1] > 0
    same = replace(pair, draft=pair.target)
    assert calibration.acceptance_by_rank(same, ONCE, ["Once upon a time"]) == pytest.approx((1.0, *[0.0] * 15))
    assert calibration.acceptance_by_rank(pair, Sampling(), ["Once upon a time"], ranks=3) != rates[:3]
    with pytest.raises(SettingsError, match="text"):
        calibration.acceptance_by_rank(pair, ONCE, [])


def test_rates_are_means_over_places_of_the_text(pair, monkeypatch):
    """Greedy and from a draft that is sure, nothing is left to chance: the rate is how often the two agree."""
    text = "Once upon a time there was a little girl who lived in a house near the forest."
    tokens = pair.vocabulary.encode(text)
    with torch.no_grad():
        logits = [model.network(torch.tensor([tokens])).logits[0] for model in (pair.target, pair.draft)]
    agreed = (logits[0].argmax(-1) == logits[1].argmax(-1)).double()
    assert 0 < agreed.mean() < 1
    sure = Sampling(draft_temperature=1e-3)
    assert calibration.acceptance_by_rank(pair, sure, [text], ranks=1)[0] == pytest.approx(float(agreed.mean()))
    monkeypatch.setattr(calibration, "POSITIONS", 2)
    ends = float(agreed[[0, -1]].mean())
    assert calibration.acceptance_by_rank(pair, sure, [text], ranks=1)[0] == pytest.approx(ends)


def counted(monkeypatch, rates=(0.5, 0.25, *[0.0] * 14)) -> list[Sampling]:
    """Replaces the measurement; the list tells for which settings it was asked."""
    asked: list[Sampling] = []
    monkeypatch.setattr(calibration, "acceptance_by_rank", lambda _, sampling: asked.append(sampling) or rates)
    return asked


def test_rates_are_measured_once_and_kept(pair, cache, monkeypatch):
    asked = counted(monkeypatch)
    first = calibration.calibrated(pair, ONCE)
    assert calibration.calibrated(pair, ONCE) == first == (0.5, 0.25, *[0.0] * 14) and len(asked) == 1
    monkeypatch.setattr(kept, "_known", {})
    assert calibration.calibrated(pair, ONCE) == first and len(asked) == 1
    for other in (Sampling(), Sampling(temperature=1.0, top_p=0.9), Sampling(temperature=1.0, draft_temperature=0.5)):
        calibration.calibrated(pair, other)
    assert len(asked) == 4
    (file,) = cache.iterdir()
    content = json.loads(file.read_text())
    assert len(content["entries"]) == 4 and content["pair"]["name"] == pair.info.name
    other = replace(pair, info=replace(pair.info, name="Other pair"))
    calibration.calibrated(other, ONCE)
    assert len(asked) == 5 and len(list(cache.iterdir())) == 2


@pytest.mark.parametrize(
    "damage",
    [
        b"{",
        b"\xff\xfe\x00",
        b"[]",
        b"{}",
        b'{"entries": []}',
        b'{"entries": {"x": [0.5]}}',
        json.dumps({"entries": {"x": [0.5] * 16}}).encode(),
        json.dumps({"entries": {"x": ["a"] * 16}}).encode(),
        json.dumps({"entries": {"x": [float("nan")] * 16}}).encode(),
    ],
)
def test_a_damaged_file_is_measured_again_and_says_so(pair, cache, monkeypatch, damage):
    asked = counted(monkeypatch)
    calibration.calibrated(pair, ONCE)
    (file,) = cache.iterdir()
    file.write_bytes(damage)
    monkeypatch.setattr(kept, "_known", {})
    with pytest.warns(UserWarning, match="measured again"):
        calibration.calibrated(pair, ONCE)
    assert len(asked) == 2
    monkeypatch.setattr(kept, "_known", {})
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        calibration.calibrated(pair, ONCE)
    assert len(asked) == 2


def test_a_folder_that_takes_no_file_is_said_aloud(pair, tmp_path, monkeypatch):
    asked = counted(monkeypatch)
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    monkeypatch.setattr(kept, "_known", {})
    with pytest.warns(UserWarning, match="cannot be kept"):
        assert calibration.calibrated(pair, ONCE)[0] == 0.5
    assert calibration.calibrated(pair, ONCE)[0] == 0.5 and len(asked) == 1


def test_a_drafter_is_prepared_for_a_pair_once(pair, cache, monkeypatch):
    asked = counted(monkeypatch, (0.51234, 0.2, *[0.0] * 14))
    ready = SequoiaDrafter(node_budget=8).prepared(MeasuredPair(pair, ONCE, unrecorded))
    assert ready.rates == (0.5123, 0.2, *[0.0] * 14) and ready.node_budget == 8 and asked == [ONCE]
    assert ready.prepared(MeasuredPair(pair, Sampling(), unrecorded)) is ready and len(asked) == 1
    assert ready.draft(None, TableSource({}, [0.5, 0.5]), 9, GeneratorDraws(0)).tree.size > 1

"""Benchmarks that figures of the papers are made of: their records by hand, and what they refuse."""

import json
import sys
from collections import Counter
from contextlib import nullcontext
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import torch

from benchmarks.table_source import TableSource, path_tokens
from decoding.common.errors import ExperimentError
from decoding.common.prompts import load_prompts
from decoding.experiments import sweep
from decoding.experiments.command import in_both_ways
from decoding.experiments.experiment import GRIDS, RESULTS
from decoding.experiments.rows import all_rows
from decoding.papers.judge import grid_name, judge
from decoding.papers.measured import action_times, depth_divergence, draft_acceptance, tree_times, verifier_grid
from decoding.papers.measured.depth_divergence import Tree
from decoding.sampling.draws import GeneratorDraws
from decoding.sampling.sampling import Sampling, TargetDistributions
from decoding.selector.actions import ACTIONS, Action
from decoding.selector.store import all_selectors
from decoding.trace.metrics import COUNTINGS
from decoding.verifiers.theory import SOLVERS
from tests.helpers.papers import BY_KEY, row
from tests.helpers.selectors import LATENCY
from tests.helpers.traces import DYNATREE, dynatree_recovered, iteration_of

DRAFT = {(): [0.5, 0.3, 0.2]}
ELSEWHERE = [0.1, 0.2, 0.7]
TARGET = torch.tensor([0.2, 0.3, 0.5], dtype=torch.float64)


def test_known_tokens_of_shapes_give_figures_over_new_times():
    check, other = verifier_grid.CHECK, ("nss", 2, 1)
    outside, seconds = [True, False, True], {check: [1.0, 1.0, 1.0], other: [1.0, 2.0, 3.0]}
    trees = {check: [2.0, 2.0, 2.0], other: [1.5, 3.0, 2.5]}
    made = {key: in_both_ways(list(zip(trees[key], seconds[key], strict=True)), outside, verifier_grid.figures)
            for key in trees}  # fmt: skip
    known = {key: {name: value for name, value in found.items() if name.endswith("iteration")}
             for key, found in made.items()}  # fmt: skip
    again = verifier_grid.known_again(made, known, seconds, outside, "stories/x")
    assert again[other] == pytest.approx(made[other]) and made[other]["throughput"] == 7 / 6
    slower = {key: [2 * each for each in taken] for key, taken in seconds.items()}
    assert verifier_grid.known_again(made, known, slower, outside, "x")[other]["throughput"] == pytest.approx(7 / 12)
    known[check]["tokens_per_iteration"] += 0.1
    with pytest.raises(ExperimentError, match="stories/x: the trees drawn here are not the stored ones"):
        verifier_grid.known_again(made, known, seconds, outside, "stories/x")


def test_a_text_whose_trees_come_out_otherwise_is_measured_whole(monkeypatch, capsys):
    def measured(job):
        if job.known:
            raise verifier_grid.OtherTreesError("stories/x: the trees drawn here are not the stored ones")
        return [{"line": "all shapes"}]

    monkeypatch.setattr(verifier_grid, "_records_of", measured)
    nothing = dict.fromkeys(("pair", "prompt", "text", "sampling", "solvers", "latencies", "selectors"))
    job = verifier_grid.GridJob(**nothing, roots=1, trees=1, asked=1, known={("naive", 1, 8): {}})
    assert verifier_grid.records_of(job) == [{"line": "all shapes"}]
    assert "stories/x" in capsys.readouterr().err


def test_tests_are_counted_where_the_draft_put_them():
    looping = iteration_of(DYNATREE, final=(3, "No", 0.69), final_kind="recovered", in_loop=True,
                           steps=dynatree_recovered().steps)  # fmt: skip
    found = draft_acceptance.tests_by_bin([dynatree_recovered(), dynatree_recovered(), looping])
    assert list(found) == [0.15, 0.55, 0.65, 0.85], "the final token is no test"
    for place, tested, accepted, target in ((0.55, 3, 1.0, 0.96), (0.65, 3, 0.0, 0.17)):
        whole = {"counted": tested, "tested": tested, "accepted": accepted, "target_probability": pytest.approx(target)}
        free = {f"loop_free_{name}": 2 if value == tested else value for name, value in whole.items()}
        assert found[place] == whole | free
    assert [draft_acceptance.middle(p) for p in (0.0, 0.0999, 0.1, 0.95, 1.0)] == [0.05, 0.05, 0.15, 0.95, 0.95]


@pytest.mark.parametrize(("counting", "tests"), [("whole", 2), ("loop_free", 1)])
def test_the_command_shows_what_it_was_asked_to_count(counting, tests, monkeypatch, capsys):
    looping = iteration_of(DYNATREE, final=(3, "No", 0.69), final_kind="recovered", in_loop=True,
                           steps=dynatree_recovered().steps)  # fmt: skip
    model = SimpleNamespace(info=SimpleNamespace(device="cpu"), device=torch.device("cpu"))
    pair = SimpleNamespace(info=SimpleNamespace(name="A pair"), target=model)
    monkeypatch.setattr(draft_acceptance, "pair_from", lambda args: pair)
    monkeypatch.setattr(draft_acceptance, "encoded_texts", lambda *_: [({"sample": "x"}, [1])])
    monkeypatch.setattr(draft_acceptance, "DecodeSession", lambda *_: [dynatree_recovered(), looping])
    monkeypatch.setattr(sys, "argv", ["draft_acceptance", "--counted", counting])
    assert draft_acceptance.main() == 0
    said = capsys.readouterr().out
    assert COUNTINGS[counting] in said and f"0.5 to 0.6{tests:7}" in said


class TableRoot:
    """A root below which both models are tables; the draft knows the root's distribution and has another one everywhere
    else.
    """

    in_loop = False

    def tree(self, method) -> Tree:
        source = TableSource(DRAFT, ELSEWHERE)
        self.draft = method.drafter.draft(None, source, 0, GeneratorDraws(1))
        rows = TARGET.repeat(len(self.draft.order), 1)
        return Tree(self.draft, TargetDistributions(None, Sampling(1.0), probs=rows), source.forwards)


def test_distributions_are_compared_exactly_at_every_depth():
    root = TableRoot()
    found = depth_divergence.figures_along(root, 2, SOLVERS)
    assert set(found) == {(line, depth) for line in ("laws", *SOLVERS) for depth in range(8)}
    assert [found["laws", depth]["l1_distance"] for depth in (0, 1, 7)] == pytest.approx([0.6, 0.4, 0.4])
    for depth, overlap, agreed in ((0, 0.7, 0.29), (3, 0.8, 0.43)):
        one = {name: found[name, depth]["accepted_of_1"] for name in SOLVERS}
        assert one.pop("nss") == pytest.approx(agreed), "both models draw the same token"
        assert list(one.values()) == pytest.approx([overlap] * 4), "on one draw all others are naive"
    q = torch.tensor(DRAFT[()], dtype=torch.float64)
    assert found["nss", 0]["accepted_of_4"] == pytest.approx(float((TARGET * (1 - (1 - q) ** 4)).sum()))
    assert found["specinfer", 0]["accepted_of_4"] > found["specinfer", 0]["accepted_of_2"] > 0.7


def test_paths_that_share_a_node_count_it_each(monkeypatch):
    root, asked = TableRoot(), Counter()

    def reported(tree, node, solvers):
        asked[node] += 1
        return {"laws": {"l1_distance": float(node)}}

    monkeypatch.setattr(depth_divergence, "_at", reported)
    found = depth_divergence.figures_along(root, 16, ())
    drawn = [node for node in root.draft.drawn.tolist() if len(path_tokens(root.draft.tree, node)) == 1]
    assert len(drawn) == 16 > len(set(drawn)) and found["laws", 1]["l1_distance"] == pytest.approx(np.mean(drawn))
    assert set(asked.values()) == {1}


def test_expected_tokens_of_every_shape_are_those_of_the_paths_inside_one_tree():
    root = TableRoot()
    found = verifier_grid.expected_at(root, ("nss", "naive", "traversal"))
    paths = [path_tokens(root.draft.tree, node) for node in root.draft.drawn.tolist()]  # level by level
    assert {found[name, 1, 0] for name in ("nss", "naive", "traversal")} == {1.0}, "a tree without nodes"
    assert ("naive", 2, 3) not in found and ("nss", 4, 8) in found and ("nss", 2, 0) not in found
    first, deep = [path[0] for path in paths[:4]], paths[4 * 4]  # of all paths; five tokens of the first
    assert found["nss", 1, 1] == pytest.approx(1 + float(TARGET[first[0]]))
    assert found["nss", 3, 1] == pytest.approx(1 + float(TARGET[sorted(set(first[:3]))].sum()))
    kept = np.cumprod([min(1.0, float(TARGET[token]) / (DRAFT[()] if level == 0 else ELSEWHERE)[token])
                       for level, token in enumerate(deep)])  # fmt: skip
    assert found["naive", 1, 5] == pytest.approx(1 + kept.sum())
    assert found["traversal", 1, 5] >= found["naive", 1, 5]


def test_a_selector_draws_as_many_trees_at_a_root_as_it_is_asked_for(pair, monkeypatch):
    monkeypatch.setattr(verifier_grid, "_pair", lambda settings: pair)
    card = next(card for card in all_selectors() if card.shipped and card.verifier == "nss")
    job = verifier_grid.GridJob(
        pair.settings, load_prompts()[0], {"sample": "x"}, Sampling(), ("nss",), {"nss": LATENCY}, {"nss": card},
        roots=2, trees=1, asked=3,
    )  # fmt: skip
    counted = {(line["method"], line["counted"]) for line in verifier_grid.records_of(job)}
    assert counted == {("iid_paths", 2), ("delayed", 6)}


def test_figures_of_a_text_count_roots_outside_loops_apart():
    trees = [(2.0, 0.1), (4.0, 0.3), (3.0, 0.1)]  # tokens and seconds of each
    found = in_both_ways(trees, [True, False, True], verifier_grid.figures)
    assert found == {"counted": 3, "tokens_per_iteration": 3.0, "throughput": pytest.approx(18.0),
                     "loop_free_counted": 2, "loop_free_tokens_per_iteration": 2.5,
                     "loop_free_throughput": pytest.approx(25.0)}  # fmt: skip
    assert not any(name.startswith("loop_free") for name in in_both_ways(trees, [False] * 3, verifier_grid.figures))


def test_the_stored_figures_of_selectors_are_of_those_that_come_with_the_program():
    asked = json.loads((RESULTS / "verifier_grid-cpu.json").read_text("utf-8"))["selectors"]
    shipped = {card.verifier: card for card in all_selectors() if card.shipped}
    assert asked == {name: {"name": card.name, "created": card.created} for name, card in shipped.items()}


def timed_row(paths: int = 2, trunk: int = 1, branch: int = 2, **more) -> dict:
    shape = {"paths": paths, "trunk": trunk, "branch": branch}
    made = row("delayed", "p", 100.0, experiment=grid_name("action_times"), method="delayed", prompt_tokens=50, **more)
    made |= {
        "pass_us": [500_000, 10_000, 12_000, 8_000],
        "committed_tokens": [1, 3, 6, 8],
        "loop_free_tokens": 8,
        "key": f"{shape} {more}",
    }
    return made | {"settings": json.dumps(shape), **{f"settings.{name}": value for name, value in shape.items()}}


def test_modelled_times_see_the_contexts_of_the_measured_passes():
    measured, rows, paper = action_times.records_of(pd.Series(timed_row()), LATENCY)
    assert [each["line"] for each in (measured, rows, paper)] == ["measured", "rows", "paper"]
    assert measured["pass_ms"] == pytest.approx(10.0) and measured["nodes"] == 5 and measured["action"] == "2 1 2"
    place = ACTIONS.index(Action(2, 1, 2))
    for found, way in ((rows, "rows"), (paper, "paper")):
        reported = 1000 * np.median(LATENCY.action_s(np.array([51, 53, 56]), way)[:, place])
        assert found["pass_ms"] == pytest.approx(reported) and found["of_measured"] == pytest.approx(reported / 10)
        assert found["loop_free_pass_ms"] == found["pass_ms"] and found["counted"] == 3
    few = timed_row() | {"pass_us": [500_000, 100_000], "committed_tokens": [1, 3]}
    assert action_times.records_of(pd.Series(few), LATENCY) == []


def test_passes_in_loops_are_no_loop_free_ones():
    times = {"pass_us": [500_000, 10_000, 12_000, 8_000, 30_000], "committed_tokens": [1, 3, 6, 8, 9]}
    measured = action_times.records_of(pd.Series(timed_row() | times), LATENCY)[0]
    assert (measured["pass_ms"], measured["loop_free_pass_ms"]) == pytest.approx((11.0, 10.0))
    assert (measured["counted"], measured["loop_free_counted"]) == (4, 3)
    few = action_times.records_of(pd.Series(timed_row() | times | {"loop_free_tokens": 6}), LATENCY)[0]
    assert few["counted"] == 4 and "loop_free_pass_ms" not in few


@pytest.mark.parametrize(("counting", "best", "tokens"), [("whole", "2 1", "3.00"), ("loop_free", "1 1", "2.50")])
def test_the_best_shape_is_that_of_the_texts_that_count(counting, best, tokens, capsys):
    made = [
        {"line": "nss", "method": "iid_paths", "sample": prompt, "settings.paths": paths, "settings.length": 1.0,
         "tokens_per_iteration": whole, "throughput": 9.0, "loop_free_tokens_per_iteration": free,
         "loop_free_throughput": 9.0}
        for prompt in "abc" for paths, whole, free in ((1.0, 2.0, 2.5), (2.0, 3.0, 1.5))
    ]  # fmt: skip
    lost = [{name: value for name, value in made[0].items() if not name.startswith("loop")} | {"sample": "lost"}]
    verifier_grid.print_best(made + lost, counting)
    row = capsys.readouterr().out.splitlines()[2]
    assert row.split()[:3] == ["nss", *best.split()] and tokens in row


def test_drafting_is_modelled_by_nodes_and_by_layers():
    def drafted(nodes: int, levels: list[float], took: float):
        times = SimpleNamespace(draft_levels_s=levels, draft_s=took)
        return SimpleNamespace(drafted=nodes, draft_forwards=len(levels), times=times, in_loop=False)

    greedy, layers = [drafted(16, [0.002] * 9, 0.03)] * 3, [drafted(18, [0.003] * 4, 0.02)] * 2
    found = {each["line"]: each for each in tree_times.records_of(greedy, layers, {"sample": "p"}, 16)}
    assert [found[line]["draft_ms"] for line in tree_times.LINES] == pytest.approx([30.0, 32.0, 20.0, 8.0])
    assert [found[line]["forwards"] for line in tree_times.LINES] == [9, 16, 4, 4]
    assert [found[line]["drafted"] for line in tree_times.LINES] == [16, 16, 18, 18]
    assert [found[line]["loop_free_draft_ms"] for line in tree_times.LINES] == pytest.approx([30.0, 32.0, 20.0, 8.0])
    assert tree_times.records_of([], layers, {"sample": "p"}, 16) == []


def test_times_of_another_machine_are_refused(monkeypatch):
    pair = SimpleNamespace(info=SimpleNamespace(name="Embedded pair"))
    monkeypatch.setattr(action_times, "machine_words", lambda pair: "a test")
    frames = {"mine": [timed_row()], "theirs": [timed_row(machine="another")], "none": []}
    monkeypatch.setattr(
        action_times, "all_rows", lambda kind: pd.DataFrame(frames[kind]) if frames[kind] else all_rows([])
    )
    assert len(action_times.rows_here(pair, "mine")) == 1
    with pytest.raises(ExperimentError, match="action_times are from another machine or pair: first run python"):
        action_times.rows_here(pair, "theirs")
    with pytest.raises(ExperimentError, match=r"no results of action_times: first run python -m benchmarks\.sweep"):
        action_times.rows_here(pair, "none")


def test_a_grid_takes_the_texts_of_a_folder(tmp_path, monkeypatch, capsys):
    for name in ("one", "two"):
        (tmp_path / f"{name}.txt").write_text("Some words to go on with.")
    words = ["sweep", str(GRIDS / "dynatree_main.toml"), "--prompts", str(tmp_path), "--dry-run"]
    monkeypatch.setattr(sys, "argv", words)
    assert sweep.main() == 0
    assert f"10 prompts of {tmp_path}" in capsys.readouterr().out
    seen = []
    monkeypatch.setattr(sweep, "run_grid", lambda grid, *rest: seen.append(grid.prompts) or SimpleNamespace(
        state="finished", failed=0, done=0, total=0, message=""))  # fmt: skip
    monkeypatch.setattr(sweep, "executor_for", lambda *_: nullcontext())
    monkeypatch.setattr(sys, "argv", words[:-1])
    assert sweep.main() == 0 and seen[0].set == str(tmp_path) and seen[0].kinds == ()


@pytest.mark.slow
@pytest.mark.parametrize(
    "module", [draft_acceptance, depth_divergence, tree_times, verifier_grid], ids=lambda module: module.__name__
)
def test_what_is_kept_fills_its_paper_result(module, tmp_path, monkeypatch, capsys):
    name = module.__name__.removeprefix("benchmarks.")
    words = ["x", "--quick", "--count", "1", "--device", "cpu", "--json", str(tmp_path / f"{name}-cpu.json")]
    monkeypatch.setattr(sys, "argv", words)
    assert module.main() == 0 and "Embedded pair, cpu, 1 prompts" in capsys.readouterr().out
    monkeypatch.setattr("decoding.papers.stored.RESULTS", tmp_path)
    for paper_result in BY_KEY.values():
        if paper_result.stored == name:
            outcome = judge(paper_result, pd.DataFrame())
            assert outcome.run and outcome.values and "Embedded pair" in outcome.where[0]
            assert {each.verdict for each in outcome.judged} <= {"not decided", "not run"}

"""Exhibits of the papers: their lines are real, and verdicts follow from rows made by hand."""

import json
import math
import sys

import pandas as pd
import pytest

from benchmarks import papers
from decoding.common.errors import ExperimentError
from decoding.compare.comparison import Contestant
from decoding.compare.contestants import format_contestant, parse_contestant
from decoding.experiments.estimates import Estimate, prepared
from decoding.experiments.experiment import GRIDS, all_experiments, experiments_home
from decoding.experiments.grid import contestants, read_grid
from decoding.experiments.rows import LOOP_FREE, MEASURED, SCHEMA, RowStore
from decoding.papers import EXHIBITS
from decoding.papers.judge import PARTS, VIEWS, grid_name, judge, of_time, words_of
from tests.helpers.process import ROOT
from tests.helpers.without_torch import run_without_torch

BY_KEY = {exhibit.key: exhibit for exhibit in EXHIBITS}
SPEEDS = {"autoregressive": 100.0, "linear": 150.0, "fixed_tree": 140.0, "dynatree": 180.0}
DYNATREE, FIXED, LINEAR = "DynaTree", "Fixed tree, D = 8, B = 3", "Linear, K = 8"


def row(line: str, prompt: str, speed: float, **more) -> dict:
    """A row of the main grid: 100 tokens, 4 per pass but for decoding without a draft."""
    tokens = 1.0 if line == "autoregressive" else 4.0
    figures = dict.fromkeys(MEASURED) | {
        "new_tokens": 100, "wall_s": 100 / speed, "prefill_s": 0.0, "throughput": speed, "tpot_s": 1 / speed,
        "ttft_s": 0.01, "iterations": int(100 / tokens), "tokens_per_iteration": tokens, "drafted": 200,
        "draft_forwards": 0 if tokens == 1 else 100, "draft_s": 0.0 if tokens == 1 else 0.25, "verify_s": 0.5,
    }  # fmt: skip
    return {
        **dict.fromkeys(SCHEMA.names), **figures, **{LOOP_FREE + name: value for name, value in figures.items()},
        "key": f"{line} {prompt} {more}", "experiment": read_grid(GRIDS / "dynatree_main.toml").name, "block": prompt,
        "reference": line == "autoregressive", "line": line, "method": line.split(":")[0], "engine": "lean",
        "settings": "{}", "prompt_set": "samples", "kind": "stories", "prompt": prompt, "pair": "Embedded pair",
        "machine": "a test", "started": "2030-01-02T00:00:00", "temperature": 0.0, "top_p": 1.0, "cut": 0, **more,
    }  # fmt: skip


def rows(speeds=None, prompts=6, **more) -> pd.DataFrame:
    speeds = speeds or SPEEDS
    made = [
        row(line, f"p{n}", speed * (1 + 0.01 * n), **more) for n in range(prompts) for line, speed in speeds.items()
    ]
    return pd.DataFrame(made)


def run_of(exhibit) -> list[Contestant]:
    """Everything that an exhibit's grid runs."""
    grid = read_grid(GRIDS / f"{exhibit.grid}.toml")
    return [each for sampling in grid.samplings for each in contestants(grid, sampling)[0]]


def settings_of(contestant: Contestant) -> dict:
    return {"settings." + name: value for name, value in contestant.method.settings().items()}


@pytest.mark.parametrize("exhibit", [each for each in EXHIBITS if not each.stored], ids=lambda exhibit: exhibit.key)
def test_every_way_is_run_by_its_grid(exhibit):
    ran = run_of(exhibit)
    lines = {format_contestant(each).replace("verifier=nss", "").rstrip(":,") for each in ran}
    for way in exhibit.ways:
        if exhibit.view == "phases":
            assert way.line in PARTS
            continue
        wanted = parse_contestant(way.line)
        if way.best or way.where:
            verifier = {"settings.verifier": way.line.partition(":verifier=")[2]} if ":" in way.line else {}
            of_method = [each for each in ran if each.method and each.method.name == wanted.method.name]
            alike = [settings_of(each) for each in of_method]
            alike = [each for each in alike if (verifier | dict(way.where)).items() <= each.items()]
            assert alike and all(name in each for name in way.best for each in alike), way.words
        else:
            assert format_contestant(wanted) == way.line and way.line in lines, way.line
    assert grid_name(exhibit.grid) and exhibit.command.endswith(f"decoding/experiments/grids/{exhibit.grid}.toml")


@pytest.mark.parametrize("exhibit", EXHIBITS, ids=lambda exhibit: exhibit.key)
def test_claims_are_about_ways_of_the_exhibit(exhibit):
    names = {way.words for way in exhibit.ways}
    assert all({each.better, each.worse} <= names for each in exhibit.orderings) and len(names) == len(exhibit.ways)
    columns = {figure.column for figure in exhibit.figures}
    assert all(each.figure.column in columns for each in exhibit.orderings)
    assert len(BY_KEY) == len(EXHIBITS) and bool(exhibit.grid) != bool(exhibit.stored) and exhibit.view in VIEWS
    if exhibit.stored:
        assert (ROOT / "benchmarks" / f"{exhibit.stored}.py").is_file() and exhibit.command.endswith(
            f"{exhibit.stored} --save"
        )


def test_orderings_are_judged_by_pairs_on_the_same_prompts():
    outcome = judge(BY_KEY["dynatree/table-1"], rows())
    assert outcome.run and outcome.runs[DYNATREE, None] == 6
    assert outcome.where == ("Embedded pair on a test, 2030-01-02",)
    assert outcome.ours[(DYNATREE, None), "speedup"].value == pytest.approx(1.8)
    verdicts = {(each.ordering.better, each.ordering.worse): each for each in outcome.judged}
    held = verdicts[DYNATREE, FIXED]
    assert held.verdict == "holds" and held.gain.value == pytest.approx(180 / 140 - 1) and held.reason == ""
    assert held.paper == pytest.approx(219.5 / 200.7 - 1)
    lost = verdicts[FIXED, LINEAR]
    assert lost.verdict == "does not hold" and lost.gain.value < 0
    assert "commits no more tokens per pass" in lost.reason and "passes take 7% longer" in lost.reason
    assert "a draft forward costs 12% of a verification" in lost.reason


def test_lower_is_better_where_a_table_says_so():
    outcome = judge(BY_KEY["dynatree/table-2"], rows())
    by_name = {(e.ordering.better, e.ordering.worse, e.ordering.figure.column): e for e in outcome.judged}
    assert by_name[DYNATREE, FIXED, "tpot_s"].verdict == "holds"
    assert by_name[DYNATREE, FIXED, "tpot_s"].paper == pytest.approx(1 - 4.59 / 5.30)
    assert by_name[DYNATREE, "Autoregressive", "ttft_s"].verdict == "not decided here"
    assert outcome.ours[(DYNATREE, None), "tpot_s"].value == pytest.approx(1000 / 180, rel=0.05)


def test_what_was_never_run_says_so():
    for nothing in (rows()[:0], rows(experiment="another grid")):
        outcome = judge(BY_KEY["dynatree/table-1"], nothing)
        assert not outcome.run and {each.verdict for each in outcome.judged} == {"not run"}
    some = judge(BY_KEY["dynatree/table-1"], rows({"autoregressive": 100.0, "linear": 150.0}))
    assert [each.verdict for each in some.judged] == ["holds", "not run", "not run"]
    assert words_of(BY_KEY["dynatree/table-1"].figures[0], None) == "not run"


def test_looping_and_failed_calls_do_not_count():
    frame = rows()
    frame.loc[1, "failure"], frame.loc[2, f"{LOOP_FREE}throughput"] = "no room", None
    assert len(prepared(frame)) == len(frame) - 2
    frame[f"{LOOP_FREE}throughput"] = frame["throughput"] / 2
    assert prepared(frame)["throughput"].tolist()[0] == 50.0


def test_the_best_of_a_sweep_is_chosen_at_every_length():
    sweep = read_grid(GRIDS / "fixed_tree_sweep.toml").name
    made = []
    for length, best in ((100, 3), (500, 8)):
        for prompt in ("a", "b", "c"):
            shared = {"experiment": sweep, "asked_tokens": length, "block": f"{prompt}{length}"}
            made.append(row("autoregressive", prompt, 100.0, **shared))
            for depth in (3, 8):
                settings = {"settings.max_depth": depth, "settings.branching": 3, "settings.prune_probability": 0.1}
                line = f"fixed_tree:max_depth={depth}"
                made.append(row(line, prompt, 200.0 if depth == best else 120.0, **shared, **settings))
    outcome = judge(BY_KEY["pruned/table-4"], pd.DataFrame(made))
    assert outcome.values == (100, 500)
    assert [outcome.ours[("Best fixed tree", n), "speedup"].value for n in (100, 500)] == [2.0, 2.0]
    assert outcome.judged[0].paper == pytest.approx(0.54)


def test_a_sweep_whose_figure_was_never_measured_has_no_best():
    exhibit = BY_KEY["delayed/table-2"]
    way = exhibit.ways[0]
    made = [row(way.line, "a", 100.0, experiment=grid_name(exhibit.grid), method="iid_paths", **{
        "settings.verifier": "nss", "settings.paths": paths, "settings.length": 2,
        "loop_free_tokens_per_iteration": math.nan}) for paths in (1, 2)]  # fmt: skip
    assert not judge(exhibit, pd.DataFrame(made)).run


def test_reasons_come_from_the_rows():
    slow, fast = rows({"dynatree": 80.0}), rows({"linear": 100.0})
    slow["draft_s"] = 1.0
    said = of_time(slow, fast, "DynaTree", "Linear")
    assert said.startswith("DynaTree commits no more tokens per pass than Linear and its passes take 25% longer")
    assert "most of it drafting (40.00 against 10.00 ms)" in said
    fast["tokens_per_iteration"] = 5.0
    assert "commits 20% fewer tokens" in of_time(slow, fast, "DynaTree", "Linear")


def test_of_tokens_per_pass_is_told_what_was_drafted_and_accepted():
    exhibit = BY_KEY["dyspec/table-1-t0.6"]
    more = {"experiment": grid_name(exhibit.grid), "temperature": 0.6, "draft_temperature": 0.6}
    made = []
    for name, per_pass, accepted in (("dyspec", 2.0, 25), ("sequoia", 3.0, 50)):
        line = next(way.line for way in exhibit.ways if way.line.startswith(name))
        figures = {"tokens_per_iteration": per_pass, "accepted": accepted}
        figures |= {LOOP_FREE + column: value for column, value in figures.items()}
        made += [row(line, f"p{n}", 100.0, **more, **figures) for n in range(4)]
    lost = next(each for each in judge(exhibit, pd.DataFrame(made)).judged if each.ordering.worse == "Sequoia")
    assert lost.verdict == "does not hold"
    assert lost.reason == (
        "Tokens drafted per pass: DySpec 8.0 of which 1.00 are accepted (12.5%), "
        "Sequoia 8.0 of which 2.00 are accepted (25.0%)."
    )


def test_a_claim_that_the_papers_own_numbers_deny_is_turned_round():
    exhibit = BY_KEY["delayed/table-2"]
    assert {("Naive", "Block")} <= {
        (each.ordering.better, each.ordering.worse) for each in judge(exhibit, rows()[:0]).judged
    }
    for each in EXHIBITS:
        assert all(judged.paper is None or judged.paper >= 0 for judged in judge(each, rows()[:0]).judged), each.key


def test_few_prompts_are_told_instead_of_an_interval():
    figure = BY_KEY["dynatree/table-1"].figures[1]
    assert words_of(figure, Estimate(1.5, 1.5, 1.5, 1)) == "1.5 (n = 1)"
    assert words_of(figure, Estimate(1.5, 1.2, 1.8, 3)) == "1.5 (1.2 to 1.8)"


def test_the_command_tells_all_and_writes_a_manifest(tmp_path, monkeypatch, capsys):
    frame = rows().astype(object)
    kept = frame.where(frame.notna(), None)[SCHEMA.names].to_dict("records")
    RowStore(tmp_path / "dynatree_main").append(kept)
    monkeypatch.setenv("DRAFTSCOPE_EXPERIMENTS", str(tmp_path))
    assert experiments_home() == tmp_path and tmp_path / "dynatree_main" in all_experiments()
    file = tmp_path / "papers.json"
    words = ["papers", "dynatree", "--manifest", str(file), "--rows", str(tmp_path / "dynatree_main")]
    monkeypatch.setattr(sys, "argv", words)
    assert papers.main() == 0
    said = capsys.readouterr().out
    assert "DynaTree over Fixed tree, D = 8, B = 3, tokens/s: holds +28.6%" in said and ", paper +9.4%" in said
    assert "not run: python -m benchmarks.sweep decoding/experiments/grids/dynatree_ablation.toml" in said
    written = json.loads(file.read_text())["exhibits"]
    assert written["dynatree/table-1"]["run"] and not written["dynatree/table-4"]["run"]
    with pytest.raises(ExperimentError, match="There is no exhibit 'figure-99': choose dynatree/table-1"):
        papers.chosen(["figure-99"])


def test_papers_are_judged_without_torch(tmp_path):
    code = "from decoding.papers import EXHIBITS; from decoding.papers.judge import judge; "
    code += "from decoding.experiments.rows import all_rows; import sys; "
    code += "print(len([judge(each, all_rows([])) for each in EXHIBITS]), 'torch' in sys.modules)"
    assert run_without_torch(tmp_path, "-c", code).split() == [str(len(EXHIBITS)), "False"]


def test_a_machine_has_its_own_reference_though_its_blocks_bear_the_same_names():
    slow = rows(
        {name: speed / 10 for name, speed in SPEEDS.items()}, machine="a slow one", started="2031-01-01T00:00:00"
    )
    outcome = judge(BY_KEY["dynatree/table-1"], pd.concat([rows(), slow], ignore_index=True))
    assert outcome.where == ("Embedded pair on a slow one, 2031-01-01",)
    assert outcome.ours[("Autoregressive", None), "speedup"].value == 1.0
    assert outcome.ours[(DYNATREE, None), "speedup"].value == pytest.approx(1.8)


def test_the_best_setting_is_chosen_by_the_other_prompts():
    exhibit = BY_KEY["delayed/table-3"]
    way = exhibit.ways[0]
    made = []
    for prompt, lucky in (("a", 2), ("b", 4), ("c", 8)):
        for length in (2, 4, 8):
            more = {"settings.verifier": "nss", "settings.paths": 1, "settings.length": length}
            speed = 900.0 if length == lucky else 100.0 + length
            made.append(row(way.line, prompt, speed, experiment=grid_name(exhibit.grid), method="iid_paths", **more))
    other = [{**each, "line": "iid_paths:verifier=spectr", "key": f"s{n}", "settings.verifier": "spectr"}
             for n, each in enumerate(made)]  # fmt: skip
    outcome = judge(exhibit, pd.DataFrame([*made, *other]))
    assert outcome.ours[(way.words, None), "throughput"].value < 110, "900 was lucky on one prompt each"


def test_a_prompt_counts_with_its_mean_over_samplings_and_the_median_of_repeats():
    exhibit = BY_KEY["delayed/table-3"]
    way, more = exhibit.ways[0], {"settings.verifier": "nss", "settings.paths": 1, "settings.length": 2}
    speeds = {0.2: (100.0, 100.0, 9.0), 0.4: (200.0, 200.0, 200.0), 1.0: (600.0, 600.0, 600.0)}
    shared = {"experiment": grid_name(exhibit.grid), "method": "iid_paths", **more}
    made = [
        row(way.line, prompt, speed, temperature=temperature, repeat=repeat, **shared)
        for prompt in "abc"
        for temperature, found in speeds.items()
        for repeat, speed in enumerate(found)
    ]
    other = [{**each, "line": "iid_paths:verifier=spectr", "key": f"s{n}", "settings.verifier": "spectr"}
             for n, each in enumerate(made)]  # fmt: skip
    outcome = judge(exhibit, pd.DataFrame([*made, *other]))
    assert outcome.ours[(way.words, None), "throughput"].value == pytest.approx(300.0)

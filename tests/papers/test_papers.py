"""Tables and figures of the papers: their lines are real, protocols are compared, and the command tells all."""

import json
import sys
from dataclasses import replace

import pytest

from benchmarks import papers
from decoding.common.errors import ExperimentError
from decoding.compare.contestants import Contestant, format_contestant, parse_contestant
from decoding.experiments.experiment import GRIDS, all_experiments, experiments_home
from decoding.experiments.grid import contestants, read_grid
from decoding.experiments.plan import DATA_SETS
from decoding.experiments.rows import SCHEMA, RowStore
from decoding.papers import CONTENTS, PAPER_RESULTS, not_shown
from decoding.papers.explained import EXPLAINED
from decoding.papers.judge import grid_name, judge
from decoding.papers.paper_result import (
    BY_NAME,
    OVER_DEPTH_2,
    Entry,
    Ordering,
    PaperResult,
    Protocol,
    compared,
    numbers_of,
    place_of,
    protocol_here,
)
from decoding.papers.rows import PARTS, VIEWS, WIDE
from decoding.trace.metrics import COUNTINGS
from pages.ui import PAGES
from tests.helpers.papers import BY_KEY, FIXED, LINEAR, PROMPTS, frame, of, row, rows
from tests.helpers.process import ROOT


def run_of(paper_result) -> list[Contestant]:
    """Everything that a paper result's grid runs."""
    grid = read_grid(GRIDS / f"{paper_result.grid}.toml")
    return [each for sampling in grid.samplings for each in contestants(grid, sampling)[0]]


def settings_of(contestant: Contestant) -> dict:
    return {"settings." + name: value for name, value in contestant.method.settings().items()}


@pytest.mark.parametrize(
    "paper_result", [each for each in PAPER_RESULTS if not each.stored], ids=lambda paper_result: paper_result.key
)
def test_every_entry_is_run_by_its_grid(paper_result):
    ran = run_of(paper_result)
    lines = {format_contestant(each).replace("verifier=nss", "").rstrip(":,") for each in ran}
    for way in paper_result.ways:
        if paper_result.view == "phases":
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
    assert grid_name(paper_result.grid) and paper_result.command.endswith(
        f"decoding/experiments/grids/{paper_result.grid}.toml"
    )


@pytest.mark.parametrize("paper_result", PAPER_RESULTS, ids=lambda paper_result: paper_result.key)
def test_claims_are_about_entries_of_the_paper_result(paper_result):
    assert paper_result.numbers and str(paper_result.protocol)
    names = {way.words for way in paper_result.ways}
    assert all({each.better, each.worse} <= names for each in paper_result.orderings) and len(names) == len(
        paper_result.ways
    )
    columns = {figure.column for figure in paper_result.figures}
    assert all(each.figure.column in columns for each in paper_result.orderings)
    assert (
        len(BY_KEY) == len(PAPER_RESULTS)
        and bool(paper_result.grid) != bool(paper_result.stored)
        and paper_result.view in VIEWS
    )
    if paper_result.stored:
        assert (ROOT / "benchmarks" / f"{paper_result.stored}.py").is_file() and paper_result.command.endswith(
            f"{paper_result.stored} --save"
        )


def test_every_table_and_figure_of_the_papers_is_found_by_its_number():
    assert not any(not_shown(paper) for paper in CONTENTS)
    assert {each.paper for each in (*PAPER_RESULTS, *EXPLAINED)} == set(CONTENTS)
    assert numbers_of("Tables 10, 12 and 14: throughput") == ("Table 10", "Table 12", "Table 14")
    assert numbers_of("Table 4, Figures 4 and 7d: best tree") == ("Table 4", "Figure 4", "Figure 7d")
    assert place_of("Table 2: x") < place_of("Table 10: x") < place_of("Figure 6a: x") < place_of("Figure 6b: x")
    keys = [each.key for part in (PAPER_RESULTS, EXPLAINED) for each in part]
    assert len(keys) == len(set(keys)) and all(each.page in PAGES for each in EXPLAINED)


def test_two_protocols_differ_only_with_a_word_on_it():
    outcome = judge(BY_KEY["dynatree/table-1"], rows())
    lines = compared(outcome.paper_result.protocol, outcome.here)
    assert [each.name for each in lines] == [
        "pair", "hardware", "prompts", "prompt tokens", "new tokens", "sampling", "repeats"]  # fmt: skip
    assert all(bool(each.said) == (each.paper != each.here) for each in lines)
    by_name = {each.name: each for each in lines}
    assert (by_name["new tokens"].paper, by_name["new tokens"].here) == ("1,500", "1,000")
    assert "other lengths" in by_name["new tokens"].said and by_name["sampling"].here == "greedy"
    assert by_name["prompts"].here == "6 of samples (stories)" and by_name["prompt tokens"].here == "60"


OURS = Protocol("Embedded pair", "a test", "6 of samples (stories)", "60", "1,000", "greedy", "one run of each")


@pytest.mark.parametrize(
    ("aspect", "here", "said"),
    [
        ("pair", OURS, "a small pair that runs on any machine"),
        ("pair", replace(OURS, pair="Embedded pair" + WIDE), "a small pair that runs on any machine"),
        ("pair", replace(OURS, pair="Llama with TinyLlama"), "another pair than the paper's"),
        ("prompts", OURS, "texts of the paper, where a network is there: --prompts wikitext-2 or cnn-dailymail"),
        ("prompts", replace(OURS, prompts="10 of long, other (fiction)"), "texts of the paper"),
        (
            "prompts",
            replace(OURS, prompts="10 of wikitext-2 (long)"),
            "other texts than the paper's, or others of the same set",
        ),
        ("prompts", replace(OURS, prompts=""), "not in our records"),
        ("new tokens", OURS, "other lengths, or not all of the paper's"),
        ("new tokens", replace(OURS, new_tokens="1,500"), ""),
        ("sampling", replace(OURS, sampling="T = 0.6; T = 1"), "other samplings than the paper's"),
        ("sampling", replace(OURS, sampling="greedy, draft T = 0.6"), "the target's are the same"),
        ("sampling", OURS, ""),
    ],
)
def test_a_word_on_a_difference_is_true_of_what_was_run(aspect, here, said):
    theirs = Protocol("Pythia", "one GPU", "WikiText-2, CNN/DailyMail", "at most 800", "1,500", "greedy", "10 prompts")
    found = {each.name: each.said for each in compared(theirs, here)}[aspect]
    assert found.startswith(said) and bool(found) == bool(said)


def test_data_sets_are_named_only_where_the_paper_has_them():
    assert set(BY_NAME) == set(DATA_SETS)
    delayed = {each.name: each.said for each in compared(BY_KEY["delayed/table-2"].protocol, OURS)}
    assert delayed["prompts"] == "other texts than the paper's, or others of the same set"
    dyspec = {each.name: each.said for each in compared(BY_KEY["dyspec/figure-2"].protocol, OURS, by_name=False)}
    assert dyspec["prompts"] == delayed["prompts"], "its benchmark takes no data set by name"


def test_eight_samplings_are_the_same_in_the_paper_and_here():
    samplings = [*((t, 1.0) for t in (0.2, 0.4, 0.6, 0.8, 1.0, 1.2)), (1.0, 0.9), (1.0, 0.99)]
    made = [row("dynatree", "p", 9.0, temperature=t, top_p=p) for t, p in samplings]
    assert protocol_here(frame(*made)).sampling == BY_KEY["delayed/table-2"].protocol.sampling


def test_a_chain_and_a_tree_are_never_compared_by_an_acceptance_that_is_two_statistics():
    ways = Entry(LINEAR, "linear"), Entry(FIXED, "fixed_tree")
    with pytest.raises(ValueError, match="one statistic of chains and another of trees"):
        PaperResult("x/y", "", "", "", Protocol(), (OVER_DEPTH_2,), ways, (Ordering(FIXED, LINEAR, OVER_DEPTH_2),))


def test_a_place_whose_texts_all_loop_has_no_other_way_of_counting(capsys):
    paper_result = BY_KEY["dyspec/table-1-t0"]
    kinds = {"stories": 90.0, "loops": None}
    made = [of(paper_result.key, each.line, p, kind=kind, temperature=0.0, loop_free_throughput=kinds[kind])
            for each in paper_result.ways for p in PROMPTS for kind in kinds]  # fmt: skip
    both = {way: judge(paper_result, frame(*made), way) for way in COUNTINGS}
    for counting, outcome in both.items():
        papers.show(both, counting)
        assert capsys.readouterr().out.count(" at loops, ") == (4 if counting == "whole" else 0) < len(outcome.judged)
    ways = [set(each) for each in papers.manifest([both])["paper results"][paper_result.key]["claims"]]
    assert sum("loop_free" in each for each in ways) == 4 and all("whole" in each for each in ways)


def test_the_rows_of_the_ablation_share_one_pruning_threshold():
    ways = [parse_contestant(way.line).method.drafter for way in BY_KEY["dynatree/table-4"].ways]
    assert {way.prune_probability for way in ways} == {0.05} and len(ways) == 4


def test_a_paper_compares_with_the_statistic_that_it_computed():
    """Acceptance of the paper stands only beside ours by the same formula, and differs where the formulas do."""
    for key, column in (
        ("dynatree/table-3", "committed_over_depth_2"), ("dynatree/table-3-pg-19", "committed_over_depth_2"),
        ("pruned/table-1", "committed_over_depth_1"), ("pruned/table-3", "committed_over_drafted"),
        ("pruned/table-4", "committed_over_depth_1"), ("pruned/table-4-settings", "committed_over_depth_1"),
    ):  # fmt: skip
        columns = [name if isinstance(name, str) else name[0] for way in BY_KEY[key].ways for name in way.paper]
        shares = {name for name in columns if name.startswith(("accept", "committed"))}
        assert shares == {column}, key


@pytest.mark.slow
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
    assert "whole texts: holds 4, " in said and "goal at most 25%" in said
    found = json.loads(file.read_text())
    assert found["not run"]["dynatree/table-4"]["command"].endswith("dynatree_ablation.toml")
    assert found["not decided"]["whole"]["share"] == 0 and found["not decided"]["loop_free"]["goal"] == 0.25
    assert found["explained"]["dynatree/figure-2"]["page"] == "Step through"
    (claim, *_), entries = (found["paper results"]["dynatree/table-1"][name] for name in ("claims", "entries"))
    assert claim["whole"]["verdict"] == claim["loop_free"]["verdict"] == "holds"
    assert entries[1]["tokens"] == [100, 100] and entries[1]["figures"]["speed-up"]["paper"] == 1.47
    written = found["paper results"]
    assert written["dynatree/table-1"]["run"] and not written["dynatree/table-4"]["run"]
    with pytest.raises(ExperimentError, match="There is no paper result 'figure-99': choose dynatree/table-1"):
        papers.chosen(["figure-99"])


@pytest.mark.parametrize("key", ["salf/table-1-tasks-t0", "dynatree/table-1"])
def test_numbers_of_the_paper_stay_when_a_result_is_run(key, capsys):
    """The paper's places on an axis, such as its tasks, need not be ours."""
    paper_result = BY_KEY[key]
    more = {"method": paper_result.ways[-1].line.partition(":")[0], "settings.verifier": "traversal",
            "settings.paths": 1, "settings.length": 2}  # fmt: skip
    lines = [paper_result.ways[-1].line, "autoregressive"]
    made = [of(key, line, p, **more, kind=kind) for line in lines for p in PROMPTS for kind in ("stories", "letters")]
    both = {way: judge(paper_result, frame(*made), way) for way in COUNTINGS}
    assert both["whole"].run
    written = [figure["paper"] for each in papers.manifest([both])["paper results"][key]["entries"]
               for figure in each["figures"].values()]  # fmt: skip
    printed = [number for way in paper_result.ways for number in way.paper.values()]
    assert sorted(each for each in written if each is not None) == sorted(printed)
    papers.show(both, "whole")
    table = [line.split() for line in capsys.readouterr().out.splitlines() if "paper:" not in line]
    assert all(any(f"{number:g}" in words for words in table) for number in printed)


def test_two_experiments_may_share_a_reference(tmp_path, monkeypatch, capsys):
    speeds = {"autoregressive": 100.0, "linear:length=6": 150.0}
    for key in ("dynatree/figure-8", "pruned/table-6"):
        made = [of(key, line, prompt, speed, cut=100, prompt_tokens=100) | {"key": f"{line} {prompt}"}
                for prompt in PROMPTS for line, speed in speeds.items()]  # fmt: skip
        kept = [{name: each[name] for name in SCHEMA.names} for each in made]
        RowStore(tmp_path / key.partition("/")[0]).append(kept)
    words = ["papers", "pruned/table-6", "--rows", str(tmp_path / "dynatree"), str(tmp_path / "pruned")]
    monkeypatch.setattr(sys, "argv", words)
    assert papers.main() == 0
    assert "Linear, K = 6 over Autoregressive at 100, tokens/s: holds +50.0%" in capsys.readouterr().out


def test_every_view_and_record_has_what_its_paper_results_ask_for():
    made = {"passes": {"position", "tree_nodes", "accepted_nodes"}, "phases": {"time_share", "label"}}
    for paper_result in PAPER_RESULTS:
        asked = {figure.column for figure in paper_result.figures} | {paper_result.by} - {""}
        assert asked <= made.get(paper_result.view, asked), paper_result.key
    assert replace(BY_KEY["dyspec/figure-2"], stored="x").command == "python -m benchmarks.x --save"

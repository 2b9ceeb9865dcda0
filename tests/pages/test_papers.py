"""The page Papers: the paper's numbers alone at first, ours beside them once there are rows, and runs begun."""

import json
import os
import re
import signal
import time
from dataclasses import replace
from types import SimpleNamespace

import pandas as pd
import pytest

from decoding.experiments.experiment import GRIDS, Experiment
from decoding.experiments.grid import contestants, read_grid
from decoding.experiments.rows import SCHEMA, RowStore
from decoding.jobs.job import STATUS, Job, Status
from decoding.models.embedded import embedded_weights
from decoding.papers import PAPER_RESULTS
from decoding.papers.judge import grid_name, judge
from decoding.papers.measured import Benchmark
from pages.ui.papers import run as papers_run
from pages.ui.papers.contents import IN_ORDER, summary
from pages.ui.papers.rows import judgement, kept_rows
from pages.ui.papers.run import size_of
from pages.ui.papers.view import claims_of, marks_of, orderings_html, protocol_html, table_html
from tests.helpers.families import family
from tests.helpers.papers import BY_KEY, DYNATREE, FIXED, row, rows
from tests.helpers.without_torch import run_without_torch
from tests.pages.apptest import open_page, sentences

PAGE = "pages/papers.py"


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    """No experiments and no stored records but those of the test."""
    monkeypatch.setattr("decoding.papers.stored.RESULTS", tmp_path / "none")
    monkeypatch.setenv("DRAFTSCOPE_EXPERIMENTS", str(tmp_path))
    monkeypatch.setattr("decoding.experiments.experiment.SHIPPED", tmp_path / "none")
    return tmp_path


def keep(folder, frame: pd.DataFrame) -> None:
    frame = frame.astype(object)
    RowStore(folder).append(frame.where(frame.notna(), None)[SCHEMA.names].to_dict("records"))


def replace_process(home, monkeypatch, script: str) -> None:
    """Puts a process that runs a script and then sleeps in the place of the one that is started."""
    code = home / "sleeper"
    code.write_text(f"#!/bin/sh\n{script}\nexec sleep 60\n")
    code.chmod(0o755)
    monkeypatch.setattr("decoding.jobs.job.sys.executable", str(code))


def all_judged(at):
    """The page once every result is judged: each run of its script does as many as its time allows."""
    while "Reading the stored results" in captions(at):
        at.run()
    return at


def html_of(at) -> str:
    return " ".join(each.body for each in at.get("html"))


def bars(at) -> str:
    return " ".join(bar.proto.text for bar in at.get("progress"))


def captions(at) -> str:
    return " ".join(each.value for each in at.caption).replace("\\", "")


def test_without_rows_it_shows_the_paper_and_offers_to_run():
    at = open_page(PAGE)
    assert not sentences(at) and "219.5" in html_of(at) and "not run" in html_of(at)
    assert at.button(key="papers_run").label == "Run on this machine"
    assert "At most 120 runs; the time is unknown until some have run" in captions(at)
    assert f"0 of {len(PAPER_RESULTS)} tables and figures have been re-run." in captions(all_judged(at))
    at.button(key="papers_see_salf/table-4").click().run()
    assert at.query_params["exhibit"] == "salf/table-4" and "Threshold 0.5" in html_of(at)


def test_with_rows_ours_stand_beside_theirs(home):
    keep(home / "dynatree_main", rows())
    at = open_page(PAGE)
    said = html_of(at)
    assert "1.80 (1.80 to 1.80)" in said and "✓ holds" in said and "✗ does not hold" in said
    assert "commits about as many tokens per pass" in said
    assert "6 prompts of the set samples; Embedded pair on a test" in captions(at)
    assert re.search(r"about \d+ min at the time per token so far on this machine", captions(at))
    RowStore(home / "dynatree_main").append([{"key": "z", "settings": "{}", "experiment": "another"}])
    assert not sentences(at.run())


@pytest.mark.slow
def test_what_an_ordering_is_and_how_many_are_undecided_stands_beside_their_number(home, monkeypatch):
    monkeypatch.setattr(
        "pages.ui.papers.rows.time", SimpleNamespace(monotonic=lambda: 0.0)
    )  # the page judges all at once
    assert "An ordering is" not in captions(open_page(PAGE)), "nothing is judged yet"
    keep(home / "dynatree_main", rows())
    at = open_page(PAGE)
    judged = [each for key in ("dynatree/table-1", "dynatree/table-2") for each in judge(BY_KEY[key], rows()).judged]
    said = captions(at)
    for verdict, words in (("does not hold", "do not hold"), ("not decided", "are not decided")):
        reported = int(said.partition(f" {words}")[0].rpartition(" ")[2])
        assert reported >= sum(each.verdict == verdict for each in judged)
    assert "An ordering is a paper's claim" in said and "(6 each)" in said
    assert "under Claims of the paper" in said and any("Claims of the paper" in each.value for each in at.markdown)


@pytest.mark.slow
def test_an_address_restores_the_view_and_an_unknown_one_is_reported(home):
    keep(home / "dynatree_main", rows())
    at = open_page()
    at.switch_page(PAGE)
    at.query_params["exhibit"], at.query_params["figure"] = "dynatree/table-2", "ttft_s"
    at.run()
    assert any("Table 2: latency" in each.value.replace("\\", "") for each in at.markdown)
    assert at.button_group(key="papers_column_dynatree/table-2").value == "ttft_s"
    assert at.query_params["figure"] == "ttft_s" and at.query_params["exhibit"] == "dynatree/table-2"
    at.button(key="papers_see_dynatree/table-1").click().run()
    assert "figure" not in at.query_params and not at.warning
    at = open_page()
    at.switch_page(PAGE)
    at.query_params["exhibit"] = "dynatree/table-99"
    at.run()
    assert "'dynatree/table-99', which is not a known table or figure" in at.warning[0].value.replace("\\", "")
    assert at.query_params["exhibit"] == "dynatree/table-1"


@pytest.mark.slow
def test_pairs_machines_and_shipped_results_are_never_mixed(home, monkeypatch):
    keep(home / "dynatree_main", rows())
    with monkeypatch.context() as patched:  # as if they had come with the program
        patched.setattr("pages.ui.papers.rows.experiments_home", lambda: home / "elsewhere")
        (shipped,) = judgement(BY_KEY["dynatree/table-1"], kept_rows()).sources
    fast = {"autoregressive": 1000.0, "linear": 5000.0, "fixed_tree": 4000.0, "dynatree": 6000.0}
    fewer = rows(fast, prompts=3, machine="another", started="2031-01-01T00:00:00")
    keep(home / "a_copy", fewer.assign(key=rows(prompts=3)["key"]))  # the same run has the same key everywhere
    paper_result = BY_KEY["dynatree/table-1"]
    newest = judgement(paper_result, kept_rows())
    assert newest.sources == ("Embedded pair on another · run here", "Embedded pair on a test · run here")
    assert newest.source == newest.sources[0] and shipped == "Embedded pair on a test"
    older = judgement(paper_result, kept_rows(), newest.sources[1])
    found = [each.outcome.ours[(DYNATREE, None), "throughput"].value for each in (newest, older)]
    assert found[0] > 6000 and found[1] < 200
    at = open_page(PAGE)
    at.selectbox(key="papers_source_dynatree_main").select(newest.sources[1]).run()
    assert "1.80 (1.80 to 1.80)" in html_of(at) and "on another" not in captions(at)


@pytest.mark.slow
def test_a_damaged_file_of_rows_is_one_sentence_and_the_others_are_shown(home):
    keep(home / "dynatree_main", rows())
    keep(home / "damaged", rows())
    next((home / "damaged" / "rows").iterdir()).write_bytes(b"no rows")
    at = open_page(PAGE)
    assert len(sentences(at)) == 1 and "is damaged" in sentences(at)[0] and "✓ holds" in html_of(at)


@pytest.mark.slow
def test_what_could_not_be_made_and_what_loops_is_reported(home):
    frame = rows()
    frame.loc[frame["line"] == "dynatree", ["failure", "label"]] = "no room", "DynaTree *"
    frame.loc[frame["line"] == "linear", "loop_free_throughput"] = None
    keep(home / "dynatree_main", frame)
    at = open_page(PAGE)
    assert [each.value.replace("\\", "") for each in at.warning] == ["DynaTree *: 6 runs failed: no room"]
    assert "100 tokens counted per run" in captions(at) and "repeat their text" not in captions(at)
    at.button_group(key="papers_counted").set_value("loop_free").run()
    assert "6 runs repeat their text from the start: they hold whole texts only and are left out." in captions(at)
    assert at.query_params["counted"] == "loop_free" and "not run" in html_of(at)


def test_the_button_begins_the_grid_and_its_progress_is_shown(home, monkeypatch):
    begun = []
    monkeypatch.setattr(papers_run, "launch", begun.append)
    at = open_page(PAGE)
    at.button(key="papers_run").click().run()
    assert begun == ["dynatree_main"] and not sentences(at)
    experiment = Experiment(home / "dynatree_main")
    experiment.path.mkdir(exist_ok=True)
    (experiment.path / "grid.json").touch()
    experiment.write_status(Status("running", "DynaTree: stories/frog", 30, 90, left_s=200.0))
    at.run()
    assert not [each for each in at.button if each.key == "papers_run"]
    at.button(key="papers_stop").click().run()
    assert experiment.asked_to_stop() and at.button(key="papers_stop").label == "Stopping"
    at.button(key="papers_see_dyspec/table-1-t0").click().run()
    assert at.button(key="papers_run").disabled, "two at once would slow each other down"
    assert "dynatree_main is running" in captions(at)


def test_texts_of_ones_own_are_handed_to_the_grid_that_needs_them(monkeypatch):
    begun = []
    monkeypatch.setattr(papers_run, "launch", lambda *asked: begun.append(asked))
    at = open_page(PAGE)
    at.button(key="papers_see_dynatree/figure-8").click().run()
    at.text_input(key="papers_texts_dynatree_prompts").input(" /some/where ").run()
    at.button(key="papers_run").click().run()
    assert begun == [("dynatree_prompts", "--prompts", "/some/where")] and not sentences(at)


def test_why_a_grid_ended_is_reported(home, monkeypatch):
    experiment = Experiment(home / "dynatree_main")
    experiment.path.mkdir()
    experiment.write_status(Status("failed", done=30, total=90, message="The disk is full."))
    at = open_page(PAGE)
    assert sentences(at) == ["The disk is full."] and at.button(key="papers_run").label == "Resume"
    resumed = []
    monkeypatch.setattr(Job, "resume", lambda job: resumed.append(job))
    at = open_page(PAGE)
    at.button(key="papers_run").click().run()
    assert resumed == [experiment], "with the prompts and the pair that it was begun with"
    assert "30 of 90 runs are stored, 60 remain" in captions(at)
    experiment.write_status(Status("stopped", done=30, total=90, message="Stopped; resume runs what is missing."))
    assert at.run().info[0].value.replace("\\", "") == "Stopped; resume runs what is missing." and not sentences(at)
    experiment.write_status(Status("finished", done=90, total=90))
    assert (
        "All 90 runs of the last request are stored." in captions(at.run())
        and at.button(key="papers_run").label == "Run again"
    )
    (experiment.path / STATUS).write_text(json.dumps({"what": 1}))
    assert "resume it; nothing is lost" in sentences(at.run())[0]


def test_a_process_that_loads_its_pair_is_starting_and_its_end_is_reported(home, monkeypatch):
    replace_process(home, monkeypatch, "echo 'error: There is no pair.'")
    at = open_page(PAGE)
    at.button(key="papers_run").click().run()
    assert papers_run.at_work() == {"dynatree_main"} and not [each for each in at.button if each.key == "papers_run"]
    assert "Starting its process" in str(at.get("progress")[0].proto)
    pid = Experiment(home / "dynatree_main").launched().pid
    os.kill(pid, signal.SIGKILL)
    while papers_run.at_work():
        time.sleep(0.02)
    assert sentences(at.run()) == ["There is no pair."] and not at.button(key="papers_run").disabled


@pytest.mark.parametrize("grid", sorted({paper_result.grid for paper_result in PAPER_RESULTS if paper_result.grid}))
def test_a_grid_has_at_most_the_runs_that_it_is_reported_to_have(grid):
    found = read_grid(GRIDS / f"{grid}.toml")
    ways = sum(len(contestants(found, sampling)[0]) for sampling in found.samplings)
    lengths = len(found.prompts.max_tokens) * found.repeats * found.prompts.count
    reported = size_of(grid)
    assert ways * lengths * len(found.new_tokens) <= reported.runs <= 1.5 * ways * lengths * len(found.new_tokens)
    assert reported.tokens == reported.runs * sum(found.new_tokens) // len(found.new_tokens)


@pytest.mark.parametrize("key", family(BY_KEY, *[*BY_KEY][::15]))
def test_every_exhibit_is_drawn_with_its_reference_alone(key, home):
    paper_result = BY_KEY[key]
    name = grid_name(paper_result.grid)
    keep(home / "begun", pd.DataFrame([row("autoregressive", "p", 100.0, experiment=name, asked_tokens=500)]))
    for kept in (kept_rows(), []):
        outcome = judgement(paper_result, kept).outcome
        said = table_html(outcome) + orderings_html(claims_of(outcome))
        assert paper_result.stored or summary(outcome)[0] == "not run"
        assert paper_result.stored or "not run" in said or not (paper_result.orderings or outcome.values)
        for figure in paper_result.figures:
            assert {mark.way for mark in marks_of(outcome, figure)} <= {way.words for way in paper_result.ways}


def test_what_a_benchmark_stored_is_shown_and_a_damaged_file_is_reported(home, monkeypatch):
    monkeypatch.setattr("decoding.papers.stored.RESULTS", home)
    made = [{"line": "laws", "sample": f"s{n}", "depth": depth, "l1_distance": 0.1 + 0.05 * depth + 0.01 * n}
            for n in range(5) for depth in range(8)]  # fmt: skip
    hardware = {"processor": "a test", "device": "cpu", "torch": "0"}
    content = {"benchmark": "depth_divergence", "pair": "Embedded pair", "weights": embedded_weights(),
               "created": "2030-01-02T00:00:00", "hardware": hardware}  # fmt: skip
    file = home / "depth_divergence-cpu.json"
    at = open_page(PAGE)
    at.button(key="papers_see_delayed/figure-1a").click().run()
    assert "not run" in captions(at) and "its time is unknown until it has run once" in captions(at)
    assert at.button(key="papers_run").label == "Run on this machine"
    pd.DataFrame(made).to_csv(file.with_suffix(".csv.gz"), index=False)
    file.write_text(json.dumps(content))
    assert "Embedded pair on a test" in captions(at.run()) and "✓ holds" in html_of(at) and not sentences(at)
    file.write_text(json.dumps({**content, "hardware": 3}))
    assert len(sentences(at.run())) == 1 and "is damaged" in sentences(at)[0]


STEPS = """while [ "$1" != --job ]; do shift; done
printf '{"state": "running", "phase": "measuring", "done": 3, "total": 20, "pid": %s, "written": %s}' \\
  $$ "$(date +%s.%N)" > "$2/status.json"
"""


@pytest.mark.slow
def test_a_benchmark_is_run_watched_and_stopped(home, monkeypatch):
    replace_process(home, monkeypatch, STEPS)
    at = open_page(PAGE)
    at.button(key="papers_see_dyspec/figure-2").click().run()
    at.button(key="papers_run").click().run()
    assert papers_run.at_work() == {"benchmarks.draft_acceptance"} and "Running for" in bars(at)
    at.button(key="papers_see_dynatree/table-1").click().run()
    assert at.button(key="papers_run").disabled and "benchmarks.draft_acceptance is running" in captions(at)
    until = time.monotonic() + 60
    while not Benchmark.of("draft_acceptance").status().done:
        assert time.monotonic() < until, "its process wrote no status"
        time.sleep(0.02)
    at.button(key="papers_see_dyspec/figure-2").click().run()
    assert "3 of 20 steps" in bars(at)
    at.button(key="papers_stop").click().run()
    assert at.button(key="papers_stop").disabled, "it is asked, and has not answered yet"
    at.button(key="papers_end").click().run()
    assert not papers_run.at_work() and not sentences(at)
    assert at.info[0].value.replace("\\", "") == "It ended before its results were written: run it again."
    assert not at.button(key="papers_run").disabled


def test_one_prompt_is_reported_as_one():
    outcome = judge(BY_KEY["dynatree/table-1"], rows(prompts=1))
    assert "1.80 (n = 1)" in table_html(outcome) and "(n = 1)" in orderings_html(outcome.judged)
    mark = next(each for each in marks_of(outcome, outcome.paper_result.figures[0]) if each.way == DYNATREE)
    assert mark.ours == pytest.approx(1.8) and mark.low is None and mark.paper == 1.64
    assert summary(outcome)[0] == "open" and "✗" not in orderings_html(outcome.judged)


def test_a_claim_at_several_places_is_reported_once_with_a_line_for_each():
    sweep = grid_name("dynatree_lengths")
    made = [rows({"autoregressive": 1.0, "linear": 2.0, "dynatree": speed}, experiment=sweep, asked_tokens=length)
            .assign(block=lambda frame, length=length: frame["prompt"] + str(length))
            for length, speed in ((100, 3.0), (1000, 1.5))]  # fmt: skip
    outcome = judge(BY_KEY["dynatree/figure-5"], pd.concat(made, ignore_index=True))
    said = orderings_html(outcome.judged)
    assert "holds at 1 of 2" in said and said.count("DynaTree over Linear, K = 8") == 1
    assert "<span>100</span><span>✓ holds" in said and "<span>1,000</span><span>✗ does not hold" in said
    assert 'rowspan="2">DynaTree' in table_html(outcome) and summary(outcome)[0] == "some"


@pytest.mark.slow
def test_the_list_tells_how_many_orderings_hold():
    paper_result = BY_KEY["dynatree/table-1"]
    some = judge(paper_result, rows())
    assert summary(some) == ("some", "2 of 3 orderings of the paper hold.")
    every = judge(paper_result, rows({"autoregressive": 1.0, "linear": 2.0, "fixed_tree": 3.0, "dynatree": 4.0}))
    assert summary(every)[0] == "all"
    none = judge(paper_result, rows({"autoregressive": 4.0, "linear": 3.0, "fixed_tree": 2.0, "dynatree": 1.0}))
    assert summary(none)[0] == "none" and FIXED in orderings_html(none.judged)

    def mark(*verdicts: str) -> str:
        judged = tuple(replace(none.judged[0], verdict=verdict) for verdict in verdicts)
        return summary(replace(none, judged=judged))[0]

    assert mark("equal within 3%", "equal within 3%") == "equal"
    assert mark("equal within 3%", "does not hold") == "none" and mark("equal within 3%", "not decided") == "open"
    assert summary(judge(paper_result, rows()[:0]))[0] == "not run" and summary(None)[0] == "judging"


@pytest.mark.slow
def test_without_torch_rows_are_shown_and_what_is_missing_is_reported(home, tmp_path):
    keep(home / "dynatree_main", rows())
    code = (
        "from tests.pages.apptest import open_page, sentences; import sys; at = open_page('pages/papers.py'); "
        "print(sentences(at), [each.value for each in at.info], 'torch' in sys.modules, "
        "[each.key for each in at.button if each.key == 'papers_run'], "
        "any('1.80 (' in each.body for each in at.get('html')))"
    )
    said = run_without_torch(tmp_path, "-c", code)
    assert said.startswith("[] ['This computation needs torch")
    assert said.split("'] ")[-1].split() == ["False", "[]", "True"]


def test_an_explanation_is_found_by_its_number_and_leads_to_the_page_that_shows_it():
    at = open_page(PAGE)
    at.button(key="papers_see_dynatree/figure-2").click().run()
    assert "Step through shows every stage" in captions(at) and at.query_params["exhibit"] == "dynatree/figure-2"
    assert [each.key for each in IN_ORDER[:3]] == ["dynatree/table-1", "dynatree/table-1-pg-19", "dynatree/table-2"]
    at.button(key="papers_see_dyspec/figure-8").click().run()
    at.button(key="papers_explained").click().run()
    assert at.query_params["exhibit"] == "dyspec/table-5"


@pytest.mark.slow
def test_both_protocols_stand_side_by_side_and_the_other_way_of_counting_beside_a_verdict(home):
    frame = rows()
    drafts = frame["line"] == "dynatree"
    frame.loc[drafts, "loop_free_throughput"] = 0.5 * frame["throughput"][drafts]
    frame.loc[drafts, "loop_free_tokens"] = 40
    keep(home / "dynatree_main", frame)
    at = open_page(PAGE)
    said = html_of(at)
    assert "new tokens</th><td>1,500</td><td>1,000</td><td>other lengths" in said
    assert "loop-free texts: ✗ does not hold, here 35.7% behind" in said
    assert "<td>100</td>" in said, "tokens stand beside every figure"
    assert protocol_html(judge(BY_KEY["dynatree/table-1"], frame)) in said

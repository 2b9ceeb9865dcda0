"""Tables and figures of the papers: their lines are real, and verdicts follow from rows made by hand."""

import gzip
import json
import math
import sys
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from benchmarks import papers
from decoding.common.errors import ExperimentError
from decoding.compare.contestants import Contestant, format_contestant, parse_contestant
from decoding.experiments.estimates import Estimate, prepared, ratio_gain
from decoding.experiments.experiment import GRIDS, all_experiments, experiments_home
from decoding.experiments.grid import contestants, read_grid
from decoding.experiments.plan import DATA_SETS
from decoding.experiments.rows import LOOP_FREE, MEASURED, SCHEMA, RowStore
from decoding.models.embedded import embedded_weights
from decoding.papers import CONTENTS, PAPER_RESULTS, not_shown, stored
from decoding.papers.dyspec import LARGE
from decoding.papers.explained import EXPLAINED
from decoding.papers.judge import EQUAL, claim_words, grid_name, judge, of_time, verdict, words_of
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
from decoding.papers.rows import PARTS, STEP, VIEWS, WIDE, modelled, passes, phases
from decoding.papers.stored import pass_costs, stored_records
from decoding.trace.metrics import COUNTINGS
from decoding.trace.records import PHASES
from pages.ui import PAGES
from tests.helpers.process import ROOT
from tests.helpers.without_torch import run_without_torch

BY_KEY = {paper_result.key: paper_result for paper_result in PAPER_RESULTS}
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
        "reference": line == "autoregressive", "line": line, "method": line.split(":")[0], "engine": "packed",
        "settings": "{}", "prompt_set": "samples", "kind": "stories", "prompt": prompt, "pair": "Embedded pair",
        "machine": "a test", "started": "2030-01-02T00:00:00", "temperature": 0.0, "top_p": 1.0, "cut": 0,
        "asked_tokens": 1000, "prompt_tokens": 60, "draft_temperature": 1.0, "repeat": 0,
        "weights": embedded_weights(), **more,
    }  # fmt: skip


def rows(speeds=None, prompts=6, **more) -> pd.DataFrame:
    speeds = speeds or SPEEDS
    made = [
        row(line, f"p{n}", speed * (1 + 0.01 * n), **more) for n in range(prompts) for line, speed in speeds.items()
    ]
    return pd.DataFrame(made)


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
    assert "commits about as many tokens per pass as" in lost.reason and "passes take 7% longer" in lost.reason
    assert "a draft forward takes 12% of the time of a verification" in lost.reason


def test_lower_is_better_where_a_table_says_so():
    outcome = judge(BY_KEY["dynatree/table-2"], rows())
    by_name = {(e.ordering.better, e.ordering.worse, e.ordering.figure.column): e for e in outcome.judged}
    assert by_name[DYNATREE, FIXED, "tpot_s"].verdict == "holds"
    assert by_name[DYNATREE, FIXED, "tpot_s"].paper == pytest.approx(1 - 4.59 / 5.30)
    assert by_name[DYNATREE, "Autoregressive", "ttft_s"].verdict == "equal within 3%"
    assert outcome.ours[(DYNATREE, None), "tpot_s"].value == pytest.approx(1000 / 180, rel=0.05)


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


def test_eight_samplings_are_the_same_in_the_paper_and_here():
    samplings = [*((t, 1.0) for t in (0.2, 0.4, 0.6, 0.8, 1.0, 1.2)), (1.0, 0.9), (1.0, 0.99)]
    made = [row("dynatree", "p", 9.0, temperature=t, top_p=p) for t, p in samplings]
    assert protocol_here(frame(*made)).sampling == BY_KEY["delayed/table-2"].protocol.sampling


@pytest.mark.parametrize(
    ("low", "high", "prompts", "said"),
    [  # the rule of docs/experiments.md, at its edges
        (0.031, 0.5, 3, "holds"), (0.001, 0.031, 3, "holds"), (0.031, 0.5, 2, "not decided"),
        (-0.5, -0.031, 9, "does not hold"), (-0.031, -0.001, 9, "does not hold"),
        (-0.029, 0.029, 3, "equal within 3%"), (0.001, 0.029, 3, "equal within 3%"),
        (-0.029, -0.001, 3, "equal within 3%"), (-0.029, 0.029, 2, "not decided"),
        (-0.031, 0.029, 9, "not decided"), (-0.001, 0.5, 9, "not decided"), (-0.03, 0.03, 9, "not decided"),
        (0.0, 0.0, 3, "equal within 3%"),
    ],
)  # fmt: skip
def test_the_rule_of_verdicts(low, high, prompts, said):
    assert verdict(Estimate((low + high) / 2, low, high, prompts)) == said and EQUAL == 0.03


def test_a_verdict_computed_by_hand():
    """Gains of 8, 10 and 12% over 100: mean 0.10, deviation 0.02, 0.10 +- 4.3027 * 0.02 / sqrt(3) is .0503 to .1497."""
    gain = ratio_gain(np.array([108.0, 110.0, 112.0]), np.full(3, 100.0))
    assert (gain.low, gain.high) == pytest.approx((0.0503, 0.1497), abs=1e-4) and verdict(gain) == "holds"
    assert verdict(ratio_gain(np.array([98.0, 110.0, 112.0]), np.full(3, 100.0))) == "not decided"
    assert verdict(ratio_gain(np.array([100.0, 101.0, 102.0]), np.full(3, 100.0))) == "not decided"
    assert verdict(ratio_gain(np.array([101.0, 101.0, 101.5]), np.full(3, 100.0))) == "equal within 3%"


def test_whole_and_loop_free_texts_are_two_views_of_the_same_rows():
    frame = rows()
    frame["loop_free_new_tokens"], frame["loop_free_throughput"] = 40, 2.0 * frame["throughput"]
    drafts = frame["line"] == "dynatree"
    frame.loc[drafts, "loop_free_throughput"] = 0.5 * frame["throughput"][drafts]
    whole, free = (judge(BY_KEY["dynatree/table-1"], frame, way) for way in ("whole", "loop_free"))
    assert (whole.units[DYNATREE, None], free.units[DYNATREE, None]) == (100, 40)
    found = [next(each for each in way.judged if each.ordering.better == DYNATREE).verdict for way in (whole, free)]
    assert found == ["holds", "does not hold"]
    frame.loc[frame["prompt"] == "p0", [name for name in frame if name.startswith(LOOP_FREE)]] = None
    assert judge(BY_KEY["dynatree/table-1"], frame).one_way == 0
    some = judge(BY_KEY["dynatree/table-1"], frame, "loop_free")
    assert some.one_way == 4 and some.runs[DYNATREE, None] == 5, "one prompt holds whole texts only"


def test_a_chain_and_a_tree_are_never_compared_by_an_acceptance_that_is_two_statistics():
    ways = Entry(LINEAR, "linear"), Entry(FIXED, "fixed_tree")
    with pytest.raises(ValueError, match="one statistic of chains and another of trees"):
        PaperResult("x/y", "", "", "", Protocol(), (OVER_DEPTH_2,), ways, (Ordering(FIXED, LINEAR, OVER_DEPTH_2),))


@pytest.mark.slow
def test_times_are_those_of_the_wide_pair_and_counts_those_of_the_plain_one():
    slow = rows({name: speed / 10 for name, speed in SPEEDS.items()}, pair="Embedded pair" + WIDE)
    slow["loop_free_tokens_per_iteration"] = slow["tokens_per_iteration"] = 9.0
    both = pd.concat([rows(), slow], ignore_index=True)
    times, counts = judge(BY_KEY["dynatree/table-1"], both), judge(BY_KEY["dynatree/table-3"], both)
    assert times.ours[(DYNATREE, None), "throughput"].value == pytest.approx(18.0, rel=0.1)
    assert times.bases == (f"times measured with Embedded pair{WIDE}",) and not times.elsewhere
    assert counts.ours[(DYNATREE, None), "tokens_per_iteration"].value == 4.0
    assert counts.bases == ("counts of Embedded pair",)
    assert counts.judged[1].basis == "counts of Embedded pair"
    some = pd.concat([rows(), slow[slow["line"] != "linear"]], ignore_index=True)  # not run whole, and no costs
    found = judge(BY_KEY["dynatree/table-1"], some)
    assert found.bases == ("times measured with Embedded pair",)
    assert found.ours[(DYNATREE, None), "throughput"].value > 100


@pytest.mark.slow
def test_an_interrupted_run_with_the_wide_pair_displaces_no_times():
    slow = rows({name: speed / 10 for name, speed in SPEEDS.items()}, pair="Embedded pair" + WIDE)
    table = BY_KEY["dynatree/table-1"]
    found = judge(table, pd.concat([rows(), slow[slow["prompt"] == "p0"]], ignore_index=True))
    assert found.bases == ("times measured with Embedded pair",) and found.judged[0].verdict == "holds"
    again = slow.assign(repeat=1, key=slow["key"] + " again")
    whole = judge(table, pd.concat([rows(), slow, again], ignore_index=True))
    assert whole.bases == (f"times measured with Embedded pair{WIDE}",)
    assert whole.runs[DYNATREE, None] == 12, "of the rows whose times are shown"
    both = [rows(), rows(asked_tokens=500), slow]
    assert judge(table, pd.concat(both, ignore_index=True)).bases == ("times measured with Embedded pair",)


def costs(pair: str, one_ms: float, nine_ms: float, day: str = "2030-02-03T04:05:06Z") -> dict:
    target = {"padded": False, "points": [[size, ms / 1000, 0, 0] for size, ms in ((1, one_ms), (9, nine_ms))]}
    whole = {"iteration_s": 0.0, "level_s": 0.0, "iterations": 1, "prefix_length": 1, "measured": day, "batch": 1,
             "machine": "a test", "others": 0.0, "corrected": "", "target": target, "draft": target}  # fmt: skip
    return {"pair": pair, "costs": [whole]}


def test_where_the_wide_pair_was_not_run_times_are_modelled_from_measured_passes(results):
    """100 tokens in 25 passes over 9 nodes, 10 ms each instead of 20 ms, and a prompt of 1 token, 9 ms more."""
    results.mkdir()
    for number, each in enumerate(
        (costs("Embedded pair", 1, 2), costs("Embedded pair" + WIDE, 11, 10, "2030-03-04T00:00:00Z"))
    ):
        (results / f"batch-{number}.json").write_text(json.dumps(each))
    own, wide = pass_costs("a test").values()
    assert not pass_costs("another machine")
    made = row("dynatree", "p", 100.0, verified=200, target_passes=25, prompt_tokens=1, accepted=75, rebuild_s=0.0)
    rebuilt = made | {"target_passes": 50, "rebuild_s": 0.1}
    plain = row("autoregressive", "p", 100.0, target_passes=100, prompt_tokens=1, drafted=None, rebuild_s=0.0)
    outside = row("hf_assisted", "p", 100.0, prompt_tokens=1)
    found = modelled(pd.DataFrame([made, rebuilt, plain, outside]), own, wide)
    # A pass over one node takes no longer than one over nine: 10 ms. The plain run's first is its prefill.
    assert found["verify_s"].tolist() == pytest.approx([0.25, 0.25, 0.99])
    assert found["rebuild_s"].tolist() == pytest.approx([0, 0.25, 0])
    assert found["wall_s"].tolist() == pytest.approx([0.759, 0.759 + 0.15, 1 - 0.5 + 0.99 + 0.009])
    assert found["throughput"][0] == pytest.approx(100 / 0.759)
    assert found["ttft_s"].tolist() == pytest.approx([0.01 - 0.01 + 0.009, 0.01 - 0.004 + 0.009, 0.01 + 0.009])
    assert found["tpot_s"][0] == pytest.approx(0.01 - 24 * 0.01 / 96)
    more = {"verified": 200, "target_passes": 25, "rebuild_s": 0.0}
    frame = rows().assign(**more, **{LOOP_FREE + name: value for name, value in more.items()}, prompt_tokens=1)
    outcome = judge(BY_KEY["dynatree/table-1"], frame)
    assert outcome.bases == (
        f"times modelled from measured passes of Embedded pair{WIDE} (2030-02-03 to 2030-03-04), "
        "all else from the runs (2030-01-02)",
    )
    assert outcome.ours[(DYNATREE, None), "throughput"].value == pytest.approx(
        100 / (0.25 + 0.009 + 100 / 180 - 0.5), rel=0.1
    )


@pytest.mark.slow
def test_texts_are_never_mixed_the_newest_count():
    long = rows({name: 2 * speed for name, speed in SPEEDS.items()}, prompt_set="long", text_hash="c0ffee",
                started="2031-01-01T00:00:00")  # fmt: skip
    outcome = judge(BY_KEY["dynatree/table-1"], pd.concat([rows(), long], ignore_index=True))
    assert outcome.elsewhere == ("texts of samples",) and outcome.runs[DYNATREE, None] == 6
    assert outcome.ours[(DYNATREE, None), "throughput"].value > 360
    each = long.assign(text_hash=long["prompt"])
    assert judge(BY_KEY["dynatree/table-1"], each).here.prompts.startswith("6 of long (stories, hash ")


def test_two_texts_of_one_name_are_never_mixed_the_newest_counts():
    old = rows(text_hash="aaa")
    new = rows({name: 2 * speed for name, speed in SPEEDS.items()}, text_hash="bbb", started="2031-01-01T00:00:00")
    for before in (old, old.assign(text_hash=None)):
        outcome = judge(BY_KEY["dynatree/table-1"], pd.concat([new[new["prompt"] != "p5"], before], ignore_index=True))
        assert outcome.runs[DYNATREE, None] == 6, "p5 has only its old text"
        assert outcome.ours[(DYNATREE, None), "throughput"].value == pytest.approx((5 * 360 + 180) / 6, rel=0.05)
        assert outcome.elsewhere == ("other texts of " + ", ".join(f"stories p{n}" for n in range(5)),)


@pytest.mark.slow
def test_a_first_row_from_another_machine_displaces_no_table(capsys):
    first = rows({"dynatree": 999.0}, 1, machine="another", started="2031-01-01T00:00:00")
    for counting in COUNTINGS:
        outcome = judge(BY_KEY["dynatree/table-1"], pd.concat([rows(), first], ignore_index=True), counting)
        assert outcome.run and outcome.elsewhere == ("Embedded pair on another",)
        assert outcome.runs[DYNATREE, None] == 6
    outcome = judge(BY_KEY["dynatree/table-1"], pd.concat([rows({"linear": 9.0}), first], ignore_index=True))
    assert not outcome.run and outcome.elsewhere == ("Embedded pair on a test",)
    papers.show(dict.fromkeys(COUNTINGS, outcome), "whole")
    assert "kept too, not counted: Embedded pair on a test" in capsys.readouterr().out


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


@pytest.mark.parametrize(
    ("line", "settings", "per_pass", "more", "percent"),
    [  # the papers' own numbers: Table 3 of the later version, Table 1 of the earlier one
        ("linear", {"length": 8}, 7.05, 2, 88.2),
        ("fixed_tree", {"max_depth": 8}, 7.10, 2, 71.0),
        ("dynatree", {"base_depth": 5, "max_depth": 8}, 7.15, 2, 102.2),
        ("linear", {"length": 5}, 4.63, 2, 92.5),
        ("fixed_tree", {"max_depth": 8}, 6.43, 2, 64.3),
        ("linear", {"length": 6}, 4.87, 1, 81.2),
        ("fixed_tree", {"max_depth": 6}, 5.56, 1, 79.5),
        ("fixed_tree", {"max_depth": 7}, 5.81, 1, 72.6),
    ],
)
def test_acceptance_is_computed_as_the_papers_did(line, settings, per_pass, more, percent):
    made = row(line, "p", 100.0) | {f"settings.{name}": value for name, value in settings.items()}
    made |= {f"{LOOP_FREE}tokens_per_iteration": per_pass}
    found = prepared(pd.DataFrame([made, row("autoregressive", "p", 100.0)]))
    column = found[f"committed_over_depth_{more}"]
    assert 100 * column[0] == pytest.approx(percent, abs=0.15) and math.isnan(column[1])


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


def of_shape(verifier: str, prompt: str, paths: int, tokens: float, **more) -> dict:
    """A record of `benchmarks.verifier_grid`."""
    return {"line": f"iid_paths:verifier={verifier}", "method": "iid_paths", "sample": prompt, "temperature": 1.0,
            "top_p": 1.0, "settings.verifier": verifier, "settings.paths": paths, "settings.length": 2,
            "tokens_per_iteration": tokens, "throughput": 40.0 * tokens} | more  # fmt: skip


def test_a_sweep_whose_figure_was_never_measured_has_no_best(results):
    store(results, "verifier_grid", [of_shape("nss", "a", paths, math.nan) for paths in (1, 2)])
    assert not judge(BY_KEY["delayed/table-2"], frame()).run


def test_a_claim_on_trees_that_fails_says_what_was_best_and_what_it_takes(results):
    made = [of_shape(verifier, p, paths, tokens + 0.1 * (paths == 2) + 0.02 * n)
            for verifier, tokens in (("naive", 3.0), ("block", 2.0)) for n, p in enumerate("abcd")
            for paths in (1, 2)]  # fmt: skip
    store(results, "verifier_grid", made)
    lost = next(each for each in judge(BY_KEY["delayed/table-3"], frame()).judged if each.ordering.better == "Block")
    assert lost.verdict == "does not hold"
    assert lost.reason == (
        "In an iteration Block (mostly K 2, L 2) commits 2.13 tokens in 25.0 ms, "
        "Naive (mostly K 2, L 2) commits 3.13 tokens in 25.0 ms."
    )


def test_reasons_come_from_the_rows():
    slow, fast = rows({"dynatree": 80.0}), rows({"linear": 100.0})
    slow["draft_s"] = 1.0
    said = of_time(slow, fast, "DynaTree", "Linear")
    assert said.startswith("DynaTree commits about as many tokens per pass as Linear and its passes take 25% longer")
    assert "most of the difference is drafting (40.00 ms against 10.00 ms)" in said
    fast["tokens_per_iteration"] = 5.0
    assert "commits 20% fewer tokens" in of_time(slow, fast, "DynaTree", "Linear")


def test_of_tokens_per_pass_is_reported_what_was_drafted_and_accepted():
    paper_result = BY_KEY["dyspec/table-1-t0.6"]
    more = {"experiment": grid_name(paper_result.grid), "temperature": 0.6, "draft_temperature": 0.6}
    made = []
    for name, per_pass, accepted in (("dyspec", 2.0, 25), ("sequoia", 3.0, 50)):
        line = next(way.line for way in paper_result.ways if way.line.startswith(name))
        figures = {"tokens_per_iteration": per_pass, "accepted": accepted}
        figures |= {LOOP_FREE + column: value for column, value in figures.items()}
        made += [row(line, f"p{n}", 100.0, **more, **figures) for n in range(4)]
    lost = next(each for each in judge(paper_result, pd.DataFrame(made)).judged if each.ordering.worse == "Sequoia")
    assert lost.verdict == "does not hold"
    assert lost.reason == (
        "Tokens drafted per pass: DySpec 8.0, of which 1.00 are accepted (12.5%); "
        "Sequoia 8.0, of which 2.00 are accepted (25.0%)."
    )


@pytest.mark.slow
def test_a_claim_that_the_papers_own_numbers_deny_is_turned_round():
    paper_result = BY_KEY["delayed/table-2"]
    assert {("Naive", "Block")} <= {
        (each.ordering.better, each.ordering.worse) for each in judge(paper_result, rows()[:0]).judged
    }


def test_no_claim_is_denied_by_the_papers_own_numbers(monkeypatch):
    monkeypatch.setattr("decoding.papers.judge.stored_records", lambda _name: pd.DataFrame())
    for each in PAPER_RESULTS:
        assert all(judged.paper is None or judged.paper >= 0 for judged in judge(each, rows()[:0]).judged), each.key


def test_the_paper_of_dyspec_is_behind_where_its_own_numbers_say_so():
    small, warm = (BY_KEY[f"dyspec/table-4-t{temperature}"].orderings for temperature in ("0", "0.6"))
    assert [(each.better, each.worse) for each in small[:2]] == [("DySpec", "Sequoia"), ("DySpec", "SpecInfer")]
    assert (warm[0].better, warm[0].worse, warm[2].better, warm[2].higher) == ("Sequoia", "DySpec", "Sequoia", False)


def test_few_prompts_are_reported_instead_of_an_interval():
    figure = BY_KEY["dynatree/table-1"].figures[1]
    assert words_of(figure, Estimate(1.5, 1.5, 1.5, 1)) == "1.5 (n = 1)"
    assert words_of(figure, Estimate(1.5, 1.2, 1.8, 3)) == "1.5 (1.2 to 1.8)"


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


@pytest.mark.slow
def test_papers_are_judged_without_torch(tmp_path):
    code = "from decoding.papers import PAPER_RESULTS; from decoding.papers.judge import judge; "
    code += "from decoding.experiments.rows import all_rows; import sys; "
    code += "of_views = {each.view: each for each in PAPER_RESULTS}; "
    code += "print(len([judge(each, all_rows([])) for each in of_views.values()]), 'torch' in sys.modules)"
    assert run_without_torch(tmp_path, "-c", code).split() == [str(len({each.view for each in PAPER_RESULTS})), "False"]


def test_a_machine_has_its_own_reference_though_its_blocks_bear_the_same_names():
    slow = rows(
        {name: speed / 10 for name, speed in SPEEDS.items()}, machine="a slow one", started="2031-01-01T00:00:00"
    )
    outcome = judge(BY_KEY["dynatree/table-1"], pd.concat([rows(), slow], ignore_index=True))
    assert outcome.where == ("Embedded pair on a slow one, 2031-01-01",)
    assert outcome.ours[("Autoregressive", None), "speedup"].value == 1.0
    assert outcome.ours[(DYNATREE, None), "speedup"].value == pytest.approx(1.8)


@pytest.mark.slow
def test_the_best_setting_is_chosen_by_the_other_prompts():
    paper_result = BY_KEY["delayed/table-3"]
    way = paper_result.ways[0]
    made = []
    for prompt, lucky in (("a", 2), ("b", 4), ("c", 8)):
        for length in (2, 4, 8):
            more = {"settings.verifier": "nss", "settings.paths": 1, "settings.length": length}
            speed = 900.0 if length == lucky else 100.0 + length
            made.append(
                row(way.line, prompt, speed, experiment=grid_name(paper_result.grid), method="iid_paths", **more)
            )
    other = [{**each, "line": "iid_paths:verifier=spectr", "key": f"s{n}", "settings.verifier": "spectr"}
             for n, each in enumerate(made)]  # fmt: skip
    outcome = judge(paper_result, pd.DataFrame([*made, *other]))
    assert outcome.ours[(way.words, None), "throughput"].value < 110, "900 was lucky on one prompt each"


def test_a_prompt_counts_with_its_mean_over_samplings_and_the_median_of_repeats(results):
    speeds = {0.2: (100.0, 100.0, 9.0), 0.4: (200.0, 200.0, 200.0), 1.0: (600.0, 600.0, 600.0)}
    made = [
        of_shape(verifier, prompt, 1, 2.0, throughput=speed, temperature=temperature, repeat=repeat)
        for verifier in ("nss", "spectr")
        for prompt in "abc"
        for temperature, found in speeds.items()
        for repeat, speed in enumerate(found)
    ]
    store(results, "verifier_grid", made)
    outcome = judge(BY_KEY["delayed/table-3"], frame())
    assert outcome.ours[("NSS", None), "throughput"].value == pytest.approx(300.0)


HARDWARE = {"processor": "A processor", "device": "cpu", "torch": "9.9"}
PROMPTS = ("a", "b", "c")


def frame(*rows: dict) -> pd.DataFrame:
    return pd.DataFrame(list(rows))


def of(key: str, line: str, prompt: str, speed: float = 100.0, **more) -> dict:
    """A row of a paper result's grid."""
    block = f"{prompt} {more.get('asked_tokens')} {more.get('cut')} {more.get('temperature')}"
    return row(line, prompt, speed, experiment=grid_name(BY_KEY[key].grid), block=block, **more)


def store(folder, benchmark: str, records: list[dict], **more) -> None:
    content = {"benchmark": benchmark, "pair": "Embedded pair", "weights": embedded_weights(),
               "created": "2030-01-02T00:00:00Z", "hardware": HARDWARE}  # fmt: skip
    folder.mkdir(exist_ok=True)
    file = folder / f"{benchmark}-{more.pop('device', 'cpu')}.json"
    file.write_text(json.dumps(content | more))
    pd.DataFrame(records).to_csv(file.with_suffix(".csv.gz"), index=False)


@pytest.fixture
def results(tmp_path, monkeypatch):
    monkeypatch.setattr(stored, "RESULTS", tmp_path / "results")
    return tmp_path / "results"


def test_passes_stand_where_their_tokens_do_and_end_with_the_loop():
    series = {
        "drafted_nodes": [700, 500, 60, 9],
        "accepted_lengths": [15, 3, 2, 1],
        "committed_tokens": [16, 20, 24, 30],
    }
    made = of("dyspec/figure-5", "dyspec", "p", loop_free_new_tokens=24, **series)
    other = of("dyspec/figure-5", "autoregressive", "p")  # drafts nothing
    found = passes(prepared(frame(made, other))).set_index("position")
    assert STEP == 16 and found.index.tolist() == [0, 16] and found["line"].tolist() == ["dyspec", "dyspec"]
    assert found["tree_nodes"].tolist() == [700.0, 280.0] and found["accepted_nodes"].tolist() == [15.0, 2.5]
    assert len(passes(prepared(frame(other)))) == 0


def test_tree_sizes_over_a_generation_are_judged_from_passes():
    made = [
        of("dyspec/figure-5", line, prompt, temperature=0.6, new_tokens=40, drafted_nodes=[nodes] * 3,
           accepted_lengths=[2, 2, 2], committed_tokens=[10, 20, 40])
        for prompt in PROMPTS for line, nodes in (("dyspec", 64), (LARGE, 600))
    ]  # fmt: skip
    outcome = judge(BY_KEY["dyspec/figure-5"], frame(*made))
    assert outcome.run and outcome.values == (0, 16)
    assert outcome.ours[("DySpec, 64 nodes", 16), "tree_nodes"].value == 64
    assert outcome.runs["DySpec, threshold 0.001, at most 768 nodes", 0] == 3


def test_phases_are_shares_of_the_time_that_all_took():
    times = {f"{phase}_s": 0.0 for phase in PHASES} | {
        "verify_s": 0.5, "draft_s": 0.3, "mask_s": 0.05, "select_s": 0.1, "commit_s": 0.05}  # fmt: skip
    made = of("dyspec/figure-4", "dyspec", "p", **times, **{f"loop_free_{name}": t for name, t in times.items()},
              draft_passes_s=0.25, loop_free_draft_passes_s=0.25, label="DySpec · tree of 64")  # fmt: skip
    shares = phases(prepared(frame(made))).set_index("line")["time_share"]
    assert shares.to_dict() == pytest.approx(
        {"target": 0.5, "draft": 0.25, "construction": 0.05, "mask": 0.05, "verification": 0.1, "cache": 0.05}
    )
    blind = phases(prepared(frame({**made, "loop_free_draft_passes_s": None}))).set_index("line")["time_share"]
    assert blind[["draft", "construction"]].isna().all() and blind["target"] == 0.5
    outcome = judge(BY_KEY["dyspec/figure-4"], frame(*({**made, "prompt": p, "temperature": 0.6} for p in PROMPTS)))
    assert outcome.values == ("DySpec",) and [each.verdict for each in outcome.judged] == ["holds", "holds"]
    assert (
        claim_words(outcome.judged[0]) == "Passes of the target over Tree construction at DySpec, share of the time, %"
    )


@pytest.mark.parametrize("name", VIEWS)
def test_no_rows_give_no_rows(name):
    assert len(VIEWS[name](prepared(frame(of("dyspec/figure-4", "dyspec", "p"))[:0]))) == 0


def test_prompts_that_are_too_short_say_nothing_about_long_ones():
    made = [
        of("dynatree/figure-8", line, prompt, 50.0 + 50 * (line != "autoregressive"), cut=cut, prompt_tokens=tokens)
        for prompt in PROMPTS
        for line in ("autoregressive", "dynatree", "linear")
        for cut, tokens in ((100, 100), (800, 130))
    ]
    outcome = judge(BY_KEY["dynatree/figure-8"], frame(*made))
    assert outcome.values == (100,) and outcome.ours[("DynaTree", 100), "speedup"].value == pytest.approx(2.0)


def sensitivity(high: float, low: float, prompt: str, speed: float) -> dict:
    usual = {"branch_min": 1, "branch_mid": 2, "branch_max": 3, "base_depth": 5, "max_depth": 8}
    settings = usual | {"confidence_high": high, "confidence_low": low}
    line = f"dynatree:confidence_high={high},confidence_low={low}"
    return of("dynatree/figure-6a", line, prompt, speed, **{f"settings.{name}": v for name, v in settings.items()})


def test_a_sweep_of_two_settings_has_lines_and_levels():
    made = [of("dynatree/figure-6a", line, p, speed) for p in PROMPTS
            for line, speed in (("autoregressive", 100.0), ("fixed_tree", 140.0))]  # fmt: skip
    made += [
        sensitivity(high, low, p, 100 * (high + low)) for p in PROMPTS for high in (0.7, 0.9) for low in (0.4, 0.5)
    ]
    made += [{**each, "line": "dynatree:max_depth=10", "settings.max_depth": 10} for each in made[6:7]]
    outcome = judge(BY_KEY["dynatree/figure-6a"], frame(*made))
    assert outcome.values == (0.7, 0.9)
    assert outcome.ours[("tau_l = 0.5", 0.9), "throughput"].value == pytest.approx(140)
    level = "Fixed tree, D = 8, B = 3"
    assert [outcome.ours[(level, high), "throughput"].value for high in (0.7, 0.9)] == [140.0, 140.0]
    assert outcome.runs["tau_l = 0.4", 0.7] == 3, "another depth is not of this panel"
    (claim,) = outcome.judged
    assert claim.ordering.at == (0.9, 0.9) and claim.verdict == "does not hold"
    assert claim_words(claim) == f"tau_l = 0.4 at 0.9 over {level} at 0.9, tokens/s"


def test_the_best_of_the_others_is_found_at_every_depth():
    made = []
    for prompt in PROMPTS:
        made.append(of("pruned/figure-3b", "autoregressive", prompt, asked_tokens=500))
        for depth in (3, 8):
            for branching, prune, speed in ((2, 0.03, 120.0), (3, 0.03, 130.0 + depth), (3, 0.1, 200.0 - depth)):
                settings = {"max_depth": depth, "branching": branching, "prune_probability": prune}
                settings = {f"settings.{name}": value for name, value in settings.items()}
                line = f"fixed_tree:max_depth={depth},branching={branching},prune_probability={prune}"
                made.append(of("pruned/figure-3b", line, prompt, speed, asked_tokens=500, **settings))
    outcome = judge(BY_KEY["pruned/figure-3b"], frame(*made))
    assert outcome.values == (3, 8)
    assert outcome.ours[("B = 3", 8), "throughput"].value == 138.0
    assert outcome.ours[("Best of the other two", 3), "throughput"].value == 197.0
    assert ("B = 4", 3) not in outcome.runs
    assert {each.verdict for each in outcome.judged} == {"holds"}


def test_verifiers_are_reported_by_sampling_each_with_its_best_shape(results):
    made = []
    for prompt in PROMPTS:
        for temperature, top_p in ((0.6, 1.0), (1.0, 0.9)):
            for verifier, gain in (("traversal_wor", 1.0), ("spectr", 0.0)):
                for paths, length in ((1, 2), (4, 8)):
                    figures = {"tokens_per_iteration": 2.0 + gain + 0.1 * paths, "throughput": 9.0}
                    if prompt != "c":  # whose text repeats itself from the start
                        figures |= {LOOP_FREE + name: 1.0 for name in figures}
                    made.append({
                        "line": f"iid_paths:verifier={verifier}", "sample": prompt, "prompt_set": "samples",
                        "kind": "code", "method": "iid_paths", "settings.verifier": verifier, "settings.paths": paths,
                        "settings.length": length, "temperature": temperature, "top_p": top_p, **figures,
                    })  # fmt: skip
    store(results, "verifier_grid", made)
    outcome = judge(BY_KEY["delayed/table-11"], frame())
    assert outcome.values == ("T = 0.6", "top-p = 0.9")
    assert outcome.ours[("Traversal", "T = 0.6"), "tokens_per_iteration"].value == pytest.approx(3.4)
    held = {(each.ordering.worse, each.value): each for each in outcome.judged if each.ordering.better == "Traversal"}
    assert held["SpecTr", "top-p = 0.9"].verdict == "holds"
    assert held["SpecTr", "T = 0.6"].paper == pytest.approx((5.40 + 3.83 + 6.86) / (5.28 + 1.94 + 6.60) - 1, abs=0.005)
    assert held["SpecInfer", "T = 0.6"].verdict == "not run"
    free = judge(BY_KEY["delayed/table-11"], frame(), "loop_free")
    assert (
        free.ours[("Traversal", "T = 0.6"), "tokens_per_iteration"].value == 1.0 and free.runs["SpecTr", "T = 0.6"] == 2
    )


def depths(falls: bool = True, samples=PROMPTS) -> list[dict]:
    return [
        {"line": "spectr", "sample": sample, "depth": depth, "accepted_of_4": 0.8 - 0.05 * depth * falls,
         "accepted_of_3": 0.7, "accepted_of_2": 0.6, "accepted_of_1": 0.5}
        for sample in samples for depth in range(8)
    ]  # fmt: skip


def test_stored_records_are_judged_as_rows_are(results):
    paper_result = BY_KEY["delayed/figure-1b"]
    nothing = judge(paper_result, frame())
    assert not nothing.run and {each.verdict for each in nothing.judged} == {"not run"}
    store(results, "depth_divergence", depths())
    outcome = judge(paper_result, frame())
    assert outcome.run and outcome.values == tuple(range(8)) and outcome.runs["SpecTr", 3] == 3
    assert outcome.where == ("Embedded pair on A processor, cpu, torch 9.9, 2030-01-02",)
    assert outcome.ours[("SpecTr", 2), "accepted_of_4"].value == pytest.approx(70.0)
    held = next(each for each in outcome.judged if each.ordering.better == "SpecTr")
    assert held.verdict == "holds" and held.value == "0 against 7" and held.reason == ""
    assert claim_words(held) == "SpecTr at 0 over the same at 7, acceptance at 4 draws, %"
    store(results, "depth_divergence", depths(falls=False))
    flat = next(each for each in judge(paper_result, frame()).judged if each.ordering.better == "SpecTr")
    assert flat.verdict == "equal within 3%"
    assert flat.reason == "Acceptance at 4 draws, %: 80.0 for SpecTr at 0, 80.0 for SpecTr at 7."


def test_fewer_than_three_samples_decide_nothing(results):
    store(results, "depth_divergence", depths(samples=("a", "b")))
    judged = judge(BY_KEY["delayed/figure-1b"], frame()).judged
    found = next(each for each in judged if each.ordering.better == "SpecTr")
    assert (found.verdict, found.reason) == ("not decided", "Measured on only 2 samples.")


def test_machines_are_not_mixed_the_newest_counts(results):
    store(results, "depth_divergence", depths())
    newer = {"created": "2030-02-01T00:00:00Z", "hardware": HARDWARE | {"gpu": "A GPU", "device": "cuda"}}
    store(results, "depth_divergence", depths(falls=False), device="cuda", **newer)
    outcome = judge(BY_KEY["delayed/figure-1b"], frame())
    assert outcome.where == ("Embedded pair on A GPU, cuda, torch 9.9, 2030-02-01",)
    assert outcome.elsewhere == ("Embedded pair on A processor, cpu, torch 9.9",)
    assert outcome.ours[("SpecTr", 7), "accepted_of_4"].value == pytest.approx(80.0) and outcome.runs["SpecTr", 7] == 3


def test_orders_of_a_mask_have_fewer_blocks_where_lower_is_better(results):
    blocks = {"as made": 36.0, "breadth": 35.0, "depth": 22.0, "heavy": 21.0}
    records = [{"part": "random", "line": line, "sample": f"random {n}", "nodes": 256, "prefix": 0, "blocks": count + n}
               for line, count in blocks.items() for n in range(4)]  # fmt: skip
    store(results, "mask_order", [*records, {**records[0], "part": "real", "nodes": 768, "blocks": 1.0}])
    outcome = judge(BY_KEY["dyspec/table-5"], frame())
    assert outcome.values == (256,) and outcome.ours[("Depth-first (DFS)", 256), "blocks"].value == 23.5
    assert [each.verdict for each in outcome.judged] == ["holds", "holds"]
    assert outcome.judged[0].paper == pytest.approx(1 - 22.5 / 36)


@pytest.mark.parametrize("counting", COUNTINGS)
def test_stored_records_bear_one_label_whichever_way_is_asked(results, capsys, counting):
    masks = [{"part": "random", "line": line, "sample": f"random {n}", "nodes": 256, "prefix": 0, "blocks": 9 + n}
             for line in ("as made", "depth") for n in range(4)]  # fmt: skip
    store(results, "mask_order", masks)
    acted = [{"line": line, "sample": p, "nodes": 5, "pass_ms": 9.0, "of_measured": 1.0}
             for line in ("measured", "rows") for p in PROMPTS]  # fmt: skip
    store(results, "action_times", acted)
    for key, said in (("dyspec/table-5", "exact counts of the masks"),
                      ("delayed/equation-11", "whole texts; measured and modelled times")):  # fmt: skip
        papers.show({way: judge(BY_KEY[key], frame(), way) for way in COUNTINGS}, counting)
        assert capsys.readouterr().out.splitlines()[4].startswith(f"  {said}"), key


def test_stored_records_of_earlier_weights_are_of_another_pair(results):
    store(results, "depth_divergence", depths(), weights="others")
    outcome = judge(BY_KEY["delayed/figure-1b"], frame())
    assert outcome.where == ("Embedded pair, earlier weights on A processor, cpu, torch 9.9, 2030-01-02",)
    assert outcome.here.pair == "Embedded pair, earlier weights"
    store(results, "depth_divergence", depths(), device="cuda", created="2030-02-01T00:00:00Z")
    outcome = judge(BY_KEY["delayed/figure-1b"], frame())
    assert outcome.here.pair == "Embedded pair" and outcome.elsewhere == ()


def test_records_without_text_outside_loops_are_left_out_there_and_figures_of_other_lines_stay(results):
    both = [each | {LOOP_FREE + "accepted_of_4": 0.9, "counted": 3, LOOP_FREE + "counted": 2} for each in depths()]
    apart = [{"line": "laws", "sample": p, "depth": d, "l1_distance": 0.1 + d, LOOP_FREE + "l1_distance": 0.2,
              "counted": 3, LOOP_FREE + "counted": 2} for p in PROMPTS for d in range(8)]  # fmt: skip
    lost = [each | {"sample": "lost", "counted": 3} for each in depths(samples=PROMPTS[:1])]
    store(results, "depth_divergence", [*both, *apart, *lost])
    whole, free = (judge(BY_KEY["delayed/figure-1b"], frame(), way) for way in ("whole", "loop_free"))
    assert (whole.runs["SpecTr", 0], free.runs["SpecTr", 0]) == (4, 3)
    assert (whole.units["SpecTr", 0], free.units["SpecTr", 0]) == (3, 2)
    assert free.ours[("SpecTr", 7), "accepted_of_4"].value == pytest.approx(90.0)
    distance = judge(BY_KEY["delayed/figure-1a"], frame(), "loop_free")
    assert distance.run and distance.ours[("Target and draft", 7), "l1_distance"].value == pytest.approx(0.2)


def test_no_claim_of_equation_3_is_between_two_models_and_trees_have_their_true_size(results):
    """Both models multiply the same draft pass: which is above says only which number is."""
    drafting = [
        {"line": line, "sample": p, "nodes": 64, "draft_ms": ms, "forwards": 9.0, "drafted": drafted}
        for line, ms, drafted in (("greedy", 9.0, 64), ("threshold", 5.0, 91), ("threshold model", 4.0, 91))
        for p in PROMPTS
    ]
    store(results, "tree_times", drafting)
    outcome = judge(BY_KEY["dyspec/equation-3"], frame())
    assert [claim_words(each) for each in outcome.judged] == [
        "Threshold, measured below Greedy, measured at 64, drafting per pass, ms"
    ]
    assert outcome.ours[("Threshold, measured", 64), "drafted"].value == 91
    store(results, "tree_times", [{name: each[name] for name in each if name != "drafted"} for each in drafting])
    older = judge(BY_KEY["dyspec/equation-3"], frame())
    assert older.run and {column for _, column in older.ours} == {"draft_ms", "forwards"}


def test_runs_of_a_grid_that_would_hold_one_way_of_counting_are_refused():
    with pytest.raises(ValueError, match="x/y: the runs of a grid hold both ways of counting"):
        PaperResult("x/y", "", "", "a_grid", Protocol(), (), (), holds="whole")


def test_damaged_results_are_one_sentence_and_old_ones_are_not_run(results):
    results.mkdir()
    (results / "mask_order-cpu.json").write_text(json.dumps({"benchmark": "mask_order", "random": {}}))
    assert len(stored_records("mask_order")) == 0 and not judge(BY_KEY["dyspec/table-5"], frame()).run
    store(results, "mask_order", [{"line": "depth", "nodes": 64}])
    whole = (results / "mask_order-cpu.json").read_text()
    good, empty, no_sample = (gzip.compress(text) for text in (b"line,sample", b"", b"line,nodes\ndepth,64\n"))
    tables = (empty, no_sample, b"line,sample", good[:-4], good[:10] + b"\xff" * 8)  # no gzip, cut off, not inflatable
    for text, table in (("{", good), ("[]", good), *((whole, each) for each in tables)):
        (results / "mask_order-cpu.json").write_text(text)
        (results / "mask_order-cpu.csv.gz").write_bytes(table)
        with pytest.raises(ExperimentError, match=r"mask_order-cpu.json is damaged \(.*\): delete it and run"):
            stored_records("mask_order")


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


def test_a_gain_over_what_may_be_nothing_is_a_number():
    found = ratio_gain(np.array([2.0, 4.0, 6.0]), np.array([0.0, 0.0, 3.0]))
    assert found.value == pytest.approx(3.0) and np.isfinite([found.low, found.high]).all()


def test_every_view_and_record_has_what_its_paper_results_ask_for():
    made = {"passes": {"position", "tree_nodes", "accepted_nodes"}, "phases": {"time_share", "label"}}
    for paper_result in PAPER_RESULTS:
        asked = {figure.column for figure in paper_result.figures} | {paper_result.by} - {""}
        assert asked <= made.get(paper_result.view, asked), paper_result.key
    assert replace(BY_KEY["dyspec/figure-2"], stored="x").command == "python -m benchmarks.x --save"

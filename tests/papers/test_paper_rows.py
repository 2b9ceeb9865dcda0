"""Which rows a paper result reads: pairs, texts and machines, the best of a sweep, passes and phases."""

import json
import math

import pandas as pd
import pytest

from benchmarks import papers
from decoding.experiments.estimates import prepared
from decoding.experiments.experiment import GRIDS
from decoding.experiments.grid import read_grid
from decoding.experiments.rows import LOOP_FREE
from decoding.papers.dyspec import LARGE
from decoding.papers.judge import claim_words, grid_name, judge
from decoding.papers.rows import STEP, VIEWS, WIDE, modelled, passes, phases
from decoding.papers.stored import pass_costs
from decoding.trace.metrics import COUNTINGS
from decoding.trace.records import PHASES
from tests.helpers.papers import BY_KEY, DYNATREE, PROMPTS, SPEEDS, frame, of, row, rows


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

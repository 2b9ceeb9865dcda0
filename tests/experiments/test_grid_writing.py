"""A grid that is written is read back as it was, and what it comes to is known before it runs."""

import json
from dataclasses import asdict, replace

import pytest

from decoding.common.errors import DiskError, ExperimentError
from decoding.experiments.crews import OwnCrew
from decoding.experiments.experiment import GRID, GRIDS
from decoding.experiments.grid import Axis, Grid, PromptChoice, grid_from, kept_grid, read_grid, write_grid
from decoding.experiments.plan import grid_size, prompts_of
from decoding.models.pair import embedded_pair
from decoding.sampling.sampling import Sampling

ODD = Grid(
    name='quotes " and \\ and \x7f, naïve 🌳\ttab',
    methods=(
        Axis("dynatree@lean:base_depth=3", {"history": (True, False), "confidence_high": (0.7, 1e-05 + 0.8)}),
        Axis("specinfer", {"widths": ("1,1,3", "2,2")}),
        Axis("hf_generate"),
    ),
    prompts=PromptChoice("/some where/prompts", None, (), (0, 128)),
    samplings=(Sampling(), Sampling(0.6, 0.9, 0.5, 7), Sampling(0.6, 0.9, 0.5, 8)),
    new_tokens=(16, 32),
    reference="",
    repeats=3,
    ignore_end_of_text=False,
    skip_contradictions=True,
    keep="tokens",
    pair={"device": "cpu", "context_length": 1024, "chat": False},
)


@pytest.mark.parametrize("file", sorted(GRIDS.glob("*.toml")), ids=lambda file: file.stem)
def test_every_grid_is_read_back_as_it_was(file, tmp_path):
    grid = read_grid(file)
    assert read_grid(write_grid(grid, tmp_path / "sweep")) == grid


def test_odd_names_and_values_survive(tmp_path):
    assert read_grid(write_grid(ODD, tmp_path)) == ODD
    assert [path.name for path in tmp_path.iterdir()] == ["grid.toml"]


def test_the_grid_of_an_experiment_is_known_again(tmp_path):
    with pytest.raises(ExperimentError, match="holds no grid: start a sweep"):
        kept_grid(tmp_path)
    (tmp_path / GRID).write_text(json.dumps(asdict(ODD)))
    assert kept_grid(tmp_path) == ODD
    for damaged in ("{", "{}", "[]"):
        (tmp_path / GRID).write_text(damaged)
        with pytest.raises(ExperimentError, match="start the sweep anew, no row is lost"):
            kept_grid(tmp_path)
    (tmp_path / GRID).write_text(json.dumps(asdict(replace(ODD, methods=(Axis("fixed_forest"),)))))
    with pytest.raises(ExperimentError, match="There is no method 'fixed_forest'"):
        kept_grid(tmp_path)


def test_a_full_disk_is_one_sentence(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(DiskError, match="cannot be written"):
        write_grid(ODD, tmp_path / "file" / "sweep")


def test_the_size_is_that_of_the_plan(monkeypatch):
    monkeypatch.setattr("decoding.experiments.plan.MOST_TOGETHER", 4)
    monkeypatch.setattr("decoding.experiments.plan.MOST_TOGETHER", 4)
    content = {
        "new_tokens": [8, 16], "repeats": 2, "skip_contradictions": True, "pair": {"device": "cpu"},
        "prompts": {"count": 2, "kinds": ["stories"], "max_tokens": [16, 32]},
        "sampling": [{"temperature": 0.0}, {"temperature": 1.0}],
        "methods": [{"method": "dynatree", "vary": {"base_depth": [3, 6], "max_depth": [4, 6, 8]}}],
    }  # fmt: skip
    grid = grid_from(content, "size")
    size, plan = grid_size(grid), OwnCrew(embedded_pair(), "size").plan(grid, prompts_of(grid.prompts))
    runs = [run for block in plan for run in block.runs]
    assert size.runs == len(runs) and size.prompts == 2 and size.settings == 2 * 4
    assert size.tokens == sum(len(block.runs) * block.conditions.new_tokens for block in plan)
    assert any(said.startswith("dynatree with base_depth=6, max_depth=4") for said in size.left_out)


def test_prompts_are_counted_without_a_network():
    methods = [{"method": "linear"}]
    assert grid_size(grid_from({"methods": methods, "prompts": {"set": "gsm8k", "count": 5}}, "x")).prompts == 5
    unknown = grid_size(grid_from({"methods": methods, "prompts": {"set": "pg-19"}}, "x"))
    assert (unknown.settings, unknown.prompts, unknown.runs, unknown.tokens) == (1, None, None, None)
    with pytest.raises(ExperimentError, match="There is no set of prompts '/nowhere'"):
        grid_size(grid_from({"methods": methods, "prompts": {"set": "/nowhere"}}, "x"))


def test_a_grid_without_sampling_is_refused():
    with pytest.raises(ExperimentError, match="names no sampling: give at least a temperature"):
        grid_from({"methods": [{"method": "linear"}], "sampling": []}, "x")


def test_what_is_unknown_is_never_left_out_as_a_contradiction():
    for entry, said in (
        ({"method": "fixed_forest"}, "There is no method 'fixed_forest'"),
        ({"method": "fixed_tree", "vary": {"depth": [2]}}, "has no setting 'depth'"),
        ({"method": "fixed_tree", "vary": {"max_depth": ["deep"]}}, "max_depth is a whole number, not 'deep'"),
        ({"method": "fixed_tree", "vary": {"verifier": ["none"]}}, "unknown verifier 'none'"),
        ({"method": "fixed_tree", "vary": {"max_depth": [99]}}, "must be a whole number from 1 to 32"),
    ):
        with pytest.raises(ExperimentError, match=said):
            grid_from({"methods": [entry], "skip_contradictions": True}, "x")
    some = grid_from({"methods": [{"method": "fixed_tree", "vary": {"max_depth": [3, 99]}}],
                      "skip_contradictions": True}, "x")  # fmt: skip
    assert grid_size(some).settings == 1 and len(grid_size(some).left_out) == 1

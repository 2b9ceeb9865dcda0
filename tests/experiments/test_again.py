"""A kept run is made again: same prompt, method, settings, sampling and seed, so the same text."""

from pathlib import Path

import pytest

from decoding.common.errors import ExperimentError
from decoding.experiments.executors import LocalExecutor
from decoding.experiments.experiment import (
    Experiment,
    ExperimentWatcher,
    begin_again,
    kept_output,
    prompt_of,
    same_text,
)
from decoding.experiments.grid import grid_from
from decoding.experiments.sweep import run_grid
from decoding.session.session import Limits

CONTENT = {
    "name": "again", "new_tokens": [12], "pair": {"device": "cpu"}, "prompts": {"count": 1, "max_tokens": [10]},
    "sampling": [{"temperature": 1.0, "top_p": 0.9, "seeds": [5]}],
    "methods": [{"method": "fixed_tree:branching=2", "vary": {"max_depth": [2]}}, {"method": "linear@streaming-64"},
                {"method": "hf_generate"}],
}  # fmt: skip


@pytest.fixture(scope="module")
def experiment(pair, tmp_path_factory) -> ExperimentWatcher:
    folder: Path = tmp_path_factory.mktemp("again")
    assert run_grid(grid_from(CONTENT, "again"), LocalExecutor(pair, "again"), folder).state == "finished"
    return ExperimentWatcher(Experiment(folder))


def test_every_run_is_the_same_again(pair, experiment):
    rows = experiment.rows().set_index("line", drop=False)
    lines = [line for line in rows.index if line != "hf_generate"]
    assert len(lines) == 3 and any("@streaming-64" in line for line in lines)
    for line in lines:
        session, prompt = begin_again(pair, rows.loc[line], Limits(12, True))
        list(session)
        first = kept_output(experiment.folder, rows.loc[line, "key"])
        assert tuple(session.tokens[10:]) == first and len(first) == 12, line
        assert prompt.text.startswith(pair.vocabulary.decode(session.prompt_ids))
        assert session.sampling.seed == 5 and session.sampling.top_p == 0.9
    assert session.prompt_ids == tuple(session.tokens[:10])


def test_what_cannot_be_made_again_says_why(pair, experiment, tmp_path):
    rows, limits = experiment.rows().set_index("line", drop=False), Limits(12, True)
    row = rows.iloc[1].to_dict()
    for changed, said in (
        ({"pair": "Pythia"}, "was decoded with Pythia, and Embedded pair is loaded: load that pair first"),
        ({"prompt": "gone"}, "The prompt .*/gone is no longer in samples"),
        ({"prompt_tokens": 11}, "has 10 tokens now and had 11 in the sweep"),
        ({"prompt_set": str(tmp_path / "gone")}, "There is no set of prompts"),
        ({"prompt_set": "gsm8k", "prompt": "00000"}, "is not on this machine and cannot be downloaded"),
    ):
        with pytest.raises(ExperimentError, match=said):
            begin_again(pair, {**row, **changed}, limits)
    with pytest.raises(ExperimentError, match="is an external baseline without trees"):
        begin_again(pair, rows.loc["hf_generate"], limits)


def test_a_prompt_of_a_folder_is_found_by_kind_and_name(tmp_path):
    (tmp_path / "mine").mkdir()
    for name in ("a", "b"):
        (tmp_path / "mine" / f"{name}.txt").write_text(f"Text {name}")
    row = {"prompt_set": str(tmp_path), "kind": "mine", "prompt": "b"}
    assert prompt_of(row).text == "Text b"


def test_the_comparison_is_reported_honestly(experiment):
    assert same_text((1, 2, 3), (1, 2, 3)) == "the same 3 tokens as in the sweep"
    assert same_text((1, 2, 3), (1, 2)) == "the same 2 tokens as in the sweep so far"
    assert same_text((1, 2, 3), (1, 9, 3)) == "differs from the sweep from token 2 on"
    assert same_text((), (1,)) == "the tokens of the sweep were not saved"
    assert kept_output(experiment.folder, "no such run") == ()

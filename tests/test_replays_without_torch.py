"""Replays without torch: what verifiers, forks, re-rolls and searches come to is the same with numpy in its place.

The draft's laws are float32 and torch rounds their sums in its own way, so chances agree to that; whatever is decided,
drawn or written down agrees altogether.
"""

import json

import pytest

from decoding.methods.methods import METHODS
from decoding.models.pair import embedded_pair
from decoding.sampling.sampling import Sampling
from decoding.session.session import DecodeSession, Limits
from decoding.trace.archive import save_run
from decoding.verifiers import VERIFIERS
from tests.helpers import replays
from tests.helpers.without_torch import run_without_torch

RUNS = {
    "iid": (METHODS["iid_paths"], Sampling(1.0, seed=3)),
    "dyspec": (METHODS["dyspec"].with_settings(node_budget=16), Sampling(0.8, top_p=0.9, seed=5)),
    "dynatree": (METHODS["dynatree"], Sampling()),
}
FLOAT32 = 5e-6  # of sums over a vocabulary


@pytest.fixture(scope="module")
def both(tmp_path_factory) -> tuple[dict, dict]:
    """What is told here, and in a Python without torch."""
    folder, pair = tmp_path_factory.mktemp("runs"), embedded_pair()
    prompt = pair.vocabulary.encode("One day a little frog found a boat. He")
    for name, (method, sampling) in RUNS.items():
        session = DecodeSession(pair, method, prompt, sampling, Limits(16, rows="full", ignore_end_of_text=True))
        list(session)
        save_run(session.trace(), folder / f"{name}.dscope")
    files = [str(folder / f"{name}.dscope") for name in RUNS]
    here = {"enumerated": replays.enumerated(), "drafted": replays.drafted(), "torch": False}
    here |= {file: replays.told(file) for file in files}
    return json.loads(json.dumps(here)), json.loads(run_without_torch(folder, "-m", "tests.helpers.replays", *files))


def same(one, other, within: float, place: str = "") -> None:
    """Equal but for the rounding of numbers that are no whole ones."""
    assert type(one) is type(other), (place, one, other)
    if isinstance(one, dict):
        assert one.keys() == other.keys(), place
        for key, value in one.items():
            same(value, other[key], within, f"{place} / {key}")
    elif isinstance(one, list):
        assert len(one) == len(other), (place, one, other)
        for mine, theirs in zip(one, other, strict=True):
            same(mine, theirs, within, place)
    elif isinstance(one, float):
        assert other == pytest.approx(one, rel=within, abs=within), place
    else:
        assert one == other, place


def test_everything_replayed_of_a_file_is_the_same(both):
    here, there = both
    assert there["torch"] is False, "torch was loaded"
    assert here.keys() == there.keys()
    for file in set(here) - {"enumerated", "drafted"}:
        same(here[file], there[file], FLOAT32, file)


def test_enough_was_replayed_to_tell(both):
    """Rows suffice for most forks of a run; what they do not know is told, and nothing asks for torch."""
    _, there = both
    files = [there[file] for file in there if file.endswith(".dscope")]
    forks = [value for file in files for key, value in file.items() if key.startswith("fork: ")]
    made = [value for value in forks if isinstance(value, dict)]
    assert len(made) >= 20
    assert not [value for value in forks if isinstance(value, str) and "needs torch" in value]
    verified = {key.split()[0] for file in files for key in file if key.endswith("as a record")}
    assert verified == set(VERIFIERS)


def test_expectations_are_exact_over_all_draws(both):
    """Laws in float64, all ways to draw taken one by one: without rounding in between all agrees to the last digits."""
    here, there = both
    assert {name.split()[0] for name in there["enumerated"]} == set(VERIFIERS)
    same(here["enumerated"], there["enumerated"], 1e-12)
    for name, numbers in there["enumerated"].items():
        assert numbers[1::4] == pytest.approx(numbers[2::4], abs=1e-12), name


def test_every_method_drafts_the_same_tree(both):
    here, there = both
    assert set(there["drafted"]) == set(METHODS)
    same(here["drafted"], there["drafted"], FLOAT32)
    assert sum(len(tree[0]) for tree in there["drafted"].values()) > 200

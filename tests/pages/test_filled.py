"""The form of a sweep filled from a measurement: its method, prompts, sampling and verifier, ready to start."""

from dataclasses import replace
from pathlib import Path

import pytest
import streamlit as st

from decoding.common.errors import DraftscopeError
from decoding.common.prompts import load_prompts
from decoding.compare.contestants import parse_contestant
from decoding.methods.methods import METHODS
from decoding.sampling.sampling import Sampling
from pages.ui.common.models import manager
from pages.ui.common.state import PromptChoice
from pages.ui.sweep.filled import fill
from pages.ui.sweep.form import OWN
from tests.pages.apptest import open_page, sentences


def filled(monkeypatch, tmp_path: Path, *asked) -> dict:
    """What `fill` writes into the session."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    state: dict = {}
    monkeypatch.setattr(st, "session_state", state)
    monkeypatch.setattr(st, "query_params", {})
    fill(*asked)
    return state


def test_the_form_holds_what_was_measured_and_is_ready_to_start(monkeypatch, tmp_path: Path):
    prompts = [PromptChoice("own text", "My own <b> text"), PromptChoice("stories/frog", "A frog")]
    method = METHODS["dynatree"].with_settings(base_depth=6)
    with monkeypatch.context() as patch:
        state = filled(patch, tmp_path, method, prompts, Sampling(0.8, seed=3), 32)
    assert sorted(each.text for each in load_prompts(Path(state["sweep_plan_folder"]))) == ["A frog", "My own <b> text"]
    assert state["sweep_kind"] == OWN and state["sweep_chosen"] == "new"
    at = open_page("pages/sweep.py")
    for key, value in state.items():
        at.session_state[key] = value
    at.run()
    assert not sentences(at) and not at.button(key="sweep_start").disabled
    (grid,) = (code.value for code in at.code if "[[methods]]" in code.value)
    line = next(line for line in grid.splitlines() if line.startswith("method ="))
    named = parse_contestant(line.partition('"')[2].rpartition('"')[0]).method
    assert named.name == "dynatree" and named.verifier.name == "nss", "the verifier that fits temperature 0.8 decided"
    assert "temperature = 0.8" in grid and "new_tokens = [32]" in grid and "seeds = [3]" in grid
    assert "base_depth = [3, 6, 12]" in grid, "around the value that was measured"


def test_a_text_of_ones_own_is_written_nowhere_else(monkeypatch, tmp_path: Path):
    prompts = [PromptChoice("Own text ‘../../../../outside/text…’", "../../../../outside/text of mine")]
    state = filled(monkeypatch, tmp_path / "cache", METHODS["linear"], prompts, Sampling(), 8)
    (written,) = tmp_path.rglob("*.txt")
    assert written.is_relative_to(state["sweep_plan_folder"]) and ".." not in written.parts


def test_prompts_have_a_folder_of_their_own_that_others_cannot_read(monkeypatch, tmp_path: Path):
    asked = METHODS["linear"], [PromptChoice("a" * 300, "One"), PromptChoice("own text", "Two")], Sampling(), 8
    one = Path(filled(monkeypatch, tmp_path, *asked)["sweep_plan_folder"])
    renamed = [replace(each, name=f"b{number}") for number, each in enumerate(asked[1])]
    other = Path(filled(monkeypatch, tmp_path, asked[0], renamed, *asked[2:])["sweep_plan_folder"])
    assert one != other and [len(list(folder.rglob("*.txt"))) for folder in (one, other)] == [2, 2]
    assert one.parent.stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize(
    ("prompt", "words"),
    [(PromptChoice("own text", "Hello"), "chat template"), (PromptChoice("own text", "Hello\n", True), "white space")],
)
def test_a_prompt_that_a_sweep_would_change_is_refused(monkeypatch, tmp_path: Path, prompt, words):
    monkeypatch.setattr(manager(), "settings", replace(manager().settings, chat=True))
    with pytest.raises(DraftscopeError, match=words):
        filled(monkeypatch, tmp_path, METHODS["linear"], [prompt], Sampling(), 8)
    assert not list(tmp_path.rglob("*.txt"))

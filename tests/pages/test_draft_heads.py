"""Draft heads on the pages: chosen among those that fit, added to a comparison, named in runs, carried by links."""

from urllib.parse import parse_qs

import pytest
import torch

from decoding.compare.contestants import format_contestant, parse_contestant
from decoding.heads.network import HeadConfig, HeadNetwork
from decoding.heads.store import save_head
from decoding.methods.methods import METHODS, method_label
from decoding.models.pair import embedded_pair, pair_identity
from pages.ui.app.links import View, decode, encode
from pages.ui.widgets.contestants import COMPARE
from pages.ui.widgets.trained import presets
from tests.pages.apptest import finish, open_field, open_page, press_start, sentences
from tests.pages.test_links import opened

DRAFT = "The pair's draft model"


@pytest.fixture(scope="module")
def network_and_pair():
    pair = embedded_pair()
    config = HeadConfig.of(pair.target.info.hidden_size, pair.target.info.vocab_size, mlp_size=64)
    return HeadNetwork(config, torch.Generator().manual_seed(0)), pair_identity(pair)


@pytest.fixture
def mine(tmp_path, monkeypatch, network_and_pair):
    """A user's head of the embedded pair, and one of another pair; those that come with the program are away."""
    monkeypatch.setattr("decoding.heads.store.SHIPPED", tmp_path / "none")
    monkeypatch.setenv("DRAFTSCOPE_TRAINING", str(tmp_path))
    network, pair = network_and_pair
    other = {**pair, "name": "Another pair", "target": {**pair["target"], "layers": 3}}
    save_head(tmp_path / "mine" / "head", network, "talf", pair, "2026-11-22T10:00:00", {"held_out_loss": 2.5})
    save_head(tmp_path / "foreign" / "head", network, "talf", other, "2026-11-22T11:00:00", {})


def words(at, key):
    return at.selectbox(key=key).options


def test_without_a_head_that_fits_there_is_nothing_to_choose(tmp_path, monkeypatch):
    monkeypatch.setenv("DRAFTSCOPE_TRAINING", str(tmp_path))
    monkeypatch.setattr("decoding.heads.store.SHIPPED", tmp_path / "none")
    at = open_page("pages/step_through.py")
    assert not [box for box in at.selectbox if box.label == "Draft"] and not sentences(at)


@pytest.mark.slow
def test_a_head_is_chosen_decoded_with_and_named(mine):
    at = open_page("pages/step_through.py")
    at.session_state["method"] = "salf"
    at.session_state["max_new_tokens"] = 6
    at.run()
    key = "method_salf_draft_head"
    assert words(at, key)[0] == DRAFT and "TALF head for Embedded pair, 2026-11-22" in words(at, key)
    assert not any("Another" in word for word in words(at, key))
    at.selectbox(key=key).set_value("mine").run()
    assert at.session_state["method_salf_draft_head"] == "mine"
    at.button(key="start").click().run()
    finish(at, "step")
    assert not sentences(at)
    run = at.session_state["run"].trace
    assert (
        run.pair.draft.architecture == "DraftHead"
        and run.settings["draft_head"] == "mine"
        and run.label == "SALF + TALF head, 2026-11-22 10:00"
    )


@pytest.mark.slow
def test_a_link_carries_the_head(mine):
    link = encode(View(method="salf", settings={"draft_head": "mine"}))
    assert link.query == "method=SALF&draft_head=mine"
    view, said = decode(parse_qs(link.query), ())
    assert view.settings == {"draft_head": "mine"} and not said
    at = opened(link.query)
    assert at.selectbox(key="method_salf_draft_head").value == "mine" and not sentences(at)
    at = opened("method=SALF&draft_head=nobody")
    assert at.selectbox(key="method_salf_draft_head").value == "" and not sentences(at)
    assert not decode(parse_qs("method=SALF&draft_head=%3Cb%3E"), ())[0].settings


@pytest.mark.slow
def test_a_comparison_takes_a_head_along(mine):
    at = open_field(COMPARE, "autoregressive", max_new_tokens=6, compare_add=True)
    at.button(key="compare_add_salf_mine").click().run()
    key = at.session_state["compare_slots"][-1]
    assert at.session_state[key] == "salf" and at.session_state[f"{key}_salf_draft_head"] == "mine"
    press_start(at, "compare")
    assert not sentences(at)
    labels = [c.label for c in at.session_state["comparison"].comparison.contestants]
    assert labels == ["Autoregressive", "SALF + TALF head, 2026-11-22 10:00"]


def test_configurations_of_the_papers_have_one_for_each_head(mine):
    names = list(presets())
    assert names[-1] == "SALF + TALF head, 2026-11-22 10:00" and presets()[names[-1]].draft_head == "mine"


def test_labels_and_lines_of_contestants(mine):
    contestant = parse_contestant("eagle2:node_budget=20,draft_head=mine")
    assert contestant.label == "EAGLE-2 beam + TALF head, 2026-11-22 10:00 · N_max 20"
    assert format_contestant(contestant) == "eagle2:node_budget=20,draft_head=mine"
    assert parse_contestant(format_contestant(contestant)) == contestant
    assert method_label(METHODS["salf"].with_settings(draft_head="mine")) == "SALF + TALF head, 2026-11-22 10:00"
    method = contestant.method.with_settings(draft_head="nobody")
    assert method.label == "EAGLE-2 beam + nobody" and method.with_settings(draft_head="").label == "EAGLE-2 beam"

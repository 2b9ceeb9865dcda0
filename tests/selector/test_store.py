"""Selectors on disk: kept in 6 bits, listed without torch, refused in one sentence where something is wrong."""

import json

import numpy as np
import pytest
import torch

from decoding.common.errors import PairError, SettingsError
from decoding.common.trained_store import rounded
from decoding.compare.contestants import format_contestant, parse_contestant
from decoding.selector.actions import ACTIONS, DISTINCT, STATICS, Action, StaticShape, nearest
from decoding.selector.chooser import NetworkOutputs
from decoding.selector.features import SCALARS_1
from decoding.selector.network import SelectorConfig, SelectorNetwork
from decoding.selector.store import (
    SELECTORS,
    all_selectors,
    find_selector,
    fits,
    load_network,
    require_fit,
    require_verifier,
    save_selector,
)
from tests.helpers.process import printed
from tests.helpers.selectors import LATENCY, content, past, random_network

MODEL = {"name": "m", "parameters": 10, "layers": 2, "vocab_size": 7, "weights": "0.5"}
PAIR = {"name": "My pair", "target": MODEL, "draft": {**MODEL, "name": "d"}}


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("DRAFTSCOPE_TRAINING", str(tmp_path))
    monkeypatch.setattr("decoding.selector.store.SHIPPED", tmp_path / "trained")
    return tmp_path


def keep(folder, verifier="specinfer", **changes):
    network = random_network(6, 4)
    save_selector(folder, network, {**content(PAIR, verifier), **changes})
    return network


def test_what_is_read_is_what_was_stored_in_6_bits(home):
    network = keep(home / "mine" / "selector")
    card = find_selector("mine")
    assert card.words == "Selector for specinfer, My pair, 2030-01-02" and not card.shipped
    assert card.static(0.9, 1.0).action == Action(2, 1, 3) and card.static(0.1, 1.0).action == Action(1, 4, 0)
    assert {getattr(card.statics[0], name) for name in STATICS} == {(2, 1, 3), (4, 4, 8), (2, 0, 4), (4, 0, 8)}
    read = load_network(card)
    for name, weight in rounded(network.state_dict()).items():
        assert torch.equal(read.state_dict()[name], weight), name
    assert not read.training and not any(weight.requires_grad for weight in read.parameters())


def test_the_programs_own_come_first_then_the_latest(home):
    keep(home / "old" / "selector", created="2029-01-01T00:00:00")
    keep(home / "new" / "selector", created="2031-01-01T00:00:00")
    keep(home / "trained" / "specinfer")
    keep(home / "other" / "selector", verifier="nss")
    found = [card for card in all_selectors() if fits(card, PAIR)]
    assert [card.name for card in found if card.verifier == "specinfer"] == ["specinfer", "new", "old"]
    assert found[0].name == "specinfer" and len(found) == 4
    assert not any(fits(card, {**PAIR, "target": {**MODEL, "layers": 3}}) for card in all_selectors())


def test_a_damaged_one_is_left_out_and_reported_when_asked_for(home):
    keep(home / "mine" / "selector")
    card = home / "mine" / "selector" / SELECTORS.card
    for broken in ("{", json.dumps({**json.loads(card.read_text()), "spread": [0.0] * 13}), "[]"):
        whole = card.read_text()
        card.write_text(broken)
        assert all_selectors() == []
        with pytest.raises(PairError, match=r"is damaged \(selector\.json does not describe a selector\)"):
            find_selector("mine")
        card.write_text(whole)
    weights = home / "mine" / "selector" / SELECTORS.weights
    weights.write_bytes(weights.read_bytes()[:50])
    with pytest.raises(PairError, match="damaged"):
        load_network(find_selector("mine"))
    save_selector(home / "mine" / "selector", random_network(5, 4), content(PAIR))
    other = json.loads(card.read_text())
    card.write_text(json.dumps({**other, "config": {**other["config"], "target_size": 6}}))
    with pytest.raises(PairError, match=r"the weights do not match selector\.json"):
        load_network(find_selector("mine"))
    weights.unlink()
    with pytest.raises(PairError, match=r"selector\.safetensors\.xz: No such file"):
        load_network(find_selector("mine"))


def test_what_does_not_fit_is_one_sentence(home):
    keep(home / "mine" / "selector")
    card = find_selector("mine")
    nearly = {**PAIR, "target": {**MODEL, "weights": "0.50002"}}
    assert fits(card, nearly)  # the same weights computed in fewer bits
    for other in ({**MODEL, "weights": "0.6"}, {**MODEL, "weights": "ab12"}, {**MODEL, "vocab_size": 8}):
        with pytest.raises(
            PairError, match="The selector mine was trained for another pair with that name, and My pair"
        ):
            require_fit(card, {**PAIR, "draft": {**other, "name": "d"}})
    with pytest.raises(SettingsError, match="trained for the verifier specinfer, not nss: choose that verifier"):
        require_verifier("mine", "specinfer", "nss")
    with pytest.raises(
        SettingsError, match=r"There is no selector 'yours' for selector: choose one of mine, or leave it empty"
    ):
        find_selector("yours")
    (home / "mine" / "selector" / SELECTORS.card).unlink()
    with pytest.raises(SettingsError, match="leave it empty, or train one"):
        find_selector("mine")


def test_a_card_of_version_1_is_read_as_it_was(home):
    """It read eleven scalars, costs in seconds among them, and gave a logit for each of all 324 actions."""
    config = SelectorConfig(6, 4, width=16, hidden=(32, 8), scalars=len(SCALARS_1), outputs=len(ACTIONS))
    keep(home / "mine" / "selector", mean=[0.0] * 11, spread=[1.0] * 11)
    save_selector(
        home / "mine" / "selector", SelectorNetwork(config), {**content(PAIR), "mean": [0.0] * 11, "spread": [1.0] * 11}
    )
    card = home / "mine" / "selector" / SELECTORS.card
    written = json.loads(card.read_text())
    for name in ("scalars", "rule"):
        del written[name]
    del written["config"]["scalars"], written["config"]["outputs"]
    statics = [{name: value for name, value in static.items() if name != "tokens"} for static in written["statics"]]
    card.write_text(json.dumps({**written, "version": 1, "statics": statics}))
    found = find_selector("mine")
    assert found.scalars == SCALARS_1 and found.rule == "policy" and found.statics[0].tokens == ()
    chooser = found.chooser(NetworkOutputs(load_network(found)), LATENCY, PAIR)
    choice = chooser.choose(past())
    assert choice.action == ACTIONS[int(choice.outputs.argmax())] and choice.scalars[-2] == LATENCY.draft_pass_s(100)
    assert len(choice.trace().worth) == len(ACTIONS)


def test_a_card_of_version_2_called_examples_roots(home):
    """It did not say what it was trained on."""
    keep(home / "mine" / "selector", figures={"roots": 12, "judged_roots": 3})
    assert find_selector("mine").data["text"] == "0" * 64 and find_selector("mine").settings["batch"] == 256
    card = home / "mine" / "selector" / SELECTORS.card
    written = json.loads(card.read_text())
    former = {name: value for name, value in written.items() if name not in ("data", "settings")}
    card.write_text(json.dumps({**former, "version": 2}))
    found = find_selector("mine")
    assert found.figures == {"examples": 12, "judged_examples": 3} and found.data == found.settings == {}
    card.write_text(json.dumps(former))
    with pytest.raises(PairError, match=r"is damaged \(selector\.json does not describe a selector\)"):
        find_selector("mine")


def test_the_best_static_action_follows_the_costs():
    """Two tokens in 2 s, three in 4 s; where drafting is dearer, one token in 1 s is best."""
    tokens, seconds = np.ones(len(DISTINCT)), np.full(len(DISTINCT), 9.0)
    none, quick, deep = (DISTINCT.index(Action(*shape)) for shape in ((1, 0, 0), (1, 0, 3), (4, 8, 8)))
    tokens[quick], tokens[deep] = 2.5, 3.0
    seconds[none], seconds[quick], seconds[deep] = 1.5, 2.0, 4.0
    static = StaticShape.of((0.6, 1.0, 1.0), tokens, seconds)
    assert static.action == Action(1, 0, 3) and static.most_tokens == Action(4, 8, 8)
    assert static.root_action == Action(1, 0, 3) and static.root_most_tokens == Action(1, 0, 3)
    seconds[quick] = 5.0
    assert static.here(seconds).action == Action(4, 8, 8)
    seconds[deep] = 6.0
    assert static.here(seconds).action == Action(1, 0, 0) and StaticShape.from_json(static.as_json()) == static


def test_the_nearest_sampling_is_by_nucleus_then_temperature_then_draft():
    some = [
        StaticShape(t, p, d, *[Action(1, 0, 1)] * 4) for t, p, d in ((1, 1, 1), (0.6, 1, 1), (0.6, 1, 0.6), (1, 0.9, 1))
    ]
    assert nearest(some, 1.0, 0.91, 1.0) is some[3] and nearest(some, 0.5, 1.0, 1.0) is some[1]
    assert nearest(some, 0.5, 1.0, 0.5) is some[2]


def test_a_target_that_holds_copies_fits(home):
    keep(home / "mine" / "selector")
    wide = {**MODEL, "name": "wide", "parameters": 99, "weights": "0.1", "widened_from": {**MODEL, "copies": 4}}
    assert fits(find_selector("mine"), {**PAIR, "target": wide})
    assert not fits(find_selector("mine"), {**PAIR, "target": {**wide, "widened_from": {**MODEL, "layers": 5}}})


def test_listing_needs_no_torch(home):
    keep(home / "mine" / "selector")
    asked = "print(all_selectors()[-1].name, 'torch' in sys.modules)"
    code = f"from decoding.selector.store import all_selectors; import sys; {asked}"
    assert printed(code).split() == ["mine", "False"]


def test_a_contestants_line_names_a_selector():
    line = "delayed:verifier=khisti,selector=mine,truncation=16"
    method = parse_contestant(line).method
    assert method.drafter.selector == "mine" and method.verifier.truncation == 16
    assert parse_contestant(format_contestant(parse_contestant(line))).method == method
    assert "selector mine" in parse_contestant("delayed:selector=mine").label

"""Heads on disk: what is saved comes back, lists tell what fits, and every damage is one sentence."""

import json
import shutil
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
import torch

from decoding.common.errors import DiskError, PairError, SettingsError, TrainingError
from decoding.common.trained_store import rounded
from decoding.costs.measuring import calibration_file
from decoding.heads import store
from decoding.heads.head import make_head, with_draft
from decoding.heads.network import HeadConfig, HeadNetwork
from decoding.heads.store import all_heads, find_head, fits, load_network, read_card, save_head
from decoding.methods.methods import METHODS
from decoding.models.pair import embedded_pair, pair_identity
from decoding.session.session import DecodeSession, Limits
from tests.helpers.heads import random_network


@pytest.fixture
def home(tmp_path, monkeypatch):
    """No shipped heads, and an empty folder of trainings."""
    monkeypatch.setenv("DRAFTSCOPE_TRAINING", str(tmp_path / "trainings"))
    monkeypatch.setattr(store, "SHIPPED", tmp_path / "shipped")
    return tmp_path


PACKED: dict[int, TemporaryDirectory] = {}


def save(pair, folder, loss="talf", created="2026-11-22T10:00:00", seed=0, **figures):
    """A stored head; packing its weights takes half a second, so that of a seed is copied."""
    if seed not in PACKED:
        PACKED[seed] = TemporaryDirectory(prefix="draftscope-tests-")
        save_head(Path(PACKED[seed].name), random_network(pair, seed), loss, pair_identity(pair), created, figures)
    shutil.copytree(PACKED[seed].name, folder, copy_function=shutil.copyfile, dirs_exist_ok=True)
    edited(folder, loss=loss, created=created, figures=figures)
    return folder


def edited(folder, **changes):
    file = folder / store.HEADS.card
    file.write_text(json.dumps({**json.loads(file.read_text()), **changes}))


def test_a_head_comes_back_as_its_weights_in_6_bits(pair, home):
    save(pair, home / "trainings" / "mine" / "head", loss_talf=1.25)
    card = find_head("mine")
    assert (card.loss, card.figures, card.shipped) == ("talf", {"loss_talf": 1.25}, False)
    assert card.label == "TALF head, 2026-11-22 10:00" and card.words == "TALF head for Embedded pair, 2026-11-22"
    save(pair, home / "trainings" / "narrow" / "head", top_k=2)
    assert find_head("narrow").words == "TALF (top-2) head for Embedded pair, 2026-11-22"
    network, wanted = load_network(card), rounded(random_network(pair).state_dict())
    assert HeadConfig(**card.config) == network.config
    assert all(torch.equal(weight, wanted[name]) for name, weight in network.state_dict().items())
    size = sum(file.stat().st_size for file in card.folder.iterdir())
    assert size < 0.77 * sum(weight.numel() for weight in network.parameters()) + 4096, "6 bits per weight"


def test_lists_have_the_programs_heads_first_and_then_the_latest(pair, home):
    save(pair, home / "shipped" / "talf")
    save(pair, home / "shipped" / "narrow", top_k=2)
    save(pair, home / "shipped" / "eagle", "eagle")
    for name, day in (("first", "01"), ("second", "09")):
        save(pair, home / "trainings" / name / "head", "hass", f"2026-12-{day}T00:00:00")
    save(pair, home / "trainings" / "talf" / "head", "eagle")  # the name is taken
    save(pair, home / "trainings" / "bad name, with=signs" / "head")
    assert [card.name for card in all_heads()] == ["talf", "narrow", "eagle", "second", "first"]
    assert find_head("talf").shipped and find_head("talf").label == "TALF head"
    identity = pair_identity(pair)
    assert all(fits(card, identity) for card in all_heads())
    other = {**identity, "target": {**identity["target"], "weights": "0.5"}}
    assert not any(fits(card, other) for card in all_heads())
    assert all(fits(card, {**identity, "draft": {}}) for card in all_heads())


def test_a_target_in_fewer_bits_is_the_same_target(pair, home):
    card = read_card(save(pair, home / "shipped" / "talf"), "talf")
    identity = pair_identity(pair)
    weights = float(identity["target"]["weights"])
    for factor, same in ((1.0002, True), (0.9998, True), (1.01, False)):
        near = {**identity, "target": {**identity["target"], "weights": f"{weights * factor:.5g}", "name": "renamed"}}
        assert fits(card, near) == same


@pytest.mark.slow
def test_a_head_drafts_and_what_is_measured_is_kept_by_draft(pair, home):
    save(pair, home / "shipped" / "talf")
    save(pair, home / "trainings" / "mine" / "head", seed=1)
    heads = [with_draft(pair, name) for name in ("talf", "mine")]
    assert heads[0].info.draft.name == "TALF head" and heads[0].info.draft.architecture == "DraftHead"
    assert heads[0].info.target == pair.info.target and heads[0].target is pair.target
    assert with_draft(pair, "talf").head.engine is heads[0].head.engine, "weights are read once"
    assert with_draft(heads[0], "").info == pair.info and with_draft(heads[0], "").head is None
    assert len({calibration_file(each, "odds") for each in (pair, *heads)}) == 3
    static = heads[0].with_engine("cuda_graph")
    assert static.head.target.engine.name == "cuda_graph" and static.info.draft == heads[0].info.draft
    before = heads[1].head.engine
    save(pair, home / "trainings" / "mine" / "head", seed=2)
    assert with_draft(pair, "mine").head.engine is not before, "trained again, read again"
    assert len([folder for folder, *_ in pair.target.heads if folder.is_relative_to(home)]) == 2


def test_names_that_are_not_there(pair, home):
    method = METHODS["salf"].with_settings(draft_head="tafl")
    with pytest.raises(SettingsError, match="no draft head 'tafl' for draft_head: leave it empty, or train"):
        DecodeSession(pair, method, [1, 2, 3], limits=Limits(4))
    save(pair, home / "shipped" / "talf")
    with pytest.raises(SettingsError, match="choose one of talf, or leave it empty"):
        DecodeSession(pair, method, [1, 2, 3], limits=Limits(4))
    with pytest.raises(SettingsError, match=r"There is no draft head '\.\./talf'"):
        with_draft(pair, "../talf")


def test_a_head_over_the_most_frequent_tokens_alone(pair, home):
    folder = save(pair, home / "shipped" / "talf")
    with pytest.raises(SettingsError, match="talf was stored without its most frequent tokens: write talf alone"):
        find_head("talf@2")
    edited(folder, frequent="7 3 9")
    for wrong in ("talf@4", "talf@0", "talf@", "talf@two"):
        with pytest.raises(SettingsError, match=f"{wrong} must have a number of tokens from 1 to 3 behind the @"):
            find_head(wrong)
    card, (whole, narrow) = find_head("talf@2"), (with_draft(pair, name) for name in ("talf", "talf@2"))
    assert (card.name, card.tokens, card.label) == ("talf@2", 2, "TALF head over 2 tokens")
    assert pair_identity(whole)["draft"] != pair_identity(narrow)["draft"], "what is measured is of one of them"
    features = torch.randn(5, pair.target.info.hidden_size, generator=torch.Generator().manual_seed(0))
    with torch.inference_mode():
        every, few = whole.head.logits(features), narrow.head.logits(features)
    assert few.shape == every.shape and torch.allclose(few[:, [3, 7]], every[:, [3, 7]], atol=1e-4)
    assert int(few.isfinite().sum()) == 10, "all others have probability 0"
    method = METHODS["salf"].with_settings(draft_head="talf@2")
    run = list(DecodeSession(pair, method, [1, 2, 3], limits=Limits(6)))
    assert {node.token_id for each in run for node in each.nodes[1:]} == {3, 7}


def test_heads_of_other_targets_are_refused(pair, home):
    folder = save(pair, home / "shipped" / "talf")
    identity = pair_identity(pair)
    edited(folder, pair={**identity, "target": {**identity["target"], "name": "pythia", "layers": 12}})
    with pytest.raises(PairError, match="talf was trained for pythia, and embedded-target is loaded: load its pair"):
        with_draft(pair, "talf")
    edited(folder, pair={**identity, "target": {**identity["target"], "weights": "1.0"}})
    with pytest.raises(PairError, match="was trained for another target with that name, and embedded-target is loaded"):
        with_draft(pair, "talf")
    small = HeadNetwork(HeadConfig.of(32, 10), torch.Generator().manual_seed(0))
    with pytest.raises(PairError, match="hidden vectors of 32 and 10 tokens, and embedded-target has 320 and 4096"):
        make_head(pair.target, small, "small", "Small head")


@pytest.mark.parametrize(
    "changes",
    [
        {"version": 2},
        {"loss": "mse"},
        {"loss": ["talf"]},
        {"created": 5},
        {"pair": {}},
        {"pair": "Embedded pair"},
        {"config": []},
        {"frequent": "3 3"},
        {"frequent": "3 4096"},
        {"frequent": "3 x"},
        {"figures": {"loss": "low"}},
        {"config": {"hidden_size": 2**40, "vocab_size": 4096, "num_heads": 4, "mlp_size": 640}},
        {"config": {"hidden_size": 320.0, "vocab_size": 4096, "num_heads": 4, "mlp_size": 640}},
    ],
)
def test_a_damaged_card_is_one_sentence_and_no_list_stumbles_over_it(pair, home, changes):
    save(pair, home / "shipped" / "eagle", "eagle")
    edited(save(pair, home / "shipped" / "talf"), **changes)
    with pytest.raises(PairError, match=r"talf is damaged \(head.json does not describe a draft head\): train"):
        with_draft(pair, "talf")
    assert [card.name for card in all_heads()] == ["eagle"]


def test_damaged_weights_are_one_sentence(pair, home):
    folder = save(pair, home / "shipped" / "talf")
    card, weights = read_card(folder, "talf"), folder / store.HEADS.weights
    whole = weights.read_bytes()
    config = {**card.config, "mlp_size": 8}
    for content, words in (
        (whole[:-9], "is damaged"),
        (b"not a safetensors file", "is damaged"),
        (whole + b"\x00" * (1 << 23), r"has 9,[0-9,]+ bytes, and its network needs at most 5,"),
    ):
        weights.write_bytes(content)
        with pytest.raises(PairError, match=words):
            load_network(card)
    weights.write_bytes(whole)
    for wrong in (config, {**config, "depth": 3}, {"hidden_size": 320}):
        with pytest.raises(PairError, match=r"the weights do not match head\.json"):
            load_network(replace(card, config=wrong))
    weights.unlink()
    with pytest.raises(PairError, match=r"head.safetensors.xz: No such file"):
        with_draft(pair, "talf")
    (folder / store.HEADS.card).write_text("[" * 100_000)
    with pytest.raises(PairError, match="does not describe"):
        read_card(folder, "talf")


@pytest.mark.slow
def test_what_cannot_be_kept_leaves_the_head_before(pair, home):
    folder = save(pair, home / "shipped" / "talf")
    before = {file.name: file.read_bytes() for file in folder.iterdir()}
    broken = random_network(pair)
    with torch.no_grad():
        broken.fc.weight[0, 0] = torch.nan
    with pytest.raises(TrainingError, match="are nan or too large"):
        save_head(folder, broken, "talf", pair_identity(pair), "2026-11-23", {})
    with pytest.raises(ValueError, match="Out of range float"):
        save_head(folder, random_network(pair), "talf", pair_identity(pair), "2026-11-23", {"loss": float("inf")})
    blocked = home / "file"
    blocked.write_text("")
    with pytest.raises(DiskError, match="cannot be written"):
        save_head(blocked / "head", random_network(pair), "talf", pair_identity(pair), "2026-11-23", {})
    assert {file.name: file.read_bytes() for file in folder.iterdir()} == before


@pytest.mark.slow
def test_a_target_without_features_is_reported_before_anything_is_decoded(pair, home, monkeypatch):
    save(pair, home / "shipped" / "talf")
    bare = embedded_pair().with_engine("transformers")
    monkeypatch.setattr(type(bare.target.network), "get_output_embeddings", lambda self: torch.nn.Identity())
    monkeypatch.setattr(store, "require_fit", lambda card, identity: None)
    monkeypatch.setattr("decoding.heads.head.require_fit", lambda card, identity: None)
    monkeypatch.setattr("decoding.models.pair.fetch_weight", lambda layer: torch.zeros(1, 1))
    with pytest.raises(PairError, match="embedded-target gives no hidden states before its output head"):
        DecodeSession(bare, METHODS["salf"].with_settings(draft_head="talf"), [1, 2, 3], limits=Limits(4))

"""The embedded pair packed and unpacked: the values of 6 bits, once, and a sentence where a file is missing."""

import json
import lzma

import pytest
import torch
from safetensors.torch import load_file

from decoding.common.errors import PairError, TrainingError
from decoding.common.trained_store import rounded
from decoding.models import embedded, presets
from decoding.models.embedded import PACKED, ROLES, SHARED, WEIGHTS, embedded_folder, pack_pair, packed_parameters
from decoding.models.pair import load_pair
from decoding.models.presets import EMBEDDED, PairSettings, model_folder, model_shape
from decoding.training.pair_networks import NetworkShape, new_network, save_network

SHAPES = {"target": NetworkShape(32, 2, 2, context=300), "draft": NetworkShape(16, 1, 2, context=300)}


@pytest.fixture
def trained(tmp_path):
    """A pair as it was trained."""
    for seed, (role, shape) in enumerate(SHAPES.items()):
        save_network(new_network(shape, 4096, seed), model_folder(EMBEDDED, "target"), tmp_path / "trained" / role)
    return tmp_path / "trained"


@pytest.fixture
def packed(trained, tmp_path, monkeypatch):
    """It in the place of the one that comes with the program."""
    out = tmp_path / "packed"
    assert embedded.main([str(trained), "--out", str(out)]) == 0
    monkeypatch.setattr(embedded, "EMBEDDED_FOLDER", out)
    monkeypatch.setattr(presets, "EMBEDDED_FOLDER", out)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(embedded, "user_folder", lambda content: tmp_path / "cache" / content)
    embedded.packed_digest.cache_clear()
    yield out
    embedded.packed_digest.cache_clear()


def test_a_packed_pair_is_loaded_by_its_name(trained, packed):
    counts = {role: sum(weight.numel() for weight in load_file(trained / role / WEIGHTS).values()) for role in ROLES}
    assert model_shape(EMBEDDED, "target").max_context == 300
    assert {role: model_shape(EMBEDDED, role).parameters for role in ROLES} == counts
    assert not list(packed.parent.glob("cache/*")), "a shape is known without unpacking"
    pair = load_pair(PairSettings(device="cpu"))
    assert pair.context == 300 and pair.info.name == "Embedded pair"
    for role in ROLES:
        expected = rounded(load_file(trained / role / WEIGHTS))
        found = getattr(pair, role).network.state_dict()
        assert all(torch.equal(found[name], weight) for name, weight in expected.items())
        assert (packed / role / PACKED).stat().st_size < (trained / role / WEIGHTS).stat().st_size / 2
    assert {file.name for file in packed.iterdir()} == {*ROLES, *SHARED}, "one tokenizer for both"


def test_it_is_unpacked_once(packed):
    folder = embedded_folder("draft")
    stamp = (folder / WEIGHTS).stat().st_mtime_ns
    assert embedded_folder("draft") == folder and (folder / WEIGHTS).stat().st_mtime_ns == stamp
    assert [each.name for each in folder.parent.iterdir()] == [folder.name], "nothing else is left there"
    config = json.loads((packed / "draft" / "config.json").read_text())
    (packed / "draft" / "config.json").write_text(json.dumps(config | {"layer_norm_eps": 1e-6}))
    embedded.packed_digest.cache_clear()
    assert embedded_folder("draft") != folder, "another version of the program has another pair"


def test_what_is_missing_or_damaged_is_said(packed, trained, tmp_path):
    for content in (b"nothing", lzma.compress(b"nothing")):
        (packed / "target" / PACKED).write_bytes(content)
        for read in (embedded_folder, packed_parameters):
            with pytest.raises(PairError, match="is damaged"):
                read("target")
    (packed / SHARED[0]).unlink()
    embedded.packed_digest.cache_clear()
    with pytest.raises(PairError, match=r"The embedded pair is damaged \(.*tokenizer.json: No such file"):
        embedded_folder("draft")
    (trained / "draft" / SHARED[0]).write_text("{}")
    with pytest.raises(TrainingError, match="different tokenizers: train the draft again"):
        pack_pair(trained, tmp_path / "out")
    (trained / "draft" / SHARED[0]).unlink()
    with pytest.raises(TrainingError, match="give a folder with target and draft"):
        pack_pair(trained, tmp_path / "out")

"""Weights in 6 bits: what comes back, and files that are refused."""

import lzma

import pytest
import torch

from decoding.common.errors import PairError, TrainingError
from decoding.common.trained_store import load_packed, pack, packed_bytes, rounded, unpack


def state() -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    matrix = torch.randn(6, 40, generator=generator) * torch.tensor([[1e-3], [1.0], [50.0], [0.0], [1e-9], [1.0]])
    matrix[5] = -3.0
    return {
        "a.weight": matrix,
        "cube": torch.randn(2, 3, 4, generator=generator),
        "norm": torch.randn(40),
        "n": torch.tensor(2.5),
    }


def test_every_row_comes_back_to_half_a_step(tmp_path):
    before = state()
    (tmp_path / "w").write_bytes(packed_bytes(before))
    after = load_packed(tmp_path / "w", 1 << 20)
    assert set(after) == set(before) and all(after[name].shape == before[name].shape for name in before)
    assert torch.equal(after["norm"], before["norm"]) and after["n"] == 2.5
    for name in ("a.weight", "cube"):
        one, other = before[name].flatten(1), after[name].flatten(1)
        step = one.abs().amax(1, keepdim=True) / 31
        small = step < 1e-7  # too small for float16: the row becomes 0
        assert torch.where(small, 0.0, (one - other).abs() - 0.52 * step - 1e-3 * one.abs()).max() <= 0
        assert not other[small[:, 0]].any()
    assert pack(before)["a.weight"].dtype == torch.int8 and pack(before)["a.weight.scale"].dtype == torch.float16
    assert len(packed_bytes({"w": torch.randn(300, 300)})) < 300 * 300 * 0.75, "less than 6 bits each"


def test_a_row_is_whole_numbers_and_a_scale():
    packed = pack({"w": torch.tensor([[31.0, -31.0, 0.0, 1.2, -2.0], [0.5, 0.2, 0.0, 0.0, 0.0]])})
    assert packed["w"].tolist() == [[31, -31, 0, 1, -2], [31, 12, 0, 0, 0]]
    assert packed["w.scale"].tolist() == [1.0, 33 / 2048], "0.5 / 31 in 6 bits"
    assert unpack(packed)["w"][0].tolist() == [31.0, -31.0, 0.0, 1.0, -2.0]


def test_packing_what_was_packed_changes_nothing_more():
    once = rounded(state())
    twice = rounded(once)
    assert all(torch.equal(once[name], twice[name]) for name in once)


def test_float16_holds_the_matrices_of_a_packed_model():
    weights = rounded({"w": torch.randn(512, 64) * torch.logspace(-5, 2, 512)[:, None]})["w"]
    assert torch.equal(weights.half().float(), weights) and weights.any(1).sum() > 500


@pytest.mark.parametrize("wrong", [torch.nan, torch.inf, 1e9])
def test_weights_that_are_no_numbers_are_refused(wrong):
    with pytest.raises(TrainingError, match="The weights w are nan or too large"):
        pack({"w": torch.tensor([[1.0, wrong]])})


def test_damaged_files_are_one_sentence(tmp_path):
    file = tmp_path / "w.safetensors"
    file.write_bytes(packed_bytes(state())[:-7])
    with pytest.raises(PairError, match="is damaged"):
        load_packed(file, 1 << 20)
    for content in (b"", b"\x00" * 40, b"hello", lzma.compress(b"hello")):
        file.write_bytes(content)
        with pytest.raises(PairError, match="is damaged"):
            load_packed(file, 1 << 20)
    file.write_bytes(lzma.compress(bytes(1_000_000)))
    with pytest.raises(PairError, match=r"is damaged \(it is too large"):
        load_packed(file, 500_000)
    packed = pack(state())
    with pytest.raises(PairError, match="no scale for each row"):
        unpack({**packed, "a.weight.scale": packed["a.weight.scale"][:3]})
    with pytest.raises(PairError, match="no scale for each row"):
        unpack({"w": torch.ones(2, 2)})

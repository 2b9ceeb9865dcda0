"""The embedded pair widened: the same function in another shape, no padded id emitted, folders that load as usual."""

import json
import shutil
from collections import namedtuple
from dataclasses import replace

import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM

from decoding.common.errors import PairError, SettingsError
from decoding.common.prompts import load_prompts
from decoding.compare.hf_generate import run_baseline
from decoding.engines.packed import Float16Linear
from decoding.heads.head import with_draft
from decoding.methods.methods import METHODS
from decoding.models import widening
from decoding.models.pair import PairSettings, embedded_pair, load_pair, pair_identity, release
from decoding.models.presets import DTYPE_BYTES, MODEL_SHAPES, memory_estimate, model_shape
from decoding.models.widening import (
    EMBEDDING,
    LIKES,
    NORM_GAIN,
    PADDED_LOGIT,
    PYTHIA_2_8B,
    PYTHIA_70M,
    PYTHIA_160M,
    WIDENED_FROM,
    Widening,
    WideShape,
    load_narrow,
    shares,
    widened_pair_folders,
    widened_target,
)
from decoding.session.session import DecodeSession, Limits
from decoding.widen import main

REAL_IDS = 4096
ROLES = ("target", "draft")
PUBLISHED = {"target": "EleutherAI/pythia-2.8b", "draft": "EleutherAI/pythia-70m"}


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    out = tmp_path_factory.mktemp("widened")
    yield widened_pair_folders("tiny", out, "float32", report=lambda line: None)
    shutil.rmtree(out)


@pytest.fixture
def out(tmp_path):
    """A folder to write to, deleted at once: pytest keeps its folders, and these are large."""
    yield tmp_path / "out"
    shutil.rmtree(tmp_path / "out", ignore_errors=True)


def load(folders, dtype="float32"):
    return load_pair(PairSettings(str(folders.target), str(folders.draft), device="cpu", dtype=dtype))


@pytest.fixture(scope="module")
def wide(folders):
    return load(folders)


@pytest.fixture(scope="module")
def prompts(embedded):
    """Token ids of one prompt of each kind."""
    by_kind = {prompt.kind: prompt.text for prompt in load_prompts()}
    return [embedded.vocabulary.encode(text) for text in by_kind.values()]


@torch.inference_mode()
def logits(pair, role, ids):
    return getattr(pair, role).network(input_ids=torch.tensor([ids])).logits[0].float()


def parameters(widening):
    return sum(shape.numel() for shape in widening.shapes.values())


@pytest.mark.parametrize("role", ROLES)
def test_shapes_are_exactly_the_published_ones(role):
    widening = Widening(load_narrow(role), LIKES["pythia-2.8b"][role], "bfloat16")
    published, config = MODEL_SHAPES[PUBLISHED[role]], widening.config
    assert parameters(widening) == published.parameters
    assert config["num_hidden_layers"] == published.layers and config["num_attention_heads"] == published.kv_heads
    assert config["hidden_size"] == published.kv_heads * published.head_dim
    assert config["vocab_size"] == published.vocab_size
    assert config["hidden_act"] == "gelu" and config["use_parallel_residual"] and not config["tie_word_embeddings"]
    assert config["rope_parameters"]["partial_rotary_factor"] == 0.25 and config["attention_bias"]


def test_every_pair_on_offer_fits_and_published_counts_hold():
    counts = {}
    for pair in LIKES.values():
        for role, shape in pair.items():
            counts[shape.name] = parameters(Widening(load_narrow(role), shape, "bfloat16"))
    assert counts["pythia-160m"] == 162_322_944 and counts["pythia-410m"] == 405_334_016


@pytest.mark.slow
@pytest.mark.parametrize("role", ROLES)
def test_real_logits_are_those_of_the_embedded_pair(embedded, wide, prompts, role):
    for ids in prompts:
        expected, found = logits(embedded, role, ids), logits(wide, role, ids)
        assert torch.allclose(found[:, :REAL_IDS], expected, rtol=0, atol=1e-4)
        assert torch.equal(found.argmax(-1), expected.argmax(-1))


@pytest.mark.slow
@pytest.mark.parametrize(("dtype", "tolerance"), [("float32", 1e-3), ("bfloat16", 0.25), ("float16", 0.1)])
def test_padded_logits_are_the_same_constant_everywhere(folders, prompts, dtype, tolerance):
    pair = load(folders, dtype)
    for role in ROLES:
        for ids in prompts if dtype == "float32" else [each[:32] for each in prompts[:3]]:
            found = logits(pair, role, ids)
            assert (found[:, REAL_IDS:] - PADDED_LOGIT).abs().max() <= tolerance
            assert found[:, :REAL_IDS].max(-1).values.min() > PADDED_LOGIT + 60


@pytest.mark.slow
def test_sixteen_bits_round_no_more_than_in_the_embedded_pair(embedded, folders, prompts):
    narrow, wide, texts = embedded_pair(dtype="bfloat16"), load(folders, "bfloat16"), [ids[:48] for ids in prompts[:4]]

    def errors(pair, role):
        found = [logits(pair, role, ids)[:, :REAL_IDS] - logits(embedded, role, ids) for ids in texts]
        return torch.cat(found).abs().mean()

    for role in ROLES:
        assert errors(wide, role) < 1.2 * errors(narrow, role)


@pytest.mark.slow
@pytest.mark.parametrize("baseline", ("hf_generate", "hf_assisted"))
def test_generate_writes_the_same_text(embedded, wide, prompts, baseline):
    for ids in prompts[:4]:
        expected = run_baseline(embedded, baseline, ids, 24).output_ids
        assert run_baseline(wide, baseline, ids, 24).output_ids == expected


@pytest.mark.slow
def test_sampled_generate_emits_no_padded_id(folders):
    """From the folder as it is, outside the program, at a temperature that makes text of noise."""
    network = AutoModelForCausalLM.from_pretrained(folders.target, dtype=torch.bfloat16)
    torch.manual_seed(0)
    ids = torch.zeros(16, 1, dtype=torch.long)
    output = network.generate(ids, do_sample=True, temperature=2.0, top_k=0, max_new_tokens=24, eos_token_id=None)
    assert len(output.unique()) > 100 and output.max() < REAL_IDS


@pytest.mark.slow
def test_a_tree_accepts_what_it_does_on_the_embedded_pair(embedded, wide, prompts):
    accepted = []
    for ids in prompts[:4]:
        sessions = [DecodeSession(pair, METHODS["dynatree"], ids, limits=Limits(24)) for pair in (embedded, wide)]
        iterations = [[(i.accepted, i.drafted, i.final_kind) for i in session] for session in sessions]
        assert sessions[0].tokens == sessions[1].tokens and iterations[0] == iterations[1]
        accepted += [len(nodes) for nodes, _, _ in iterations[0]]
    assert sum(accepted) > 15, "nothing was accepted: the test tests nothing"


@pytest.mark.slow
def test_it_is_called_widened_wherever_it_is_shown(wide, folders):
    assert wide.info.name == "widened-tiny-target + widened-tiny-draft"
    assert [wide.target.info.name, wide.draft.info.name] == ["widened-tiny-target", "widened-tiny-draft"]
    for role, model in zip(ROLES, (wide.target, wide.draft), strict=True):
        origin = getattr(model.network.config, WIDENED_FROM)
        assert origin["model"] == f"embedded {role}" and origin["vocab_size"] == REAL_IDS
        assert model.info.parameters == model_shape(str(getattr(folders, role)), role).parameters


@pytest.mark.slow
def test_layers_are_real_or_cost_what_real_ones_cost(folders):
    weights = load_file(folders.target / "model-00001-of-00001.safetensors")
    for name, weight in weights.items():
        layer = widening.LAYER.fullmatch(name)
        extra = layer is not None and int(layer[2]) >= 8
        silent = extra and (layer[3].startswith("attention.dense") or layer[3].startswith("mlp.dense_4h_to_h"))
        assert bool(weight.any()) != (silent or name.endswith(("query_key_value.bias", "attention.dense.bias"))), name
    # As an input a padded id is a real token: a check that feeds one sees text, not a row of zeros.
    embedding = weights["gpt_neox.embed_in.weight"]
    assert torch.equal(embedding[REAL_IDS:], embedding[: len(embedding) - REAL_IDS])


@pytest.mark.slow
@pytest.mark.parametrize("dtype", DTYPE_BYTES)
def test_shards_hold_every_weight_once_in_the_dtype(out, monkeypatch, dtype):
    monkeypatch.setattr(widening, "MAX_SHARD_BYTES", 4_000_000)
    lines = []
    found = widened_pair_folders("tiny", out, dtype, report=lines.append)
    made = Widening(load_narrow("draft"), LIKES["tiny"]["draft"], dtype)
    files = sorted(found.draft.glob("*.safetensors"))
    shards = [load_file(file) for file in files]
    index = json.loads((found.draft / "model.safetensors.index.json").read_text())
    assert len(shards) > 2 and sum(map(len, shards)) == len(made.shapes)
    for file, shard in zip(files, shards, strict=True):
        size = sum(weight.nbytes for weight in shard.values())
        assert size <= 4_000_000 or len(shard) == 1
        for name, weight in shard.items():
            assert index["weight_map"][name] == file.name and weight.shape == made.shapes[name]
            assert weight.dtype == getattr(torch, dtype) and torch.equal(weight, made.tensor(name))
    of_draft = [line for line in lines if line.startswith("widened-tiny-draft")]
    assert len(of_draft) == len(files) and of_draft[-1].endswith(f"file {len(files)} of {len(files)}")
    assert load(found, dtype).target.info.dtype == dtype


def test_shards_of_the_large_pair_stay_small():
    widening = Widening(load_narrow("target"), PYTHIA_2_8B, "float32")
    shards = widening.shards()
    assert [name for shard in shards for name in shard] == list(widening.shapes)
    assert max(map(widening.weight_bytes, shards)) < 2_000_000_000
    assert widening.weight_bytes() == 4 * MODEL_SHAPES["EleutherAI/pythia-2.8b"].parameters


@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float32"])
@pytest.mark.parametrize("like", [PYTHIA_70M, PYTHIA_160M], ids=lambda shape: shape.name)
def test_weights_of_a_large_draft_are_the_embedded_ones_unrounded(like, dtype):
    """Any number of copies divides without rounding: their sum over an input is the embedded weight in the dtype."""
    narrow = load_narrow("draft")
    widening = Widening(narrow, like, dtype)
    for name in ("gpt_neox.layers.0.attention.query_key_value.weight", "gpt_neox.layers.0.mlp.dense_4h_to_h.weight"):
        weight = narrow.weights[name].to(getattr(torch, dtype))
        rows, columns = weight.shape
        tiles = widening.tensor(name).double().view(widening.copies, rows, widening.copies, columns)
        for tile in tiles:
            assert torch.equal(tile.sum(1), weight.double())


def test_shares_of_copies_are_powers_of_two_that_sum_to_one():
    assert shares(1) == [1.0] and shares(4) == [0.25] * 4
    assert shares(3) == [0.5, 0.25, 0.25] and shares(6) == [0.25, 0.25, 0.125, 0.125, 0.125, 0.125]
    assert all(sum(shares(count)) == 1 and len(shares(count)) == count for count in range(1, 40))


@pytest.mark.parametrize("copies", (2, 3, 4))
def test_float16_holds_every_product_of_a_wider_target(copies):
    """So that each of its passes reads half the bytes of float32."""
    wide = widened_target(copies, "float32")
    products = [name for name, shape in wide.shapes.items() if len(shape) == 2 and name != EMBEDDING]
    assert len(products) == 33 and all(Float16Linear.fits(wide.tensor(name)) for name in products)


@pytest.mark.slow
def test_what_is_already_there_is_kept(folders):
    before = (folders.target / "config.json").stat().st_mtime_ns
    lines = []
    assert widened_pair_folders("tiny", folders.target.parent, "float32", report=lines.append) == folders
    assert lines == [] and (folders.target / "config.json").stat().st_mtime_ns == before
    with pytest.raises(PairError, match="contains something else or is incomplete: delete it"):
        widened_pair_folders("tiny", folders.target.parent, "bfloat16")


def test_a_folder_that_is_not_empty_is_left_alone(tmp_path):
    (tmp_path / "widened-tiny-draft").mkdir()
    (tmp_path / "widened-tiny-draft" / "notes.txt").write_text("mine")
    with pytest.raises(PairError, match=r"widened-tiny-draft contains something else"):
        widened_pair_folders("tiny", tmp_path)
    assert [path.name for path in tmp_path.rglob("*") if path.is_file()] == ["notes.txt"]


def test_a_half_written_folder_is_refused(tmp_path, monkeypatch):
    def full(tensors, file, metadata):
        file.write_bytes(b"half")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(widening, "save_file", full)
    with pytest.raises(PairError, match=r"could not be written \(No space left on device\): choose another folder"):
        widened_pair_folders("tiny", tmp_path)
    monkeypatch.undo()
    with pytest.raises(PairError, match="is incomplete"):
        widened_pair_folders("tiny", tmp_path)


def test_a_full_disk_is_noticed_before_anything_is_written(tmp_path, monkeypatch):
    usage = namedtuple("usage", "total used free")
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage(10**10, 10**10 - 10**8, 10**8))
    with pytest.raises(PairError, match=r"needs 0\.3 GB and the disk of .* has 0\.1 GB free: free some space"):
        widened_pair_folders("tiny", tmp_path / "deep" / "er", "float32")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("like", ["pythia-1.4b", ""])
def test_an_unknown_shape_is_named(tmp_path, like):
    with pytest.raises(SettingsError, match=r"There is no shape .* choose one of pythia-2\.8b, "):
        widened_pair_folders(like, tmp_path)


def test_an_unknown_dtype_is_named(tmp_path):
    with pytest.raises(SettingsError, match="dtype is 'int8'; choose one of"):
        widened_pair_folders("tiny", tmp_path, "int8")


@pytest.mark.parametrize(
    "shape",
    [
        WideShape("pythia-1.4b", 2048, 24, 16, 8192, 50_304),
        WideShape("pythia-12b", 5120, 36, 40, 20_480, 50_688),  # 16 times as wide, but with other heads
        replace(PYTHIA_2_8B, layers=6),
        replace(PYTHIA_2_8B, vocab_size=4000),
        WideShape("padded only", 320, 8, 4, 1280, 4608),  # one copy has nothing to cancel with
    ],
    ids=lambda shape: f"{shape.name} {shape.layers} {shape.vocab_size}",
)
def test_a_shape_that_does_not_fit_is_refused(shape):
    with pytest.raises(SettingsError, match="cannot be made of copies of the embedded target"):
        Widening(load_narrow("target"), shape, "float32")


@pytest.mark.parametrize("gain", [0.0, 1e-4, -1e-4])
def test_a_gain_near_zero_is_refused(gain):
    narrow = load_narrow("draft")
    narrow.weights[NORM_GAIN][3] = gain
    with pytest.raises(PairError, match="gain of the embedded draft is too close to zero"):
        Widening(narrow, LIKES["tiny"]["draft"], "float32").tensor("lm_head.weight")


@pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has a GPU")
def test_a_device_that_is_not_there_is_named(tmp_path):
    with pytest.raises(PairError, match="no CUDA GPU"):
        widened_pair_folders("tiny", tmp_path, device="cuda")


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_widened_on_a_gpu_the_weights_are_the_same(out):
    on_cpu = widened_pair_folders("tiny", out / "cpu")
    on_gpu = widened_pair_folders("tiny", out / "cuda", device="cuda")
    for ours, theirs in zip(on_cpu, on_gpu, strict=True):
        weights = load_file(theirs / "model-00001-of-00001.safetensors")
        for name, weight in load_file(ours / "model-00001-of-00001.safetensors").items():
            # Equal but for the padded output rows: their constant comes from a sum, which devices round differently.
            assert torch.allclose(weights[name], weight, rtol=2**-7 if name == "lm_head.weight" else 0, atol=0), name


def test_the_command_says_what_it_wrote(out, capsys):
    assert main(["--like", "tiny", "--out", str(out)]) == 0
    printed = capsys.readouterr().out
    assert "widened-tiny-target: 0.11 of 0.11 GB written" in printed
    assert f"widened: --target {out}/widened-tiny-target --draft {out}/widened-tiny-draft" in printed


def test_the_command_says_in_one_sentence_what_is_wrong(tmp_path, capsys):
    (tmp_path / "file").write_text("a file")
    for like, out, says in (("huge", tmp_path, "no shape 'huge'"), ("tiny", tmp_path / "file", "could not be written")):
        assert main(["--like", like, "--out", str(out)]) == 2
        printed = capsys.readouterr().err
        assert says in printed and printed.startswith("error: ") and printed.count("\n") == 1


@pytest.mark.slow
@pytest.mark.parametrize("copies", (2, 3, 4))
def test_a_wider_embedded_target_is_made_in_memory_and_says_what_it_is(embedded, prompts, copies):
    settings = PairSettings(device="cpu", dtype="float32", widen=copies)
    wide = load_pair(settings)
    try:
        assert wide.info.name == f"Embedded pair, target {copies}× as wide"
        assert wide.target.info.name == f"embedded-target-{copies}x" and wide.draft.info.name == "embedded-draft"
        assert wide.target.info.parameters == model_shape("embedded", "target", copies).parameters
        assert memory_estimate(settings) > memory_estimate(PairSettings(device="cpu", dtype="float32"))
        for ids in prompts if copies == 2 else prompts[:2]:
            expected, found = logits(embedded, "target", ids), logits(wide, "target", ids)
            assert torch.allclose(found, expected, rtol=0, atol=1e-4)
        assert pair_identity(wide) != pair_identity(embedded)
        texts = [
            list(DecodeSession(pair, METHODS["dynatree"], prompts[0], limits=Limits(24)))[-1].prefix_length
            for pair in (embedded, wide)
        ]
        assert texts[0] == texts[1]
    finally:
        release(wide)


@pytest.mark.slow
def test_a_draft_head_reads_one_copy_of_a_widened_target(embedded, wide, prompts):
    """It stays as it is and drafts the same trees; a target with padded ids, whose copies differ, has no such head."""
    method = METHODS["salf"].with_settings(draft_head="talf", node_budget=10)
    broad = load_pair(PairSettings(device="cpu", dtype="float32", widen=2))
    runs = []
    for pair in (embedded, broad):
        session = DecodeSession(pair, method, prompts[0], None, Limits(max_new_tokens=24))
        list(session)
        runs.append(session)
    narrow, widened = (session.pair.head for session in runs)
    assert widened.info == replace(narrow.info, context=widened.info.context)
    assert widened.target.info.hidden_size == 2 * narrow.target.info.hidden_size
    for one, other in zip(*(session.trace().iterations for session in runs), strict=True):
        assert [(n.parent_id, n.token_id, n.verdict) for n in one.nodes] == [
            (n.parent_id, n.token_id, n.verdict) for n in other.nodes
        ]
        drafted = [[n.draft_probability for n in each.nodes[1:]] for each in (one, other)]
        assert drafted[0] == pytest.approx(drafted[1], abs=1e-4)
    with pytest.raises(PairError, match="was trained for"):
        with_draft(wide, "talf")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"widen": 5}, "widen is 5; choose one of 1, 2, 3, 4"),
        ({"widen": 2, "target": "EleutherAI/pythia-1.4b"}, "widen is for the embedded target as a whole"),
        ({"widen": 2, "max_memory_gib": 1.0}, "widen is for the embedded target as a whole"),
    ],
)
def test_only_the_embedded_target_is_widened(changes, message):
    with pytest.raises(SettingsError, match=message):
        PairSettings(**changes)

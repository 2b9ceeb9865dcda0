"""Targets held mostly off their device: every method gives the same text, memory comes back, what fails is said."""

import json
import os
import sys

import pytest
import torch
from accelerate.hooks import attach_align_device_hook
from accelerate.utils import OffloadedWeightsLoader
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM

from benchmarks import offload as benchmark
from benchmarks.fakes import make_pair
from decoding.common.errors import OutOfMemoryError, PairError, SettingsError
from decoding.compare.hf_generate import run_baseline
from decoding.compare.identity import MarginJudge
from decoding.engines.attention import GROUPED_SDPA
from decoding.methods.method import CACHE_POLICIES
from decoding.methods.methods import METHODS
from decoding.models import loading
from decoding.models.loading import drop_offloaded, fetch_weight, is_offloaded, placement
from decoding.models.pair import PairSettings, embedded_pair, load_pair, pair_identity, release
from decoding.session.session import DecodeSession, Limits

MOSTLY_OFF_GIB = 0.0104  # room for the embedding beside one layer of the embedded target
NEW_TOKENS = 6
PROMPT = "Once upon a time there was a cat who had two friends, a dog and"


@pytest.fixture(scope="module")
def offloaded(tmp_path_factory):
    """The embedded pair, all layers of the target on disk; calibrations go to a folder of the test."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
        yield load_pair(PairSettings(device="cpu", max_memory_gib=MOSTLY_OFF_GIB))


@pytest.fixture(scope="module")
def reference(offloaded):
    """What the pair says greedily with all weights in memory."""
    ids = offloaded.vocabulary.encode(PROMPT)
    return run_baseline(embedded_pair(), "hf_generate", ids, NEW_TOKENS).output_ids


@pytest.fixture(scope="module")
def grouped(tmp_path_factory):
    """Folders of a tiny pair with grouped-query attention and a head of its own."""
    return make_pair(tmp_path_factory.mktemp("qwen2"), "qwen2")


def output(pair, method):
    """New tokens, and how many drafted ones each iteration accepted."""
    ids = pair.vocabulary.encode(PROMPT)
    session = DecodeSession(pair, method, ids, limits=Limits(max_new_tokens=NEW_TOKENS))
    accepted = [len(iteration.accepted) for iteration in session]
    return tuple(session.tokens[len(ids) :]), accepted


def tiny_settings(folders, **changes):
    target, draft = map(str, folders)
    return PairSettings(target, draft, device="cpu", context_length=256, **changes)


@pytest.mark.slow
def test_most_of_the_target_is_off_the_device(offloaded):
    target = offloaded.target
    assert target.info.device == "cpu+disk" and target.info.engine == "transformers" and target.device.type == "cpu"
    assert target.info.weight_bytes == embedded_pair().target.info.weight_bytes
    assert 0.8 < benchmark.bytes_off_device(offloaded) / target.info.weight_bytes < 1
    assert is_offloaded(target.network) and not is_offloaded(offloaded.draft.network)


@pytest.mark.slow
def test_trees_and_generate_agree_with_weights_in_memory(offloaded, reference):
    text, accepted = output(offloaded, METHODS["dynatree"].with_settings(branch_first_level=True))
    assert text == reference and sum(accepted) > 0
    ids = offloaded.vocabulary.encode(PROMPT)
    for baseline in ("hf_generate", "hf_assisted"):
        assert run_baseline(offloaded, baseline, ids, NEW_TOKENS).output_ids == reference


@pytest.mark.slow
@pytest.mark.parametrize("name", METHODS)
def test_every_method_gives_the_text_of_autoregressive_decoding(offloaded, reference, name):
    policies = CACHE_POLICIES if METHODS[name].drafter.drafts else CACHE_POLICIES[:1]
    for policy in policies:
        assert output(offloaded, METHODS[name].with_settings(cache_policy=policy))[0] == reference


@pytest.mark.slow
def test_grouped_attention_and_a_head_on_disk(grouped):
    whole, part = (load_pair(tiny_settings(grouped, max_memory_gib=limit)) for limit in (None, 0.0021))
    assert part.target.info.attention == GROUPED_SDPA
    head, in_memory = (pair.target.network.get_output_embeddings() for pair in (part, whole))
    assert head.weight.is_meta and torch.equal(fetch_weight(head), fetch_weight(in_memory))
    for name in ("autoregressive", "linear", "dynatree"):
        assert output(part, METHODS[name]) == output(whole, METHODS[name])


@pytest.mark.slow
def test_calibration_and_margins_reach_weights_on_disk(grouped, monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    whole, part = (load_pair(tiny_settings(grouped, max_memory_gib=limit)) for limit in (None, 0.0021))
    assert pair_identity(part) == pair_identity(whole)
    ids = part.vocabulary.encode(PROMPT)
    judges = [MarginJudge(pair.target) for pair in (part, whole)]
    assert [judge.exact for judge in judges] == [False, True]
    assert judges[0].margin(ids) == pytest.approx(judges[1].margin(ids), abs=1e-4)


def test_a_limit_above_the_weights_keeps_all_on_the_device(grouped):
    pair = load_pair(tiny_settings(grouped, max_memory_gib=1.0))
    assert not is_offloaded(pair.target.network) and pair.target.info.device == "cpu"


@pytest.mark.slow
def test_memory_need_not_hold_a_target_that_stays_on_disk(monkeypatch):
    monkeypatch.setattr(loading, "free_bytes", lambda _: 20_000_000)  # the draft takes 11, the target 45
    with pytest.raises(OutOfMemoryError, match="embedded-target needs"):
        embedded_pair()
    assert is_offloaded(load_pair(PairSettings(device="cpu", max_memory_gib=MOSTLY_OFF_GIB)).target.network)


def test_too_little_memory_for_any_layer_is_refused(grouped):
    with pytest.raises(PairError, match=r"cpu has no room for any layer of .* raise max_memory_gib"):
        load_pair(tiny_settings(grouped, max_memory_gib=0.0001))


@pytest.mark.parametrize(
    ("changes", "part"),
    [({"max_memory_gib": 0.0}, "give the GiB"), ({"max_memory_gib": 1.0, "device": "mps"}, "device cuda or cpu")],
)
def test_settings_out_of_range(changes, part):
    with pytest.raises(SettingsError, match=part):
        PairSettings(**changes)


def test_placement_on_gpus():
    gib = 2**30
    assert placement(None, "cuda", 1, 4 * gib) == {"device_map": "auto"}
    limits = placement(0.5, "cuda", 2, 10 * gib)["max_memory"]
    assert limits == {0: gib // 2, 1: gib // 2, "cpu": 9 * gib}
    assert placement(0.5, "cpu", 1, 10 * gib)["max_memory"] == {"cpu": gib // 2}


@pytest.mark.slow
def test_release_of_an_offloaded_pair(grouped):
    pair = load_pair(tiny_settings(grouped, max_memory_gib=0.0021))
    network = pair.target.network
    output(pair, METHODS["linear"])  # passes leave weights behind that only inference may replace
    release(pair)
    assert pair.target.released and not any(w.numel() for w in network.parameters() if not w.is_meta)


def test_weights_that_wait_in_memory_are_freed(grouped):
    network = AutoModelForCausalLM.from_pretrained(grouped[0]).eval()
    ids = torch.arange(8)[None]
    with torch.inference_mode():
        expected = network(ids).logits
        kept = OffloadedWeightsLoader(state_dict=network.state_dict())  # as from_pretrained does beside a GPU
        attach_align_device_hook(network, execution_device="cpu", offload=True, weights_map=kept)
        assert is_offloaded(network) and torch.equal(network(ids).logits, expected)
    assert len(kept.state_dict) == len(load_file(grouped[0] / "model.safetensors"))
    drop_offloaded(network)
    assert not kept.state_dict


@pytest.mark.slow
def test_the_benchmark_reads_the_weights_in_every_pass(offloaded, monkeypatch):
    forgotten = []
    monkeypatch.setattr(os, "posix_fadvise", lambda *args: forgotten.append(args), raising=False)
    monkeypatch.setattr(os, "POSIX_FADV_DONTNEED", 4, raising=False)
    hooks = offloaded.target.network._forward_pre_hooks
    assert benchmark.forget_files(offloaded)
    try:
        _, accepted = output(offloaded, METHODS["linear"])
    finally:
        hooks.popitem()
    assert len(forgotten) == 1 + len(accepted)  # one file, for the prompt's pass and each iteration's


@pytest.mark.slow
def test_the_benchmark_writes_what_it_measured(monkeypatch, tmp_path, capsys):
    path = tmp_path / "offload.json"
    arguments = ["--quick", "--max-new-tokens", "16", "--methods", "dynatree:branch_first_level=true"]
    monkeypatch.setattr(sys, "argv", ["offload", *arguments, "--device", "cpu", "--json", str(path)])
    assert benchmark.main() == 0
    printed, written = capsys.readouterr().out, json.loads(path.read_text())
    assert "all outputs are identical" in printed and "from disk for every pass" in printed
    ours, tree = written["figures"]
    assert ours["contestant"] == "autoregressive" and ours["tokens_per_pass"]["median"] == 1.0
    assert tree["tokens_per_pass"]["median"] > 1 and tree["speed_up"]["median"] > 0
    reached = tree["speed_up"]["median"] / tree["tokens_per_pass"]["median"]
    assert tree["share_reached"]["low"] <= reached <= tree["share_reached"]["high"] or tree["count"] > 1


def test_goals_are_judged_both_ways():
    def figures(share):
        return {"label": "x", "count": 3, "share_reached": {"median": share}, "speed_up": {"median": 3 * share},
                "tokens_per_pass": {"median": 3.0}}  # fmt: skip

    lines = benchmark.goals([figures(1.0), figures(0.9), figures(0.8), {"label": "y", "count": 0}])
    assert ["MISSED" in line for line in lines] == [False, True]

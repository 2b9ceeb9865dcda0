"""The acceptance doctor: each check finds the fault that a pair was given, and no other; sound pairs have none."""

import json
import os
import shutil
import socket
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM, AutoTokenizer

from benchmarks.fakes import intervention_json, make_pair
from decoding.analysis import pair_readings, pair_weights
from decoding.analysis.doctor import CHECKS, Examined, examine, findings
from decoding.analysis.pair_files import Finding, ModelFiles, local_name, read_files
from decoding.analysis.pair_readings import Asked, Reading
from decoding.common.errors import PromptError
from decoding.common.prompts import Prompt, load_prompts
from decoding.doctor import chosen_prompts, finding_lines, main
from decoding.models.embedded import embedded_folder
from decoding.models.pair import embedded_pair
from decoding.models.presets import EMBEDDED, PairSettings
from decoding.sampling.sampling import Sampling
from decoding.widen import main as widen
from tests.helpers.families import family

WEIGHTS, CONFIG, TOKENIZER = "model.safetensors", "config.json", "tokenizer.json"
SAMPLES = {prompt.title: prompt for prompt in load_prompts()}
PROMPTS = chosen_prompts(None)[:4]
ARCHITECTURES = ("gpt_neox", "llama", "qwen2", "smollm2", "gpt2", "gemma3", "phi3")
Change = Callable[[Path, Path], object]


def settings(target: Path | str = EMBEDDED, draft: Path | str = EMBEDDED, **more) -> PairSettings:
    """A pair on the CPU whose context is short, so that its checks are quick."""
    return PairSettings(str(target), str(draft), device="cpu", **{"context_length": 256, **more})


def by_check(found: tuple[Finding, ...]) -> dict[str, Finding]:
    """Findings by their check, each of which is well formed."""
    assert tuple(each.check for each in found) == CHECKS
    for each in found:
        assert each.evidence
        assert bool(each.mend) == (each.verdict == "fault")
        assert not each.mend or (each.mend[0].isupper() and each.mend.endswith("."))
    return {each.check: each for each in found}


def faults(found: tuple[Finding, ...]) -> list[str]:
    """The checks that found a fault."""
    return [check for check, each in by_check(found).items() if each.verdict == "fault"]


@pytest.fixture(scope="module")
def made(tmp_path_factory) -> tuple[Path, Path]:
    """A small sound pair with a chat template, a start token and a tied output head."""
    return make_pair(tmp_path_factory.mktemp("doctor"), "llama")


@pytest.fixture
def copies(made, tmp_path) -> tuple[Path, Path]:
    """A copy of it to damage."""
    return shutil.copytree(made[0], tmp_path / "target"), shutil.copytree(made[1], tmp_path / "draft")


# ---- No false alarms.


@pytest.mark.slow
@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_a_sound_made_pair_has_no_fault(architecture, tmp_path):
    found = examine(settings(*make_pair(tmp_path, architecture)), PROMPTS)
    assert {each.check: each.evidence for each in found if each.verdict != "sound"} == {}


@pytest.mark.slow
@pytest.mark.parametrize("sampling", [Sampling(), Sampling(0.8), Sampling(1.0)], ids=str)
def test_the_embedded_pair_has_no_fault(sampling):
    found = examine(settings(), PROMPTS, sampling)
    assert {each.check: each.evidence for each in found if each.verdict != "sound"} == {}


@pytest.mark.slow
def test_the_embedded_target_made_wider_has_no_fault():
    found = by_check(examine(settings(widen=2), PROMPTS[:2], new_tokens=32))
    assert {each.verdict for each in found.values()} == {"sound"}
    assert "names of the tensors of target were not compared" in found["weights"].evidence


@pytest.mark.slow
def test_a_wide_pair_on_disk_has_no_fault(tmp_path):
    """Its added layers are zeros on purpose, and its vocabulary is padded."""
    widen(["--like", "tiny", "--out", str(tmp_path)])
    folders = tmp_path / "widened-tiny-target", tmp_path / "widened-tiny-draft"
    assert faults(examine(settings(*folders), PROMPTS)) == []
    assert faults(examine(settings(folders[0], EMBEDDED), PROMPTS)) == []  # padded in the target only


@pytest.mark.slow
def test_no_sample_prompt_is_unlike_the_embedded_drafts_training_text():
    assert faults(examine(settings(), list(SAMPLES.values()), new_tokens=16)) == []


# ---- One fault each.


def edit(folder: Path, file: str, change: Callable[[dict], object]) -> None:
    """A JSON file after a change of its object."""
    content = json.loads((folder / file).read_text(encoding="utf-8"))
    change(content)
    (folder / file).write_text(json.dumps(content), encoding="utf-8")


def edit_weights(folder: Path, change: Callable[[dict[str, torch.Tensor]], object]) -> None:
    """The weights of a folder after a change of their dictionary."""
    state = load_file(folder / WEIGHTS)
    change(state)
    save_file({name: weight.contiguous() for name, weight in state.items()}, folder / WEIGHTS, {"format": "pt"})


def swap(content: dict) -> None:
    """Two ids of a tokenizer change places."""
    vocab = content["model"]["vocab"]
    first, second = list(vocab)[1000:1002]
    vocab[first], vocab[second] = vocab[second], vocab[first]


def resized(folder: Path, rows: int) -> None:
    """Another number of rows in the embedding, new ones like the others but never trained."""

    def change(state: dict[str, torch.Tensor]) -> None:
        held = state[EMBEDDING]
        new = torch.randn((max(0, rows - len(held)), held.shape[1]), generator=torch.Generator().manual_seed(0))
        state[EMBEDDING] = torch.cat([held[:rows], new * held.std()])

    edit_weights(folder, change)
    intervention_json(folder / CONFIG, {"vocab_size": rows})


def padded(_target: Path, draft: Path) -> None:
    """Seven ids more than the target has."""
    resized(draft, json.loads((draft / CONFIG).read_text(encoding="utf-8"))["vocab_size"] + 7)


def without_start(_target: Path, draft: Path) -> None:
    """The draft's tokenizer puts no start token before a text."""
    edit(draft, TOKENIZER, lambda content: content.update(post_processor=None))


EMBEDDING, HEAD = "model.embed_tokens.weight", "lm_head.weight"
NORM, BIAS = "model.norm.weight", "model.layers.0.self_attn.q_proj.bias"
FAULTS: dict[str, tuple[str, Change, str]] = {
    "no template": (
        "chat template",
        lambda _, draft: (draft / "chat_template.jinja").unlink(),
        "the target has a template and the draft has none; prompts are given as plain text",
    ),
    "another template": (
        "chat template",
        lambda _, draft: (draft / "chat_template.jinja").write_text("{{ messages[0]['content'] }}"),
        "other texts for the same conversation",
    ),
    "ids swapped": (
        "tokenizers",
        lambda _, draft: edit(draft, TOKENIZER, swap),
        "2 of 4,100 tokens have another id and 0 are in one tokenizer only: ",
    ),
    "no start token": ("tokenizers", without_start, "4 of 4 prompts are cut into other tokens"),
    "padded": ("vocabulary size", padded, "the logits of the draft are cut to the target's size; 7 padded ids"),
    "too few ids": (
        "vocabulary size",
        lambda _, draft: resized(draft, 4000),
        "4,000 in the draft, 4,100 in the tokenizer: 100 tokens have no logit in the draft",
    ),
    "short context": (
        "context",
        lambda _, draft: intervention_json(draft / CONFIG, {"max_position_embeddings": 32}),
        "the draft was trained on 32; the likeliest tokens agree at ",
    ),
    "norm of zeros": (
        "weights",
        lambda _, draft: edit_weights(draft, lambda state: state[NORM].zero_()),
        "model.norm of the draft gives the same whatever it is given",
    ),
    "matrix of one value": (
        "weights",
        lambda target, _: edit_weights(target, lambda state: state["model.layers.1.mlp.up_proj.weight"].fill_(0.5)),
        "model.layers.1.mlp.up_proj.weight of the target is 0.5 everywhere",
    ),
    "tensor missing": (
        "weights",
        lambda _, draft: edit_weights(draft, lambda state: state.pop(NORM)),
        f"the files of the draft lack {NORM}",
    ),
    "tensor too many": (
        "weights",
        lambda _, draft: edit_weights(draft, lambda state: state.update({BIAS: torch.ones(64)})),
        f"the files of the draft hold {BIAS}, for which its configuration has no place",
    ),
    "head not tied": (
        "weights",
        lambda _, draft: edit_weights(draft, lambda state: state.update({HEAD: 2 * state[EMBEDDING]})),
        "ties the output head to the embedding and the files hold two different ones",
    ),
    "layers left out": (
        "quantised or truncated",
        lambda target, _: intervention_json(target / CONFIG, {"num_hidden_layers": 1}),
        "the configuration of the target has 1 layers and its files have 1 more",
    ),
    "quantised": (
        "quantised or truncated",
        lambda target, _: intervention_json(target / CONFIG, {"quantization_config": {"quant_method": "gptq"}}),
        "quantised by gptq",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", family(FAULTS, "padded"))
def test_a_fault_in_the_files_is_found_and_no_other(name, copies):
    check, change, evidence = FAULTS[name]
    change(*copies)
    found = by_check(examine(settings(*copies), PROMPTS))
    assert faults(tuple(found.values())) == [check]
    assert evidence in found[check].evidence


def test_what_a_refused_pair_leaves_unchecked_is_said(copies):
    edit(copies[1], TOKENIZER, swap)
    found = by_check(examine(settings(*copies), PROMPTS))
    unchecked = [check for check, each in found.items() if each.verdict == "not checked"]
    assert unchecked == ["loading", "weights", "dtype", "temperature", "text", "loops"]
    assert "refused for what tokenizers says" in found["loading"].evidence
    assert "have different tokenizers: token " in found["loading"].evidence
    assert found["context"].verdict == found["chat template"].verdict == "sound"


@pytest.mark.slow
def test_figures_of_a_model_with_a_dead_norm_are_not_judged(copies):
    edit_weights(copies[1], lambda state: state[NORM].zero_())
    found = by_check(examine(settings(*copies), PROMPTS))
    for check in ("temperature", "text", "loops"):
        assert found[check].evidence == "the models are not as they were trained: see weights"


@pytest.mark.slow
def test_templates_that_give_the_same_text_are_no_fault(copies):
    file = copies[1] / "chat_template.jinja"
    file.write_text("{# the same #}" + file.read_text(encoding="utf-8"), encoding="utf-8")
    found = by_check(examine(settings(*copies, chat=True), PROMPTS))
    assert faults(tuple(found.values())) == []
    assert "differ, and give the same text" in found["chat template"].evidence


def test_chat_without_a_template():
    found = by_check(examine(settings(chat=True), PROMPTS[:1]))
    assert faults(tuple(found.values())) == ["chat template"]
    assert found["loading"].verdict == "not checked"


@pytest.mark.slow
def test_learned_positions_end_where_they_end(tmp_path):
    folders = make_pair(tmp_path, "gpt2", n_positions=64)
    found = by_check(examine(settings(*folders), PROMPTS))
    assert faults(tuple(found.values())) == ["context"]
    assert "not measured, because no text that the models can be given is that long" in found["context"].evidence


@pytest.mark.slow
def test_half_precision_on_a_cpu(made):
    found = by_check(examine(settings(*made, dtype="float16"), PROMPTS))
    assert faults(tuple(found.values())) == ["dtype"]
    assert "compute in float16 on cpu; it changes the likeliest token at 0." in found["dtype"].evidence


@pytest.mark.slow
def test_a_draft_drawn_at_another_temperature():
    sampling = Sampling(0.2)
    found = by_check(examine(settings(), PROMPTS, sampling))
    assert faults(tuple(found.values())) == ["temperature"]
    assert found["temperature"].mend == "Set the draft temperature to 0.2 as well."
    assert faults(examine(settings(), PROMPTS, replace(sampling, draft_temperature=0.2))) == []


@pytest.mark.slow
def test_text_that_only_the_target_can_foresee(tmp_path):
    """A list of rare words, over and over: eight layers copy what the draft's first layer alone cannot."""
    whole = embedded_pair().draft.network
    config = whole.config.from_dict(whole.config.to_dict() | {"num_hidden_layers": 1})
    first = AutoModelForCausalLM.from_config(config)
    first.load_state_dict({name: each for name, each in whole.state_dict().items() if ".layers.1." not in name})
    first.save_pretrained(tmp_path)
    AutoTokenizer.from_pretrained(embedded_folder("draft")).save_pretrained(tmp_path)
    words = "Zed plox 8841 quaint fjord mangle 77 brisk tundra oak velvet 19 zinc harp. "
    found = by_check(examine(settings(draft=tmp_path), [Prompt("list", "words", (4 * words).strip())]))
    assert faults(tuple(found.values())) == ["text"]
    assert "1 of 1 prompts are more than 2 nats harder for the draft" in found["text"].evidence


@pytest.mark.slow
def test_loops_that_flatter():
    prompts = [SAMPLES["editing/add_currency"], SAMPLES["mathematics/fish_tanks"]]
    found = by_check(examine(settings(), prompts))
    assert faults(tuple(found.values())) == ["loops"]
    assert "2 of 2 greedy texts fall into a loop" in found["loops"].evidence


@pytest.mark.slow
def test_too_little_text_is_not_judged():
    found = by_check(examine(settings(), [Prompt("short", "one", "Once upon a time")], new_tokens=8))
    assert {check for check, each in found.items() if each.verdict == "not checked"} == {"temperature", "text", "loops"}
    assert found["loops"].evidence == "the target wrote 8 tokens, and 50 are needed: give more prompts"


# ---- What cannot be loaded at all; nothing is fetched.


def test_a_pair_that_the_loader_refuses_says_the_loaders_sentence(made, tmp_path):
    target, _ = make_pair(tmp_path, "bloom")
    found = by_check(examine(settings(target, made[1]), PROMPTS))
    assert found["loading"].verdict == "fault"
    assert "uses ALiBi positions" in found["loading"].evidence
    assert found["tokenizers"].verdict == "fault"  # of another family, by its special tokens
    assert found["quantised or truncated"].verdict == "sound"


def test_files_that_are_there_are_checked_where_others_are_not(copies):
    (copies[1] / WEIGHTS).unlink()
    found = by_check(examine(settings(*copies), PROMPTS))
    assert faults(tuple(found.values())) == ["loading"]
    assert "has no weights; download model.safetensors into it" in found["loading"].evidence
    assert {check for check, each in found.items() if each.verdict == "sound"} == {
        "chat template", "tokenizers", "vocabulary size", "context",
    }  # fmt: skip


def test_nothing_waits_for_a_pipe(copies):
    (copies[1] / "tokenizer_config.json").unlink()
    os.mkfifo(copies[1] / "tokenizer_config.json")
    found = by_check(examine(settings(*copies), PROMPTS))
    assert faults(tuple(found.values())) == ["loading"]
    assert found["tokenizers"].evidence == "a tokenizer cannot be read"


def test_no_request_leaves_the_machine(monkeypatch, made):
    def refuse(*_):
        raise AssertionError("a connection was opened")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr(socket, "create_connection", refuse)
    found = by_check(examine(settings("some-owner/no-such-model", made[1]), PROMPTS))
    assert faults(tuple(found.values())) == ["loading"]
    assert found["loading"].evidence.startswith("some-owner/no-such-model is not on this machine")
    assert faults(examine(settings(*made), PROMPTS[:1])) == []


def test_a_path_that_is_not_there_is_the_loaders_to_refuse(tmp_path):
    place = str(tmp_path / "nothing")
    assert local_name(place, "draft") == place
    assert "There is no folder" in read_files(settings(draft=place), "draft").refusal


# ---- Checks by themselves, where a pair with the fault would be large or slow to make.


def reading(tokens: int = 128, **changes) -> Reading:
    """A prompt of 20 tokens and a continuation on which both models agree."""
    ids, behind = tuple(range(20 + tokens)), np.full(tokens, 0.5)
    nats, best = np.full(19, 2.0), np.arange(19 + tokens)
    return replace(Reading("a/b", ids, 20, nats, nats, best, best, behind, behind, 0.0, 0.0, 0.0), **changes)


def test_padding_that_was_trained_away_is_sound(made):
    target, draft = (read_files(settings(*made), role) for role in ("target", "draft"))
    wide = replace(draft, config={**draft.config, "vocab_size": 4608})
    assert pair_readings.vocabulary_size(target, wide, None).verdict == "not checked"
    found = pair_readings.vocabulary_size(target, wide, [reading(draft_padding=1e-9)])
    assert found.verdict == "sound"
    assert "508 padded ids of the draft have a probability of 1e-09" in found.evidence
    assert pair_readings.vocabulary_size(target, wide, [reading(draft_padding=0.1)]).verdict == "fault"


@pytest.mark.slow
def test_logits_that_overflow(embedded):
    asked = Asked((), 8, Sampling(), 4096)
    found = pair_readings.dtype(embedded, asked, [reading(not_finite=0.25)])
    assert found.verdict == "fault"
    assert "up to 0.25 of the logits of a prompt are nan or infinite" in found.evidence


def test_what_a_template_adds_must_be_more_than_chance():
    base = Finding("sound", "both have the same template")
    far = np.full(147, -1)
    plain = [reading(target_best=far), reading(target_best=far)]
    assert pair_readings.template_gain(plain, [reading(), reading()], base).verdict == "fault"
    assert pair_readings.template_gain(plain[:1], [reading()], base).verdict == "sound"  # one prompt says nothing
    assert pair_readings.template_gain(plain, plain, base).verdict == "sound"


def test_weights_stored_in_fewer_bits():
    whole = ModelFiles("draft", stored_bytes={"F16": 1000, "U8": 100})  # masks of an old checkpoint
    assert pair_weights.stored_weights(replace(whole, role="target"), whole).verdict == "sound"
    found = pair_weights.stored_weights(ModelFiles("target", stored_bytes={"Q8_0": 900, "F32": 100}), whole)
    assert found.verdict == "fault"
    assert "the target is stored in Q8_0 (90% of its bytes), F32 (10% of its bytes)" in found.evidence
    assert pair_weights.stored_weights(ModelFiles("target"), whole).verdict == "not checked"


def test_dtypes_of_a_gguf_file(tmp_path):
    import gguf

    from decoding.analysis.pair_files import _gguf_bytes

    file = tmp_path / "model.gguf"
    writer = gguf.GGUFWriter(file, "llama")
    values = np.ones((4, 64), dtype=np.float32)
    writer.add_tensor(
        "a", gguf.quants.quantize(values, gguf.GGMLQuantizationType.Q8_0), raw_dtype=gguf.GGMLQuantizationType.Q8_0
    )
    writer.add_tensor("b", values)
    for step in ("write_header_to_file", "write_kv_data_to_file", "write_tensors_to_file", "close"):
        getattr(writer, step)()
    assert _gguf_bytes(file) == {"Q8_0": 4 * 64 // 32 * 34, "F32": 1024}


@pytest.mark.slow
def test_a_pair_that_is_loaded_already_is_read_as_it_is(embedded):
    files = [read_files(settings(), role) for role in ("target", "draft")]
    found = findings(Examined(*files, embedded, ""), False, PROMPTS[:1])
    assert faults(found) == []
    assert not embedded.target.released


# ---- The command.


@pytest.mark.slow
def test_the_command_prints_verdicts_and_says_with_its_code_whether_there_is_a_fault(copies, capsys):
    pair = ["--target", str(copies[0]), "--draft", str(copies[1]), "--context-length", "256", "--device", "cpu"]
    assert main(pair) == 0
    assert capsys.readouterr().out.endswith("\n0 faults, 11 sound, 0 not checked\n")
    (copies[1] / "chat_template.jinja").unlink()
    assert main([*pair, "--json"]) == 1
    said = json.loads(capsys.readouterr().out)
    assert [each["check"] for each in said["findings"]] == list(CHECKS)
    assert [each["verdict"] for each in said["findings"]].count("fault") == 1
    assert len(said["prompts"]) == 8


def test_lines_of_a_fault():
    fault, sound = Finding("fault", "some numbers", "Do this.", "text"), Finding("sound", "others", check="loops")
    assert finding_lines([fault, sound]) == [
        "fault  text: some numbers", "       -> Do this.", "sound  loops: others", "",
        "1 fault, 1 sound, 0 not checked",
    ]  # fmt: skip
    assert asdict(fault)["mend"] == "Do this."


def test_prompts_of_a_file_and_of_a_folder(tmp_path):
    (tmp_path / "one.txt").write_text("Some text", encoding="utf-8")
    assert [prompt.text for prompt in chosen_prompts(tmp_path / "one.txt")] == ["Some text"]
    assert [prompt.name for prompt in chosen_prompts(tmp_path)] == ["one"]
    with pytest.raises(PromptError, match="There is no "):
        chosen_prompts(tmp_path / "two.txt")


@pytest.mark.parametrize("words", [["--prompts", "nowhere"], ["--temperature", "-1"], ["--max-new-tokens", "0"]])
def test_a_wrong_wish_is_refused_in_a_sentence(words, capsys):
    assert main(words) == 2
    assert capsys.readouterr().err.startswith("error: ")

"""Pairs load from disk as a user would load them, and what cannot work is refused with a sentence that says why."""

import errno
import os
import shutil
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from safetensors.torch import load, save_file
from tokenizers import Tokenizer, decoders, models
from transformers import FalconConfig, PreTrainedTokenizerFast

from benchmarks.fakes import intervention_json, make_checkpoint, make_pair, make_tokenizer
from decoding.common.errors import OutOfMemoryError, PairError, PromptError, SettingsError
from decoding.models import checks, loading
from decoding.models import pair as pair_module
from decoding.models.embedded import embedded_folder
from decoding.models.folder import check_values
from decoding.models.pair import PairSettings, embedded_pair, load_pair, match_vocabulary, release
from decoding.models.presets import EMBEDDED, MODEL_SHAPES, PRESETS, memory_estimate, model_shape
from decoding.models.vocabulary import Vocabulary
from tests.helpers.families import family
from tests.helpers.process import printed

PRESET_ARCHITECTURES = ("gpt_neox", "qwen2", "llama", "smollm2", "gpt2", "gemma3")
PROMPTS = ("Once upon a time there was a little fox.", "The population of the city was 1,200 in 1990.")


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """Target and draft folders of an architecture, made once."""
    made = {}

    def get(architecture):
        if architecture not in made:
            made[architecture] = make_pair(tmp_path_factory.mktemp(architecture), architecture)
        return made[architecture]

    return get


def settings_for(target, draft=None, **changes):
    return PairSettings(**{"target": str(target), "draft": str(draft or target), "context_length": 256, **changes})


def refusal(target, draft=None, **changes):
    """The sentence with which a pair is refused."""
    with pytest.raises(PairError) as caught:
        load_pair(settings_for(target, draft, **{"device": "cpu", **changes}))
    message = str(caught.value)
    assert "\n" not in message and message.endswith(".")
    return message


def accepted_per_iteration(pair, new_tokens=48, drafted=4):
    """Mean tokens of a greedy chain of `drafted` that the target would have chosen too."""
    accepted = []
    for prompt in PROMPTS:
        ids = pair.vocabulary.encode(prompt)
        config = pair.generation_config(max_new_tokens=new_tokens, min_new_tokens=new_tokens)
        output = pair.target.network.generate(torch.tensor([ids]), generation_config=config)[0]
        guesses = match_vocabulary(pair.draft.network(output[None]).logits[0], pair.logits_size).argmax(-1)
        agree = (guesses[len(ids) - 1 : -1] == output[len(ids) :]).tolist()
        while agree:
            count = next((i for i, same in enumerate(agree[:drafted]) if not same), min(drafted, len(agree)))
            accepted.append(count)
            agree = agree[count + 1 :]
    return sum(accepted) / len(accepted)


@pytest.mark.parametrize("architecture", family(PRESET_ARCHITECTURES, "gpt_neox"))
def test_preset_architectures_load_from_disk(folders, architecture):
    pair = load_pair(settings_for(*folders(architecture), device="cpu"))
    assert pair.info.context == pair.context == 256
    for model in (pair.target, pair.draft):
        text = model.network.config.get_text_config()
        grouped = getattr(text, "num_key_value_heads", text.num_attention_heads) < text.num_attention_heads
        assert model.info.attention == ("sdpa_grouped" if grouped else "sdpa") and model.mask_kind == "bool"
        assert model.dtype == torch.float32 and model.device.type == "cpu"
        assert model.num_layers == model.info.layers == 2
        assert model.info.parameters == sum(weight.numel() for weight in model.network.parameters())
        assert not model.network.training and not any(weight.requires_grad for weight in model.network.parameters())
    assert pair.target.mask_layer_types == (
        ("full_attention", "sliding_attention") if architecture == "gemma3" else None
    )
    assert 1.0 <= accepted_per_iteration(pair) <= 3.5  # a draft that never agrees tests nothing


def test_eager_attention_gets_additive_masks(folders):
    pair = load_pair(settings_for(*folders("gpt_neox"), attention="eager"))
    assert pair.target.info.attention == "eager" and pair.target.mask_kind == "additive"


def test_embedded_pair(embedded):
    assert embedded.info.name == "Embedded pair"
    assert embedded.info.target.parameters == 11_164_800 and embedded.info.draft.parameters == 2_626_560
    assert embedded.target.dtype == torch.float32 and embedded.logits_size == 4096 and embedded.context == 2560
    assert embedded.vocabulary.stop_ids == {0}
    assert load_pair(PairSettings(device="cpu")).target.dtype == torch.float32


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_half_precision_passes_the_tree_check(dtype):
    pair = embedded_pair(dtype=dtype)
    assert pair.info.target.dtype == dtype and pair.info.target.weight_bytes == 2 * pair.info.target.parameters


@pytest.mark.parametrize(
    ("architecture", "parts"),
    [
        ("bloom", ("ALiBi positions", "rotary")),
        ("mpt", ("ALiBi positions", "rotary")),
        ("mamba", ("recurrent state", "rolled back")),
        ("qwen3_next", ("recurrent state", "linear_attention")),
        ("t5", ("encoder-decoder", "decoder-only")),
        ("bert", ("BertForMaskedLM", "not a causal language model")),
    ],
)
def test_architectures_that_cannot_decode_a_tree_are_refused(tmp_path, architecture, parts):
    message = refusal(make_checkpoint(tmp_path / architecture, architecture))
    assert all(part in message for part in parts), message


def test_falcon_with_alibi_is_refused():
    with pytest.raises(PairError, match="ALiBi"):
        checks.check_config(FalconConfig(alibi=True), "falcon")


def test_sliding_window_shorter_than_the_context(tmp_path):
    folder = make_checkpoint(tmp_path / "mistral", "mistral", sliding_window=128)
    message = refusal(folder, context_length=300)
    assert "128 tokens" in message and "(300)" in message and "lower context_length to 128" in message
    assert load_pair(settings_for(folder, context_length=128)).context == 128


def longrope(**more):
    return {"rope_type": "longrope", "rope_theta": 1e4, "short_factor": [1.0] * 8, "long_factor": [4.0] * 8, **more}


@pytest.mark.parametrize(
    ("architecture", "changes"),
    [
        ("llama", {"rope_parameters": longrope(original_max_position_embeddings=128)}),
        ("phi3", {"rope_parameters": longrope(), "original_max_position_embeddings": 128}),
    ],
)
def test_longrope_is_not_crossed(tmp_path, architecture, changes):
    folder = make_checkpoint(tmp_path / architecture, architecture, **changes)
    message = refusal(folder, context_length=129)
    assert "longrope" in message and "past 128 tokens" in message and "lower context_length to 128" in message
    assert load_pair(settings_for(folder, context_length=128)).context == 128


def test_longrope_of_one_type_of_layers_counts_too():
    layers = {
        "full_attention": longrope(original_max_position_embeddings=64),
        "sliding_attention": {"rope_type": "default"},
    }
    text = SimpleNamespace(rope_parameters=layers)
    assert checks.longrope_turn(SimpleNamespace(get_text_config=lambda: text)) == 64


def test_gemma_layers_with_windows_count_too(folders):
    assert "lower context_length to 512" in refusal(*folders("gemma3"), context_length=600)


def test_context_is_the_shortest_of_both_models(tmp_path, folders):
    target, draft = folders("gpt_neox")
    short = shutil.copytree(draft, tmp_path / "short")
    intervention_json(short / "config.json", {"max_position_embeddings": 200})
    assert load_pair(settings_for(target, short, context_length=2048)).context == 200


def test_different_tokenizers_name_the_first_token_that_differs(tmp_path, folders):
    target, draft = folders("gpt_neox")
    other = shutil.copytree(draft, tmp_path / "other")
    text = (other / "tokenizer.json").read_text(encoding="utf-8")
    vocab = make_tokenizer().get_vocab()
    fifth, sixth = sorted(vocab, key=vocab.get)[500:502]
    swapped = text.replace(f'"{fifth}": 500,', f'"{fifth}": 501,').replace(f'"{sixth}": 501,', f'"{sixth}": 500,')
    (other / "tokenizer.json").write_text(swapped, encoding="utf-8")
    message = refusal(target, other)
    assert f"token 500 is {fifth!r} in the target and {sixth!r} in the draft" in message


def test_tokenizers_of_different_length(folders):
    message = refusal(folders("gpt_neox")[0], folders("qwen2")[1])
    assert "token 4096 is no token in the target and '<|im_start|>' in the draft" in message


def test_vocabularies_padded_to_different_sizes_work(tmp_path):
    target = make_checkpoint(tmp_path / "target", "qwen2", vocab=4224)
    draft = make_checkpoint(tmp_path / "draft", "qwen2", vocab=4160, seed=1)
    pair = load_pair(settings_for(target, draft))
    assert pair.logits_size == pair.vocabulary.size == 4224
    logits = pair.draft.network(torch.tensor([[5, 4223]])).logits  # an id that only the target has
    matched = match_vocabulary(logits, pair.logits_size)
    assert matched.shape[-1] == 4224 and matched.softmax(-1)[..., 4160:].sum() == 0
    assert torch.equal(matched[..., :4160], logits)
    assert torch.equal(match_vocabulary(logits, 4100), logits[..., :4100])
    assert pair.vocabulary.text(4223) == "<4223>"
    swapped = load_pair(settings_for(draft, target))
    assert swapped.logits_size == 4160


def test_no_network_says_what_to_do():
    for name in ("EleutherAI/pythia-70m", "Qwen/Qwen2.5-0.5B-Instruct"):
        message = refusal(name)
        assert f"{name} is not on this machine" in message and f"`hf download {name} --local-dir FOLDER`" in message


def test_a_hub_that_does_not_answer_is_noticed_quickly(monkeypatch):
    def refuse(*_args, **_kwargs):
        raise ConnectionRefusedError

    monkeypatch.setattr(loading.hub_constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(loading, "getproxies", dict)
    monkeypatch.setattr(loading.socket, "create_connection", refuse)
    assert not loading.hub_answers()


def test_unknown_and_gated_models():
    class GatedRepoError(OSError):
        pass

    class RepositoryNotFoundError(OSError):
        pass

    assert "accept its licence" in loading.explain(GatedRepoError(), "meta-llama/x", "weights")
    assert "check the spelling" in loading.explain(RepositoryNotFoundError(), "nobody/x", "weights")
    assert "Draftscope never runs" in loading.explain(ValueError("contains custom code"), "x", "configuration")
    assert "check the spelling" in refusal("no such model")


def test_folders_that_hold_no_model(tmp_path, folders):
    assert "There is no folder" in refusal(tmp_path / "missing")
    assert "has no config.json" in refusal(tmp_path)
    target, _ = folders("gpt2")
    broken = shutil.copytree(target, tmp_path / "config")
    (broken / "config.json").write_text("{", encoding="utf-8")
    assert "is not valid JSON (Expecting property name" in refusal(broken)
    unknown = shutil.copytree(target, tmp_path / "unknown")
    intervention_json(unknown / "config.json", {"model_type": "brain", "architectures": ["BrainForCausalLM"]})
    assert "is a brain model, which the installed transformers does not know" in refusal(unknown)
    bare = shutil.copytree(target, tmp_path / "tokenizer")
    for file in bare.glob("*token*"):
        file.unlink()
    assert "has no tokenizer" in refusal(bare)
    part = shutil.copytree(target, tmp_path / "part")
    (part / "model.safetensors").rename(part / "model-00001-of-00002.safetensors")
    assert "without model.safetensors.index.json" in refusal(part)
    quantised = shutil.copytree(target, tmp_path / "quantised")
    intervention_json(quantised / "config.json", {"quantization_config": {"quant_method": "gptq", "bits": 4}})
    assert "quantised" in refusal(quantised)


def test_a_file_behind_a_closed_door_is_reported(tmp_path, folders, monkeypatch):
    """As a link into another user's cache is, to all but root."""
    folder, real = shutil.copytree(folders("gpt2")[0], tmp_path / "model"), Path.stat

    def stat(path, **options):
        if path.name == "model.safetensors":
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
        return real(path, **options)

    monkeypatch.setattr(Path, "stat", stat)
    assert "cannot be read (Permission denied); check its permissions" in refusal(folder)
    assert memory_estimate(PairSettings(str(folder), str(folder))) is None


def test_what_the_hub_says_of_a_tokenizer_is_not_taken_for_a_folders_fault(monkeypatch):
    error = OSError("We couldn't connect to 'https://huggingface.co' to load the files.")

    def refuse(*_args, **_options):
        raise error

    monkeypatch.setattr(loading.AutoTokenizer, "from_pretrained", refuse)
    source = loading.WeightsSource("nobody/x", "nobody/x", None, object, (), {})
    with pytest.raises(PairError) as caught:
        loading.load_tokenizer(source)
    assert str(caught.value) == loading.explain(error, "nobody/x", "tokenizer")


def test_weights_beyond_the_range_of_float16_are_reported_apart_from_damage():
    network = torch.nn.Linear(2, 2).requires_grad_(False)
    network.weight[0, 0] = 1e6
    assert not loading._not_finite(network, "x")
    assert "choose float32 or bfloat16" in loading._not_finite(network.half(), "x")


@pytest.mark.parametrize("name", ["~nobody-of-this-name/model", "/" + "long" * 100, "long" * 100, "nul\0"])
def test_names_that_no_file_system_takes(name):
    assert memory_estimate(PairSettings(name, name)) is None  # asked on every key press in the dialog
    assert "There is no folder" in refusal(name) or "check the spelling" in refusal(name)


def test_only_safetensors_are_loaded(tmp_path, folders):
    folder = shutil.copytree(folders("gpt2")[0], tmp_path / "model")
    (folder / "model.safetensors").unlink()
    assert "has no weights" in refusal(folder)
    torch.save({}, folder / "pytorch_model.bin")
    assert "pickle" in refusal(folder) and "safetensors" in refusal(folder)


@pytest.mark.slow
def test_damaged_and_incomplete_weights(tmp_path, folders):
    folder = shutil.copytree(folders("llama")[0], tmp_path / "model")
    weights = folder / "model.safetensors"
    content = weights.read_bytes()
    tensors = load(content)
    weights.write_bytes(content[: len(content) // 2])
    assert "damaged" in refusal(folder)
    weights.write_bytes(b"not a model at all")
    assert "damaged" in refusal(folder)
    name = "model.layers.1.mlp.up_proj.weight"
    save_file({key: tensor for key, tensor in tensors.items() if key != name}, weights, {"format": "pt"})
    assert f"lack tensor {name}; they are incomplete" in refusal(folder)
    save_file({**tensors, name: tensors[name][:-1]}, weights, {"format": "pt"})
    assert f"{name} is 127 x 64 and its configuration needs 128 x 64;" in refusal(folder)
    tensors[name][3, 5] = torch.nan
    save_file(tensors, weights, {"format": "pt"})
    assert f"contain nan or infinite values in {name};" in refusal(folder)


def test_memory_that_is_not_there_is_noticed_before_loading(monkeypatch):
    monkeypatch.setattr(loading, "free_bytes", lambda _: 10_000)
    with pytest.raises(OutOfMemoryError, match="has 10 KiB free"):
        embedded_pair()


@pytest.mark.slow
def test_out_of_memory_while_loading_frees_what_was_loaded(monkeypatch):
    loaded, load_network = [], pair_module.load_network

    def full(source, *args):
        if loaded:
            raise torch.OutOfMemoryError("CUDA out of memory")
        loaded.append(load_network(source, *args))
        return loaded[0]

    monkeypatch.setattr(pair_module, "load_network", full)
    with pytest.raises(OutOfMemoryError, match="smaller model"):
        embedded_pair()
    assert sum(weight.numel() for weight in loaded[0].parameters()) == 0


@pytest.mark.slow
def test_release_frees_memory_that_others_still_hold():
    pair = embedded_pair()
    network = pair.target.network
    release(pair)
    release(pair)
    assert sum(weight.numel() for weight in network.parameters()) == 0 and pair.draft.released
    with pytest.raises(PairError, match="load the pair again"):
        _ = pair.target.network


def test_gguf_files_that_cannot_be_read(tmp_path, monkeypatch):
    file = tmp_path / "model.gguf"
    file.write_bytes(b"GGML and more")
    monkeypatch.setattr(loading, "find_spec", lambda name: None)
    assert "needs the package gguf: run 'pip install gguf'" in refusal(file)
    monkeypatch.setattr(loading, "find_spec", lambda name: name)
    assert "model.gguf is not a GGUF file; download it again" in refusal(file)
    other = tmp_path / "model.bin"
    other.write_bytes(b"")
    assert "give the folder that contains config.json, or a GGUF file" in refusal(other)


def test_devices_that_are_not_there():
    for device, there in (("cuda", torch.cuda.is_available()), ("mps", torch.backends.mps.is_available())):
        if not there:
            assert "choose device auto or cpu" in refusal(EMBEDDED, device=device)
    if not torch.cuda.is_available():
        assert "turn split off" in refusal(EMBEDDED, device="auto", split=True)


@pytest.mark.parametrize(
    ("changes", "part"),
    [
        ({"target": " "}, "target is empty"),
        ({"device": "tpu"}, "device is 'tpu'"),
        ({"dtype": "int8"}, "dtype is 'int8'"),
        ({"attention": "flash_attention_2"}, "cannot take a tree mask"),
        ({"attention": "flex_attention"}, "cannot take a tree mask"),
        ({"attention": "fast"}, "choose auto, sdpa or eager"),
        ({"context_length": 3}, "choose 16 to"),
        ({"split": True, "device": "cpu"}, "choose device auto or cuda"),
    ],
)
def test_settings_out_of_range(changes, part):
    with pytest.raises(SettingsError, match=part):
        PairSettings(**changes)


def test_text_never_shows_a_broken_character(embedded):
    vocabulary = embedded.vocabulary
    text = " naïve 日本 🦊\n"
    ids = vocabulary.encode(text)
    texts = [vocabulary.text(i) for i in ids]
    assert vocabulary.decode(ids) == text and "�" not in "".join(texts)
    assert {"<0xC3>", "<0xAF>", "<0xE6>"} <= set(texts)
    assert vocabulary.decode(ids[: texts.index("<0xE6>") + 1]).endswith(" <0xE6>")
    assert vocabulary.text(0) == "<|endoftext|>" and vocabulary.text(99_999) == "<99999>"


def test_text_of_sentencepiece_tokens():
    pieces = ["<unk>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256)), "▁", "▁fox", "es"]
    backend = Tokenizer(models.BPE({token: i for i, token in enumerate(pieces)}, [], byte_fallback=True))
    backend.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()])
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=backend, eos_token="</s>", unk_token="<unk>")
    vocabulary = Vocabulary(tokenizer, len(pieces))
    fox, s, accent = pieces.index("▁fox"), pieces.index("es"), [pieces.index("<0xC3>"), pieces.index("<0xA9>")]
    assert [vocabulary.text(i) for i in (fox, s, *accent)] == [" fox", "es", "<0xC3>", "<0xA9>"]
    assert vocabulary.decode([fox, s, *accent, 1]) == " foxesé</s>"
    assert vocabulary.text(pieces.index("<0x0A>")) == "\n"
    # Pieces that never spell a byte are known by their blanks alone, others by their bytes.
    backend = tokenizer.backend_tokenizer  # the tokenizer's own: it has copied the one it was made of
    backend.decoder = decoders.Metaspace()
    assert Vocabulary(tokenizer, len(pieces)).text(fox) == " fox"
    backend.decoder = decoders.Sequence([decoders.ByteFallback(), decoders.Fuse()])
    assert Vocabulary(tokenizer, len(pieces)).text(accent[0]) == "<0xC3>"


def test_start_token_follows_the_tokenizer(folders, embedded):
    assert embedded.vocabulary.encode("") == []
    llama = load_pair(settings_for(*folders("llama"))).vocabulary
    assert llama.text(llama.encode("fox")[0]) == "<|begin_of_text|>"
    chat = llama.encode_chat("fox")
    assert [llama.text(i) for i in chat].count("<|begin_of_text|>") == 1


def test_a_token_without_a_row_in_the_target_is_refused():
    vocabulary = Vocabulary(make_tokenizer("chatml"), 4096)
    with pytest.raises(PromptError, match="im_end"):
        vocabulary.encode("fox<|im_end|>")


def test_a_tokenizer_that_panics_is_refused(tmp_path, monkeypatch):
    """What Rust raises where it does not go on is no `Exception`, and must not pass as none of ours."""
    single = [{"SpecialToken": {"id": "[GONE]", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}]
    pair = [{"Sequence": {"id": name, "type_id": 0}} for name in "AB"]
    ending = {"type": "TemplateProcessing", "single": single, "pair": pair, "special_tokens": {}}
    target, draft = (shutil.copytree(embedded_folder(role), tmp_path / role) for role in ("target", "draft"))
    for folder in (target, draft):
        intervention_json(folder / "tokenizer.json", {"post_processor": ending})
    assert "cannot encode plain text (" in refusal(target, draft)

    panic = type("PanicException", (BaseException,), {})

    def panics(*_, **__):
        raise panic("no entry found for key")

    monkeypatch.setattr(loading.AutoTokenizer, "from_pretrained", panics)
    assert "tokenizer" in refusal(target, draft)
    monkeypatch.setattr(loading.AutoTokenizer, "from_pretrained", lambda *_, **__: sys.exit(1))
    with pytest.raises(SystemExit):
        load_pair(settings_for(target, draft))


@pytest.mark.parametrize(("architecture", "end"), [("qwen2", "<|im_end|>"), ("llama", "<|eot_id|>")])
def test_chat_template_and_its_stop_tokens(folders, architecture, end):
    plain = load_pair(settings_for(*folders(architecture))).vocabulary
    chat = load_pair(settings_for(*folders(architecture), chat=True)).vocabulary
    assert {plain.text(i) for i in plain.stop_ids} == {"<|endoftext|>"}
    assert {chat.text(i) for i in chat.stop_ids} == {"<|endoftext|>", end}
    prompt = chat.decode(chat.encode_chat([{"role": "user", "content": "Tell me of a fox."}]))
    assert "user" in prompt and "Tell me of a fox." in prompt and "assistant" in prompt.split(end)[1]


def test_chat_without_a_template(folders):
    assert "turn chat off" in refusal(*folders("gpt_neox"), chat=True)


def test_generate_takes_nothing_from_the_models_own_generation_config(tmp_path, folders):
    folder = shutil.copytree(folders("qwen2")[0], tmp_path / "model")
    own = {"repetition_penalty": 5.0, "do_sample": True, "suppress_tokens": list(range(0, 4096, 2))}
    intervention_json(folder / "generation_config.json", {**own, "eos_token_id": [0, 7]})
    pair = load_pair(settings_for(folder))
    assert pair.vocabulary.stop_ids == {0, 7}
    ids = torch.tensor([pair.vocabulary.encode(PROMPTS[0])])
    config = pair.generation_config(max_new_tokens=12, eos_token_id=None)
    output = pair.target.network.generate(ids, generation_config=config)[0]
    wanted = pair.target.network(output[None]).logits[0].argmax(-1)
    assert torch.equal(output[ids.shape[1] :], wanted[ids.shape[1] - 1 : -1])
    assert pair.generation_config().eos_token_id == [0, 7]


def test_presets_know_their_memory(folders):
    def estimate(preset, dtype):
        return memory_estimate(replace(preset.settings, dtype=dtype))

    assert next(iter(PRESETS)) == EMBEDDED
    for name, preset in PRESETS.items():
        assert estimate(preset, "float32") > estimate(preset, "bfloat16")
        assert name == EMBEDDED or {preset.settings.target, preset.settings.draft} <= MODEL_SHAPES.keys()
    assert 15.2e9 < estimate(PRESETS["qwen2.5-7b"], "bfloat16") < 17.5e9
    target, draft = folders("qwen2")
    pair = load_pair(settings_for(target, draft))
    shape = model_shape(str(target), "target")
    assert shape.weight_bytes("float32") == pair.info.target.weight_bytes
    assert shape.cache_bytes("float32", 10) == 10 * 2 * 2 * 2 * 16 * 4  # K and V, layers, key/value heads, head size
    assert memory_estimate(settings_for(target, draft, device="cpu")) > 2 * pair.info.target.weight_bytes
    assert memory_estimate(settings_for("nobody/nothing")) is None


def test_presets_need_no_torch():
    code = "import sys; from decoding.models.presets import PairSettings, memory_estimate;"
    code += "memory_estimate(PairSettings(dtype='float32'));"
    code += "print('torch' in sys.modules)"
    assert printed(code).strip() == "False"


def test_cudnn_attention_is_off_before_a_cuda_pair_is_loaded(monkeypatch):
    reported = []
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.backends.cuda, "enable_cudnn_sdp", reported.append)
    nowhere = {"target": "/nowhere", "draft": "/nowhere", "dtype": "float32"}
    for device in ("cpu", "cuda"):
        with pytest.raises(PairError, match="There is no folder /nowhere"):
            load_pair(PairSettings(device=device, **nowhere))
    assert reported == [False]


def test_a_window_of_no_tokens_is_one_that_is_switched_off():
    """As transformers saves the configuration of a Qwen2 with experts."""
    check_values({"sliding_window": 0, "use_sliding_window": False}, "x")
    for config in ({"sliding_window": 0}, {"sliding_window": 0, "use_sliding_window": True}):
        with pytest.raises(PairError, match="sliding_window 0"):
            check_values(config, "x")

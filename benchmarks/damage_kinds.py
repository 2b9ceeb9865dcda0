"""All ways in which a model folder can be damaged or odd, by name."""

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from benchmarks.damage import (
    CHAT,
    CONFIG,
    GENERATION,
    INDEX,
    TOKENIZER,
    TOKENIZER_CONFIG,
    WEIGHTS,
    WITH_ROPE,
    Damage,
    any_of,
    as_a_file,
    as_a_loop,
    bind_socket,
    changed,
    config,
    cut,
    deaf,
    emptied,
    encoded,
    filled,
    further_down,
    header,
    holds,
    in_place_of,
    lacks,
    more_tokens,
    nested,
    of_another,
    one_name,
    pickled,
    pointer,
    removed,
    reshaped,
    sharded,
    swapped,
    tensors,
    then,
    tokens,
    vocabulary,
    without_one,
    word_level,
    wrong_offsets,
)


@dataclass(frozen=True)
class Kind:
    """A way in which a folder is damaged or odd.

    Attributes:
        damage: does it to a sound folder.
        models: kinds of model that it is done to.
        settings: of the pair, with which the folder is opened.
        both: whether the folder is target and draft at once; else it is one of them, beside a sound one.
        opens: whether a pair with this folder works all the same; None where that depends on the model.
    """

    damage: Damage
    models: tuple[str, ...] = ("llama", "qwen2", "gpt_neox", "gpt2", "mistral", "gemma3_text")
    settings: Mapping[str, Any] = field(default_factory=dict)
    both: bool = False
    opens: bool | None = False


NO_JSON = ("{", '{"model_type": "llama",}', "model_type: llama\n", "<!doctype html><html>Not found</html>", "\0" * 400)
NO_OBJECT = ("[]", '["llama"]', '"llama"', "7", "null", "true")

KINDS: dict[str, Kind] = {
    # the folder
    "an empty folder": Kind(emptied),
    "a file in the place of the folder": Kind(as_a_file),
    "a link to itself in the place of the folder": Kind(as_a_loop),
    "the model lies one folder further down": Kind(further_down),
    # config.json as a file
    "no config.json": Kind(removed(CONFIG)),
    "config.json is a folder": Kind(in_place_of(CONFIG, Path.mkdir)),
    "config.json is a link to itself": Kind(in_place_of(CONFIG, lambda file: file.symlink_to(file))),
    "config.json is a link to nowhere": Kind(in_place_of(CONFIG, lambda file: file.symlink_to("blobs/0f3e"))),
    "config.json is a pipe": Kind(in_place_of(CONFIG, os.mkfifo)),
    "config.json may not be read": Kind(lambda folder, _: (folder / CONFIG).chmod(0), opens=None),  # root may
    "config.json is empty": Kind(holds(CONFIG, "", " \n")),
    "config.json is cut short": Kind(cut(CONFIG)),
    "config.json is no JSON": Kind(holds(CONFIG, *NO_JSON)),
    "config.json is no object": Kind(holds(CONFIG, *NO_OBJECT)),
    "config.json is an empty object": Kind(holds(CONFIG, "{}")),
    "config.json begins with a byte order mark": Kind(encoded(CONFIG, "utf-8-sig")),
    "config.json is UTF-16": Kind(encoded(CONFIG, "utf-16")),
    "config.json is Latin-1": Kind(holds(CONFIG, '{"model_type": "llama", "name": "é"}'.encode("latin-1"))),
    "config.json is nested too deep": Kind(holds(CONFIG, nested(100_000))),
    "config.json is a Git LFS pointer": Kind(pointer(CONFIG)),
    # config.json: what model
    "model_type is missing": Kind(lacks(CONFIG, "model_type")),
    "model_type is unknown": Kind(config(model_type="brain", architectures=["BrainForCausalLM"])),
    "model_type is no text": Kind(config(model_type=any_of(5, None, ["llama"], {}, True, ""))),
    "model_type is another model's": Kind(config(model_type=any_of("opt", "bloom", "t5", "bert", "mamba"))),
    "architectures is a text": Kind(config(architectures=any_of("LlamaModel", "BertForMaskedLM"))),
    "architectures is no list of names": Kind(config(architectures=any_of([7], {"a": 1}, [None], 3, [[]]))),
    "architectures is null": Kind(config(architectures=any_of(None, [])), opens=True),
    "architectures is a classifier": Kind(config(architectures=["LlamaForSequenceClassification"])),
    "the model brings program code": Kind(
        config(model_type="own", auto_map={"AutoConfig": "own.Config", "AutoModelForCausalLM": "own.Model"})
    ),
    "quantised weights": Kind(config(quantization_config=any_of({"quant_method": "gptq", "bits": 4}, {}, [], "int8"))),
    "text_config is no object": Kind(config(text_config=any_of("none", [1], 7))),
    "text_config is null": Kind(config(text_config=None), opens=None),
    # config.json: sizes
    "hidden_size is no number": Kind(config(hidden_size=any_of("wide", "64", None, [64], {}, True))),
    "hidden_size is out of range": Kind(config(hidden_size=any_of(0, -1, 10**12, 2.5, 1e30))),
    "hidden_size -1 and no heads": Kind(config(hidden_size=-1, num_attention_heads=0)),
    "hidden_size is not that of the weights": Kind(config(hidden_size=any_of(32, 128, 96), head_dim=16)),
    "heads do not divide hidden_size": Kind(
        config(num_attention_heads=any_of(7, 5, 3)), ("llama", "qwen2", "gpt_neox", "gpt2")
    ),
    "num_attention_heads is out of range": Kind(config(num_attention_heads=any_of(0, -4, 10**9, "4", None, 1.5))),
    "num_key_value_heads does not divide": Kind(config(num_key_value_heads=any_of(3, 0, -2, "2")), WITH_ROPE),
    "head_dim is out of range": Kind(config(head_dim=any_of(0, -8, "16", 1.5, 10**9)), WITH_ROPE),
    "head_dim is odd": Kind(config(head_dim=any_of(15, 7)), WITH_ROPE),
    "num_hidden_layers is 0": Kind(config(num_hidden_layers=0)),
    "num_hidden_layers is out of range": Kind(config(num_hidden_layers=any_of(-1, "two", None, 1.5, 10**9, 10**30))),
    "num_hidden_layers is more than the weights have": Kind(config(num_hidden_layers=any_of(3, 40))),
    "num_hidden_layers is less than the weights have": Kind(config(num_hidden_layers=1), opens=None),
    "vocab_size is out of range": Kind(config(vocab_size=any_of(0, -5, "many", None, 10**12, 2.5))),
    "vocab_size is not that of the weights": Kind(config(vocab_size=any_of(4000, 4200, 100))),
    "intermediate_size is out of range": Kind(
        config(intermediate_size=any_of(0, -1, "big", None, 10**12)), (*WITH_ROPE, "gpt_neox")
    ),
    "max_position_embeddings is null": Kind(config(max_position_embeddings=None)),
    "max_position_embeddings is out of range": Kind(config(max_position_embeddings=any_of(0, -1, "2048", 1e30, 1.5))),
    "max_position_embeddings is tiny": Kind(config(max_position_embeddings=any_of(1, 3, 8))),
    # config.json: layers and positions
    "layer_types are unknown": Kind(config(layer_types=["full_attention", "wormhole_attention"]), WITH_ROPE),
    "layer_types is no list": Kind(config(layer_types=any_of("full_attention", 2, {"a": 1}, [1, 2])), WITH_ROPE),
    "layer_types are too few or many": Kind(config(layer_types=any_of([], ["full_attention"] * 3)), WITH_ROPE),
    "sliding_window is out of range": Kind(
        config(sliding_window=any_of("wide", -1, 0, 1.5, [4], True)), ("mistral", "gemma3_text")
    ),
    "sliding_window is tiny": Kind(config(sliding_window=any_of(1, 4)), ("mistral", "gemma3_text")),
    "rope_theta is out of range": Kind(config(rope_theta=any_of("far", -1.0, 0), rope_parameters=None), WITH_ROPE[:3]),
    "rope parameters are wrong": Kind(
        config(
            rope_parameters=any_of(
                {"rope_type": "twisted", "rope_theta": 1e4},
                {"rope_type": "linear", "rope_theta": 1e4},
                [],
                "yarn",
                {"rope_type": "yarn", "rope_theta": 1e4, "factor": "four"},
                {"rope_type": "llama3"},
            )
        ),
        WITH_ROPE[:3],
    ),
    "rms_norm_eps is no number": Kind(config(rms_norm_eps=any_of("small", None, [])), WITH_ROPE),
    "hidden_act is unknown": Kind(config(hidden_act=any_of("swish9", 4, None)), (*WITH_ROPE[:3], "gpt_neox")),
    "partial_rotary_factor is out of range": Kind(
        config(
            rope_parameters={
                "rope_theta": 1e4,
                "rope_type": "default",
                "partial_rotary_factor": any_of(0.0, 3.0, "half"),
            }
        ),
        ("gpt_neox",),
        opens=None,
    ),
    "alibi positions": Kind(config(alibi=True)),
    # config.json: the rest
    "dtype is unknown": Kind(config(dtype=any_of("foo", 5, [], "int9"))),
    "dtype is no float": Kind(config(dtype=any_of("int8", "bool", "complex64")), opens=None),
    "eos_token_id is no id": Kind(config(eos_token_id=any_of("end", ["end"], 1.5, {"id": 0}, "0"))),
    "eos_token_id is out of range": Kind(config(eos_token_id=any_of(-1, 10**6, 10**30)), opens=None),
    "bos_token_id is no id": Kind(config(bos_token_id=any_of("start", [1], 0.5)), opens=None),
    "tie_word_embeddings is no switch": Kind(config(tie_word_embeddings=any_of("yes", 3, None)), opens=None),
    "return_dict is off": Kind(config(return_dict=False), opens=True),
    "use_cache is off": Kind(config(use_cache=False), opens=True),
    "outputs of every kind are asked for": Kind(config(output_hidden_states=True, output_attentions=True), opens=None),
    "attention of its own": Kind(config(_attn_implementation="flash_attention_2"), opens=True),
    "settings that nobody knows": Kind(config(flux=1.21, num_labels=5, id2label={"0": "a"}), opens=None),
    # generation_config.json
    "generation_config.json is no object": Kind(holds(GENERATION, *NO_OBJECT)),
    "generation_config.json is no JSON": Kind(holds(GENERATION, *NO_JSON, "")),
    "generation_config.json is a folder": Kind(in_place_of(GENERATION, Path.mkdir), opens=None),
    "no generation_config.json": Kind(removed(GENERATION), opens=True),
    "generation_config.json: eos_token_id is no id": Kind(
        changed(GENERATION, eos_token_id=any_of("end", ["end"], 1.5, {"id": 0}, [[0]]))
    ),
    "generation_config.json: ids out of range": Kind(
        changed(GENERATION, eos_token_id=any_of(-1, 10**9, [0, -7])), opens=True
    ),
    "generation_config.json: other settings are wrong": Kind(
        changed(GENERATION, temperature=any_of("hot", -1), cache_implementation="abacus", max_length="long"), opens=None
    ),
    # weights as files
    "no weights": Kind(removed(WEIGHTS)),
    "weights are cut short": Kind(cut(WEIGHTS)),
    "weights are empty": Kind(holds(WEIGHTS, b"")),
    "weights are zeros": Kind(holds(WEIGHTS, bytes(100_000))),
    "weights are another file": Kind(holds(WEIGHTS, b"\x89PNG\r\n" * 99, "<html>404</html>", b"PK\x03\x04" * 999)),
    "weights are a Git LFS pointer": Kind(pointer(WEIGHTS)),
    "weights are a folder": Kind(in_place_of(WEIGHTS, Path.mkdir)),
    "weights are a pipe": Kind(in_place_of(WEIGHTS, os.mkfifo)),
    "weights are a socket": Kind(in_place_of(WEIGHTS, bind_socket)),
    "weights are a link to nowhere": Kind(in_place_of(WEIGHTS, lambda file: file.symlink_to("../../blobs/77ab"))),
    "weights are a link to themselves": Kind(in_place_of(WEIGHTS, lambda file: file.symlink_to(file))),
    "weights may not be read": Kind(lambda folder, _: (folder / WEIGHTS).chmod(0), opens=None),
    "weights are pickled": Kind(pickled("pytorch_model.bin")),
    "a pickle is named safetensors": Kind(pickled(WEIGHTS)),
    "weights are in GGUF": Kind(then(removed(WEIGHTS), holds("model.gguf", b"GGUF" + bytes(64)))),
    "weights of an adapter alone": Kind(
        lambda folder, _draws: (folder / WEIGHTS).rename(folder / "adapter_model.safetensors")
    ),
    "weights under another name": Kind(
        lambda folder, _draws: (folder / WEIGHTS).rename(folder / "weights.safetensors")
    ),
    # weights: header and tensors
    "the header says what no file can hold": Kind(header(wrong_offsets)),
    "the header names an unknown dtype": Kind(
        header(lambda known, draws: known[one_name(known, draws)].update(dtype=draws.choice(["F99", "", 3])))
    ),
    "the header has another shape": Kind(
        header(
            lambda known, draws: known[one_name(known, draws)].update(
                shape=draws.choice([[1], [-1, 4], "wide", [2**62, 4]])
            )
        )
    ),
    "the header is no object": Kind(header(lambda _known, draws: draws.choice([[1], "x", 7]))),
    "the header is longer than the file": Kind(holds(WEIGHTS, (1 << 60).to_bytes(8, "little") + b"{}" * 99)),
    "a tensor is missing": Kind(tensors(without_one)),
    "a tensor has another shape": Kind(tensors(reshaped(lambda tensor: tensor[:, :-1]))),
    "a tensor is transposed": Kind(tensors(reshaped(lambda tensor: tensor.T[: len(tensor) - 1]))),
    "all tensors have other names": Kind(tensors(lambda state, _: {f"net.{name}": t for name, t in state.items()})),
    "tensors that nobody asked for": Kind(
        tensors(lambda state, _: {**state, "extra.weight": torch.ones(3)}), opens=True
    ),
    "a matrix is nan": Kind(tensors(filled(float("nan"), whole=True))),
    "one weight is nan": Kind(tensors(filled(float("nan"), whole=False))),
    "one weight is infinite": Kind(tensors(filled(float("inf"), whole=False))),
    "weights so large that logits overflow": Kind(tensors(filled(3e38, whole=True)), opens=None),
    "all weights are zero": Kind(
        tensors(lambda state, _: {n: torch.zeros_like(t) for n, t in state.items()}), opens=None
    ),
    "weights are whole numbers": Kind(
        tensors(lambda state, _: {n: t.to(torch.int32) for n, t in state.items()}), opens=None
    ),
    "weights of another model": Kind(of_another),
    "weights in bfloat16": Kind(tensors(lambda state, _: {n: t.bfloat16() for n, t in state.items()}), opens=True),
    # the index of shards
    "shards with an index": Kind(sharded(None), opens=True),
    "the index points nowhere": Kind(sharded("model-00002-of-00002.safetensors")),
    "the index points out of the folder": Kind(sharded("../../../../etc/hostname")),
    "the index is no JSON": Kind(then(sharded(None), holds(INDEX, *NO_JSON, ""))),
    "the index is no object": Kind(then(sharded(None), holds(INDEX, *NO_OBJECT))),
    "the index has no map": Kind(then(sharded(None), lacks(INDEX, "weight_map"))),
    "the map of the index is none": Kind(sharded(None, weight_map=["a"])),
    "the map of the index is empty": Kind(sharded(None, weight_map={})),
    "the map of the index names numbers": Kind(sharded(None, weight_map={"lm_head.weight": 7})),
    # tokenizer
    "no tokenizer": Kind(removed(TOKENIZER, TOKENIZER_CONFIG)),
    "no tokenizer_config.json": Kind(removed(TOKENIZER_CONFIG), opens=None),
    "tokenizer.json is an empty object": Kind(holds(TOKENIZER, "{}")),
    "tokenizer.json is empty": Kind(holds(TOKENIZER, "")),
    "tokenizer.json is no JSON": Kind(holds(TOKENIZER, *NO_JSON)),
    "tokenizer.json is no object": Kind(holds(TOKENIZER, *NO_OBJECT)),
    "tokenizer.json is cut short": Kind(cut(TOKENIZER)),
    "tokenizer.json is UTF-16": Kind(encoded(TOKENIZER, "utf-16")),
    "tokenizer.json begins with a byte order mark": Kind(encoded(TOKENIZER, "utf-8-sig"), opens=None),
    "tokenizer.json is a Git LFS pointer": Kind(pointer(TOKENIZER)),
    "tokenizer.json is a folder": Kind(in_place_of(TOKENIZER, Path.mkdir)),
    "tokenizer.json is a pipe": Kind(in_place_of(TOKENIZER, os.mkfifo)),
    "tokenizer.json is of an unknown kind": Kind(vocabulary(lambda content, _: content["model"].update(type="Runes"))),
    "tokenizer.json: a negative id": Kind(tokens(lambda vocab, _: {**vocab, "nothing": -1})),
    "tokenizer.json: an id beyond all bounds": Kind(tokens(lambda vocab, _: {**vocab, "far": 10**12})),
    "tokenizer.json: ids with a gap": Kind(tokens(lambda vocab, _: {**vocab, "far": 60_000})),
    "tokenizer.json: two tokens with one id": Kind(tokens(lambda vocab, _: {**vocab, "twin": 700})),
    "tokenizer.json: two ids swapped": Kind(tokens(swapped)),
    "tokenizer.json: no vocabulary": Kind(tokens(lambda _vocab, _: {"a": 0})),
    "tokenizer.json: more tokens than the model has": Kind(vocabulary(more_tokens)),
    "tokenizer.json: merges of unknown tokens": Kind(
        vocabulary(lambda content, _: content["model"].update(merges=[["qqq", "zzz"]]))
    ),
    "tokenizer.json: another tokenizer": Kind(vocabulary(word_level)),
    "tokenizer.json: another tokenizer on both sides": Kind(vocabulary(word_level), both=True),
    "tokenizer.json: every text becomes nothing": Kind(vocabulary(deaf), both=True, opens=None),
    "tokenizer_config.json is no object": Kind(holds(TOKENIZER_CONFIG, *NO_OBJECT)),
    "tokenizer_config.json is no JSON": Kind(holds(TOKENIZER_CONFIG, *NO_JSON, "")),
    "tokenizer_class is unknown": Kind(
        changed(TOKENIZER_CONFIG, tokenizer_class=any_of("RuneTokenizer", 7, [])), opens=None
    ),
    "tokenizer brings program code": Kind(
        changed(TOKENIZER_CONFIG, tokenizer_class="Own", auto_map={"AutoTokenizer": ["own.Own", None]}), opens=None
    ),
    "special tokens are no tokens": Kind(
        changed(TOKENIZER_CONFIG, eos_token=any_of(7, {"a": 1}, ["x"], True)), opens=None
    ),
    "model_max_length is no number": Kind(
        changed(TOKENIZER_CONFIG, model_max_length=any_of("long", -1, None)), opens=None
    ),
    "added_tokens_decoder is wrong": Kind(
        changed(
            TOKENIZER_CONFIG, added_tokens_decoder=any_of({"x": {"content": "<x>"}}, {"7": 7}, ["<x>"], {"-4": {}})
        ),
        opens=None,
    ),
    "only a damaged tokenizer.model": Kind(
        then(removed(TOKENIZER), holds("tokenizer.model", b"\n\x07\n\x05<unk>junk"))
    ),
    "only vocab.json without merges": Kind(then(removed(TOKENIZER), holds("vocab.json", '{"a": 0}')), opens=None),
    # chat template
    "chat without a template": Kind(then(), settings={"chat": True}, both=True),
    "the chat template is no template": Kind(
        changed(TOKENIZER_CONFIG, chat_template=any_of("{% for x in %}", "{{ messages", "{% endif %}")),
        settings={"chat": True},
        both=True,
    ),
    "the chat template is no text": Kind(
        changed(TOKENIZER_CONFIG, chat_template=any_of(7, ["a"], {"b": 1}, [{"name": "default"}])),
        settings={"chat": True},
        both=True,
    ),
    "the chat template fails": Kind(
        changed(
            TOKENIZER_CONFIG,
            chat_template=any_of(
                "{{ raise_exception('No.') }}",
                "{{ 1 / 0 }}",
                "{{ messages[9]['content'] }}",
                "{{ 'a' + 1 }}",
                "{{ messages | abracadabra }}",
                "{{ messages.__class__.__mro__ }}",
                "{{ range(10**9) | list }}",
            ),
        ),
        settings={"chat": True},
        both=True,
    ),
    "the chat template says nothing": Kind(
        changed(TOKENIZER_CONFIG, chat_template="{# #}"), settings={"chat": True}, both=True
    ),
    "chat_template.jinja is a folder": Kind(lambda folder, _: (folder / "chat_template.jinja").mkdir(), opens=None),
    "a chat template that works": Kind(
        changed(TOKENIZER_CONFIG, chat_template=CHAT), settings={"chat": True}, both=True, opens=True
    ),
}

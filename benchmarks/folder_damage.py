"""Model folders as people have them: small random ones, and all ways in which a folder can be damaged or odd."""

import json
import os
import pickle
import shutil
import socket
from collections.abc import Callable, Mapping
from contextlib import chdir
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer, GenerationConfig

from decoding.models.embedded import embedded_folder

CONFIG, GENERATION, WEIGHTS = "config.json", "generation_config.json", "model.safetensors"
TOKENIZER, TOKENIZER_CONFIG, INDEX = "tokenizer.json", "tokenizer_config.json", "model.safetensors.index.json"
WIDTH, LAYERS, HEADS, VOCAB, POSITIONS = 64, 2, 4, 4096, 512
WITH_ROPE = ("llama", "qwen2", "mistral", "gemma3_text")
# What Git leaves in the place of a file where LFS is not installed.
POINTER = "version https://git-lfs.github.com/spec/v1\noid sha256:{digest}\nsize {size}\n"

Damage = Callable[[Path, Random], Any]


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
    models: tuple[str, ...] = (*WITH_ROPE, "gpt_neox", "gpt2")
    settings: Mapping[str, Any] = field(default_factory=dict)
    both: bool = False
    opens: bool | None = False


def sound_folder(folder: Path, model: str) -> Path:
    """Write a small random model with the tokenizer of the embedded pair."""
    torch.manual_seed(0)
    sizes = {"hidden_size": WIDTH, "num_hidden_layers": LAYERS, "num_attention_heads": HEADS, "vocab_size": VOCAB}
    more = {"max_position_embeddings": POSITIONS, "bos_token_id": 0, "eos_token_id": 0, "pad_token_id": 0}
    if model != "gpt2":
        more["intermediate_size"] = 2 * WIDTH
    if model in WITH_ROPE:
        more |= {"num_key_value_heads": 2, "head_dim": WIDTH // HEADS}
    if model in ("mistral", "gemma3_text"):
        more["sliding_window"] = POSITIONS
    network = AutoModelForCausalLM.from_config(AutoConfig.for_model(model, **sizes, **more), dtype=torch.float32)
    network.generation_config = GenerationConfig(bos_token_id=0, eos_token_id=0)
    network.save_pretrained(folder)
    AutoTokenizer.from_pretrained(embedded_folder("target")).save_pretrained(folder)
    return folder


# ---- What damage is made of. A tuple is what one value is drawn from.


def edited(file: str, change: Callable[[Any, Random], Any]) -> Damage:
    """A JSON file with another content, or with the same object once it was changed."""

    def damage(folder: Path, draws: Random) -> None:
        content = json.loads((folder / file).read_text(encoding="utf-8"))
        (folder / file).write_text(json.dumps(change(content, draws) or content), encoding="utf-8")

    return damage


def changed(file: str, **values: Any) -> Damage:
    """Settings of a JSON file get other values."""
    return edited(file, lambda content, draws: {**content, **_drawn(values, draws)})


def lacks(file: str, name: str) -> Damage:
    """A JSON file without one of its settings."""
    return edited(file, lambda content, _: {key: value for key, value in content.items() if key != name})


def _drawn(value: Any, draws: Random) -> Any:
    if isinstance(value, dict):
        return {name: _drawn(each, draws) for name, each in value.items()}
    return draws.choice(value) if isinstance(value, tuple) else value


def holds(file: str, *contents: str | bytes) -> Damage:
    """A file with another content, one of several."""

    def damage(folder: Path, draws: Random) -> None:
        content = draws.choice(contents)
        (folder / file).write_bytes(content if isinstance(content, bytes) else content.encode())

    return damage


def encoded(file: str, encoding: str) -> Damage:
    """A text file in another encoding."""
    return lambda folder, _: (folder / file).write_bytes((folder / file).read_text("utf-8").encode(encoding))


def cut(file: str) -> Damage:
    """A file of which the end is missing."""

    def damage(folder: Path, draws: Random) -> None:
        content = (folder / file).read_bytes()
        (folder / file).write_bytes(content[: draws.randrange(1, len(content))])

    return damage


def without(*files: str, then: Callable[[Path], Any] = lambda folder: None) -> Damage:
    """A folder without some files, and with what is made instead."""

    def damage(folder: Path, _draws: Random) -> None:
        for file in files:
            (folder / file).unlink()
        then(folder)

    return damage


def renamed(file: str, name: str) -> Damage:
    """A file under another name."""
    return lambda folder, _: (folder / file).rename(folder / name)


def pointer(file: str) -> Damage:
    """What Git leaves without LFS."""

    def damage(folder: Path, _draws: Random) -> None:
        size = (folder / file).stat().st_size
        (folder / file).write_text(POINTER.format(digest="ab" * 32, size=size), encoding="utf-8")

    return damage


def tensors(change: Callable[[dict[str, torch.Tensor], Random], Mapping[str, torch.Tensor] | None]) -> Damage:
    """Other tensors in the weights."""

    def damage(folder: Path, draws: Random) -> None:
        state = load_file(folder / WEIGHTS)
        state = change(state, draws) or state
        save_file({name: tensor.contiguous() for name, tensor in state.items()}, folder / WEIGHTS, {"format": "pt"})

    return damage


def each_tensor(change: Callable[[torch.Tensor], torch.Tensor]) -> Damage:
    """All tensors of the weights changed alike."""
    return tensors(lambda state, _: {name: change(tensor) for name, tensor in state.items()})


def one_matrix(change: Callable[[torch.Tensor], torch.Tensor]) -> Damage:
    """A matrix of the weights changed."""

    def damage(state: dict[str, torch.Tensor], draws: Random) -> None:
        name = draws.choice(sorted(name for name, tensor in state.items() if tensor.dim() == 2))
        state[name] = change(state[name])

    return tensors(damage)


def one_weight(value: float) -> Damage:
    """A matrix of which one weight is another."""
    return one_matrix(lambda matrix: matrix.index_put((torch.tensor(1), torch.tensor(0)), torch.tensor(value)))


def header(change: Callable[[dict[str, Any], Random], Any]) -> Damage:
    """Another header in front of the weights."""

    def damage(folder: Path, draws: Random) -> None:
        content = (folder / WEIGHTS).read_bytes()
        length = int.from_bytes(content[:8], "little")
        known = json.loads(content[8 : 8 + length])
        text = json.dumps(change(known, draws) or known).encode()
        (folder / WEIGHTS).write_bytes(len(text).to_bytes(8, "little") + text + content[8 + length :])

    return damage


def in_header(**values: Any) -> Damage:
    """A header that says something else of one tensor."""

    def change(known: dict[str, Any], draws: Random) -> None:
        known[draws.choice(sorted(set(known) - {"__metadata__"}))].update(_drawn(values, draws))

    return header(change)


def without_one(state: dict[str, torch.Tensor], draws: Random) -> dict[str, torch.Tensor]:
    """A tensor of the second layer is missing."""
    name = draws.choice([name for name in sorted(state) if "layers.1." in name or "h.1." in name])
    return {other: tensor for other, tensor in state.items() if other != name}


def sharded(place: str = "model-00001-of-00001.safetensors", index: Damage | None = None, **more: Any) -> Damage:
    """Weights in one shard with an index; `place` is where the index says that they are."""

    def damage(folder: Path, draws: Random) -> None:
        names = list(load_file(folder / WEIGHTS))
        (folder / WEIGHTS).rename(folder / "model-00001-of-00001.safetensors")
        content = {"metadata": {"total_size": 1}, "weight_map": dict.fromkeys(names, place), **more}
        (folder / INDEX).write_text(json.dumps(content), encoding="utf-8")
        if index is not None:
            index(folder, draws)

    return damage


def pickled(folder: Path, _draws: Random) -> None:
    """Weights as a pickle, as torch once wrote them."""
    state = load_file(folder / WEIGHTS)
    (folder / WEIGHTS).unlink()
    torch.save(state, folder / "pytorch_model.bin")


def pickled_as_safetensors(folder: Path, _draws: Random) -> None:
    """A pickle under the name of another format."""
    state = load_file(folder / WEIGHTS)
    (folder / WEIGHTS).write_bytes(pickle.dumps({key: tensor.numpy() for key, tensor in state.items()}))


def of_another(folder: Path, _draws: Random) -> None:
    """Weights of a model of another kind."""
    model = json.loads((folder / CONFIG).read_text())["model_type"]
    other = sound_folder(folder.with_name(f"{folder.name}-other"), "gpt2" if model != "gpt2" else "llama")
    shutil.copy(other / WEIGHTS, folder / WEIGHTS)
    shutil.rmtree(other)


def instead(make: Callable[[Path, bytes], Any]) -> Damage:
    """Something in the place of the folder; it is given what the weights were."""

    def damage(folder: Path, _draws: Random) -> None:
        weights = (folder / WEIGHTS).read_bytes()
        shutil.rmtree(folder)
        make(folder, weights)

    return damage


def further_down(folder: Path, _draws: Random) -> None:
    """The model lies in a folder of the folder."""
    whole = folder.with_name(f"{folder.name}-whole")
    folder.rename(whole)
    folder.mkdir()
    whole.rename(folder / "snapshot")


def bind_socket(place: Path) -> None:
    """A socket in the place of a file."""
    with chdir(place.parent), socket.socket(socket.AF_UNIX) as opened:  # the address of a socket holds 107 bytes
        opened.bind(place.name)


def tokens(change: Callable[[dict[str, int], Random], dict[str, int]]) -> Damage:
    """Another vocabulary in tokenizer.json."""
    return edited(
        TOKENIZER, lambda content, draws: content["model"].update(vocab=change(content["model"]["vocab"], draws))
    )


def swapped(vocab: dict[str, int], draws: Random) -> dict[str, int]:
    """Two tokens have each other's id."""
    one, other = draws.sample([token for token, number in vocab.items() if number > 300], 2)
    return {**vocab, one: vocab[other], other: vocab[one]}


def more_tokens(vocab: dict[str, int], draws: Random) -> dict[str, int]:
    """Tokens that the model has no rows for."""
    return vocab | {f"further{number}": number for number in range(len(vocab), len(vocab) + draws.choice((1, 5000)))}


def word_level(content: dict[str, Any], _draws: Random) -> dict[str, Any]:
    """A tokenizer of three words, none of which stands for an unknown one."""
    words = {"<|endoftext|>": 0, "once": 1, "upon": 2}
    return {
        **content,
        "model": {"type": "WordLevel", "vocab": words, "unk_token": "<unk>"},
        "added_tokens": content["added_tokens"][:1],
        "pre_tokenizer": {"type": "Whitespace"},
        "post_processor": None,
        "decoder": None,
    }


# ---- The kinds of damage.

NO_JSON = ("{", '{"model_type": "llama",}', "model_type: llama\n", "<!doctype html><html>Not found</html>", "\0" * 400)
NO_OBJECT = ("[]", '["llama"]', '"llama"', "7", "null", "true")
DEEP = "[" * 100_000 + "]" * 100_000
NEEDED = (CONFIG, WEIGHTS, TOKENIZER)  # files without which no pair opens
# What no model of any kind can have in config.json; a pair never opens with it.
WRONG: dict[str, tuple[Any, ...]] = {
    "model_type": ("brain", 5, None, ["llama"], {}, True, "", "opt", "bloom", "t5", "bert", "mamba"),
    "architectures": (
        "LlamaModel",
        "BertForMaskedLM",
        [7],
        {"a": 1},
        [None],
        3,
        [[]],
        ["LlamaForSequenceClassification"],
    ),
    "quantization_config": ({"quant_method": "gptq", "bits": 4}, {}, [], "int8"),
    "text_config": ("none", [1], 7),
    "hidden_size": ("wide", "64", None, [64], {}, True, 0, -1, 10**12, 2.5, 1e30),
    "num_attention_heads": (0, -4, 10**9, "4", None, 1.5),
    "num_hidden_layers": (0, -1, "two", None, 1.5, 10**9, 10**30, 3, 40),  # the weights have 2
    "vocab_size": (0, -5, "many", None, 10**12, 2.5, 4000, 4200, 100),
    "max_position_embeddings": (None, 0, -1, "2048", 1e30, 1.5, 1, 3, 8),
    "alibi": (True,),
    "dtype": ("foo", 5, [], "int9"),
    "eos_token_id": ("end", ["end"], 1.5, {"id": 0}, "0"),
}
WRONG_WITH_ROPE: dict[str, tuple[Any, ...]] = {
    "num_key_value_heads": (3, 0, -2, "2"),
    "head_dim": (0, -8, "16", 1.5, 10**9, 15, 7),
    "intermediate_size": (0, -1, "big", None, 10**12),
    "layer_types": (
        ["full_attention", "wormhole_attention"],
        "full_attention",
        2,
        {"a": 1},
        [1, 2],
        [],
        ["full_attention"] * 3,
    ),
    "rms_norm_eps": ("small", None, []),
}
# What depends on the model.
ODD: dict[str, tuple[Any, ...]] = {
    "text_config": (None,),
    "num_hidden_layers": (1,),
    "dtype": ("int8", "bool", "complex64"),
    "eos_token_id": (-1, 10**6, 10**30),
    "bos_token_id": ("start", [1], 0.5),
    "tie_word_embeddings": ("yes", 3, None),
}
ROPES = (
    {"rope_type": "twisted", "rope_theta": 1e4}, {"rope_type": "linear", "rope_theta": 1e4}, [], "yarn",
    {"rope_type": "yarn", "rope_theta": 1e4, "factor": "four"}, {"rope_type": "llama3"},
)  # fmt: skip
TEMPLATES = (
    "{% for x in %}", "{{ messages", "{% endif %}", 7, ["a"], {"b": 1}, [{"name": "default"}], "{# #}",
    "{{ raise_exception('No.') }}", "{{ 1 / 0 }}", "{{ messages[9]['content'] }}", "{{ 'a' + 1 }}",
    "{{ messages | abracadabra }}", "{{ messages.__class__.__mro__ }}", "{{ range(10**9) | list }}",
)  # fmt: skip
CHAT = "{% for message in messages %}{{ message['content'] }}{% endfor %}"


def _of_any_file(file: str) -> dict[str, Kind]:
    """What can be wrong with a file whatever it holds; those that are not needed may do without."""

    def put(make: Callable[[Path], Any]) -> Damage:
        return without(file, then=lambda folder: make(folder / file))

    ways = {
        "is missing": without(file),
        "is a folder": put(Path.mkdir),
        "is a link to itself": put(lambda place: place.symlink_to(place)),
        "is a link to nowhere": put(lambda place: place.symlink_to("blobs/0f3e")),
        "is a pipe": put(os.mkfifo),
        "is empty": holds(file, "", " \n"),
        "is cut short": cut(file),
        "is a Git LFS pointer": pointer(file),
        "is another file": holds(file, bytes(100_000), b"\x89PNG\r\n" * 99, "<html>404</html>", b"PK\x03\x04" * 999),
    }
    if file != WEIGHTS:
        ways |= {"is UTF-16": encoded(file, "utf-16"), "is nested too deep": holds(file, DEEP)}
        ways |= {"is no JSON": holds(file, *NO_JSON), "is no object": holds(file, *NO_OBJECT)}
    kinds = {way: Kind(damage, opens=False if file in NEEDED else None) for way, damage in ways.items()}
    kinds["may not be read"] = Kind(lambda folder, _: (folder / file).chmod(0), opens=None)  # root may
    return {f"{file} {way}": kind for way, kind in kinds.items()}


CHATTING = partial(Kind, settings={"chat": True}, both=True)
KINDS: dict[str, Kind] = {
    name: kind for file in (*NEEDED, GENERATION, TOKENIZER_CONFIG) for name, kind in _of_any_file(file).items()
}
KINDS |= {f"config.json: {name} is wrong": Kind(changed(CONFIG, **{name: values})) for name, values in WRONG.items()}
KINDS |= {
    f"config.json: {name} is wrong": Kind(changed(CONFIG, **{name: values}), WITH_ROPE)
    for name, values in WRONG_WITH_ROPE.items()
}
KINDS |= {
    f"config.json: {name} is odd": Kind(changed(CONFIG, **{name: values}), opens=None) for name, values in ODD.items()
}
KINDS |= {
    # the folder
    "an empty folder": Kind(instead(lambda folder, _: folder.mkdir())),
    "a file in the place of the folder": Kind(instead(Path.write_bytes)),
    "a link to itself in the place of the folder": Kind(instead(lambda folder, _: folder.symlink_to(folder))),
    "the model lies one folder further down": Kind(further_down),
    # config.json
    "config.json is an empty object": Kind(holds(CONFIG, "{}")),
    "config.json begins with a byte order mark": Kind(encoded(CONFIG, "utf-8-sig")),
    "config.json is Latin-1": Kind(holds(CONFIG, '{"model_type": "llama", "name": "é"}'.encode("latin-1"))),
    "model_type is missing": Kind(lacks(CONFIG, "model_type")),
    "architectures is null": Kind(changed(CONFIG, architectures=(None, [])), opens=True),
    "the model brings program code": Kind(
        changed(CONFIG, model_type="own", auto_map={"AutoConfig": "own.Config", "AutoModelForCausalLM": "own.Model"})
    ),
    "hidden_size -1 and no heads": Kind(changed(CONFIG, hidden_size=-1, num_attention_heads=0)),
    "hidden_size is not that of the weights": Kind(changed(CONFIG, hidden_size=(32, 128, 96), head_dim=16)),
    "heads do not divide hidden_size": Kind(
        changed(CONFIG, num_attention_heads=(7, 5, 3)), ("llama", "qwen2", "gpt_neox", "gpt2")
    ),
    "sliding_window is wrong": Kind(
        changed(CONFIG, sliding_window=("wide", -1, 0, 1.5, [4], True, 1, 4)), ("mistral", "gemma3_text")
    ),
    "rope_theta is wrong": Kind(changed(CONFIG, rope_theta=("far", -1.0, 0), rope_parameters=None), WITH_ROPE[:3]),
    "rope parameters are wrong": Kind(changed(CONFIG, rope_parameters=ROPES), WITH_ROPE[:3]),
    "hidden_act is unknown": Kind(changed(CONFIG, hidden_act=("swish9", 4, None)), (*WITH_ROPE[:3], "gpt_neox")),
    "partial_rotary_factor is odd": Kind(
        changed(CONFIG, rope_parameters={
            "rope_theta": 1e4, "rope_type": "default", "partial_rotary_factor": (0.0, 3.0, "half"),
        }),
        ("gpt_neox",), opens=None,
    ),
    "return_dict and use_cache are off": Kind(changed(CONFIG, return_dict=False, use_cache=False), opens=True),
    "outputs of every kind are asked for": Kind(
        changed(CONFIG, output_hidden_states=True, output_attentions=True), opens=None
    ),
    "attention of its own": Kind(changed(CONFIG, _attn_implementation="flash_attention_2"), opens=True),
    "settings that nobody knows": Kind(changed(CONFIG, flux=1.21, num_labels=5, id2label={"0": "a"}), opens=None),
    # generation_config.json
    "no generation_config.json": Kind(without(GENERATION), opens=True),
    "generation_config.json: eos_token_id is no id": Kind(
        changed(GENERATION, eos_token_id=("end", ["end"], 1.5, {"id": 0}, [[0]]))
    ),
    "generation_config.json: ids out of range": Kind(
        changed(GENERATION, eos_token_id=(-1, 10**9, [0, -7])), opens=True
    ),
    "generation_config.json: other settings are wrong": Kind(
        changed(GENERATION, temperature=("hot", -1), cache_implementation="abacus", max_length="long"), opens=None
    ),
    # weights
    "weights are a socket": Kind(without(WEIGHTS, then=lambda folder: bind_socket(folder / WEIGHTS))),
    "weights are pickled": Kind(pickled),
    "a pickle is named safetensors": Kind(pickled_as_safetensors),
    "weights are in GGUF": Kind(
        without(WEIGHTS, then=lambda folder: (folder / "model.gguf").write_bytes(b"GGUF" + bytes(64)))
    ),
    "weights of an adapter alone": Kind(renamed(WEIGHTS, "adapter_model.safetensors")),
    "weights under another name": Kind(renamed(WEIGHTS, "weights.safetensors")),
    "the header places a tensor where it cannot be": Kind(
        in_header(data_offsets=([-4, 4], [0, 1 << 50], [8, 4], "ends", [0]))
    ),
    "the header names an unknown dtype": Kind(in_header(dtype=("F99", "", 3))),
    "the header has another shape": Kind(in_header(shape=([1], [-1, 4], "wide", [2**62, 4]))),
    "the header is no object": Kind(header(lambda _known, draws: draws.choice([[1], "x", 7]))),
    "the header is longer than the file": Kind(holds(WEIGHTS, (1 << 60).to_bytes(8, "little") + b"{}" * 99)),
    "a tensor is missing": Kind(tensors(without_one)),
    "a tensor has another shape": Kind(one_matrix(lambda matrix: matrix[:, :-1])),
    "a tensor is transposed": Kind(one_matrix(lambda matrix: matrix.T[: len(matrix) - 1])),
    "all tensors have other names": Kind(tensors(lambda state, _: {f"net.{name}": t for name, t in state.items()})),
    "tensors that nobody asked for": Kind(
        tensors(lambda state, _: {**state, "extra.weight": torch.ones(3)}), opens=True
    ),
    "a matrix is nan": Kind(one_matrix(lambda matrix: torch.full_like(matrix, float("nan")))),
    "one weight is nan": Kind(one_weight(float("nan"))),
    "one weight is infinite": Kind(one_weight(float("inf"))),
    "weights so large that logits overflow": Kind(one_matrix(lambda matrix: torch.full_like(matrix, 3e38)), opens=None),
    "all weights are zero": Kind(each_tensor(torch.zeros_like), opens=None),
    "weights are whole numbers": Kind(each_tensor(torch.Tensor.int), opens=None),
    "weights in bfloat16": Kind(each_tensor(torch.Tensor.bfloat16), opens=True),
    "weights of another model": Kind(of_another),
    # the index of shards
    "shards with an index": Kind(sharded(), opens=True),
    "the index points nowhere": Kind(sharded("model-00002-of-00002.safetensors")),
    "the index points out of the folder": Kind(sharded("../../../../etc/hostname")),
    "the index is no JSON or no object": Kind(sharded(index=holds(INDEX, *NO_JSON, *NO_OBJECT, ""))),
    "the index has no map": Kind(sharded(index=lacks(INDEX, "weight_map"))),
    "the map of the index is wrong": Kind(
        sharded(index=changed(INDEX, weight_map=(["a"], {}, {"lm_head.weight": 7})))
    ),
    # tokenizer
    "no tokenizer": Kind(without(TOKENIZER, TOKENIZER_CONFIG)),
    "tokenizer.json is an empty object": Kind(holds(TOKENIZER, "{}")),
    "tokenizer.json begins with a byte order mark": Kind(encoded(TOKENIZER, "utf-8-sig"), opens=None),
    "tokenizer.json is of an unknown kind": Kind(edited(TOKENIZER, lambda each, _: each["model"].update(type="Runes"))),
    "tokenizer.json: a negative id": Kind(tokens(lambda vocab, _: {**vocab, "nothing": -1})),
    "tokenizer.json: an id beyond all bounds": Kind(tokens(lambda vocab, _: {**vocab, "far": 10**12})),
    "tokenizer.json: ids with a gap": Kind(tokens(lambda vocab, _: {**vocab, "far": 60_000})),
    "tokenizer.json: two tokens with one id": Kind(tokens(lambda vocab, _: {**vocab, "twin": 700})),
    "tokenizer.json: two ids swapped": Kind(tokens(swapped)),
    "tokenizer.json: no vocabulary": Kind(tokens(lambda _vocab, _: {"a": 0})),
    "tokenizer.json: more tokens than the model has": Kind(tokens(more_tokens)),
    "tokenizer.json: merges of unknown tokens": Kind(
        edited(TOKENIZER, lambda each, _: each["model"].update(merges=[["qqq", "zzz"]]))
    ),
    "tokenizer.json: another tokenizer": Kind(edited(TOKENIZER, word_level)),
    "tokenizer.json: another tokenizer on both sides": Kind(edited(TOKENIZER, word_level), both=True),
    "tokenizer.json: every text becomes nothing": Kind(
        changed(TOKENIZER, normalizer={"type": "Replace", "pattern": {"Regex": "[\\s\\S]+"}, "content": ""}),
        both=True, opens=None,
    ),
    "tokenizer_config.json is no object or no JSON": Kind(holds(TOKENIZER_CONFIG, *NO_OBJECT, *NO_JSON, "")),
    "generation_config.json is no object or no JSON": Kind(holds(GENERATION, *NO_OBJECT, *NO_JSON, "")),
    "tokenizer_class is unknown": Kind(
        changed(TOKENIZER_CONFIG, tokenizer_class=("RuneTokenizer", 7, [])), opens=None
    ),
    "tokenizer brings program code": Kind(
        changed(TOKENIZER_CONFIG, tokenizer_class="Own", auto_map={"AutoTokenizer": ["own.Own", None]}), opens=None
    ),
    "special tokens are no tokens": Kind(changed(TOKENIZER_CONFIG, eos_token=(7, {"a": 1}, ["x"], True)), opens=None),
    "model_max_length is no number": Kind(changed(TOKENIZER_CONFIG, model_max_length=("long", -1, None)), opens=None),
    "added_tokens_decoder is wrong": Kind(
        changed(TOKENIZER_CONFIG, added_tokens_decoder=({"x": {"content": "<x>"}}, {"7": 7}, ["<x>"], {"-4": {}})),
        opens=None,
    ),
    "only a damaged tokenizer.model": Kind(
        without(TOKENIZER, then=lambda folder: (folder / "tokenizer.model").write_bytes(b"\n\x07\n\x05<unk>junk"))
    ),
    "only vocab.json without merges": Kind(
        without(TOKENIZER, then=lambda folder: (folder / "vocab.json").write_text('{"a": 0}')), opens=None
    ),
    # chat template
    "chat without a template": CHATTING(lambda folder, _: None),
    "the chat template is wrong": CHATTING(changed(TOKENIZER_CONFIG, chat_template=TEMPLATES)),
    "chat_template.jinja is a folder": Kind(lambda folder, _: (folder / "chat_template.jinja").mkdir(), opens=None),
    "a chat template that works": CHATTING(changed(TOKENIZER_CONFIG, chat_template=CHAT), opens=True),
}  # fmt: skip

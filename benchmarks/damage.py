"""Model folders as people have them: small random ones, and the ways in which a folder can be damaged or odd."""

import json
import os
import pickle
import shutil
import socket
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer, GenerationConfig

from decoding.models.presets import EMBEDDED_FOLDER

CONFIG, GENERATION, WEIGHTS, INDEX = (
    "config.json",
    "generation_config.json",
    "model.safetensors",
    "model.safetensors.index.json",
)
TOKENIZER, TOKENIZER_CONFIG = "tokenizer.json", "tokenizer_config.json"
WIDTH, LAYERS, HEADS, VOCAB, POSITIONS = 64, 2, 4, 4096, 512
WITH_ROPE = ("llama", "qwen2", "mistral", "gemma3_text")
# What Git leaves in the place of a file where LFS is not installed.
POINTER = "version https://git-lfs.github.com/spec/v1\noid sha256:{digest}\nsize {size}\n"
CHAT = "{% for message in messages %}{{ message['content'] }}{% endfor %}"

Damage = Callable[[Path, Random], None]


def sound_folder(folder: Path, model: str, seed: int = 0) -> Path:
    """Write a small random model with the tokenizer of the embedded pair."""
    torch.manual_seed(seed)
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
    AutoTokenizer.from_pretrained(EMBEDDED_FOLDER / "target").save_pretrained(folder)
    return folder


# ---- what damage is made of


def changed(file: str, **values: Any) -> Damage:
    """Settings of a JSON file get other values; a list is what to choose from where it is wrapped in `any_of`."""

    def damage(folder: Path, draws: Random) -> None:
        content = json.loads((folder / file).read_text(encoding="utf-8"))
        for name, value in values.items():
            content[name] = _drawn(value, draws)
        (folder / file).write_text(json.dumps(content), encoding="utf-8")

    return damage


@dataclass(frozen=True)
class Drawn:
    """Values of which one is drawn."""

    values: tuple[Any, ...]


def any_of(*values: Any) -> Drawn:
    """One of these."""
    return Drawn(values)


def _drawn(value: Any, draws: Random) -> Any:
    if isinstance(value, Drawn):
        return draws.choice(value.values)
    return {name: _drawn(each, draws) for name, each in value.items()} if isinstance(value, dict) else value


def config(**values: Any) -> Damage:
    """Other values in config.json."""
    return changed(CONFIG, **values)


def lacks(file: str, name: str) -> Damage:
    """A JSON file without one of its settings."""

    def damage(folder: Path, _draws: Random) -> None:
        content = json.loads((folder / file).read_text(encoding="utf-8"))
        content.pop(name, None)
        (folder / file).write_text(json.dumps(content), encoding="utf-8")

    return damage


def holds(file: str, *contents: str | bytes) -> Damage:
    """A file with another content, one of several."""

    def damage(folder: Path, draws: Random) -> None:
        content = draws.choice(contents)
        (folder / file).write_bytes(content if isinstance(content, bytes) else content.encode())

    return damage


def encoded(file: str, encoding: str) -> Damage:
    """A text file in another encoding."""

    def damage(folder: Path, _draws: Random) -> None:
        (folder / file).write_bytes((folder / file).read_text(encoding="utf-8").encode(encoding))

    return damage


def cut(file: str) -> Damage:
    """A file of which the end is missing."""

    def damage(folder: Path, draws: Random) -> None:
        content = (folder / file).read_bytes()
        (folder / file).write_bytes(content[: draws.randrange(1, len(content))])

    return damage


def removed(*files: str) -> Damage:
    """A folder without some files."""

    def damage(folder: Path, _draws: Random) -> None:
        for file in files:
            (folder / file).unlink(missing_ok=True)

    return damage


def in_place_of(file: str, make: Callable[[Path], Any]) -> Damage:
    """Something that is no file where a file should be."""

    def damage(folder: Path, _draws: Random) -> None:
        (folder / file).unlink(missing_ok=True)
        make(folder / file)

    return damage


def then(*damages: Damage) -> Damage:
    """One damage behind another."""

    def damage(folder: Path, draws: Random) -> None:
        for each in damages:
            each(folder, draws)

    return damage


def tensors(change: Callable[[dict[str, torch.Tensor], Random], Mapping[str, torch.Tensor] | None]) -> Damage:
    """Other tensors in the weights."""

    def damage(folder: Path, draws: Random) -> None:
        state = load_file(folder / WEIGHTS)
        state = change(state, draws) or state
        save_file({name: tensor.contiguous() for name, tensor in state.items()}, folder / WEIGHTS, {"format": "pt"})

    return damage


def header(change: Callable[[dict[str, Any], Random], Any]) -> Damage:
    """Another header in front of the weights."""

    def damage(folder: Path, draws: Random) -> None:
        content = (folder / WEIGHTS).read_bytes()
        length = int.from_bytes(content[:8], "little")
        known = json.loads(content[8 : 8 + length])
        text = json.dumps(change(known, draws) or known).encode()
        (folder / WEIGHTS).write_bytes(len(text).to_bytes(8, "little") + text + content[8 + length :])

    return damage


def vocabulary(change: Callable[[dict[str, Any], Random], Any]) -> Damage:
    """Another tokenizer.json."""

    def damage(folder: Path, draws: Random) -> None:
        content = json.loads((folder / TOKENIZER).read_text(encoding="utf-8"))
        content = change(content, draws) or content
        (folder / TOKENIZER).write_text(json.dumps(content), encoding="utf-8")

    return damage


def _one(state: Mapping[str, torch.Tensor], draws: Random) -> str:
    """Name of a matrix."""
    return draws.choice(sorted(name for name, tensor in state.items() if tensor.dim() == 2))


def filled(value: float, whole: bool) -> Callable:
    """A matrix, or one weight of it, gets another value."""

    def change(state, draws):
        tensor = state[_one(state, draws)]
        if whole:
            tensor.fill_(value)
        else:
            tensor[draws.randrange(len(tensor)), 0] = value

    return change


def reshaped(make: Callable[[torch.Tensor], torch.Tensor]) -> Callable:
    """A matrix of another shape."""

    def change(state, draws):
        name = _one(state, draws)
        return {**state, name: make(state[name])}

    return change


def without_one(state, draws):
    """A tensor of the second layer is missing."""
    name = draws.choice([name for name in sorted(state) if "layers.1." in name or "h.1." in name])
    return {other: tensor for other, tensor in state.items() if other != name}


def wrong_offsets(known, draws):
    """A header that places a tensor where it cannot be."""
    name = draws.choice(sorted(set(known) - {"__metadata__"}))
    known[name]["data_offsets"] = draws.choice([[-4, 4], [0, 1 << 50], [8, 4], "ends", [0]])


def sharded(map_to: str | None, **more: Any) -> Damage:
    """Weights in one shard with an index; `map_to` is where the index says that they are."""

    def damage(folder: Path, draws: Random) -> None:
        names = list(load_file(folder / WEIGHTS))
        (folder / WEIGHTS).rename(folder / "model-00001-of-00001.safetensors")
        place = map_to or "model-00001-of-00001.safetensors"
        index = {"metadata": {"total_size": 1}, "weight_map": dict.fromkeys(names, place), **more}
        (folder / INDEX).write_text(json.dumps(index), encoding="utf-8")

    return damage


def pickled(name: str) -> Damage:
    """Weights as a pickle of this name."""

    def damage(folder: Path, _draws: Random) -> None:
        state = load_file(folder / WEIGHTS)
        (folder / WEIGHTS).unlink()
        if name.endswith(".safetensors"):
            (folder / name).write_bytes(pickle.dumps({key: tensor.numpy() for key, tensor in state.items()}))
        else:
            torch.save(state, folder / name)

    return damage


def pointer(file: str) -> Damage:
    """What Git leaves without LFS."""

    def damage(folder: Path, _draws: Random) -> None:
        size = (folder / file).stat().st_size
        (folder / file).write_text(POINTER.format(digest="ab" * 32, size=size), encoding="utf-8")

    return damage


def emptied(folder: Path, _draws: Random) -> None:
    """A folder without a file."""
    shutil.rmtree(folder)
    folder.mkdir()


def further_down(folder: Path, _draws: Random) -> None:
    """The model lies in a folder of the folder."""
    whole = folder.with_name(f"{folder.name}-whole")
    folder.rename(whole)
    folder.mkdir()
    whole.rename(folder / "snapshot")


def as_a_file(folder: Path, _draws: Random) -> None:
    """The weights have the name of the folder."""
    content = (folder / WEIGHTS).read_bytes()
    shutil.rmtree(folder)
    folder.write_bytes(content)


def as_a_loop(folder: Path, _draws: Random) -> None:
    """A link to itself."""
    shutil.rmtree(folder)
    folder.symlink_to(folder)


def bind_socket(place: Path) -> None:
    """A socket in the place of a file."""
    here = os.getcwd()
    os.chdir(place.parent)  # the address of a socket holds 107 bytes
    try:
        with socket.socket(socket.AF_UNIX) as opened:
            opened.bind(place.name)
    finally:
        os.chdir(here)


def nested(depth: int) -> str:
    """Lists in lists."""
    return "[" * depth + "]" * depth


def tokens(change: Callable[[dict[str, int], Random], dict[str, int] | None]) -> Damage:
    """Another vocabulary in tokenizer.json."""

    def edit(content, draws):
        vocab = content["model"]["vocab"]
        content["model"]["vocab"] = change(vocab, draws) or vocab

    return vocabulary(edit)


def swapped(vocab, draws):
    """Two tokens have each other's id."""
    one, other = draws.sample([token for token, number in vocab.items() if number > 300], 2)
    vocab[one], vocab[other] = vocab[other], vocab[one]


def word_level(content, _draws):
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


def deaf(content, _draws):
    """Every text becomes nothing."""
    content["normalizer"] = {"type": "Replace", "pattern": {"Regex": "[\\s\\S]+"}, "content": ""}


def more_tokens(content, draws):
    """Tokens that the model has no rows for."""
    first = len(content["model"]["vocab"])
    for number in range(first, first + draws.choice([1, 5000])):
        content["model"]["vocab"][f"further{number}"] = number


def one_name(known: Mapping[str, Any], draws: Random) -> str:
    """Name of a tensor in a header."""
    return draws.choice(sorted(set(known) - {"__metadata__"}))


def of_another(folder: Path, _draws: Random) -> None:
    """Weights of a model of another kind."""
    model = json.loads((folder / CONFIG).read_text())["model_type"]
    other = sound_folder(folder.with_name(f"{folder.name}-other"), "gpt2" if model != "gpt2" else "llama")
    shutil.copy(other / WEIGHTS, folder / WEIGHTS)
    shutil.rmtree(other)

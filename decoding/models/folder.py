"""What a model folder must hold, read from its files alone; what cannot be is refused with one sentence. Torch-free.

Every check here raises `PairError`, which names the file, what is wrong with it and what to do. Nothing waits: of pipes
and sockets in the place of files nothing is read.
"""

import errno
import json
import math
import os
import re
import stat
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from decoding.common.errors import PairError

CONFIG, GENERATION, INDEX = "config.json", "generation_config.json", "model.safetensors.index.json"
TOKENIZER = "tokenizer.json"
TOKENIZER_CONFIG = "tokenizer_config.json"
SMALL_FILES = (CONFIG, GENERATION, INDEX, TOKENIZER_CONFIG, "special_tokens_map.json")
SHARD = re.compile(r"-\d{5}-of-\d{5}\.")
POINTER = b"version https://git-lfs"
PICKLES = ("*.bin", "*.pt", "*.pth", "*.ckpt")
MOST_HEADER_BYTES = 100_000_000  # what safetensors itself allows
FEWEST_POSITIONS, MOST_POSITIONS = 16, 2**31

# Settings of config.json under all the names that models give them, and the accepted range of each.
RANGES: dict[tuple[str, ...], tuple[int, int]] = {
    ("hidden_size", "n_embd", "d_model"): (1, 1_000_000),
    ("num_hidden_layers", "n_layer", "n_layers", "num_layers"): (1, 1_000),
    ("num_attention_heads", "n_head", "n_heads", "num_heads", "num_key_value_heads"): (1, 100_000),
    ("head_dim", "qk_rope_head_dim", "v_head_dim"): (1, 100_000),
    ("intermediate_size", "ffn_dim", "n_inner"): (1, 10_000_000),
    ("vocab_size",): (1, 10_000_000),
    ("max_position_embeddings", "n_positions", "n_ctx", "max_seq_len"): (FEWEST_POSITIONS, MOST_POSITIONS),
    ("sliding_window", "window_size", "attention_chunk_size"): (FEWEST_POSITIONS, MOST_POSITIONS),
}
WHOLE_NUMBERS = {name: limits for names, limits in RANGES.items() for name in names}
NEVER_NULL = {"hidden_size", "n_embd", "vocab_size", "max_position_embeddings", "n_positions"}
NEVER_NULL |= {"num_hidden_layers", "n_layer", "num_attention_heads", "n_head"}
POSITIVE = ("rope_theta", "rotary_emb_base")
ROPES = ("rope_parameters", "rope_scaling")
TOKENIZER_KINDS = ("BPE", "WordPiece", "WordLevel", "Unigram")
CONFIG_DTYPES = ("float32", "float16", "bfloat16", "float64")
AGAIN = "download the model again"


def check_folder(folder: Path, label: str) -> dict[str, Any]:
    """Refuse a folder whose files cannot be a model's; returns its configuration."""
    if not os.access(folder, os.R_OK | os.X_OK):
        raise PairError(f"{label} cannot be read (Permission denied); check the permissions of the folder.")
    if not os.path.lexists(folder / CONFIG):
        inner = next((each.parent.name for each in sorted(folder.glob(f"*/{CONFIG}"))), None)
        advice = f"its subfolder {inner} does: give that one" if inner else "give the folder the model was saved to"
        raise PairError(f"{label} has no {CONFIG}; {advice}.")
    content = {name: read_object(folder / name, label) for name in SMALL_FILES if os.path.lexists(folder / name)}
    config = content[CONFIG]
    check_values(config, label)
    if GENERATION in content:
        check_ids(content[GENERATION].get("eos_token_id"), "eos_token_id", GENERATION, label)
    tokenizer = content.get(TOKENIZER_CONFIG, {})
    name, template = tokenizer.get("tokenizer_class"), tokenizer.get("chat_template")
    if not isinstance(name, str | None):
        raise PairError(f"{TOKENIZER_CONFIG} of {label} has tokenizer_class {shown(name)}; it must be a name or null.")
    several = isinstance(template, list) and all(
        isinstance(e, dict) and {"name", "template"} <= set(e) for e in template
    )
    if not (isinstance(template, str | None) or several):
        raise PairError(
            f"{TOKENIZER_CONFIG} of {label} has chat_template {shown(template)}; it must be a string or null."
        )
    added = tokenizer.get("added_tokens_decoder", {})
    if not (isinstance(added, dict) and all(i.isdecimal() and isinstance(token, dict) for i, token in added.items())):
        raise PairError(
            f"{TOKENIZER_CONFIG} of {label} has added_tokens_decoder {shown(added)}; it must be an object that maps "
            "ids to tokens."
        )
    check_weight_files(folder, label, content.get(INDEX))
    return config


def read_object(file: Path, label: str) -> dict[str, Any]:
    """The object in a JSON file."""
    return parse_object(_bytes(file, label), f"{file.name} of {label}")


def parse_object(text: bytes, name: str) -> dict[str, Any]:
    """The object that a JSON text is; `name` is what a refusal calls it."""
    again = "download it again"
    if not text.strip():
        raise PairError(f"{name} is empty; {again}.")
    try:
        content = json.loads(text.decode("utf-8"))
    except RecursionError:
        raise PairError(f"{name} is nested too deeply; {again}.") from None
    except UnicodeDecodeError:
        raise PairError(f"{name} is not UTF-8 text; save it as UTF-8, or {again}.") from None
    except json.JSONDecodeError as error:
        if text.startswith(b"\xef\xbb\xbf"):
            raise PairError(f"{name} starts with a byte order mark; save it as UTF-8 without one.") from None
        where = f"line {error.lineno}, column {error.colno}"
        raise PairError(f"{name} is not valid JSON ({error.msg.rstrip(':')}, {where}); {again}.") from None
    except ValueError as error:  # a number of more digits than Python reads
        raise PairError(f"{name} has a number with too many digits ({len(text):,} bytes of text); {again}.") from error
    if not isinstance(content, dict):
        kinds = {list: "a list", str: "a string", bool: "true or false", type(None): "null"}
        kind = kinds.get(type(content), "a number")
        raise PairError(f"{name} contains {kind} instead of an object in {{ }}; {again}.")
    return content


def check_values(config: Mapping[str, Any], label: str, part: str = "") -> None:
    """Refuse settings of a configuration, or of a `part` of it, that no model can have."""

    def refuse(name: str, value: Any, rule: str) -> None:
        raise PairError(f"{CONFIG} of {label} has {part}{name} {shown(value)}; it must be {rule}.")

    model_type, saved, text = (config.get(name) for name in ("model_type", "architectures", "text_config"))
    if "model_type" in config and not (isinstance(model_type, str) and model_type):
        refuse("model_type", model_type, "a string such as llama")
    if not (isinstance(saved, str | None) or _is_list(saved, str)):
        refuse("architectures", saved, "a list of names such as LlamaForCausalLM")
    if not isinstance(text, dict | None):
        refuse("text_config", text, "an object with the settings of the language model")
    if text is not None:
        check_values(text, label, "text_config.")
    if config.get("layer_types") is not None and not _is_list(config["layer_types"], str):
        refuse("layer_types", config["layer_types"], "a list of strings, one per layer")
    if not isinstance(config.get("quantization_config"), dict | None):
        refuse("quantization_config", config["quantization_config"], "an object or null")
    for name, (low, high) in WHOLE_NUMBERS.items():
        value = config.get(name, low)
        if name == "sliding_window" and value == 0 and config.get("use_sliding_window") is False:
            continue  # transformers itself writes it where no layer has a window
        judged = name in NEVER_NULL or isinstance(value, str | bool | float | int)  # a list has one for each layer
        if judged and not (_is_whole(value) and low <= value <= high):
            refuse(name, value, f"a whole number from {low:,} to {high:,}")
    for name in POSITIVE:
        value = config.get(name)
        if value is not None and not (_is_number(value) and 0 < value < math.inf):
            refuse(name, value, "a number above 0")
    for name in ROPES:
        check_rope(config.get(name), f"{CONFIG} of {label}", part + name)
    for name in ("dtype", "torch_dtype"):
        value = config.get(name)
        known = value is None or isinstance(value, dict)  # one per part of a model
        if not known and not (isinstance(value, str) and value.removeprefix("torch.") in CONFIG_DTYPES):
            refuse(name, value, f"one of {', '.join(CONFIG_DTYPES)}")
    check_ids(config.get("eos_token_id"), f"{part}eos_token_id", CONFIG, label)


def check_rope(value: Any, place: str, name: str) -> None:
    """Refuse parameters of rotary positions that are neither names nor numbers above 0."""
    if value is None:
        return
    if not isinstance(value, dict):
        raise PairError(f"{place} has {name} {shown(value)}; it must be an object or null.")
    for part, each in value.items():
        if isinstance(each, dict):  # one for each type of layers
            check_rope(each, place, f"{name}.{part}")
        elif part in ("rope_type", "type"):
            if not isinstance(each, str):
                raise PairError(f"{place} has {name}.{part} {shown(each)}; it must be a name such as default or yarn.")
        elif part == "partial_rotary_factor" and not (_is_number(each) and 0 <= each <= 1):
            raise PairError(f"{place} has {name}.{part} {shown(each)}; it must be a number from 0 to 1.")
        elif isinstance(each, str) or (_is_number(each) and not 0 <= each < math.inf):
            raise PairError(f"{place} has {name}.{part} {shown(each)}; it must be a number, 0 or more.")


def check_ids(value: Any, name: str, file: str, label: str) -> None:
    """Refuse what is neither a token id, nor a list of them, nor null."""
    if value is not None and not (_is_whole(value) or _is_list(value, int)):
        raise PairError(f"{file} of {label} has {name} {shown(value)}; it must be a token id, a list of them, or null.")


def check_weight_files(folder: Path, label: str, index: Mapping[str, Any] | None = None) -> None:
    """Refuse a folder without safetensors weights, or with files that cannot be read as such; `index` is of shards."""
    if not any(folder.glob("*.safetensors")):
        pickled = next((file for pattern in PICKLES for file in folder.glob(pattern)), None)
        if pickled:
            raise PairError(
                f"{label} has only {pickled.name}, a pickle, which can run code when loaded; "
                "give a folder with safetensors weights."
            )
        other = next(folder.glob("*.gguf"), None)
        if other:
            raise PairError(
                f"{label} has only {other.name}: name that file itself, or give a folder with safetensors weights."
            )
        raise PairError(f"{label} has no weights; download model.safetensors into it.")
    if os.path.lexists(folder / "model.safetensors"):
        check_header(folder / "model.safetensors", label)
    elif index is not None:
        places = index.get("weight_map")
        if not isinstance(places, dict) or not places or not all(isinstance(place, str) for place in places.values()):
            raise PairError(f"{INDEX} of {label} does not say which file holds which tensor (weight_map); {AGAIN}.")
        for name in sorted(set(places.values())):
            if os.path.basename(name) != name:
                raise PairError(f"{INDEX} of {label} names {shown(name)}, which is outside the folder; {AGAIN}.")
            if not os.path.lexists(folder / name):
                raise PairError(f"{label} lacks {name}, which {INDEX} lists; download that file too.")
            check_header(folder / name, label)
    else:
        found = next(iter(sorted(folder.glob("*.safetensors"))))
        if found.name.startswith("adapter"):
            raise PairError(f"{label} has only a LoRA adapter; merge it into its base model and give that folder.")
        if SHARD.search(found.name):
            raise PairError(f"{label} has {found.name} without {INDEX}, which lists the shards; download it too.")
        raise PairError(f"{label} has {found.name} instead of model.safetensors; rename it, or {AGAIN}.")


def check_header(file: Path, label: str) -> dict[str, Any]:
    """The header of a safetensors file: name, dtype, shape and place of each tensor."""
    name = f"{file.name} of {label}"
    start = _bytes(file, label, 8 + len(POINTER))
    size = file.stat().st_size
    if size < 8:
        raise PairError(f"{name} is damaged: it has only {size} bytes; download it again.")
    (length,) = struct.unpack("<Q", start[:8])
    if length > min(size - 8, MOST_HEADER_BYTES):
        raise PairError(f"{name} is damaged: it is truncated or not a safetensors file; download it again.")
    try:
        header = json.loads(_bytes(file, label, 8 + length)[8:])
        entries = {key: entry for key, entry in header.items() if key != "__metadata__"}
        end = max((entry["data_offsets"][1] for entry in entries.values()), default=0)
        whole = 8 + length + end == size
        weights = sum(math.prod(entry["shape"]) for entry in entries.values())
        sound = True
        for entry in entries.values():  # its numbers have place, at half a byte each at least
            begin, stop = entry["data_offsets"]
            sizes = all(_is_whole(size) and size >= 0 for size in entry["shape"])
            sound &= isinstance(entry["dtype"], str) and sizes and math.prod(entry["shape"]) <= 2 * (stop - begin)
    except (ValueError, RecursionError, AttributeError, TypeError, LookupError):
        raise PairError(f"{name} is damaged: its header cannot be read; download it again.") from None
    if not whole:
        held, said = f"{size:,} bytes", f"{8 + length + end:,}"
        raise PairError(f"{name} is damaged: it has {held}, and its header describes {said}; download it again.")
    if not sound:
        raise PairError(f"{name} is damaged: its header describes impossible tensors; download it again.")
    if not entries or weights == 0:
        raise PairError(f"{name} contains no tensors; download it again.")
    return entries


def stored_parameters(folder: Path) -> int:
    """Number of weights in the safetensors files of a folder, read from their headers."""
    files = list(folder.glob("model*.safetensors")) or list(folder.glob("*.safetensors"))
    headers = (check_header(file, folder.name) for file in files)
    return sum(math.prod(entry["shape"]) for header in headers for entry in header.values())


def explain_tokenizer(folder: Path, label: str) -> None:
    """Say what is wrong with tokenizer files that could not be loaded, where that can be seen."""
    name = f"{TOKENIZER} of {label}"
    if not os.path.lexists(folder / TOKENIZER):
        raise PairError(f"{label} has no {TOKENIZER}, and its other tokenizer files cannot be read; download it too.")
    model = read_object(folder / TOKENIZER, label).get("model")
    if not isinstance(model, dict) or not model.get("vocab"):
        raise PairError(f"{name} has no vocabulary; download it again.")
    if model.get("type", "BPE") not in TOKENIZER_KINDS:
        kinds = ", ".join(TOKENIZER_KINDS)
        raise PairError(f"{name} has a model of type {shown(model['type'])}; it must be one of {kinds}.")
    numbers = model["vocab"].values() if isinstance(model["vocab"], dict) else ()
    wrong = next((number for number in numbers if not _is_whole(number) or not 0 <= number < 2**32), None)
    if wrong is not None:
        raise PairError(
            f"{name} has a token with the id {shown(wrong)}; ids are whole numbers from 0 to {2**32 - 1:,}."
        )


def shown(value: Any) -> str:
    """A value as JSON writes it, shortened."""
    text = json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= 60 else f"{text[:57]}..."


def _bytes(file: Path, label: str, most: int = -1) -> bytes:
    """The first bytes of a file; a pointer to one, or anything else of its name, is refused."""
    name = f"{file.name} of {label}"
    try:
        mode = file.stat().st_mode
        if not stat.S_ISREG(mode):
            what = "a folder" if stat.S_ISDIR(mode) else "a pipe or a device"
            raise PairError(f"{name} is {what}, not a file; {AGAIN}.")
        with file.open("rb") as stream:
            held = stream.read(most)
    except OSError as error:
        if error.errno in (errno.ENOENT, errno.ELOOP):
            raise PairError(f"{name} is a broken link; download the file itself.") from None
        raise PairError(f"{name} cannot be read ({error.strerror}); check its permissions.") from None
    if held.startswith(POINTER):
        raise PairError(
            f"{name} is only a Git LFS pointer; run `git lfs pull` in its folder, or download the file itself."
        )
    return held


def _is_whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_list(value: Any, kind: type) -> bool:
    return isinstance(value, list) and all(isinstance(each, kind) and not isinstance(each, bool) for each in value)

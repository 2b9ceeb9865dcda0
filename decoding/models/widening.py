"""The embedded pair widened: the same function at the cost of a larger model.

A wide model holds whole numbers of copies of the width, with heads of the same size; every copy computes the same. A
weight is divided among the copies of its input in powers of two, which round none of this pair's in any dtype.
"""

import hashlib
import json
import re
import shutil
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor
from transformers.models.gpt_neox.configuration_gpt_neox import GPTNeoXConfig
from transformers.models.gpt_neox.modeling_gpt_neox import GPTNeoXForCausalLM

from decoding.common.errors import PairError, require
from decoding.common.files import write_whole
from decoding.models.embedded import EMBEDDED_FOLDER, embedded_folder
from decoding.models.presets import DTYPE_BYTES, EMBEDDED, choose_device, model_shape


@dataclass(frozen=True)
class WideShape:
    """What a GPT-NeoX model looks like from outside; rotary share, residual and context stay those of the source."""

    name: str
    hidden_size: int
    layers: int
    heads: int
    intermediate_size: int
    vocab_size: int

    @property
    def folder(self) -> str:
        """Name of the folder to write, by which tables and pages call the model."""
        return f"widened-{self.name}"


# From the published configurations. Only pythia-2.8b has the embedded target's heads of 80; 70m, 160m and 410m have
# the draft's heads of 64.
PYTHIA_2_8B = WideShape("pythia-2.8b", 2560, 32, 32, 10240, 50_304)
PYTHIA_70M = WideShape("pythia-70m", 512, 6, 8, 2048, 50_304)
PYTHIA_160M = WideShape("pythia-160m", 768, 12, 12, 3072, 50_304)
PYTHIA_410M = WideShape("pythia-410m", 1024, 24, 16, 4096, 50_304)
# Two copies, two more layers and a padded vocabulary: everything that the large shapes have, for tests.
TINY_TARGET = WideShape("tiny-target", 640, 10, 8, 2560, 4608)
TINY_DRAFT = WideShape("tiny-draft", 512, 4, 8, 2048, 4608)

# Shapes of a target and a draft to widen to.
LIKES: dict[str, dict[str, WideShape]] = {
    "pythia-2.8b": {"target": PYTHIA_2_8B, "draft": PYTHIA_70M},
    "pythia-2.8b+160m": {"target": PYTHIA_2_8B, "draft": PYTHIA_160M},
    "pythia-2.8b+410m": {"target": PYTHIA_2_8B, "draft": PYTHIA_410M},
    "tiny": {"target": TINY_TARGET, "draft": TINY_DRAFT},
}


WIDENED_FROM = "draftscope_widened_from"  # key in config.json: which model the weights really are
PADDED_LOGIT = -60.0  # the largest real logit of the embedded pair lies between 4 and 27 everywhere
MAX_PADDED_WEIGHT = 8.0  # a larger one would carry 16-bit rounding of the norm's output into the padded logit
MAX_SHARD_BYTES = 1_000_000_000

EMBEDDING, HEAD = "gpt_neox.embed_in.weight", "lm_head.weight"
NORM_GAIN, NORM_BIAS = "gpt_neox.final_layer_norm.weight", "gpt_neox.final_layer_norm.bias"
LAYER = re.compile(r"(gpt_neox\.layers\.)(\d+)\.(.+)")
OUTPUT_PROJECTION = re.compile(r"(attention\.dense|mlp\.dense_4h_to_h)\.(weight|bias)")
ATTENTION_BIASES = ("attention.query_key_value.bias", "attention.dense.bias")


def target_shape(copies: int) -> WideShape:
    """The embedded target some times as wide, with its own layers and vocabulary."""
    config = json.loads((EMBEDDED_FOLDER / "target" / "config.json").read_text(encoding="utf-8"))
    return WideShape(
        name=f"embedded-target-{copies}x",
        hidden_size=copies * config["hidden_size"],
        layers=config["num_hidden_layers"],
        heads=copies * config["num_attention_heads"],
        intermediate_size=copies * config["intermediate_size"],
        vocab_size=config["vocab_size"],
    )


@dataclass(frozen=True)
class Narrow:
    """A model of the embedded pair: its configuration, its weights by name in float32, the hash of their file."""

    role: str
    config: dict[str, Any]
    weights: dict[str, Tensor]
    sha256: str


def load_narrow(role: str, device: str = "cpu") -> Narrow:
    """Read the `target` or the `draft` of the embedded pair."""
    folder = embedded_folder(role)
    file = folder / "model.safetensors"
    weights = {name: weight.to(device, torch.float32) for name, weight in load_file(file).items()}
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    return Narrow(role, config, weights, hashlib.sha256(file.read_bytes()).hexdigest())


def shares(copies: int) -> list[float]:
    """Powers of two, as equal as they can be, that sum to one: three copies have a half, a quarter and a quarter."""
    power = 2 ** (copies.bit_length() - 1)
    halved = 2 * (copies - power)
    return [1 / power] * (copies - halved) + [0.5 / power] * halved


class Widening:
    """One model of the embedded pair and the shape and dtype to widen it to; weights are made one at a time.

    Raises `SettingsError` where the shape is not a whole number of copies of the model.
    """

    def __init__(self, narrow: Narrow, shape: WideShape, dtype: str):
        self.narrow, self.shape, self.dtype = narrow, shape, getattr(torch, dtype)
        hidden, heads = narrow.config["hidden_size"], narrow.config["num_attention_heads"]
        self.copies = copies = shape.hidden_size // hidden
        padded = shape.vocab_size - narrow.config["vocab_size"]
        require(
            copies >= (2 if padded else 1)
            and shape.hidden_size == copies * hidden
            and shape.heads == copies * heads
            and shape.intermediate_size == copies * narrow.config["intermediate_size"]
            and shape.layers >= narrow.config["num_hidden_layers"]
            and padded >= 0,
            f"{shape.name} ({shape.hidden_size} wide, {shape.heads} heads, {shape.layers} layers) cannot be made of "
            f"copies of the embedded {narrow.role} ({hidden} wide, {heads} heads, "
            f"{narrow.config['num_hidden_layers']} layers); choose one of {', '.join(LIKES)}.",
        )
        origin = {
            "model": f"embedded {narrow.role}",
            "sha256": narrow.sha256,
            "copies": copies,
            "layers": narrow.config["num_hidden_layers"],
            "vocab_size": narrow.config["vocab_size"],
        }
        self.config: dict[str, Any] = narrow.config | {
            "hidden_size": shape.hidden_size,
            "num_hidden_layers": shape.layers,
            "num_attention_heads": shape.heads,
            "intermediate_size": shape.intermediate_size,
            "vocab_size": shape.vocab_size,
            "attention_bias": True,
            "tie_word_embeddings": False,
            "dtype": dtype,
            WIDENED_FROM: origin,
        }
        self._padded = padded > 0
        with torch.device("meta"):
            wide = GPTNeoXForCausalLM(GPTNeoXConfig.from_dict(self.config))
        self.shapes = {name: weight.shape for name, weight in wide.state_dict().items()}

    def state(self) -> dict[str, Tensor]:
        """All weights of the wide model."""
        return {name: self.tensor(name) for name in self.shapes}

    def tensor(self, name: str) -> Tensor:
        """One weight of the wide model, by its name in `shapes`."""
        if name == EMBEDDING:
            ids = torch.arange(self.shape.vocab_size, device=self.narrow.weights[EMBEDDING].device)
            rows = self.narrow.weights[EMBEDDING].to(self.dtype)
            return rows[ids % len(rows)].repeat(1, self.copies)
        if name == HEAD:
            return self._head()
        if name == NORM_BIAS:
            return self._norm_bias()
        layer = LAYER.fullmatch(name)
        if layer is not None:
            real_layers = self.narrow.config["num_hidden_layers"]
            prefix, index, part = layer[1], int(layer[2]), layer[3]
            unknown = part in ATTENTION_BIASES and not self.narrow.config["attention_bias"]
            if unknown or (index >= real_layers and OUTPUT_PROJECTION.fullmatch(part)):
                return torch.zeros(self.shapes[name], dtype=self.dtype)
            name = f"{prefix}{index % real_layers}.{part}"
        weight = self.narrow.weights[name]
        if weight.ndim == 1:
            return weight.to(self.dtype).repeat(self.copies)
        return self._divided(weight).repeat(self.copies, 1)

    def _divided(self, weight: Tensor) -> Tensor:
        """`[outputs, inputs]` to `[outputs, copies * inputs]`: each copy of the inputs has its share of the weight."""
        return torch.cat([(weight * share).to(self.dtype) for share in shares(self.copies)], 1)

    def _norm_bias(self) -> Tensor:
        bias = self.narrow.weights[NORM_BIAS]
        wide = bias.repeat(self.copies)
        if self._padded:
            wide[: len(bias)] += 1
            wide[len(bias) : 2 * len(bias)] -= 1
        return wide.to(self.dtype)

    def _head(self) -> Tensor:
        tied = self.narrow.config["tie_word_embeddings"]
        real = self.narrow.weights[EMBEDDING if tied else HEAD]
        head = torch.zeros(self.shapes[HEAD], dtype=self.dtype, device=real.device)
        head[: len(real)] = self._divided(real)
        if self._padded:
            head[len(real) :, : real.shape[1]] = self._padded_row().to(self.dtype)
        return head

    def _padded_row(self) -> Tensor:
        """Output weights of a padded id on the first copy, `[narrow hidden_size]`, from the norm as it is stored."""
        gain = self.narrow.weights[NORM_GAIN].to(self.dtype).float()
        bias = self._norm_bias()[: len(gain)].float()
        row = PADDED_LOGIT / (bias / gain).sum() / gain
        if not row.abs().max() <= MAX_PADDED_WEIGHT:
            raise PairError(
                f"The final norm's gain of the embedded {self.narrow.role} is too close to zero to exclude padded "
                "ids; train the pair again or widen to a shape without padded ids."
            )
        return row

    def shards(self) -> list[list[str]]:
        """Names of the weights, file by file, each file at most `MAX_SHARD_BYTES` unless one weight is larger."""
        shards: list[list[str]] = []
        room = 0
        for name in self.shapes:
            size = self.weight_bytes([name])
            if size > room:
                shards.append([])
                room = MAX_SHARD_BYTES
            shards[-1].append(name)
            room -= size
        return shards

    def weight_bytes(self, names: Iterable[str] | None = None) -> int:
        """Bytes of the weights named, of all where none are named."""
        return sum(self.shapes[name].numel() * self.dtype.itemsize for name in names or self.shapes)


def widened_target(copies: int, dtype: str) -> Widening:
    """The embedded target that many times as wide."""
    return Widening(load_narrow("target"), target_shape(copies), dtype)


def embedded_origin(config: Any) -> dict[str, Any] | None:
    """Which embedded model a wide one is made of, as `pair_identity` describes models, and the number of `copies`.

    None for any other model, and where padded ids make the copies of its features differ.
    """
    origin = getattr(config, WIDENED_FROM, None)
    if origin is None or origin["vocab_size"] != config.vocab_size:
        return None
    role = origin["model"].removeprefix("embedded ")
    shape = model_shape(EMBEDDED, role)
    sizes = {name: origin[name] for name in ("copies", "layers", "vocab_size")}
    return None if shape is None else {"name": f"embedded-{role}", "parameters": shape.parameters} | sizes


SMALL_FILES_BYTES = 1_000_000  # configuration, index and tokenizer of one model


class PairFolders(NamedTuple):
    """Where a widened pair lies, for `PairSettings`."""

    target: Path
    draft: Path


def widened_pair_folders(
    like: str, out: Path | str, dtype: str = "bfloat16", device: str = "cpu", report: Callable[[str], None] = print
) -> PairFolders:
    """The folders `widened-...` of a pair below `out`; each is written unless it already holds just that model.

    `like` is a key of `LIKES`, `dtype` what the weights are stored in, `device` where they are widened; `report` takes
    lines of progress. Raises `SettingsError` for an unknown shape or dtype, `PairError` where a folder holds something
    else or cannot be written, the disk has no room, or there is no such device.
    """
    require(like in LIKES, f"There is no shape {like!r} to widen to: choose one of {', '.join(LIKES)}.")
    require(dtype in DTYPE_BYTES, f"dtype is {dtype!r}; choose one of {', '.join(DTYPE_BYTES)}.")
    device, out = choose_device(device), Path(out).expanduser()
    models = [Widening(load_narrow(role, device), shape, dtype) for role, shape in LIKES[like].items()]
    try:
        missing = [model for model in models if not _is_there(model, out / model.shape.folder)]
        need = sum(model.weight_bytes() + SMALL_FILES_BYTES for model in missing)
        free = shutil.disk_usage(next(each for each in (out.resolve(), *out.resolve().parents) if each.exists())).free
        if need > free:
            raise PairError(
                f"The widened pair needs {need / 1e9:.1f} GB and the disk of {out} has {free / 1e9:.1f} GB free: free "
                "some space, choose another folder or a 16-bit dtype."
            )
        for model in missing:
            _write(model, out / model.shape.folder, report)
    except (OSError, SafetensorError) as error:
        reason = getattr(error, "strerror", None) or error
        raise PairError(f"{out} could not be written ({reason}): choose another folder.") from error
    return PairFolders(*(out / model.shape.folder for model in models))


def _is_there(model: Widening, folder: Path) -> bool:
    """Whether a folder holds a whole widened model of this origin, shape and dtype; False if it is empty or missing."""
    if not folder.exists() or (folder.is_dir() and not any(folder.iterdir())):
        return False
    config = folder / "config.json"  # written last
    if config.is_file() and config.read_bytes() == _json(model.config):
        return True
    raise PairError(f"{folder} contains something else or is incomplete: delete it or choose another folder.")


def _write(model: Widening, folder: Path, report: Callable[[str], None]) -> None:
    """Write one model, a shard in memory at a time; config.json comes last and marks the folder as whole."""
    folder.mkdir(parents=True, exist_ok=True)
    shards, total, written = model.shards(), model.weight_bytes(), 0
    files: dict[str, str] = {}
    for number, names in enumerate(shards, start=1):
        file = f"model-{number:05d}-of-{len(shards):05d}.safetensors"
        save_file({name: model.tensor(name).cpu() for name in names}, folder / file, metadata={"format": "pt"})
        files |= dict.fromkeys(names, file)
        written += model.weight_bytes(names)
        report(f"{folder.name}: {written / 1e9:.2f} of {total / 1e9:.2f} GB written, file {number} of {len(shards)}")
    index = {"metadata": {"total_size": total}, "weight_map": files}
    write_whole(folder / "model.safetensors.index.json", _json(index))
    source = embedded_folder(model.narrow.role)
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copyfile(source / name, folder / name)
    generation = json.loads((source / "generation_config.json").read_text(encoding="utf-8"))
    write_whole(folder / "generation_config.json", _json(generation | {"use_cache": True}))
    write_whole(folder / "config.json", _json(model.config))


def _json(content: dict[str, Any]) -> bytes:
    return (json.dumps(content, indent=2) + "\n").encode()

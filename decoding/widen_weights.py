"""Widen one model of the embedded pair to a larger shape, weight by weight, so that it computes the same function.

A hidden vector of the wide model is that of the narrow one, `copies` times in a row, which layer norms do not notice.
A linear layer repeats its weights along both dimensions, divided by `copies`, because every output sums over all
copies of the input; query-key-value rows lie head by head, so that repeating them repeats whole heads. Further layers
are copies of the real ones whose two output projections are zero: they cost what a layer costs and add nothing.

Padded ids must never be emitted. The final norm's bias is raised by 1 on the first copy and lowered by 1 on the second,
which cancels in the logits of real ids. The output rows of padded ids are `c / gain` on the first copy and zero
elsewhere: `sum(c / gain * (gain * z + bias + 1)) = c * sum((bias + 1) / gain)`, since a normalised vector `z` sums to
zero; `c` makes this constant `PADDED_LOGIT`. As inputs, padded ids repeat real ones.

Dividing by 2, 4 or 8 copies rounds no weight (but for float16 below 5e-4): the weights are those that the embedded pair
itself has in the dtype. Only the final norm's raised and lowered bias is rounded; with bfloat16 weights this moves a
logit by up to 3e-3, where the activations' rounding moves it by 1e-1.
"""

import hashlib
import json
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import torch
from safetensors.torch import load_file
from torch import Tensor
from transformers import GPTNeoXConfig, GPTNeoXForCausalLM

from decoding.errors import PairError, require
from decoding.presets import EMBEDDED_FOLDER
from decoding.widen_shapes import LIKES, WideShape

WIDENED_FROM = "draftscope_widened_from"  # key in config.json: which model the weights really are
PADDED_LOGIT = -60.0  # the largest real logit of the embedded pair lies between 4 and 27 everywhere
MAX_PADDED_WEIGHT = 8.0  # a larger one would carry 16-bit rounding of the norm's output into the padded logit
MAX_SHARD_BYTES = 1_000_000_000

EMBEDDING, HEAD = "gpt_neox.embed_in.weight", "lm_head.weight"
NORM_GAIN, NORM_BIAS = "gpt_neox.final_layer_norm.weight", "gpt_neox.final_layer_norm.bias"
LAYER = re.compile(r"(gpt_neox\.layers\.)(\d+)\.(.+)")
OUTPUT_PROJECTION = re.compile(r"(attention\.dense|mlp\.dense_4h_to_h)\.(weight|bias)")
ATTENTION_BIASES = ("attention.query_key_value.bias", "attention.dense.bias")


@dataclass(frozen=True)
class Narrow:
    """A model of the embedded pair: its configuration, its weights by name in float32, the hash of their file."""

    role: str
    config: dict[str, Any]
    weights: dict[str, Tensor]
    sha256: str


def load_narrow(role: str, device: str = "cpu") -> Narrow:
    """Read the `target` or the `draft` of the embedded pair."""
    folder = EMBEDDED_FOLDER / role
    file = folder / "model.safetensors"
    weights = {name: weight.to(device, torch.float32) for name, weight in load_file(file).items()}
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    return Narrow(role, config, weights, hashlib.sha256(file.read_bytes()).hexdigest())


class Widening:
    """One model of the embedded pair and the shape and dtype to widen it to; weights are made one at a time.

    Raises:
        SettingsError: the shape is not a whole number of copies of the model.
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
        self.config = self._config(dtype)
        with torch.device("meta"):
            wide = GPTNeoXForCausalLM(GPTNeoXConfig.from_dict(self.config))
        self.shapes = {name: weight.shape for name, weight in wide.state_dict().items()}

    def _config(self, dtype: str) -> dict[str, Any]:
        narrow, shape = self.narrow, self.shape
        origin = {
            "model": f"embedded {narrow.role}",
            "sha256": narrow.sha256,
            "copies": self.copies,
            "layers": narrow.config["num_hidden_layers"],
            "vocab_size": narrow.config["vocab_size"],
        }
        return narrow.config | {
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
        return (weight / self.copies).to(self.dtype).repeat(self.copies, self.copies)

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
        head[: len(real)] = (real / self.copies).to(self.dtype).repeat(1, self.copies)
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
                f"The final norm's gain of the embedded {self.narrow.role} comes too near to zero to keep padded ids "
                "out; train the pair again or widen to a shape without padded ids."
            )
        return row

    @property
    def _padded(self) -> bool:
        return self.shape.vocab_size > self.narrow.config["vocab_size"]

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

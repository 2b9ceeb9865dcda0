"""The two networks of the embedded pair: shapes, how they begin and are stored, and their forward pass in training."""

import copy
import json
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812
from safetensors import SafetensorError
from safetensors.torch import load_file, save
from torch import Tensor, nn
from transformers import GPTNeoXConfig, GPTNeoXForCausalLM

from decoding.common.errors import TrainingError
from decoding.common.files import disk_errors, write_whole
from decoding.models.presets import cpu_computes_bfloat16
from decoding.models.vocabulary import Vocabulary
from decoding.training.pair_tokens import CONTEXT, END_ID, load_tokenizer

ASK_EVERY = 16  # tokens between two looks at which texts need not go on
BLOCK = 256  # queries whose scores are computed together
Rotation = tuple[Tensor, Tensor]


class RowCache:
    """Keys and values of `rows` rows that grow together, to `size` tokens at most."""

    def __init__(self, network: GPTNeoXForCausalLM, rows: int, size: int, dtype: torch.dtype):
        config = network.config
        shape = (rows, config.num_attention_heads, size, config.hidden_size // config.num_attention_heads)
        self.length = 0
        self._kept = torch.empty((config.num_hidden_layers, 2, *shape), dtype=dtype, device=network.device)

    def put(self, layer: int, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        """Append to a layer; returns all its keys and values."""
        end = self.length + key.shape[2]
        keys, values = self._kept[layer]
        keys[:, :, self.length : end], values[:, :, self.length : end] = key, value
        return keys[:, :, :end], values[:, :, :end]

    def keep(self, rows: Tensor) -> None:
        """Drop the other rows; `rows` are their numbers or say which."""
        self._kept = self._kept[:, :, rows]


def compute_dtype(device: torch.device) -> torch.dtype:
    """bfloat16 where the device has instructions for it."""
    fast = device.type == "cuda" or (device.type == "cpu" and cpu_computes_bfloat16())
    return torch.bfloat16 if fast else torch.float32


def hidden_states(
    network: GPTNeoXForCausalLM, tokens: Tensor, dtype: torch.dtype, cache: RowCache | None = None
) -> Tensor:
    """What the output head multiplies, `[rows, window, width]` in `dtype`; the residual stream stays in float32.

    Each row of `tokens` `[rows, window]` begins at position 0, or after what the cache holds.
    """
    body, heads = network.gpt_neox, network.config.num_attention_heads
    layer: Any  # parts of a module of transformers are no declared attributes
    residual = body.embed_in(tokens).float()
    past = 0 if cache is None else cache.length
    positions = torch.arange(past, past + tokens.shape[1], device=tokens.device)
    angles = positions[:, None] * body.rotary_emb.inv_freq.float()
    angles = torch.cat((angles, angles), -1)
    rotation = angles.cos(), angles.sin()
    for number, layer in enumerate(body.layers):
        normed = _normed(layer.input_layernorm, residual, dtype)
        attended = _attention(layer.attention, normed, rotation, heads, number, cache)
        mlp = F.gelu(_linear(layer.mlp.dense_h_to_4h, _normed(layer.post_attention_layernorm, residual, dtype)))
        residual = residual + (attended + _linear(layer.mlp.dense_4h_to_h, mlp))
    if cache is not None:
        cache.length += tokens.shape[1]
    return _normed(body.final_layer_norm, residual, dtype)


def head_logits(network: GPTNeoXForCausalLM, hidden: Tensor) -> Tensor:
    """Logits `[..., vocab_size]` in float32 of hidden states of any dtype."""
    return F.linear(hidden, network.get_output_embeddings().weight.to(hidden.dtype)).float()


@torch.no_grad()
def continuations(
    network: GPTNeoXForCausalLM,
    prompts: Tensor,
    count: int,
    temperatures: Tensor | None = None,
    draws: torch.Generator | None = None,
    done: Callable[[Tensor], Tensor] | None = None,
) -> Tensor:
    """`count` tokens after every prompt `[rows, length]`, past any end of text: `[rows, count]`.

    Args:
        temperatures: of each row `[rows]`, 0 is greedy; None is greedy everywhere.
        draws: for what is drawn, on the CPU.
        done: says of texts `[rows, tokens]`, prompts included, which need not go on; the rest of those is `END_ID`.
    """
    dtype = compute_dtype(prompts.device)
    cast = copy.deepcopy(network)
    for module in cast.modules():  # its matrices need no cast in every pass
        if isinstance(module, nn.Linear | nn.Embedding):
            module.to(dtype)
    cache = RowCache(network, prompts.shape[0], prompts.shape[1] + count, dtype)
    whole = torch.cat((prompts, prompts.new_full((len(prompts), count), END_ID)), dim=1)
    tokens, live = prompts, torch.arange(len(prompts), device=prompts.device)
    for end in range(prompts.shape[1] + 1, whole.shape[1] + 1):
        logits = head_logits(cast, hidden_states(cast, tokens, dtype, cache)[:, -1])
        if temperatures is not None:  # the largest of logits + T * Gumbel noise is a draw at temperature T
            noise = -torch.empty(logits.shape).exponential_(generator=draws).log()
            logits = logits + temperatures[live, None] * noise.to(logits.device)
        tokens = logits.argmax(-1, keepdim=True)
        whole[live, end - 1] = tokens[:, 0]
        if done is not None and end % ASK_EVERY == 0:
            going = ~done(whole[live, :end])
            if not going.any():
                break
            if not going.all():
                live, tokens = live[going], tokens[going]
                cache.keep(going)
    return whole[:, prompts.shape[1] :]


def _linear(layer: nn.Linear, x: Tensor) -> Tensor:
    bias = None if layer.bias is None else layer.bias.to(x.dtype)
    return F.linear(x, layer.weight.to(x.dtype), bias)


def _normed(layer: nn.LayerNorm, x: Tensor, dtype: torch.dtype) -> Tensor:
    return F.layer_norm(x, layer.normalized_shape, layer.weight, layer.bias, layer.eps).to(dtype)


def _attention(layer: Any, x: Tensor, rotation: Rotation, heads: int, number: int, cache: RowCache | None) -> Tensor:
    rows, window, width = x.shape
    mixed = _linear(layer.query_key_value, x).view(rows, window, heads, 3, width // heads)
    query, key, value = (part.transpose(1, 2) for part in mixed.unbind(3))
    query = _rotated(query, rotation) * (width // heads) ** -0.5
    key = _rotated(key, rotation)
    if cache is not None:
        key, value = cache.put(number, key, value)
    total, blocks = key.shape[2], []
    future = _future(min(window, BLOCK), total, x.dtype, x.device) if window > 1 else None
    for start in range(0, window, BLOCK):
        size = min(BLOCK, window - start)
        seen = total - window + start + size
        scores = torch.matmul(query[:, :, start : start + size], key[:, :, :seen].transpose(-1, -2))
        if future is not None:
            scores = scores + future[len(future) - size :, total - seen :]
        blocks.append(torch.matmul(scores.softmax(-1), value[:, :, :seen]))
    attended = blocks[0] if len(blocks) == 1 else torch.cat(blocks, dim=2)
    return _linear(layer.dense, attended.transpose(1, 2).reshape(rows, window, width))


@lru_cache(maxsize=8)
def _future(block: int, total: int, dtype: torch.dtype, device: torch.device) -> Tensor:
    """0 and -inf `[block, total]`: the last keys are those of the queries themselves, and hide from earlier ones."""
    return torch.full((block, total), -torch.inf, device=device).triu(total - block + 1).to(dtype)


def _rotated(x: Tensor, rotation: Rotation) -> Tensor:
    """Rotary positions on the first dimensions of each head."""
    cos, sin = rotation
    turned, rest = x[..., : cos.shape[-1]], x[..., cos.shape[-1] :]
    first, second = turned.float().chunk(2, dim=-1)
    turned = turned * cos + torch.cat((-second, first), -1) * sin
    return torch.cat((turned.to(x.dtype), rest), -1)


EMBEDDING = "gpt_neox.embed_in.weight"


@dataclass(frozen=True)
class NetworkShape:
    """Width, layers, heads and longest text of a GPT-NeoX network with tied embeddings."""

    hidden_size: int
    layers: int
    heads: int
    context: int = CONTEXT


TARGET = NetworkShape(hidden_size=320, layers=8, heads=4)
DRAFT = NetworkShape(hidden_size=256, layers=2, heads=4)


def new_network(shape: NetworkShape, vocabulary: int, seed: int) -> GPTNeoXForCausalLM:
    """A network with random weights."""
    config = GPTNeoXConfig(
        vocab_size=vocabulary,
        hidden_size=shape.hidden_size,
        num_hidden_layers=shape.layers,
        num_attention_heads=shape.heads,
        intermediate_size=4 * shape.hidden_size,
        max_position_embeddings=shape.context,
        rope_parameters={"rope_type": "default", "rope_theta": 10000.0, "partial_rotary_factor": 0.25},
        tie_word_embeddings=True,
        attention_bias=False,
        hidden_dropout=0.0,
        bos_token_id=END_ID,
        eos_token_id=END_ID,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return GPTNeoXForCausalLM._from_config(config, attn_implementation="sdpa").float()


def begin_from(network: GPTNeoXForCausalLM, folder: Path, tokenizer: Any) -> int:
    """Take the weights of a stored network of the same shape; returns how many tokens are spelled alike in both.

    A token that the stored tokenizer does not have begins as the mean of the tokens that it spells it with.
    """
    try:
        weights = load_file(folder / "model.safetensors")
        theirs = load_tokenizer(folder)
    except (OSError, SafetensorError, ValueError):
        raise TrainingError(f"{folder} has no network with its tokenizer: choose another --start-from.") from None
    mine = network.state_dict()
    for name, tensor in weights.items():
        if name not in mine or (name != EMBEDDING and mine[name].shape != tensor.shape):
            raise TrainingError(f"The network in {folder} has another shape ({name}): choose another --start-from.")
    weights = {name: tensor.float() for name, tensor in weights.items()}
    old, new = (Vocabulary(each, len(each)) for each in (theirs, tokenizer))
    place = {old.text(number): number for number in range(old.size)}
    embeddings, size = weights[EMBEDDING], mine[EMBEDDING].shape[0]
    rows, alike = embeddings.mean(0).repeat(size, 1), 0
    for number in range(min(size, new.size)):
        spelled = new.text(number)
        if spelled in place:
            rows[number], alike = embeddings[place[spelled]], alike + 1
        elif pieces := old.encode(spelled):
            rows[number] = embeddings[pieces].mean(0)
    network.load_state_dict({**weights, EMBEDDING: rows}, strict=False)
    network.tie_weights()
    return alike


def has_shape(folder: Path, shape: NetworkShape) -> bool:
    """Whether the network in a folder has the width, layers and heads of a shape; not where it cannot be read."""
    try:
        config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return False
    names = ("hidden_size", "num_hidden_layers", "num_attention_heads")
    return [config.get(name) for name in names] == [shape.hidden_size, shape.layers, shape.heads]


def shrink_embeddings(source: GPTNeoXForCausalLM, network: GPTNeoXForCausalLM) -> None:
    """Begin the embeddings of a narrower network as those of another on their principal axes."""
    embeddings = source.gpt_neox.embed_in.weight.detach()
    own = network.gpt_neox.embed_in.weight
    axes = torch.linalg.eigh(embeddings.T @ embeddings).eigenvectors.flip(1)  # the largest eigenvalue first
    with torch.no_grad():
        own[:, : axes.shape[1]] = (embeddings @ axes)[:, : own.shape[1]]


def save_network(network: GPTNeoXForCausalLM, tokenizer_folder: Path, folder: Path) -> None:
    """Write a network in 16 bits with its tokenizer, as `PairSettings` and transformers load it."""
    weights = network.state_dict()
    shared = weights[EMBEDDING].data_ptr()  # the output head is the embedding, which is stored once
    kept = {name: each for name, each in weights.items() if name == EMBEDDING or each.data_ptr() != shared}
    halves = {name: tensor.half().cpu().contiguous() for name, tensor in kept.items()}
    with disk_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
        config = copy.deepcopy(network.config)
        config.dtype, config.architectures = torch.float16, [type(network).__name__]
        config.save_pretrained(folder)
    ids = {"bos_token_id": END_ID, "eos_token_id": END_ID, "pad_token_id": END_ID}
    write_whole(folder / "generation_config.json", (json.dumps(ids, indent=2) + "\n").encode())
    for name in ("tokenizer.json", "tokenizer_config.json"):  # without the blanks that are half of the first
        content = json.loads((tokenizer_folder / name).read_text(encoding="utf-8"))
        write_whole(folder / name, json.dumps(content, ensure_ascii=False, separators=(",", ":")).encode())
    write_whole(folder / "model.safetensors", save(halves, metadata={"format": "pt"}))


def load_network(folder: Path) -> GPTNeoXForCausalLM:
    """A stored network in float32; `TrainingError` where it is missing or damaged."""
    try:
        return GPTNeoXForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="sdpa")
    except (OSError, SafetensorError, ValueError) as error:
        raise TrainingError(f"{folder} has no complete network ({error}): train it again.") from None

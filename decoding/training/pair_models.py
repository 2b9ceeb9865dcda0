"""The two networks of the embedded pair: their shapes, how they begin, and how they are stored."""

import copy
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save
from torch import Tensor
from transformers import GPTNeoXConfig, GPTNeoXForCausalLM

from decoding.common.errors import TrainingError
from decoding.common.files import disk_errors, write_whole
from decoding.models.vocabulary import Vocabulary
from decoding.training.pair_tokenizer import END_ID, load_tokenizer
from decoding.training.token_arrays import CONTEXT

EMBEDDING = "gpt_neox.embed_in.weight"


@dataclass(frozen=True)
class NetworkShape:
    """Width, layers and heads of a GPT-NeoX network with tied embeddings."""

    hidden_size: int
    layers: int
    heads: int

    def config(self, vocabulary: int) -> GPTNeoXConfig:
        """As transformers takes it."""
        return GPTNeoXConfig(
            vocab_size=vocabulary,
            hidden_size=self.hidden_size,
            num_hidden_layers=self.layers,
            num_attention_heads=self.heads,
            intermediate_size=4 * self.hidden_size,
            max_position_embeddings=CONTEXT,
            rope_parameters={"rope_type": "default", "rope_theta": 10000.0, "partial_rotary_factor": 0.25},
            tie_word_embeddings=True,
            attention_bias=False,
            hidden_dropout=0.0,
            bos_token_id=END_ID,
            eos_token_id=END_ID,
        )


TARGET = NetworkShape(hidden_size=320, layers=8, heads=4)
DRAFT = NetworkShape(hidden_size=128, layers=1, heads=2)


def new_network(shape: NetworkShape, vocabulary: int, seed: int) -> GPTNeoXForCausalLM:
    """A network with random weights."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return GPTNeoXForCausalLM._from_config(shape.config(vocabulary), attn_implementation="sdpa").float()


def begin_from(network: GPTNeoXForCausalLM, folder: Path, tokenizer: Any) -> int:
    """Take the weights of a stored network of the same shape; returns how many tokens are spelled alike in both.

    A token that the stored tokenizer does not have begins as the mean of the tokens that it spells it with.

    Raises:
        TrainingError: there is no such network, it is damaged, or its shape is another.
    """
    try:
        weights = load_file(folder / "model.safetensors")
        theirs = load_tokenizer(folder)
    except (OSError, SafetensorError, ValueError):
        raise TrainingError(f"{folder} holds no network with its tokenizer: choose another --start-from.") from None
    mine = network.state_dict()
    for name, tensor in weights.items():
        if name not in mine or (name != EMBEDDING and mine[name].shape != tensor.shape):
            raise TrainingError(f"The network in {folder} has another shape ({name}): choose another --start-from.")
    rows, alike = _rows(weights[EMBEDDING].float(), theirs, tokenizer, mine[EMBEDDING].shape[0])
    network.load_state_dict(
        {**{name: tensor.float() for name, tensor in weights.items()}, EMBEDDING: rows}, strict=False
    )
    network.tie_weights()
    return alike


def save_network(network: GPTNeoXForCausalLM, tokenizer_folder: Path, folder: Path) -> None:
    """Write a network in 16 bits with its tokenizer, as `PairSettings` and transformers load it.

    Raises:
        TrainingError: the disk is full, or the place cannot be written.
    """
    with disk_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
        halves = {name: tensor.detach().half().cpu().contiguous() for name, tensor in _weights(network).items()}
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
    """A stored network in float32.

    Raises:
        TrainingError: it is missing or damaged.
    """
    try:
        return GPTNeoXForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="sdpa")
    except (OSError, SafetensorError, ValueError) as error:
        raise TrainingError(f"{folder} holds no whole network ({error}): train it again.") from None


def _weights(network: GPTNeoXForCausalLM) -> Mapping[str, Tensor]:
    """Weights by name, each once: the output head is the embedding."""
    weights = network.state_dict()
    shared = weights[EMBEDDING].data_ptr()
    return {name: tensor for name, tensor in weights.items() if name == EMBEDDING or tensor.data_ptr() != shared}


def _rows(theirs: Tensor, their_tokenizer: Any, tokenizer: Any, size: int) -> tuple[Tensor, int]:
    """Embeddings `[size, width]` for our tokens, and how many are spelled alike."""
    old, new = (Vocabulary(each, len(each)) for each in (their_tokenizer, tokenizer))
    place = {old.text(number): number for number in range(old.size)}
    rows, alike = theirs.mean(0).repeat(size, 1), 0
    for number in range(min(size, new.size)):
        spelled = new.text(number)
        if spelled in place:
            rows[number], alike = theirs[place[spelled]], alike + 1
        elif pieces := old.encode(spelled):
            rows[number] = theirs[pieces].mean(0)
    return rows, alike

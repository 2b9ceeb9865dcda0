"""Which pair to load and how: settings, arguments of a command line, ready-made pairs and the memory they need.

Torch-free.
"""

import argparse
import os
from collections.abc import Container, Mapping
from dataclasses import dataclass, fields, replace
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from decoding.common.errors import PairError, require
from decoding.common.formats import parameters
from decoding.common.settings import ENGINES, from_arguments, is_engine, present_engines
from decoding.models.embedded import EMBEDDED_FOLDER, EMBEDDED_NAME, embedded_folder, packed_parameters
from decoding.models.folder import CONFIG, check_values, read_object, stored_parameters

if TYPE_CHECKING:
    from decoding.sampling.sampling import Sampling

EMBEDDED = "embedded"

DEVICES = ("auto", "cuda", "mps", "cpu")
DTYPES = ("auto", "float32", "bfloat16", "float16")
ATTENTIONS = ("auto", "sdpa", "eager")
BFLOAT16_FLAGS = {"avx512_bf16", "amx_bf16", "bf16"}
DTYPE_BYTES = {"float32": 4, "bfloat16": 2, "float16": 2}
MIN_CONTEXT, CONTEXT_LENGTH, MAX_CONTEXT = 16, 2560, 1_048_576
WIDTHS = (1, 2, 3, 4)  # of the embedded target: of a 4 times as wide one a CPU takes as long as of a small real model
# Logits of this many tokens are in memory at once, besides weights and caches: a tree, for both models.
LOGIT_ROWS = 128


@dataclass(frozen=True)
class PairSettings:
    """What to load: two Hugging Face ids or local folders, and how to place them.

    Attributes:
        target, draft: `EMBEDDED`, a local folder, a GGUF file or a Hugging Face id.
        device: auto takes cuda, then mps, then cpu.
        dtype: auto takes float32 on cpu and for the embedded pair, bfloat16 on a GPU that has it, float16 elsewhere.
        split: spread a target that is larger than one GPU over all of them (`device_map="auto"`).
        max_memory_gib: most device memory for the target's weights (with split, on each GPU), in GiB; the rest stays
            in CPU memory, or on disk where the device is the CPU, and is copied over for every pass.
        context_length: most tokens of prompt and output together, within the models' own limits.
        chat: use the chat template and its stop tokens.
        attention: auto takes sdpa, or eager where the model has no sdpa.
        engine: transformers runs its own forward; packed runs ours with packed weights (a CPU); cuda_graph runs
            fixed shapes that CUDA replays as graphs; auto takes the fastest that fits.
        widen: how many times as wide the embedded target is made (see `decoding.models.widening`): it writes the
            same texts at the cost of a larger model, so that a draft is to it what it is to the papers' targets.
    """

    target: str = EMBEDDED
    draft: str = EMBEDDED
    device: str = "auto"
    dtype: str = "auto"
    split: bool = False
    max_memory_gib: float | None = None
    context_length: int = CONTEXT_LENGTH
    chat: bool = False
    attention: str = "auto"
    engine: str = "auto"
    widen: int = 1

    def __post_init__(self) -> None:
        for role in ("target", "draft"):
            name = getattr(self, role)
            require(
                isinstance(name, str) and bool(name.strip()),
                f"The {role} is empty; give a local folder or a Hugging Face id such as EleutherAI/pythia-70m.",
            )
        require(self.device in DEVICES, f"device is {self.device!r}; choose one of {', '.join(DEVICES)}.")
        require(self.dtype in DTYPES, f"dtype is {self.dtype!r}; choose one of {', '.join(DTYPES)}.")
        require(
            not str(self.attention).startswith(("flash", "flex", "paged")),
            f"attention {self.attention!r} cannot take a tree mask as a tensor; choose auto, sdpa or eager.",
        )
        require(self.attention in ATTENTIONS, f"attention is {self.attention!r}; choose auto, sdpa or eager.")
        object.__setattr__(self, "engine", present_engines(self.engine))
        require(is_engine(self.engine), f"engine is {self.engine!r}; choose one of {', '.join(ENGINES)}.")
        require(
            isinstance(self.context_length, int) and MIN_CONTEXT <= self.context_length <= MAX_CONTEXT,
            f"context_length is {self.context_length}; choose {MIN_CONTEXT} to {MAX_CONTEXT} tokens.",
        )
        require(
            not (self.split and self.device in ("cpu", "mps")),
            f"split spreads the target over GPUs, but device is {self.device!r}; choose device auto or cuda.",
        )
        require(
            self.max_memory_gib is None or self.max_memory_gib > 0,
            f"max_memory_gib is {self.max_memory_gib}; give the GiB that the weights may take, or None for no limit.",
        )
        require(
            self.max_memory_gib is None or self.device != "mps",
            "max_memory_gib needs a device with memory of its own, unlike an Apple GPU; choose device cuda or cpu.",
        )

        require(self.widen in WIDTHS, f"widen is {self.widen!r}; choose one of {', '.join(map(str, WIDTHS))}.")
        require(
            self.widen == 1 or (self.target == EMBEDDED and not self.places_layers),
            "widen is for the embedded target as a whole; choose target embedded without split and max_memory_gib, or "
            "write a wide pair with python -m decoding.widen.",
        )

    @property
    def embedded(self) -> bool:
        """Whether this is the pair that comes with the program, as it comes."""
        return self.target == self.draft == EMBEDDED and self.widen == 1

    @property
    def places_layers(self) -> bool:
        """Whether the target is placed layer by layer instead of as a whole."""
        return self.split or self.max_memory_gib is not None


MODEL = "a folder, a GGUF file, or a Hugging Face id"
ARGUMENTS: dict[str, dict[str, Any]] = {
    "target": {"default": EMBEDDED, "help": MODEL},
    "draft": {"default": EMBEDDED, "help": MODEL},
    "widen": {"type": int, "default": 1, "choices": WIDTHS},
    "device": {"choices": DEVICES, "default": "auto"},
    "dtype": {"choices": DTYPES, "default": "auto"},
    "engine": {"choices": ENGINES, "default": "auto", "type": present_engines},
    "attention": {"choices": ATTENTIONS, "default": "auto"},
    "context_length": {"type": int, "default": CONTEXT_LENGTH, "metavar": "N", "help": "most tokens, with the prompt"},
    "split": {"action": "store_true", "help": "spread the target over several GPUs"},
    "chat": {"action": "store_true", "help": "put prompts through the chat template"},
}  # fmt: skip


def add_pair_arguments(parser: argparse.ArgumentParser, *left_out: str) -> None:
    """Arguments that choose a pair, those `left_out` aside; the embedded one by default."""
    _add_group(parser, "pair", ARGUMENTS | {"widen": ARGUMENTS["widen"] | {"help": widen_help()}}, left_out)


SAMPLING_ARGUMENTS: dict[str, dict[str, Any]] = {
    "temperature": {"type": float, "default": 0.0, "help": "of the target; 0 decodes greedily"},
    "top_p": {"type": float, "default": 1.0, "help": "nucleus of the target's distribution"},
    "draft_temperature": {"type": float, "default": 1.0, "help": "of the draft's distribution"},
    "seed": {"type": int, "default": 0},
}


def add_sampling_arguments(parser: argparse.ArgumentParser, *left_out: str) -> None:
    """Arguments that choose how tokens are sampled, those `left_out` aside; greedy by default."""
    _add_group(parser, "sampling", SAMPLING_ARGUMENTS, left_out)


def _add_group(
    parser: argparse.ArgumentParser, name: str, arguments: Mapping[str, dict[str, Any]], left_out: Container[str]
) -> None:
    group = parser.add_argument_group(name)
    for each, options in arguments.items():
        if each not in left_out:
            group.add_argument(f"--{each.replace('_', '-')}", **options)


def sampling_from(args: argparse.Namespace) -> "Sampling":
    """The sampling that the arguments name."""
    from decoding.sampling.sampling import Sampling

    return from_arguments(Sampling, args)


def pair_settings(args: argparse.Namespace, **others: Any) -> PairSettings:
    """What the arguments say of a pair, with `others` in their place."""
    return from_arguments(PairSettings, args, **others)


def pair_words(settings: PairSettings) -> list[str]:
    """The arguments that choose a pair on the command line, but for those at their defaults."""
    words = []
    for each in fields(PairSettings):
        value = getattr(settings, each.name)
        if each.name in ARGUMENTS and value != each.default:
            flag = f"--{each.name.replace('_', '-')}"
            words += [flag] if isinstance(value, bool) else [flag, str(value)]
    return words


def pair_name(settings: PairSettings) -> str:
    """What a pair is called on the screen and in records."""
    names = [Path(name).name if name != EMBEDDED else EMBEDDED for name in (settings.target, settings.draft)]
    wide = f", target {settings.widen}× as wide" if settings.widen > 1 else ""
    return (EMBEDDED_NAME if set(names) == {EMBEDDED} else " + ".join(names)) + wide


def widened_words(*counts: int) -> str:
    """What a widened pair writes and what it costs, by the parameters of its target, or of the widths offered."""
    sizes = " or ".join(map(parameters, counts))
    return f"writes what the embedded pair writes, at the cost of a target of {sizes} parameters"


def wide_words(widen: int) -> str:
    """The same of the embedded target made so many times as wide; empty where it is as it comes."""
    shape = model_shape(EMBEDDED, "target", widen)
    return widened_words(shape.parameters) if shape is not None and widen > 1 else ""


def widen_help() -> str:
    """What the argument that widens the embedded target does."""
    shapes = [model_shape(EMBEDDED, "target", width) for width in WIDTHS[1:]]
    said = widened_words(*(shape.parameters for shape in shapes if shape is not None))
    return f"make the embedded target so many times as wide: it {said}"


@dataclass(frozen=True)
class Shape:
    """The numbers of a model that decide its memory."""

    parameters: int
    layers: int
    kv_heads: int
    head_dim: int
    vocab_size: int
    max_context: int

    def widened(self, copies: int) -> "Shape":
        """The embedded target's shape that many times as wide: a GPT-NeoX with biases and an output head of its own."""
        hidden = copies * self.kv_heads * self.head_dim
        layer = 12 * hidden**2 + 13 * hidden
        parameters = self.layers * layer + 2 * self.vocab_size * hidden + 2 * hidden
        return replace(self, parameters=parameters, kv_heads=copies * self.kv_heads)

    def weight_bytes(self, dtype: str) -> int:
        """Bytes of the weights when computed in `dtype`."""
        return self.parameters * DTYPE_BYTES[dtype]

    def cache_bytes(self, dtype: str, context_length: int) -> int:
        """Bytes of keys and values of `context_length` tokens over all layers."""
        rows = min(context_length, self.max_context)
        return 2 * self.layers * self.kv_heads * self.head_dim * rows * DTYPE_BYTES[dtype]


# Parameters, layers, key/value heads, head size, vocabulary, longest context, from the published configurations.
MODEL_SHAPES: dict[str, Shape] = {
    "EleutherAI/pythia-2.8b": Shape(2_775_208_960, 32, 32, 80, 50_304, 2_048),
    "EleutherAI/pythia-1.4b": Shape(1_414_647_808, 24, 16, 128, 50_304, 2_048),
    "EleutherAI/pythia-70m": Shape(70_426_624, 6, 8, 64, 50_304, 2_048),
    "Qwen/Qwen2.5-7B-Instruct": Shape(7_615_616_512, 28, 4, 128, 152_064, 32_768),
    "Qwen/Qwen2.5-0.5B-Instruct": Shape(494_032_768, 24, 2, 64, 151_936, 32_768),
    "meta-llama/Llama-3.2-3B-Instruct": Shape(3_212_749_824, 28, 8, 128, 128_256, 131_072),
    "meta-llama/Llama-3.2-1B-Instruct": Shape(1_235_814_400, 16, 8, 64, 128_256, 131_072),
    "HuggingFaceTB/SmolLM2-1.7B-Instruct": Shape(1_711_376_384, 24, 32, 64, 49_152, 8_192),
    "HuggingFaceTB/SmolLM2-135M-Instruct": Shape(134_515_008, 30, 3, 64, 49_152, 8_192),
}


@dataclass(frozen=True)
class Preset:
    """A ready-made pair: its label, its settings and a sentence about it."""

    label: str
    settings: PairSettings
    note: str


def _preset(label: str, target: str, draft: str, note: str, chat: bool = False) -> Preset:
    return Preset(label, PairSettings(target=target, draft=draft, chat=chat), note)


PRESETS: dict[str, Preset] = {
    "embedded": _preset(
        EMBEDDED_NAME, EMBEDDED, EMBEDDED, "A miniature Pythia pair included with Draftscope; needs no network."
    ),
    "pythia-2.8b": _preset(
        "Pythia 2.8B + 70M", "EleutherAI/pythia-2.8b", "EleutherAI/pythia-70m", "The papers' family; continues text."
    ),
    "pythia-1.4b": _preset(
        "Pythia 1.4B + 70M", "EleutherAI/pythia-1.4b", "EleutherAI/pythia-70m", "The papers' family at half the memory."
    ),
    "qwen2.5-7b": _preset(
        "Qwen2.5 7B + 0.5B Instruct",
        "Qwen/Qwen2.5-7B-Instruct",
        "Qwen/Qwen2.5-0.5B-Instruct",
        "A chat pair with grouped-query attention and vocabularies padded to different sizes.",
        chat=True,
    ),
    "llama-3.2-3b": _preset(
        "Llama 3.2 3B + 1B Instruct",
        "meta-llama/Llama-3.2-3B-Instruct",
        "meta-llama/Llama-3.2-1B-Instruct",
        "A chat pair; its licence must be accepted on the Hugging Face Hub first.",
        chat=True,
    ),
    "smollm2-1.7b": _preset(
        "SmolLM2 1.7B + 135M Instruct",
        "HuggingFaceTB/SmolLM2-1.7B-Instruct",
        "HuggingFaceTB/SmolLM2-135M-Instruct",
        "A small chat pair that runs on a laptop.",
        chat=True,
    ),
}


def choose_device(asked: str) -> str:
    """The device to use: the one requested if available, or the best one available."""
    import torch  # only where a device is to be chosen: Home draws without it

    cuda, mps = torch.cuda.is_available(), torch.backends.mps.is_available()
    if asked == "auto":
        return "cuda" if cuda else "mps" if mps else "cpu"
    if (asked == "cuda" and not cuda) or (asked == "mps" and not mps):
        kind = "CUDA GPU" if asked == "cuda" else "Apple GPU (mps)"
        raise PairError(f"This machine has no {kind} that PyTorch can use; choose device auto or cpu.")
    return asked


def choose_dtype(settings: PairSettings, device: str) -> str:
    """The dtype to compute in: the one requested, or the default of the device."""
    if settings.dtype != "auto":
        return settings.dtype
    if device == "cpu" or settings.target == EMBEDDED:
        return "float32"
    import torch

    return "bfloat16" if device == "cuda" and torch.cuda.is_bf16_supported() else "float16"


def memory_estimate(settings: PairSettings) -> int | None:
    """Bytes that a pair will need: weights in its dtype, caches of the context and logits of a tree.

    Known without a network for presets, the embedded pair, local folders and cached models; None for the others.
    """
    dtype = settings.dtype
    if dtype == "auto":
        device = "cpu" if settings.device == "cpu" else choose_device(settings.device)
        dtype = choose_dtype(settings, device)
    needed = 0
    for role, name in (("target", settings.target), ("draft", settings.draft)):
        shape = model_shape(name, role, settings.widen)
        if shape is None:
            return None
        needed += shape.weight_bytes(dtype) + shape.cache_bytes(dtype, settings.context_length)
        needed += 4 * LOGIT_ROWS * shape.vocab_size
    return needed


@lru_cache
def cpu_computes_bfloat16() -> bool:
    """Whether this processor has instructions for bfloat16 (AVX-512 BF16, AMX, or Arm's); False where unknown."""
    try:
        flags = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").split()
    except OSError:
        return False
    return not BFLOAT16_FLAGS.isdisjoint(flags)


def model_folder(name: str, role: str) -> Path | None:
    """Folder of a model that is on this machine: the embedded pair, a local folder, or the Hub's cache; else None."""
    if name == EMBEDDED:
        return embedded_folder(role)
    if (folder := local_folder(name)) is not None:
        return folder
    from huggingface_hub import try_to_load_from_cache
    from huggingface_hub.errors import HFValidationError

    try:
        found = try_to_load_from_cache(name, "config.json")
    except HFValidationError:
        return None
    return Path(found).parent if isinstance(found, str) else None


def local_folder(name: str) -> Path | None:
    """The folder that a name stands for, None if there is none; a name that no file system takes is not an error."""
    folder = os.path.expanduser(name)  # unlike pathlib's, this and isdir never raise: names are typed by hand
    return Path(folder) if os.path.isdir(folder) else None


def gguf_file(name: str) -> Path | None:
    """The GGUF file that a name stands for, None if there is none."""
    file = os.path.expanduser(name)
    return Path(file) if file.endswith(".gguf") and os.path.isfile(file) else None


def model_shape(name: str, role: str, widen: int = 1) -> Shape | None:
    """The shape of a model without loading it, None if it is neither known nor on this machine.

    `widen` is what `PairSettings` says of the embedded target.
    """
    if name in MODEL_SHAPES:
        return MODEL_SHAPES[name]
    packed = name == EMBEDDED  # its shape is known before it is unpacked
    folder = EMBEDDED_FOLDER / role if packed else model_folder(name, role)
    if folder is None or not os.path.isfile(folder / CONFIG):
        return None
    try:
        shape = _shape_in_folder(folder, packed_parameters(role) if packed else stored_parameters(folder))
        return shape if widen == 1 or role == "draft" else shape.widened(widen)
    except (PairError, TypeError, ZeroDivisionError):
        return None  # loading will say what is wrong with it


def _shape_in_folder(folder: Path, parameters: int) -> Shape:
    config = read_object(folder / CONFIG, folder.name)
    check_values(config, folder.name)
    config = {**config, **(config.get("text_config") or {})}

    def first(*names: str) -> Any:
        return next((config[name] for name in names if config.get(name) is not None), None)

    heads = first("num_attention_heads", "n_head", "num_heads")
    return Shape(
        parameters=parameters,
        layers=first("num_hidden_layers", "n_layer", "num_layers"),
        kv_heads=first("num_key_value_heads") or heads,
        head_dim=first("head_dim") or first("hidden_size", "n_embd", "d_model") // heads,
        vocab_size=first("vocab_size"),
        max_context=first("max_position_embeddings", "n_positions") or MAX_CONTEXT,
    )

"""The weights of a draft/target pair, stored and loaded: quantised, left out, never filled, constant, not tied."""

from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from decoding.analysis.pair_files import LAYERS, SHOWN, Finding, ModelFiles, fault, layer_of, not_checked, sound
from decoding.engines.base import FORWARD_ERRORS
from decoding.models.pair import Pair
from decoding.models.widening import WIDENED_FROM

# Tensors: loading leaves out what the configuration has no place for, so each one is a part of the model that is gone.
MOST_UNEXPECTED = 0
# Share of the stored bytes. Old checkpoints also store attention masks, as bytes: up to a tenth of the file of GPT-2.
QUANTISED_SHARE = 0.2
UNQUANTISED = ("F64", "F32", "F16", "BF16")  # how safetensors and GGUF name them
NORM_INPUTS = 4  # random vectors: what gives the same for all of them passes nothing on


def stored_weights(target: ModelFiles, draft: ModelFiles) -> Finding:
    """Whether a model is quantised, or has fewer layers than its files."""
    for files in (target, draft):
        if files.left_out:
            layers = {layer_of(name) for name in files.left_out}
            setting = next(name for name in LAYERS if isinstance(files.config.get(name), int))
            return fault(
                f"the configuration of the {files.role} has {files.setting(LAYERS)} layers and its files have "
                f"{len(layers)} more, such as {files.left_out[0]}",
                f"Set {setting} of the {files.role} to the number of layers that are stored.",
            )
    quantised = [files for files in (target, draft) if _is_quantised(files)]
    said = "; ".join(f"the {files.role} is stored in {_dtypes(files)}" for files in (target, draft))
    if quantised:
        roles = " and ".join(files.role for files in quantised)
        return fault(
            said, f"Use unquantised weights for the {roles}: a draft is trained to follow the unquantised target."
        )
    if not (target.stored_bytes and draft.stored_bytes):
        return not_checked("the headers of the weight files cannot be read")
    return sound(f"{said}; both are computed in one dtype")


def _is_quantised(files: ModelFiles) -> bool:
    stored = files.stored_bytes
    fewer_bits = sum(size for dtype, size in stored.items() if dtype not in UNQUANTISED)
    return bool(files.config.get("quantization_config")) or fewer_bits > QUANTISED_SHARE * sum(stored.values())


def _dtypes(files: ModelFiles) -> str:
    if not files.stored_bytes:
        said = "a dtype that cannot be read"
    else:
        whole = sum(files.stored_bytes.values())
        shares = sorted(files.stored_bytes.items(), key=lambda each: -each[1])
        said = ", ".join(f"{dtype} ({size / whole:.0%} of its bytes)" for dtype, size in shares[:SHOWN])
    method = files.config.get("quantization_config")
    if not isinstance(method, dict):
        return said
    return f"{said}, quantised by {method.get('quant_method', 'a method that its configuration does not name')}"


def _unmatched(models: Sequence[ModelFiles]) -> Iterator[str]:
    """What the files lack or hold in vain, a clause for each model where anything does."""
    for files in models:
        if files.missing:
            yield f"the files of the {files.role} lack {_examples(files.missing)}"
        kept = [name for name in files.unexpected or () if name not in files.left_out]
        if len(kept) > MOST_UNEXPECTED:
            yield f"the files of the {files.role} hold {_examples(kept)}, for which its configuration has no place"


def _examples(names: Sequence[str]) -> str:
    more = f" and {len(names) - SHOWN} more tensors" if len(names) > SHOWN else ""
    return ", ".join(names[:SHOWN]) + more


def loaded_weights(target: ModelFiles, draft: ModelFiles, pair: Pair | None) -> Finding:
    """Whether every tensor is stored and used, none is dead, and the output head is tied where it should be."""
    again = "Download the model again, or take the configuration that belongs to the weights."
    if unmatched := list(_unmatched((target, draft))):
        return fault("; ".join(unmatched), again)
    if pair is None:
        return not_checked("the pair is not loaded, so the values of its weights were not read")
    wrong, norms, tensors, offloaded = [], 0, 0, 0
    for role, model in (("target", pair.target), ("draft", pair.draft)):
        network = model.network
        offloaded += sum(weight.is_meta for weight in network.parameters())
        matrices = [(name, weight) for name, weight in network.named_parameters() if weight.dim() > 1]
        tensors += len(matrices)
        wrong += [f"{name} of the {role} is {value:g} everywhere" for name, value in _constant(network, matrices)]
        found = [(name, _is_dead(module)) for name, module in network.named_modules() if _is_norm(module)]
        norms += len(found)
        wrong += [f"{name} of the {role} gives the same whatever it is given" for name, dead in found if dead]
        if _is_torn(network):
            wrong.append(
                f"the configuration of the {role} ties the output head to the embedding and the files hold two "
                "different ones"
            )
    if wrong:
        more = f"; and {len(wrong) - SHOWN} more" if len(wrong) > SHOWN else ""
        return fault("; ".join(wrong[:SHOWN]) + more, again)
    if offloaded:
        return not_checked(f"{offloaded} tensors lie off the device and were not read; the others are sound")
    unread = " and ".join(files.role for files in (target, draft) if files.unexpected is None)
    matched = "every stored tensor has its place"
    if unread:
        matched = f"the names of the tensors of {unread} were not compared, as its weights are made when loaded"
    return sound(
        f"{matched}; none of {tensors} matrices is constant, {norms} norms pass on what they are given, and output "
        "heads are tied as the configurations say"
    )


def _constant(network: Any, matrices: Sequence[tuple[str, Tensor]]) -> Iterator[tuple[str, float]]:
    """Matrices that hold one value; layers that were added to a wide copy of the embedded pair are to do nothing."""
    origin = getattr(network.config, WIDENED_FROM, None)
    added = range(0) if origin is None else range(origin["layers"], network.config.num_hidden_layers)
    for name, weight in matrices:
        if weight.is_meta or weight.numel() < 2 or any(f".{layer}." in name for layer in added):
            continue
        low, high = weight.detach().aminmax()
        if low == high:
            yield name, float(low)


def _is_norm(module: nn.Module) -> bool:
    weight = getattr(module, "weight", None)
    return "norm" in type(module).__name__.lower() and isinstance(weight, Tensor) and weight.dim() == 1


@torch.inference_mode()
def _is_dead(norm: nn.Module) -> bool:
    """Whether a norm gives one output for several inputs; one that is computed otherwise is taken to be alive."""
    weight: Any = norm.weight
    if weight.is_meta:
        return False
    generator = torch.Generator().manual_seed(0)
    inputs = torch.randn((NORM_INPUTS, len(weight)), generator=generator).to(weight.device, weight.dtype)
    try:
        found = norm(inputs)
    except FORWARD_ERRORS:
        return False
    return isinstance(found, Tensor) and bool((found == found[:1]).all())


def _is_torn(network: Any) -> bool:
    head, embedding = network.get_output_embeddings(), network.get_input_embeddings()
    if head is None or not getattr(network.config, "tie_word_embeddings", False):
        return False
    same = head.weight is embedding.weight or head.weight.data_ptr() == embedding.weight.data_ptr()
    return not (same or head.weight.is_meta)

"""Targets larger than their device: weights that wait in CPU memory, or on disk, and come over for every pass."""

import copy
import gc
import logging
import os
import re
import socket
import traceback
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from urllib.request import getproxies

import psutil
import torch
from huggingface_hub import constants as hub_constants
from safetensors import SafetensorError
from torch import Tensor, nn
from transformers.generation.configuration_utils import GenerationConfig
from transformers.models.auto.configuration_auto import AutoConfig
from transformers.models.auto.modeling_auto import AutoModelForCausalLM
from transformers.models.auto.tokenization_auto import AutoTokenizer
from transformers.utils import logging as transformers_logging

from decoding.common.errors import OutOfMemoryError, PairError, first_line, is_failure, is_out_of_memory
from decoding.common.formats import byte_size
from decoding.engines.attention import GROUPED_SDPA, can_group
from decoding.models.checks import check_config
from decoding.models.folder import AGAIN, check_folder, check_ids, explain_tokenizer, stored_parameters
from decoding.models.presets import EMBEDDED, PairSettings, gguf_file, local_folder, model_folder, model_shape
from decoding.models.widening import widened_target

# Of the memory that is free, for weights: the conversion of a weight file needs some as well.
CPU_MEMORY_SHARE = 0.9


def placement(max_memory_gib: float | None, device: str, gpus: int, free_cpu_bytes: int | None) -> dict[str, Any]:
    """How `from_pretrained` is to place the layers of a model; what does not fit on a device goes to the next.

    From a GPU that is CPU memory, then disk; from a CPU it is disk, where the weight files are read in place.
    `max_memory_gib` is what weights may take of each device, the largest layer's turn included; None sets no limit.
    """
    if max_memory_gib is None:
        return {"device_map": "auto"}
    limit = int(max_memory_gib * 2**30)
    if device == "cpu":
        return {"device_map": "auto", "max_memory": {"cpu": limit}}
    cpu_limit = int(CPU_MEMORY_SHARE * (free_cpu_bytes or 0))
    return {"device_map": "auto", "max_memory": {**dict.fromkeys(range(gpus), limit), "cpu": cpu_limit}}


def is_offloaded(network: nn.Module) -> bool:
    """Whether some weights come to the device only while their layer runs."""
    return any(weight.is_meta for weight in network.parameters())


def fetch_weight(layer: nn.Module) -> Tensor:
    """The weight of a layer, wherever it is kept."""
    weight = layer.get_parameter("weight")
    return next(held["weight"] for held in _held_weights(layer)) if weight.is_meta else weight


def drop_offloaded(network: nn.Module) -> None:
    """Free the weights that are kept beside a network, whoever still holds it."""
    for layer in network.modules():
        for held in _held_weights(layer):
            getattr(held.dataset, "state_dict", {}).clear()


def _held_weights(layer: nn.Module) -> Iterator[Any]:
    """Weights by name that accelerate's hooks bring to the device when this layer runs."""
    hook: Any = getattr(layer, "_hf_hook", None)
    for one in getattr(hook, "hooks", (hook,)):
        if getattr(one, "offload", False):
            yield one.weights_map


# How errors of huggingface_hub are recognised: by the names of the classes in the chain of causes.
NO_NETWORK = {"OfflineModeIsEnabled", "LocalEntryNotFoundError", "ConnectError", "ConnectionError", "ConnectTimeout"}
NO_NETWORK |= {"ProxyError", "ReadTimeout", "TimeoutException", "NetworkError", "SSLError"}
TOKENIZER_FILES = ("tokenizer.json", "tokenizer.model", "vocab.json", "spiece.model", "tekken.json")
HUB_TIMEOUT_S = 3.0
MOST_MISSING = 2  # times as many weights as are stored: no tensor or two that are missing


@dataclass(frozen=True)
class WeightsSource:
    """Where a model comes from."""

    name: str  # how to call it on screen
    location: str  # folder or Hub id to give to transformers, with `options`
    config: Any
    model_class: Any  # what its configuration asks for
    eos_ids: tuple[int, ...]  # end-of-text ids of its generation config, or of its configuration where there is none
    options: dict[str, Any]
    widen: int = 1  # how many times as wide as in its folder it is to be made; the configuration says so already


def find_model(name: str, role: str, widen: int = 1) -> WeightsSource:
    """Find a model, read its configuration and refuse what cannot work, without reading weights.

    `widen` is what `PairSettings` says of the embedded target.
    """
    copies = widen if role == "target" else 1
    folder = model_folder(name, role)
    label = f"embedded-{role}" + (f"-{copies}x" if copies > 1 else "") if name == EMBEDDED else name
    gguf = gguf_file(name)
    local = name == EMBEDDED or local_folder(name) is not None or gguf is not None
    if not local and os.path.isfile(os.path.expanduser(name)):
        raise PairError(f"{name} is a file; give the folder that contains config.json, or a GGUF file.")
    if not local and (name.startswith((".", "/", "~", "\\")) or name.count("/") > 1):
        raise PairError(f"There is no folder {name}; give a folder that contains config.json, or a Hugging Face id.")
    options: dict[str, Any] = {"trust_remote_code": False, "local_files_only": local or not hub_answers()}
    if gguf is not None:
        check_gguf(gguf)
        folder, label = gguf.parent, gguf.name
        options["gguf_file"] = gguf.name  # transformers reads configuration, tokenizer and weights from it
    elif local and folder is not None:
        check_folder(folder, label)
    location = str(folder) if local else name
    try:
        config = AutoConfig.from_pretrained(location, **options)
    except Exception as error:  # each model's configuration checks its values in its own way
        raise PairError(explain(error, label, "configuration")) from error
    if copies > 1:
        config = type(config).from_dict(widened_target(copies, "float32").config)
    model_class = check_config(config, label)
    for part in (config, config.get_text_config()):
        part.return_dict = True  # answers are read by name
    try:
        eos = GenerationConfig.from_pretrained(location, **options).eos_token_id
    except OSError:  # there is none
        eos = None
    except Exception as error:
        raise PairError(explain(error, label, "generation_config.json")) from error
    if eos is None:
        eos = getattr(config.get_text_config(), "eos_token_id", None)
    check_ids(eos, "eos_token_id", "generation_config.json", label)
    eos_ids = () if eos is None else (eos,) if isinstance(eos, int) else tuple(eos)
    return WeightsSource(label, location, config, model_class, eos_ids, options, copies)


def check_gguf(file: Path) -> None:
    """Refuse a GGUF file that cannot be read here, in one sentence."""
    if find_spec("gguf") is None:
        raise PairError(
            f"Reading {file.name} needs the package gguf: run 'pip install gguf', or give a folder with safetensors."
        )
    try:
        with file.open("rb") as start:
            marked = start.read(4) == b"GGUF"
    except OSError as error:
        raise PairError(f"{file.name} cannot be read ({error.strerror}); check its permissions.") from error
    if not marked:
        raise PairError(f"{file.name} is not a GGUF file; download it again.")


def hub_answers() -> bool:
    """Whether the Hub can be reached: asked once and briefly, because its client retries for half a minute."""
    if hub_constants.HF_HUB_OFFLINE:
        return False
    address = urlsplit(hub_constants.ENDPOINT)
    if address.scheme in getproxies():
        return True  # only the proxy knows
    try:
        port = address.port or (443 if address.scheme == "https" else 80)
        socket.create_connection((address.hostname, port), HUB_TIMEOUT_S).close()
    except OSError:
        return False
    return True


def load_tokenizer(source: WeightsSource) -> Any:
    """The tokenizer that lies beside a model."""
    folder, gguf = Path(source.location), source.options.get("gguf_file")
    files = TOKENIZER_FILES if gguf is None else (gguf,)
    if folder.is_dir() and not any((folder / file).is_file() for file in files):
        raise PairError(f"{source.name} has no tokenizer; put tokenizer.json and tokenizer_config.json there too.")
    try:
        return AutoTokenizer.from_pretrained(source.location, **source.options)
    except BaseException as error:  # a damaged tokenizer fails in as many ways as there are tokenizers
        if not is_failure(error):
            raise
        if folder.is_dir():
            explain_tokenizer(folder, source.name)
        raise PairError(explain(error, source.name, "tokenizer")) from error


def load_network(source: WeightsSource, settings: PairSettings, device: str, dtype: str, split: bool) -> Any:
    """The weights on their device, in evaluation mode, without gradients, with sdpa or eager attention.

    With `split` layer by layer, over GPUs and, where `settings` limit the memory for weights, off the device.
    """
    attention = _attention(source, settings.attention)
    if source.widen == 1:
        check_skeleton(source)
    options: dict[str, Any] = {"dtype": getattr(torch, dtype), "attn_implementation": attention}
    if split:
        gpus = torch.cuda.device_count() if settings.split else 1
        options |= placement(settings.max_memory_gib, device, gpus, free_bytes("cpu"))
        logging.getLogger("accelerate.big_modeling").setLevel(logging.ERROR)  # or it would tell what was asked for
    elif device != "cpu":
        options["device_map"] = {"": device}
    os.environ["DISABLE_SAFETENSORS_CONVERSION"] = "1"  # or transformers would ask a Hub service to convert pickles
    transformers_logging.disable_progress_bar()
    location: str | None = source.location
    model: Any = AutoModelForCausalLM
    if source.widen > 1:  # in memory: it takes less time than writing the weights to a disk
        location, model = None, source.model_class
        options["state_dict"] = widened_target(source.widen, dtype).state()
    try:
        loaded: Any = model.from_pretrained(
            location,
            config=source.config,
            use_safetensors=True,
            output_loading_info=True,
            ignore_mismatched_sizes=True,  # they are refused below, by name
            **source.options,
            **options,
        )
        network, report = loaded
        if not split:
            network.to(device)
    except SafetensorError as error:
        what = f"The weights of {source.name} are damaged ({first_line(error)})"
        raise PairError(f"{what}; download them again.") from error
    except Exception as error:
        if is_out_of_memory(error):
            raise out_of_memory(source.name, device, error) from None
        raise PairError(explain(error, source.name, "weights")) from error
    wrong = _mismatch(report, len(network.state_dict()), source.name) or _not_finite(network, source.name)
    if split and all(weight.device.type != torch.device(device).type for weight in network.parameters()):
        wrong = wrong or (
            f"{device} has no room for any layer of {source.name} besides the running one; "
            "raise max_memory_gib or choose a smaller model."
        )
    if wrong:
        del loaded, network  # the error's traceback holds this frame
        raise PairError(wrong)
    return network.eval().requires_grad_(False)


def check_skeleton(source: WeightsSource) -> None:
    """Build the model without memory for its weights: refuse what cannot be built, or is far larger than its files."""
    folder, config = local_folder(source.location), copy.deepcopy(source.config)  # the Hub's cache may be half filled
    if source.model_class.config_class is config.sub_configs.get("text_config"):
        config = config.get_text_config()  # as loading does: of a model that also sees images its language model
    config._attn_implementation = "eager"  # whatever the file asks for, nothing is computed here
    try:
        with torch.device("meta"):
            network = source.model_class(config)
    except Exception as error:  # each model's own code, with numbers that it was never meant for
        raise PairError(
            f"No model can be built from the configuration of {source.name} ({first_line(error)}); "
            "download config.json again or choose another model."
        ) from error
    described, stored = sum(weight.numel() for weight in network.parameters()), folder and stored_parameters(folder)
    if stored and described > MOST_MISSING * stored:
        raise PairError(
            f"The configuration of {source.name} describes {described:,} weights and its files contain {stored:,}: "
            "they are from different models; download both again."
        )


def _mismatch(report: dict[str, Any], tensors: int, name: str) -> str:
    """Which of `tensors` the weights lack, or hold in another shape than the configuration asks for; empty if none."""
    if mismatched := sorted(report["mismatched_keys"]):
        tensor, stored, wanted = mismatched[0]
        shapes = [" x ".join(map(str, shape)) for shape in (stored, wanted)]
        others = f", the first of {len(mismatched)} that differ" if len(mismatched) > 1 else ""
        return (
            f"In the weights of {name}, {tensor} is {shapes[0]} and its configuration needs {shapes[1]}{others}; "
            "they are from different models: download both again."
        )
    missing = sorted(report["missing_keys"])
    if not missing:
        return ""
    count = f"{len(missing)} of {tensors} tensors, such as" if len(missing) > 1 else "tensor"
    whose = "they are from another model" if 2 * len(missing) > tensors else "they are incomplete"
    return f"The weights of {name} lack {count} {missing[0]}; {whose}: {AGAIN}."


def _not_finite(network: Any, name: str) -> str:
    """The first tensor that holds nan or inf, empty if none does; weights that lie off the device are not looked at."""
    for tensor, weight in network.named_parameters():
        if weight.is_meta or not weight.numel():
            continue
        ends = torch.stack(weight.detach().aminmax())
        if not ends.isfinite().all():
            said = f"The weights of {name} contain nan or infinite values in {tensor}"
            if weight.dtype == torch.float16 and not ends.isnan().any():
                return f"{said}, which float16 can cause; choose float32 or bfloat16, or {AGAIN}."
            return f"{said}; {AGAIN}."
    return ""


def out_of_memory(what: str, device: str, error: BaseException) -> OutOfMemoryError:
    """Free what can be freed, also what the failed call still holds in its frames, and give the error to raise."""
    drop_frames(error)
    return OutOfMemoryError(
        f"{device} has no room for {what}; choose a smaller model, a 16-bit dtype, or a shorter context_length."
    )


def drop_frames(error: BaseException) -> None:
    """Free the tensors that the frames of a failed call hold for as long as somebody keeps its error."""
    traceback.clear_frames(error.__traceback__)
    error.__traceback__ = None
    free_memory()


def free_memory() -> None:
    """Return unused memory to the device."""
    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
    if torch.backends.mps.is_available():
        torch.mps.empty_cache()


def check_room(source: WeightsSource, role: str, settings: PairSettings, device: str, dtype: str) -> None:
    """Refuse weights that cannot fit before they are read: a machine that runs out of memory ends the program."""
    name = settings.target if role == "target" else settings.draft
    shape, room = model_shape(name, role, settings.widen), free_bytes(device)
    if shape is None or room is None or (settings.places_layers and role == "target"):
        return
    need = shape.weight_bytes(dtype)
    if need > room:
        raise OutOfMemoryError(
            f"{source.name} needs {byte_size(need)} in {dtype} and {device} has {byte_size(room)} free; "
            "choose a smaller model or a 16-bit dtype."
        )


def free_bytes(device: str) -> int | None:
    """Free memory of a device, None where it cannot be asked."""
    if device.startswith("cuda"):
        free, _ = torch.cuda.mem_get_info()
        return free + torch.cuda.memory_reserved() - torch.cuda.memory_allocated()
    if device == "cpu":
        return psutil.virtual_memory().available
    return None


def explain(error: BaseException, name: str, what: str) -> str:
    """One sentence for an error of transformers or the Hub: what is wrong and what to do."""
    chain: list[BaseException] = []
    seen: BaseException | None = error
    while seen is not None and seen not in chain:
        chain.append(seen)
        seen = seen.__cause__ or seen.__context__
    kinds = {cls.__name__ for link in chain for cls in type(link).__mro__}
    text = str(error)
    if any(isinstance(link, SafetensorError) for link in chain):
        return f"The weights of {name} are damaged; download them again."
    if "GatedRepoError" in kinds:
        return f"{name} is gated: accept its licence at huggingface.co/{name}, run `hf auth login`, then load it again."
    if kinds & {"RepositoryNotFoundError", "HFValidationError"}:
        return f"{name} is neither a local folder nor a model on the Hugging Face Hub; check the spelling."
    if kinds & NO_NETWORK or "couldn't connect" in text:
        return (
            f"{name} is not on this machine and the Hugging Face Hub cannot be reached; on a machine with network run "
            f"`hf download {name} --local-dir FOLDER`, copy FOLDER to this machine and give its path."
        )
    if "does not appear to have a file named" in text and "safetensors" in text:
        return f"{name} has no safetensors weights, and pickles are never loaded; choose a model that has them."
    if "custom code" in text or "trust_remote_code" in text:
        return f"{name} needs its own program code, which Draftscope never runs; choose another model."
    if "does not recognize this architecture" in text:
        kind = re.search(r"model type `([^`]{1,60})`", text)
        what = f"is a {kind[1]} model, which" if kind else "is of a type that"
        return f"{name} {what} the installed transformers does not know; update it or choose another model."
    if "model_type" in text:
        return f"config.json of {name} has no model_type (such as llama), so its architecture is unknown; {AGAIN}."
    if "`layer_types` entries" in text:
        found = re.search(r"but got (.{1,120})", text)
        what = f" ({found[1].strip('()[]')})" if found else ""
        return f"{name} has layer_types that the installed transformers does not know{what}; choose another model."
    return f"The {what} of {name} cannot be loaded ({first_line(error)}); {AGAIN} or choose another."


def _attention(source: WeightsSource, asked: str) -> str:
    sdpa = bool(getattr(source.model_class, "_supports_sdpa", False))
    if asked == "sdpa" and not sdpa:
        raise PairError(f"{source.name} has no sdpa attention in transformers; choose attention auto or eager.")
    if not sdpa or asked == "eager":
        return "eager"
    return GROUPED_SDPA if can_group(source.model_class, source.config) else "sdpa"

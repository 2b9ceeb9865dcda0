"""A pair of random weights with room for long texts: what it says means nothing, what it costs is real."""

from pathlib import Path

import torch
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer

from decoding.models.pair import Pair, load_pair
from decoding.models.presets import EMBEDDED_FOLDER, PairSettings

LAYERS, DRAFT_LAYERS = 4, 1
# Embeddings that outweigh the layers let the draft, the target's first layers, agree with the target: paths are
# accepted to their ends, which is the dearest case for the cache.
EMBEDDING_GAIN = 50.0


def random_pair(folder: Path, context: int, device: str = "auto", dtype: str = "auto") -> Pair:
    """Write a target as wide as the embedded one, and its first layers as the draft; load both.

    Args:
        folder: where the two models are written.
        context: most tokens of prompt and output together.
    """
    torch.manual_seed(0)
    target, draft = _model(LAYERS, context), _model(DRAFT_LAYERS, context)
    target.get_input_embeddings().weight.data.mul_(EMBEDDING_GAIN)
    draft.load_state_dict(target.state_dict(), strict=False)  # the target's further layers find no place
    for name, model in (("target", target), ("draft", draft)):
        model.save_pretrained(folder / name)
        AutoTokenizer.from_pretrained(EMBEDDED_FOLDER / "target").save_pretrained(folder / name)
    return load_pair(
        PairSettings(str(folder / "target"), str(folder / "draft"), device=device, dtype=dtype, context_length=context)
    )


def _model(layers: int, context: int) -> torch.nn.Module:
    config = AutoConfig.from_pretrained(EMBEDDED_FOLDER / "target")
    config.num_hidden_layers, config.max_position_embeddings = layers, context
    return AutoModelForCausalLM.from_config(config, dtype=torch.float32)

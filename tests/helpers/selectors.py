"""Selectors for tests: random networks stored for a pair, and choosers that follow the text."""

from pathlib import Path
from typing import Any

import numpy as np
import torch

from decoding.common.cost_model import CostModel, read_curve
from decoding.sampling.sampling import Sampling
from decoding.selector.actions import Action, LatencyModel, StaticShape
from decoding.selector.features import SCALARS, Past
from decoding.selector.network import SelectorConfig, SelectorNetwork
from decoding.selector.store import save_selector

COSTS = CostModel(read_curve("1:5 64:20", "target"), read_curve("1:1 8:2", "draft"), 0.002, 0.0005, 10, 256, "", "here")
LATENCY = LatencyModel(COSTS, (16, 1024), (0.001, 0.0015), (0.005, 0.008), 0.0003)


def random_network(target_size: int, draft_size: int, seed: int = 0) -> SelectorNetwork:
    """A network whose logits wander with its input, so that different roots get different actions."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        network = SelectorNetwork(SelectorConfig(target_size, draft_size, width=16, hidden=(32, 8)))
        for layer in network.layers:
            if isinstance(layer, torch.nn.Linear):
                layer.weight.data *= 4
    return network.eval()


def store(folder: Path, pair: Any, verifier: str = "specinfer", seed: int = 0) -> SelectorNetwork:
    """A random selector for a loaded pair, stored in a folder."""
    from decoding.models.pair import pair_identity

    network = random_network(pair.target.info.hidden_size, pair.draft.info.hidden_size, seed)
    save_selector(folder, network, content(pair_identity(pair), verifier))
    return network


def content(identity: dict, verifier: str = "specinfer") -> dict[str, Any]:
    """What a card says beside the shape of its network."""
    return {
        "verifier": verifier,
        "created": "2030-01-02T03:04:05",
        "pair": identity,
        "mean": [0.0] * len(SCALARS),
        "spread": [1.0] * len(SCALARS),
        "statics": (
            StaticShape(1.0, 1.0, 1.0, Action(2, 1, 3), Action(4, 4, 8), Action(2, 0, 4), Action(4, 0, 8)),
            StaticShape(0.0, 1.0, 1.0, *[Action(1, 4, 0)] * 2, *[Action(1, 0, 4)] * 2),
        ),
        "latency": LATENCY.as_json(),
        "way": "rows",
        "scalars": list(SCALARS),
        "rule": "policy",
        "data": {"text": "0" * 64, "texts": 2, "seed": 0},
        "settings": {"seed": 0, "batch": 256},
        "figures": {"roots": 4, "examples": 12},
    }


def past(seed: int = 0, target_size: int = 6, draft_size: int = 4, length: int = 100, copies: int = 1) -> Past:
    """What two models of five tokens say somewhere; the target's feature may be there several times."""
    draws = np.random.default_rng(seed)
    target, *draft = draws.dirichlet(np.ones(5), 3).astype(np.float32)
    hidden = draws.normal(size=target_size).astype(np.float32), draws.normal(size=(2, draft_size)).astype(np.float32)
    return Past(np.tile(hidden[0], copies), target, hidden[1], np.stack(draft), length, 0.8, 0.95, 1.0)


WARM = Sampling(temperature=0.8, top_p=0.95, seed=5)

"""Measures in a warm-up what passes cost behind contexts of several lengths, and what asking a selector costs."""

import time
from statistics import median
from typing import Any

import numpy as np
import torch

from decoding.costs.kept import keep, recall
from decoding.costs.measuring import Decoder, cost_model, machine_words
from decoding.engines.base import Visibility
from decoding.models.pair import Model, Pair
from decoding.models.tree_attention import tree_forward
from decoding.sampling.sampling import Sampling
from decoding.selector.actions import LatencyModel
from decoding.selector.features import Past, features_of
from decoding.selector.network import SelectorConfig, SelectorNetwork

LENGTHS = (16, 128, 256, 512, 1024)
ROUNDS, WARM_UPS = 20, 2
SLOW_PASS_S = 0.1  # of slower passes fewer are timed
KIND = "latency"


def latency_model(pair: Pair, decoder: Decoder, again: bool = False) -> LatencyModel:
    """The latencies of a pair here: kept ones, or measured now and kept.

    Args:
        decoder: decodes, to measure what an iteration takes beside its passes.
        again: measure even where some are kept, the costs of passes of many rows included.
    """
    entry = machine_words(pair)
    known = None if again else recall(pair, KIND, entry, _is_latency_model)
    if known is not None:
        return LatencyModel.from_json(known)
    measured = measure_latency(pair, decoder, again)
    keep(pair, KIND, entry, measured.as_json(), _is_latency_model)
    return measured


@torch.inference_mode()
def measure_latency(pair: Pair, decoder: Decoder, again: bool = False) -> LatencyModel:
    """Time passes of one row, the two models in turn so that what slows the machine hits both alike."""
    costs = cost_model(pair, decoder, again)
    lengths = tuple(length for length in LENGTHS if length < pair.context)
    models = (pair.draft, pair.target)
    probes = [_Probe(model, lengths[-1]) for model in models]
    times: dict[tuple[int, int], list[float]] = {}
    rounds = 3 if probes[1].pass_s(lengths[0]) > SLOW_PASS_S else ROUNDS
    for _ in range(rounds):
        for length in lengths:
            for role, probe in enumerate(probes):
                for _ in range(WARM_UPS if rounds == ROUNDS else 0):
                    probe.pass_s(length)  # the other model's passes have filled the processor's caches
                times.setdefault((role, length), []).append(probe.pass_s(length))
    # Noise only adds time: the least is what a pass takes. None is cheaper behind a longer context.
    draft_s, target_s = (
        tuple(np.maximum.accumulate([min(times[role, length]) for length in lengths]).tolist()) for role in range(2)
    )
    return LatencyModel(costs, lengths, draft_s, target_s, _selector_s(pair))


class _Probe:
    """Passes of one row behind a context of any length up to a limit."""

    def __init__(self, model: Model, most: int):
        self._model, self._cache = model, model.engine.new_cache(most + 1)
        self._ids = np.arange(most + 1) * 97 % model.info.vocab_size
        seen = Visibility(0, np.tri(most, dtype=bool))
        tree_forward(model, self._cache, self._ids[:most], np.arange(most), seen, keep=1)
        self._most = most

    def pass_s(self, length: int) -> float:
        """Seconds until the logits behind `length` rows are there."""
        self._cache.length = length  # rows behind stay written: a later call may see them again
        _settle(self._model.device)
        started = time.perf_counter()
        seen = Visibility(length, np.ones((1, 1), dtype=bool))
        logits = tree_forward(self._model, self._cache, self._ids[-1:], np.array([length]), seen, keep=1)
        _settle(logits.device)
        return time.perf_counter() - started


def _selector_s(pair: Pair) -> float:
    """Seconds that logits of the previous token, features and network take; the network's weights are random."""
    sizes = pair.target.info.hidden_size, pair.draft.info.hidden_size
    network = SelectorNetwork(SelectorConfig(*sizes)).eval()
    device, vocab = pair.target.device, pair.logits_size
    past = Past(
        target_feature=torch.ones(sizes[0], device=device),
        target_logits=torch.linspace(0, 1, vocab, device=device),
        draft_features=torch.ones(2, sizes[1], device=device),
        draft_laws=torch.full((2, vocab), 1 / vocab, device=device),
        length=1,
        sampling=Sampling(temperature=1.0),
    )
    times = []
    for _ in range(ROUNDS):
        started = time.perf_counter()
        pair.target.engine.project(past.target_feature[None])
        int(network(features_of(past, 0.0, 0.0)).argmax())
        times.append(time.perf_counter() - started)
    return median(times)


def _settle(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    elif device.type == "mps":
        torch.mps.synchronize()


def _is_latency_model(content: Any) -> bool:
    try:
        LatencyModel.from_json(content)
    except (ValueError, KeyError, TypeError):
        return False
    return True

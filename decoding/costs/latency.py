"""Measures what a selector plans by: passes after contexts of several lengths, what real iterations of a verifier take
beside them, and what asking costs. It is kept as other costs are.
"""

import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from statistics import median
from typing import Any

import numpy as np
import torch

from decoding.common.cost_model import CostModel, others_words
from decoding.common.interruption import check_wanted, pause_point
from decoding.common.other_work import OtherWork
from decoding.costs.measuring import (
    CHECK_ROUNDS,
    SLOW_PASS_S,
    CalibrationCache,
    Decoder,
    contradiction_of,
    cost_model,
    held,
    least_median,
    machine_words,
    pass_seconds,
    quartiles,
    sample_prompt,
)
from decoding.drafters import DelayedDrafter
from decoding.engines.base import Visibility
from decoding.methods.methods import METHODS
from decoding.models.pair import Model, Pair, pair_identity, tree_forward
from decoding.sampling.sampling import Sampling
from decoding.selector.actions import (
    DISTINCT,
    MOST_PATHS,
    Action,
    LatencyModel,
    StaticShape,
    VerifierTimes,
    times_from_json,
)
from decoding.selector.chooser import Chooser, ChosenAction, NetworkOutputs
from decoding.selector.features import SCALARS, Past, Scaler
from decoding.selector.network import SelectorConfig, SelectorNetwork

# Rows of context, rounds of timed passes, and untimed passes before each.
LENGTHS = (16, 128, 256, 512, 1024)
ROUNDS, ROW_WARM_UPS = 20, 2
# Trees whose iterations are timed with each verifier, by K: the smallest, a deep one, and one between.
TIMED = tuple(Action(*shape) for shape in (
    (1, 1, 0), (1, 4, 0), (1, 8, 0), (2, 0, 1), (2, 2, 4), (2, 0, 8), (3, 0, 1), (3, 2, 4), (3, 0, 8), (4, 0, 1),
    (4, 2, 4), (4, 0, 8),
))  # fmt: skip
LEAST_ROUNDS, MOST_ROUNDS, BUDGET_S, BLOCKS = 6, 24, 4.0, 3
PROMPT, WARM = 64, Sampling(temperature=1.0)
ASKED_WITH, ASKED_ROUNDS = Action(2, 1, 1), 24
LATENCIES = CalibrationCache("latency", LatencyModel.from_json, LatencyModel.as_json)
BESIDE = CalibrationCache(
    "beside-passes", times_from_json, lambda times: {**vars(times), "paths_s": list(times.paths_s)}
)


def latency_model(pair: Pair, decoder: Decoder, verifier: str = "", again: bool = False) -> LatencyModel:
    """The latencies of a pair here: kept ones, or measured now and kept, with `again` the costs of passes too.

    Kept ones go with the costs that they were measured beside: where those have been replaced, so are these.
    Iterations are counted as a verifier makes them, or as the costs of passes have them where none is named.
    """
    entry, costs = machine_words(pair), cost_model(pair, decoder, again)
    kept = LATENCIES.known(pair, entry)
    replaced = kept is not None and kept.costs.measured != costs.measured
    made = held(
        LATENCIES, pair, lambda _: measure_latency(pair, costs, decoder), lambda kept: disagreement(pair, kept),
        lambda each: each.disturbed or others_words(each.others), again or replaced,
    )  # fmt: skip
    if not verifier:
        return made
    entry = f"{entry}, {verifier}"
    times = BESIDE.known(pair, entry)
    outdated = times is not None and times.measured_with != costs.measured
    return replace(made, beside=BESIDE.of(pair, entry, lambda: verifier_times(pair, made, decoder, verifier),
                                          again or outdated))  # fmt: skip


def disagreement(pair: Pair, kept: LatencyModel) -> str:
    """Why kept passes of one row do not hold now, a clause; empty where they do, or where other work explains it."""
    when = kept.costs.when
    if kept.disturbed:
        return f"{kept.disturbed} on {when}"

    def ratio(model: Model, seconds: float) -> float:
        probe, length = RowProbe(model, kept.lengths[0]), kept.lengths[0]
        return min(probe.pass_s(length) for _ in range(CHECK_ROUNDS)) / max(seconds, 1e-9)

    return contradiction_of(
        when,
        {
            "target passes of one row": lambda: ratio(pair.target, kept.target_s[0]),
            "draft passes of one row": lambda: ratio(pair.draft, kept.draft_s[0]),
        },
    )


@torch.inference_mode()
def measure_latency(pair: Pair, costs: CostModel, decoder: Decoder) -> LatencyModel:
    """Time passes of one row, the two models in turn so that what slows the machine hits both alike; then asking."""
    other_work = OtherWork()
    lengths = tuple(length for length in LENGTHS if length < pair.context)
    probes = [RowProbe(model, lengths[-1]) for model in (pair.draft, pair.target)]
    times: dict[tuple[int, int], list[float]] = {}
    rounds = 3 if probes[1].pass_s(lengths[0]) > SLOW_PASS_S else ROUNDS
    for _ in range(rounds):
        for length in lengths:
            for role, probe in enumerate(probes):
                for _ in range(ROW_WARM_UPS if rounds == ROUNDS else 0):
                    probe.pass_s(length)  # the other model's passes have filled the processor's caches
                times.setdefault((role, length), []).append(probe.pass_s(length))
    # Noise only adds time: the least is what a pass takes. None is cheaper after a longer context.
    draft_s, target_s = (
        tuple(np.maximum.accumulate([min(times[role, length]) for length in lengths]).tolist()) for role in range(2)
    )
    spread = median(high / low if low else 1.0 for low, _, high in map(quartiles, times.values()))
    made = LatencyModel(costs, lengths, draft_s, target_s, 0.0, spread=spread)
    return replace(made, selector_s=asking_s(pair, made, decoder), others=round(other_work.share(), 3))


class RowProbe:
    """Passes of one row after a context of any length up to `most`."""

    def __init__(self, model: Model, most: int):
        self._model, self._cache = model, model.engine.new_cache(most + 1)
        self._ids = np.arange(most + 1) * 97 % model.info.vocab_size
        seen = Visibility.causal(0, most)
        tree_forward(model, self._cache, self._ids[:most], np.arange(most), seen, keep=1)

    def pass_s(self, length: int) -> float:
        """Seconds until the logits after `length` rows are there."""
        self._cache.length = length  # rows after stay written: a later call may see them again
        last, place, seen = self._ids[-1:], np.array([length]), Visibility(length, np.ones((1, 1), dtype=bool))
        return pass_seconds(self._model, lambda: tree_forward(self._model, self._cache, last, place, seen, keep=1))


def verifier_times(pair: Pair, latency: LatencyModel, decoder: Decoder, verifier: str) -> VerifierTimes:
    """Time real iterations with a verifier over trees of several shapes, in turn, and what they take beside passes.

    Where passes are so slow that nothing beside them counts, or the context has no room, it is what `costs` has.
    """
    costs = latency.costs
    usual = VerifierTimes(verifier, (costs.iteration_s,) * MOST_PATHS, costs.level_s, 0.0, costs.measured)
    if latency.target_s[0] > SLOW_PASS_S:
        return usual
    prompt = sample_prompt(pair)[:PROMPT] or [0, 0]
    tokens = min(MOST_ROUNDS * 8, pair.context - len(prompt))
    method = METHODS["delayed"].with_settings(verifier=verifier)
    sessions = [decoder(pair, method.with_settings(**a._asdict()), prompt, tokens, WARM) for a in TIMED]
    beside: list[list[float]] = [[] for _ in TIMED]
    started, rounds = time.perf_counter(), -1  # the first iterations read the prompt
    while rounds < LEAST_ROUNDS or (rounds < MOST_ROUNDS and time.perf_counter() - started < BUDGET_S):
        started += pause_point()
        for session, action, found in zip(sessions, TIMED, beside, strict=True):
            check_wanted()
            if session.limits.max_new_tokens - session.new_tokens <= action.trunk + action.branch:
                continue  # the length limit would cut its tree
            begun = time.perf_counter()
            times = session.step().times
            # Its own passes, not those that `latency` has: the machine may have been faster or slower then.
            if rounds >= 0:
                found.append(time.perf_counter() - begun - times.verify_s - sum(times.draft_levels_s))
        rounds += 1
    if not all(beside):
        return usual
    fitted = VerifierTimes.fitted(verifier, TIMED, [least_median(each, BLOCKS) for each in beside])
    return replace(fitted, measured_with=costs.measured)


@dataclass(frozen=True, eq=False)
class FixedChooser(Chooser):
    """A chooser that is asked and always takes the same action; `asked_s` gets the seconds that each answer took."""

    action: Action = ASKED_WITH
    asked_s: list[float] = field(default_factory=list)

    def choose(self, past: Past) -> ChosenAction:
        begun = time.perf_counter()
        chosen = super().choose(past)
        self.asked_s.append(time.perf_counter() - begun)
        return ChosenAction(self, self.action, past, chosen.scalars, chosen.outputs)


def asking_s(pair: Pair, latency: LatencyModel, decoder: Decoder) -> float:
    """Seconds more of real iterations in which a selector is asked: the same trees with and without, in turn.

    No less than the answers alone take: of iterations that other work disturbs the difference may come out as nothing.
    The network's weights are random, its size is that of trained ones.
    """
    sizes, names = (pair.target.info.hidden_size, pair.draft.info.hidden_size), SCALARS
    network = NetworkOutputs(SelectorNetwork(SelectorConfig(*sizes)))
    scaler = Scaler((0.0,) * len(names), (1.0,) * len(names))
    identity: Mapping[str, Any] = pair_identity(pair)
    static = StaticShape.of((1.0, 1.0, 1.0), np.full(len(DISTINCT), 1.5), np.ones(len(DISTINCT)))
    chooser = FixedChooser(network, scaler, latency, identity, "nss", names, "tokens", (static,))
    plain = METHODS["delayed"].with_settings(verifier="nss", **ASKED_WITH._asdict())
    asking = replace(plain, drafter=DelayedDrafter(selector="measured", chooser=chooser))
    prompt = sample_prompt(pair)[:PROMPT] or [0, 0]
    tokens = min(4 * ASKED_ROUNDS, pair.context - len(prompt))
    sessions = [decoder(pair, method, prompt, tokens, WARM) for method in (asking, plain)]
    more_s: list[float] = []
    rounds = 4 if latency.target_s[0] > SLOW_PASS_S else ASKED_ROUNDS
    while len(more_s) < rounds and not any(session.finished for session in sessions):
        check_wanted()
        taken = []
        for session in sessions if len(more_s) % 2 else sessions[::-1]:
            begun = time.perf_counter()
            session.step()
            taken.append(time.perf_counter() - begun)
        more_s.append(taken[0] - taken[1] if len(more_s) % 2 else taken[1] - taken[0])
    return max(median(times[2:] or times) for times in (more_s, chooser.asked_s))

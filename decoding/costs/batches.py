"""Measures what passes cost over batches of sequences, in half a minute or so, and keeps it.

    costs = batch_costs(pair, decoder)          # {1: CostModel, 2: CostModel, ..., 64: CostModel}
    speed_by_batch(costs, acceptance)           # of decoding.analysis.batch

Real passes over real caches: products over the rows of all sequences, attention over those of each (`BatchEngine`).
What an iteration takes beside its passes is counted once for the whole batch, as in an engine that serves batches.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from decoding.common.cost_model import CostCurve, CostModel, CostPoint
from decoding.common.errors import is_out_of_memory
from decoding.common.files import utc_stamp
from decoding.common.formats import plural
from decoding.common.interruption import check_wanted, pause_point
from decoding.common.other_work import OtherWork
from decoding.costs.measuring import (
    CHECK_ROUNDS,
    SLOW_PASS_S,
    CalibrationCache,
    Decoder,
    binary_tree,
    contradiction_of,
    cost_model,
    held,
    least_ratio,
    machine_words,
    pass_seconds,
    siblings,
)
from decoding.engines.base import Visibility
from decoding.engines.batch import BatchCache, BatchEngine, BatchMask
from decoding.engines.cuda_graph import CudaGraphEngine
from decoding.models.pair import DraftHead, Model, Pair

BATCHES = SIZES = (1, 2, 4, 8, 16, 32, 64)
PREFIX_LENGTH = 256
ROUNDS = 5
# A short pass that comes after a long one finds the processor's caches full of other things, as no pass of a run does.
SHORT_S, AGAIN = 0.02, 3
CHECKED_SIZES = (1, 16)  # of passes that kept costs are held against
# A pass that takes longer is the last one measured of its batch: beyond it time is proportional to rows.
LONGEST_S = 1.5


def batch_costs(
    pair: Pair, decoder: Decoder, again: bool = False, report: Callable[[int], None] = lambda batch: None
) -> dict[int, CostModel]:
    """Costs of a pair here by the number of sequences in a batch: kept ones, or measured now and kept.

    `report` is given each batch size before it is measured. Raises `PairError` where the pair's engine runs no batches.
    """
    alone = cost_model(pair, decoder)

    def measure(corrected: str) -> dict[int, CostModel]:
        made = measure_batches(pair, alone, report=report)
        return {batch: replace(each, corrected=corrected) for batch, each in made.items()}

    costs = held(KEPT, pair, measure, lambda kept: disagreement(pair, kept), _beside, again)
    beside = {name: getattr(alone, name) for name in ("iteration_s", "level_s", "iterations", "plain_s")}
    return {batch: replace(each, **beside) for batch, each in costs.items()}  # those of one sequence may be newer


def _beside(costs: Mapping[int, CostModel]) -> str:
    return next((each.beside for each in costs.values() if each.beside), "")


def disagreement(pair: Pair, kept: Mapping[int, CostModel]) -> str:
    """Why kept costs do not hold now, a clause; empty where they do, or where other work explains the difference.

    Timed are passes over the batch beside which other programs worked most; those over one sequence have their own
    check.
    """
    disturbed = next((each for each in kept.values() if each.disturbed), None)
    if disturbed is not None:
        return f"{disturbed.disturbed} on {disturbed.when}"
    several = [each for each in kept.values() if each.batch > 1]
    if not several:
        return ""
    costs = max(several, key=lambda each: each.others)

    def ratio(model: Model | DraftHead, curve: CostCurve, level: bool) -> float:
        sizes = [point.size for point in curve.points if point.size in CHECKED_SIZES]
        probe = BatchProbe(pair, model, costs.batch, max(sizes), level)
        rounds = 2 if probe.pass_s(sizes[0]) > SLOW_PASS_S else CHECK_ROUNDS
        return least_ratio(probe.pass_s, sizes, curve, rounds)

    over = f"over {plural(costs.batch, 'sequence')}"
    return contradiction_of(
        costs.when,
        {
            f"passes {over}": lambda: ratio(pair.target, costs.target, False),
            f"draft levels {over}": lambda: ratio(pair.drafting, costs.draft, True),
        },
    )


def known_batch_costs(pair: Pair) -> dict[int, CostModel] | None:
    """What is kept of a pair on this machine, None if nothing is."""
    return KEPT.known(pair, machine_words(pair))


def measure_batches(
    pair: Pair,
    alone: CostModel,
    batches: tuple[int, ...] = (),
    sizes: tuple[int, ...] = (),
    report: Callable[[int], None] = lambda batch: None,
) -> dict[int, CostModel]:
    """Measure passes of both models, batch by batch; sizes in turn, so that what slows the machine hits all alike.

    Larger batches than memory holds are left out.

    Args:
        alone: the pair's costs over one sequence, for what an iteration takes beside its passes.
        batches, sizes: sequences, and tokens of each; `BATCHES` and `SIZES` where empty.

    Raises `PairError` where the pair's engine runs no batches; `RuntimeError` or `MemoryError` where there is no memory
    even for one sequence.
    """
    found: dict[int, CostModel] = {}
    for batch in batches or BATCHES:
        report(batch)
        if batch == 1 and isinstance(pair.target.engine, CudaGraphEngine):  # with kernels that are for one sequence
            curves = (alone.target, alone.draft)
            target, draft = (CostCurve(tuple(p for p in each.points if p.size in (sizes or SIZES))) for each in curves)
            found[1] = replace(alone, target=target, draft=draft)
            continue
        other_work = OtherWork()
        try:
            target, draft = (_curve(pair, model, batch, sizes or SIZES, level) for model, level in
                             ((pair.target, False), (pair.drafting, True)))  # fmt: skip
        except (RuntimeError, MemoryError) as error:
            if not found or not is_out_of_memory(error):
                raise
            break
        measured = utc_stamp()
        found[batch] = replace(
            alone, target=target, draft=draft, batch=batch, measured=measured, others=round(other_work.share(), 3),
            prefix_length=min(PREFIX_LENGTH, pair.context // 2),
        )  # fmt: skip
    return found


def _curve(pair: Pair, model: Model | DraftHead, batch: int, sizes: tuple[int, ...], level: bool) -> CostCurve:
    probe, times = BatchProbe(pair, model, batch, max(sizes), level), dict[int, list[float]]()
    known = sizes
    for turn in range(ROUNDS + 1):  # the first warms up and shows which sizes take too long
        pause_point()
        for place, size in enumerate(known):
            check_wanted()
            taken = probe.pass_s(size)
            if taken < SHORT_S:
                taken = min(taken, *(probe.pass_s(size) for _ in range(AGAIN)))
            if turn:
                times.setdefault(size, []).append(taken)
            elif taken > LONGEST_S and size > sizes[1]:
                known, times = known[: place + 1], {size: [taken]}
                break
    low, high = ({size: float(np.quantile(each, share)) for size, each in times.items()} for share in (0.25, 0.75))
    # Noise only adds time
    return CostCurve(tuple(CostPoint(size, min(times[size]), low[size], high[size]) for size in known))


class BatchProbe:
    """Passes of one model over `batch` sequences of one length: a tree each, or a level of siblings each."""

    def __init__(self, pair: Pair, model: Model | DraftHead, batch: int, most: int, level: bool):
        past = min(PREFIX_LENGTH, pair.context // 2)
        self._model, self._batch, self._past, self._last = model, batch, past, pair.context - 1
        self._cache, self._maker = BatchCache(batch, past + most), np.random.default_rng(0)
        self._vocab = pair.logits_size
        self._seen, self._depths = siblings(most) if level else binary_tree(most)
        if isinstance(model, Model):
            plain = model.with_engine("transformers").engine
            self._engine = BatchEngine(plain, model.engine, model.network, model.positions, batch)
        with torch.inference_mode():
            self._forward(np.arange(past), Visibility.causal(0, past), keep=1)

    @torch.inference_mode()
    def pass_s(self, size: int) -> float:
        """Seconds of one pass over `size` tokens of each sequence, its mask included, until its logits are there."""
        positions = np.minimum(self._past + self._depths[:size], self._last)
        seen = Visibility(self._past, self._seen[:size, :size])
        taken = pass_seconds(self._model, lambda: self._forward(positions, seen))
        self._cache.length = self._past
        return taken

    def _forward(self, positions: np.ndarray, seen: Visibility, keep: int = 0) -> Tensor:
        ids = self._maker.integers(self._vocab, size=(self._batch, len(positions)))
        if isinstance(self._model, Model):
            return self._engine.run(self._cache, ids, positions, seen, keep)
        engine, rows = self._model.engine, ids.size  # features of 0 cost a head what all others do
        features = torch.zeros(rows, self._model.info.hidden_size, dtype=engine.dtype, device=engine.device)
        mask = BatchMask.of(seen, self._batch, engine.device)
        made = engine.run(self._cache, ids.ravel(), np.tile(positions, self._batch), mask, features)
        return self._model.logits(made[-keep:])


def _read(stored: Any) -> dict[int, CostModel]:
    costs = [CostModel.from_json(each) for each in stored]
    if [each.batch for each in costs] != sorted({each.batch for each in costs}) or not costs:
        raise ValueError("batch sizes must ascend")
    return {each.batch: each for each in costs}


KEPT = CalibrationCache("batches", _read, lambda costs: [each.as_json() for each in costs.values()])

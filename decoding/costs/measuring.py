"""Measures what passes of a pair cost on this machine, in a second or two.

What is measured once per pair is kept in memory and in `draftscope/calibration/` of the user's cache folder, a file per
pair and kind; a damaged one is said aloud and measured again.
"""

import hashlib
import json
import math
import re
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median, quantiles
from typing import Any, Generic, TypeVar

import numpy as np
import torch
from torch import Tensor

from decoding.common.cost_model import CALIBRATION, COSTS_KIND, QUIET, CostCurve, CostModel, CostPoint
from decoding.common.errors import DiskError, is_out_of_memory
from decoding.common.files import user_folder, utc_stamp, write_whole
from decoding.common.formats import plural
from decoding.common.interruption import CancelledError, check_wanted, pause_point
from decoding.common.notices import doing, tell
from decoding.common.other_work import OtherWork, await_quiet
from decoding.common.prompts import load_prompts
from decoding.common.settings import present_engines
from decoding.engines.base import Visibility
from decoding.engines.clock import describe_hardware
from decoding.engines.cuda_graph import BUCKETS
from decoding.methods.methods import METHODS
from decoding.models.pair import DraftHead, Model, Pair, pair_identity, tree_forward
from decoding.trace.metrics import slowdown
from decoding.trace.records import IterationTrace

T = TypeVar("T")
ELSEWHERE = "name another cache folder in XDG_CACHE_HOME"

_known: dict[tuple[Path, str], Any] = {}
_trusted_until: dict[tuple[Path, str], float] = {}  # of what is kept, by the clock of `time.monotonic`
_said_until: dict[tuple[Path, str], float] = {}  # that it was doubted and kept, by the same clock
# Pairs whose kept costs a run gave cause to doubt, and why, a sentence
_doubts: dict[tuple[Path, str], tuple[Pair, str]] = {}


def calibration_file(pair: Pair, kind: str = "") -> Path:
    """Where the values of one kind are kept for a pair."""
    digest = hashlib.sha256(json.dumps(pair_identity(pair), sort_keys=True).encode()).hexdigest()[:12]
    name = re.sub(r"[^a-z0-9]+", "-", pair.info.name.lower()).strip("-")[:60]
    return user_folder(CALIBRATION) / f"{'-'.join(filter(None, (name, digest, kind)))}.json"


@dataclass(frozen=True)
class CalibrationCache(Generic[T]):
    """Values of one kind, an entry of the pair's file for each thing that they depend on beside the pair.

    Attributes:
        kind: ending of the files' names, empty for acceptance by rank.
        read: what JSON held to a value; raises ValueError, KeyError, TypeError or AttributeError where it cannot be.
        write: a value to what JSON can hold.
    """

    kind: str
    read: Callable[[Any], T]
    write: Callable[[T], Any]

    def known(self, pair: Pair, entry: str) -> T | None:
        """What is kept of a pair under an entry, None if nothing is."""
        file = calibration_file(pair, self.kind)
        if (file, entry) not in _known:
            entries = self._entries(file)
            if entry not in entries:
                return None
            _known[file, entry] = self.read(entries[entry])
        return _known[file, entry]

    def of(self, pair: Pair, entry: str, measure: Callable[[], T], again: bool = False) -> T:
        """What is kept, or is measured now and kept; other entries of the file stay. `again` measures in any case."""
        known = None if again else self.known(pair, entry)
        if known is not None:
            return known
        value, file = measure(), calibration_file(pair, self.kind)
        entries = self._entries(file) | {entry: self.write(value)}
        text = json.dumps({"pair": pair_identity(pair), "entries": entries}, indent=1)
        try:
            write_whole(file, text.encode(), advice=ELSEWHERE)
        except DiskError as error:  # what was measured serves without a file too
            warnings.warn(f"The calibration cannot be saved: {error}", stacklevel=3)
        _known[file, entry] = value
        return value

    def _entries(self, file: Path) -> dict[str, Any]:
        """The entries of a file as JSON holds them; none if there is no file, or if it is damaged."""
        try:
            entries = json.loads(file.read_text(encoding="utf-8"))["entries"]
            for stored in entries.values():
                self.read(stored)
        except (FileNotFoundError, NotADirectoryError):
            return {}
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            warnings.warn(f"The calibration in {file} cannot be read; it is re-measured.", stacklevel=4)
            return {}
        return {present_engines(entry): stored for entry, stored in entries.items()}


SIZES = (1, 2, 4, 8, 16, 32, 64, 128, 256)
FEW_SIZES = (1, 16, 64)
PREFIX_LENGTH, SHORT_PREFIX = 256, 16
# A model whose single-token pass takes longer is measured at a few sizes after a short prefix.
SLOW_PASS_S = 0.1
# No tree is worth a pass that takes so many times one of a single node.
MOST_RATIO = 10
BUDGET_S = 1.5
MOST_ROUNDS, BLOCKS = 40, 4
WARM_UPS = 3  # with CUDA graphs the first pass of a size runs plainly and the second captures a graph
DECODE_S, MOST_ITERATIONS = 0.4, 40
# Kept costs are checked by the least of a few passes before they are used, again after some time, and sooner where they
# were measured while other processes used more than a little of the processors.
AGREE, CHECK_ROUNDS, TRUSTED_S = 4 / 3, 6, 600.0
CHECKED_ITERATIONS, CHECKED_TREE = 12, (4, 4)  # real ones that are timed then; levels and width of the modelled tree
COSTS = CalibrationCache(COSTS_KIND, CostModel.from_json, CostModel.as_json)
# A session over a pair, a method, a prompt and so many new tokens that records nothing: it measures what an iteration
# takes beside its passes. It takes a sampling, too; without one it is greedy.
Decoder = Callable[..., Any]


def cost_model(pair: Pair, decoder: Decoder, again: bool = False) -> CostModel:
    """The costs of a pair here: kept ones that hold, or measured now and kept; `again`: measured in any case."""
    return held(
        COSTS, pair, lambda corrected: replace(measure_costs(pair, decoder), corrected=corrected),
        lambda kept: disagreement(pair, kept, decoder), lambda costs: costs.beside, again,
    )  # fmt: skip


def held(
    cache: CalibrationCache[T],
    pair: Pair,
    measure: Callable[[str], T],
    contradiction: Callable[[T], str],
    beside: Callable[[T], str],
    again: bool = False,
) -> T:
    """What is kept of a pair on this machine and still holds, or is measured now and kept.

    What was measured beside other work, or on a machine that has changed, would mislead every method that plans by it:
    what is kept is checked now and then, and after a run that it does not fit. That it was measured again, or beside
    other work, is said.

    Args:
        measure: given why kept ones were replaced, a clause, empty where none were.
        contradiction: why kept ones do not hold, a clause; empty where they do.
        beside: what tells that they were measured beside other work, a clause; empty where they were not.
        again: measured in any case.
    """
    entry, name = machine_words(pair), costs_name(pair)
    kept, key, corrected = cache.known(pair, entry), (calibration_file(pair, cache.kind), entry), ""
    _, doubted = _doubts.pop(key, (pair, ""))
    if kept is not None and not again and (doubted or time.monotonic() >= _trusted_until.get(key, 0.0)):
        other_work = OtherWork()
        corrected, share = contradiction(kept), other_work.share()
        _trusted_until[key] = time.monotonic() + TRUSTED_S
        if doubted and not corrected and share > QUIET and time.monotonic() >= _said_until.get(key, 0.0):
            tell(f"{doubted} Other programs use {share:.0%} of the processors: the stored times were not replaced.")
            _said_until[key] = time.monotonic() + TRUSTED_S
    if kept is not None and not again and not corrected:
        return kept
    await_quiet()
    doing("measuring how long passes take, a few seconds")
    made = cache.of(pair, entry, lambda: measure(corrected), again=True)
    if corrected:
        tell(
            f"Times of {name} were measured again: {corrected}. Methods that plan by them, such as hardware-aware, had "
            "the earlier ones until now."
        )
    words = beside(made)
    if words:
        tell(f"Times of {name} were measured beside other work: {words}. They are checked before they are used again.")
    # Where work goes on beside a second measurement, a third one at once would be no better.
    _trusted_until[key] = time.monotonic() + (TRUSTED_S if corrected or not words else 0.0)
    return made


def costs_name(pair: Pair) -> str:
    """What costs are of, for people."""
    return pair.info.name if pair.head is None else f"{pair.info.name} with the head {pair.head.name}"


def doubt(pair: Pair, iterations: Sequence[IterationTrace]) -> None:
    """Hold the target passes of a run against the costs kept of its pair.

    Where they took a third longer or less, the costs are checked before they are used again, or by `settle_doubts`.
    """
    entry = machine_words(pair)
    kept = COSTS.known(pair, entry)
    ratio = None if kept is None else slowdown(iterations, kept)
    if kept is None or ratio is None or 1 / AGREE <= ratio <= AGREE:
        return
    words = f"Target passes of {costs_name(pair)} took {ratio:.2g} times as long as those measured on {kept.when}."
    _doubts[calibration_file(pair, COSTS.kind), entry] = pair, words


def settle_doubts(decoder: Decoder) -> list[tuple[Pair, CostModel]]:
    """Check all costs that runs gave cause to doubt; returns their pairs and what holds now."""
    found = []
    with suppress(CancelledError):  # what the runs have made must not be lost
        for key, (pair, _) in list(_doubts.items()):
            if pair.target.released:
                del _doubts[key]
            else:
                found.append((pair, cost_model(pair, decoder)))
    return found


def disagreement(pair: Pair, costs: CostModel, decoder: Decoder) -> str:
    """Why kept costs do not hold now, a clause; empty where they do, or where other work explains the difference."""
    if costs.disturbed:
        return f"{costs.disturbed} on {costs.when}"

    def ratio(model: Model | DraftHead, curve: CostCurve, level: bool) -> float:
        probe = Probe(pair, model, level, FEW_SIZES[:2])
        return least_ratio(probe.pass_s, probe.sizes, curve, 2 if probe.slow else CHECK_ROUNDS)

    return contradiction_of(
        costs.when,
        {
            "passes": lambda: ratio(pair.target, costs.target, False),
            "draft levels": lambda: ratio(pair.drafting, costs.draft, True),
            "iterations": lambda: _iterations_ratio(pair, costs, decoder),
        },
    )


def contradiction_of(when: str, ratios: Mapping[str, Callable[[], float]]) -> str:
    """The first of some measured times that contradicts what is kept, a clause; empty where none does.

    `ratios`: of each kind, how many times as long as kept ones it takes now.
    """
    for what, measured in ratios.items():
        other_work = OtherWork()
        ratio = measured()
        if ratio < 1 / AGREE:
            times = f"{1 / ratio:.2g} times as long"
            return f"{what} kept from {when} took {times}: other work disturbed the machine then"
        if ratio > AGREE and other_work.share() <= QUIET:
            return f"{what} take {ratio:.2g} times as long as those kept from {when}: the machine has changed"
    return ""


def least_ratio(pass_s: Callable[[int], float], sizes: Sequence[int], curve: CostCurve, rounds: int) -> float:
    """How many times as long as a curve says passes take, by the least of a few each; the median of some sizes."""
    return median(min(pass_s(size) for _ in range(rounds)) / max(float(curve.seconds(size)), 1e-9) for size in sizes)


def _iterations_ratio(pair: Pair, costs: CostModel, decoder: Decoder) -> float:
    """How many times as long as kept costs say iterations take, by what is measured beside their passes now.

    Of one with a small tree and one of plain decoding, the ratio that is further from 1.
    """
    if not costs.iterations:
        return 1.0
    iteration_s, level_s, _ = _overheads(pair, decoder, costs.target, costs.draft, CHECKED_ITERATIONS)
    plain_s = _plain_overhead(pair, decoder, CHECKED_ITERATIONS)
    now = replace(costs, iteration_s=iteration_s, level_s=level_s, plain_s=plain_s)
    levels, width = CHECKED_TREE

    def tree_s(each: CostModel) -> float:
        return float(each.verification.seconds(1 + levels * width) + levels * each.level.seconds(width))

    ratios = tree_s(now) / max(tree_s(costs), 1e-9), now.plain_iteration_s / max(costs.plain_iteration_s, 1e-9)
    return max(ratios, key=lambda ratio: abs(math.log(max(ratio, 1e-9))))


def machine_words(pair: Pair) -> str:
    """What a measured time depends on beside the pair, in one line."""
    target, draft = pair.target.info, pair.drafting.info
    hardware = describe_hardware(pair.target.device)
    places = dict.fromkeys(f"{info.device} {info.dtype} {info.engine} {info.attention}" for info in (target, draft))
    threads = plural(torch.get_num_threads(), "thread")
    versions = f"torch {hardware['torch']}, transformers {hardware['transformers']}"
    return ", ".join([hardware.get("gpu") or hardware["processor"], *places, threads, versions])


def measure_costs(pair: Pair, decoder: Decoder, budget_s: float = BUDGET_S) -> CostModel:
    """Measure the curves of both models, in turn so that what slows the machine hits all sizes alike.

    Raises `RuntimeError` or `MemoryError` where there is no memory even for passes of one node.
    """
    other_work = OtherWork()
    probes = (Probe(pair, pair.target, level=False), Probe(pair, pair.drafting, level=True))
    samples: dict[tuple[Probe, int], list[float]] = {(probe, size): [] for probe in probes for size in probe.sizes}
    started = time.perf_counter()
    for _ in range(MOST_ROUNDS):
        for probe in probes:
            started += pause_point()
            for _ in range(WARM_UPS if not probe.slow else 0):
                probe.pass_s(1)  # the other model's passes have filled the processor's caches
            for size in probe.sizes:
                check_wanted()
                samples[probe, size].append(probe.pass_s(size))
        if time.perf_counter() - started > budget_s:
            break
    target, draft = (
        CostCurve(tuple(_point(size, samples[probe, size]) for size in probe.sizes), probe.padded) for probe in probes
    )
    iteration_s, level_s, iterations = _overheads(pair, decoder, target, draft)
    plain_s = _plain_overhead(pair, decoder) if iterations else None
    measured = utc_stamp()
    return CostModel(
        target, draft, iteration_s, level_s, iterations, probes[0].prefix_length, measured, machine_words(pair),
        others=round(other_work.share(), 3), plain_s=plain_s,
    )  # fmt: skip


class Probe:
    """Passes of one model, of any size, after one prefix.

    Args:
        level: a pass is a level of siblings that see the prefix and themselves; else a tree, two children per node.
        sizes: only these are looked at.

    Attributes:
        sizes: those worth measuring, found while warming up.
        padded: the engine pads passes to just these sizes.
        slow: a pass takes so long that few can be measured.
    """

    def __init__(self, pair: Pair, model: Model | DraftHead, level: bool, sizes: Sequence[int] = ()):
        self._model, self._ids = model, np.arange(max(PREFIX_LENGTH, *SIZES)) * 97 % pair.logits_size
        self._last_position = pair.context - 1
        self.padded = model.engine.name.startswith("cuda_graph")
        self.prefix_length = 0
        self._cache = model.engine.new_cache(PREFIX_LENGTH + max(SIZES))
        self._seen, self._depths = siblings(max(SIZES)) if level else binary_tree(max(SIZES))
        self.pass_s(1)
        self.slow = self.pass_s(1) > SLOW_PASS_S
        self._fill(min(SHORT_PREFIX if self.slow else PREFIX_LENGTH, pair.context // 2))
        buckets = tuple(size for size in BUCKETS if size <= max(SIZES))
        self.sizes = self._affordable(sizes or (FEW_SIZES if self.slow else buckets if self.padded else SIZES))

    @torch.inference_mode()
    def pass_s(self, size: int) -> float:
        """Seconds of one pass, its mask included, until its logits are there."""
        past, among = self.prefix_length, self._seen[:size, :size]
        positions = np.minimum(past + self._depths[:size], self._last_position)
        taken = pass_seconds(self._model, lambda: self._forward(self._ids[:size], positions, Visibility(past, among)))
        self._cache.rollback(past)
        return taken

    @torch.inference_mode()
    def _fill(self, count: int) -> None:
        seen = Visibility.causal(0, count)
        self._forward(self._ids[:count], np.arange(count), seen, keep=1)
        self.prefix_length = count

    def _forward(self, ids: np.ndarray, positions: np.ndarray, seen: Visibility, keep: int = 0) -> Tensor:
        """Logits of a pass; a head reads features of 0, which cost what all others do."""
        if isinstance(self._model, Model):
            return tree_forward(self._model, self._cache, ids, positions, seen, keep)
        engine = self._model.engine
        features = torch.zeros(len(ids), self._model.info.hidden_size, dtype=engine.dtype, device=engine.device)
        return self._model.logits(engine.run(self._cache, ids, positions, seen, features)[-keep:])

    def _affordable(self, sizes: Sequence[int]) -> tuple[int, ...]:
        """Warm up size by size, up to the first that takes too long or more memory than there is."""
        found: list[int] = []
        first_s = 0.0
        for size in sizes:
            check_wanted()
            try:
                taken = min(self.pass_s(size) for _ in range(WARM_UPS if self.padded else 1))
                if first_s and taken > MOST_RATIO * first_s:  # one disturbed pass must not end the curve
                    taken = min(self.pass_s(size) for _ in range(WARM_UPS))
            except (RuntimeError, MemoryError) as error:
                if not found or not is_out_of_memory(error):
                    raise
                break
            found.append(size)
            first_s = first_s or taken
            if taken > MOST_RATIO * first_s:
                break
        return tuple(found)


def binary_tree(count: int) -> tuple[np.ndarray, np.ndarray]:
    """Who sees whom `[count, count]` and depths `[count]` of a tree whose first nodes are smaller trees of its kind."""
    seen, depths = np.eye(count, dtype=bool), np.zeros(count, dtype=np.int64)
    for node in range(1, count):
        parent = (node - 1) // 2
        seen[node] |= seen[parent]
        depths[node] = depths[parent] + 1
    return seen, depths


def siblings(count: int) -> tuple[np.ndarray, np.ndarray]:
    """Who sees whom and depths, as in `binary_tree`, of nodes of one level: all see themselves alone."""
    return np.eye(count, dtype=bool), np.zeros(count, dtype=np.int64)


def _point(size: int, times: list[float]) -> CostPoint:
    low, _, high = quartiles(times)
    return CostPoint(size, least_median(times, BLOCKS), low, high)


def quartiles(times: list[float]) -> list[float]:
    """The three quartiles of one or more times."""
    return quantiles(times, n=4, method="inclusive") if len(times) > 1 else times * 3


def least_median(times: list[float], blocks: int) -> float:
    """The least of the medians of a few stretches of time: a machine under load is quiet in some of them."""
    return min(median(block.tolist()) for block in np.array_split(times, blocks) if len(block))


def _overheads(
    pair: Pair, decoder: Decoder, target: CostCurve, draft: CostCurve, most: int = MOST_ITERATIONS
) -> tuple[float, float, int]:
    """Seconds per iteration and per draft level that a short real decode takes beside its passes, and iterations.

    Where passes are so slow that nothing beside them counts, nothing is decoded.
    """
    method = METHODS["hardware_aware"].with_settings(
        verify_ms=target.written(), level_ms=draft.written(), odds="1 1", learn=False
    )
    method = replace(method, draft_head="" if pair.head is None else pair.head.name)
    prompt = sample_prompt(pair)
    tokens = min(most * 4, pair.context - len(prompt))
    if not prompt or target.seconds(1) > SLOW_PASS_S:
        return 0.0, 0.0, 0
    session = decoder(pair, method, prompt, tokens)
    session.step()
    levels: list[int] = []
    drafting: list[float] = []
    rest: list[float] = []
    started = time.perf_counter()
    while not session.finished and len(rest) < most and time.perf_counter() - started < DECODE_S:
        started += pause_point()
        begun = time.perf_counter()
        iteration = session.step()
        taken, times, forwards = time.perf_counter() - begun, iteration.times, iteration.draft_forwards
        rest.append(taken - times.draft_s - times.mask_s - times.verify_s)
        levels.append(forwards)
        drafted = sum(node > 0 for node in iteration.kv_draft.slot_nodes)
        drafting.append(times.draft_s - _forwards_s(draft, forwards, drafted))
    if not rest:
        return 0.0, 0.0, 0
    fixed_s, level_s = _line(np.array(levels), np.array(drafting))
    return max(median(rest) + fixed_s, 0.0), level_s, len(rest)


def _forwards_s(draft: CostCurve, forwards: int, drafted: int) -> float:
    """Seconds of the draft's forwards of an iteration: one over the root, the others over equal shares of its nodes."""
    if forwards < 2:
        return forwards * float(draft.seconds(1))
    return float(draft.seconds(1) + (forwards - 1) * draft.seconds(drafted / (forwards - 1)))


def _plain_overhead(pair: Pair, decoder: Decoder, most: int = MOST_ITERATIONS) -> float:
    """Seconds that an iteration of plain decoding takes beside its pass."""
    prompt = sample_prompt(pair)
    session = decoder(pair, METHODS["autoregressive"], prompt, min(most, pair.context - len(prompt)))
    session.step()
    rest, started = list[float](), time.perf_counter()
    while not session.finished and time.perf_counter() - started < DECODE_S:
        started += pause_point()
        begun = time.perf_counter()
        times = session.step().times
        rest.append(time.perf_counter() - begun - times.mask_s - times.verify_s)
    return max(median(rest), 0.0) if rest else 0.0


def sample_prompt(pair: Pair) -> list[int]:
    """The beginning of a text, at most a quarter of what the pair can read."""
    return pair.vocabulary.encode(load_prompts()[0].text)[: max(pair.context // 4, 1)]


def _line(x: np.ndarray, y: np.ndarray) -> tuple[float, float]:
    """Ordinate and slope, neither negative: medians over all pairs and points, which a few slow ones do not move."""
    first, second = np.triu_indices(len(x), 1)
    apart = x[first] != x[second]
    if apart.any():
        slope = float(np.median(((y[first] - y[second])[apart]) / ((x[first] - x[second])[apart])))
    else:
        slope = float(np.median(y / np.maximum(x, 1)))
    slope = max(slope, 0.0)
    return max(float(np.median(y - slope * x)), 0.0), slope


def pass_seconds(model: Model | DraftHead, run: Callable[[], Tensor]) -> float:
    """Seconds of a pass of a model, until its logits are there."""
    settle(model.device)
    started = time.perf_counter()
    logits = run()
    settle(logits.device)
    return time.perf_counter() - started


def settle(device: torch.device) -> None:
    """Wait until a device has done all that it was given."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    elif device.type == "mps":
        torch.mps.synchronize()

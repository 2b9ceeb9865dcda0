"""Throughput, acceptance, block efficiency, latency, memory: one definition each.

* throughput: new tokens / wall time of the call, prefill included; without prefill beside it.
* TTFT: from the call to the first committed token, both prefills included.
* TPOT: (time of the last token - TTFT) / (tokens - tokens of the first iteration); for one token per iteration this is
  the usual (tokens - 1).
* acceptance: accepted drafted tokens / drafted nodes, and / verified nodes; never with the bonus token.
* node agreement: drafted nodes whose token is the target's likeliest after their parent / drafted nodes.
* block efficiency (tokens per iteration): committed tokens / verification passes.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from statistics import median
from typing import Literal

from decoding.common.cost_model import CostModel
from decoding.trace.records import PHASES, IterationTrace, RunTrace

# What figures of a run count: its whole text, or what came before the text began to repeat itself.
Counting = Literal["whole", "loop_free"]
COUNTINGS: dict[Counting, str] = {"whole": "whole texts", "loop_free": "loop-free texts"}


def shared_tokens(first: Sequence[int], second: Sequence[int]) -> int:
    """How many tokens two texts have in common from their beginning on."""
    pairs = enumerate(zip(first, second, strict=False))
    return next((place for place, (one, other) in pairs if one != other), min(len(first), len(second)))


@dataclass(frozen=True)
class Timeline:
    """When tokens appeared: seconds since the call and tokens committed by then, one entry per iteration."""

    seconds: tuple[float, ...]
    tokens: tuple[int, ...]

    def until(self, tokens: int) -> "Timeline":
        """The entries that end at or before a number of tokens."""
        count = sum(1 for reached in self.tokens if reached <= tokens)
        return Timeline(self.seconds[:count], self.tokens[:count])


@dataclass(frozen=True)
class RunMetrics:
    """What one call reached; None where a method has no such thing."""

    new_tokens: int
    wall_s: float
    prefill_s: float | None
    # throughput, decode_throughput: tokens per second with prefill, and without it and what it commits; like `tpot_s`
    # None where an iteration was replayed from stored rows, so that its time is not known
    throughput: float | None
    decode_throughput: float | None
    ttft_s: float
    tpot_s: float | None
    iterations: int
    tokens_per_iteration: float  # block efficiency
    accepted_mean: float | None  # accepted drafted tokens per iteration
    # acceptance_drafted, acceptance_verified: accepted / drafted nodes, accepted / verified nodes
    acceptance_drafted: float | None
    acceptance_verified: float | None
    timeline: Timeline
    peak_memory_bytes: int | None
    drafted: int | None = None
    verified: int | None = None
    accepted: int | None = None
    accepted_lengths: tuple[int, ...] | None = None  # accepted drafted tokens of each iteration
    # agreeing, compared: drafted tokens that the target likes best after their parents, and all of which that is known
    agreeing: int | None = None
    compared: int | None = None
    draft_forwards: int | None = None
    # Seconds of `phase_s["draft"]` in the draft's forward passes; None where they were not timed
    draft_passes_s: float | None = None
    target_passes: int | None = None
    phase_s: dict[str, float] | None = None  # seconds per phase, summed over the run; the prefill is none of them


def measure_run(
    run: RunTrace, until_tokens: int | None = None, agreement: Sequence[tuple[int, int]] = ()
) -> RunMetrics | None:  # fmt: skip
    """Metrics of a run, None if it has no iteration; those that end beyond `until_tokens` (loops) are left out.

    Where the record has left out its trees, `agreement` is what `node_agreement` gives for every iteration.
    """
    reached = tuple(accumulate(len(iteration.committed_ids) for iteration in run.iterations))
    timeline = Timeline(tuple(iteration.ended_s for iteration in run.iterations), reached)
    if until_tokens is not None:
        timeline = timeline.until(until_tokens)
    iterations = run.iterations[: len(timeline.tokens)]
    if not iterations:
        return None
    counts = {}
    if run.settings.get("verifier") is not None and any(i.drafted for i in iterations):
        counts = {name: sum(getattr(i, name) for i in iterations) for name in ("drafted", "verified")}
        counts["accepted_lengths"] = tuple(len(i.accepted) for i in iterations)
        counts["accepted"] = sum(counts["accepted_lengths"])
        found = [sum(each) for each in zip(*agreement[: len(iterations)], strict=True)] if agreement else ()
        counts |= dict(zip(("agreeing", "compared"), found or node_agreement(iterations) or (None, None), strict=True))
    phases = {phase: sum(i.phase_s[phase] for i in iterations) for phase in PHASES}
    if reads_prompt := len(decoded(iterations)) < len(iterations):
        phases["verify"] = max(0.0, phases["verify"] - run.totals.prefill_s)
    return _metrics(
        timeline,
        timed=all(each.timed for each in iterations),
        prefill_s=run.totals.prefill_s,
        reads_prompt=reads_prompt,
        draft_forwards=sum(i.draft_forwards for i in iterations),
        draft_passes_s=sum(sum(i.times.draft_levels_s) for i in iterations) or None,
        target_passes=sum(i.target_passes for i in iterations),
        phase_s=phases,
        peak_memory_bytes=run.totals.peak_memory_bytes,
        **counts,
    )


def decoded(iterations: Sequence[IterationTrace]) -> Sequence[IterationTrace]:
    """Iterations after the prompt was read: without a draft model the first one reads it, and is left out."""
    reads_prompt = len(iterations) > 0 and iterations[0].index == 0 and iterations[0].kv_draft is None
    return iterations[1:] if reads_prompt else iterations


def ended_nodes(iteration: IterationTrace, stops: Collection[int]) -> frozenset[int]:
    """Nodes of a tree that end the text, and all below them: no token is committed after such a node."""
    found: set[int] = set()
    for node in iteration.nodes[1:] if stops else ():  # parents come first
        if node.token_id in stops or node.parent_id in found:
            found.add(node.node_id)
    return frozenset(found)


def expected_tokens(chances: Mapping[int, float], ended: Collection[int] = ()) -> float:
    """Expected committed tokens of a verified tree over the verifier's draws, the final token included.

    The sum of the nodes' probabilities of being reached and accepted, `chances` by node, plus one; the token that ends
    a text takes the place of the final one, and what is below it does not count: nodes that have `ended`.
    """
    return 1.0 + sum(chance for node, chance in chances.items() if node and node not in ended)


def node_agreement(iterations: Sequence[IterationTrace]) -> tuple[int, int] | None:
    """Drafted tokens that the target likes best after their parents, and those of which that is known.

    It is what DynaTree calls acceptance rate in Section 4.2, on the whole tree and not along the accepted path alone.
    None where a record has left out its trees.
    """
    best = [(node.token_id, i.nodes[node.parent_id].target_argmax) for i in iterations for node in i.nodes[1:]]
    known = [token == favourite for token, favourite in best if favourite is not None]
    return (sum(known), len(known)) if known else None


def measure_timeline(timeline: Timeline, peak_memory_bytes: int | None) -> RunMetrics | None:
    """Metrics of a call of which only the times of its tokens are known (Hugging Face `generate`)."""
    if not timeline.tokens:
        return None
    return _metrics(timeline, peak_memory_bytes=peak_memory_bytes)


def _metrics(
    timeline: Timeline, timed: bool = True, prefill_s: float | None = None, reads_prompt: bool = False, **counts
) -> RunMetrics:
    tokens, wall_s, iterations = timeline.tokens[-1], timeline.seconds[-1], len(timeline.tokens)
    after_first = tokens - timeline.tokens[0]
    after_prefill, after_prefill_s = tokens, 0.0 if prefill_s is None else wall_s - prefill_s
    if reads_prompt:  # what the prefill commits goes with it
        after_prefill, after_prefill_s = after_first, wall_s - timeline.seconds[0]
    accepted, drafted, verified = map(counts.get, ("accepted", "drafted", "verified"))
    return RunMetrics(
        new_tokens=tokens,
        wall_s=wall_s,
        prefill_s=prefill_s,
        throughput=tokens / wall_s if timed else None,
        # Totals of a file may contradict its iterations.
        decode_throughput=after_prefill / after_prefill_s if timed and after_prefill and after_prefill_s > 0 else None,
        ttft_s=timeline.seconds[0],
        tpot_s=(wall_s - timeline.seconds[0]) / after_first if timed and after_first else None,
        iterations=iterations,
        tokens_per_iteration=tokens / iterations,
        accepted_mean=None if accepted is None else accepted / iterations,
        acceptance_drafted=accepted / drafted if drafted else None,
        acceptance_verified=accepted / verified if verified else None,
        timeline=timeline,
        **counts,
    )


@dataclass(frozen=True)
class Spread:
    """Median of repeated measurements with the quartiles around it."""

    median: float
    low: float
    high: float
    count: int


def spread(values: Sequence[float]) -> Spread:
    """Median and quartiles (nearest rank) of at least one value."""
    ordered = sorted(values)
    last = len(ordered) - 1
    return Spread(median(ordered), ordered[round(last * 0.25)], ordered[round(last * 0.75)], len(ordered))


NGRAM = 16  # tokens; a loop begins where so many have been seen before


class LoopDetector:
    """Watches the output; `in_loop` is True while its last 16 tokens have been seen before."""

    def __init__(self):
        self._tail: list[int] = []
        self._seen: set[tuple[int, ...]] = set()
        self.in_loop = False

    def push(self, tokens: tuple[int, ...]) -> None:
        """Add committed tokens."""
        for token in tokens:
            self._tail = [*self._tail[-(NGRAM - 1) :], token]
            if len(self._tail) == NGRAM:
                ngram = tuple(self._tail)
                self.in_loop = ngram in self._seen
                self._seen.add(ngram)

    @classmethod
    def after(cls, output_ids: list[int]) -> "LoopDetector":
        """A detector that has watched some output."""
        detector = cls()
        detector.push(tuple(output_ids))
        return detector

    def copy(self) -> "LoopDetector":
        """An independent copy."""
        copy = LoopDetector()
        copy._tail, copy._seen, copy.in_loop = list(self._tail), set(self._seen), self.in_loop
        return copy


def tokens_before_loop(output_ids: list[int] | tuple[int, ...]) -> int:
    """Number of output tokens up to the first that completes a repeated 16-gram; all of them if none does."""
    detector = LoopDetector()
    for count, token in enumerate(output_ids):
        detector.push((token,))
        if detector.in_loop:
            return count
    return len(output_ids)


FEWEST_PASSES = 3  # that a typical ratio is taken over


def slowdown(iterations: Sequence[IterationTrace], costs: CostModel) -> float | None:
    """How many times as long as the costs say the target passes of iterations took, the median; None of too few.

    The first one is left out: it warms the machine up.
    """
    return typical(
        (each.times.mask_s + each.times.verify_s) / float(costs.target.seconds(each.verified + 1))
        for each in iterations[1:]
        if each.timed
    )


def typical(ratios: Iterable[float]) -> float | None:
    """Their median; None of too few."""
    known = list(ratios)
    return median(known) if len(known) >= FEWEST_PASSES else None

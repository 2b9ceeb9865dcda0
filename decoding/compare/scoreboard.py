"""What a comparison says about each contestant: medians over the repeats, ratios, loops, identity."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from decoding.compare.comparison import Comparison, Contestant
from decoding.compare.identity import Difference
from decoding.trace.metrics import RunMetrics, Spread, spread
from decoding.trace.records import RunTrace


@dataclass(frozen=True)
class Score:
    """One contestant on one prompt.

    Attributes:
        calls: figures by repeat; empty if nothing was measured (or everything lies in a loop).
        typical: the repeat whose throughput is the median (the lower one of two).
        run: the trace of that repeat, cut where the figures end; None for an outside baseline.
        new_tokens, loop_tokens: tokens of one output, and how many of them come after text began to repeat itself.
        over_autoregressive, over_hf: throughput over that of autoregressive and of Hugging Face `generate`, taken per
            repeat so that drift of the machine cancels.
        same_output: whether the output is that of the reference; None without one, for itself, and for sampled output.
        difference: where it first parts from the reference.
        failure: one sentence if it could not be run.
    """

    contestant: Contestant
    calls: Mapping[int, RunMetrics]
    typical: RunMetrics | None
    run: RunTrace | None
    output_ids: tuple[int, ...]
    new_tokens: int
    loop_tokens: int
    over_autoregressive: Spread | None
    over_hf: Spread | None
    same_output: bool | None
    difference: Difference | None
    failure: str | None

    @property
    def measured(self) -> bool:
        """Whether there are figures."""
        return self.typical is not None

    def spread_of(self, name: str) -> Spread | None:
        """Median and quartiles over the repeats of one of the figures, None where there are none."""
        values = [getattr(call, name) for call in self.calls.values()]
        return spread(values) if values and all(value is not None for value in values) else None


def score(comparison: Comparison, loop_free: bool = True, prompt: int = 0) -> tuple[Score, ...]:
    """Every contestant's figures on one prompt, in the comparison's order; by default without looping iterations."""
    scores = tuple(_score(comparison, index, loop_free, prompt) for index in range(len(comparison.contestants)))
    autoregressive = next(
        (s for s in scores if s.contestant.method and s.contestant.method.name == "autoregressive"), None
    )
    hf_generate = next((s for s in scores if s.contestant.baseline == "hf_generate"), None)
    return tuple(
        replace(s, over_autoregressive=_ratio(s, autoregressive), over_hf=_ratio(s, hf_generate)) for s in scores
    )


def without_prefill(measured: Score, plain: Score) -> float | None:
    """Speed over that of `plain` with the prefills of both left out, median over the repeats."""
    found = _ratio(measured, plain, "decode_throughput")
    return found.median if found else None


def _score(comparison: Comparison, index: int, loop_free: bool, prompt: int) -> Score:
    contestant = comparison.contestants[index]
    results = [result for result in comparison.of(index) if result.prompt == prompt]
    usable = [(result, result.loop_free if loop_free else result.metrics) for result in results]
    usable = [(result, metrics) for result, metrics in usable if metrics is not None]
    ordered = sorted(usable, key=lambda pair: pair[1].throughput)
    middle = ordered[(len(ordered) - 1) // 2] if ordered else (results[0] if results else None, None)
    result, typical = middle
    run = result.run if result and typical else None
    difference = next((d for c, p, d in comparison.differences if (c, p) == (index, prompt)), None)
    reference, same_output = comparison.reference_of(index), None
    if result and not result.failure and reference not in (None, index) and comparison.sampling.greedy:
        expected = [r for r in comparison.of(reference) if r.prompt == prompt and not r.failure]
        same_output = difference is None if expected else None
    output = result.output_ids if result else ()
    return Score(
        contestant=contestant,
        calls={result.repeat: metrics for result, metrics in usable},
        typical=typical,
        run=run and replace(run, iterations=run.iterations[: typical.iterations]),
        output_ids=output,
        new_tokens=len(output),
        loop_tokens=len(output) - result.loop_free_tokens if result else 0,
        over_autoregressive=None,
        over_hf=None,
        same_output=same_output,
        difference=difference,
        failure=next((r.failure for r in results if r.failure), None),
    )


def _ratio(mine: Score, other: Score | None, name: str = "throughput") -> Spread | None:
    if other is None:
        return None
    pairs = [(getattr(call, name), getattr(other.calls.get(at), name, None)) for at, call in mine.calls.items()]
    ratios = [ours / theirs for ours, theirs in pairs if ours and theirs]
    return spread(ratios) if ratios else None

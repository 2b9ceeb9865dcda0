"""Several ways to decode the same prompts, interleaved in one run: warm-up, repeats, identity; and each one's score.

A score is a median over the repeats, with ratios, loops and identity.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

from decoding.common.errors import OutOfMemoryError, is_out_of_memory
from decoding.common.interruption import CancelledError, pause_point
from decoding.common.settings import same_engine, streamed_rows
from decoding.compare.contestants import Contestant
from decoding.compare.hf_generate import run_baseline
from decoding.compare.identity import MarginJudge, OutputDifference, explain_difference
from decoding.costs.measuring import settle_doubts
from decoding.engines.cuda_graph import CudaGraphEngine
from decoding.methods.method import Method
from decoding.models.pair import Pair
from decoding.sampling.sampling import Sampling
from decoding.session.session import DecodeSession, Limits, check_prompt, prepared, unrecorded
from decoding.trace.metrics import (
    Counting,
    RunMetrics,
    Spread,
    Timeline,
    measure_run,
    measure_timeline,
    spread,
    tokens_before_loop,
)
from decoding.trace.records import IterationTrace, RunTrace

# Calls for one figure: in the first a pass of a new size runs as it is, in the second it becomes a CUDA graph.
MOST_TRIES = 3


@dataclass(frozen=True)
class Result:
    """One measured call.

    Attributes:
        prompt, repeat: which prompt (index) and which repeat (0-based).
        loop_free_tokens: output tokens before the first repeated 16-gram.
        metrics, loop_free: figures of the whole call and of what came before the loop (None if nothing did).
        run: the trace (summary record) of a method of ours.
        failure: one sentence if the call could not be made; then the figures are None.
        cold: passes of the call that were no replays of CUDA graphs though others of their size are; 0 elsewhere.
    """

    contestant: int
    prompt: int
    repeat: int
    output_ids: tuple[int, ...]
    loop_free_tokens: int
    metrics: RunMetrics | None
    loop_free: RunMetrics | None
    run: RunTrace | None
    failure: str | None = None
    cold: int = 0

    def counted(self, counting: Counting) -> RunMetrics | None:
        """The figures of one way of counting; None where there are none."""
        return self.loop_free if counting == "loop_free" else self.metrics


@dataclass(frozen=True)
class Comparison:
    """What came out: every call, and where outputs part from the reference (contestant 0, or the first that is AR).

    Sampled outputs part by chance: then there are no differences to tell.
    """

    contestants: tuple[Contestant, ...]
    prompts: tuple[str, ...]
    results: tuple[Result, ...]
    differences: tuple[tuple[int, int, OutputDifference], ...]
    reference: int
    sampling: Sampling = field(default_factory=Sampling)

    def reference_of(self, contestant: int) -> int | None:
        """Whose output a contestant's has to be; None where that of nobody here.

        A window of attention is another distribution: it is compared with decoding token by token with the same window.
        """
        engine = self.contestants[contestant].engine
        if engine is None or streamed_rows(engine) is None:
            return self.reference
        for place, each in enumerate(self.contestants):
            if each.engine and same_engine(each.engine, engine) and each.own_method.name == "autoregressive":
                return place
        return None

    def on(self, prompt: int) -> "Comparison":
        """The part of it that was measured on one prompt."""
        results = tuple(replace(each, prompt=0) for each in self.results if each.prompt == prompt)
        differences = tuple((c, 0, each) for c, p, each in self.differences if p == prompt)
        return replace(self, prompts=(self.prompts[prompt],), results=results, differences=differences)

    def of(self, contestant: int) -> list[Result]:
        """Measured calls of one contestant."""
        return [result for result in self.results if result.contestant == contestant]


def compare(
    pair: Pair,
    contestants: Sequence[Contestant],
    prompts: Sequence[tuple[str, list[int]]],
    max_new_tokens: int = 128,
    repeats: int = 3,
    warmup: int = 1,
    sampling: Sampling | None = None,
    progress: Callable[[int, int, str], None] | None = None,
    cancelled: Callable[[], bool] | None = None,
    measured: Callable[[Comparison], None] | None = None,
) -> Comparison:
    """Run every contestant on every prompt, one after another within each repeat, so that drift hits all alike.

    Args:
        prompts: (name, token ids) each.
        warmup: unmeasured rounds on the first prompt before the measured ones.
        progress: called with calls done, calls in all, and what runs now.
        cancelled: asked between iterations; when True, what was measured so far is returned.
        measured: called after each repeat but the last with what was measured so far.
    """
    for _, ids in prompts:
        check_prompt(pair, ids, max_new_tokens)
    plan: list[tuple[int, int, int | None]] = [(c, 0, None) for _ in range(warmup) for c in range(len(contestants))]
    plan += [(c, p, r) for r in range(repeats) for p in range(len(prompts)) for c in range(len(contestants))]
    plain = (place for place, c in enumerate(contestants) if c.method and c.method.name == "autoregressive")
    names = tuple(name for name, _ in prompts)
    found = Comparison(tuple(contestants), names, (), (), next(plain, 0), sampling or Sampling())
    results: list[Result] = []
    pairs = [pair.with_engine(contestant.engine) if contestant.engine else pair for contestant in contestants]
    for done, (c, p, repeat) in enumerate(plan):
        if progress:
            warming = "" if repeat is not None else " (warm-up)"
            progress(done, len(plan), f"{contestants[c].label}: {prompts[p][0]}{warming}")
        limits = Limits(max_new_tokens=max_new_tokens, record="summary")
        call = partial(measured_call, pairs[c], contestants[c], prompts[p][1], limits, sampling, cancelled)
        try:
            result = call() if repeat is None else warm_call(pairs[c], call)
        except CancelledError:
            if cancelled is None or not cancelled():
                raise  # nobody asked for what was measured so far
            break
        if repeat is not None:
            results.append(replace(result, contestant=c, prompt=p, repeat=repeat))
            if measured and repeat < repeats - 1 and (p, c) == (len(prompts) - 1, len(contestants) - 1):
                found = replace(found, results=tuple(results))
                if not repeat and found.sampling.greedy:  # every repeat decodes the same text
                    found = replace(found, differences=_differences(pair, found, prompts))
                measured(found)
    if cancelled is None or not cancelled():
        settle_doubts(unrecorded)
    whole = replace(found, results=tuple(results))
    return replace(whole, differences=_differences(pair, whole, prompts)) if whole.sampling.greedy else whole


def trees_on_prefix(
    pair: Pair, methods: Sequence[Method], token_ids: list[int], sampling: Sampling | None = None
) -> list[IterationTrace]:
    """Every method's first iteration on the same committed text, recorded in full."""
    room = pair.context - len(token_ids)
    limits = Limits(max_new_tokens=max(1, min(64, room)))
    trees = []
    for method in methods:
        pause_point()
        trees.append(DecodeSession(pair, method, token_ids, sampling, limits).step())
    return trees


def call_with_trees(
    pair: Pair,
    contestant: Contestant,
    prompt_ids: list[int],
    sampling: Sampling,
    max_new_tokens: int,
    go_on: Callable[[], bool] = lambda: True,
) -> RunTrace | None:
    """A call of a method that drafts, not timed and recorded in full; None of others, and where `go_on` ended it."""
    if contestant.method is None or not contestant.method.drafter.drafts:
        return None
    pair = pair.with_engine(contestant.engine) if contestant.engine else pair
    method = prepared(contestant.own_method, pair, sampling)
    session = DecodeSession(pair, method, prompt_ids, sampling, Limits(max_new_tokens))
    while not session.finished and go_on():
        session.step()
    return session.trace() if session.finished else None


def warm_call(pair: Pair, call: Callable[[], Result]) -> Result:
    """The result of a call, made again where a CUDA graph was made during it: that one says little about the others."""
    for _ in range(MOST_TRIES):
        before = cold_calls(pair)
        result = call()
        cold = cold_calls(pair) - before
        if not cold or result.failure:
            break
    return replace(result, cold=cold)


def cold_calls(pair: Pair) -> int:
    """Passes of a pair so far that warmed up or captured a CUDA graph, instead of replaying one."""
    engines = (pair.target.engine, pair.draft.engine)
    return sum(engine.graphs.cold for engine in engines if isinstance(engine, CudaGraphEngine))


def measured_call(
    pair: Pair,
    contestant: Contestant,
    prompt_ids: list[int],
    limits: Limits,
    sampling: Sampling | None = None,
    cancelled: Callable[[], bool] | None = None,
) -> Result:
    """One call, timed; its contestant, prompt and repeat are numbered 0. What cannot be run tells so in `failure`.

    Raises `CancelledError` where `cancelled` said so between two iterations.
    """
    try:
        return _call(pair, contestant, prompt_ids, limits, sampling, cancelled)
    except (OutOfMemoryError, RuntimeError, MemoryError) as error:
        if not isinstance(error, OutOfMemoryError) and not is_out_of_memory(error):
            raise
        # One contestant too large for the device must not cost the others their figures.
        return _failed(f"{contestant.label} ran out of memory: lower node_budget or max_new_tokens.")


def _call(pair: Pair, contestant: Contestant, prompt_ids, limits: Limits, sampling, cancelled) -> Result:
    if contestant.baseline:
        try:
            until = limits.max_new_tokens, limits.ignore_end_of_text
            call = run_baseline(pair, contestant.baseline, prompt_ids, *until, cancelled, sampling)
        except ValueError as error:  # what generate() refuses, e.g. two vocabularies it cannot bridge
            return _failed(f"{contestant.label} does not support this pair: {error}")
        return result_of_times(call.output_ids, call.timeline, call.peak_memory_bytes)
    # It may measure for seconds what it has to know.
    method = prepared(contestant.own_method, pair, sampling or Sampling())
    # Timed from the outside: the clock runs from the call to each iteration's end, and stands while others have a turn.
    started = time.perf_counter()
    session = DecodeSession(pair, method, prompt_ids, sampling, limits)
    ends: list[float] = []
    agreement: list[tuple[int, int]] = []
    for _ in session:
        ends.append(ended := time.perf_counter() - started)
        if session.last is not None and (counted := session.last.agreement()) is not None:
            agreement.append(counted)
        started += time.perf_counter() - started - ended  # counting is no part of the call
        if cancelled is not None and cancelled():
            raise CancelledError
        started += pause_point(timed=True)
    run = session.trace()
    # Wall time, the writing of the summary included, replaces the sum of the phases.
    iterations = tuple(
        replace(iteration, ended_s=end, started_s=ends[i - 1] if i else run.totals.prefill_s)
        for i, (iteration, end) in enumerate(zip(run.iterations, ends, strict=True))
    )
    totals = replace(run.totals, wall_s=ends[-1], ttft_s=ends[0])
    run = replace(run, label=contestant.label, iterations=iterations, totals=totals)
    return result_of(run, agreement if len(agreement) == len(iterations) else ())


def result_of(run: RunTrace, agreement: Sequence[tuple[int, int]] = ()) -> Result:
    """A call of a method from its run, `agreement` as in `measure_run`; its contestant, prompt and repeat are 0."""
    loop_free = tokens_before_loop(run.output_ids)
    whole, part = (measure_run(run, until, agreement) for until in (None, loop_free))
    return Result(0, 0, 0, run.output_ids, loop_free, whole, part, run)


def result_of_times(output_ids: tuple[int, ...], timeline: Timeline, peak_memory_bytes: int | None) -> Result:
    """A call of which only the times of its tokens are known, numbered likewise."""
    loop_free = tokens_before_loop(output_ids)
    whole, part = (measure_timeline(each, peak_memory_bytes) for each in (timeline, timeline.until(loop_free)))
    return Result(0, 0, 0, output_ids, loop_free, whole, part, run=None)


def _failed(sentence: str) -> Result:
    return Result(0, 0, 0, (), 0, None, None, None, sentence)


def _differences(pair: Pair, comparison: Comparison, prompts) -> tuple[tuple[int, int, OutputDifference], ...]:
    """(contestant, prompt, first difference) wherever an output is not that of its reference."""
    contestants = comparison.contestants
    outputs = {(each.contestant, each.prompt): each.output_ids for each in comparison.results if not each.failure}
    references = [comparison.reference_of(number) for number in range(len(contestants))]
    judges: dict[str | None, MarginJudge] = {}
    found = []
    for (c, p), output in outputs.items():
        reference = references[c]
        expected = output if reference is None else outputs.get((reference, p), output)
        if output == expected:
            continue
        engine = contestants[c].engine if reference != comparison.reference else None
        if engine not in judges:
            judges[engine] = MarginJudge(pair.with_engine(engine).target if engine else pair.target)
        if difference := explain_difference(pair, prompts[p][1], output, expected, judges[engine]):
            found.append((c, p, difference))
    return tuple(found)


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
    difference: OutputDifference | None
    failure: str | None

    @property
    def measured(self) -> bool:
        """Whether there are figures."""
        return self.typical is not None

    def spread_of(self, name: str) -> Spread | None:
        """Median and quartiles over the repeats of one of the figures, None where there are none."""
        values = [getattr(call, name) for call in self.calls.values()]
        return spread(values) if values and all(value is not None for value in values) else None


def score(comparison: Comparison, loop_free: bool = True) -> tuple[Score, ...]:
    """Every contestant's figures on the first prompt, in the comparison's order; by default without loops."""
    scores = tuple(_score(comparison, index, loop_free) for index in range(len(comparison.contestants)))
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


def _score(comparison: Comparison, index: int, loop_free: bool) -> Score:
    contestant = comparison.contestants[index]
    results = [result for result in comparison.of(index) if result.prompt == 0]
    figures = [(result, result.loop_free if loop_free else result.metrics) for result in results]
    usable = [(result, metrics) for result, metrics in figures if metrics is not None]
    ordered = sorted(usable, key=lambda pair: pair[1].throughput or 0.0)
    middle = ordered[(len(ordered) - 1) // 2] if ordered else (results[0] if results else None, None)
    result, typical = middle
    run = result.run if result else None
    run = replace(run, iterations=run.iterations[: typical.iterations]) if run and typical else None
    difference = next((d for c, p, d in comparison.differences if (c, p) == (index, 0)), None)
    reference, same_output = comparison.reference_of(index), None
    if result and not result.failure and reference is not None and reference != index and comparison.sampling.greedy:
        expected = [r for r in comparison.of(reference) if r.prompt == 0 and not r.failure]
        same_output = difference is None if expected else None
    output = result.output_ids if result else ()
    return Score(
        contestant=contestant,
        calls={result.repeat: metrics for result, metrics in usable},
        typical=typical,
        run=run,
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

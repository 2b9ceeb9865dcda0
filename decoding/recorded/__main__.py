"""`python -m decoding.recorded`: decode with the embedded pair what comes with the program, and write it.

    python -m decoding.recorded                       # all of them, a few minutes; let nothing else run
    python -m decoding.recorded tree_helps sampled    # some of them

All sample prompts are decoded; a run that falls into a loop is left out. What is looked for, by name:

* `home`: the story that Home shows.
* `race`: the recorded race; every method runs alone, in turn with the others within each repeat.
* `comparison`: what Compare opens with, measured likewise, with every call.
* `tree_helps`: the tree with the largest advantage in measured speed over the faster of chain and plain decoding.
* `tree_loses`: a tree that is slower than the chain because it commits fewer tokens per pass.
* `lost_draft`, `lost_verify`, `lost_rebuild`: a tree that is slower than the chain chiefly by its drafting, by the
  target's pass over more rows, by the second target pass of rollback + rebuild (see `decoding.analysis.slowdown`).
* `sibling_rescue`: most accepted below a sibling of a rejected first choice, in a tree that a person can read.
* `history`: history adaptation moves its settings most often, and in both directions where a run does so.
* `sampled`: at temperature 0.8, most accepted below a sibling after a rejection that left a residual.
* `full_logits`: the same in a tree of independent paths, with all logits of both models. They are stored small: they
  are rounded as they leave the models, so what is drafted and accepted rests on the very numbers in the file; and the
  models without rounding draft and accept the same, so the app can go on from there.

Candidates are found by counting, which no other program disturbs. Speeds are then measured: the runs of a prompt in
turn, `TRIES` times. Greedy calls repeat each other, so that each iteration's least time tells which run is faster; of
each run the least disturbed whole call is written, where it says the same. The figures are printed.
"""

import argparse
import io
import json
import zipfile
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import cache, partial
from itertools import islice
from typing import Any

import torch

from decoding.analysis.slowdown import DRAFT, REBUILD, TOKENS, VERIFY, slowdown
from decoding.common.errors import run_main
from decoding.common.files import whole_file
from decoding.common.prompts import Prompt, load_prompts
from decoding.compare.comparison import Comparison, Score, call_with_trees, compare, score
from decoding.compare.contestants import parse_contestant
from decoding.methods.method import Method
from decoding.methods.methods import METHODS, PRESETS, START
from decoding.models.pair import Model, Pair, embedded_pair
from decoding.recorded import (
    CHAIN,
    COMPARED,
    COMPARED_REPEATS,
    COMPARED_TOKENS,
    COMPARED_WARMUP,
    COMPARISON,
    IN_FULL,
    PLAIN,
    PROMPT,
    RACE_PROMPT,
    RACE_REPEATS,
    RACE_SPEEDS,
    RACE_TOKENS,
    RACE_WARMUP,
    RACERS,
    best_rescue,
    in_words,
    loops,
    recording_file,
    speed,
    telling_iteration,
    threshold_moves,
    tokens_per_pass,
)
from decoding.sampling.sampling import Sampling
from decoding.session.session import DecodeSession, Limits
from decoding.trace.records import RunTrace
from decoding.trace.run_file import save_run

NEW_TOKENS, HISTORY_TOKENS, SAMPLED_TOKENS, HOME_TOKENS = 64, 96, 48, 80
TRIES, HOME_TRIES, CANDIDATES = 7, 12, 4
LEAST_RATIO = 1.05
READABLE_NODES = 22
SEEDS = range(6)
SAMPLING = Sampling(temperature=0.8, draft_temperature=0.6)
PATHS, PATHS_ITERATIONS, PATHS_SEEDS = METHODS["iid_paths"], 6, range(12)
# Of rounded logits: how far below the most likely token, and the step between two of them from there on; the lowest.
STEPS, LEAST = ((0, 1 / 32), (6, 1 / 4), (10, 4)), 18
Found = dict[str, RunTrace]  # by rival, the run itself under an empty name
Find = Callable[[Pair, tuple[Prompt, ...]], Found]


CHAINS = tuple(METHODS["linear"].with_settings(length=k) for k in (3, 5, 8))
TREES = (START, METHODS["dynatree"], PRESETS["SALF th 0.6"])
ONE_BY_ONE = METHODS["specexec"].with_settings(node_budget=24, batch=1)
# By name of the recording: the tree, and the reason why it shall have lost.
LOSING: dict[str, tuple[Method, str]] = {
    "tree_loses": (METHODS["dynatree"], TOKENS),
    "lost_draft": (ONE_BY_ONE, DRAFT),
    "lost_verify": (METHODS["eagle2"], VERIFY),
    "lost_rebuild": (START.with_settings(cache_policy="rebuild"), REBUILD),
}
SAMPLED = (
    METHODS["dyspec"].with_settings(node_budget=16),
    METHODS["dyspec_threshold"].with_settings(node_budget=16, threshold=0.05),
)


def decode(pair: Pair, method: Method, text: str, tokens: int = NEW_TOKENS, sampling: Sampling | None = None, **limits):
    """The run of one call."""
    session = DecodeSession(pair, method, pair.vocabulary.encode(text), sampling, Limits(tokens, **limits))
    list(session)
    return session.trace()


class RoundedModel(Model):
    """A model whose logits are rounded as they leave it: finely for likely tokens, coarsely for the others."""

    @property
    def engine(self):
        return RoundedEngine(super().engine)


@dataclass(frozen=True)
class RoundedEngine:
    """An engine that rounds the logits of its passes; in all else it is the engine that it holds."""

    exact: Any

    def __getattr__(self, name: str) -> Any:
        return getattr(self.exact, name)

    def run(self, *args: Any) -> torch.Tensor:
        """The logits of a pass, 0 for the most likely token."""
        logits = self.exact.run(*args)
        below = logits.max(-1, keepdim=True).values - logits
        rounded = below
        for start, step in STEPS:
            rounded = torch.where(below >= start, (below / step).round() * step, rounded)
        return -rounded.clamp(max=LEAST)


def rounded_pair(pair: Pair) -> Pair:
    """The same models with rounded logits."""
    target, draft = (RoundedModel(**vars(model)) for model in (pair.target, pair.draft))
    return replace(pair, target=target, draft=draft)


def decode_paths(pair: Pair, text: str, seed: int) -> RunTrace:
    """The first iterations of a run of independent paths, with all logits."""
    sampling, limits = replace(SAMPLING, seed=seed), Limits(NEW_TOKENS, rows="full")
    session = DecodeSession(pair, PATHS, pair.vocabulary.encode(text), sampling, limits)
    list(islice(session, PATHS_ITERATIONS))
    return session.trace()


def did(run: RunTrace) -> list[tuple]:
    """What a run drafted, how each node was judged, and what it committed."""
    return [
        ([(node.parent_id, node.token_id, node.verdict) for node in each.nodes], each.committed_ids)
        for each in run.iterations
    ]


def counted(pair: Pair, method: Method, prompts: Iterable[Prompt]) -> list[tuple[float, Prompt]]:
    """Tokens per pass over those of the best chain, largest first, with the prompt; runs that loop are left out."""
    found = []
    for prompt in prompts:
        best = chain_tokens(pair, prompt)
        if best is not None:
            found.append((tokens_per_pass(decode(pair, method, prompt.text, record="summary")) / best, prompt))
    return sorted(found, key=lambda entry: (-entry[0], entry[1].name))


@cache
def chain_tokens(pair: Pair, prompt: Prompt) -> float | None:
    """Tokens per pass of the best chain on a prompt, None where the text loops or soon ends."""
    runs = [decode(pair, chain, prompt.text, record="summary") for chain in CHAINS]
    if loops(runs[0]) or runs[0].totals.new_tokens < NEW_TOKENS // 2:
        return None
    return max(tokens_per_pass(run) for run in runs)


@dataclass(frozen=True)
class Timed:
    """The least disturbed call of a method, and seconds per token of its undisturbed iterations."""

    run: RunTrace
    token_s: float


def against_rivals(pair: Pair, method: Method, prompt: Prompt) -> dict[str, Timed]:
    """A tree, the fastest chain and plain decoding on a prompt, taken in turn; the tree's name is empty."""
    methods = (method, METHODS["autoregressive"], *CHAINS)
    calls = [[decode(pair, each, prompt.text) for each in methods] for _ in range(TRIES)]
    timed = []
    for runs in zip(*calls, strict=True):
        each = zip(*(run.iterations for run in runs), strict=True)
        prefill_s = min(run.totals.prefill_s for run in runs) if runs[0].iterations[0].drafted else 0.0
        seconds = prefill_s + sum(min(same.times.total_s for same in again) for again in each)
        timed.append(Timed(least_disturbed(runs), seconds / runs[0].totals.new_tokens))
    tree, plain, *chains = timed
    return {"": tree, CHAIN: min(chains, key=lambda each: each.token_s), PLAIN: plain}


def least_disturbed(runs: Iterable[RunTrace]) -> RunTrace:
    """Of calls that did the same the one that other programs disturbed least."""
    return min(runs, key=lambda run: run.totals.wall_s)


def _with_rivals(tried: list[dict[str, Timed]], margin: Callable[[dict[str, Timed]], float]) -> Found:
    best = max(tried, key=margin)
    return {rival: timed.run for rival, timed in best.items()} if margin(best) > LEAST_RATIO else {}


def find_home(pair: Pair, prompts: tuple[Prompt, ...]) -> Found:
    """The run that Home shows."""
    text = _text(prompts, PROMPT)
    return {"": least_disturbed(decode(pair, START, text, HOME_TOKENS) for _ in range(HOME_TRIES))}


def measure(
    pair: Pair, texts: Iterable[str], prompts: tuple[Prompt, ...], prompt: str, tokens: int, repeats: int, warmup: int
) -> Comparison | None:
    """A comparison on one prompt, None where a call failed or the outputs differ."""
    ids = pair.vocabulary.encode(_text(prompts, prompt))
    found = compare(pair, [parse_contestant(text) for text in texts], [(prompt, ids)], tokens, repeats, warmup)
    usable = not found.differences and all(call.metrics is not None for call in found.results)
    return found if usable else None


def record_race(pair: Pair, prompts: tuple[Prompt, ...]) -> str:
    """Measure and write the race: of every method its median repeat, and the speed of each."""
    found = measure(pair, RACERS.values(), prompts, RACE_PROMPT, RACE_TOKENS, RACE_REPEATS, RACE_WARMUP)
    if found is None:
        return ""
    scores, speeds = dict(zip(RACERS, score(found, loop_free=False), strict=True)), {}
    for name, entry in scores.items():
        if entry.run is not None:
            save_run(entry.run, recording_file("race", name))
        speeds[name] = [call.throughput for _, call in sorted(entry.calls.items())]
    with whole_file(RACE_SPEEDS) as file:
        file.write(json.dumps(speeds, indent=1).encode() + b"\n")
    return speed_words(scores.values())


def speed_words(scores: Iterable[Score]) -> str:
    """Median speeds by method."""
    speeds = [(each.contestant.label, each.spread_of("throughput")) for each in scores]
    return "; ".join(f"{label}: {speed.median:.0f} tokens/s" for label, speed in speeds if speed is not None)


def record_comparison(pair: Pair, prompts: tuple[Prompt, ...]) -> str:
    """Measure and write the comparison; returns its figures, nothing where the outputs differ."""
    found = measure(pair, COMPARED, prompts, PROMPT, COMPARED_TOKENS, COMPARED_REPEATS, COMPARED_WARMUP)
    if found is None:
        return ""
    with whole_file(COMPARISON) as file, zipfile.ZipFile(file, "w") as archive:
        for call in found.results:
            if call.run is not None:
                save_run(call.run, written := io.BytesIO())
                kind, data = "dscope", written.getvalue()
            elif call.metrics is not None:
                kind, line = "json", call.metrics.timeline
                figures = [call.output_ids, line.seconds, line.tokens, call.metrics.peak_memory_bytes]
                data = json.dumps(figures).encode()
            archive.writestr(zipfile.ZipInfo(f"{call.contestant}.{call.repeat}.{kind}"), data, zipfile.ZIP_DEFLATED)
        ids = pair.vocabulary.encode(_text(prompts, PROMPT))
        for number, each in enumerate(found.contestants):
            if run := call_with_trees(pair, each, ids, found.sampling, COMPARED_TOKENS):
                save_run(run, written := io.BytesIO())
                place = zipfile.ZipInfo(f"{number}.{IN_FULL}.dscope")
                archive.writestr(place, written.getvalue(), zipfile.ZIP_DEFLATED)
    return speed_words(score(found, loop_free=False))


def _text(prompts: tuple[Prompt, ...], name: str) -> str:
    return next(prompt.text for prompt in prompts if prompt.title == name)


def find_helping(pair: Pair, prompts: tuple[Prompt, ...]) -> Found:
    """The tree with the largest measured advantage over the faster of chain and plain decoding."""
    likely = [(tree, prompt) for tree in TREES for _, prompt in counted(pair, tree, prompts)[:CANDIDATES]]
    tried = [against_rivals(pair, tree, prompt) for tree, prompt in likely]

    def gain(found: dict[str, Timed]) -> float:
        others = found[CHAIN], found[PLAIN]
        undisturbed = min(other.token_s for other in others) / found[""].token_s
        return min(undisturbed, speed(found[""].run) / max(speed(other.run) for other in others))

    return _with_rivals(tried, gain)


def find_losing(name: str) -> Find:
    """How to find a tree that loses to the chain for the reason of a recording."""
    method, reason = LOSING[name]

    def margin(found: dict[str, Timed]) -> float:
        lost = slowdown(found[""].run, found[CHAIN].run)
        if min(lost.ratio, found[""].token_s / found[CHAIN].token_s) < LEAST_RATIO:
            return 0.0  # it has not lost
        others = [factor for name, factor in lost.factors.items() if name != reason]
        return lost.factors[reason] / max(others)

    def find(pair: Pair, prompts: tuple[Prompt, ...]) -> Found:
        # A tree that commits more than the chain and loses all the same has lost by its time.
        likely = counted(pair, method, prompts)
        likely = likely[-CANDIDATES:] if reason == TOKENS else likely[:CANDIDATES]
        tried = [against_rivals(pair, method, prompt) for _, prompt in likely]
        return _with_rivals(tried, margin)

    return find


def best_of(calls: Iterable[Callable[[], RunTrace]], score: Callable[[RunTrace], tuple]) -> Found:
    """The run that scores most and does not loop, called again `TRIES` times: the least disturbed call of it."""
    runs = [(call, call()) for call in calls]
    call, _ = max(((call, run) for call, run in runs if not loops(run)), key=lambda found: score(found[1]))
    return {"": least_disturbed(call() for _ in range(TRIES))}


def find_rescue(pair: Pair, prompts: tuple[Prompt, ...]) -> Found:
    """The run whose best readable rescue has most accepted below it, on another prompt than that of Home."""
    others = [prompt for prompt in prompts if prompt.title != PROMPT]
    return best_of([partial(decode, pair, START, prompt.text) for prompt in others], _rescue_score)


def find_history(pair: Pair, prompts: tuple[Prompt, ...]) -> Found:
    """The run in which history adaptation moved its settings most often, in both directions if any does."""

    def score(run: RunTrace) -> tuple[int, int]:
        moves = threshold_moves(run)
        return min(moves["bolder"], moves["more_careful"]), sum(moves.values())

    calls = [partial(decode, pair, METHODS["dynatree"], prompt.text, HISTORY_TOKENS) for prompt in prompts]
    return best_of(calls, score)


def find_sampled(pair: Pair, prompts: tuple[Prompt, ...]) -> Found:
    """The sampled run with most accepted below a sibling after a rejection that left a residual."""
    calls = [
        partial(decode, pair, method, prompt.text, SAMPLED_TOKENS, replace(SAMPLING, seed=seed))
        for prompt in prompts
        if prompt.kind in ("stories", "encyclopedia", "fiction")
        for method in SAMPLED
        for seed in SEEDS
    ]
    return best_of(calls, partial(_rescue_score, residual=True))


def find_logits(pair: Pair, prompts: tuple[Prompt, ...]) -> Found:
    """Independent paths with rounded logits that do what they would have done with exact ones."""
    rounded = rounded_pair(pair)
    calls = [(prompt.text, seed) for prompt in prompts if prompt.kind == "stories" for seed in PATHS_SEEDS]
    rated = [(_paths_score(decode_paths(rounded, *call)), *call) for call in calls]
    for _, text, seed in sorted(rated, reverse=True):
        if did(decode_paths(pair, text, seed)) == did(decode_paths(rounded, text, seed)):
            return {"": least_disturbed(decode_paths(rounded, text, seed) for _ in range(TRIES))}
    return {}


def _paths_score(run: RunTrace) -> tuple[int, ...]:
    """What its rescue is worth, and tokens of the iteration that is shown first."""
    shown = run.iterations[telling_iteration(run)]
    return *_rescue_score(run, residual=True), len(shown.accepted), run.totals.new_tokens


def _rescue_score(run: RunTrace, residual: bool = False) -> tuple[int, int]:
    """Accepted nodes below the best rescue, and nodes of its tree; what a person cannot read scores nothing."""
    found = best_rescue(run, residual)
    if found is None or not in_words(run, found) or run.iterations[found.iteration].drafted > READABLE_NODES:
        return -1, 0
    return found.below, run.iterations[found.iteration].drafted


FIND: dict[str, Find] = {
    "home": find_home,
    "tree_helps": find_helping,
    **{name: find_losing(name) for name in LOSING},
    "sibling_rescue": find_rescue,
    "history": find_history,
    "sampled": find_sampled,
    "full_logits": find_logits,
}


def summary(name: str, runs: Found) -> str:
    """The figures for which a recording was chosen."""
    each = {
        rival: f"{run.label}: {run.totals.new_tokens} tokens, {tokens_per_pass(run):.2f} per pass, "
        f"{speed(run):.0f} tokens/s"
        for rival, run in runs.items()
    }
    run, about = runs[""], each.pop("")
    if name == "home":
        index = telling_iteration(run)
        shown = run.iterations[index]
        return f"{about}; shown is iteration {index}: {len(shown.accepted)} of {shown.drafted} nodes accepted"
    if CHAIN in runs:
        lost = slowdown(run, runs[CHAIN])
        factors = ", ".join(f"{reason} x{factor:.2f}" for reason, factor in lost.factors.items())
        return f"{about}; {'; '.join(each.values())}; time per token over the chain's x{lost.ratio:.2f} = {factors}"
    if name == "history":
        return f"{about}; settings moved {dict(threshold_moves(run))}"
    return f"{about}; {best_rescue(run, residual=name in ('sampled', 'full_logits'))}"


# What is measured and written whole, rather than found among candidates.
RECORD: dict[str, Callable[[Pair, tuple[Prompt, ...]], str]] = {"race": record_race, COMPARISON.stem: record_comparison}
# What only the times are read of comes without its trees, as `record="summary"` leaves it.
BARE = dict[str, Any](nodes=(), flatten_order=(), steps=(), draws=(), drawn=(), texts={}) | dict.fromkeys(
    ("draft_top_ids", "draft_top_probs", "target_top_ids", "target_top_probs", "tested_top_probs")
)


def main() -> int:
    """Search, write, and say what was found; returns how many recordings could not be made."""
    parser = argparse.ArgumentParser(prog="python -m decoding.recorded", description=__doc__.partition("`: ")[2],
                                     formatter_class=argparse.RawDescriptionHelpFormatter)  # fmt: skip
    parser.add_argument("names", nargs="*", choices=(*FIND, *RECORD), metavar="NAME", help="default: all of them")
    names = parser.parse_args().names
    failed = 0
    pair, prompts = embedded_pair(), load_prompts()
    decode(pair, METHODS["dynatree"], prompts[0].text, 8)  # the first passes after loading are slower
    for name in names or (*FIND, *RECORD):
        runs = FIND[name](pair, prompts) if name in FIND else {}
        said = RECORD[name](pair, prompts) if name in RECORD else summary(name, runs) if runs else ""
        if not said:
            print(f"{name}: no measurement is usable, so its files stay as they are; close other programs and re-run.")
            failed += 1
            continue
        for rival, run in runs.items():
            if name.startswith("lost_"):
                if rival == PLAIN:
                    continue
                run = replace(run, iterations=tuple(replace(each, **BARE) for each in run.iterations))
            save_run(run, recording_file(name, rival))
        print(f"{name}: {said}", flush=True)
    return failed


if __name__ == "__main__":
    run_main(main)

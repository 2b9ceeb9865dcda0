"""Tokens per pass of every verifier on i.i.d. trees of every shape, and with its selector.

For Tables 4 to 15 of delayed expansion. At roots along text that the target writes, trees of K 1 to 4 paths and L 0 to
8 levels are drawn, the same for all verifiers; a verifier's selector draws its own tree at the same roots. The expected
tokens of every verifier on each tree are exact: only texts, roots and trees are sampled. Tokens per second are these
over the time of iterations: passes priced by their rows as measured here, and what real iterations with the verifier
take beside them. Without a draft (L 0) all K are one.
"""

import argparse
import os
import sys
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field, replace
from functools import lru_cache
from itertools import cycle, islice, product
from multiprocessing import get_context
from statistics import mean, median
from typing import Any

import numpy as np
import pandas as pd
import torch

from decoding.common.errors import ExperimentError, run_main
from decoding.common.formats import plural
from decoding.common.prompts import Prompt
from decoding.costs.latency import ROW_WARM_UPS, latency_model
from decoding.costs.measuring import Probe
from decoding.drafters import DelayedDrafter
from decoding.experiments.command import (
    add_counting_argument,
    add_job_argument,
    arguments,
    as_job,
    choose_prompts,
    in_both_ways,
    in_steps,
    pair_from,
    parse_amounts,
    print_table,
    save_records,
    text_columns,
)
from decoding.experiments.estimates import estimate, recorded
from decoding.experiments.rows import LOOP_FREE
from decoding.methods.method import Method
from decoding.methods.methods import METHODS
from decoding.models.embedded import embedded_weights
from decoding.models.pair import Pair, load_pair, pair_identity
from decoding.models.presets import EMBEDDED, PairSettings, add_pair_arguments
from decoding.papers.delayed import KINDS
from decoding.papers.measured.depth_divergence import SAMPLINGS, Root, Tree, roots
from decoding.papers.stored import stored_records
from decoding.sampling.sampling import Sampling, TargetDistributions
from decoding.selector.actions import ACTIONS, DISTINCT_OF, PLACES, Action, LatencyModel
from decoding.selector.chooser import NetworkOutputs
from decoding.selector.store import SelectorCard, all_selectors, fits, load_network
from decoding.session.session import unrecorded
from decoding.trace.metrics import COUNTINGS, Counting

GRID_PATHS, GRID_LENGTH = 4, 8  # the paper's grid: K in 1..4, L in 0..8
FIRST, SPACING = 8, 16  # tokens before the first root, and between two
SINGLE_PATH = ("naive", "block")
SOLVERS = ("nss", *SINGLE_PATH, "naive_tree", "spectr", "specinfer", "khisti", "traversal", "traversal_wor")
LARGEST = METHODS["iid_paths"].with_settings(paths=GRID_PATHS, length=GRID_LENGTH)
# Whole runs by which modelled times are checked: tokens, shapes (K, L) and samplings; passes timed around each.
CHECKED = 64
PROBES = 8
CHECKED_SHAPES = ((1, 4), (2, 4), (4, 2), (3, 6))
CHECKED_AT = (Sampling(0.6, draft_temperature=0.6), Sampling(1.0))
Key = tuple[str, int, int]  # verifier, K and L; K 0 where its selector chooses
CHECK: Key = ("naive", 1, GRID_LENGTH)  # computed again where the tokens of all shapes are known
TOKENS_FROM = "tokens_of_shapes_from"  # in a result: when the run was made whose tokens of shapes it took over
SAME = 2e-3  # of its tokens, of which some digits are stored
WIDEN = 4  # of the embedded target, so that passes cost what they do with real models


def grid_trees(tree: Tree) -> dict[tuple[int, int], Tree]:
    """All i.i.d. trees (K, L) inside one of the largest: its first K paths, cut at depth L, are K independent paths."""
    assert tree.draft.drawn is not None
    drawn = tree.draft.drawn.reshape(-1, GRID_PATHS)  # [levels, paths]
    found = {}
    for paths in range(1, GRID_PATHS + 1):
        for length in range(GRID_LENGTH + 1):
            part = drawn[:length, :paths].reshape(-1)
            keep = np.isin(tree.draft.order, np.append(part, 0))
            draft = replace(tree.draft, order=tree.draft.order[keep], drawn=part)
            rows = torch.from_numpy(np.flatnonzero(keep))
            found[paths, length] = Tree(
                draft, TargetDistributions(None, tree.target.sampling, probs=tree.target.logits[rows]), length
            )
    return found


def shapes_of(verifier: str) -> list[tuple[int, int]]:
    """The shapes (K, L) that a verifier is measured on."""
    most = 1 if verifier in SINGLE_PATH else GRID_PATHS
    return [(1, 0), *((k, length) for k in range(1, most + 1) for length in range(1, GRID_LENGTH + 1))]


@dataclass(frozen=True)
class GridJob:
    """One text and how it is examined: what a process of its own is given.

    Attributes:
        pair: that writes the text and drafts; in place of a widened one the plain one, which computes the same.
        text: what records say of the prompt.
        latencies: times of the pair that is judged on this machine, by verifier.
        selectors: that are asked, by verifier. roots, trees: places in the text, and draws at each.
        asked: draws of each selector's tree at a place, the first of them with the seeds of the others.
        known: stored figures of all shapes inside the same trees, which are not computed again.
    """

    pair: PairSettings
    prompt: Prompt
    text: Mapping[str, str]
    sampling: Sampling
    solvers: tuple[str, ...]
    latencies: Mapping[str, LatencyModel]
    selectors: Mapping[str, SelectorCard]
    roots: int
    trees: int
    asked: int
    known: Mapping[Key, Mapping[str, float]] = field(default_factory=dict)


@lru_cache(maxsize=1)
def _pair(settings: PairSettings) -> Pair:
    torch.set_num_threads(1)
    return load_pair(settings)


def expected_at(root: Root, solvers: Sequence[str]) -> dict[Key, float]:
    """Exact expected tokens of verifiers on all their shapes inside one tree drawn at a root."""
    trees = grid_trees(root.tree(LARGEST))
    found: dict[Key, float] = {}
    for (paths, length), tree in trees.items():
        asked = tuple(name for name in solvers if (paths, length) in shapes_of(name))
        expected = tree.expected(asked) if length else dict.fromkeys(asked, 1.0)
        found |= {(name, paths, length): tokens for name, tokens in expected.items()}
    return found


def selecting(card: SelectorCard, latency: LatencyModel, pair: Pair) -> Method:
    """Delayed expansion with a selector that counts with given times, whatever this process would measure."""
    identity = pair_identity(pair)
    chooser = card.chooser(NetworkOutputs(load_network(card)), latency, identity)
    method = METHODS["delayed"].with_settings(verifier=card.verifier)
    return replace(method, drafter=DelayedDrafter(selector=card.name, chooser=chooser))


class OtherTreesError(ExperimentError):
    """The trees drawn here are not those whose tokens are stored: another processor rounds otherwise."""


def records_of(job: GridJob) -> list[dict[str, Any]]:
    """The records of one text: a line for each verifier and shape, means over roots and trees.

    Stored tokens of all shapes are those of these trees, or all shapes are measured.
    """
    try:
        return _records_of(job)
    except OtherTreesError as error:
        print(error, file=sys.stderr)
        return _records_of(replace(job, known={}))


def _records_of(job: GridJob) -> list[dict[str, Any]]:
    pair = _pair(job.pair)
    ids = pair.vocabulary.encode_prompt(job.prompt.text)
    methods = {name: selecting(card, job.latencies[name], pair) for name, card in job.selectors.items()}
    tokens, seconds, loops, lengths = defaultdict(list), defaultdict(list), [], []
    for root in roots(pair, ids, job.sampling, tuple(FIRST + SPACING * place for place in range(job.roots))):
        length = np.array([len(root.session.tokens)])
        asked_s = {name: job.latencies[name].action_s(length, selecting=True)[0] for name in methods}
        loops.append(root.in_loop)
        lengths.append(len(root.session.tokens))
        session = root.session
        for method in list(methods.values())[:1]:
            session = session.fork(method)
            session.peek()  # reads the text as selectors need it, once for all of them
        for seed in range(max(job.trees, job.asked if methods else 0)):
            here = Root(session.fork(sampling=replace(job.sampling, seed=1000 * session.new_tokens + seed)))
            if seed < job.trees:
                for key, expected in (check_of(here) if job.known else expected_at(here, job.solvers)).items():
                    tokens[key].append(expected)
            for name, method in methods.items() if seed < job.asked else ():
                tree = here.tree(method)
                chosen = Action(*(int(tree.draft.settings[part]) for part in Action._fields))
                tokens[name, 0, 0].append(tree.expected((name,))[name])
                seconds[name, 0, 0].append(asked_s[name][PLACES[DISTINCT_OF[ACTIONS.index(chosen)]]])
    if not loops:
        return []
    conditions = {
        **job.text, "prompt_tokens": len(ids), "cut": 0, "asked_tokens": FIRST + SPACING * (job.roots - 1),
        "roots": job.roots, "temperature": job.sampling.temperature, "top_p": job.sampling.top_p,
        "draft_temperature": job.sampling.draft_temperature, "repeat": 0,
    }  # fmt: skip
    outside = ~np.array(loops)
    plain_s = {name: each.action_s(np.array(lengths)) for name, each in job.latencies.items()}  # [roots, actions]
    for name, paths, depth in {**tokens, **job.known}:
        if paths:
            column = plain_s[name][:, ACTIONS.index(Action(paths, 0, depth))]
            seconds[name, paths, depth] = column.repeat(job.trees).tolist()
    made = {}
    for key, of_trees in tokens.items():
        taken = list(zip(of_trees, seconds[key], strict=True))
        made[key] = in_both_ways(taken, outside.repeat(len(taken) // len(loops)).tolist(), figures)
    if job.known:
        made |= known_again(made, job.known, seconds, outside.repeat(job.trees).tolist(), job.text["sample"])
    return [line_of(key, job.selectors) | conditions | made[key] for key in made]


def check_of(root: Root) -> dict[Key, float]:
    """What is computed at a root where the expected tokens of all shapes are known: those that identify its trees."""
    verifier, paths, length = CHECK
    return {CHECK: grid_trees(root.tree(LARGEST))[paths, length].expected((verifier,))[verifier]}


def known_again(
    made: Mapping[Key, Mapping[str, float]],
    known: Mapping[Key, Mapping[str, float]],
    seconds: Mapping[Key, Sequence[float]],
    outside: Sequence[bool],
    text: str,
) -> dict[Key, dict[str, float]]:
    """Figures of known tokens of all shapes over times as they are now.

    Raises:
        OtherTreesError: the trees are not those that the tokens are known of.
    """
    whole, free = "tokens_per_iteration", LOOP_FREE + "tokens_per_iteration"
    if any(abs(made[CHECK].get(name, 0.0) - known[CHECK].get(name, 0.0)) > SAME for name in (whole, free)):
        raise OtherTreesError(f"{text}: the trees drawn here are not the stored ones: all shapes are measured now.")
    total, few = len(outside), sum(outside)
    found = {}
    for key, stored in known.items():  # a tree of known means in the place of each: sums are the same
        there = stored.get(free, 0.0)
        in_loop = (total * stored[whole] - few * there) / (total - few) if few < total else 0.0
        trees = [(there if each else in_loop, taken) for each, taken in zip(outside, seconds[key], strict=True)]
        found[key] = in_both_ways(trees, outside, figures)
    return found


def stored_tokens(weights: str, solvers: Sequence[str], trees: int) -> dict[tuple, dict[Key, dict[str, float]]]:
    """Stored expected tokens of all shapes by text, roots and sampling; those of other trees are left out.

    Raises:
        ExperimentError: there is none.
    """
    found: dict[tuple, dict[Key, dict[str, float]]] = defaultdict(dict)
    rows = stored_records("verifier_grid")
    if len(rows):
        rows = rows[(rows["weights"] == weights) & rows["settings.paths"].notna()]
        rows = rows[(rows["counted"] == rows["roots"] * trees) & rows["settings.verifier"].isin(solvers)]
    names = ["tokens_per_iteration", LOOP_FREE + "tokens_per_iteration"]
    for row in rows.to_dict("records"):
        key = (row["settings.verifier"], int(row["settings.paths"]), int(row["settings.length"]))
        kept = {name: row[name] for name in names if not np.isnan(row[name])}
        found[row["text_hash"], row["roots"], row["temperature"], row["top_p"]][key] = kept
    if not found:
        raise ExperimentError(f"No tokens of {trees} trees are stored for these weights: measure all shapes first.")
    return found


def line_of(key: Key, selectors: Mapping[str, SelectorCard]) -> dict[str, Any]:
    """The columns that name a method with its verifier, and its shape or its selector."""
    verifier, paths, length = key
    if paths:
        return {"line": f"iid_paths:verifier={verifier}", "method": "iid_paths", "settings.verifier": verifier,
                "settings.paths": paths, "settings.length": length}  # fmt: skip
    return {"line": f"delayed:verifier={verifier}", "method": "delayed", "settings.verifier": verifier,
            "settings.selector": selectors[verifier].name}  # fmt: skip


def figures(trees: Sequence[tuple[float, float]]) -> dict[str, float]:
    """Tokens per pass and per second over some trees of one text, from the tokens and the seconds of each."""
    tokens, seconds = (sum(column) for column in zip(*trees, strict=True))
    return {"counted": len(trees), "tokens_per_iteration": tokens / len(trees), "throughput": tokens / seconds}


def time_shares(
    args: argparse.Namespace, pair: Pair, prompts: Sequence[Prompt], latencies: Mapping[str, LatencyModel], runs: int
) -> tuple[dict[str, list[float]], list[float]]:
    """Modelled over measured time of whole runs of `CHECKED` tokens by verifier, verifiers in turn; passes over kept.

    The iteration that reads the prompt is left out, and those whose trees the length limit would cut. A machine's speed
    moves within seconds by more than the model errs, and not alike for all passes: one row waits for memory, many for
    products. Passes over as many rows as the trees have, timed before and after each run, say how fast it was then;
    what they take of what is kept of such passes is the second figure, by run.
    """
    shares, moved = defaultdict(list), []
    known = next(iter(latencies.values())).costs.target
    probe = Probe(pair, pair.target, level=False, sizes=sorted({1 + paths * depth for paths, depth in CHECKED_SHAPES}))

    def slower(rows: int) -> float:
        times = [probe.pass_s(rows) for _ in range(ROW_WARM_UPS + PROBES)]
        return median(times[ROW_WARM_UPS:]) / float(known.seconds(rows))

    cases = product(prompts, CHECKED_SHAPES, CHECKED_AT, latencies)
    for prompt, (paths, depth), sampling, verifier in in_steps(args, islice(cycle(cases), runs), runs, "whole runs"):
        action, rows = Action(paths, 0, depth), 1 + paths * depth
        method = METHODS["delayed"].with_settings(verifier=verifier, **action._asdict())
        session = unrecorded(pair, method, pair.vocabulary.encode_prompt(prompt.text), CHECKED, sampling)
        session.step()
        before = slower(rows)
        lengths, started = [], time.perf_counter()
        while CHECKED - session.new_tokens > depth:
            lengths.append(len(session.tokens))
            session.step()
        measured_s = time.perf_counter() - started
        moved.append(mean((before, slower(rows))))
        modelled_s = latencies[verifier].action_s(np.array(lengths))[:, ACTIONS.index(action)].sum()
        shares[verifier].append(moved[-1] * float(modelled_s) / measured_s)
    return dict(shares), moved


def print_best(records: Sequence[Mapping[str, Any]], counting: Counting) -> None:
    """Print each verifier with the shape that has most tokens per pass, and with its selector."""
    rows, shown = [], recorded(pd.DataFrame(records), counting)
    for line, here in shown.groupby("line") if len(shown) else ():
        shape = ["settings.paths", "settings.length"]
        shape = shape if here["method"].iloc[0] == "iid_paths" else ["settings.selector"]
        best = here.groupby(shape)["tokens_per_iteration"].mean().idxmax()
        best = best if isinstance(best, tuple) else (best,)
        kept = here[(here[shape] == list(best)).all(axis=1)]
        by_prompt = kept.groupby("sample")[["tokens_per_iteration", "throughput"]].mean()
        words = " ".join(f"{part:g}" if isinstance(part, float) else part for part in best)
        rows.append((line, words, *(estimate(by_prompt[name]) for name in by_prompt)))
    print_table(("verifier", "best K L", "tokens per pass", "tokens/s, modelled"), rows)


def main() -> int:
    parser = arguments(__doc__.splitlines()[0])
    add_pair_arguments(parser)
    add_job_argument(parser)
    add_counting_argument(parser, "whole")
    parser.set_defaults(widen=0)
    parser.add_argument("--again", action="store_true", help="keep the stored tokens of all shapes: ask the selectors "
                        "and measure the times anew")  # fmt: skip
    args = parse_amounts(
        parser, count=(30, 2, "prompts"), roots=(8, 1, "roots per prompt and sampling"),
        trees=(8, 1, "drawn at each root"), asked=(24, 1, "trees of each selector drawn at each root"),
    )  # fmt: skip
    if args.again and args.quick:
        parser.error("--again keeps the tokens of a whole run: leave out --quick")
    args.widen = args.widen or (WIDEN if args.target == EMBEDDED and not args.quick else 1)
    return as_job(args, measure)


def measure(args: argparse.Namespace) -> None:
    """Measure, print and keep what the arguments ask for."""
    started = time.perf_counter()
    pair = pair_from(args)
    solvers = ("nss", "traversal") if args.quick else SOLVERS
    prompts, count, trees = choose_prompts(args.prompts, args.count, tuple(KINDS)), args.roots, args.trees
    known = stored_tokens(embedded_weights(), solvers, trees) if args.again else {}
    identity = pair_identity(pair)
    cards = {card.verifier: card for card in reversed(all_selectors()) if fits(card, identity)}
    cards = {name: card for name, card in cards.items() if name in solvers}
    # Before anything else runs here: these are times. What is stored was measured in one sitting.
    latency_model(pair, unrecorded, again=args.save)
    latencies = {name: latency_model(pair, unrecorded, name) for name in solvers}
    shares, moved = time_shares(args, pair, prompts, latencies, 2 if args.quick else 200)
    every = [share for each in shares.values() for share in each]
    print(f"modelled over measured time of {len(every)} whole runs: {estimate(every)}")
    print(f"passes around those runs, over kept ones of as many rows: {estimate(moved)}\n", flush=True)
    print_table(
        ("verifier", "runs", "modelled / measured"), [(n, len(each), estimate(each)) for n, each in shares.items()]
    )
    samplings = SAMPLINGS[4:5] if args.quick else SAMPLINGS
    jobs = [
        GridJob(
            replace(pair.settings, widen=1), prompt, text_columns(prompt, args.prompts), sampling, solvers, latencies,
            cards, count, trees, args.asked, known.get((prompt.hash, count, sampling.temperature, sampling.top_p), {}),
        )
        for prompt in prompts for sampling in samplings
    ]  # fmt: skip
    if args.again and (anew := [job for job in jobs if not job.known]):
        named = ", ".join(dict.fromkeys(job.text["sample"] for job in anew))
        print(f"tokens of shapes not stored, measured now, of {plural(len(anew), 'text')}: {named}", file=sys.stderr)
    workers = ProcessPoolExecutor(os.cpu_count(), get_context("spawn"))
    try:
        records = [each for part in in_steps(args, workers.map(records_of, jobs), len(jobs)) for each in part]
    finally:
        workers.shutdown(cancel_futures=True)
    print(f"{pair.info.name}, {pair.target.info.device}, {len(prompts)} prompts x {count} roots x {trees} "
          f"trees, {args.asked} of each selector, {len(samplings)} samplings; exact over verification, "
          f"means over prompts, {COUNTINGS[args.counted]}\n")  # fmt: skip
    print_best(records, args.counted)
    costs = {name: each.as_json() for name, each in latencies.items()}
    asked = {name: {"name": card.name, "created": card.created} for name, card in cards.items()}
    more: dict[str, Any] = {"latencies": costs, "time_shares": shares, "passes_moved": moved, "selectors": asked}
    if args.again:
        more[TOKENS_FROM] = str(stored_records("verifier_grid")["started"].max())
    save_records(args, "verifier_grid", pair, records, started, **more)


if __name__ == "__main__":
    run_main(main)

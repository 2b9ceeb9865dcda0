"""Greedy identity: every method, cache policy and engine gives the tokens of `generate(do_sample=False)`.

The only exception is a position where a float64 forward puts the target's two best logits within 1e-4; each such
position is listed. In bfloat16 every token lies within a margin of the best logit of the same weights in a wider
dtype. Exit code 1 if any output fails.
"""

import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from benchmarks.fakes import make_checkpoint
from decoding.common.errors import run_main
from decoding.common.settings import ENGINES
from decoding.compare.hf_generate import run_baseline
from decoding.compare.identity import HALF_PRECISION_MARGIN, MarginJudge, explain_difference
from decoding.experiments.command import arguments, choose_prompts, print_table, save_figures
from decoding.methods.method import CACHE_POLICIES, Method
from decoding.methods.methods import METHODS, PRESETS
from decoding.models.pair import Pair, PairSettings, embedded_pair, load_pair
from decoding.session.session import DecodeSession, Limits
from decoding.trace.metrics import measure_run

TINY_ARCHITECTURES = ("gpt_neox", "llama", "gpt2", "qwen2")
TINY_NOISE = 0.02


@dataclass(frozen=True)
class IdentityRow:
    """Outcome of one method under one cache policy on one pair."""

    pair: str
    method: str
    cache_policy: str
    outputs: int
    tokens: int
    tokens_per_iteration: float
    accepted_mean: float | None
    near_ties: tuple[str, ...]
    failures: tuple[str, ...]
    engine: str = "auto"
    shortfall: float | None = None


def methods_to_check(quick: bool) -> dict[str, Method]:
    """Every method; in the long form also the ablation steps and a wide tree with many siblings."""
    chosen = {method.label: method for method in METHODS.values()}
    names = ["DynaTree, first level may branch"]
    if not quick:
        names += ["DynaTree breadth only (ablation)", "DynaTree breadth + depth (ablation)"]
        chosen["Fixed tree, wide"] = METHODS["fixed_tree"].with_settings(
            branch_first_level=True, prune_probability=0.01
        )
    return chosen | {name: PRESETS[name] for name in names}


def check_pair(
    name: str,
    pair: Pair,
    prompts: list[list[int]],
    max_new_tokens: int,
    methods: dict[str, Method],
    rebuild: bool = True,
) -> list[IdentityRow]:
    """Compare methods under every policy with `generate` on one pair; `rebuild` False leaves the second policy out."""
    references = [run_baseline(pair, "hf_generate", ids, max_new_tokens).output_ids for ids in prompts]
    judge = MarginJudge(pair.target)
    rows = []
    for label, method in methods.items():
        policies = CACHE_POLICIES if method.drafter.drafts and rebuild else CACHE_POLICIES[:1]
        for policy in policies:
            rows.append(_check(name, pair, label, method.with_settings(cache_policy=policy), prompts, references,
                               max_new_tokens, judge))  # fmt: skip
    return rows


def _check(name, pair, label, method, prompts, references, max_new_tokens, judge) -> IdentityRow:
    tokens = iterations = accepted = 0
    half = pair.target.dtype.itemsize < 4
    near_ties, failures, shortfalls = [], [], []
    for index, (ids, reference) in enumerate(zip(prompts, references, strict=True)):
        session = DecodeSession(pair, method, ids, limits=Limits(max_new_tokens=max_new_tokens, record="summary"))
        list(session)
        run = session.trace()
        metrics = measure_run(run)
        tokens += metrics.new_tokens
        iterations += metrics.iterations
        accepted += metrics.accepted or 0
        if half:
            shortfalls.append(judge.shortfall(ids, run.output_ids))
            if shortfalls[-1] > HALF_PRECISION_MARGIN:
                failures.append(f"prompt {index}: a token lies {shortfalls[-1]:.3f} below the best logit.")
            continue
        difference = explain_difference(pair, ids, run.output_ids, reference, judge)
        if difference:
            listed = near_ties if difference.near_tie else failures
            listed.append(f"prompt {index}: {difference.explanation}")
    drafts = method.drafter.drafts
    return IdentityRow(name, label, method.cache_policy, len(prompts), tokens, tokens / iterations,
               accepted / iterations if drafts else None, tuple(near_ties), tuple(failures),
               pair.info.target.engine, max(shortfalls, default=None))  # fmt: skip


def check_graphs(pair: Pair, prompts: list[list[int]], max_new_tokens: int, methods: dict[str, Method]) -> IdentityRow:
    """Captured passes against the same passes run as they are, token for token, on CUDA."""
    static = pair.with_engine("cuda_graph")
    outputs: dict[bool, list[tuple[int, ...]]] = {True: [], False: []}
    for captured, found in outputs.items():
        for model in (static.target, static.draft):
            model.engine.graphs.capture = captured
        for method in methods.values():
            for ids in prompts:
                session = DecodeSession(static, method, ids, limits=Limits(max_new_tokens, record="summary"))
                found.append(tuple(token for iteration in session for token in iteration.committed_ids))
    for model in (static.target, static.draft):
        model.engine.graphs.capture = True
    different = [f"output {i}: captured and uncaptured passes part." for i, (a, b) in
                 enumerate(zip(*outputs.values(), strict=True)) if a != b]  # fmt: skip
    tokens = sum(map(len, outputs[True]))
    of = f"embedded {pair.info.target.dtype}"
    return IdentityRow(of, "captured against uncaptured", "compaction", len(outputs[True]),
               tokens, 0.0, None, (), tuple(different), "cuda_graph")  # fmt: skip


def main() -> int:
    parser = arguments(__doc__.splitlines()[0])
    parser.add_argument("--device", default="auto", choices=("auto", "cuda", "cpu"))
    parser.add_argument("--method", choices=tuple(METHODS), help="this one alone; every method without it")
    args = parser.parse_args()
    chosen = methods_to_check(args.quick)
    if args.method:
        chosen = {METHODS[args.method].label: METHODS[args.method]}
    started = time.perf_counter()
    count, length = (1, 40) if args.quick else (24, 128)
    prompts = choose_prompts(args.prompts, count)
    embedded = embedded_pair(args.device)
    rows = check_pair("embedded", embedded, [embedded.vocabulary.encode(p.text) for p in prompts], length, chosen)
    few = [embedded.vocabulary.encode(p.text) for p in prompts[: 1 if args.quick else 6]]
    for engine in ENGINES:
        if engine in ("auto", embedded.info.target.engine):
            continue
        pair = embedded.with_engine(engine)
        rows += check_pair("embedded", pair, few, length // 2, chosen, rebuild=False)
    half = embedded_pair(args.device, "bfloat16")
    rows += check_pair("embedded bfloat16", half, few, length // 2, chosen, rebuild=False)
    if embedded.target.device.type == "cuda":
        rows += [check_graphs(pair, few, length // 2, chosen) for pair in (embedded, half)]
    with tempfile.TemporaryDirectory() as folder:
        for seed, architecture in enumerate(TINY_ARCHITECTURES):
            target, draft = Path(folder) / f"{architecture}-target", Path(folder) / f"{architecture}-draft"
            make_checkpoint(target, architecture, seed=seed)
            make_checkpoint(draft, architecture, seed=seed, noise_from=target, noise=TINY_NOISE)
            pair = load_pair(PairSettings(str(target), str(draft), "cpu", "float32", context_length=1024))
            ids = [pair.vocabulary.encode(p.text) for p in prompts[: 1 if args.quick else 4]]
            rows += check_pair(f"tiny {architecture}", pair, ids, 24 if args.quick else 64, chosen)
    print_table(
        ("pair / method", "engine", "cache", "outputs", "tokens", "tokens/iter", "accepted/iter", "shortfall",
         "near ties", "different"),
        [
            (f"{r.pair}: {r.method}", r.engine, r.cache_policy, r.outputs, r.tokens, f"{r.tokens_per_iteration:.2f}",
             "-" if r.accepted_mean is None else f"{r.accepted_mean:.2f}",
             "-" if r.shortfall is None else f"{r.shortfall:.3f}", len(r.near_ties), len(r.failures))
            for r in rows
        ],
    )  # fmt: skip
    for row in rows:
        for kind, sentences in (("near tie", row.near_ties), ("DIFFERENT", row.failures)):
            for sentence in sentences:
                print(f"{kind}: {row.pair}, {row.method}, {row.engine}, {row.cache_policy}, {sentence}")
    failures = sum(len(row.failures) for row in rows)
    ties = sum(len(row.near_ties) for row in rows)
    line = f"{sum(r.outputs for r in rows):,} outputs in {len(rows)} settings, {failures} differ, {ties} near ties"
    print(f"{line}, {time.perf_counter() - started:.0f} s")
    figures = {"summary": line, "rows": [row.__dict__ for row in rows], "failures": failures}
    save_figures(args, "identity", figures, embedded.target.device)
    return 1 if failures else 0


if __name__ == "__main__":
    run_main(main)

"""Greedy identity: every method and cache policy gives the tokens of `generate(do_sample=False)`.

The only exception is a position where a float64 forward puts the target's two best logits within 1e-4; each such
position is listed. Exit code 1 if any output differs elsewhere.
"""

import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from benchmarks.common import arguments, choose_prompts, print_table, run_main, write_json
from decoding.baselines.hf_generate import run_baseline
from decoding.identity import MarginJudge, explain_difference
from decoding.methods import CACHE_POLICIES, METHODS, PRESETS, Method
from decoding.metrics import measure_run
from decoding.pair import Pair, PairSettings, embedded_pair, load_pair
from decoding.session import DecodeSession, Limits

TINY_ARCHITECTURES = ("gpt_neox", "llama", "gpt2", "qwen2")
TINY_NOISE = 0.02


@dataclass(frozen=True)
class Row:
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


def check_pair(name: str, pair: Pair, prompts: list[list[int]], max_new_tokens: int, quick: bool) -> list[Row]:
    """Compare every method and policy with `generate` on one pair."""
    references = [run_baseline(pair, "hf_generate", ids, max_new_tokens).output_ids for ids in prompts]
    judge = MarginJudge(pair.target)
    rows = []
    for label, method in methods_to_check(quick).items():
        policies = CACHE_POLICIES if method.drafter.uses_draft_model else CACHE_POLICIES[:1]
        for policy in policies:
            rows.append(_check(name, pair, label, method.with_settings(cache_policy=policy), prompts, references,
                               max_new_tokens, judge))  # fmt: skip
    return rows


def _check(name, pair, label, method, prompts, references, max_new_tokens, judge) -> Row:
    tokens = iterations = accepted = 0
    near_ties, failures = [], []
    for index, (ids, reference) in enumerate(zip(prompts, references, strict=True)):
        session = DecodeSession(pair, method, ids, limits=Limits(max_new_tokens=max_new_tokens, record="summary"))
        for _ in session:
            pass
        run = session.trace()
        metrics = measure_run(run)
        tokens += metrics.new_tokens
        iterations += metrics.iterations
        accepted += metrics.accepted or 0
        difference = explain_difference(pair, ids, run.output_ids, reference, judge)
        if difference:
            listed = near_ties if difference.near_tie else failures
            listed.append(f"prompt {index}: {difference.explanation}")
    drafts = method.drafter.uses_draft_model
    return Row(name, label, method.cache_policy, len(prompts), tokens, tokens / iterations,
               accepted / iterations if drafts else None, tuple(near_ties), tuple(failures))  # fmt: skip


def tiny_pairs(folder: Path) -> dict[str, Pair]:
    """Small random targets of four architectures, each with a noised copy of itself as draft."""
    from tests.fakes import make_checkpoint

    pairs = {}
    for seed, architecture in enumerate(TINY_ARCHITECTURES):
        target = make_checkpoint(folder / f"{architecture}-target", architecture, seed=seed)
        draft = make_checkpoint(
            folder / f"{architecture}-draft", architecture, seed=seed, noise_from=target, noise=TINY_NOISE
        )
        pairs[f"tiny {architecture}"] = load_pair(
            PairSettings(target=str(target), draft=str(draft), device="cpu", dtype="float32", context_length=1024)
        )
    return pairs


def main() -> int:
    args = arguments(__doc__.splitlines()[0]).parse_args()
    started = time.perf_counter()
    count, length = (1, 40) if args.quick else (24, 128)
    prompts = choose_prompts(args.prompts, count)
    embedded = embedded_pair()
    rows = check_pair("embedded", embedded, [embedded.vocabulary.encode(p.text) for p in prompts], length, args.quick)
    with tempfile.TemporaryDirectory() as folder:
        for name, pair in tiny_pairs(Path(folder)).items():
            ids = [pair.vocabulary.encode(p.text) for p in prompts[: 1 if args.quick else 4]]
            rows += check_pair(name, pair, ids, 24 if args.quick else 64, args.quick)
    print_table(
        ("pair / method", "cache", "outputs", "tokens", "tokens/iter", "accepted/iter", "near ties", "different"),
        [
            (f"{r.pair}: {r.method}", r.cache_policy, r.outputs, r.tokens, f"{r.tokens_per_iteration:.2f}",
             "-" if r.accepted_mean is None else f"{r.accepted_mean:.2f}", len(r.near_ties), len(r.failures))
            for r in rows
        ],
    )  # fmt: skip
    for row in rows:
        for kind, sentences in (("near tie", row.near_ties), ("DIFFERENT", row.failures)):
            for sentence in sentences:
                print(f"{kind}: {row.pair}, {row.method}, {row.cache_policy}, {sentence}")
    failures = sum(len(row.failures) for row in rows)
    print(f"{sum(r.outputs for r in rows)} outputs, {failures} differ, {time.perf_counter() - started:.0f} s")
    figures = {"rows": [row.__dict__ for row in rows], "failures": failures}
    write_json(args.json, "identity", figures, embedded.target.device)
    return 1 if failures else 0


if __name__ == "__main__":
    run_main(main)

"""SALF & TALF on a pair with trained heads: Tables 2 to 4 and Figure 2, and where the paper's orderings hold here.

Every way to draft decodes the same held-out prompts greedily, interleaved in one run, so that drift of the machine hits
all alike; what comes after the output begins to loop is left out. Beside it stands what every way is exactly worth at
temperature 1: its trees at evenly spaced roots of text that the target drew, verified by node-by-node sampling. Tokens
are means over prompts, speeds medians, with 95% intervals of the bootstrap over prompts; orderings are judged by paired
differences. The paper's figures are means over its tasks with DeepSeek-R1-Distill-Llama-8B on a GPU: what can be
compared is the order, not the height.
"""

import time
from collections.abc import Container

import numpy as np

from benchmarks.talf_ranks import conditioned, rank_shares, written_text
from benchmarks.talf_tables import (
    LOSSES,
    PAPER_4,
    SEARCHES,
    WIDTHS,
    Claims,
    Measured,
    figure_2a,
    figure_2b,
    table_2,
    table_3,
    table_4,
)
from decoding.common.errors import PromptError, run_main
from decoding.compare.comparison import Contestant, compare
from decoding.experiments.command import add_pair_arguments, arguments, choose_prompts, encode, pair_from, save_figures
from decoding.heads.store import all_heads, find_head
from decoding.methods.method import Method
from decoding.methods.methods import METHODS
from decoding.models.pair import Pair
from decoding.papers.measured.depth_divergence import roots
from decoding.sampling.sampling import Sampling
from decoding.trace.metrics import RunMetrics

AUTOREGRESSIVE = "autoregressive"
DEFAULT_THRESHOLD = 0.6
Key = tuple[str, str]  # search and head


def method_of(search: str, head: str, nodes: int) -> Method:
    """A way to draft with a head; a search is one of `SEARCHES` or a threshold of SALF, its settings the paper's."""
    if search == "beam":
        method = METHODS["eagle2"].with_settings(node_budget=nodes, beam_width=10, max_depth=7)
    else:
        threshold = {"optimal": 0.0, "salf": DEFAULT_THRESHOLD}.get(search)
        least = float(search) if threshold is None else threshold
        method = METHODS["salf"].with_settings(node_budget=nodes, batch=10, gain_threshold=least)
    return method.with_settings(draft_head=head, verifier="greedy")


def search_of(threshold: float) -> str:
    """The search with a threshold, under its name in Table 2 where it has one."""
    return {0.0: "optimal", DEFAULT_THRESHOLD: "salf"}.get(threshold, f"{threshold:g}")


def ways(quick: bool, heads: Container[str] = tuple(WIDTHS)) -> list[Key]:
    """Every way to draft: those of Table 2, then what Tables 3 and 4 add; of Table 3 those whose heads are there."""
    asked = [(search, loss) for search in SEARCHES for loss in LOSSES]
    if not quick:
        asked += [("optimal", head) for head in WIDTHS if head in heads]
        asked += [(search_of(threshold), "talf") for threshold in PAPER_4]
    return list(dict.fromkeys(asked))


def measure(
    pair: Pair, asked: dict[Key, Method], prompts: list[tuple[str, list[int]]], tokens: int, repeats: int
) -> tuple[dict[Key, Measured], int]:
    """All ways on all prompts, beside decoding without a draft; prompts on which one has no figure are left out.

    Returns:
        What each reached, and how many outputs differ from that of decoding without a draft.
    """
    contestants = [Contestant(AUTOREGRESSIVE, METHODS[AUTOREGRESSIVE])]
    contestants += [Contestant(" ".join(key), method) for key, method in asked.items()]
    comparison = compare(pair, contestants, prompts, tokens, repeats)
    table: dict[tuple[int, int], list[RunMetrics | None]] = {}
    for result in comparison.results:
        table.setdefault((result.contestant, result.prompt), []).append(result.loop_free)
    expected = [expectations(pair, asked, ids, seed, tokens) for seed, (_, ids) in enumerate(prompts)]
    numbers = range(len(contestants))
    whole = [p for p in range(len(prompts)) if expected[p] and all(all(table[c, p]) for c in numbers)]
    if not whole:
        raise PromptError("On every prompt some output loops from its beginning: give other --prompts.")
    plain = np.array([_throughput(table[0, p]) for p in whole])
    measured = {}
    for number, key in enumerate(asked, 1):
        runs = [table[number, p] for p in whole]
        first = [each[0] for each in runs]
        measured[key] = Measured(
            tokens=np.array([run.tokens_per_iteration for run in first]),
            expected=np.array([expected[p][key] for p in whole]),
            speed=np.array([_throughput(each) for each in runs]) / plain,
            forwards=np.array([run.draft_forwards / run.iterations for run in first]),
            nodes=np.array([run.verified / run.iterations for run in first]),
        )
    return measured, len(comparison.differences)


def expectations(pair: Pair, asked: dict[Key, Method], ids: list[int], seed: int, tokens: int) -> dict[Key, float]:
    """Expected tokens per pass of every way at temperature 1, exact on each tree, mean over roots of one prompt.

    The target writes the text behind the prompt; roots where it loops are left out, and nothing is told of a prompt
    without others.
    """
    positions = tuple(range(tokens // 6, tokens, tokens // 3))
    at = [root for root in roots(pair, ids, Sampling(temperature=1.0, seed=seed), positions) if not root.in_loop]
    if not at:
        return {}
    worth = {key: [root.tree(method).expected(("nss",))["nss"] for root in at] for key, method in asked.items()}
    return {key: float(np.mean(values)) for key, values in worth.items()}


def _throughput(repeats: list[RunMetrics]) -> float:
    return float(np.median([run.throughput for run in repeats]))


def figures_2(pair: Pair, prompts: list[tuple[str, list[int]]], nodes: int, tokens: int, claims: Claims, quick: bool):
    """Both halves of Figure 2, the first on fewer prompts: every tree of it is recorded."""
    some = prompts[: 3 if quick else 12]
    shares = {}
    for loss in LOSSES:
        method = method_of("beam", loss, nodes)
        shares[loss] = [each for _, ids in some if (each := rank_shares(pair, method, ids, tokens))]
    texts = [(written_text(pair, ids, tokens, seed), len(ids)) for seed, (_, ids) in enumerate(prompts)]
    parts = {loss: [conditioned(pair, loss, text, first) for text, first in texts] for loss in LOSSES}
    draws = 200 if quick else 500
    return {"figure_2a": figure_2a(shares, claims), "figure_2b": figure_2b(parts, claims, draws)}


def main() -> int:
    parser = arguments(__doc__.splitlines()[0])
    add_pair_arguments(parser)
    parser.add_argument("--count", type=int, help="prompts (20; 3 with --quick)")
    parser.add_argument("--tokens", type=int, help="new tokens per prompt (48; 24 with --quick)")
    parser.add_argument("--repeats", type=int, default=1, help="measured calls of every way and prompt")
    parser.add_argument("--nodes", type=int, default=60, help="verified nodes of a tree (N); 60 in the paper")
    args = parser.parse_args()
    started = time.perf_counter()
    pair = pair_from(args)
    for head in LOSSES:
        find_head(head)
    asked = {key: method_of(*key, args.nodes) for key in ways(args.quick, {card.name for card in all_heads()})}
    tokens = args.tokens or (24 if args.quick else 48)
    chosen = choose_prompts(args.prompts, args.count or (3 if args.quick else 20))
    if not chosen:
        raise PromptError("No prompts to measure on: give --prompts a folder with .txt files.")
    prompts = [(f"{prompt.kind}/{prompt.name}", encode(pair, prompt.text)) for prompt in chosen]
    print(f"{pair.info.name}, {len(prompts)} held-out prompts x {tokens} tokens, greedy, N={args.nodes}; "
          f"{pair.target.info.device}, {pair.target.info.dtype}, {pair.target.info.engine} engine")  # fmt: skip
    measured, differing = measure(pair, asked, prompts, tokens, args.repeats)
    print(f"{differing} of {len(asked) * len(prompts)} outputs differ from decoding without a draft")
    claims = Claims()
    figures: dict = {"table_2": table_2(measured, claims)}
    if not args.quick:
        figures["table_3"] = table_3(measured, claims)
        by_threshold = {threshold: measured[search_of(threshold), "talf"] for threshold in PAPER_4}
        figures["table_4"] = table_4(by_threshold, claims)
    figures |= figures_2(pair, prompts, args.nodes, tokens, claims, args.quick)
    claims.show()
    figures["claims"] = [{**vars(claim), "found": vars(claim.found)} for claim in claims.made]
    figures |= {"prompts": len(prompts), "tokens": tokens, "nodes": args.nodes, "differing_outputs": differing}
    print(f"{time.perf_counter() - started:.0f} s")
    save_figures(args, "talf", figures, pair.target.device)
    return 0


if __name__ == "__main__":
    run_main(main)

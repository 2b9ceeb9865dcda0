"""Order of a tree's mask rows (DySpec, Appendix C): non-empty mask blocks, attention time, and identical tokens.

Random trees attach every node to a node drawn among those before it and are in creation order, like the paper's. Real
trees are DySpec's on the embedded pair, after prefixes of several lengths. Attention has the shape of Llama-2-70B on a
GPU (64 heads of 128) and a smaller one on a CPU; both kinds see the same mask in the same order: scaled-dot-product
attention reads the whole mask, FlexAttention skips its empty blocks. With --save the figures of every tree are saved
for `benchmarks.papers`.
"""

import argparse
import time
from collections.abc import Callable, Sequence
from functools import partial
from itertools import product
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import torch

from decoding.common.errors import run_main
from decoding.costs.measuring import settle
from decoding.experiments.command import (
    add_job_argument,
    arguments,
    as_job,
    encoded_prompts,
    in_steps,
    pair_from,
    print_table,
    save_records,
)
from decoding.experiments.estimates import Estimate, estimate
from decoding.methods.methods import METHODS
from decoding.models.pair import Pair
from decoding.models.presets import add_pair_arguments
from decoding.papers.dyspec import COUNTS, KERNEL_BLOCK, MADE, PAPER_BLOCK
from decoding.papers.paper_result import between, sampling_words
from decoding.sampling.sampling import Sampling
from decoding.session.session import DecodeSession, Limits
from decoding.trace.tree_mask import NODE_ORDERS, ORDER_NAMES, TreeMask, breadth_first, count_blocks, depth_first

SIZES, PREFIXES, BLOCKS = (64, 128, 256, 512, 1024, 2048), (0, 500, 1000, 2000), (16, 32, 64, 128)
HEADS = {"cuda": (64, 128), "cpu": (4, 64)}
REPEATS = 15
REAL_TREES = Sampling(temperature=0.6, draft_temperature=0.6)
BEHIND_PREFIXES = 4  # random trees of a size

Order = Callable[[dict[int, int]], Sequence[int]]
Record = dict[str, Any]  # of one tree, or one call of attention, in one order: see `decoding.papers.stored`
ORDERS: dict[str, Order] = {
    "as made": sorted,
    "breadth": breadth_first,
    "depth": depth_first,
    "heavy": lambda parents: depth_first(parents, heavy=True),
}
WORDS: dict[str, str] = {"as made": MADE, **dict(ORDER_NAMES.items())}


def random_tree(nodes: int, draws: np.random.Generator) -> dict[int, int]:
    """Parent of every node; each is drawn among the nodes before it."""
    return {node: int(draws.integers(node)) if node else -1 for node in range(nodes)}


def tree_mask(parents: dict[int, int], rows: Sequence[int], prefix: int) -> TreeMask:
    """The mask of a tree whose nodes are in some order, parents before children."""
    place_of = {node: place for place, node in enumerate(rows)}
    allowed = np.eye(len(rows), dtype=bool)
    for place, node in enumerate(rows):
        if parents[node] in place_of:
            allowed[place] |= allowed[place_of[parents[node]]]
    return TreeMask(allowed, tuple(rows), prefix)


def blocks_of(parents: dict[int, int], order: str, prefix: int) -> dict[str, int]:
    """Non-empty blocks of a tree's mask in one order, by size of the block: `blocks` are those of the paper's size."""
    rows = tuple(ORDERS[order](parents))
    mask = tree_mask(parents, rows, prefix)
    cells = np.nonzero(mask.allowed)
    return {"blocks" if block == PAPER_BLOCK else f"blocks_{block}": count_blocks(mask, rows, cells, block).total
            for block in BLOCKS}  # fmt: skip


def block_records(
    part: str, name: str, nodes: int, parents: dict[int, int], prefixes: Sequence[int] = PREFIXES
) -> list[Record]:
    """A tree in every order after every prefix."""
    return [_record(part, order, name, nodes, prefix, **blocks_of(parents, order, prefix))
            for prefix in prefixes for order in ORDERS]  # fmt: skip


def counted(records: Sequence[Record], nodes: int, order: str, prefix: int = 0) -> Estimate:
    """The mean of the non-empty blocks of `PAPER_BLOCK` over the trees of one size."""
    return estimate([each["blocks"] for each in records
                     if (each["nodes"], each["line"], each["prefix"]) == (nodes, order, prefix)])  # fmt: skip


def random_table(sizes: Sequence[int], count: int) -> list[Record]:
    """Table 5's block counts: random trees without a prefix, the first few of every size with prefixes too."""
    print(f"\nNon-empty blocks of {PAPER_BLOCK} x {PAPER_BLOCK}, random trees without a prefix, and Table 5")
    draws, records = np.random.default_rng(0), []
    for nodes in sizes:
        for number in range(count):
            prefixes = PREFIXES if number < BEHIND_PREFIXES else PREFIXES[:1]
            records += block_records("random", f"random {number}", nodes, random_tree(nodes, draws), prefixes)
    rows = []
    for nodes in sizes:
        paper, cells = COUNTS.get(nodes, ("", "")), [str(counted(records, nodes, order)) for order in ORDERS]
        rows.append((nodes, cells[0], paper[0], *cells[1:], paper[1]))
    words = list(WORDS.values())
    print_table(("nodes", words[0], "paper", *words[1:], "paper, reordered"), rows)
    return records


def real_table(pair: Pair, prompts: Sequence[list[int]], sizes: Sequence[int], count: int) -> list[Record]:
    """Figure 9: real trees, drafted at temperature 0.6 as in the paper, after prefixes of several lengths."""
    print(f"\nNon-empty blocks of {PAPER_BLOCK} x {PAPER_BLOCK}, DySpec's trees after a prefix")
    records, limits = [], Limits(64, ignore_end_of_text=True)
    for nodes, number in product(sizes, range(count)):
        method = METHODS["dyspec"].with_settings(node_budget=nodes)
        session = DecodeSession(pair, method, prompts[number % len(prompts)], REAL_TREES, limits)
        for _ in range(1 + number // len(prompts)):
            iteration = session.step()
        parents = {node: iteration.nodes[node].parent_id for node in iteration.flatten_order}
        records += block_records("real", f"tree {number}", nodes, parents)
    rows = [(nodes, prefix, *(counted(records, nodes, order, prefix) for order in ORDERS))
            for nodes in sizes for prefix in PREFIXES]  # fmt: skip
    print_table(("nodes", "prefix", *WORDS.values()), rows)
    return records


def kernel_table(sizes: Sequence[int], prefixes: Sequence[int], device: torch.device) -> list[Record]:
    """Milliseconds of attention over random trees: the dense mask, and FlexAttention with the blocks of each order."""
    heads, size = HEADS.get(device.type, HEADS["cpu"])
    print(f"\nMilliseconds of one layer's attention on {device}, {heads} heads of {size}; interleaved, medians")
    draws, records, rows = np.random.default_rng(1), [], []
    for nodes in sizes:
        parents = random_tree(nodes, draws)
        for prefix in prefixes:
            ways = kernel_ways(parents, prefix, device, heads, size)
            times: dict[str, list[float]] = {name: [] for name in ways}
            for number in range(REPEATS):
                for name, run in ways.items():
                    times[name].append(1000 * timed(run, device))
                    records.append(
                        _record("kernels", name, f"repeat {number}", nodes, prefix, kernel_ms=times[name][-1])
                    )
            rows.append((nodes, prefix, *(f"{median(each):.2f}" for each in times.values())))
    heads_of_columns = [WORDS.get(name, name) for name in ways]
    print_table(("nodes", "prefix", heads_of_columns[0], *(f"flex, {name}" for name in heads_of_columns[1:])), rows)
    return records


def _record(part: str, line: str, sample: str, nodes: int, prefix: int, **figures: float) -> Record:
    return {"part": part, "line": line, "sample": sample, "nodes": nodes, "prefix": prefix, **figures}


def kernel_ways(
    parents: dict[int, int], prefix: int, device: torch.device, heads: int, size: int
) -> dict[str, Callable[[], torch.Tensor]]:
    """Attention of one tree, dense and with each order's blocks, warmed up; all give the same up to row order."""
    # Imported here: the compiler comes with it.
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention

    dtype = torch.float16 if device.type == "cuda" else torch.float32
    nodes, generator = len(parents), torch.Generator().manual_seed(0)
    queries, keys, values = (torch.randn(1, heads, rows, size, generator=generator).to(device, dtype)
                             for rows in (nodes, prefix + nodes, prefix + nodes))  # fmt: skip
    compiled: Any = torch.compile(flex_attention, dynamic=False)
    ways: dict[str, Callable[[], torch.Tensor]] = {}
    for order in ORDERS:
        mask = tree_mask(parents, tuple(ORDERS[order](parents)), prefix)
        seen = torch.from_numpy(np.concatenate([np.ones((nodes, prefix), bool), mask.allowed], 1)).to(device)
        if order == "as made":  # a dense mask costs the same in every order
            dense = torch.nn.functional.scaled_dot_product_attention
            ways["dense"] = partial(dense, queries, keys, values, seen[None, None])
        allowed: Any = partial(_allowed, seen)
        block = create_block_mask(
            allowed, None, None, nodes, prefix + nodes, device=device.type, BLOCK_SIZE=KERNEL_BLOCK
        )
        ways[order] = partial(compiled, queries, keys, values, block_mask=block)
    reference = ways["dense"]()
    for name, run in ways.items():
        given = run()
        if name in ("dense", "as made"):
            torch.testing.assert_close(given, reference, atol=2e-3, rtol=2e-3)
    return ways


def _allowed(seen: torch.Tensor, batch: Any, head: Any, query: Any, key: Any) -> torch.Tensor:
    return seen[query, key]


def timed(run: Callable[[], torch.Tensor], device: torch.device) -> float:
    """Seconds of one call."""
    settle(device)
    started = time.perf_counter()
    run()
    settle(device)
    return time.perf_counter() - started


def protocol(
    prompts: Sequence[list[int]], folder: Path | None, random_trees: int, real_trees: int, device: torch.device
) -> dict[str, dict[str, str]]:
    """How the records of each part are measured, see `decoding.papers.stored`; random trees are of no pair."""
    heads, size = HEADS.get(device.type, HEADS["cpu"])
    common = {"pair": "", "prompts": "random trees"}
    blocks, sampling = f"blocks of {PAPER_BLOCK} x {PAPER_BLOCK}", REAL_TREES
    return {
        "random": common | {"repeats": f"{random_trees} trees of each size", "setup": blocks},
        "kernels": common | {
            "repeats": f"medians over {REPEATS} calls on one tree of each size", "setup": f"{heads} heads of {size}, "
            f"FlexAttention with blocks of {KERNEL_BLOCK} x {KERNEL_BLOCK}; PyTorch's own for the dense mask"},
        "real": {
            "prompts": f"{len(prompts)} of {'samples' if folder is None else folder.name}",
            "prompt_tokens": f"{between(map(len, prompts))}, in the mask prefixes of "
            f"{', '.join(f'{each:,}' for each in PREFIXES)}",
            "sampling": sampling_words([(sampling.temperature, sampling.top_p, sampling.draft_temperature)]),
            "repeats": f"{real_trees} trees of each size", "setup": blocks},
    }  # fmt: skip


def main() -> int:
    parser = arguments(__doc__.splitlines()[0])
    add_pair_arguments(parser)
    add_job_argument(parser)
    parser.add_argument("--no-kernels", action="store_true", help="skip attention: FlexAttention needs a compiler")
    args = parser.parse_args()
    return as_job(args, measure)


def measure(args: argparse.Namespace) -> None:
    """Measure, print and keep what the arguments ask for."""
    started = time.perf_counter()
    pair = pair_from(args)
    prompts = [ids for _, ids in encoded_prompts(pair, args.prompts, 2 if args.quick else 8)]
    sizes = (64, 256) if args.quick else SIZES
    count = 4 if args.quick else 20
    records = random_table(sizes, count)
    real, trees = ((64, 256), 4) if args.quick else ((64, 256, 768, 1024, 2048), 16)
    said = protocol(prompts, args.prompts, count, trees, pair.target.device)
    records += real_table(pair, prompts, real, trees)
    names, differing, outputs = ("dynatree", "eagle2", "salf", "fixed_tree", "hardware_aware"), 0, 0
    count = 32 if args.quick else 128
    for name, ids in in_steps(args, product(names, prompts), len(names) * len(prompts)):
        texts = []
        for order in NODE_ORDERS:
            method = METHODS[name].with_settings(verifier="greedy", node_order=order)
            session = DecodeSession(pair, method, ids, limits=Limits(count, record="none"))
            list(session)
            texts.append(session.tokens)
        outputs += len(texts) - 1
        differing += sum(text != texts[0] for text in texts[1:])
    print(f"\n{differing} of {outputs} outputs in another node order differ from the breadth-first (BFS) ones "
          f"({', '.join(names)}; {len(prompts)} prompts x {count} tokens)")  # fmt: skip
    tokens = {"outputs": outputs, "differing": differing, "methods": names, "tokens": count}
    if not (args.quick or args.no_kernels):
        records += kernel_table((256, 512, 1024, 2048), (0, 1000), pair.target.device)
    save_records(args, "mask_order", pair, records, started, tokens=tokens, protocol=said)


if __name__ == "__main__":
    run_main(main)

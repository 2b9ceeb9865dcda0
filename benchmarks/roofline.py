"""Bytes and operations of a pass against the measured ceilings of the device: how near its limit an engine is.

    python -m benchmarks.roofline [--widen 4] [--save]

Ceilings are a large product, a copy of memory and, on a CPU, buffers of several sizes that are read again and again,
which a cache may hold as it may hold the weights. Then come passes of the target and the draft model, and the phases of
real runs; texts count whole, and figures are medians of calls or means over iterations. `python -m benchmarks.gpu`
measures the same on a GPU.
"""

import argparse
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from statistics import median

import numpy as np
import torch

from benchmarks.methods import part_of
from decoding.common.errors import run_main
from decoding.compare.comparison import MOST_TRIES, cold_calls
from decoding.compare.contestants import parse_contestant
from decoding.engines.base import Visibility
from decoding.engines.packed import Float16Linear, can_pack
from decoding.experiments.command import arguments, encoded_prompts, goal_line, pair_from, print_table, save_figures
from decoding.methods.method import Method
from decoding.models.pair import Model, Pair, tree_forward
from decoding.models.presets import EMBEDDED, add_pair_arguments
from decoding.papers.measured.mask_order import timed
from decoding.session.session import DecodeSession, Limits
from decoding.trace.records import PHASES

QUERIES = (1, 4, 16, 64)
REPEATS = 15
# Buffers far larger than any cache, so that what is measured is memory.
COPY_BYTES = {"cuda": 2**30, "cpu": 2**28}
MATRIX_SIZE = {"cuda": 8192, "cpu": 1536}
READ_BYTES = tuple(2**power for power in range(20, 29))  # from what the smallest caches hold to what none does
ROW_BYTES = 4096  # of a matrix that is read by a product with one vector
# Runs whose levels are 1 to 8 nodes wide, beside one without a draft.
RUNS = (
    "autoregressive",
    "linear:length=3",
    "eagle2:node_budget=6,beam_width=3,max_depth=2",
    "eagle2:node_budget=24,beam_width=8,max_depth=3",
)
# What the embedded pair is to reach on a CPU: shares of the limits, and what a level takes from start to end.
TARGET_SHARE, TARGET_QUERIES, DRAFT_SHARE, LEVEL_MS = 0.75, 16, 0.50, 0.2


@dataclass(frozen=True)
class Ceilings:
    """What a device reaches at best: bytes per second of a large copy (read + written), operations of a product.

    `reads` are (bytes of a buffer, bytes per second where it is read again and again), smallest first, on a CPU.
    """

    copy_bytes_per_s: float
    product_operations_per_s: float
    reads: tuple[tuple[int, float], ...] = ()

    def bytes_per_s(self, size: int) -> float:
        """How fast so many bytes are read again and again: between the measured sizes, if there are any."""
        if not self.reads:
            return self.copy_bytes_per_s
        sizes, rates = zip(*self.reads, strict=True)
        return float(np.interp(np.log(size), np.log(sizes), rates))


@dataclass(frozen=True)
class PassCost:
    """What one pass must at least move and compute.

    Attributes:
        bytes: weights without the input embedding (with it where it is also the output head), cached rows.
        operations: multiplications and additions of the products and of attention.
    """

    bytes: int
    operations: int

    def limit_s(self, ceilings: Ceilings) -> float:
        """Seconds that the device cannot undercut."""
        return max(self.bytes / ceilings.bytes_per_s(self.bytes), self.operations / ceilings.product_operations_per_s)


def measure_ceilings(device: torch.device, dtype: torch.dtype) -> Ceilings:
    """Copy bandwidth and the rate of a large product in `dtype`, medians of repeated runs."""
    source = torch.empty(COPY_BYTES[device.type], dtype=torch.uint8, device=device).fill_(1)
    target = torch.empty_like(source)
    copy_s = median_s(lambda: target.copy_(source), device)
    size = MATRIX_SIZE[device.type]
    # Numbers that are all alike are multiplied faster than those of a model.
    maker = torch.Generator(device).manual_seed(0)
    left, right = (torch.randn((size, size), generator=maker, device=device).to(dtype) for _ in range(2))
    product_s = median_s(lambda: left @ right, device)
    return Ceilings(2 * source.numel() / copy_s, 2 * size**3 / product_s)


def read_rate(size: int, device: torch.device) -> float:
    """Bytes per second at which a buffer of `size` bytes is read again and again, by the fastest of three kernels."""
    matrix = torch.ones((size // ROW_BYTES, ROW_BYTES // 4), device=device)
    vector = torch.ones(matrix.shape[1], device=device)
    calls = (matrix.sum, matrix.max, lambda: matrix @ vector)
    return size / min(median_s(call, device) for call in calls)


def median_s(call: Callable[[], object], device: torch.device, repeats: int = REPEATS) -> float:
    """Median seconds of a call, waiting for the device before and after; the first calls are left out."""
    return median([timed(call, device) for _ in range(repeats + 3)][3:])


def streamed_weights(model: Model) -> tuple[int, int]:
    """(bytes, parameters) of the weights that every pass reads: all, less an input embedding that is no head too.

    Matrices that the packed engine keeps in 16 bits count as two bytes a weight.
    """
    network, packed = model.network, model.info.engine != "transformers"
    embedding, head = network.get_input_embeddings().weight, network.get_output_embeddings().weight
    read = [weight for weight in network.parameters() if weight is not embedding or embedding is head]
    halves = [packed and w.dim() == 2 and can_pack(w.device, w.dtype) and Float16Linear.fits(w) for w in read]
    sizes = [w.numel() * (2 if half else w.element_size()) for w, half in zip(read, halves, strict=True)]
    return sum(sizes), sum(w.numel() for w in read)


def pass_cost(model: Model, num_queries: int, rows: int) -> PassCost:
    """What a pass of `num_queries` tokens after `rows` cached rows costs at least."""
    weight_bytes, parameters = streamed_weights(model)
    config = model.network.config.get_text_config()
    heads = config.num_attention_heads
    head_dim = getattr(config, "head_dim", None) or config.hidden_size // heads
    kv_heads = getattr(config, "num_key_value_heads", None) or heads
    row_bytes = 2 * model.num_layers * kv_heads * head_dim * model.dtype.itemsize
    attention = 4 * model.num_layers * heads * head_dim * num_queries * (rows + num_queries)
    moved = weight_bytes + (rows + 2 * num_queries) * row_bytes
    return PassCost(moved, 2 * parameters * num_queries + attention)


@torch.inference_mode()
def pass_seconds(model: Model, num_queries: int, rows: int) -> float:
    """Median seconds of a pass of `num_queries` tokens after `rows` cached rows."""
    cache = model.engine.new_cache(rows + num_queries + 64)
    ids = np.arange(rows + num_queries) * 37 % model.info.vocab_size
    positions = np.arange(rows + num_queries)
    tree_forward(model, cache, ids[:rows], positions[:rows], Visibility.causal(0, rows), keep=1)

    def one_pass():
        cache.rollback(rows)
        tree_forward(model, cache, ids[rows:], positions[rows:], Visibility.causal(rows, num_queries))

    return median_s(one_pass, model.device)


def pass_rows(pair: Pair, ceilings: Ceilings | None, rows: int = 200) -> list[dict]:
    """Target and draft passes of several sizes: measured time, and where ceilings are known the limits and their share.

    What follows from ceilings that are not known is None.
    """
    found = []
    for role, model in (("target", pair.target), ("draft", pair.draft)):
        for queries in QUERIES:
            cost, seconds = pass_cost(model, queries, rows), pass_seconds(model, queries, rows)
            found.append({
                "model": role, "engine": model.info.engine, "queries": queries, "ms": 1000 * seconds,
                "megabytes": cost.bytes / 1e6, "gigaoperations": cost.operations / 1e9,
                "bandwidth_limit_ms": ceilings and 1000 * cost.bytes / ceilings.bytes_per_s(cost.bytes),
                "compute_limit_ms": ceilings and 1000 * cost.operations / ceilings.product_operations_per_s,
                "share_of_limit": ceilings and cost.limit_s(ceilings) / seconds,
            })  # fmt: skip
    return found


def phase_rows(
    pair: Pair, method: Method, prompt_ids: list[int], max_new_tokens: int, ceilings: Ceilings | None
) -> list[dict]:
    """Each phase of a real run: milliseconds per iteration, and the least that its passes could take (None: unknown).

    `cold` are the passes of the run that made a CUDA graph: they say that its times are too long.
    """
    list(DecodeSession(pair, method, prompt_ids, limits=Limits(16, record="none")))
    for _ in range(MOST_TRIES):  # until no CUDA graph is made on the way
        before = cold_calls(pair)
        iterations = list(DecodeSession(pair, method, prompt_ids, limits=Limits(max_new_tokens, record="summary")))
        cold = cold_calls(pair) - before
        if not cold:
            break
    rows = len(prompt_ids) + max_new_tokens // 2
    target = pass_cost(pair.target, max(1, round(np.mean([i.verified + 1 for i in iterations]))), rows)
    levels = np.mean([i.draft_forwards for i in iterations])
    width = max(1, round(np.mean([i.drafted / max(1, i.draft_forwards) for i in iterations])))
    draft = pass_cost(pair.draft, width, rows)
    limits = ceilings and {"verify": target.limit_s(ceilings), "draft": levels * draft.limit_s(ceilings)}
    total = sum(i.times.total_s for i in iterations) / len(iterations)
    found = []
    for phase in PHASES:
        seconds = sum(getattr(i.times, f"{phase}_s") for i in iterations) / len(iterations)
        found.append({
            "method": method.label, "phase": phase, "ms": 1000 * seconds, "share": seconds / total,
            "limit_ms": limits and 1000 * limits.get(phase, 0.0), "cold": cold, "levels": levels, "width": width,
        })  # fmt: skip
    return found


def print_roofline(ceilings: Ceilings | None, passes: list[dict], phases: list[dict]) -> None:
    """The ceilings where they are known, and the two tables."""
    if ceilings:
        print(f"measured ceilings: copy {ceilings.copy_bytes_per_s / 1e9:.0f} GB/s (read + written), "
              f"product {ceilings.product_operations_per_s / 1e12:.2f} Top/s")  # fmt: skip
        read = (f"{size / 2**20:.0f} MiB {rate / 1e9:.0f}" for size, rate in ceilings.reads)
        print(f"read again and again, GB/s by size: {', '.join(read)}\n" if ceilings.reads else "")
    print_table(
        ("pass", "engine", "queries", "ms", "MB", "Gop", "bandwidth ms", "compute ms", "of the limit"),
        [(r["model"], r["engine"], r["queries"], f"{r['ms']:.2f}", f"{r['megabytes']:.1f}",
          f"{r['gigaoperations']:.2f}", _known(r["bandwidth_limit_ms"], ".2f"), _known(r["compute_limit_ms"], ".2f"),
          _known(r["share_of_limit"], ".0%")) for r in passes],
    )  # fmt: skip
    print("\nper iteration; what exceeds the limit is launches, Python, and rows that wait for one another")
    print_table(
        ("method", "phase", "ms", "share", "limit ms"),
        [(r["method"], r["phase"], f"{r['ms']:.2f}", f"{r['share']:.0%}",
          _known(r["limit_ms"] or None, ".2f")) for r in phases],
    )  # fmt: skip
    if cold := {r["method"]: r["cold"] for r in phases if r["cold"]}:
        print(f"\nmeasured while CUDA graphs were made, so slower than they are: {cold}")


def _known(value: float | None, form: str) -> str:
    return "-" if value is None else format(value, form)


def roofline_figures(
    pair: Pair, engines: Sequence[str], methods: Sequence[Method], prompt_ids: list[int], max_new_tokens: int
) -> dict:
    """Measure the ceilings, the passes of each engine and the phases of some methods; print them."""
    ceilings, device = measure_ceilings(pair.target.device, pair.target.dtype), pair.target.device
    if device.type == "cpu":
        ceilings = replace(ceilings, reads=tuple((size, read_rate(size, device)) for size in READ_BYTES))
    passes = [row for engine in engines for row in pass_rows(pair.with_engine(engine), ceilings)]
    phases = [row for method in methods for row in phase_rows(pair, method, prompt_ids, max_new_tokens, ceilings)]
    print(f"{pair.info.name}, {pair.target.info.device}, {pair.target.info.dtype}")
    print_roofline(ceilings, passes, phases)
    return {"ceilings": asdict(ceilings), "passes": passes, "phases": phases}


def goals(engine: str, passes: Sequence[dict], phases: Sequence[dict]) -> list[str]:
    """What an engine's passes of the target and the draft, and levels in real runs, reach of what they are to reach."""
    few = [row for row in passes if row["engine"] == engine and row["queries"] <= TARGET_QUERIES]
    lines = []
    for role, goal in (("target", TARGET_SHARE), ("draft", DRAFT_SHARE)):
        shares = {row["queries"]: row["share_of_limit"] for row in few if row["model"] == role}
        each = ", ".join(f"{share:.0%} over {queries}" for queries, share in shares.items())
        one = next(row for row in few if row["model"] == role)
        said = (
            f"passes of the {role} reach {each} of their limit, goal {goal:.0%} over 1 to {max(shares)}; one over "
            f"{one['queries']} takes {one['ms']:.2f} ms, of which bytes and products need "
            f"{one['ms'] * one['share_of_limit']:.2f}"
        )
        lines.append(goal_line(min(shares.values()) >= goal, said))
    levels = {f"{row['width']} wide": row["ms"] / row["levels"] for row in phases
              if row["phase"] == "draft" and row["levels"]}  # fmt: skip
    each = ", ".join(f"{ms:.2f} ms {width}" for width, ms in levels.items())
    said = f"a draft level with top-k and tree takes {each} in a run, goal at most {LEVEL_MS} ms"
    return [*lines, goal_line(max(levels.values()) <= LEVEL_MS, said)]


def run_on_cpu(args: argparse.Namespace, pair: Pair) -> int:
    """Measure, judge and keep what a pair on a CPU reaches, with the engine that runs it and with transformers'."""
    started, engine = time.perf_counter(), pair.target.info.engine
    ids = encoded_prompts(pair, args.prompts, 1)[0][1]
    methods = [parse_contestant(text).method for text in (RUNS[:2] if args.quick else RUNS)]
    engines = list(dict.fromkeys((engine, "transformers")))
    figures = roofline_figures(pair, engines, methods, ids, 16 if args.quick else 128)
    embedded = pair.settings.target == EMBEDDED  # whose goals they are
    judged = goals(engine, figures["passes"], figures["phases"]) if embedded else []
    print("", *judged, sep="\n")
    figures |= {"pair": pair.info.name, "took_s": time.perf_counter() - started, "goals": judged}
    save_figures(args, "roofline", figures, pair.target.device, part_of(pair), by_processor=True)
    return 0


def main() -> int:
    parser = arguments(__doc__.splitlines()[0])
    add_pair_arguments(parser)
    parser.set_defaults(device="cpu")
    args = parser.parse_args()
    return run_on_cpu(args, pair_from(args))


if __name__ == "__main__":
    run_main(main)

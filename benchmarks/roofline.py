"""Bytes and operations of a pass against the measured ceilings of the device: how near its limit an engine is."""

from collections.abc import Callable
from dataclasses import dataclass
from statistics import median

import numpy as np
import torch

from decoding.compare.comparison import MOST_TRIES, cold_calls
from decoding.engines.base import Visibility
from decoding.engines.packed import Float16Linear, can_pack
from decoding.experiments.command import print_table
from decoding.methods.method import Method
from decoding.models.pair import Model, Pair, tree_forward
from decoding.papers.measured.mask_order import timed
from decoding.session.session import DecodeSession, Limits
from decoding.trace.records import PHASES

QUERIES = (1, 4, 16, 64)
REPEATS = 15
# Buffers far larger than any cache, so that what is measured is memory.
COPY_BYTES = {"cuda": 2**30, "cpu": 2**28}
MATRIX_SIZE = {"cuda": 8192, "cpu": 1536}


@dataclass(frozen=True)
class Ceilings:
    """What a device reaches at best: bytes per second of a large copy (read + written), operations of a product."""

    copy_bytes_per_s: float
    product_operations_per_s: float


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
        return max(self.bytes / ceilings.copy_bytes_per_s, self.operations / ceilings.product_operations_per_s)


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
                "bandwidth_limit_ms": ceilings and 1000 * cost.bytes / ceilings.copy_bytes_per_s,
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
            "limit_ms": limits and 1000 * limits.get(phase, 0.0), "cold": cold,
        })  # fmt: skip
    return found


def print_roofline(ceilings: Ceilings | None, passes: list[dict], phases: list[dict]) -> None:
    """The ceilings where they are known, and the two tables."""
    if ceilings:
        print(f"measured ceilings: copy {ceilings.copy_bytes_per_s / 1e9:.0f} GB/s (read + written), "
              f"product {ceilings.product_operations_per_s / 1e12:.2f} Top/s\n")  # fmt: skip
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

"""Part *shapes*: which engines the papers' shapes get, what their passes cost, and what a graph costs to have."""

import time
from collections.abc import Callable, Iterator
from functools import partial

import numpy as np
import torch
from torch.profiler import DeviceType, ProfilerActivity, profile
from torch.utils._python_dispatch import TorchDispatchMode

from benchmarks.gpu.measuring import loaded_pair
from benchmarks.gpu.report import Report, Step
from benchmarks.roofline import median_s
from decoding.costs.measuring import binary_tree
from decoding.engines.base import Visibility
from decoding.engines.kv_cache import KVCache
from decoding.experiments.command import print_table
from decoding.models.pair import Model, Pair, tree_forward

ENGINES = ("transformers", "packed", "cuda_graph")
QUERIES, ROWS = (1, 8, 16, 64, 96, 128), (200, 1000)
FEW_QUERIES, FEW_ROWS = (1, 16), (40,)
GRAPHS = (2, 4, 24, 32, 48)  # tokens of the passes whose graphs are weighed
CALLS_PER_ISSUE = 20
# A captured pass is slow where it takes more than this of the lean one, or where the host is longer than the device.
CAPTURED_SHARE = 0.7


def steps(report: Report) -> Iterator[Step]:
    """The steps of this part; the pair is loaded once for all."""
    with loaded_pair(report) as pair:
        for role, model in (("target", pair.target), ("draft", pair.draft)):
            yield f"passes of the {role}", partial(passes, model=model, role=role)
        yield "kernels", partial(kernels, pair=pair)
        yield "graphs", partial(graphs, pair=pair)


def passes(report: Report, model: Model, role: str) -> None:
    """Milliseconds of a pass by engine, tokens and rows, until its logits are there."""
    found = []
    for rows in ROWS if report.cuda else FEW_ROWS:
        for queries in QUERIES if report.cuda else FEW_QUERIES:
            times = {name: 1000 * median_s(_pass(model.with_engine(name), queries, rows), model.device)
                     for name in ENGINES}  # fmt: skip
            found.append({"rows": rows, "queries": queries, **times})
            if report.budget.spent():
                break
    report.figures[f"passes of the {role}"] = found
    table = [(each["rows"], each["queries"], *(f"{each[name]:.3f}" for name in ENGINES)) for each in found]
    print_table(("rows", "queries", *(f"{name} ms" for name in ENGINES)), table)
    one, many = found[0], max(found, key=lambda each: (each["rows"] == found[0]["rows"], each["queries"]))
    kind = "slow" if report.cuda and one["cuda_graph"] > CAPTURED_SHARE * one["packed"] else "works"
    of_one = ", ".join(f"{name} {one[name]:.2f} ms" for name in reversed(ENGINES))
    report.judge(
        kind, f"a token of the {role}: {of_one}; {many['queries']} tokens: cuda_graph {many['cuda_graph']:.2f} ms"
    )


def kernels(report: Report, pair: Pair) -> None:
    """Operations that PyTorch dispatches in a pass, kernels that the device runs, and how long the host is busy."""
    found = []
    for role, model in (("target", pair.target), ("draft", pair.draft)):
        for name in ENGINES:
            one_pass = _pass(model.with_engine(name), 1, FEW_ROWS[0])
            for _ in range(3):
                one_pass()
            with torch.inference_mode(), _Operations() as operations:
                one_pass()
            found.append({
                "model": role, "engine": name, "operations": operations.count,
                "kernels": _kernels(one_pass, model.device) if report.cuda else None,
                "issue_ms": 1000 * _issue_s(one_pass, model.device),
                "ms": 1000 * median_s(one_pass, model.device),
            })  # fmt: skip
    report.figures["kernels"] = found
    print_table(("model", "engine", "operations", "kernels", "host busy ms", "ms"),
                [(r["model"], r["engine"], r["operations"], r["kernels"] or "-", f"{r['issue_ms']:.3f}",
                  f"{r['ms']:.3f}") for r in found])  # fmt: skip
    for r in found:
        if r["engine"] == "cuda_graph":
            report.judge("slow" if report.cuda and r["issue_ms"] > 0.5 * r["ms"] else "works",
                         f"captured pass of the {r['model']}: {r['kernels'] or 'unknown'} kernels, {r['operations']} "
                         f"operations of the host, busy {r['issue_ms']:.2f} of {r['ms']:.2f} ms")  # fmt: skip


def graphs(report: Report, pair: Pair) -> None:
    """What a graph takes: seconds to capture, memory to keep."""
    model = pair.target.with_engine("cuda_graph")
    counted, sizes = model.engine.graphs, GRAPHS if report.cuda else GRAPHS[:1]
    # One cache for all sizes, and all of them warmed up first: what is new between the readings is graphs alone.
    cache = model.engine.new_cache(FEW_ROWS[0] + max(GRAPHS) + 64)
    all_passes = [_pass(model, queries, FEW_ROWS[0], cache) for queries in sizes]
    for one_pass in all_passes:
        one_pass()
    before, used = counted.captured, _used_bytes(report.device)
    seconds = []
    for one_pass in all_passes:
        captured, begun = counted.captured, time.perf_counter()
        one_pass()
        if counted.captured > captured:
            seconds.append(time.perf_counter() - begun)
    made = counted.captured - before
    figures = {"captured": made, "capture_s": max(seconds, default=None), "failure": counted.failure}
    if made:
        figures["bytes_each"] = (_used_bytes(report.device) - used) / made
    report.figures["graphs"] = figures
    print(figures)
    if counted.failure:
        report.wrong(f"a graph could not be captured: {counted.failure}")
    elif report.cuda and made:
        report.works(f"a graph of the target takes {max(seconds):.3f} s to capture and "
                     f"{figures['bytes_each'] / 1e6:.1f} MB to keep ({counted.captured} captured so far)")  # fmt: skip
    elif report.cuda:
        report.wrong("no graph was captured")


def _pass(model: Model, queries: int, rows: int, cache: KVCache | None = None) -> Callable[[], torch.Tensor]:
    """A pass over a binary tree of some tokens after some rows, the same each time.

    A long chain would be taken for a prompt, which no graph is made of.
    """
    if cache is None:
        cache = model.engine.new_cache(rows + queries + 64)
    cache.rollback(0)
    ids, among, depths = np.arange(rows + queries) * 37 % model.info.vocab_size, *binary_tree(queries)
    with torch.inference_mode():
        tree_forward(model, cache, ids[:rows], np.arange(rows), Visibility.causal(0, rows), keep=1)

    @torch.inference_mode()
    def one_pass() -> torch.Tensor:
        cache.rollback(rows)
        return tree_forward(model, cache, ids[rows:], rows + depths, Visibility(rows, among))

    return one_pass


class _Operations(TorchDispatchMode):
    """Counts what PyTorch dispatches."""

    def __init__(self):
        super().__init__()
        self.count = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.count += 1
        return func(*args, **(kwargs or {}))


def _kernels(one_pass: Callable, device: torch.device) -> int | None:
    """Kernels and copies that the device runs in a pass; None where the profiler sees none."""
    with profile(activities=[ProfilerActivity.CUDA]) as seen:
        one_pass()
        torch.cuda.synchronize(device)
    return sum(event.device_type == DeviceType.CUDA for event in seen.events()) or None


def _issue_s(one_pass: Callable, device: torch.device) -> float:
    """Seconds that the host needs to hand a pass to the device, without waiting for it."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    begun = time.perf_counter()
    for _ in range(CALLS_PER_ISSUE):
        one_pass()
    issued = time.perf_counter() - begun
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return issued / CALLS_PER_ISSUE


def _used_bytes(device: torch.device) -> int:
    """Bytes of the device that are in use, without what is only kept at hand."""
    if device.type != "cuda":
        return 0
    torch.cuda.synchronize(device)
    torch._C._cuda_clearCublasWorkspaces()
    torch.cuda.empty_cache()
    free, total = torch.cuda.mem_get_info(device)
    return total - free

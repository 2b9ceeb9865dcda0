"""Part *ceilings*: what the device reaches at best, what launching and waiting cost, how near our passes come."""

from collections.abc import Iterator
from dataclasses import replace
from functools import partial

import torch

from benchmarks.gpu.measuring import BANDWIDTH_GOAL, STEPS, loaded_pair
from benchmarks.gpu.report import Report, Step
from benchmarks.roofline import Ceilings, measure_ceilings, median_s, pass_rows, phase_rows, print_roofline
from decoding.compare.contestants import parse_contestant
from decoding.experiments.command import encoded_prompts
from decoding.models.pair import Pair

ENGINES = ("transformers", "packed", "cuda_graph")
# Phases of an iteration that only wait for one another: together they are slow above this share of it.
OVERHEAD_GOAL = 0.15
TOKENS, FEW_TOKENS = 96, 12
BEAMS = {"beam of 64": "eagle2:node_budget=63,beam_width=8,max_depth=6"}


def steps(report: Report) -> Iterator[Step]:
    """The steps of this part; the pair is loaded once for all."""
    yield "launches", launches
    with loaded_pair(report) as pair:
        measured: list[Ceilings] = []
        yield "ceilings", partial(ceilings_of, pair=pair, measured=measured)
        known = measured[0] if measured else None
        yield "passes", partial(passes, pair=pair, ceilings=known)
        yield "phases", partial(phases, pair=pair, ceilings=known)


def launches(report: Report) -> None:
    """A kernel by itself, many in a graph, and many one by one: what nothing that runs on the device can undercut."""
    static = torch.zeros(1024, device=report.device)

    def many() -> None:
        for _ in range(100):
            static.add_(1)

    found = {"one_us": 1e6 * median_s(lambda: static.add_(1), report.device),
             "hundred_us": 1e6 * median_s(many, report.device)}  # fmt: skip
    if report.cuda:
        many()
        torch.cuda.synchronize(report.device)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            many()
        found["hundred_in_a_graph_us"] = 1e6 * median_s(graph.replay, report.device)
    report.figures["launches"] = found
    in_a_graph = f", in a graph {found['hundred_in_a_graph_us']:.0f} us" if report.cuda else ""
    report.works(f"a kernel and its wait {found['one_us']:.0f} us, a hundred {found['hundred_us']:.0f} us{in_a_graph}")


def ceilings_of(report: Report, pair: Pair, measured: list[Ceilings]) -> None:
    """Bandwidth of a copy and rate of a product, put into `measured`; without them the others tell milliseconds."""
    found = measure_ceilings(pair.target.device, pair.target.dtype)
    measured.append(found)
    report.figures["ceilings"] = found.__dict__
    report.works(f"a copy moves {found.copy_bytes_per_s / 1e9:.0f} GB/s (read + written), a product of "
                 f"{pair.target.info.dtype} {found.product_operations_per_s / 1e12:.2f} Top/s")  # fmt: skip


def passes(report: Report, pair: Pair, ceilings: Ceilings | None) -> None:
    """Bytes and operations of passes against the ceilings, engine by engine."""
    found = [row for engine in ENGINES for row in pass_rows(pair.with_engine(engine), ceilings)]
    report.figures["passes"] = found
    print_roofline(ceilings, found, [])
    for role in ("target", "draft"):
        own = [row for row in found if row["model"] == role and row["engine"] == "cuda_graph"]
        one, many = own[0], own[-1]
        if not ceilings:
            report.slow(f"captured {role}: a token in {one['ms']:.2f} ms, {many['queries']} tokens in {many['ms']:.2f} "
                        "ms, against limits that are not known")  # fmt: skip
            continue
        kind = "slow" if report.cuda and role == "target" and one["share_of_limit"] < BANDWIDTH_GOAL else "works"
        report.judge(kind, f"captured {role}: a token at {one['share_of_limit']:.0%} of the limit "
                     f"({one['ms']:.2f} ms), {many['queries']} tokens at {many['share_of_limit']:.0%} "
                     f"({many['ms']:.2f} ms)")  # fmt: skip


def phases(report: Report, pair: Pair, ceilings: Ceilings | None) -> None:
    """Where the time of an iteration goes, method by method."""
    ((_, prompt),) = encoded_prompts(pair, report.args.prompts, 1)
    tokens = TOKENS if report.cuda else FEW_TOKENS
    named = {"autoregressive": "autoregressive", **STEPS, **BEAMS}
    found: list[dict] = []
    for name, text in named.items():
        if report.budget.spent():
            report.slow(f"phases of {name}: no time was left")
            continue
        method = replace(parse_contestant(text).method.with_settings(verifier="greedy"), label=name)
        mine = phase_rows(pair, method, prompt, tokens, ceilings)
        found += mine
        rest = sum(row["share"] for row in mine if row["phase"] not in ("draft", "verify"))
        total = sum(row["ms"] for row in mine)
        report.judge("slow" if rest > OVERHEAD_GOAL else "works",
                     f"{name}: {total:.2f} ms an iteration, {rest:.0%} neither drafting nor verifying")  # fmt: skip
        if cold := mine[0]["cold"]:
            report.slow(f"{name} was measured while graphs were made ({cold} passes)")
        report.figures["phases"] = found
    print_roofline(ceilings, [], found)

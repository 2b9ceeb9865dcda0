"""When speculation stops paying: measured passes over 1 to 64 sequences, and the best chain and tree of every batch.

    python -m benchmarks.batch [--widen 4] [--save]

Passes are measured (`decoding.costs.batches`); acceptance is that of greedy runs of a wide tree over sample prompts;
speed-ups are modelled from both. At a batch of one, where methods really run, what the model says of their trees stands
beside what was measured, methods in turn over the same prompts. Acceptance and speeds are of the texts that
`--counted` names.
"""

import time
from collections.abc import Iterator
from dataclasses import replace
from statistics import median

import torch

from benchmarks.methods import part_of
from benchmarks.roofline import measure_ceilings, median_s
from decoding.analysis.batch import Choice, Rates, iterations_speedup, run_acceptance, speed_by_batch
from decoding.analysis.bottom_line import paired
from decoding.analysis.model_shape import read_shape
from decoding.analysis.roofline import Accelerator, Efficiency, Setup, pass_time, roofline_costs
from decoding.analysis.when_it_pays import measured_answer
from decoding.common.cost_model import CostModel
from decoding.common.errors import run_main
from decoding.compare.comparison import compare
from decoding.compare.contestants import parse_contestant
from decoding.costs.batches import BATCHES, measure_batches
from decoding.costs.measuring import cost_model
from decoding.engines.batch import BatchMask
from decoding.engines.packed import linear
from decoding.experiments.command import (
    add_counting_argument,
    arguments,
    encoded_prompts,
    pair_from,
    parse_amounts,
    print_table,
    save_figures,
)
from decoding.models.pair import Model, Pair
from decoding.models.presets import add_pair_arguments
from decoding.sampling.sampling import Sampling
from decoding.session.session import DecodeSession, Limits, unrecorded
from decoding.trace.metrics import COUNTINGS, Counting
from decoding.trace.records import RunTrace

WIDE = "fixed_tree:max_depth=6,branching=4,prune_probability=0"  # a tree that leaves nothing out
CLOSE = 0.2
METHODS = (
    "autoregressive",
    "linear:length=1",
    "linear:length=3",
    "fixed_tree:max_depth=3,branching=2",
    "hardware_aware",
)


def main() -> int:
    parser = arguments(__doc__.splitlines()[0])
    add_pair_arguments(parser)
    add_counting_argument(parser, "whole")
    args = parse_amounts(parser, count=(8, 2, "prompts"), max_new_tokens=(64, 24, "per prompt"))
    started, pair = time.perf_counter(), pair_from(args)
    prompts = encoded_prompts(pair, args.prompts, args.count)
    acceptance = run_acceptance(*decoded(pair, WIDE, prompts, args.max_new_tokens, args.counted))
    alone = cost_model(pair, unrecorded)
    costs = measure_batches(
        pair, alone, BATCHES[:4] if args.quick else BATCHES, report=lambda batch: print(f"batch {batch}")
    )
    found = measured_answer(costs, acceptance)
    points = [row.point for row in found.rows]
    modelled = roofline_here(pair, costs)
    passes, gains = modelled_passes(costs, modelled), modelled_gains(costs, modelled, acceptance)
    checked = modelled_and_measured(pair, prompts, args.max_new_tokens, costs[1], args.counted)
    print_surface("target, ms by verified tokens of each text", costs, "target")
    print_surface("draft, ms by width of a level of each text", costs, "draft")
    rates = f"by depth {percent(acceptance.by_depth)}; by rank {percent(acceptance.by_rank)}"
    print(f"\nacceptance, {COUNTINGS[args.counted]}, {rates}\n")
    print_table(
        ("batch", "plain tok/s", "best chain", "K", "best tree", "nodes", "depth"),
        [
            (p.batch, f"{p.plain:.0f}", f"{p.chain.speedup:.2f}x", p.chain.shape.nodes, *tree_cells(p.tree))
            for p in points
        ],
    )
    print(f"\n{found.sentence}")
    print(f"\nroofline of this machine beside measured passes: {within(passes)}")
    sizes = sorted({each["size"] for each in passes})
    cells = {(each["batch"], each["size"]): f"{each['error']:+.0%}" for each in passes}
    print_table(("batch", *map(str, sizes)), [(b, *(cells.get((b, size), "-") for size in sizes)) for b in costs])
    print(f"\nspeed-up by the roofline beside that by measured passes: {within(gains)}")
    print_table(
        ("batch", "best", "measured passes", "roofline", "off by"),
        [
            (g["batch"], g["kind"], f"{g['measured']:.2f}x", f"{g['modelled']:.2f}x", f"{g['error']:+.0%}")
            for g in gains
        ],
    )
    print("\nbatch of one, modelled beside measured")
    print_table(
        ("method", "modelled", "measured", "off by"),
        [(c["method"], f"{c['modelled']:.2f}x", f"{c['measured']:.2f}x", f"{c['error']:+.0%}") for c in checked],
    )
    figures = {
        "pair": pair.info.name, "took_s": time.perf_counter() - started, "counted": args.counted,
        "checked": checked, "passes": passes, "gains": gains, "sentence": found.sentence,
        "acceptance": {"by_depth": acceptance.by_depth, "by_rank": acceptance.by_rank},
        "costs": [each.as_json() for each in costs.values()],
        "points": [
            {"batch": p.batch, "plain_tokens_per_s": p.plain, "chain": written(p.chain), "tree": written(p.tree)}
            for p in points
        ],
    }  # fmt: skip
    save_figures(args, "batch", figures, pair.target.device, part_of(pair), by_processor=True)
    return 0


def within(rows: list[dict]) -> str:
    """How many rows are close, and how far off they are, in words."""
    errors = [abs(each["error"]) for each in rows]
    close = sum(error <= CLOSE for error in errors)
    return f"{close} of {len(errors)} within {CLOSE:.0%}, median {median(errors):.0%}, largest {max(errors):.0%} off"


def decoded(
    pair: Pair, contestant: str, prompts: list[tuple[str, list[int]]], tokens: int, counting: Counting
) -> Iterator[RunTrace]:
    """Greedy runs of a method, recorded in full, with the iterations that count."""
    for _, ids in prompts:
        session = DecodeSession(pair, parse_contestant(contestant).method, ids, limits=Limits(tokens))
        list(session)
        run = session.trace()
        yield replace(run, iterations=tuple(i for i in run.iterations if counting == "whole" or not i.in_loop))


def modelled_and_measured(
    pair: Pair, prompts: list[tuple[str, list[int]]], tokens: int, costs: CostModel, counting: Counting
) -> list[dict]:
    """Speed-up over plain decoding of each method, by the model of its own trees and as measured."""
    contestants = [parse_contestant(text) for text in METHODS]
    comparison = compare(pair, contestants, prompts, tokens, 2, 1, Sampling())
    speeds = [
        {
            (each.prompt, each.repeat): found.decode_throughput
            for each in comparison.of(index)
            if (found := each.counted(counting)) and found.decode_throughput
        }
        for index in range(len(METHODS))
    ]
    found = []
    for index, contestant in list(enumerate(contestants))[1:]:
        runs = decoded(pair, METHODS[index], prompts, tokens, counting)
        ratios = [ratio for run in runs if (ratio := iterations_speedup(run.iterations, costs)) is not None]
        modelled, measured = sum(ratios) / len(ratios), paired(speeds[index], speeds[0]).value
        found.append(
            {"method": contestant.label, "modelled": modelled, "measured": measured, "error": modelled / measured - 1}
        )
    return found


def roofline_here(pair: Pair, costs: dict[int, CostModel]) -> dict[int, CostModel]:
    """The roofline of this machine by batch size, its ceilings measured.

    What a layer and a pass cost beside bytes and operations is what both models' passes over one token leave over.
    """
    target, prefix = pair.target, costs[1].prefix_length
    found = measure_ceilings(target.device, target.dtype)
    copied = found.copy_bytes_per_s
    # A GPU has no packed weights, and a product that a CPU takes milliseconds for is mostly launches there.
    rate = product_rate(target) if target.device.type == "cpu" else found.product_operations_per_s
    read, attended = attention_rates(target, max(costs), prefix)
    number = {torch.float32: "fp32", torch.bfloat16: "bf16", torch.float16: "fp16"}[target.dtype]
    shapes = [read_shape(model.network.config.get_text_config().to_json_string().encode(), model.info.name)
              for model in (target, pair.draft)]  # fmt: skip
    ceilings = Efficiency(
        1.0, 1.0, 0.0, 0.0, 0.0, 0.0, 0.0,
        attention_bandwidth=min(read / copied, 1.0), attention_operations=min(attended / rate, 1.0),
    )  # fmt: skip
    chip = Accelerator("this machine", copied, rate, None, 1e12, "measured here")
    setup = Setup(chip, 1, number, number, prefix, ceilings)
    over = [max(float(curve.seconds(1)) - pass_time(shape, setup, 1, 1).seconds, 0.0)
            for curve, shape in zip((costs[1].target, costs[1].draft), shapes, strict=True)]  # fmt: skip
    layer_s = max(over[0] - over[1], 0.0) / max(shapes[0].layers - shapes[1].layers, 1)
    fixed = replace(ceilings, layer_s=layer_s, pass_s=max(over[1] - shapes[1].layers * layer_s, 0.0))
    return {batch: roofline_costs(*shapes, replace(setup, efficiency=fixed), batch) for batch in costs}


def modelled_passes(costs: dict[int, CostModel], modelled: dict[int, CostModel]) -> list[dict]:
    """The target's measured passes beside modelled ones; the pass that fixed costs were read off is no row."""
    found = []
    for batch, model in costs.items():
        for point in model.target.points:
            seconds = float(modelled[batch].target.seconds(point.size))
            if (batch, point.size) != (1, 1):
                found.append({"batch": batch, "size": point.size, "measured_ms": 1000 * point.seconds,
                              "modelled_ms": 1000 * seconds, "error": seconds / point.seconds - 1})  # fmt: skip
    return found


def modelled_gains(costs: dict[int, CostModel], modelled: dict[int, CostModel], acceptance: Rates) -> list[dict]:
    """Speed-up of the best chain and tree, passes alone, from measured passes and from modelled ones."""
    passes = {batch: replace(each, iteration_s=0.0, level_s=0.0, plain_s=0.0) for batch, each in costs.items()}
    found = []
    for mine, theirs in zip(speed_by_batch(passes, acceptance), speed_by_batch(modelled, acceptance), strict=True):
        for kind in ("chain", "tree"):
            one, other = getattr(mine, kind), getattr(theirs, kind)
            if one is not None and other is not None:
                found.append({"batch": mine.batch, "kind": kind, "measured": one.speedup, "modelled": other.speedup,
                              "error": other.speedup / one.speedup - 1})  # fmt: skip
    return found


@torch.inference_mode()
def product_rate(model: Model) -> float:
    """Operations per second of a product as the model's forward makes it, with packed weights where it packs them."""
    size, rows, maker = 1024, 512, torch.Generator(model.device).manual_seed(0)
    module = torch.nn.Linear(size, 4 * size, bias=False, device=model.device, dtype=model.dtype)
    x, product = torch.randn(rows, size, generator=maker, device=model.device).to(model.dtype), linear(module)
    return 8 * rows * size**2 / median_s(lambda: product(x), model.device)


@torch.inference_mode()
def attention_rates(model: Model, batch: int, rows: int) -> tuple[float, float]:
    """Bytes per second of attention over cached rows of `batch` sequences with one query each, operations with 64."""
    config = model.network.config.get_text_config()
    heads, kv_heads = config.num_attention_heads, getattr(config, "num_key_value_heads", config.num_attention_heads)
    size = getattr(config, "head_dim", None) or config.hidden_size // heads
    like = {"device": model.device, "dtype": model.dtype}
    keys, values = torch.randn(2, batch, kv_heads, rows, size, **like)

    def seconds(queries: int) -> float:
        mask = None if queries == 1 else torch.ones(1, 1, queries, rows, dtype=torch.bool, device=model.device)
        seen, asked = BatchMask(batch, mask), torch.randn(batch * queries, heads, size, **like)
        return median_s(lambda: seen.attend(asked, keys, values, size**-0.5), model.device)

    return 2 * keys.nbytes / seconds(1), 4 * batch * heads * 64 * rows * size / seconds(64)


def print_surface(title: str, costs: dict[int, CostModel], which: str) -> None:
    """Milliseconds by batch and size."""
    curves = {batch: {p.size: p.seconds for p in getattr(model, which).points} for batch, model in costs.items()}
    sizes = sorted({size for curve in curves.values() for size in curve})
    print(f"\n{title}")
    rows = [
        (batch, *(f"{1000 * curve[s]:.2f}" if s in curve else "-" for s in sizes)) for batch, curve in curves.items()
    ]
    print_table(("batch", *map(str, sizes)), rows)


def tree_cells(tree: Choice | None) -> tuple:
    return ("-", "-", "-") if tree is None else (f"{tree.speedup:.2f}x", tree.shape.nodes, tree.shape.depth)


def written(choice: Choice | None) -> dict | None:
    """A choice as JSON holds it."""
    return choice and {"speedup": choice.speedup, "nodes": choice.shape.nodes, "widths": choice.shape.widths}


def percent(rates: tuple[float, ...]) -> str:
    return ", ".join(f"{rate:.0%}" for rate in rates)


if __name__ == "__main__":
    run_main(main)

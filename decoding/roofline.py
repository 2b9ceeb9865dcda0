"""`python -m decoding.roofline --target MODEL --accelerator NAME`: at which batch sizes speculation pays. Torch-free.

Everything it writes is modelled.

Exit code 0: the table was written; 2: a file cannot be read, or a setting is out of its range.
"""

import argparse
import json
import sys
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from textwrap import fill

from decoding.analysis import model_shape
from decoding.analysis.batch import Rates, best_choice, engine_acceptance, run_acceptance, typed_acceptance
from decoding.analysis.known_models import KNOWN_MODELS, known_shape
from decoding.analysis.roofline import ACCELERATORS, CACHES, WEIGHTS, Accelerator, Efficiency, Setup, caution
from decoding.analysis.when_it_pays import Answer, BatchRow, answer
from decoding.common.errors import PairError, SettingsError, command
from decoding.trace.engine_metrics import load_metrics
from decoding.trace.run_file import load_run

WIDTH = 100
HEADS = {"eagle": None, "eagle3": model_shape.EAGLE3_VOCABULARY}
DEFAULTS = Efficiency()


def model_text(name: str) -> tuple[bytes, str]:
    """The config.json that a name stands for, of a known model or a file, and what the model is called."""
    if name in KNOWN_MODELS:
        return KNOWN_MODELS[name].text.encode(), name
    file = Path(name)
    try:
        with file.open("rb") as stream:
            return stream.read(
                model_shape.MOST_CONFIG_BYTES + 1
            ), file.resolve().parent.name if file.stem == "config" else file.stem
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or "this is no path"
        raise PairError(
            f"{name} cannot be read ({why}): give a config.json, or one of {', '.join(KNOWN_MODELS)}."
        ) from None


def draft_shape(name: str, target: model_shape.ModelShape) -> model_shape.ModelShape | None:
    """The draft that a name stands for: `none`, a head of the target, a known model, or a file."""
    if name == "none":
        return None
    if name in HEADS:
        return model_shape.eagle_head(target, HEADS[name])
    return known_shape(name) if name in KNOWN_MODELS else model_shape.read_draft(*model_text(name), target)


def accelerator(text: str) -> Accelerator:
    """One by its name, or three numbers: GB/s, TFLOP/s in 16 bits, GB."""
    if text in ACCELERATORS:
        return ACCELERATORS[text]
    try:
        bandwidth, operations, memory = (float(each) for each in text.split(","))
    except ValueError:
        raise SettingsError(
            f"The accelerator is {text!r}; choose one of {', '.join(ACCELERATORS)}, or give GB/s,TFLOP/s,GB such as "
            "800,27,192."
        ) from None
    return Accelerator("your own", 1e9 * bandwidth, 1e12 * operations, None, 1e9 * memory, f"{text}: typed")


def table_lines(found: Answer) -> Iterator[str]:
    """A line per batch size, each of which says that it is modelled."""
    heads = f"{'chain':>6} {'round':>9} {'gain':>7} {'tree':>9} {'gain':>7}"
    yield f"{'batch':>14}   {'tokens/s':>10} {'step':>9} {heads}  verification limited by"
    yield from map(_line, found.rows)


def _line(row: BatchRow) -> str:
    chain, tree = row.point.chain, row.point.tree
    branching = (f"{tree.shape.nodes}/{tree.shape.depth}", f"{tree.speedup:.2f}x") if tree else ("-", "-")
    return (
        f"modelled, {row.point.batch:>4}:  {row.point.plain:>10,.0f} {1000 * row.plain_s:>6.2f} ms "
        f"{f'K={chain.shape.depth}':>6} {1000 * row.round_s:>6.2f} ms {f'{chain.speedup:.2f}x':>7} "
        f"{branching[0]:>9} {branching[1]:>7}  {row.limit}"
    )


@command
def main(arguments: list[str] | None = None) -> int:
    """Print the table and the sentence; the code is 0 or 2 as the module says."""
    args = _parser().parse_args(arguments)
    target = model_shape.read_shape(*model_text(args.target))
    draft = draft_shape(args.draft, target)
    setup = Setup(
        accelerator(args.accelerator), 1 if args.devices is None else args.devices,
        args.weights, args.cache, args.context,
        Efficiency(
            args.bandwidth_share, args.operations_share, args.layer_us / 1e6, args.pass_us / 1e6,
            args.all_reduce_us / 1e6, args.engine_ms / 1e3, args.sequence_ms / 1e3,
        ),
    )  # fmt: skip
    acceptance = _acceptance(args)
    found = answer(target, draft, setup, acceptance)
    if args.json:
        shapes = {"target": asdict(target), "draft": draft and asdict(draft)}
        print(
            json.dumps({**shapes, "setup": asdict(setup), "acceptance": asdict(acceptance), **asdict(found)}, indent=2)
        )
        return 0
    drafting = draft.name if draft else "lookup in the text"
    assumed = " Tensor parallel is assumed to be 1: --devices sets it." if args.devices is None else ""
    print(fill(f"{setup.line[0].upper()}{setup.line[1:]}.{assumed}", WIDTH))
    print(f"modelled: {target.name} ({target.parameters / 1e9:.3g}B), drafted by {drafting}.\n")
    print(*table_lines(found), "", sep="\n")
    ends = {"chain": found.chain_ends} | ({"tree": found.tree_ends} if found.has_trees else {})
    for kind, at in ends.items():
        if at:
            said = f"breaks even at a batch of about {' and '.join(f'{each:.0f}' for each in at)}"
        else:
            pays = next(point.speedup > 1 for row in found.rows if (point := getattr(row.point, kind)) is not None)
            said = f"{'pays' if pays else 'does not pay'} at any batch up to {found.rows[-1].point.batch}"
        print(f"modelled: the best {kind} {said}.")
    known = len(acceptance.by_depth)
    if not args.metrics and max(best_choice(row.point).shape.depth for row in found.rows) > known:
        more = "" if args.run else ": --acceptance takes more of them"
        print(f"Beyond depth {known} the last of the rates given is taken to go on{more}.")
    print(fill(f"{found.sentence} {caution()}", WIDTH))
    return 0


def _acceptance(args: argparse.Namespace) -> Rates:
    if args.metrics:
        return engine_acceptance(load_metrics(args.metrics))
    if args.run:
        return run_acceptance(load_run(args.run))
    return typed_acceptance(args.acceptance, args.ranks)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m decoding.roofline",
        description="Model at which batch size speculation stops paying, from config.json files and a data sheet.",
        epilog=f"Known by name: {', '.join(KNOWN_MODELS)}.",
    )
    models = "a config.json, or a model that is known by name"
    parser.add_argument("--target", required=True, metavar="MODEL", help=models)
    parser.add_argument(
        "--draft", default="eagle", metavar="MODEL",
        help=f"{models}; eagle or eagle3: a head of one layer on the target; none: lookup, which costs nothing",
    )  # fmt: skip
    parser.add_argument(
        "--accelerator", required=True, metavar="NAME", help=f"{', '.join(ACCELERATORS)}; or GB/s,TFLOP/s,GB"
    )
    parser.add_argument("--devices", "--tensor-parallel", type=int, metavar="N", help="default: 1")
    parser.add_argument("--weights", default="bf16", choices=WEIGHTS)
    parser.add_argument("--cache", default="bf16", choices=CACHES, help="format of keys and values")
    parser.add_argument("--context", type=int, default=1024, metavar="N", help="cached tokens of each sequence")
    source = parser.add_mutually_exclusive_group()
    conditional = "by depth, of drafted tokens whose predecessors were accepted; the last one goes on"
    source.add_argument("--acceptance", default="0.7,0.6", metavar="RATES", help=conditional)
    source.add_argument("--metrics", type=Path, metavar="FILE", help="what an engine says of its speculation")
    source.add_argument("--run", type=Path, metavar="RUN", help="a run saved with Draftscope; has rates by rank")
    parser.add_argument("--ranks", default="", metavar="RATES", help="with --acceptance: by rank, which trees need")
    parser.add_argument("--bandwidth-share", type=float, default=DEFAULTS.bandwidth, help="of the data sheet's")
    parser.add_argument("--operations-share", type=float, default=DEFAULTS.operations, help="MFU: of its FLOPs")
    for name, seconds, unit in (
        ("layer-us", DEFAULTS.layer_s, 1e6), ("pass-us", DEFAULTS.pass_s, 1e6),
        ("all-reduce-us", DEFAULTS.all_reduce_s, 1e6), ("engine-ms", DEFAULTS.draft_s, 1e3),
        ("sequence-ms", DEFAULTS.sequence_s, 1e3),
    ):  # fmt: skip
        parser.add_argument(f"--{name}", type=float, default=round(seconds * unit, 6), help="fixed cost")
    parser.add_argument("--json", action="store_true", help="write everything as one JSON object")
    return parser


if __name__ == "__main__":
    sys.exit(main())

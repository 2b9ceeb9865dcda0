"""All heads of one target, trained to be compared: `python -m decoding.training.head_suite --corpus DIR`.

One head is trained with EAGLE's loss; EAGLE, HASS and TALF (top-1, top-2 and top-4) go on from it for equal numbers of
steps on the same batches, three for every ten of the first training as in the paper, and with `--minutes` for equal
times as well (`NAME-time`). A table compares them. Called again it goes on where it was. `--ship` copies the heads of
equal steps to those that come with the program, `decoding/heads/trained/NAME`, which the grids of SALF & TALF decode
with and `python -m benchmarks.talf` measures, and with them the figures of those of equal time. The learning rates suit
heads of about a million weights, which train faster than those of the paper (3e-4).

`--evaluate` trains nothing: it compares the heads that are there, those of `--out` or else those that come with the
program, on the same held-out windows of `--corpus`, with the difference of each to the one of EAGLE's loss. `--ship`
stores that beside the heads of the program.
"""

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from pathlib import Path

import torch

from decoding.common.errors import TrainingError, command
from decoding.common.files import training_home, write_whole
from decoding.common.settings import from_arguments
from decoding.engines.clock import describe_hardware
from decoding.heads.store import EQUAL_TIME, HEADS, SAME_WINDOWS, SHIPPED, load_network, read_card, require_fit
from decoding.jobs.process import FINISHED
from decoding.models.pair import pair_identity
from decoding.training import head
from decoding.training.command import pair_of
from decoding.training.folder import SETTINGS
from decoding.training.head_comparison import compared, tokens_by_window
from decoding.training.text import WindowPlan, read_corpus, windows_of

BASE, BY_TIME = "base", "-time"
EVALUATED = 512  # windows: enough for errors of the differences that are smaller than most differences
STEPS_PER_BASE = 0.3  # SALF & TALF: ten epochs with EAGLE's loss, three with HASS's or TALF's
COMPARED = {
    "steps": "steps",
    "seconds": "trained_s",
    "loss": "held_out_loss",
    "accepted, depth 3": "held_out_overlap_3",
    "tokens at 16 nodes": "held_out_tokens_at_16_nodes",
    "its error": "held_out_tokens_at_16_nodes_error",
}  # by heading
# Arguments of `decoding.training.head` by the name of each head, which its folder below that of the suite bears too.
MEMBERS = {
    "eagle": ("--loss", "eagle"),
    "hass": ("--loss", "hass"),
    "talf": ("--loss", "talf", "--top-k", "4"),
    "talf_top2": ("--loss", "talf", "--top-k", "2"),
    "talf_top1": ("--loss", "talf", "--top-k", "1"),
}


def parser() -> argparse.ArgumentParser:
    """The arguments of the command; what it does not know goes on to `decoding.training.head`."""
    made = argparse.ArgumentParser(
        prog="python -m decoding.training.head_suite",
        allow_abbrev=False,
        description="Train EAGLE, HASS and TALF heads of one target. Further arguments go to decoding.training.head.",
    )
    made.add_argument("--out", type=Path, metavar="DIR", help="folder of the suite (default: below the user's cache)")
    made.add_argument("--base-steps", type=int, default=6000, metavar="N", help="steps with EAGLE's loss first")
    made.add_argument("--base-windows", type=int, default=1024, metavar="N", help="windows for these steps")
    made.add_argument("--base-learning-rate", type=float, default=2e-3, metavar="RATE")
    made.add_argument(
        "--steps", type=int, metavar="N", help="steps with every loss after that (3 for every 10 of base; 0: none)"
    )
    made.add_argument("--minutes", type=float, metavar="N", help="train every loss for so long as well")
    made.add_argument("--windows", type=int, default=512, metavar="N", help="windows for these steps, with trees")
    made.add_argument("--learning-rate", type=float, default=1e-3, metavar="RATE")
    made.add_argument(
        "--evaluate", type=int, nargs="?", const=EVALUATED, metavar="WINDOWS",
        help=f"train nothing, compare the heads that are there on so many held-out windows ({EVALUATED})",
    )  # fmt: skip
    made.add_argument("--ship", action="store_true", help="copy the heads to those included with Draftscope")
    return made


@command
def main(arguments: list[str] | None = None) -> int:
    """Train what is not trained yet, one head after another."""
    args, further = parser().parse_known_args(sys.argv[1:] if arguments is None else arguments)
    for word in ("--loss", "--top-k", "--start-from", "--resume"):
        if any(each.split("=")[0] == word for each in further):
            raise TrainingError(f"{word} is chosen by the suite: omit it.")
    if args.evaluate is not None:
        evaluate(args, head.parser().parse_args(further))
        return FINISHED
    out = args.out or training_home() / "suite"
    prepared = [] if "--prepared" in further else ["--prepared", str(out / "prepared")]
    common = [*further, *prepared]

    def shape(windows: int, learning_rate: float) -> list[str]:
        return ["--windows", str(windows), "--learning-rate", str(learning_rate), *common]

    steps = max(1, round(STEPS_PER_BASE * args.base_steps)) if args.steps is None else args.steps
    lengths = {"": ["--steps", str(steps)]} if steps else {}
    if args.minutes:
        lengths[BY_TIME] = ["--minutes", f"{args.minutes:g}"]

    base = ["--steps", str(args.base_steps), *shape(args.base_windows, args.base_learning_rate)]
    behind = ["--start-from", str(out / BASE / HEADS.folder), *shape(args.windows, args.learning_rate)]
    members = {f"{name}{suffix}": [*words, *length, *behind]
               for suffix, length in lengths.items() for name, words in MEMBERS.items()}  # fmt: skip
    for name, words in {BASE: [*MEMBERS["eagle"], *base], **members}.items():
        if (code := _train(out / name, words)) != FINISHED:
            break  # stopped or failed: the next call trains the rest
    print_comparison([out / BASE, *(out / name for name in members)])
    if code == FINISHED and args.ship:
        for name in MEMBERS if steps else ():
            ship(out / name / HEADS.folder, SHIPPED / name)
        if args.minutes:
            ship_figures(out, args.minutes)
    return code


def _train(folder: Path, words: list[str]) -> int:
    """One head, unless it is there; from its checkpoint if it was stopped."""
    if (folder / HEADS.folder / HEADS.card).exists():
        print(f"{folder.name}: already trained", file=sys.stderr)
        return FINISHED
    if (folder / SETTINGS).exists():
        words = [*words, "--resume"]
    print(f"{folder.name}: training", file=sys.stderr, flush=True)
    return head.main([*words, "--out", str(folder)])


def print_comparison(folders: Sequence[Path]) -> None:
    """Training and held-out figures of the heads that are there, a line each."""
    print(f"{'head':16}" + "".join(f"{name:>20}" for name in COMPARED))
    for folder in folders:
        if (folder / HEADS.folder / HEADS.card).exists():
            found = read_card(folder / HEADS.folder, folder.name).figures
            cells = (f"{found[name]:.4g}" if name in found else "-" for name in COMPARED.values())
            print(f"{folder.name:16}" + "".join(f"{cell:>20}" for cell in cells))


def evaluate(args: argparse.Namespace, of_head: argparse.Namespace) -> None:
    """Compare heads on the same held-out windows and print what each reaches.

    `of_head`: the arguments for `decoding.training.head`.

    Raises:
        TrainingError: there are no heads, no text or no two windows to compare them on; `PairError` where a head is of
            another target.
    """
    if of_head.corpus is None or args.evaluate < 2:
        raise TrainingError("Heads are compared on at least 2 windows of held-out text: name a folder with --corpus.")
    names = [BASE, *(name + suffix for suffix in ("", BY_TIME) for name in MEMBERS)]
    places = {name: SHIPPED / name if args.out is None else args.out / name / HEADS.folder for name in names}
    cards = {name: read_card(place, name) for name, place in places.items() if (place / HEADS.card).exists()}
    if not cards:
        raise TrainingError(f"{args.out or SHIPPED} has no heads: train them first.")
    pair = pair_of(of_head)
    for card in cards.values():
        require_fit(card, pair_identity(pair))
    # As training cuts them; only their beginnings are read, so that the target need not continue any.
    texts, plan = read_corpus(of_head.corpus), replace(from_arguments(WindowPlan, of_head), continued=0.0)
    windows = windows_of(pair, texts, plan, range(args.evaluate), held_out=True)
    values = {}
    for name, card in cards.items():
        print(f"{name}: {args.evaluate} windows", file=sys.stderr, flush=True)
        values[name] = tokens_by_window(pair, load_network(card).to(pair.target.device), map(torch.from_numpy, windows))
    found = compared(values, {name: f"eagle{BY_TIME}" if name.endswith(BY_TIME) else "eagle" for name in cards})
    print(f"{'head':16}{'windows':>10}{'tokens at 16 nodes':>22}{'minus the EAGLE head':>24}")
    for name, each in found.items():
        gained = f"{each['gained']:+.4f} ± {each['gained_error']:.4f}" if "gained" in each else ""
        tokens = f"{each['tokens']:.4f} ± {each['error']:.4f}"
        print(f"{name:16}{each['windows']:>10.0f}{tokens:>22}{gained:>24}")
    if args.ship:
        kept = {name: {"trained": cards[name].created, **figures} for name, figures in found.items()}
        content = {"asked_windows": args.evaluate, "created": f"{datetime.now():%Y-%m-%d}", "heads": kept}
        write_whole(SHIPPED / SAME_WINDOWS, json.dumps(content, indent=1).encode() + b"\n")


def ship(trained: Path, shipped: Path) -> None:
    """Copy a stored head, each file whole; `TrainingError` where there is none."""
    if not (trained / HEADS.card).exists():
        raise TrainingError(f"{trained} has no trained head: train it first.")
    for name in (HEADS.weights, HEADS.card):
        write_whole(shipped / name, (trained / name).read_bytes())


def ship_figures(out: Path, minutes: float) -> None:
    """Store what the heads of a suite reach after equal times, and the head that they go on from: `EQUAL_TIME`."""
    found = {name: dict(read_card(out / folder / HEADS.folder, name).figures)
             for name, folder in {BASE: BASE, **{name: name + BY_TIME for name in MEMBERS}}.items()}  # fmt: skip
    kept = {
        "minutes": minutes,
        "created": f"{datetime.now():%Y-%m-%d}",
        "hardware": describe_hardware(torch.device("cpu")),
        "target_weights": read_card(out / BASE / HEADS.folder, BASE).pair["target"]["weights"],
        "heads": found,
    }
    write_whole(SHIPPED / EQUAL_TIME, json.dumps(kept, indent=1).encode() + b"\n")


if __name__ == "__main__":
    sys.exit(main())

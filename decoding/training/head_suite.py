"""All heads of one target, trained to be compared: `python -m decoding.training.head_suite --corpus DIR`.

One head is trained with EAGLE's loss; EAGLE, HASS and TALF (top-1, top-2 and top-4) go on from it for equal numbers of
steps, on the same batches. Called again it goes on where it was. `--ship` copies the heads to those that come with the
program, `decoding/heads/trained/NAME`, which `python -m benchmarks.talf` measures. The learning rates suit heads of
about a million weights, which train faster than those of the paper (3e-4).
"""

import argparse
import sys
from pathlib import Path

from decoding.common.errors import REFUSED, TrainingError, run_command
from decoding.common.files import training_home, write_whole
from decoding.heads.store import HEADS, SHIPPED
from decoding.jobs.process import ENDED, FINISHED
from decoding.training import head
from decoding.training.folder import SETTINGS, Training

BASE = "base"
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
    made.add_argument("--steps", type=int, default=600, metavar="N", help="steps with every loss after that")
    made.add_argument("--windows", type=int, default=512, metavar="N", help="windows for these steps, with trees")
    made.add_argument("--learning-rate", type=float, default=1e-3, metavar="RATE")
    made.add_argument("--ship", action="store_true", help="copy the heads to those included with Draftscope")
    return made


def main(arguments: list[str] | None = None) -> int:
    """Train what is not trained yet, one head after another."""
    args, further = parser().parse_known_args(sys.argv[1:] if arguments is None else arguments)
    for word in ("--loss", "--top-k", "--start-from", "--resume", "--minutes"):
        if any(each.split("=")[0] == word for each in further):
            print(f"error: {word} is chosen by the suite: omit it.", file=sys.stderr)
            return REFUSED
    out = args.out or training_home() / "suite"
    prepared = [] if "--prepared" in further else ["--prepared", str(out / "prepared")]
    common = [*further, *prepared]

    def shape(steps: int, windows: int, learning_rate: float) -> list[str]:
        return ["--steps", str(steps), "--windows", str(windows), "--learning-rate", str(learning_rate)]

    def run() -> int:
        base = shape(args.base_steps, args.base_windows, args.base_learning_rate)
        code = _train(out / BASE, [*MEMBERS["eagle"], *base, *common])
        behind = shape(args.steps, args.windows, args.learning_rate)
        for name, words in MEMBERS.items() if code == FINISHED else ():
            begun = ("--start-from", str(out / BASE / HEADS.folder))
            code = max(code, _train(out / name, [*words, *begun, *behind, *common]))
        for name in MEMBERS if code == FINISHED and args.ship else ():
            ship(out / name / HEADS.folder, SHIPPED / name)
        return code

    return run_command(run)


def _train(folder: Path, words: list[str]) -> int:
    """One head, unless it is there; from its checkpoint if it was stopped."""
    if (folder / HEADS.folder / HEADS.card).exists():
        print(f"{folder.name}: already trained", file=sys.stderr)
        return FINISHED
    if (folder / SETTINGS).exists():
        if Training(folder).status().running:
            print(f"error: {folder} is being trained by another process: wait for it.", file=sys.stderr)
            return ENDED
        words = [*words, "--resume"]
    print(f"{folder.name}: training", file=sys.stderr, flush=True)
    return head.main([*words, "--out", str(folder)])


def ship(trained: Path, shipped: Path) -> None:
    """Copy a stored head, each file whole; `TrainingError` where there is none."""
    if not (trained / HEADS.card).exists():
        raise TrainingError(f"{trained} has no trained head: train it first.")
    for name in (HEADS.weights, HEADS.card):
        write_whole(shipped / name, (trained / name).read_bytes())


if __name__ == "__main__":
    sys.exit(main())

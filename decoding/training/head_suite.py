"""All heads of one target, trained to be compared: `python -m decoding.training.head_suite --corpus DIR`.

One head is trained with EAGLE's loss; EAGLE, HASS and TALF (top-1, top-2 and top-4) go on from it for equal numbers of
steps, on the same batches. Called again it goes on where it was. `--ship` copies the heads to those that come with the
program, `decoding/heads/trained/NAME`, which `python -m benchmarks.talf` measures. The learning rates suit heads of
about a million weights, which train faster than those of the paper (3e-4).
"""

import argparse
import sys
from dataclasses import dataclass
from pathlib import Path

from decoding.common.errors import TrainingError
from decoding.common.files import disk_errors, training_home, write_whole
from decoding.heads.store import HEADS, SHIPPED
from decoding.training import head
from decoding.training.common.command import ENDED, FINISHED, run_command
from decoding.training.common.run_folder import SETTINGS, RunFolder

BASE = "base"


@dataclass(frozen=True)
class Member:
    """One training of the suite.

    Attributes:
        name: of the head, and of its folder below that of the suite.
        loss, top_k: as the command takes them; `top_k` 0 where the loss has none.
    """

    name: str
    loss: str
    top_k: int = 0

    @property
    def words(self) -> list[str]:
        """Arguments of `decoding.training.head`."""
        return ["--loss", self.loss, *(["--top-k", str(self.top_k)] if self.top_k else [])]


MEMBERS = (
    Member("eagle", "eagle"),
    Member("hass", "hass"),
    Member("talf", "talf", 4),
    Member("talf_top2", "talf", 2),
    Member("talf_top1", "talf", 1),
)


def parser() -> argparse.ArgumentParser:
    """The arguments of the command; what it does not know goes on to `decoding.training.head`."""
    made = argparse.ArgumentParser(
        prog="python -m decoding.training.head_suite",
        allow_abbrev=False,
        description="Train EAGLE, HASS and TALF heads of one target. Further arguments go to decoding.training.head.",
    )
    made.add_argument("--out", type=Path, metavar="DIR", help="folder of the suite (default: below the user's cache)")
    made.add_argument("--base-steps", type=int, default=6000, metavar="N", help="steps with EAGLE's loss before")
    made.add_argument("--base-windows", type=int, default=1024, metavar="N", help="windows of these steps")
    made.add_argument("--base-learning-rate", type=float, default=2e-3, metavar="RATE")
    made.add_argument("--steps", type=int, default=600, metavar="N", help="steps of every loss behind them")
    made.add_argument("--windows", type=int, default=512, metavar="N", help="windows of these steps, with trees")
    made.add_argument("--learning-rate", type=float, default=1e-3, metavar="RATE")
    made.add_argument("--ship", action="store_true", help="copy the heads to those that come with the program")
    return made


def main(arguments: list[str] | None = None) -> int:
    """Train what is not trained yet, one head after another."""
    args, further = parser().parse_known_args(sys.argv[1:] if arguments is None else arguments)
    for word in ("--loss", "--top-k", "--start-from", "--resume", "--minutes"):
        if any(each.split("=")[0] == word for each in further):
            print(f"error: {word} is chosen by the suite: leave it away.", file=sys.stderr)
            return 2
    out = args.out or training_home() / "suite"
    prepared = [] if "--prepared" in further else ["--prepared", str(out / "prepared")]
    common = [*further, *prepared]

    def run() -> int:
        base = _shape(args.base_steps, args.base_windows, args.base_learning_rate)
        code = _train(out / BASE, [*Member(BASE, "eagle").words, *base, *common])
        behind = _shape(args.steps, args.windows, args.learning_rate)
        for member in MEMBERS if code == FINISHED else ():
            words = [*member.words, "--start-from", str(out / BASE / head.HEAD), *behind, *common]
            code = max(code, _train(out / member.name, words))
        if code == FINISHED and args.ship:
            for member in MEMBERS:
                ship(out / member.name / head.HEAD, SHIPPED / member.name)
        return code

    return run_command(run)


def _shape(steps: int, windows: int, learning_rate: float) -> list[str]:
    return ["--steps", str(steps), "--windows", str(windows), "--learning-rate", str(learning_rate)]


def _train(folder: Path, words: list[str]) -> int:
    """One head, unless it is there; from its checkpoint if it was stopped."""
    if (folder / head.HEAD / HEADS.card).exists():
        print(f"{folder.name}: trained already", file=sys.stderr)
        return FINISHED
    if (folder / SETTINGS).exists():
        if RunFolder(folder).status().running:
            print(f"error: {folder} is being trained by another process: wait for it.", file=sys.stderr)
            return ENDED
        words = [*words, "--resume"]
    print(f"{folder.name}: training", file=sys.stderr, flush=True)
    return head.main([*words, "--out", str(folder)])


def ship(trained: Path, shipped: Path) -> None:
    """Copy a stored head, each file whole.

    Raises:
        TrainingError: there is none, or the place cannot be written.
    """
    if not (trained / HEADS.card).exists():
        raise TrainingError(f"{trained} holds no trained head: train it first.")
    with disk_errors(shipped):
        shipped.mkdir(parents=True, exist_ok=True)
    for name in (HEADS.weights, HEADS.card):
        write_whole(shipped / name, (trained / name).read_bytes())


if __name__ == "__main__":
    sys.exit(main())

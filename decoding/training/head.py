"""Train a draft head for the target of a pair: `python -m decoding.training.head --loss talf --corpus DIR`.

Windows of the text, the target's features and, for TALF, the target's own trees are prepared first and kept: a second
training on the same text begins at once. As in the paper a head is trained with EAGLE's loss first, and HASS and TALF
go on from it for equal numbers of steps, on the same batches:

    python -m decoding.training.head --loss eagle --corpus DIR --steps 6000
    python -m decoding.training.head --loss talf  --corpus DIR --steps 600 --start-from head-eagle-2030-01-02

The head is then in the folder of the training, `head/`, and every method can draft with it (setting `draft_head`).
Without `--corpus` the target itself continues the sample prompts. Exit code 0: finished; 1: stopped, out of memory or
failed; 2: what was asked for cannot be done.
"""

import argparse
import sys
from pathlib import Path

from decoding.common.commands import run_command
from decoding.heads.store import LOSSES
from decoding.jobs.process import conduct
from decoding.training.command import add_common_arguments, add_pair_arguments, training_of

MINUTES, LEARNING_RATE = 10.0, 3e-4


def parser() -> argparse.ArgumentParser:
    """The arguments of the command."""
    made = argparse.ArgumentParser(
        prog="python -m decoding.training.head", description="Train a draft head for a target."
    )
    made.add_argument("--loss", choices=tuple(LOSSES), default="talf")
    made.add_argument("--top-k", type=int, default=4, metavar="K", help="width of the target's trees (TALF)")
    made.add_argument("--start-from", metavar="HEAD", help="a trained head to go on from: its name, or its folder")
    add_common_arguments(made, MINUTES, LEARNING_RATE)
    made.add_argument("--batch", type=int, default=4, metavar="N", help="windows of a step")
    made.add_argument("--mlp-size", type=int, metavar="N", help="inner size of the MLP (default 1.6 times hidden)")
    text = made.add_argument_group("text")
    text.add_argument("--corpus", type=Path, metavar="DIR", help="folder of .txt and .txt.gz; default: sample prompts")
    text.add_argument("--prepared", type=Path, metavar="DIR", help="where windows and trees are kept")
    text.add_argument("--windows", type=int, default=1024, metavar="N", help="windows to train on")
    text.add_argument("--held-out", type=int, default=32, metavar="N", help="windows to measure on")
    text.add_argument("--roots", type=int, default=256, metavar="N", help="tokens of a window that trees grow below")
    text.add_argument("--depth", type=int, default=3, metavar="N", help="forwards of the head that are trained")
    text.add_argument("--continued", type=float, default=0.5, metavar="SHARE", help="windows that the target continues")
    text.add_argument("--temperature", type=float, default=1.0, help="at which the target continues them")
    add_pair_arguments(made)
    return made


def main(arguments: list[str] | None = None) -> int:
    """Prepare, train and store a head; every error is one sentence on stderr."""
    words = sys.argv[1:] if arguments is None else arguments
    args = parser().parse_args(words)

    def run() -> int:
        from decoding.training.head_learner import prepare_head

        training = training_of(args.out, args.resume, f"head-{args.loss}")
        return conduct(training, lambda: prepare_head(args, words, training, MINUTES))

    return run_command(run)


if __name__ == "__main__":
    sys.exit(main())

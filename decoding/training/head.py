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

from decoding.common.errors import command
from decoding.jobs.process import conduct
from decoding.models.presets import add_pair_arguments
from decoding.training.command import NO_FLAGS, parser_of, training_of


def parser() -> argparse.ArgumentParser:
    """The arguments of the command."""
    made = parser_of("head", "Train a draft head for a target.", start_from={"metavar": "HEAD"})
    made.add_argument("--prepared", type=Path, metavar="DIR", help="folder for prepared windows and trees")
    made.add_argument("--held-out", type=int, default=32, metavar="N", help="windows for evaluation")
    add_pair_arguments(made, *NO_FLAGS)
    return made


@command
def main(arguments: list[str] | None = None) -> int:
    """Prepare, train and store a head; every error is one sentence on stderr."""
    words = sys.argv[1:] if arguments is None else arguments
    args = parser().parse_args(words)
    from decoding.training.head_learner import prepare_head

    training = training_of(args.out, args.resume, f"head-{args.loss}")
    return conduct(training, lambda: prepare_head(args, words, training))


if __name__ == "__main__":
    sys.exit(main())

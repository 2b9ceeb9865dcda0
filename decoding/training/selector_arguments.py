"""The arguments of `python -m decoding.training.selector`."""

import argparse
from pathlib import Path

from decoding.models.presets import DTYPES, EMBEDDED
from decoding.sampling.sampling import Sampling
from decoding.selector.latency import WAYS
from decoding.training.common.command import add_common_arguments
from decoding.training.selectors.data import SAMPLINGS
from decoding.training.selectors.labels import VERIFIER_NAMES

MINUTES, LEARNING_RATE = 1.0, 1e-3


def parser() -> argparse.ArgumentParser:
    """The arguments of the command."""
    made = argparse.ArgumentParser(
        prog="python -m decoding.training.selector", description="Train the selector of delayed trees."
    )
    made.add_argument("--verifier", choices=(*VERIFIER_NAMES, "all"), default="specinfer")
    add_common_arguments(made, MINUTES, LEARNING_RATE)
    made.add_argument("--batch", type=int, default=256, metavar="N", help="roots of a step, each under one sampling")
    made.add_argument("--penalty", type=float, default=1.0, metavar="LAMBDA", help="weight of regressions (Eq. 12)")
    made.add_argument("--worst", type=float, default=0.1, metavar="ALPHA", help="share of the roots it is taken over")
    made.add_argument("--entropy", type=float, default=0.05, metavar="WEIGHT", help="of the policy, at the start")
    made.add_argument("--dropout", type=float, default=0.2, metavar="SHARE", help="of the hidden units")
    made.add_argument("--state-dropout", type=float, default=0.8, metavar="SHARE", help="of what hidden states say")
    made.add_argument("--weight-decay", type=float, default=0.02, metavar="RATE")
    made.add_argument("--time", choices=WAYS, default="rows", help="rows: passes priced by their rows; paper: Eq. 11")
    made.add_argument("--measure-again", action="store_true", help="measure the times of passes even where known")
    made.add_argument("--ship", action="store_true", help="also store it with the program, named by its verifier")
    data = made.add_argument_group("roots")
    data.add_argument("--corpus", type=Path, metavar="DIR", help="folder of .txt and .txt.gz; default: sample prompts")
    data.add_argument("--data", type=Path, metavar="DIR", help="where labelled roots are kept")
    data.add_argument("--texts", type=int, default=108, metavar="N", help="texts to train on")
    data.add_argument("--held-out", type=int, default=18, metavar="N", help="texts to measure on")
    data.add_argument("--roots", type=int, default=10, metavar="N", help="roots of a text")
    data.add_argument("--spacing", type=int, default=16, metavar="N", help="tokens between two roots")
    data.add_argument("--trees", type=int, default=4, metavar="S", help="trees whose labels are averaged at a root")
    data.add_argument("--khisti-trees", type=int, default=1, metavar="N", help="of these, those labelled for Khisti")
    data.add_argument("--khisti-every", type=int, default=3, metavar="N", help="one root in so many is, too")
    data.add_argument(
        "--samplings",
        type=samplings_from,
        default=SAMPLINGS,
        metavar="LIST",
        help="temperature or temperature:top-p, with commas between (default: the paper's and greedy)",
    )
    data.add_argument("--draft-temperature", type=float, default=1.0, help="of the law that trees are drawn from")
    data.add_argument("--only-data", type=_share, metavar="I/N", help="label texts as process I of N, train nothing")
    pair = made.add_argument_group("pair")
    pair.add_argument("--target", default=EMBEDDED, help="Hugging Face id or folder")
    pair.add_argument("--draft", default=EMBEDDED, help="Hugging Face id or folder")
    pair.add_argument("--dtype", choices=DTYPES, default="auto")
    pair.add_argument("--context-length", type=int, default=2048, metavar="N", help="tokens that must fit")
    pair.add_argument("--split", action="store_true", help="spread the target over several GPUs")
    return made


def samplings_from(text: str) -> tuple[Sampling, ...]:
    """Samplings as the command takes them: `0,0.6,1:0.9`.

    Raises:
        argparse.ArgumentTypeError: the text is no such list.
    """
    try:
        parts = [[float(number) for number in entry.split(":")] for entry in text.split(",")]
        if not all(len(part) in (1, 2) for part in parts):
            raise ValueError
        return tuple(Sampling(*part) for part in parts)
    except ValueError:
        raise argparse.ArgumentTypeError(
            f"{text!r} is no list of samplings: give temperatures from 0, or temperature:top-p, such as 0,0.6,1:0.9."
        ) from None


def _share(text: str) -> tuple[int, int]:
    number, _, count = text.partition("/")
    if not (number.isdecimal() and count.isdecimal() and 1 <= int(number) <= int(count)):
        raise argparse.ArgumentTypeError(
            f"{text!r} is no share: give this process and how many there are, such as 1/2."
        )
    return int(number) - 1, int(count)

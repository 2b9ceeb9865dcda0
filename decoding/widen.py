"""The embedded pair widened to folders of a large pair's shapes, from the command line.

python -m decoding.widen --like pythia-2.8b --out ~/models
"""

import argparse
import sys
from pathlib import Path

from decoding.common.errors import command
from decoding.models.presets import DTYPE_BYTES
from decoding.models.widening import LIKES, widened_pair_folders


@command
def main(arguments: list[str] | None = None) -> int:
    """Widen the embedded pair and say how to use what was written."""
    parser = argparse.ArgumentParser(prog="python -m decoding.widen", description="Widen the embedded pair.")
    parser.add_argument("--like", required=True, metavar="SHAPE", help=f"one of {', '.join(LIKES)}")
    parser.add_argument("--out", required=True, type=Path, metavar="DIR", help="folder for the two models")
    parser.add_argument("--dtype", default="bfloat16", choices=tuple(DTYPE_BYTES))
    parser.add_argument("--device", default="cpu", choices=("cpu", "cuda"), help="device that widens the weights")
    args = parser.parse_args(arguments)
    folders = widened_pair_folders(args.like, args.out, args.dtype, args.device)
    print(f"These are the embedded pair's weights, widened: --target {folders.target} --draft {folders.draft}")
    return 0


if __name__ == "__main__":
    sys.exit(main())

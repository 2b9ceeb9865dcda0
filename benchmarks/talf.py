"""SALF & TALF's tables, from stored rows: `python -m benchmarks.papers salf`."""

import sys

from benchmarks.papers import main
from decoding.common.errors import run_main

if __name__ == "__main__":
    run_main(lambda: main(["salf", *sys.argv[1:]]))

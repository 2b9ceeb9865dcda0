"""Tokens per pass of every verifier on the same trees: `python -m benchmarks.verifier_grid`."""

from decoding.common.errors import run_main
from decoding.papers.measured.verifier_grid import main

if __name__ == "__main__":
    run_main(main)

"""Tokens per pass of every verifier on i.i.d. trees of every shape, and with its selector (Tables 8 to 15)."""

from decoding.common.errors import run_main
from decoding.papers.measured.verifier_grid import main

if __name__ == "__main__":
    run_main(main)

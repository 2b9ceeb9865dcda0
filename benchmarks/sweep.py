"""Run a grid of methods and settings: `python -m benchmarks.sweep GRID.toml --out DIR`."""

from decoding.common.errors import run_main
from decoding.experiments.sweep import main

if __name__ == "__main__":
    run_main(main)

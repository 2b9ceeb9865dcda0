"""Measurements: `python -m benchmarks.NAME` prints a table; `--json FILE` writes its figures, `--save` keeps them."""

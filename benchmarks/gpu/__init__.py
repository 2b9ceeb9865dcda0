"""`python -m benchmarks.gpu --first-contact PART`: what a GPU that was never met shows, in parts of a few minutes.

Each part stands for itself: a rented machine is bare, and nothing that one part has written is there for the next.
`docs/gpu.md` says in which order to run them and what to bring along.
"""

import argparse
import importlib

from benchmarks.gpu.report import Report


def run_part(part: str, args: argparse.Namespace) -> int:
    """Run one part; 1 where something is wrong, 0 otherwise. Its ten lines are printed even where it breaks off."""
    return Report(part, args).run(importlib.import_module(f"benchmarks.gpu.{part}").steps)

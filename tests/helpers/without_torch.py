"""A Python without torch, for tests: a `sitecustomize` that hides what decodes, as if it were not installed."""

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SITECUSTOMIZE = """
from importlib.machinery import PathFinder

HIDDEN = ("torch", "transformers", "safetensors", "accelerate")
found = PathFinder.find_spec

def find_spec(name, path=None, target=None):
    return None if name.partition(".")[0] in HIDDEN else found(name, path, target)

PathFinder.find_spec = staticmethod(find_spec)
"""


def environment_without_torch(folder: Path) -> dict[str, str]:
    """The environment of a process that finds no torch; `folder` holds what hides it."""
    folder.joinpath("sitecustomize.py").write_text(SITECUSTOMIZE, encoding="utf-8")
    return {**os.environ, "PYTHONPATH": str(folder)}


def run_without_torch(folder: Path, *arguments: str) -> str:
    """Run Python with these arguments where torch cannot be imported; returns what it printed."""
    answer = subprocess.run(
        [sys.executable, *arguments],
        cwd=ROOT,
        env=environment_without_torch(folder) | {"PYTHONUTF8": "1"},  # whatever the locale
        capture_output=True,
        encoding="utf-8",
        timeout=120,
    )
    assert answer.returncode == 0, answer.stderr[-3000:]
    return answer.stdout

"""What a row says of the pair, the machine and the code that it was measured with."""

import os
import subprocess
from importlib.metadata import version
from pathlib import Path
from typing import Any

from decoding.costs.measuring import machine_words
from decoding.models.pair import Pair

ROOT = Path(__file__).resolve().parents[2]
TOLD = ("torch", "transformers")


def circumstances(pair: Pair) -> dict[str, Any]:
    """The columns of a row that are the same for all runs of one process."""
    target = pair.target.info
    return {
        "pair": pair.info.name,
        "target": target.name,
        "draft": pair.info.draft.name,
        "device": target.device,
        "dtype": target.dtype,
        "engine": target.engine,
        "machine": machine_words(pair),
        "versions": ", ".join(f"{name} {version(name)}" for name in TOLD),
        "commit": code_version(),
    }


def code_version() -> str | None:
    """Commit of the code, with `-dirty` where anything but results differs from it; None where none is known.

    Without git or outside a checkout it is what the environment variable `DRAFTSCOPE_COMMIT` says.
    """
    commit = _git("rev-parse", "HEAD")
    if commit is None:
        return os.environ.get("DRAFTSCOPE_COMMIT")
    return commit + ("-dirty" if _git("status", "--porcelain", "--", ".", ":!decoding/experiments/results") else "")


def _git(*words: str) -> str | None:
    try:
        answer = subprocess.run(["git", "-C", str(ROOT), *words], capture_output=True, text=True, check=False)
    except FileNotFoundError:
        return None
    return answer.stdout.strip() if answer.returncode == 0 else None

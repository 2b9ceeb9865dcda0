"""Python code in a fresh interpreter, for tests of what it loads and what it finds."""

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def printed(code: str, *arguments: str, environment: Mapping[str, str] | None = None) -> str:
    """What the code prints in the repository root; it must come to its end within two minutes."""
    command = [sys.executable, "-c", code, *arguments]
    environment = {**(os.environ if environment is None else environment), "PYTHONUTF8": "1"}  # whatever the locale
    answer = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, encoding="utf-8", timeout=120)
    assert answer.returncode == 0, answer.stderr[-3000:]
    return answer.stdout

"""Python code in a fresh interpreter, and a shell script in the place of the interpreter, for tests of processes."""

import os
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path

from decoding.common.files import ROOT
from decoding.jobs import job as jobs
from decoding.jobs.job import Job


def printed(code: str, *arguments: str, environment: Mapping[str, str] | None = None) -> str:
    """What the code prints in the repository root; it must come to its end within two minutes."""
    command = [sys.executable, "-c", code, *arguments]
    environment = {**(os.environ if environment is None else environment), "PYTHONUTF8": "1"}  # whatever the locale
    answer = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, encoding="utf-8", timeout=120)
    assert answer.returncode == 0, answer.stderr[-3000:]
    return answer.stdout


class StandIn:
    """Puts scripts in the place of Python, and knows what was begun with them."""

    def __init__(self, monkeypatch, folder: Path):
        self._patch, self._file, self.begun = monkeypatch, folder / "python", []
        real = jobs.subprocess.Popen
        monkeypatch.setattr(
            jobs.subprocess, "Popen", lambda *a, **k: self.begun.append(real(*a, **k)) or self.begun[-1]
        )

    def __call__(self, script: str) -> None:
        """Whatever is started from now on runs this script."""
        self._file.write_text(f"#!/bin/sh\n{script}\n")
        self._file.chmod(0o755)
        self._patch.setattr(jobs.sys, "executable", str(self._file))

    def end(self) -> None:
        """End what is left running."""
        for process in self.begun:
            if process.poll() is None:
                process.kill()


def ended(job: Job) -> Job:
    """A job once its process is gone."""
    until = time.monotonic() + 240  # a busy machine takes its time; what hangs is ended
    while job.stand().running:
        assert time.monotonic() < until, job.output()
        time.sleep(0.02)
    return job

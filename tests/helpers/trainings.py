"""A training on disk that no process made: settings, curves, trees and where it stands."""

from pathlib import Path

from decoding.jobs.job import Status
from decoding.trace.run_file import save_run
from decoding.training.folder import Kind, Training, TrainingSettings
from tests.helpers.traces import bonus, fallback, run_of

NAME = "TALF head, Embedded pair, 2026-11-22"
CREATED = "2026-11-22T10:00:00"
PHASE = "training the head"


def made_training(home: Path, name: str, status: Status | None = None, kind: Kind = "head") -> Training:
    """A training with curves of 60 steps and three trees, the later ones with more accepted tokens."""
    folder = Training(home / name)
    command = ("-m", "tests.helpers.toy_training", "--steps", "3")
    folder.begin(TrainingSettings(kind, NAME, command, {"loss": "talf"}, {"name": "Embedded pair"}, CREATED))
    (folder.path / "trees").mkdir()
    for step in range(0, 60, 10):
        place = {"phase": PHASE, "step": step, "trained_s": step / 2, "written": 1e9}
        folder.append({**place, "loss": 9.0 - step / 10, "gradient_norm": 1.0})
        folder.append({**place, "held_out_overlap_1": step / 100, "held_out_tokens_per_pass": 1 + step / 50})
        if step % 20 == 0:
            run = run_of([bonus(), fallback()] if step else [fallback(), fallback()])
            save_run(run, folder.path / "trees" / f"{step}.dscope")
            folder.append({**place, "tree": f"{step}.dscope", "tokens_per_pass": 1 + step / 40})
    if status is not None:
        folder.write_status(status)
    return folder

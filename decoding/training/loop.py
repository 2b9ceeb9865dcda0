"""The loop of every training: steps, curves, trees, checkpoints, a stop from outside, and going on where it stopped.

    train(learner, folder, plan, phase="head", belongs_to={...}, resume=True)

A learner's step depends on its state and the number of the step alone, so that a training that stopped and went on
ends with the same weights, to the bit on a CPU, as one that never stopped (where it is planned by steps: a plan by
minutes sets the learning rate by the clock).
"""

import io
import math
import pickle
import time
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from decoding.common.errors import TrainingError, require
from decoding.common.files import disk_errors, write_whole
from decoding.jobs.job import Status
from decoding.jobs.process import ProgressLine, StoppedError
from decoding.trace.metrics import measure_run
from decoding.trace.records import RunTrace
from decoding.trace.run_file import save_run
from decoding.training.folder import TREES, Training
from decoding.training.shards import memory_bytes

VERSION = 1
MOST_SHOWN = 80  # characters of a value in a sentence


@dataclass(frozen=True)
class TrainingCheckpoint:
    """A moment of a training: steps done and seconds spent in a phase, and the learner's `state`.

    Attributes:
        belongs_to: what it can go on with: pair, settings that shape the weights, data; compared as a whole.
    """

    belongs_to: Mapping[str, Any]
    phase: str
    step: int
    trained_s: float
    state: Mapping[str, Any]


def load_checkpoint(file: Path, belongs_to: Mapping[str, Any] | None = None) -> TrainingCheckpoint:
    """Read a checkpoint, tensors and plain values alone; `TrainingError` where there is none of this training."""
    try:
        known = torch.load(file, map_location="cpu", weights_only=True)
        version = known.pop("version")
        checkpoint = TrainingCheckpoint(**known)
    except FileNotFoundError:
        raise TrainingError(f"There is no checkpoint {file}: start the training without --resume.") from None
    except (pickle.UnpicklingError, RuntimeError, EOFError, zipfile.BadZipFile, TypeError, KeyError, AttributeError):
        raise TrainingError(f"{file} is damaged or not a checkpoint: start again in another --out.") from None
    if version != VERSION:
        raise TrainingError(f"{file} has version {version}, not {VERSION}: start the training again.")
    theirs = checkpoint.belongs_to
    if belongs_to is None or theirs == belongs_to:
        return checkpoint
    name = next(name for name in sorted({*theirs, *belongs_to}) if theirs.get(name) != belongs_to.get(name))
    sides = [repr(side.get(name)) for side in (theirs, belongs_to)]
    # Measured times, say: nobody wants to read them all.
    difference = (
        f"different {name}" if max(map(len, sides)) > MOST_SHOWN else f"{name} {sides[0]} instead of {sides[1]}"
    )
    raise TrainingError(f"{file} belongs to another training ({difference}): resume that one, or choose another --out.")


class Learner:
    """A network under training, on one device; its optimiser keeps its state as those of torch do."""

    device: torch.device
    network: torch.nn.Module
    optimiser: Any

    def step(self, number: int, share: float) -> Mapping[str, float]:
        """One optimiser step: `number` from 0, `share` of the phase that is done, from 0 to 1; returns its losses.

        Batches are a function of the number alone.
        """
        raise NotImplementedError

    def evaluate(self) -> Mapping[str, float]:
        """Held-out figures by name; touches nothing that a step depends on."""
        raise NotImplementedError

    def tree(self) -> RunTrace | None:
        """The held-out prompt drafted with the weights as they are; None where there is nothing to draft yet."""
        raise NotImplementedError

    def state(self) -> Mapping[str, Any]:
        """Weights, optimiser and all else that the next step depends on: tensors and plain values."""
        return {"network": self.network.state_dict(), "optimiser": self.optimiser.state_dict()}

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Take a state that `state` gave."""
        self.network.load_state_dict(state["network"])
        self.optimiser.load_state_dict(state["optimiser"])


@dataclass(frozen=True)
class PhasePlan:
    """How long a phase takes and how often it looks up.

    Attributes:
        steps, minutes: one of them.
        log_every_s, evaluate_every_s, tree_every_s, checkpoint_every_s: seconds of training between two of each.
    """

    steps: int | None = None
    minutes: float | None = None
    log_every_s: float = 2.0
    evaluate_every_s: float = 60.0
    tree_every_s: float = 120.0
    checkpoint_every_s: float = 120.0

    def __post_init__(self):
        require((self.steps is None) != (self.minutes is None), "Give either steps or minutes of training.")
        require(self.steps is None or self.steps >= 1, f"steps must be at least 1, not {self.steps}.")
        require(self.minutes is None or self.minutes > 0, f"minutes must be above 0, not {self.minutes}.")

    @property
    def planned_s(self) -> float | None:
        """Seconds of the phase where it is planned by time."""
        return None if self.minutes is None else self.minutes * 60


def train(
    learner: Learner,
    folder: Training,
    plan: PhasePlan,
    *,
    phase: str,
    belongs_to: Mapping[str, Any],
    resume: bool = False,
    left_behind_s: float = 0.0,
) -> Status:
    """Train through one phase and return where it stands at its end; its checkpoint is written.

    Args:
        belongs_to: what tells this training from others.
        resume: go on from the checkpoint if it is of this phase.
        left_behind_s: seconds that later phases are planned to take, for the time left.

    Raises:
        StoppedError: somebody asked to stop; resume goes on.
        TrainingError: the loss is no number, or the checkpoint belongs to another training.
        DiskError: the disk is full.
    """
    return _Loop(learner, folder, plan, phase, dict(belongs_to), left_behind_s).run(resume)


class _Loop:
    def __init__(self, learner, folder, plan, phase, belongs_to, left_behind_s):
        self.learner, self.folder, self.plan, self.belongs_to = learner, folder, plan, belongs_to
        self.left_behind_s, self.tell = left_behind_s, ProgressLine()
        self.status = Status("running", phase, total=plan.steps, planned_s=plan.planned_s, device=str(learner.device))
        self.due = dict.fromkeys(("log", "evaluate", "tree", "checkpoint"), 0.0)
        self.losses: dict[str, list[float]] = {}

    def run(self, resume: bool) -> Status:
        if resume and self.folder.checkpoint.exists():
            checkpoint = load_checkpoint(self.folder.checkpoint, self.belongs_to)
            if checkpoint.phase == self.status.phase:
                self.learner.load_state(checkpoint.state)
                self.status = replace(self.status, done=checkpoint.step, trained_s=checkpoint.trained_s)
                self.folder.cut_log(checkpoint.step, checkpoint.phase)
                now = self.status.trained_s
                self.due = {name: now + getattr(self.plan, f"{name}_every_s") for name in self.due}
        self.status = self.folder.write_status(self.status)
        while (self.status.share or 0.0) < 1.0:
            if self.folder.asked_to_stop():
                self._keep()
                self.folder.write_status(self.status)
                raise StoppedError(f"Stopped after {self.status.done} steps; continue with --resume.")
            self._look_up()
            self._step()
        self._look_up(at_end=True)
        self._keep()
        return self.status

    def _step(self) -> None:
        started = time.perf_counter()
        losses = self.learner.step(self.status.done, self.status.share or 0.0)
        for name, value in losses.items():
            if not math.isfinite(value):
                raise TrainingError(f"The loss {name} is {value}: resume with a lower --learning-rate.")
            self.losses.setdefault(name, []).append(value)
        taken_s = time.perf_counter() - started
        self.status = replace(self.status, done=self.status.done + 1, trained_s=self.status.trained_s + taken_s)

    def _look_up(self, at_end: bool = False) -> None:
        """Write curves, trees and the checkpoint as they fall due."""
        record: dict[str, float] = {}
        if self._is_due("log", at_end) and self.losses:
            record |= {name: sum(values) / len(values) for name, values in self.losses.items()}
            self.losses = {}
        if self._is_due("evaluate", at_end):
            record |= self.learner.evaluate()
        if self._is_due("tree", at_end):
            self._tree()
        if record:
            status, share = self.status, self.status.share
            left_s = status.trained_s * (1 - share) / share + self.left_behind_s if share else None
            memory = memory_bytes(self.learner.device)
            self.status = self.folder.write_status(replace(status, left_s=left_s, memory_bytes=memory))
            self._append(record)
            self.tell(self.status, record)
        if self._is_due("checkpoint", at_end) and self.status.done:
            self._keep()

    def _is_due(self, name: str, at_end: bool) -> bool:
        if not at_end and self.status.trained_s < self.due[name]:
            return False
        self.due[name] = self.status.trained_s + getattr(self.plan, f"{name}_every_s")
        return True

    def _tree(self) -> None:
        """Draft the held-out prompt; the record of it tells where among the curves it belongs."""
        run = self.learner.tree()
        measured = None if run is None else measure_run(run)
        if measured is None:
            return
        with disk_errors(self.folder.path):
            (self.folder.path / TREES).mkdir(exist_ok=True)
        # Every phase counts its steps from 0: the number in front keeps the trees in order.
        name = f"{len(self.folder.trees()):05d}-{self.status.done:09d}.dscope"
        save_run(run, self.folder.path / TREES / name)
        self._append({"tree": name, "tokens_per_pass": measured.tokens_per_iteration})

    def _append(self, record: Mapping[str, Any]) -> None:
        """Add a record to the log, with its place in the training and the time."""
        status = self.status
        place = {"phase": status.phase, "step": status.done, "trained_s": round(status.trained_s, 3)}
        self.folder.append({**place, "written": round(time.time(), 1), **record})

    def _keep(self) -> None:
        """Replace the checkpoint; on a full disk the one before stays."""
        status, buffer = self.status, io.BytesIO()
        checkpoint = TrainingCheckpoint(
            self.belongs_to, status.phase, status.done, status.trained_s, self.learner.state()
        )
        torch.save({"version": VERSION, **vars(checkpoint)}, buffer)
        write_whole(self.folder.checkpoint, buffer.getvalue())

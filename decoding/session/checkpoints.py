"""Where a session stood before each iteration: what its caches and its text cannot tell."""

from dataclasses import dataclass
from typing import Any

from decoding.common.errors import require
from decoding.methods.method import Method
from decoding.sampling.draws import GeneratorDraws
from decoding.sampling.sampling import Sampling


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A session before one iteration. Rows of committed text never change, so of the caches their lengths are enough.

    Attributes:
        index: of the iteration.
        tokens: committed tokens, the prompt included.
        target_rows, draft_rows: rows held; `draft_rows` is None where there was no draft cache.
        method, sampling, state: in force, and the drafter's state.
        draws, drawn: the draws as a session or fork began with them, and how many were taken since.
        prefill_s, ttft_s, elapsed_s: measured so far.
    """

    index: int
    tokens: int
    target_rows: int
    draft_rows: int | None
    method: Method
    sampling: Sampling
    state: Any
    draws: GeneratorDraws
    drawn: int
    prefill_s: float
    ttft_s: float
    elapsed_s: float


class Checkpoints:
    """The checkpoints of the recorded iterations of a session, by index."""

    def __init__(self, points: tuple[Checkpoint, ...] = ()):
        self._points = {point.index: point for point in points}

    def keep(self, point: Checkpoint) -> None:
        """Add the one of the latest iteration."""
        self._points[point.index] = point

    def at(self, index: int) -> Checkpoint:
        """Where the session stood before a recorded iteration.

        Raises:
            SettingsError: it is not among those recorded.
        """
        kept = f"{min(self._points) + 1} to {max(self._points) + 1}" if self._points else "none"
        require(index in self._points, f"This run has no iteration {index + 1} to go back to: it has recorded {kept}.")
        return self._points[index]

    def made_by(self, method: Method, sampling: Sampling, end: int) -> int:
        """Index of the first iteration since which all up to `end` were made in this way; `end` where none was."""
        for point in reversed(self._points.values()):
            if (point.method, point.sampling) != (method, sampling):
                break
            end = point.index
        return end

    def before(self, index: int | None = None) -> "Checkpoints":
        """A copy of those before an iteration; None: of all."""
        return Checkpoints(tuple(p for p in self._points.values() if index is None or p.index < index))


@dataclass(frozen=True)
class Standing:
    """How an iteration is about to be made: the method and its sampling, the drafter's state, the draws."""

    method: Method
    sampling: Sampling
    state: Any
    draws: GeneratorDraws

    def changed(self, method: Method | None, sampling: Sampling | None) -> "Standing":
        """The same with another method or sampling: another drafter begins anew, and so do draws of another seed.

        Raises:
            SettingsError: the verifier would bias the output of such trees.
        """
        method, sampling = method or self.method, sampling or self.sampling
        method.check(sampling)
        kept = method.drafts_like(self.method)
        draws = self.draws if sampling.seed == self.sampling.seed else GeneratorDraws(sampling.seed)
        return Standing(method, sampling, self.state if kept else method.drafter.start([]), draws)

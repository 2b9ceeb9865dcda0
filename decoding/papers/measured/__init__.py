"""Benchmarks that exhibits are made of, each a command, which the app runs as a job.

The figures go to the user's own folder, beside what was printed, where `papers.stored` finds them.
"""

from dataclasses import replace
from pathlib import Path

from decoding.jobs.job import Job, Stand
from decoding.papers.stored import own_records


class Benchmark(Job):
    """A benchmark run from the app: its folder is that of its figures, and its state is `kept` once they are there."""

    NOUN = "benchmark"
    ENDED = "Ended before its figures were written: run it again."

    @staticmethod
    def of(name: str) -> "Benchmark":
        """The benchmark of a name: `depth_divergence`."""
        return Benchmark(own_records(name))

    def stand(self) -> Stand:
        """Where it stands; its process says nothing but what it prints."""
        found, launched = super().stand(), self.launched()
        if launched is None or found.state not in ("starting", "failed"):
            return found
        if found.running:
            return replace(found, state="running")
        figures = self._figures
        if figures.exists() and figures.stat().st_mtime >= launched.started:
            return replace(found, state="kept", message="")
        return replace(found, message=self.last_words() or self.ENDED)

    def run(self) -> None:
        """Start it.

        Raises:
            JobError: it is at work, or no process can be started.
            DiskError: the folder cannot be made.
        """
        name = self.path.name
        self.start(("-m", f"{__name__}.{name}", "--json", str(self._figures)))

    def ask_to_stop(self) -> None:
        """End it: it hears nothing, and what it measured so far is lost."""
        self.end()

    @property
    def _figures(self) -> Path:
        return self.path / f"{self.path.name}-here.json"

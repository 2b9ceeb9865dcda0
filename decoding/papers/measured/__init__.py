"""Benchmarks behind paper results, each a command that the app runs as a job: see `papers.stored`. Torch-free."""

from decoding.jobs.job import Job
from decoding.papers.stored import own_records


class Benchmark(Job):
    """A benchmark run from the app, in the folder of its figures."""

    NOUN, UNIT = "benchmark", "steps"
    ENDED = "It ended before its results were written: run it again."

    @staticmethod
    def of(name: str) -> "Benchmark":
        """The benchmark of a name: `depth_divergence`."""
        return Benchmark(own_records(name))

    def run(self) -> None:
        """Start it; `JobError` where it is running or no process can be started, `DiskError` without a folder."""
        name = self.path.name
        figures = self.path / f"{name}-here.json"
        self.start(("-m", f"{__name__}.{name}", "--json", str(figures), "--job", str(self.path)))

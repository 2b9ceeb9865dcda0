"""Long-running jobs on pages: trainings, sweeps and the papers' benchmarks, with one list and progress view."""

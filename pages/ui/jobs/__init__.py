"""Long work as pages show it: trainings, sweeps and the papers' benchmarks in one list, with one view of progress."""

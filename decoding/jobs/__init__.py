"""Long work that outlives the app: trainings, sweeps and benchmarks, each a process of its own with a folder."""

"""Benchmarks behind paper results, each a command that the app runs as a job: see `papers.stored`."""

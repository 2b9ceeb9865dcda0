"""Benchmarks that exhibits are made of, each a command, which the app runs as a job: see `papers.stored`."""

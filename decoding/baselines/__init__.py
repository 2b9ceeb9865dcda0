"""Outside baselines: what a user would otherwise run."""

"""The page Train: start trainings, watch them, use their results."""

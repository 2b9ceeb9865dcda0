"""The page Train: trainings started, watched, and their results put to use."""

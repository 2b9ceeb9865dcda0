"""The linked view of a run, iteration by iteration, and the same as text."""

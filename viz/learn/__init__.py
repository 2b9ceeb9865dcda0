"""Puzzles on recorded iterations, and the stops of the guided tour."""

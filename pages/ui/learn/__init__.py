"""The page Learn: recorded runs worth a look, puzzles on real iterations, the guided tour."""

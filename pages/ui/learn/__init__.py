"""The page Learn: selected recorded runs, puzzles on real iterations, the guided tour."""

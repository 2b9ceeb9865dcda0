"""What the program gave once, so that moving its code cannot change it unseen; `python -m tests.golden` makes it."""

"""Temperature and top-p, and randomness as an object."""

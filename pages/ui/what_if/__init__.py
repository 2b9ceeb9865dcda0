"""The page What if: branches of a run, and two of them side by side."""

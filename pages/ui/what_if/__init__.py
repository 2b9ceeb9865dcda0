"""The page What if: branches of a run, two of them side by side."""

"""The page Verifiers: every way to accept tokens on one tree."""

"""The page Verifiers: every verifier on one tree."""

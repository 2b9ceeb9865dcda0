"""Another verifier, seed or setting from recorded logits, and forks of a run."""

"""The papers' methods by name: drafter, verifier, cache policy and defaults."""

"""Verifiers on one tree: the tree, their table, their charts."""

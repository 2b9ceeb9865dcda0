"""Whole iterations on a GPU: drafted, verified and committed without asking the host."""

"""Preallocated key/value rows, and the target's features beside them."""

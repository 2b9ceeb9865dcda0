"""Comparison of two records of a run, leaving out what depends on the clock."""

import dataclasses

import numpy as np

CLOCK = ("times", "started_s", "ended_s")


def differences(ours, reference):
    """Index and name of every field in which two lists of iterations differ."""
    assert len(ours) == len(reference) > 0
    names = [field.name for field in dataclasses.fields(ours[0]) if field.name not in CLOCK]
    return [
        (a.index, name)
        for a, b in zip(ours, reference, strict=True)
        for name in names
        if not _same(getattr(a, name), getattr(b, name))
    ]


def _same(a, b):
    if isinstance(a, np.ndarray):
        return a.shape == b.shape and a.dtype == b.dtype and np.array_equal(a, b, equal_nan=a.dtype.kind == "f")
    if dataclasses.is_dataclass(a):
        return type(a) is type(b) and all(
            _same(getattr(a, field.name), getattr(b, field.name)) for field in dataclasses.fields(a)
        )
    if isinstance(a, tuple | list):
        return len(a) == len(b) and all(map(_same, a, b))
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(_same(a[key], b[key]) for key in a)
    return a == b

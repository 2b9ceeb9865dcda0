"""Comparison of two records of a run, leaving out what depends on the clock."""

import dataclasses
import math

import numpy as np

CLOCK = ("times", "started_s", "ended_s")


def differences(ours, reference, near=0.0):
    """Index and name of every field in which two lists of iterations differ; numbers by more than `near` of them."""
    assert len(ours) == len(reference) > 0
    names = [field.name for field in dataclasses.fields(ours[0]) if field.name not in CLOCK]
    return [
        (a.index, name)
        for a, b in zip(ours, reference, strict=True)
        for name in names
        if not _same(getattr(a, name), getattr(b, name), near)
    ]


def _same(a, b, near):
    if isinstance(a, np.ndarray):
        rounded = a.dtype.kind == "f"
        if a.shape != b.shape:
            return False
        close = np.allclose(a, b, near, near, equal_nan=True) if rounded else np.array_equal(a, b)
        return a.dtype == b.dtype and close
    if dataclasses.is_dataclass(a):
        return type(a) is type(b) and all(
            _same(getattr(a, field.name), getattr(b, field.name), near) for field in dataclasses.fields(a)
        )
    if isinstance(a, tuple | list):
        return len(a) == len(b) and all(_same(*each, near) for each in zip(a, b, strict=True))
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(_same(a[key], b[key], near) for key in a)
    if isinstance(a, float) and isinstance(b, float):
        return a == b or math.isclose(a, b, rel_tol=near, abs_tol=near)
    return a == b

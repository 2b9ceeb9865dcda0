"""A disk that is found to be full when bytes reach it, as file systems tell it that allocate late."""

import errno
import os

import pytest


def fill_disk(patch: pytest.MonkeyPatch, after: int = 0) -> None:
    """Every write behind the first so many finds the disk full."""
    left = [after]

    def fsync(_descriptor):
        left[0] -= 1
        if left[0] < 0:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    patch.setattr(os, "fsync", fsync)

"""What the benchmark of the app under load takes for granted: that something happened in the middle of the work."""

import pytest

pytest.importorskip("playwright")

from benchmarks.load import Visitor, _has_ended, checks_of
from decoding.sampling.sampling import Sampling

FIGURES = {"cancelled_s": [0.2, 0.4], "free_s": 3.0, "before_mb": 900.0, "after_mb": 950.0}


def visitor(number, **seen):
    return Visitor(number, "dynatree", Sampling(), "One day", **seen)


def failing(visitors, cancels=4, **changed):
    checks = checks_of(visitors, dict.fromkeys(range(3), True), FIGURES | changed, cancels)
    return {what for what, holds in checks.items() if not holds}


def test_a_page_that_was_not_reloaded_in_the_middle_shows_nothing():
    well = [visitor(0), visitor(1, reloads=True, reloaded=True, found_again=True)]
    assert not failing(well)
    assert failing([*well, visitor(2, reloads=True)]) == {"pages were reloaded in the middle"}
    assert failing([visitor(0)]) == {"pages were reloaded in the middle"}
    lost = visitor(2, reloads=True, reloaded=True)
    assert failing([*well, lost]) == {"reloaded pages found their work"}


def test_a_few_cancels_at_work_are_not_enough():
    well = [visitor(1, reloads=True, reloaded=True, found_again=True)]
    assert failing(well, cancels=12) == {"a third of the cancelled were at work"}
    assert failing(well, cancelled_s=[0.1, 1.5]) == {"cancelled within 1 s"}


@pytest.mark.parametrize("words", ["40 tokens, length limit", "12 tokens, end of text"])
def test_both_ends_of_a_run_are_ends(words):
    assert _has_ended(words) and not _has_ended("12 tokens of at most 96")

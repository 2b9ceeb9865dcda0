"""Intervals over prompts: what they are, and that 95% of them hold what they are intervals of."""

import numpy as np
import pytest

from decoding.experiments.estimates import estimate, ratio_gain

EXPERIMENTS = 1000


def share_that_holds(count: int, interval, truth: float, seed: int = 0) -> float:
    """Of many experiments with as many prompts, the share whose interval holds the truth."""
    rng = np.random.default_rng(seed)
    found = [interval(rng.normal(10.0, 2.0, count), rng.normal(0.0, 0.5, count)) for _ in range(EXPERIMENTS)]
    return np.mean([each.low <= truth <= each.high for each in found])


@pytest.mark.parametrize("count", [3, 5, 12])
def test_intervals_of_gains_hold_the_truth_however_few_the_prompts(count):
    def gain(speeds, noise):
        return ratio_gain(1.2 * speeds + noise, speeds)

    assert share_that_holds(count, gain, 0.2) == pytest.approx(0.95, abs=0.025)


@pytest.mark.parametrize("count", [8, 20])
def test_intervals_of_means_are_widened_for_few_prompts(count):
    assert share_that_holds(count, lambda speeds, _: estimate(speeds, draws=1000), 10.0) == pytest.approx(
        0.95, abs=0.025
    )


def test_a_gain_is_that_of_the_means_with_students_t():
    found = ratio_gain(np.array([3.0, 3.0, 6.0]), np.array([2.0, 2.0, 2.0]))
    half = 4.302653 * np.std([1.5, 1.5, 3.0], ddof=1) / np.sqrt(3)
    assert (found.value, found.low, found.high) == pytest.approx((1.0, 1.0 - half, 1.0 + half), abs=1e-5)
    assert found.sign == 0 and found.prompts == 3
    assert ratio_gain(np.array([3.0]), np.array([2.0])).low == pytest.approx(0.5), "one prompt has no interval"

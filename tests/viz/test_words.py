"""Numbers in sentences: what is neither 0 nor 1 never reads so, and two numbers can be told apart."""

import pytest

from viz.tokens import apart, limit_and_drawn, percent


@pytest.mark.parametrize(
    ("probability", "said"),
    [
        (0.0, "0%"),
        (1.0, "100%"),
        (0.123, "12.3%"),
        (0.9996, "99.96%"),
        (0.0004, "0.04%"),
        (1e-7, "less than 0.01%"),
        (0.99996, "more than 99.99%"),
    ],
)
def test_a_share_is_never_all_or_nothing_by_rounding(probability, said):
    assert percent(probability) == said


@pytest.mark.parametrize(
    ("first", "second", "said"),
    [
        (0.27, 0.54, ("0.27", "0.54")),
        (0.6212, 0.6231, ("0.621", "0.623")),
        (0.004, 0.97, ("0.004", "0.97")),
        (0.9996, 0.5, ("0.9996", "0.50")),
        (0.3, 0.999, ("0.30", "0.999")),
        (0.0, 0.97, ("0", "0.97")),
        (1.0, 0.97, ("1", "0.97")),
    ],
)
def test_a_limit_and_a_draw_can_be_told_apart_and_read_neither_0_nor_1(first, second, said):
    assert apart(first, second) == limit_and_drawn(first, second) == said
    assert limit_and_drawn(first, None)[1] == "none"

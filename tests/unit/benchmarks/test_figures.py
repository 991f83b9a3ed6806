"""Rates, medians, spreads and ratios (design 9)."""

from __future__ import annotations

import pytest

from benchmarks.figures import Bound, Moment, Spread, cpu_per_thousand, quantile, rate, ratios

pytestmark = pytest.mark.once


def test_a_rate_is_taken_between_two_moments_so_that_the_start_does_not_count() -> None:
    begin, end = Moment(at=10.0, done=100, cpu=1.5), Moment(at=12.0, done=1100, cpu=2.0)

    assert rate(begin, end) == 500
    assert cpu_per_thousand(begin, end) == 0.5


def test_a_spread_is_the_median_between_the_extremes() -> None:
    assert Spread.of([3.0, 9.0, 1.0]) == Spread(3.0, 1.0, 9.0)
    assert Spread.of([1.0, 2.0]).median == 1.5


def test_ratios_compare_what_was_measured_in_the_same_round() -> None:
    """The median of the ratios, not the ratio of the medians: rounds differ, sides less."""
    ours, theirs = [100.0, 10.0, 40.0], [200.0, 10.0, 20.0]

    assert ratios(ours, theirs) == [0.5, 1.0, 2.0]


def test_a_side_with_a_missing_round_is_an_error() -> None:
    with pytest.raises(ValueError, match="shorter"):
        ratios([1.0, 2.0], [1.0])


@pytest.mark.parametrize(
    ("share", "expected"), [(0.5, 50.0), (0.99, 99.0), (1.0, 100.0), (0.001, 1.0)]
)
def test_a_quantile_is_a_measured_value(share: float, expected: float) -> None:
    values = [float(number) for number in range(100, 0, -1)]

    assert quantile(values, share) == expected


def test_a_quantile_of_one_value_is_that_value() -> None:
    assert quantile([7.0], 0.99) == 7.0


def test_a_floor_includes_its_limit_and_a_ceiling_does_not() -> None:
    """The issue: ratios "at least", latencies "below"."""
    floor, ceiling = Bound(0.9), Bound(20, is_floor=False)

    assert floor.holds(0.9)
    assert not floor.holds(0.899)
    assert ceiling.holds(19.9)
    assert not ceiling.holds(20)

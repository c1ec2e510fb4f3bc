"""What the best of several runs overstates."""

import math
from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from levelbench.measure.statistics import best_of, normal_minimum

PUBLISHED = {1: 0.0, 2: 0.56419, 3: 0.84628, 5: 1.16296, 10: 1.53875, 20: 1.86748, 50: 2.24907}
"""Expected greatest of n standard normal values (Harter 1961)."""


@pytest.mark.parametrize("count", PUBLISHED)
def test_the_expected_least_of_normal_values_is_the_published_one(count):
    assert normal_minimum(count) == pytest.approx(-PUBLISHED[count], abs=5e-6)


def test_two_and_three_normal_values_have_closed_forms():
    assert normal_minimum(2) == pytest.approx(-1 / math.sqrt(math.pi), rel=1e-12)
    assert normal_minimum(3) == pytest.approx(-1.5 / math.sqrt(math.pi), rel=1e-12)


@given(st.lists(st.floats(-100, 100), min_size=1, max_size=7), st.data())
def test_the_best_of_some_values_is_the_mean_over_all_choices(values, data):
    count = data.draw(st.integers(1, len(values)))
    least = [min(chosen) for chosen in combinations(values, count)]
    assert best_of(values, count) == pytest.approx(math.fsum(least) / len(least), abs=1e-9)


@pytest.mark.parametrize("count", [0, 4])
def test_more_than_there_are_cannot_be_chosen(count):
    with pytest.raises(ValueError, match="best of"):
        best_of([1.0, 2.0, 3.0], count)


def test_no_value_has_no_least():
    with pytest.raises(ValueError, match="1 or more"):
        normal_minimum(0)

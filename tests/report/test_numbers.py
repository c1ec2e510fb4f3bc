import doctest
import math

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from levelbench.measure.statistics import estimate
from levelbench.report import numbers
from levelbench.report.numbers import (
    BYTES,
    TIME,
    choose_unit,
    decimals_for,
    duration,
    duration_range,
    estimate_text,
    number,
    text_of,
)
from levelbench.report.numbers import with_interval as shown

finite = st.floats(-1e9, 1e9, allow_nan=False)
widths = st.floats(1e-6, 1e6)


def parsed(text):
    value, _, rest = text.partition(" [")
    return [float(each.replace(",", "")) for each in (value, *rest.rstrip("]").split(", "))]


def test_the_examples_in_the_docstrings_hold():
    assert doctest.testmod(numbers).failed == 0


@pytest.mark.parametrize(
    ("value", "low", "high", "text"),
    [
        (0.9123, 0.8513, 0.9812, "0.91 [0.85, 0.98]"),
        (0.8123, 0.7812, 0.8432, "0.81 [0.78, 0.84]"),
        (10.0, 9.99, 10.01, "10.000 [9.990, 10.010]"),
        (40.00000000000001, 40.0, 40.00000000000001, "40 [40, 40]"),
        (0.1 + 0.2, 0.3, 0.1 + 0.2, "0.300 [0.300, 0.300]"),
        (912.0, 850.0, 980.0, "912 [850, 980]"),
        (912.3, 850.2, 980.1, "910 [850, 980]"),
        (12.0, 11.0, 13.0, "12 [11, 13]"),
        (14431.2, 13021.8, 15987.4, "14,400 [13,000, 16,000]"),
        (-0.004, -0.3, 0.3, "0.0 [-0.3, 0.3]"),
        (17.1, 0.4523, 647.0, "17 [0.45, 650]"),
        (12.0, 4.0, 40.0, "12 [4, 40]"),
        (0.5113, 0.5081, math.inf, "0.511 [0.508, ∞]"),
        (107.0, 0.049, 240_000.0, "110 [0.049, 240,000]"),
        (0.107, 4.9e-5, 2.4e7, "0.11 [4.9e-5, 2.4e7]"),
        (math.nan, 1.0, 2.0, "not a number"),
        (math.inf, 1.0, math.inf, "∞"),
        (1.5, math.nan, 2.0, "1.50"),
    ],
)
def test_the_width_of_the_interval_decides_the_decimals(value, low, high, text):
    assert shown(value, low, high) == text


@pytest.mark.parametrize(
    ("value", "low", "high", "text"),
    [
        (42.6, 25.58, 61.53, "42.6 [25.6, 61.5]"),
        (6905.3, 5395.0, 9711.0, "6,905 [5,395, 9,711]"),
        (6.4, 5.0, 9.0, "6.40 [5, 9]"),
        (10.0, 9.99, 10.01, "10.000 [9.990, 10.010]"),
        (1.0, 0.98, 1.02, "1.00 [0.98, 1.02]"),
        (17.1, 0.4523, 647.4, "17.1 [0.452, 647]"),
        (0.107, 4.9e-5, 2.4e7, "0.107 [4.90e-5, 2.40e7]"),
        (0.0123, -0.31, 0.62, "0.012 [-0.310, 0.620]"),
        (0.25, 0.0, 0.5, "0.250 [0.000, 0.500]"),
        (0.9703, 0.9694, 0.9722, "0.9703 [0.9694, 0.9722]"),
        (40.0, 40.0, 40.0, "40 [40, 40]"),
    ],
)
def test_observed_extremes_are_not_rounded_by_their_distance(value, low, high, text):
    assert shown(value, low, high, observed=True) == text


def test_an_estimate_of_few_values_shows_its_extremes_and_one_of_many_only_what_its_interval_supports():
    few = estimate([0.0256, 0.0408, 0.0454, 0.0482, 0.0615])
    assert text_of(few) == "42.6 ms [25.6, 61.5]"
    many = estimate([0.0256, 0.0408, 0.0454, 0.0482, 0.0615, 0.0423])
    assert text_of(many) == "43 ms [31, 58]"


@given(finite, widths, st.floats(0, 1))
def test_rounding_moves_nothing_by_more_than_15_percent_of_the_width_or_the_sixth_digit(low, width, share):
    high = low + width
    value = low + share * width
    assume(not 0 < 3 * low < high)
    largest = max(abs(low), abs(high))
    allowed = max(0.15 * (high - low), 0.51 * 10.0 ** (math.floor(math.log10(largest)) - 5) if largest else 0.0)
    for text, exact in zip(parsed(shown(value, low, high)), (value, low, high), strict=True):
        assert abs(text - exact) <= allowed * (1 + 1e-9) + 1e-12


@given(st.floats(1e-6, 1e6), st.floats(1.01, 1e4), st.floats(0, 1))
def test_no_number_above_zero_is_rounded_to_nothing(low, factor, share):
    value = low * factor**share
    for text, exact in zip(parsed(shown(value, low, low * factor)), (value, low, low * factor), strict=True):
        assert text == pytest.approx(exact, rel=0.2)


@given(widths)
def test_one_or_two_digits_of_the_width_are_kept(width):
    digits = width * 10.0 ** decimals_for(width)
    assert 3.5 < digits < 35.6


@given(finite, finite, finite)
def test_a_value_is_never_shown_as_minus_zero(value, low, high):
    low, high = sorted((low, high))
    assert "-0" not in [part.strip("[]").rstrip("0").rstrip(".") for part in shown(value, low, high).split()]


@given(finite)
def test_without_a_spread_a_value_keeps_three_digits(value):
    assert float(number(value).replace(",", "")) == pytest.approx(value, rel=0.006, abs=1e-12)


@pytest.mark.parametrize(
    ("values", "symbol"),
    [
        ([0.912, 0.1], "s"),
        ([0.35], "ms"),
        ([4e-7], "ns"),
        ([179.0], "s"),
        ([200.0, 3.0], "min"),
        ([20000], "h"),
        ([], "s"),
    ],
)
def test_one_unit_of_time_is_chosen_for_a_column(values, symbol):
    assert choose_unit(values, TIME).symbol == symbol


def test_bytes_are_shown_in_binary_units():
    assert estimate_text(148_000_000, None, None, BYTES) == "141 MiB"


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.0, "0.0 s"), (59.96, "1 min 00 s"), (185.2, "3 min 05 s"), (7620, "2 h 07 min"), (-1, "–"), (math.nan, "–")],
)
def test_durations_read_as_people_say_them(seconds, text):
    assert duration(seconds) == text


def test_the_value_chooses_the_unit_however_far_its_interval_goes():
    assert estimate_text(0.107, 4.9e-5, 240.0) == "110 ms [0.049, 240,000]"


@pytest.mark.parametrize(
    ("low", "high", "text"),
    [
        (1.0, 6.0, "under 10 s"),
        (12.0, 40.0, "12 to 40 s"),
        (70.0, 100.0, "1 to 2 min"),
        (300.0, 310.0, "about 5 min"),
        (3600.0, 9000.0, "1.0 to 2.5 h"),
    ],
)
def test_a_range_of_times_is_told_in_the_unit_of_its_larger_end(low, high, text):
    assert duration_range(low, high) == text

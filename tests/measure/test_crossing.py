"""When a curve counts as having reached its target."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from levelbench.errors import UnknownNameError, UsageError
from levelbench.measure.crossing import RULES, Crossing, climb_of, find_crossing

CURVE = [0.90, 0.95, 0.93, 0.94, 0.96, 0.93, 0.95, 0.96]
SECONDS = [10.0, 20.0, 30.0, 40.0, 50.0, 60.0, 70.0, 80.0]


@pytest.mark.parametrize(
    ("rule", "expected"),
    [
        ("first", Crossing(1, 1, 20.0)),
        ("confirmed", Crossing(4, 3, 50.0)),
        ("sustained", Crossing(6, 6, 70.0)),
        ("final", Crossing(7, 7, 80.0)),
    ],
)
def test_each_rule_counts_at_its_own_evaluation(rule, expected):
    assert find_crossing(CURVE, 0.94, rule=rule, x=SECONDS) == expected


def test_interpolated_lies_on_the_line_between_two_evaluations():
    found = find_crossing(CURVE, 0.94, rule="interpolated", x=SECONDS)
    assert (found.index, found.position) == (1, pytest.approx(18.0))


def test_interpolated_counts_in_evaluations_without_positions():
    assert find_crossing(CURVE, 0.94, rule="interpolated").position == pytest.approx(0.8)


def test_positions_may_be_an_array():
    found = find_crossing(np.array(CURVE), 0.94, rule="interpolated", x=np.array(SECONDS))
    assert found.position == pytest.approx(18.0)


@pytest.mark.parametrize("before", [math.nan, math.inf * -1])
def test_interpolated_falls_back_to_the_evaluation_where_there_is_no_line(before):
    assert find_crossing([before, 0.95], 0.94, rule="interpolated", x=[1.0, 2.0]).position == 2.0
    assert find_crossing([0.95], 0.94, rule="interpolated", x=[3.0]).position == 3.0


def test_confirmed_is_the_default_and_other_rules_have_no_position_without_x():
    assert find_crossing(CURVE, 0.94) == Crossing(4, 3, None)


def test_one_lucky_evaluation_is_not_an_arrival():
    assert find_crossing([0.93, 0.94, 0.93, 0.94, 0.93], 0.94) is None
    assert find_crossing([0.93, 0.94, 0.93], 0.94, rule="first").index == 1


def test_a_single_evaluation_cannot_be_confirmed():
    assert find_crossing([0.99], 0.94) is None


def test_the_streak_can_be_longer():
    assert find_crossing([1, 1, 0, 1, 1, 1], 1, streak=3) == Crossing(5, 3, None)
    assert find_crossing(CURVE, 0.94, streak=1).index == find_crossing(CURVE, 0.94, rule="first").index


@pytest.mark.parametrize("rule", RULES)
def test_the_boundary_counts_in_both_directions(rule):
    assert find_crossing([0.94, 0.94], 0.94, rule=rule) is not None
    assert find_crossing([3.28, 3.28], 3.28, direction="lower", rule=rule) is not None


@pytest.mark.parametrize("rule", RULES)
def test_nan_never_reaches(rule):
    assert find_crossing([math.nan] * 3, 0.5, rule=rule) is None
    assert find_crossing([math.nan] * 3, 0.5, rule=rule, direction="lower") is None


@pytest.mark.parametrize(("quality", "direction"), [(math.inf, "higher"), (-math.inf, "lower")])
def test_infinity_never_reaches(quality, direction):
    assert find_crossing([quality] * 3, 0.5, direction=direction) is None


def test_nan_breaks_a_streak():
    assert find_crossing([0.95, math.nan, 0.95], 0.94) is None
    assert find_crossing([0.95, math.nan, 0.95], 0.94, rule="sustained").index == 2


@pytest.mark.parametrize("rule", RULES)
def test_an_empty_curve_reaches_nothing(rule):
    assert find_crossing([], 0.5, rule=rule) is None


def test_a_lower_target_is_reached_from_above():
    assert find_crossing([4.0, 3.2, 3.1], 3.28, direction="lower", x=[1, 2, 3]) == Crossing(2, 1, 3.0)


@given(st.lists(st.floats(0, 1), max_size=20), st.floats(0, 1))
def test_stricter_rules_count_no_earlier(curve, threshold):
    order = ["first", "confirmed"]
    found = [find_crossing(curve, threshold, rule=rule) for rule in order]
    if found[1] is not None:
        assert found[0].index <= found[1].first_index < found[1].index
    if find_crossing(curve, threshold, rule="sustained") is not None:
        assert find_crossing(curve, threshold, rule="final") is not None


@given(st.lists(st.floats(-10, 10), max_size=20), st.floats(-10, 10), st.sampled_from(sorted(RULES)))
def test_mirroring_the_curve_mirrors_the_direction(curve, threshold, rule):
    mirrored = find_crossing([-q for q in curve], -threshold, direction="lower", rule=rule)
    assert find_crossing(curve, threshold, rule=rule) == mirrored


def test_unknown_names_answer_with_the_nearest():
    with pytest.raises(UnknownNameError, match="confirmed"):
        find_crossing([1.0], 1.0, rule="confirm")
    with pytest.raises(UnknownNameError, match="higher"):
        find_crossing([1.0], 1.0, direction="hihger")


@pytest.mark.parametrize("wrong", [{"x": [1.0, 2.0]}, {"streak": 0}])
def test_what_cannot_be_meant_is_refused(wrong):
    with pytest.raises(UsageError):
        find_crossing([1.0], 1.0, **wrong)


def test_a_threshold_that_is_not_a_number_is_refused():
    with pytest.raises(UsageError, match="not a number"):
        find_crossing([1.0], math.nan)


qualities = st.lists(st.integers(0, 8).map(lambda each: each / 8), min_size=1, max_size=12)


@given(qualities, st.sampled_from(sorted(RULES)), st.sampled_from(["higher", "lower"]))
def test_a_climb_has_the_time_at_every_target_that_the_crossing_rule_gives(values, rule, direction):
    times = [float(at + 1) for at in range(len(values))]
    climb = climb_of(times, values, rule, direction)
    for threshold in {*values, 0.3}:
        found = find_crossing(values, threshold, direction=direction, rule=rule, x=times)
        assert climb.time_at(threshold) == (pytest.approx(found.position) if found else None)


def test_steps_of_a_climb_are_better_and_later_in_either_direction():
    assert climb_of([1, 2, 3, 4], [0.5, 0.4, 0.7, 0.6], "first", "higher").steps() == [(0.5, 1), (0.7, 3)]
    assert climb_of([1, 2, 3, 4], [0.5, 0.6, 0.4, 0.3], "first", "lower").steps() == [(0.5, 1), (0.4, 3), (0.3, 4)]

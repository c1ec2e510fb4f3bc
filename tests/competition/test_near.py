"""Near-duplicates of curves: copies, tampered and scaled ones are found; honest repetitions are not."""

from __future__ import annotations

import random
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from levelbench.competition.entries import SubmittedCurve
from levelbench.competition.rivals import LEAST_POINTS, MOST_RIVALS, match, rivals, sketch


def curve(seed, points=30, grid=0.0):
    """A curve as training makes it; ``grid`` rounds the quality, as a small validation split does."""
    draw = random.Random(seed)
    time_s, now = [], 0.0
    for _ in range(points):
        now += draw.uniform(0.95, 1.05)
        time_s.append(now)
    quality = [1 - 0.9 / (1 + at) + draw.gauss(0, 0.005) for at in range(points)]
    return SubmittedCurve(time_s, [round(each / grid) * grid if grid else each for each in quality])


def like(first, second):
    found = rivals([sketch(first), sketch(second)])
    return match(first, second) if 1 in found else None


def test_a_copy_is_found():
    assert like(curve(1), curve(1)) == (30, 30, 1.0)


def test_a_copy_with_a_few_points_changed_is_found():
    other = curve(1)
    for at in (3, 17, 29):
        other.quality[at] += 0.01
    assert like(curve(1), other) == (27, 30, 1.0)


@pytest.mark.parametrize("points", [LEAST_POINTS, 20])
def test_a_copy_that_was_cut_short_is_found(points):
    whole = curve(1)
    assert like(whole, SubmittedCurve(whole.time_s[:points], whole.quality[:points])) == (points, points, 1.0)


@pytest.mark.parametrize("scale", [0.5, 0.97, 3.0])
def test_a_copy_with_scaled_times_is_found(scale):
    whole = curve(1)
    found = like(whole, SubmittedCurve([scale * t for t in whole.time_s], list(whole.quality)))
    assert found is not None
    assert found.scale == pytest.approx(scale)


def test_a_scaled_copy_with_points_changed_is_found():
    whole = curve(1)
    quality = [q + 0.01 * (at in (2, 20)) for at, q in enumerate(whole.quality)]
    assert like(whole, SubmittedCurve([0.9 * t for t in whole.time_s], quality)).agree == 28


def test_the_same_run_measured_again_is_not_a_copy():
    # One seed gives the same qualities on every machine; its times are measured again.
    whole, again = curve(1), curve(2)
    assert like(whole, SubmittedCurve(again.time_s, list(whole.quality))) is None


def test_a_curve_begins_where_its_time_does():
    whole = curve(1)
    begun = SubmittedCurve([0.0, *whole.time_s], [0.1, *whole.quality])
    assert like(whole, begun).agree == 30


@pytest.mark.parametrize("short", [[0.5] * 3, [0.5] * 30])
def test_curves_that_say_too_little_are_not_compared(short):
    flat = SubmittedCurve([float(at + 1) for at in range(len(short))], short)
    assert like(flat, flat) is None


@hypothesis_settings(max_examples=25, deadline=None)
@given(st.integers(0, 10**6), st.sampled_from([0.0, 1 / 359]))
def test_honest_runs_are_never_called_copies(seed, grid):
    curves = [curve(seed + at, grid=grid) for at in range(8)]
    found = rivals([sketch(each) for each in curves])
    assert not any(match(curves[other], curves[at]) for at, others in found.items() for other in others)


@pytest.mark.parametrize("huge", [1e308, -1e308])
def test_missing_figures_are_not_compared(huge):
    times = [float(at + 1) for at in range(6)]
    assert sketch(SubmittedCurve(times, [huge, 0.1, 0.2, 0.3, 0.4, 0.5])) == b""
    assert sketch(SubmittedCurve([1e-9, 1.0, 2.0, 3.0, 1e300, 1e308], [0.1, 0.2, 0.3, 0.4, 0.5, 0.6])) == b""
    assert sketch(SubmittedCurve(times, [1e9, 0.1, 0.2, 0.3, 0.4, 0.5])) != b""


def test_many_copies_of_one_curve_are_compared_with_the_first_few_only():
    found = rivals([sketch(curve(1, points=12))] * 300)
    assert sorted(found) == list(range(1, 300))
    assert set().union(*found.values()) == set(range(MOST_RIVALS))


def test_a_sketch_says_the_same_wherever_it_is_made():
    whole = curve(1, points=6)
    assert sketch(whole) == sketch(SubmittedCurve([float(each) for each in whole.time_s], [*whole.quality]))
    assert len(sketch(whole)) % 8 == 0
    assert rivals([]) == rivals([b"", b""]) == {}


@pytest.mark.parametrize("scale", [1.0, 0.5, 2.0])
@pytest.mark.parametrize("kept", [slice(None, None, 2), slice(1, None, 2), slice(2, None, 3)])
def test_a_copy_with_points_left_out_is_found(kept, scale):
    whole = curve(1)
    thinned = SubmittedCurve([scale * time for time in whole.time_s[kept]], whole.quality[kept])
    for first, second, factor in ((whole, thinned, scale), (thinned, whole, 1 / scale)):
        found = like(first, second)
        assert found is not None
        assert (found.agree, found.scale) == (found.points, pytest.approx(factor))


@pytest.mark.parametrize("scale", [1.0, 0.5])
def test_a_copy_with_points_put_between_is_found(scale):
    whole = curve(1)

    def between(column):
        pairs = pairwise(column)
        return [value for a, b in pairs for value in (a, (a + b) / 2)] + [column[-1]]

    found = like(whole, SubmittedCurve([scale * time for time in between(whole.time_s)], between(whole.quality)))
    assert found is not None
    assert found.points == 30


@pytest.mark.parametrize("scale", [1.0, 0.5])
@pytest.mark.parametrize("place", [0, 2])
def test_a_copy_of_a_short_curve_with_one_point_more_is_found(place, scale):
    whole = curve(1, points=6)
    column = [scale * time for time in whole.time_s]
    time_s = [*column[:place], column[place] - 0.3 * scale, *column[place:]]
    quality = [*whole.quality[:place], 0.42, *whole.quality[place:]]
    assert like(whole, SubmittedCurve(time_s, quality)) == (6, 6, pytest.approx(scale))


@pytest.mark.parametrize("scale", [1.0, 0.5])
def test_a_copy_of_a_short_curve_without_its_first_point_is_found(scale):
    whole = curve(1, points=6)
    found = like(whole, SubmittedCurve([scale * time for time in whole.time_s[1:]], whole.quality[1:]))
    assert found == (5, 5, pytest.approx(scale))


@hypothesis_settings(max_examples=25, deadline=None)
@given(st.integers(0, 10**6), st.sampled_from([0.0, 1 / 359]))
def test_honest_runs_that_are_evaluated_at_other_intervals_are_not_copies(seed, grid):
    curves = [curve(seed + at, points=points, grid=grid) for at, points in enumerate((12, 13, 24, 36, 9))]
    assert not any(match(first, second) for first in curves for second in curves if first is not second)

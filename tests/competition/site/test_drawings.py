"""The site's figures as SVG: what is drawn where; any data are drawn or left out."""

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from levelbench.competition.site.parts import (
    curve_drawing,
    interval_bar,
    log_scale,
    phases_drawing,
    progress_drawing,
    time_ticks,
)
from levelbench.records.schema import Target


def test_a_curve_without_a_finite_point_is_not_drawn():
    assert curve_drawing([("run", [1.0], [float("nan")]), ("run", [], [])], Target("top1", 0.9)) == ""


def test_a_curve_ends_where_the_run_ended():
    drawing = curve_drawing([("run", [0.0, 5.0, 10.0], [0.1, 0.5, 0.9])], Target("top1", 0.9))
    assert re.search(r'd="M104\.0 [\d.]+L364\.0 [\d.]+L624\.0 [\d.]+"', drawing)


def test_the_record_over_time_is_a_link_a_step():
    records = [("2020-01-01", 100.0, "100 s", "a", "a.html"), ("2021-01-01", 10.0, "10 s", "b", "b.html")]
    drawing = progress_drawing([*records, ("no date", 1.0, "1 s", "c", "c.html")], "2022-01-01", "time")
    assert re.findall('href="([^"]*)" aria-label="([^"]*)"', drawing) == [
        ("a.html", "2020-01-01: 100 s, a"),
        ("b.html", "2021-01-01: 10 s, b"),
    ]


def marks(drawing):
    return re.findall(r'text-anchor="(?:end|middle)">([^<]*)</text>', drawing)


@pytest.mark.parametrize(
    ("value", "column", "said"),
    [
        (0.19, "time", ["100 ms", "200 ms", "500 ms"]),
        (1.2e-4, "latency", ["50 µs", "100 µs", "200 µs"]),
        (5000.0, "throughput", ["2,000/s", "5,000/s", "10,000/s"]),
        (4.8e-6, "cost", ["$0.000002", "$0.000005", "$0.00001"]),
        (2100.0, "cost", ["$1,000", "$2,000", "$5,000"]),
    ],
)
def test_the_axis_of_one_record_has_round_values_and_its_own_day(value, column, said):
    drawing = progress_drawing([("2026-11-21", value, "text", "who", "a.html")], "2026-11-21", column)
    assert marks(drawing) == [*said, "2026-11-21"]


@pytest.mark.parametrize(
    ("until", "days"),
    [
        ("2026-11-21", ["2026-11-03", "2026-11-21"]),
        ("2026-11-06", ["2026-11-03"]),
        ("2027-01-04", ["2026-12", "2027-01"]),
    ],
)
def test_no_day_is_marked_after_the_data_end(until, days):
    drawing = progress_drawing([("2026-11-03", 1.0, "text", "who", "a.html")], until, "time")
    assert [mark for mark in marks(drawing) if mark[:2] == "20" and "-" in mark] == days


def test_a_bar_without_an_interval_is_a_hollow_point():
    scale = log_scale(1.0, 100.0, 0.0, 100.0)
    assert 'class="point alone" cx="50.0"' in interval_bar(10.0, None, None, scale)
    assert 'x1="25.0" x2="75.0"' in interval_bar(10.0, 10**0.5, 10**1.5, scale)


def test_phases_are_shares_of_the_whole_and_an_unknown_one_is_drawn_as_other():
    drawing = phases_drawing({"forward": 3.0, "dream": 1.0})
    assert "forward 3 s (75 %)" in drawing
    assert 'class="p-other" x="480.00"' in drawing


FINITE = st.floats(allow_nan=False, allow_infinity=False)


@settings(max_examples=40)
@given(
    points=st.lists(st.tuples(FINITE, FINITE), max_size=5),
    threshold=FINITE,
    direction=st.sampled_from(["higher", "lower"]),
)
def test_any_finite_curve_is_drawn_or_left_out(points, threshold, direction):
    times, qualities = [x for x, _ in points], [y for _, y in points]
    drawing = curve_drawing([("run", times, qualities)], Target("top1", threshold, direction))
    assert drawing == "" or "nan" not in drawing


@settings(max_examples=40)
@given(values=st.lists(st.tuples(st.dates(), FINITE), max_size=4), column=st.sampled_from(["time", "cost"]))
def test_any_records_are_drawn_or_left_out(values, column):
    records = [(day.isoformat(), value, "text", "who", "a.html") for day, value in sorted(values)]
    drawing = progress_drawing(records, "2026-01-01", column)
    assert drawing == "" or "nan" not in drawing


@pytest.mark.parametrize(("low", "high", "ticks"), [(0.5, 4000, [1, 60, 3600]), (8, 700, [10, 60, 600])])
def test_an_axis_of_time_is_marked_in_times_people_count_in(low, high, ticks):
    assert time_ticks(low, high) == ticks


@given(st.lists(st.floats(0.0, 99.9), min_size=2, max_size=30), st.lists(st.floats(0.0, 1.0), min_size=30, max_size=30))
@settings(max_examples=50, deadline=None)
def test_every_evaluation_is_a_point_of_its_curve_to_a_tenth(gaps, qualities):
    times = [sum(gaps[: at + 1]) + at + 1 for at in range(len(gaps))]
    drawing = curve_drawing([("run 1", times, qualities[: len(times)])], Target("top1", 0.9))
    (way,) = re.findall('class="line s0" d="M([^"]*)"', drawing)
    assert re.fullmatch(r"(-?\d+\.\d -?\d+\.\d)(L-?\d+\.\d -?\d+\.\d)*", way)
    points = [tuple(map(float, point.split())) for point in way.split("L")]
    assert len(points) == len(times)
    for (x, _), time in zip(points, times, strict=True):
        assert abs(x - (104 + 520 * time / times[-1])) < 0.051
    # Larger values are higher up.
    for (_, one), (_, other), before, after in zip(points, points[1:], qualities, qualities[1:], strict=False):
        assert (one - other) * (after - before) >= 0

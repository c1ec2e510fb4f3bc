"""However small or large what an author states is, a page says it in few characters."""

import math
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.competition.site.by_hand import board, entry, submission

from levelbench.competition.entries import Inference, SystemPrice, TuningEffort
from levelbench.competition.figures import COLUMNS, BoardFigure
from levelbench.competition.site import brief, brief_interval, figure_text
from levelbench.competition.site.pages import entry_page
from levelbench.competition.site.parts import progress_drawing

LONG = 24
"""The most characters of a figure without its interval: of a billion dollars, with its cents."""
POSITIVE = st.floats(min_value=0.0, allow_infinity=False, allow_nan=False)


@given(POSITIVE, st.sampled_from(COLUMNS))
def test_a_figure_is_short_whatever_it_is(value, column):
    assert len(figure_text(column, BoardFigure(value), "significant")) <= LONG


@given(st.floats(min_value=0.0, max_value=1e300))
def test_a_short_number_is_the_number(value):
    assert math.isclose(float(brief(value).replace(",", "")), value, rel_tol=6e-3, abs_tol=5e-324)


@given(st.lists(POSITIVE, min_size=3, max_size=3).map(sorted))
def test_an_interval_is_short_and_holds_its_value(bounds):
    low, value, high = bounds
    text = brief_interval(value, low, high)
    assert len(text) <= 3 * LONG
    shown = [float(each.replace(",", "")) for each in re.fullmatch(r"(\S+) \[(\S+), (\S+)\]", text).groups()]
    assert shown[1] <= shown[0] <= shown[2]


@pytest.mark.parametrize("value", [1e-300, 1e300])
def test_no_page_of_an_entry_has_a_long_row_of_digits(value):
    measured = Inference(
        "server", 1, 1, value, mean_latency_s=value, quantiles_s={"0.9": value}, estimate_s=value, cost_usd=value,
        throughput_per_s=value, target_per_s=value, latency_bound_s=value,
    )  # fmt: skip
    stated = submission(price=SystemPrice(value), inference=[measured], tuning=TuningEffort(0, value, value))
    page = entry_page(board([]), entry("a", best_s=value, n=2, expected_with_restarts_s=value), stated, [])
    assert max(map(len, re.findall(r"[\d,.]+", page))) <= LONG


@pytest.mark.parametrize(("column", "value"), [("cost", 3e-16), ("inference_cost", 1e18), ("latency", 1e-9)])
def test_the_smallest_and_the_largest_that_are_possible_are_drawn(column, value):
    drawing = progress_drawing([("2024-05-01", value, "x", "a", "entries/a.html")], "2024-06-01", column)
    texts = re.findall(r"<text[^>]*>([^<]*)</text>", drawing)
    assert "x" in texts
    assert max(map(len, texts)) <= LONG

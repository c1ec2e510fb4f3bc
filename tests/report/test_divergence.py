"""The figure of how far an optimizer parts from its reference."""

import numpy as np
import pytest
from tests.report.pages import needs_matplotlib

from levelbench.errors import UsageError
from levelbench.report.analyses import Way, write_divergence


def way(problem, values, tolerance=1e-9):
    return Way(problem, np.asarray(values), np.asarray(values), tolerance)


@needs_matplotlib
def test_steps_are_on_a_logarithmic_axis_and_every_line_and_tolerance_is_named(tmp_path):
    short, long = np.full(100, 1e-16), np.full(1000, 1e-15)
    ways = [way("quadratic", short), way("schedule", short), way("long", long), way("float32", short, 1.5e-5)]
    text = write_divergence(ways, tmp_path / "way.svg", "Adam").read_text()
    for step in ("1", "10", "100", "1,000"):
        assert f"<!-- {step} -->" in text
    for label in ("quadratic", "schedule", "long", "float32"):
        assert f"<!-- {label} -->" in text
    assert "<!-- 1.5e-05 allowed: float32 -->" in text
    assert "<!-- 1.0e-09 allowed: the others -->" in text
    assert "<!-- ≤1e-17 -->" in text


@needs_matplotlib
@pytest.mark.parametrize("values", [[0.0, 1e-3, 1e300], [np.inf, np.nan]], ids=str)
def test_nothing_infinity_and_what_is_on_its_way_there_are_drawn(tmp_path, values):
    text = write_divergence([way("quadratic", values)], tmp_path / "way.svg", "Adam").read_text()
    assert "<!-- 1.0e-09 allowed: all problems -->" in text


def test_nothing_to_compare_with_is_no_figure(tmp_path):
    with pytest.raises(UsageError, match="--reference"):
        write_divergence([], tmp_path / "way.svg", "Adam")

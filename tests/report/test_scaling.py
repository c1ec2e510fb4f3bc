"""Tables and figure of how a task scales."""

from dataclasses import dataclass
from types import SimpleNamespace

import pytest

from levelbench.analysis.scaling import BASE, fit_scaling
from levelbench.measure.statistics import estimate, wilson
from levelbench.records.ranks import Teamwork
from levelbench.report.distributed import (
    _draw_laws,
    draw_efficiencies,
    laws_table,
    predictions_table,
    scaling_table,
    teamwork_table,
    write_scaling,
)
from levelbench.report.tables import Absent, Number, lay_out, to_text


@dataclass(frozen=True)
class Efficiency:
    value: float | None
    low: float | None = None
    high: float | None = None
    reason: str = ""


TEAM = Teamwork(2, True, 0.01, 0.4, 0.1, 1.2, 800.0, 800.0, 2.0, 800.0, 2.0, None, (0.0, 1.0, 3.0), (0.5, 0.25))


def point(ranks, per_epoch, teamwork=(TEAM,)):
    return SimpleNamespace(
        label=f"digits[ranks={ranks}]",
        ranks=ranks,
        threads=1,
        several_threads=(),
        crowded=per_epoch.value is None,
        scheme="all-reduce" if ranks > 1 else "",
        n=3,
        arrived=3,
        reached=wilson(3, 3),
        time_to_accuracy_s=estimate([1.0, 1.1, 1.2]),
        epoch_s=estimate([0.1, 0.1, 0.11]),
        samples_to_target=estimate([640.0, 640.0, 640.0]),
        teamwork=teamwork if ranks > 1 else (),
        per_epoch=per_epoch,
        to_accuracy=per_epoch,
        level=0.95,
        team=lambda name: None if (value := getattr(TEAM, name)) is None else estimate([value]),
    )


POINTS = [
    point(1, Efficiency(1.0, reason=BASE)),
    point(2, Efficiency(0.8, 0.7, 0.9)),
    point(4, Efficiency(None, reason="threads outnumbered cores")),
]
PREDICTED = [
    SimpleNamespace(
        label="all-reduce",
        ranks=64,
        step_s=estimate([0.1, 0.11]),
        communicate_share=0.3,
        efficiency=Efficiency(0.6, 0.5, 0.7),
        sent_bytes=1e6,
        messages=126.0,
        time_to_target_s=None,
    )
]


def cell(table, row, key):
    return table.rows[row][[column.key for column in table.columns].index(key)]


def test_an_efficiency_that_is_not_claimed_says_why():
    table = scaling_table("t", POINTS)
    assert cell(table, 1, "efficiency_per_epoch") == Number(0.8, 0.7, 0.9)
    assert cell(table, 2, "efficiency_to_accuracy") == Absent("threads outnumbered cores")


def test_what_was_sent_is_shown_with_what_was_predicted():
    table = teamwork_table(POINTS)
    assert len(table.rows) == 2
    assert cell(table, 0, "sent_bytes").value == cell(table, 0, "predicted_bytes").value == 800
    assert cell(table, 0, "staleness").text == "1, 3"
    assert cell(table, 0, "divergence").text == "0.25"


def test_a_law_without_a_loss_to_fit_has_empty_columns_and_the_reason():
    text = to_text(laws_table([fit_scaling("accuracy", {1: [73.8], 4: [10.7]}, unit="accelerator")]))
    assert "no loss to fit" in text
    assert "without bound" not in text
    assert "56.1" not in text


def test_one_process_has_no_table_of_ranks():
    assert teamwork_table(POINTS[:1]) is None


def test_every_prediction_says_that_it_is_one():
    table = predictions_table(PREDICTED)
    assert "predicted" in table.rows[0][0].text
    assert "nothing here was measured" in table.title
    assert lay_out(table)


@pytest.mark.parametrize("predicted", [[], PREDICTED])
def test_the_figure_is_drawn_with_and_without_predictions(tmp_path, predicted):
    pytest.importorskip("matplotlib")
    path = write_scaling("Scaling of digits", POINTS, predicted, tmp_path / "scaling.svg")
    text = path.read_text()
    assert text.startswith("<?xml")
    assert "a point; bars: 95 % intervals)" in text


def test_the_line_of_perfect_scaling_looks_like_no_law():
    pytest.importorskip("matplotlib")
    from matplotlib.figure import Figure

    axes = Figure().add_subplot()
    draw_efficiencies(axes, POINTS, (), ["blue"], "black")
    perfect = axes.lines[0].get_linestyle()
    before = len(axes.lines)
    times = {1: [10.0, 10.1, 9.9], 2: [5.6, 5.5, 5.7], 4: [3.3, 3.2, 3.4]}
    _draw_laws(axes, [fit_scaling(each, times, unit="rank") for each in ("epoch", "accuracy")])
    styles = {line.get_linestyle() for line in axes.lines[before:]}
    assert len(styles) == 2
    assert perfect not in styles


@pytest.mark.parametrize(
    ("times", "shown"),
    [
        ({1: [4.0, 4.1, 4.05], 2: [8.0, 8.1, 8.2], 4: [20.0, 20.5, 21.0]}, None),
        ({1: [4.0, 4.3, 3.9], 2: [3.9, 4.2, 4.2], 4: [4.0, 4.2, 4.1]}, 1.0),
    ],
    ids=["far slower", "no faster"],
)
def test_no_serial_share_is_above_the_whole_time(times, shown):
    law = fit_scaling("epoch", times)
    assert law.serial > 1
    (cell,) = (row[4] for row in laws_table([law]).rows if "Amdahl" in row[0].text)
    if shown is None:
        assert "more ranks take longer than one" in cell.reason
    else:
        assert (cell.value, cell.high) == (shown, 1.0)
        assert cell.low < 1


def test_no_bars_are_named_where_no_efficiency_has_an_interval(tmp_path):
    pytest.importorskip("matplotlib")
    bare = [POINTS[0], point(2, Efficiency(0.8, reason="not interleaved"))]
    text = write_scaling("Scaling of digits", bare, (), tmp_path / "scaling.svg").read_text()
    assert "a point; no intervals)" in text
    assert "95 % intervals" not in text


def test_an_efficiency_without_an_interval_says_so_and_its_base_does_not():
    table = scaling_table("t", [POINTS[0], point(2, Efficiency(0.8, reason="not interleaved"))])
    assert cell(table, 0, "efficiency_per_epoch") == Number(1.0)
    assert cell(table, 1, "efficiency_per_epoch") == Number(0.8, remark="(no interval)")


def test_an_interval_beyond_the_axis_ends_in_an_arrow():
    pytest.importorskip("matplotlib")
    from matplotlib.figure import Figure

    axes = Figure().add_subplot()
    draw_efficiencies(axes, [POINTS[0], point(2, Efficiency(0.8, 0.01, 90.0))], (), ["blue"], "black")
    assert axes.get_ylim()[1] < 3
    assert "^" in {line.get_marker() for line in axes.lines}


def test_a_law_by_which_more_ranks_are_slower_has_no_greatest_speed_up():
    times = {1: [4.0, 4.1, 4.05], 2: [8.0, 8.1, 8.2], 4: [20.0, 20.5, 21.0]}
    text = to_text(laws_table([fit_scaling("epoch", times)]))
    assert "none: more are slower" in " ".join(text.split())
    assert "[1, 1]" not in text

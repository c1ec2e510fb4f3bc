"""The figure of a search."""

import pytest

from levelbench.analysis.tuning import TunedSide, TuningTrial
from levelbench.report.tuning import _draw


def trial(number, time_s):
    return TuningTrial(number, {"lr": 0.1}, time_s, 0.9, 1.0, time_s or 9.0, False, f"{number}.jsonl")


def test_the_best_so_far_stays_until_the_last_trial():
    pytest.importorskip("matplotlib")
    from matplotlib.figure import Figure

    axes = Figure().add_subplot()
    times = {1: None, 2: 4.0, 3: 3.0, 4: None}
    _draw(axes, [TunedSide("digits", ("lr=log(0.001,1)",), tuple(map(trial, times, times.values())), "trials")])
    best = axes.lines[-1]
    assert list(best.get_xdata()) == [2, 3, 4]
    assert list(best.get_ydata()) == [4.0, 3.0, 3.0]


def test_a_side_that_never_reached_the_target_has_no_best():
    pytest.importorskip("matplotlib")
    from matplotlib.figure import Figure

    axes = Figure().add_subplot()
    _draw(axes, [TunedSide("digits", ("lr=log(0.001,1)",), (trial(1, None), trial(2, None)), "trials")])
    assert list(axes.lines[-1].get_xdata()) == []
    assert axes.get_legend() is not None


def test_a_trial_that_missed_stands_open_at_the_time_that_it_took():
    pytest.importorskip("matplotlib")
    from matplotlib.figure import Figure

    axes = Figure().add_subplot()
    _draw(axes, [TunedSide("digits", ("lr=log(0.001,1)",), (trial(1, 4.0), trial(2, None)), "trials")])
    reached, missed, _ = axes.lines
    assert (list(reached.get_xdata()), list(reached.get_ydata())) == ([1], [4.0])
    assert (list(missed.get_xdata()), list(missed.get_ydata()), missed.get_fillstyle()) == ([2], [1.0], "none")
    assert "open: missed the target after so long" in axes.get_title("left")

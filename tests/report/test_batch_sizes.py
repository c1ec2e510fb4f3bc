"""Tables and the figure of batch sizes: what they show, whatever the runs are called."""

import dataclasses
import warnings
from xml.etree import ElementTree as ET

import msgspec
import pytest
from tests.report.pages import PAYLOADS, needs_matplotlib

from levelbench.analysis.batch_size import LearningRateTrial, NoiseScale, choose_rate, study_batch_size
from levelbench.measure.statistics import estimate
from levelbench.records.summary import RunGroup, summarise
from levelbench.report import notebook
from levelbench.report.batch_sizes import _apart, _draw, _round_values, batch_size_tables, write_batch_size
from levelbench.report.numbers import number
from levelbench.report.tables import to_text


@pytest.fixture
def study(make):
    """Three sizes of three runs; at the largest one of three missed."""
    groups = []
    for size, samples in ((64, 9000), (256, 12_000), (1024, 30_000)):
        runs = [
            msgspec.structs.replace(
                summarise(make(seed=seed)),
                id=f"{size}-{seed}",
                reached=(missed := size == 1024 and seed == 1) is False,
                time_to_accuracy_s=None if missed else samples / 1000 + seed,
                given_up_s=40.0 if missed else None,
                samples_to_target=None if missed else samples + 500 * seed,
                steps_to_target=None if missed else (samples + 500 * seed) // size,
                samples_between=[],
                settings={"batch": size, "lr": 0.01},
                environment={"machine": {"id": "m1"}},
            )
            for seed in (1, 2, 3)
        ]
        groups.append(RunGroup(f"digits[batch={size}]", str(size), runs[0].specification, tuple(runs)))
    trials = [LearningRateTrial(64, 0.01, 9000, 0.97), LearningRateTrial(64, 0.02, float("inf"), 0.5)]
    noise = NoiseScale(estimate([90.0, 100.0, 110.0]), 64, ())
    return study_batch_size(groups, {"1024-1": (40_000, 40)}, tuned=[choose_rate(trials)], noise=noise)


def test_the_table_has_all_three_figures_and_the_share_that_reached(study):
    text = to_text(batch_size_tables(study)[0], width=200)
    for word in ("samples to target", "samples a second", "time to accuracy", "steps to", "2/3 [21 %, 94 %]", "(2/3)"):
        assert word in text.replace("\n", " ")


def test_the_critical_size_stands_beside_the_noise_scale(study):
    _, critical, _ = batch_size_tables(study)
    assert critical.name == "critical"
    assert [row[0].text.split(",")[0] for row in critical.rows][::3] == ["critical batch size", "gradient noise scale"]
    assert critical.rows[0][1].low < study.critical.size < critical.rows[0][1].high


def test_a_fit_to_the_first_time_at_the_target_is_said_to_be_one(study):
    at = study.critical
    bracketed = dataclasses.replace(at, fit=dataclasses.replace(at.fit, bracketed=9))
    assert "without the evaluation that confirms it" in to_text(
        [batch_size_tables(dataclasses.replace(study, critical=bracketed))[1]][0], width=300
    )
    assert "confirms" not in to_text(batch_size_tables(study)[1], width=300)


def test_every_trial_is_shown_and_which_was_chosen(study):
    trials = batch_size_tables(study)[-1]
    assert [(row[1].value, row[-1].text) for row in trials.rows] == [(0.01, "yes"), (0.02, "")]


@pytest.mark.slow
@needs_matplotlib
@pytest.mark.parametrize("title", ["digits", *(each for each in PAYLOADS if "\u4efb" not in each)])
def test_the_figure_is_the_same_file_each_time_whatever_the_title(study, tmp_path, title):
    found = dataclasses.replace(study, title=title)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        first, second = (write_batch_size(found, tmp_path / name).read_text() for name in ("a.svg", "b.svg"))
    assert first == second
    assert "<script" not in first
    ET.fromstring(first)
    for label in ("samples to the target", "samples a second", "time to accuracy, s"):
        assert label in first


def test_brackets_of_few_runs_are_said_to_be_the_lowest_and_the_highest(study):
    sizes, critical, *_ = batch_size_tables(study)
    assert "Brackets of fewer than six runs are the lowest and the highest." in sizes.notes
    assert critical.notes[-1].startswith("Noise scale: brackets of fewer than six")


@needs_matplotlib
def test_a_study_without_a_critical_size_is_drawn_without_a_law(study, tmp_path):
    found = dataclasses.replace(study, critical=None, noise=None)
    assert b"critical size" not in write_batch_size(found, tmp_path / "a.svg").read_bytes()
    assert b"critical size" in write_batch_size(study, tmp_path / "b.svg").read_bytes()


@needs_matplotlib
def test_a_notebook_shows_answers_tables_and_the_figure(study):
    html = notebook.SHOWN["levelbench.analysis.batch_size", "BatchSizeStudy"](study)
    assert "critical batch size" in html
    assert "<svg" in html
    assert "<table" in html


@needs_matplotlib
def test_the_band_is_named_as_the_interval_of_the_critical_size(study, tmp_path):
    text = write_batch_size(study, tmp_path / "a.svg").read_text()
    assert f"interval of the critical size, {number(study.critical.size)}" in text
    without = dataclasses.replace(study, critical=dataclasses.replace(study.critical, interval=None))
    assert "interval of the critical size" not in write_batch_size(without, tmp_path / "b.svg").read_text()


def test_names_of_sizes_are_left_out_rather_than_drawn_over_each_other():
    sizes = [2**power for power in range(5, 13)]
    assert _apart(sizes, 32 / 1.3, 4096 * 1.3) == [64, 256, 1024, 4096]
    assert _apart([64, 256, 1024], 64 / 1.3, 1024 * 1.3) == [64, 256, 1024]
    assert _apart([100, 101], 80, 130) == [101]


@pytest.mark.parametrize("ends", [(990.0, 1020.0), (9.82, 10.06), (1.0, 5.1), (3e3, 7e4), (1e-6, 1e9)])
def test_an_axis_of_any_width_has_some_round_values_and_not_too_many(ends):
    pytest.importorskip("matplotlib")
    ticks = _round_values(*ends)
    assert 3 <= len(ticks) <= 8
    assert all(ends[0] <= each <= ends[1] for each in ticks)


@needs_matplotlib
def test_rates_that_are_all_the_same_are_drawn_without_a_warning(study, tmp_path):
    same = estimate([1000.0, 1000.0, 1000.0])
    points = tuple(dataclasses.replace(point, samples_per_s=same) for point in study.points)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        write_batch_size(dataclasses.replace(study, points=points), tmp_path / "a.svg")


@needs_matplotlib
def test_the_law_lies_within_the_axes_also_far_below_the_points(study):
    from matplotlib.figure import Figure

    found = dataclasses.replace(study, critical=dataclasses.replace(study.critical, samples=100.0))
    figure = Figure()
    _draw(figure, found)
    left = figure.axes[0]
    law = next(line for line in left.lines if line.get_label().startswith("fit"))
    low, high = left.get_ylim()
    assert low < min(law.get_ydata()) <= max(law.get_ydata()) < high

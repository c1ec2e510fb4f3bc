"""Tables and figures of stability and thresholds: what they show, whatever the arms are called."""

import dataclasses
import warnings
from types import SimpleNamespace
from xml.etree import ElementTree as ET

import msgspec
import pytest
from benchmarks.analysis import experiment
from tests.report.pages import PAYLOADS, needs_matplotlib

from levelbench.analysis.composition import compose
from levelbench.analysis.factorial import designs
from levelbench.analysis.stability import stability
from levelbench.analysis.threshold import TimedArm, TimedCurve, sweep
from levelbench.records.schema import Target
from levelbench.report.analyses import arms_table, effects_table, singles_table, write_composition
from levelbench.report.studies import (
    _draw_stability,
    _draw_threshold,
    curve_points_table,
    quantiles_table,
    shortened_table,
    stability_tables,
    sweep_points_table,
    threshold_tables,
    write_stability,
    write_threshold,
)
from levelbench.report.tables import Absent, to_json, to_text
from levelbench.report.why import _draw_why

TOP1 = Target("top1", 0.94)

pytestmark = pytest.mark.sampled(3)


@pytest.fixture
def groups(make, group):
    """Groups of the given labels, of four runs each."""

    def of(*labels):
        ((only, _),) = group([make(seed=seed, speed_s=0.04 + 0.001 * seed) for seed in range(4)])
        return [dataclasses.replace(only, label=label) for label in labels]

    return of


def arms(*labels, scale=1.0):
    curves = [TimedCurve((scale, 2 * scale, 3 * scale), (0.9, 0.93, quality), "end") for quality in (0.94, 0.95)]
    return [TimedArm(label, tuple(curves), "first") for label in labels]


def test_the_reached_share_has_its_interval_even_if_all_runs_arrived(groups):
    found = [stability(each) for each in groups("digits")]
    text = to_text(stability_tables(found, groups("digits"))[0])
    assert "4/4 [51 %, 100 %]" in text
    assert "Time to accuracy: geometric mean" in text


def test_it_is_said_where_runs_can_never_arrive_since_their_epochs_were_done(groups):
    (arrived,) = groups("digits")
    missed = {"reached": False, "time_to_accuracy_s": None, "given_up_s": 1.0, "trained_out": True}
    runs = (*arrived.runs[:3], msgspec.structs.replace(arrived.runs[3], **missed))
    text = to_text(stability_tables([stability(dataclasses.replace(arrived, runs=runs))])[1])
    assert "so many runs did not reach the target" in text
    assert "can never arrive" in text


def test_quantiles_of_few_runs_say_which_brackets_are_ranges(groups):
    found = [stability(each) for each in groups("digits")]
    (by,) = (each for each in stability_tables(found) if each.name == "reached_by")
    assert by.notes == (f"Brackets: 95 % intervals; at 50 % {RANGES.format(4)}.",)
    (row,) = to_json(quantiles_table(found, methods=True))["rows"]
    assert (row["by_0.25_method"], row["by_0.5_method"]) == ("exact order statistics", "lowest to highest")


def test_the_points_of_a_curve_are_its_steps(groups):
    found = [stability(each) for each in groups("a", "b")]
    assert len(curve_points_table(found).rows) == sum(len(each.curve.times) for each in found)


def test_a_table_of_many_arms_is_shortened_with_a_note():
    found = sweep(arms(*(f"arm {at}" for at in range(20))), [0.9, 0.95], 0.9)
    swept = next(each for each in threshold_tables(found, TOP1) if each.name == "sweep")
    short = shortened_table(swept)
    assert (len(swept.rows), len(short.rows)) == (20, 12)
    assert "8 more rows" in short.notes[-1]


def test_a_table_of_few_arms_is_not():
    found = sweep(arms("a", "b"), [0.9, 0.95], 0.9)
    swept = threshold_tables(found, TOP1)[0]
    assert shortened_table(swept) is swept


@needs_matplotlib
@pytest.mark.parametrize("scale", [1e-6, 1.0, 1e5])
def test_figures_are_drawn_whatever_the_labels_and_times(groups, tmp_path, scale):
    labels = [f"{at} {each}" for at, each in enumerate([*PAYLOADS, "fashion-mnist[framework=torch,lr=0.1]"])]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        swept = write_threshold(sweep(arms(*labels, scale=scale), [0.9, 0.95], 0.9), TOP1, tmp_path / "t.svg")
        curves = write_stability([stability(each) for each in groups(*labels[:8])], tmp_path / "s.svg")
    for path in (swept, curves):
        ET.fromstring(path.read_text())
        assert "<script" not in path.read_text()


@needs_matplotlib
def test_a_sweep_that_nothing_reached_is_drawn_without_a_curve(tmp_path):
    found = sweep(arms("a"), [0.99, 0.995], 0.99)
    ET.fromstring(write_threshold(found, TOP1, tmp_path / "t.svg").read_text())


@pytest.mark.parametrize(
    ("ended", "runs", "said"),
    [
        ("unknown", 1, "it stopped before that: not known"),
        ("target", 3, "no run reached it (3 of 3 stopped before that: not known)"),
        ("end", 1, "no run reached it"),
    ],
)
def test_of_runs_that_stopped_at_their_first_crossing_it_is_not_said_that_they_never_confirmed_it(ended, runs, said):
    curves = tuple(TimedCurve((1.0, 2.0), (0.9, 0.94), ended) for _ in range(runs))
    rules = threshold_tables(sweep([TimedArm("a", curves, "first")], [0.94], 0.94), TOP1)[1]
    assert next(cell.reason for cell in rules.rows[0] if isinstance(cell, Absent)) == said


def test_runs_without_an_evaluation_reach_nothing():
    found = sweep([TimedArm("a", (TimedCurve((), (), "end"),), "confirmed")], [0.9], 0.9)
    assert found.cells[0][0].reached == 0
    assert found.limits[0].any is None
    assert "reaches" in to_text(threshold_tables(found, TOP1)[-1])


@needs_matplotlib
def test_the_figure_of_thresholds_has_the_number_of_runs(tmp_path):
    arms = [
        TimedArm(name, tuple(TimedCurve((1.0, 2.0), (0.5, 0.95), "end") for _ in range(3)), "first") for name in "ab"
    ]
    path = write_threshold(sweep(arms, [0.9], 0.9), Target("top1", 0.9), tmp_path / "t.svg")
    assert "a (n = 3)" in path.read_text()


def composed(more=lambda on: 1, **replaced):
    """A composition of a and b, neither of which changes the time; ``more`` multiplies the samples of an arm."""
    groups = []
    for on, group in zip(designs("ab"), experiment(designs("ab"), lambda on: 10.0, names=("a", "b")), strict=True):
        changed = (replaced | {"samples_to_target": run.samples_to_target * more(on)} for run in group.runs)
        runs = tuple(msgspec.structs.replace(run, **each) for run, each in zip(group.runs, changed, strict=True))
        groups.append(dataclasses.replace(group, runs=runs))
    return compose(groups, {"a": 0, "b": 0})


def meanings(found):
    table = effects_table(found)
    at = [column.key for column in table.columns].index("meaning")
    return [row[at].text for row in table.rows]


def test_an_effect_on_samples_and_time_per_sample_alone_is_said():
    said = "more samples, less time per sample; no effect on the time shown"
    found = composed(lambda on: 4 if "a" in on else 1)
    assert meanings(found) == [said, "no effect shown", "no interaction shown"]


def test_an_interaction_of_samples_alone_is_said():
    said = "more samples together, less time per sample together; no interaction of the time shown"
    assert meanings(composed(lambda on: 4 if len(on) == 2 else 1))[-1] == said


def test_the_table_of_arms_says_what_factors_are_when_off_and_on():
    table = arms_table(composed())
    assert table.notes[-1] == "Factors, off -> on: a 0 -> 1; b 0 -> 1."


@pytest.mark.parametrize(("crossing", "said"), [("final", True), ("confirmed", False)])
def test_runs_of_a_fixed_length_are_said_to_tell_nothing_of_samples(crossing, said):
    found = composed(crossing=crossing)
    for table in (singles_table(found), effects_table(found)):
        assert ("end with their schedules" in table.notes[0]) is said


@needs_matplotlib
def test_the_figure_of_a_composition_has_its_number_of_runs_and_level(tmp_path):
    path = write_composition(composed(), tmp_path / "c.svg")
    assert "n = 5 per arm; intervals at 95 %" in path.read_text()


@needs_matplotlib
def test_the_figure_of_a_composition_without_intervals_says_so(tmp_path):
    found = composed()
    bare = dataclasses.replace(found.together, low=None, high=None)
    alone = tuple(
        dataclasses.replace(each, verdict=dataclasses.replace(each.verdict, low=None, high=None))
        for each in found.alone
    )
    path = write_composition(dataclasses.replace(found, alone=alone, together=bare), tmp_path / "c.svg")
    assert "n = 5 per arm; no intervals" in path.read_text()


@needs_matplotlib
def test_a_factor_without_a_speed_up_is_named_in_the_figure(tmp_path):
    found = composed()
    first = found.alone[0]
    lacking = dataclasses.replace(first, verdict=dataclasses.replace(first.verdict, ratio=None, low=None, high=None))
    found = dataclasses.replace(found, alone=(lacking, *found.alone[1:]), predicted=None)
    text = write_composition(found, tmp_path / "c.svg").read_text()
    assert f"{first.factor}: not known, see the table" in text


@needs_matplotlib
def test_the_axis_of_a_wide_waterfall_has_more_numbers_than_one():
    from matplotlib.figure import Figure

    interval = SimpleNamespace(low=0.3, high=3.0)
    factor = SimpleNamespace(name="samples to target", within="", ratio=2.0, interval=interval)
    found = SimpleNamespace(
        ratio=2.0, interval=interval, factors=[factor], level=0.95, a="A", b="B", condition="", paired=True, n=(3, 3)
    )
    figure = Figure()
    _draw_why(figure.add_subplot(), found, [factor])
    figure.draw_without_rendering()
    numbers = {label.get_text() for label in figure.axes[0].get_xticklabels(which="both")}
    assert {"1", "2"} <= numbers


def missed(one, **replaced):
    """The same group, none of whose runs reached the target."""
    changed = {"reached": False, "time_to_accuracy_s": None, "given_up_s": 1.0} | replaced
    return dataclasses.replace(one, runs=tuple(msgspec.structs.replace(run, **changed) for run in one.runs))


@needs_matplotlib
def test_no_curve_is_drawn_if_no_run_arrived(groups, tmp_path):
    (one,) = groups("digits")
    assert write_stability([stability(missed(one))], tmp_path / "s.svg") is None
    assert not (tmp_path / "s.svg").exists()


@needs_matplotlib
def test_a_curve_ends_where_its_runs_were_given_up_and_says_how_many_would_arrive_at_most(groups):
    from matplotlib.figure import Figure

    first, second = groups("digits", "late")
    axes = Figure().add_subplot()
    _draw_stability(axes, [stability(first), stability(missed(second, given_up_s=0.1))])
    arrived, given_up, _ = axes.lines
    assert max(given_up.get_xdata()) == pytest.approx(
        max(arrived.get_xdata()) * 0.1 / stability(first).curve.last / 1.05
    )
    assert given_up.get_label() == "late: 0 of 4 reached it (at most 49 % would)"


@needs_matplotlib
def test_each_run_that_was_given_up_is_marked_on_its_curve(groups):
    from matplotlib.figure import Figure

    (one,) = groups("digits")
    axes = Figure().add_subplot()
    _draw_stability(axes, [stability(missed(one, given_up_s=0.1))])
    _, marks = axes.lines
    assert (marks.get_marker(), [*marks.get_ydata()]) == ("|", [0.0] * one.n)
    assert axes.get_title(loc="left").endswith("; ticks: runs given up")


def reaching(quality):
    """An arm of one run that gets so far."""
    return [TimedArm("a", (TimedCurve((1.0, 2.0), (0.5, quality), "end"),), "first")]


@pytest.mark.parametrize(("quality", "shown"), [(0.93998, "0.93998"), (0.9378, "0.9378"), (0.94, "0.94")])
def test_a_quality_just_below_a_target_is_not_rounded_onto_it(quality, shown):
    found = sweep(reaching(quality), [0.9, 0.94], 0.94)
    assert shown in to_text(threshold_tables(found, TOP1)[-1]).split("never")[0]
    assert ("reached it" in to_text(threshold_tables(found, TOP1)[0])) == (quality < 0.94)


def test_targets_that_differ_late_have_columns_of_their_own():
    found = sweep(reaching(0.95), [0.94, 0.9400001], 0.94)
    assert [column.title for column in threshold_tables(found, TOP1)[0].columns[1:]] == ["0.94", "0.9400001"]


def test_the_greatest_share_of_many_runs_that_would_get_there_is_not_rounded_to_none():
    curves = tuple(TimedCurve((1.0, 2.0), (0.5, 0.93), "end") for _ in range(1000))
    found = sweep([TimedArm("a", curves, "first")], [0.94], 0.94)
    assert "at most 0.38 %" in to_text(threshold_tables(found, TOP1)[-1])


@needs_matplotlib
def test_an_interval_of_a_time_without_an_upper_end_is_hollow_and_ends_at_the_time():
    from matplotlib.figure import Figure

    curves = [TimedCurve((1.0, 2.0 + at / 10), (0.5, 0.95 if at < 4 else 0.9), "end") for at in range(7)]
    found = sweep([TimedArm("a", tuple(curves), "first")], [0.94], 0.94)
    time = found.cells[0][0].time_s
    assert time.interval.high == float("inf")
    axes = Figure().add_subplot()
    _draw_threshold(axes, found, TOP1, "top1")
    _, bar, hollow, named, _ = axes.lines
    assert list(bar.get_ydata()) == [time.interval.low, time.value]
    assert (hollow.get_markerfacecolor(), hollow.get_ydata()[0]) == ("white", time.value)
    assert named.get_label() == "its interval has no upper end, a median as runs missed"


def at_once(*counts, late=0):
    """A sweep of arms of so many runs, of which the last ``late`` miss the target."""
    return sweep(
        [
            TimedArm(
                f"{n} runs",
                tuple(TimedCurve((1.0, 2 + at / 10), (0.5, 0.95 if at < n - late else 0.9), "end") for at in range(n)),
                "first",
            )
            for n in counts
        ],
        [0.94],
        0.94,
    )


RANGES = "[lowest, highest], n = {}: too few for an interval"


@pytest.mark.parametrize(
    ("counts", "late", "said"),
    [
        ([1], 0, None),
        ([3], 0, f"Geometric means; brackets: {RANGES.format(3)}."),
        ([4], 1, f"Brackets: {RANGES.format(4)}."),
        ([8], 0, "Geometric means; brackets: 95 % intervals."),
        ([4, 3, 8], 0, f"Geometric means; brackets: 95 % intervals; {RANGES.format('3, 4')}."),
    ],
)
def test_tables_of_thresholds_say_whether_brackets_are_intervals(counts, late, said):
    tables = {each.name: each for each in threshold_tables(at_once(*counts, late=late), TOP1)}
    for name in ("sweep", "crossings"):
        notes = tables[name].notes
        assert (said in notes) if said else notes == ()


def test_points_of_thresholds_have_the_method_of_their_interval():
    (row,) = to_json(sweep_points_table(at_once(3)))["rows"]
    assert row["method"] == "lowest to highest"


@needs_matplotlib
@pytest.mark.parametrize(
    ("counts", "said"),
    [
        ([1], "no intervals"),
        ([3], "bars: lowest and highest of few runs"),
        ([8, 3, 1], "bars, where known: 95 % intervals, lowest and highest of few runs"),
    ],
)
def test_the_figure_of_thresholds_says_what_its_bars_are(counts, said):
    from matplotlib.figure import Figure

    axes = Figure().add_subplot()
    _draw_threshold(axes, at_once(*counts), TOP1, "top1")
    assert axes.get_xlabel() == f"target (top1)\n{said}"


@needs_matplotlib
def test_a_range_of_few_times_without_an_upper_end_is_not_called_an_interval():
    from matplotlib.figure import Figure

    axes = Figure().add_subplot()
    _draw_threshold(axes, at_once(4, late=1), TOP1, "top1")
    assert "its highest time is not known, a median as runs missed" in [line.get_label() for line in axes.lines]


def waterfall(ratio, name="B"):
    """The axes of a waterfall with one factor of this ratio, without intervals."""
    from matplotlib.figure import Figure

    factor = SimpleNamespace(name="samples to target", within="", ratio=ratio, interval=None)
    found = SimpleNamespace(
        ratio=ratio, interval=None, factors=[factor], level=0.95, a="A", b=name, condition="", paired=True, n=(3, 3)
    )
    figure = Figure()
    _draw_why(figure.add_subplot(), found, [factor])
    figure.draw_without_rendering()
    return figure.axes[0]


@needs_matplotlib
@pytest.mark.parametrize(
    ("ratio", "shown"), [(1.5, {"1", "1.1", "1.2"}), (4.0, {"1", "2", "3"}), (40.0, {"1", "2", "5"})]
)
def test_the_axis_of_a_waterfall_has_numbers_whatever_its_width(ratio, shown):
    axes = waterfall(ratio)
    low, high = axes.get_xlim()
    ticks = zip(axes.get_xticks(minor=False), axes.get_xticklabels(), strict=True)
    minor = zip(axes.get_xticks(minor=True), axes.get_xticklabels(minor=True), strict=True)
    inside = {label.get_text() for at, label in [*ticks, *minor] if low <= at <= high} - {""}
    assert len(inside) >= 3, inside
    assert len(inside) <= 12, inside


@needs_matplotlib
def test_a_long_title_of_a_waterfall_is_broken_into_lines():
    title = waterfall(1.5, "digits[recipe=mlp,framework=torch,hidden=128,batch=64,lr=0.05,epochs=20]").get_title("left")
    assert max(map(len, title.split("\n"))) <= 60


@needs_matplotlib
def test_a_figure_of_a_composition_without_intervals_claims_none(tmp_path):
    found = composed()
    bare = {"low": None, "high": None}
    alone = tuple(dataclasses.replace(each, verdict=dataclasses.replace(each.verdict, **bare)) for each in found.alone)
    together = dataclasses.replace(found.together, **bare)
    found = dataclasses.replace(found, alone=alone, together=together, predicted=None)
    text = write_composition(found, tmp_path / "c.svg").read_text()
    assert "n = 5 per arm" in text
    assert "intervals at" not in text

import dataclasses
import math
import subprocess
import sys

import numpy as np
import pytest
from msgspec import structs

from levelbench.measure.policies import policy
from levelbench.report.run_figures import AXES, curves_of

TIME, SAMPLES = AXES


def test_times_of_a_curve_are_on_the_groups_clock(make, group):
    only, records = group([make(seed=seed, clock="dawnbench") for seed in (1, 2)])[0]
    curve = curves_of(only, records, TIME).runs[0]
    expected = [policy("dawnbench").score(each.phases_ns).seconds for each in records[0].evaluations]
    assert curve.x == pytest.approx(expected)
    assert curve.x[-1] < records[0].evaluations[-1].t_ns * 1e-9


def test_the_mark_of_a_run_lies_where_its_summary_says_it_reached_the_target(two_arms):
    only, records = two_arms[0]
    for axis, name in ((TIME, "time_to_accuracy_s"), (SAMPLES, "samples_to_target")):
        curves = curves_of(only, records, axis)
        assert [run.reached_at for run in curves.runs] == [getattr(run, name) for run in only.runs]


def test_a_run_that_missed_the_target_has_no_mark(one_missed):
    curves = curves_of(*one_missed[0], TIME)
    assert [run.reached_at is None for run in curves.runs] == [False, False, False, True, True, True]


def test_below_five_runs_the_band_is_the_whole_range(make, group):
    band = curves_of(*group([make(seed=seed) for seed in (1, 2, 3)])[0], SAMPLES).band
    assert band.kind == "range"


def test_from_five_runs_the_band_is_the_middle_half(two_arms):
    curves = curves_of(*two_arms[0], SAMPLES)
    assert curves.band.kind == "quartiles"
    shared = [run.at(curves.band.x[3]) for run in curves.runs]
    assert (curves.band.low[3], curves.band.high[3]) == pytest.approx(tuple(np.quantile(shared, (0.25, 0.75))))


def test_the_median_lies_in_the_band(two_arms):
    band = curves_of(*two_arms[1], TIME).band
    known = zip(band.low, band.median, band.high, strict=True)
    assert all(not mid < low and not high < mid and math.isfinite(mid) for low, mid, high in known)


def at_seconds(records, *first):
    """The records with evaluations at the seconds 1, 2, ... from ``first`` on, one for each record."""
    return [
        dataclasses.replace(
            record,
            evaluations=tuple(
                structs.replace(
                    each, t_ns=(start + at) * 10**9, phases_ns={"forward": (start + at) * 10**9},
                    quality={"validation": 0.9 + at / 100},
                )
                for at, each in enumerate(record.evaluations[:3])
            ),
        )
        for record, start in zip(records, first, strict=True)
    ]  # fmt: skip


def test_the_median_does_not_wait_for_the_slowest_run(make, group):
    only, records = group([make(seed=seed) for seed in (1, 2, 3)])[0]
    band = curves_of(only, at_seconds(records, 1, 2, 90), TIME).band
    assert band.x == (2, 3, 4, 90, 91, 92)
    # The slowest run counts as worst before its first evaluation: the median is the lower of the other two.
    assert band.median[:3] == pytest.approx((0.90, 0.91, 0.92))
    assert all(math.isnan(low) for low in band.low[:3])
    assert band.low[3] == pytest.approx(0.90)


def test_a_run_without_an_evaluation_is_the_worst_where_lower_is_better_too(make, group):
    only, records = group([make(seed=seed) for seed in (1, 2, 3)])[0]
    target = structs.replace(only.specification.target, direction="lower")
    only = dataclasses.replace(only, specification=structs.replace(only.specification, target=target))
    band = curves_of(only, at_seconds(records, 1, 2, 90), TIME).band
    assert band.median[:2] == pytest.approx((0.91, 0.92))
    assert math.isnan(band.high[0])


def test_between_two_evaluations_a_run_holds_the_value_of_the_first(two_arms):
    run = curves_of(*two_arms[0], TIME).runs[0]
    assert run.at((run.x[0] + run.x[1]) / 2) == run.quality[0]
    assert math.isnan(run.at(0.0))


def test_after_its_last_evaluation_a_run_keeps_its_value(two_arms):
    run = curves_of(*two_arms[0], TIME).runs[0]
    assert run.at(run.x[-1] * 10) == run.quality[-1]


def test_a_group_without_evaluations_has_an_empty_band(make, group):
    only = group([make()])[0][0]
    curves = curves_of(only, [], TIME)
    assert curves.runs == ()
    assert curves.band.x == ()


def test_importing_the_package_imports_neither_numpy_nor_rich_nor_matplotlib():
    code = "import sys, levelbench.report; print(sorted({'numpy', 'rich', 'matplotlib', 'msgspec'} & set(sys.modules)))"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "[]"


def test_every_public_name_of_the_package_is_there():
    import levelbench.report as report

    assert all(getattr(report, name) is not None for name in report.__all__)
    with pytest.raises(AttributeError, match="nothing_of_the_kind"):
        report.nothing_of_the_kind  # noqa: B018

"""LB205: normal values are assumed: the stated check, and the check of the values themselves."""

import math
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.claims.clean import changes, clean_claim, found, other_findings
from tests.claims.run_store import specification, write_run

from levelbench.claims.rules._runs import kurtosis_z, normality, skewness_z
from levelbench.claims.rules.lb205_normality_assumed import rule
from levelbench.measure.statistics import normal_quantile

S, C = "summaries[0]", "comparisons[0]"
BELL = [30.0 + normal_quantile((i + 0.5) / 12) for i in range(12)]
ONE_LATE = [29.9, 30.0, 30.1, 30.0, 29.8, 30.2, 30.1, 29.9, 30.0, 30.1, 29.9, 90.0]
LOG_NORMAL = [math.exp(3.4 + 1.5 * normal_quantile((i + 0.5) / 12)) for i in range(12)]


def with_runs(values, checked=None, **more):
    """The clean claim whose first side has runs of these times, summarised by their mean with a t interval."""
    runs = [{"time_s": value, "reached": True, "quality": 0.944} for value in values]
    planted = {"sides[0].runs": runs, f"{S}.n": len(values), f"{S}.value": sum(values) / len(values)}
    return changes(clean_claim(), {**planted, f"{S}.normality_checked": checked, f"{C}.test": None, **more})


GUILTY = {
    "it is said not to be checked": (
        changes(clean_claim(), {f"{S}.normality_checked": False}),
        ("warning", f"{S}.normality_checked"),
    ),
    "a test of which it is said not to be checked": (
        changes(clean_claim(), {f"{C}.normality_checked": False, f"{C}.test": "Student's t"}),
        ("warning", f"{C}.normality_checked"),
    ),
    "one run of twelve is three times as long": (with_runs(ONE_LATE), ("error", f"{S}.normality_checked")),
    "it is said to be checked, and the values say otherwise": (
        with_runs(ONE_LATE, checked=True),
        ("warning", f"{S}.normality_checked"),
    ),
    "skewed values on their own scale": (with_runs(LOG_NORMAL), ("error", f"{S}.normality_checked")),
}
INNOCENT = {
    "twelve values of a bell, which need nobody's word": with_runs(BELL),
    "the same, said not to be checked": with_runs(BELL, checked=False),
    "skewed values on the scale of their logarithms": with_runs(LOG_NORMAL, **{f"{S}.interval_by": "t of the logs"}),
    "a trimmed test bears one late run": with_runs(ONE_LATE, **{f"{S}.interval_by": "Welch's t, trimmed by 1 (Yuen)"}),
    "order statistics assume nothing": with_runs(ONE_LATE, **{f"{S}.interval_by": "order statistics"}),
    "nor does the bootstrap of a t statistic": with_runs(ONE_LATE, **{f"{S}.interval_by": "bootstrap t"}),
    "nor does a rank test": changes(clean_claim(), {f"{C}.test": "Mann-Whitney", f"{C}.normality_checked": None}),
    "no method is named": changes(clean_claim(), {f"{S}.interval_by": None, f"{S}.normality_checked": None}),
}


def claim(planted):
    return planted


PLANTED = "nobody checked that a t interval is allowed", {"summaries[0].normality_checked": False}


def planted_in(store: Path) -> str:
    for at, framework in enumerate(("numpy", "torch")):
        for seed in range(10):
            spec = specification(framework=framework)
            write_run(store, seed, spec=spec, minute=2 * seed + at, epoch_s=20.0 if seed == 9 else 2.0 + at)
    return "digits"


IN_RECORDS = "one run of ten takes ten times as long, and a t test is used", planted_in


def test_five_values_are_too_few_to_tell_so_the_author_is_asked():
    claim = changes(clean_claim(), {f"{S}.normality_checked": None})
    assert found(rule, claim) == [("not-stated", f"{S}.normality_checked")]


def test_the_finding_gives_the_shape_of_the_values():
    (finding,) = rule.check(with_runs(ONE_LATE))
    assert "skewness 3.01" in finding.found


def test_no_other_rule_fires_on_its_fault():
    assert other_findings(rule, changes(clean_claim(), {f"{S}.normality_checked": False})) == []


SCIPY = {8: (1.4083684753281658, None), 12: (1.8782791752059869, None), 20: (2.5475996519044775, 1.7420990659381537)}
"""The statistics of skewtest and kurtosistest of SciPy 1.17.1 on the sample below."""


@pytest.mark.parametrize(("n", "expected"), [*SCIPY.items(), (50, (4.1139935919007895, 2.9864183700867155))])
def test_the_z_values_are_those_of_scipy(n, expected):
    result = normality([math.exp(0.7 * normal_quantile((i + 0.3) / n)) for i in range(n)])
    assert result is not None
    assert skewness_z(result.skewness, n) == pytest.approx(expected[0], rel=1e-9)
    if expected[1] is not None:
        assert kurtosis_z(result.kurtosis, n) == pytest.approx(expected[1], rel=1e-9)


@given(st.lists(st.floats(-1e6, 1e6), max_size=40), st.floats(1e-3, 1e3), st.floats(-1e3, 1e3))
def test_the_check_never_fails_and_does_not_depend_on_the_unit(values, scale, shift):
    one = normality(values)
    other = normality([scale * value for value in values])
    assert (one is None) == (other is None)
    if one is not None and other is not None:
        assert other.skewness == pytest.approx(one.skewness, rel=1e-6, abs=1e-6)
    normality([value + shift for value in values])


@pytest.mark.parametrize("n", [10, 30])
def test_normal_samples_are_rarely_rejected(n):
    numpy = pytest.importorskip("numpy")
    samples = numpy.random.default_rng(1).normal(size=(1000, n))
    rejected = sum(result.rejected for sample in samples.tolist() if (result := normality(sample)) is not None)
    assert rejected <= 30


def test_of_a_paired_test_the_ratios_have_to_be_normal():
    # Both sides share what makes a seed long, which is far from normal; their ratios are a bell.
    shared, bell = LOG_NORMAL, [1.2 + 0.01 * normal_quantile((at + 0.5) / 12) for at in range(12)]

    def runs(times):
        return [{"time_s": time, "reached": True, "quality": 0.944, "seed": at} for at, time in enumerate(times)]

    sides = {"sides[0].runs": runs(shared), "sides[1].runs": runs([a * b for a, b in zip(shared, bell, strict=True)])}
    by_hand = {"summaries": [], f"{C}.normality_checked": None}
    paired = changes(clean_claim(), {**sides, **by_hand, f"{C}.test": "Student's t on the ratios, paired by seed"})
    assert found(rule, paired) == []
    alone = changes(clean_claim(), {**sides, **by_hand, f"{C}.test": "Student's t"})
    assert [each[0] for each in found(rule, alone)] == ["error"]

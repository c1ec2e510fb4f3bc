"""A claim whose figures exclude each other is refused, whatever the rules find."""

import math
import random
import statistics

import pytest
from msgspec.structs import replace
from tests.claims.clean import changes, clean_claim

from levelbench.claims.contradictions import contradictions
from levelbench.claims.lint import lint
from levelbench.claims.rules._common import number
from levelbench.claims.view import Claim, ComparisonView, RunView, Side, TimingView

C = "comparisons[0]"
RATIO = clean_claim().comparisons[0].ratio
FIGURES = {"sides[0].time_s": 200.0, "sides[0].runs_made": None, "sides[0].interval": None}
FIGURES |= {"sides[1].time_s": 300.0, "sides[1].runs_made": None, "sides[1].interval": None}


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({f"{C}.ratio": 30.0}, "the ratio is 30, but the figures are"),
        ({f"{C}.ratio": 1 / 1.5, **FIGURES}, "(a ratio is base over new)"),
        ({f"{C}.of": "cost", f"{C}.ratio": 9.0}, "USD"),
    ],
)
def test_a_ratio_that_the_figures_do_not_make_is_refused(changed, said):
    (found,) = contradictions(changes(clean_claim(), {f"{C}.interval": None, f"{C}.base_time_s": None, **changed}))
    assert found.startswith("refuse: 'new' against 'base': ")
    assert said in found


def test_a_title_with_another_speed_up_than_its_comparison_is_refused():
    (found,) = contradictions(changes(clean_claim(), {"title": "3 times faster than the base"}))
    assert found == f"refuse: the title says 3 times, but the ratio of 'new' to 'base' is {number(RATIO)}"


@pytest.mark.parametrize(
    ("title", "changed"),
    [
        (f"{RATIO:.1f} times faster", {}),
        ("2 to 3 times faster", {}),
        ("3 times faster than one, 2 times faster than another", {}),
        ("3 times smaller", {}),
        ("3 times faster", {f"{C}.claimed_for": "part"}),
        ("3 times faster", {"read_from": "records"}),
    ],
)
def test_a_title_that_may_speak_of_something_else_is_left_alone(title, changed):
    assert contradictions(changes(clean_claim(), {"title": title, **changed})) == []


def test_a_ratio_that_the_rates_do_not_make_is_refused():
    rates = {"sides[0].throughput": 900.0, "sides[1].throughput": 300.0, f"{C}.of": "throughput", f"{C}.interval": None}
    assert contradictions(changes(clean_claim(), {**rates, f"{C}.ratio": 3.0})) == []
    (found,) = contradictions(changes(clean_claim(), {**rates, f"{C}.ratio": 30.0}))
    assert found == ("refuse: 'new' against 'base': the ratio is 30, but the rates are 900 and 300 a second: 3")


@pytest.mark.parametrize(
    ("low", "high", "said"),
    [(0.96, 0.97, "lies outside of its interval"), (0.96, None, "lies outside"), (0.96, 0.93, "goes down from")],
)
def test_a_quality_outside_of_its_interval_is_refused(low, high, said):
    quality = {"sides[0].quality.value": 0.942, "sides[0].quality.low": low, "sides[0].quality.high": high}
    (found,) = contradictions(changes(clean_claim(), quality))
    assert said in found


def test_a_refused_claim_fails_although_no_rule_fires():
    report = lint([("claim.toml", changes(clean_claim(), {f"{C}.ratio": 30.0, f"{C}.interval": (29.0, 31.0)}))])
    assert report.refusals() == 1
    assert report.fails("error")


@pytest.mark.parametrize(
    "changed",
    [
        {},
        {f"{C}.ratio": None},
        {f"{C}.ratio": 30.0, f"{C}.interval": None, f"{C}.of": "throughput"},
        {f"{C}.ratio": 30.0, f"{C}.interval": None, f"{C}.claimed_for": "part"},
        {f"{C}.ratio": 30.0, f"{C}.interval": None, f"{C}.of": "step"},
        {f"{C}.ratio": 30.0, f"{C}.interval": None, "sides[0].time_s": None},
        {f"{C}.ratio": 30.0, "read_from": "records"},
    ],
)
def test_ratios_of_something_else_than_the_sides_figures_are_left_alone(changed):
    assert contradictions(changes(clean_claim(), changed)) == []


def claim(new_s=(9, 10, 11), base_s=(19, 20, 21), *, new=None, base=None, **compared):
    """Two sides with the means of these times, an interval for each, and for their ratio; then what is changed."""
    sides = [
        Side(
            name=name,
            time_s=statistics.fmean(times_s),
            time_of="target",
            reported="mean",
            runs_made=len(times_s),
            runs_reached=len(times_s),
            interval=(0.9 * statistics.fmean(times_s), 1.1 * statistics.fmean(times_s)),
            runs=[RunView(time_s=each, reached=True) for each in times_s],
        )
        for name, times_s in (("new", new_s), ("base", base_s))
    ]
    sides = [replace(side, **(more or {})) for side, more in zip(sides, (new, base), strict=True)]
    stated = {"of": "target", "ratio": 2.0, "interval": (1.7, 2.4), "base_time_s": 20.0, **compared}
    return Claim("twice as fast", sides, comparisons=[ComparisonView("new", "base", **stated)])


def test_figures_that_belong_together_are_not_refused():
    assert contradictions(claim()) == []


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        (
            {"new": {"time_s": 5.0, "interval": None}, "ratio": 4.0, "interval": None},
            "5 s is not the mean of its 3 runs",
        ),
        ({"new": {"reported": "median", "time_s": 9.2}}, "9.2 s is not the median of its 3 runs: 10 s"),
        ({"new_s": (8, 10, 12), "new": {"reported": "best"}}, "10 s is not the best of its 3 runs: 8 s"),
        ({"new": {"interval": (12.0, 15.0)}}, "10 s lies outside of its interval [12, 15] s"),
        ({"interval": (2.5, 3.4)}, "the ratio 2 lies outside of its interval [2.5, 3.4]"),
        ({"base_time_s": 200.0}, "base_time_s is 200 s, but the base takes 20 s"),
        (
            {"base": {"time_s": None, "interval": None}, "base_time_s": 30.0},
            "the ratio is 2, but the figures are 10 s and 30 s",
        ),
        ({"new": {"runs_made": 2, "runs_reached": 2}}, "runs_made is 2, but 3 runs are listed"),
        ({"new": {"runs_reached": 2}}, "runs_reached is 2, but 3 of the runs listed reached the target"),
        ({"new": {"runs_made": 3, "runs_reached": 4, "runs": []}}, "runs_reached is 4, of 3 runs made"),
        (
            {"new": {"interval": (1.0, 100.0)}, "base": {"interval": (3.0, 60.0)}},
            "cannot follow from [1, 100] and [3, 60] s",
        ),
        ({"new_s": (5, 10, 15), "new": {"interval": (9.99, 10.01)}}, "too narrow for 3 runs from 5 to 15 s"),
    ],
)
def test_figures_of_a_side_that_exclude_each_other_are_refused(changed, said):
    (found,) = contradictions(claim(**changed))
    assert found.startswith("refuse: ")
    assert said in found


@pytest.mark.parametrize(
    "changed",
    [
        {"new_s": (9, 10, 14), "new": {"time_s": 10.8}},  # the geometric mean
        {"new_s": (9, 10, 14), "new": {"time_s": 10.0, "reported": "median"}},
        {"new": {"runs_made": 20, "runs_reached": 18}},  # some are not listed
        {"new": {"time_s": 9.0, "reported": "best", "interval": (9.5, 10.5)}, "ratio": 2.2},
        {"new_s": (10, 10, 10, 10, 50), "new": {"time_s": 10.0, "reported": "median", "interval": (10.0, 10.0)}},
        {"new": {"interval": (5.0, 20.0)}, "base": {"interval": (10.0, 40.0)}, "interval": (1.98, 2.02)},  # in pairs
        {"new": {"time_of": "step", "time_s": 0.1, "interval": (0.09, 0.11)}, "base_time_s": None},
    ],
)
def test_what_an_honest_author_may_write_is_not_refused(changed):
    assert contradictions(claim(**changed)) == []


def test_intervals_far_wider_than_that_of_their_ratio_need_pairs():
    wide = {"interval": (5.0, 20.0)}, {"interval": (10.0, 40.0)}
    apart = {"timing": TimingView(interleaved=False)}
    (found,) = contradictions(claim(new=wide[0] | apart, base=wide[1] | apart, interval=(1.98, 2.02)))
    assert "cannot follow from" in found


@pytest.mark.slow
def test_honest_figures_with_rounding_are_never_refused():
    draw = random.Random(20)
    for _ in range(500):
        n, spread, digits = draw.randrange(3, 20), draw.choice([0.001, 0.02, 0.3, 0.8]), draw.choice([2, 3, 6])
        level = draw.choice([1.0, 1.64, 1.96, 2.58])
        sides = []
        for middle in (1.0, draw.uniform(0.3, 5.0)):
            times_s = [middle * math.exp(draw.gauss(0.0, spread)) * draw.choice([1, 1, 1, 4]) for _ in range(n)]
            reported, figure = draw.choice(
                [("mean", statistics.fmean), ("mean", statistics.geometric_mean), ("median", statistics.median)]
            )
            resampled = sorted(figure(draw.choices(times_s, k=n)) for _ in range(200))
            at = round(100 * math.erfc(level / math.sqrt(2)))
            interval = min(resampled[at], figure(times_s)), max(resampled[-1 - at], figure(times_s))
            logs = statistics.stdev(map(math.log, times_s)) / math.sqrt(n)
            sides.append((times_s, reported, figure(times_s), interval, logs))

        def rounded(value, digits=digits):
            return float(f"{value:.{digits}g}")

        (new_s, *new), (base_s, *base) = sides
        ratio, half = base[1] / new[1], level * math.hypot(new[3], base[3])
        assert not contradictions(
            claim(
                [rounded(each) for each in new_s],
                [rounded(each) for each in base_s],
                new={"reported": new[0], "time_s": rounded(new[1]), "interval": tuple(map(rounded, new[2]))},
                base={"reported": base[0], "time_s": rounded(base[1]), "interval": tuple(map(rounded, base[2]))},
                base_time_s=rounded(base[1]),
                ratio=rounded(ratio),
                interval=(rounded(ratio * math.exp(-half)), rounded(ratio * math.exp(half))),
            )
        )

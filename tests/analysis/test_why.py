"""Why one side is faster: the factors multiply back exactly, their intervals cover, and what is missing is said."""

import math
from dataclasses import replace
from itertools import pairwise

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from levelbench.analysis.attribution import WARM_UP
from levelbench.analysis.why import (
    FIXED,
    OTHERS,
    OVERHEAD,
    PER_SAMPLE,
    SAMPLES,
    Factor,
    OperatorShares,
    _most,
    explain,
    log_mean_of,
)
from levelbench.errors import UsageError
from levelbench.measure.verdict import NOT_INTERLEAVED, verdict
from levelbench.report.why import why_table

SECONDS = st.floats(1e-6, 1e3)
PHASES = st.sampled_from(["prepare", "compile", "data", "forward", "backward", "evaluate"])
RUN = st.tuples(st.dictionaries(PHASES, SECONDS, min_size=1), st.integers(1, 10**7))
RUNS = st.lists(RUN, min_size=1, max_size=6)
SHARES = st.dictionaries(
    st.sampled_from(["Conv", "Gemm", "Relu", "Add", "Mul", "Exp", "Tanh"]),
    st.lists(st.floats(0, 1.5), min_size=3, max_size=3),
    min_size=1,
)


def made(run, phases, samples, seed):
    return run(sum(phases.values()), samples, seed, phases_s=dict(phases))


def product(factors):
    return math.prod(each.ratio for each in factors)


@given(a=RUNS, b=RUNS, first=SHARES, second=SHARES, offset=st.sampled_from([0, 100]))
def test_the_factors_of_each_level_multiply_to_the_one_above(run, group, a, b, first, second, offset):
    sides = [
        group(name, [made(run, *each, seed + start) for seed, each in enumerate(runs)])
        for name, runs, start in (("a", a, 0), ("b", b, offset))
    ]
    found = explain(*sides, profiles=(OperatorShares(first, second), OperatorShares(second, first)))
    assert product(found.within("")) == pytest.approx(found.ratio, rel=1e-9)
    whole = {each.name: each for each in found.factors}
    for name in ("", PER_SAMPLE, FIXED, "forward", "backward"):
        parts = found.within(name)
        if name and parts:
            assert product(parts) == pytest.approx(whole[name].ratio, rel=1e-9)
        sizes = [abs(each.log_ratio) for each in parts]
        assert all(x >= y for x, y in pairwise(sizes))


def test_the_ratio_is_that_of_the_geometric_means(run, group):
    a = group("a", [run(1.0, 100, 0), run(4.0, 200, 1)])
    b = group("b", [run(3.0, 300, 7), run(3.0, 100, 8), run(24.0, 200, 9)])
    found = explain(a, b)
    assert not found.paired
    assert found.ratio == pytest.approx((3.0 * 3.0 * 24.0) ** (1 / 3) / 2.0)
    samples = next(each for each in found.within("") if each.name == SAMPLES)
    assert samples.ratio == pytest.approx((300 * 100 * 200) ** (1 / 3) / (100 * 200) ** 0.5)


def test_the_logarithmic_mean_is_the_one_of_the_definition():
    x, y = np.array([1.0, 2.0, 5.0, 1.0]), np.array([math.e, 2.0, 5.0 * (1 + 1e-9), 1e6])
    assert log_mean_of(x, y).tolist() == pytest.approx([math.e - 1, 2.0, 5.0, (1e6 - 1) / math.log(1e6)])


def test_a_part_that_alone_differs_has_all_of_the_ratio(run, group):
    a = group("a", [run(3.0, 100, seed, phases_s={"data": 1.0, "forward": 2.0}) for seed in range(3)])
    b = group("b", [run(9.0, 100, seed, phases_s={"data": 1.0, "forward": 8.0}) for seed in range(3)])
    found = {each.name: each.ratio for each in explain(a, b).factors}
    assert found["forward"] == pytest.approx(3.0)
    assert (found["data"], found[SAMPLES]) == pytest.approx((1.0, 1.0))


def test_a_part_that_one_side_does_not_have_is_a_factor_too(run, group):
    a = group("a", [run(1.0, 100, seed, phases_s={"forward": 1.0}) for seed in range(3)])
    b = group("b", [run(3.0, 100, seed, phases_s={"forward": 1.0, "communicate": 2.0}) for seed in range(3)])
    found = {each.name: each.ratio for each in explain(a, b).factors}
    assert (found["communication"], found["forward"]) == pytest.approx((3.0, 1.0))


def test_a_fixed_cost_is_no_gain_in_time_per_sample(run, group):
    a, b = (
        group(name, [run(10 + n / 1000, n, s, phases_s={"compile": 10.0, "forward": n / 1000}) for s in range(3)])
        for name, n in (("a", 1000), ("b", 10000))
    )
    whole = explain(a, b)
    found = {each.name: each.ratio for each in whole.factors}
    assert (found[PER_SAMPLE], found[FIXED], found[WARM_UP]) == pytest.approx((1.0, 1.0, 1.0))
    assert found[SAMPLES] == pytest.approx(20 / 11)
    less = group("c", [run(2.0, 1000, s, phases_s={"prepare": 1.0, "forward": 1.0}) for s in range(3)])
    assert "0.18 from costs that do not grow with samples" in explain(a, less).line()


def compiled(run, seconds, seed=0, **parts):
    """A run whose forward pass takes 1 s in all, and ``seconds`` more in its first step and its first evaluation."""
    parts = {"warm_up_s": {"forward": seconds}, "warm_up_evaluation_s": seconds} | parts
    phases = {"prepare": 1.0, "forward": 1.0 + seconds, "evaluate": 0.5 + seconds}
    return run(2.5 + 2 * seconds, 100, seed, phases_s=phases, **parts)


def test_what_first_steps_and_evaluations_compile_is_a_fixed_cost(run, group):
    a, b = (group(name, [compiled(run, extra, s) for s in range(3)]) for name, extra in (("a", 0.0), ("b", 3.75)))
    whole = explain(a, b)
    found = {each.name: each for each in whole.factors}
    assert [found[name].ratio for name in (FIXED, WARM_UP, PER_SAMPLE, "forward")] == pytest.approx([4, 4, 1, 1])
    assert (found[WARM_UP].a, found[WARM_UP].b, found["forward"].b) == pytest.approx((0.0, 7.5, 1.0 / 100))
    said = "4 from costs that do not grow with samples (mostly compilation and warm-up), 1 from time per sample"
    assert whole.line() == f"b takes 4 times as long as a (no interval): {said}, as many samples to the target"


@given(extras=st.lists(st.floats(0, 100), min_size=4, max_size=4), other=st.floats(1e-3, 1e3))
def test_with_warm_up_set_apart_the_factors_still_multiply_to_the_ratio(run, group, extras, other):
    a = group("a", [compiled(run, each, seed) for seed, each in enumerate(extras)])
    b = group("b", [run(other, 70, seed, warm_up_s={}, warm_up_evaluation_s=0.0) for seed in range(4)])
    found = explain(a, b)
    assert product(found.within("")) == pytest.approx(found.ratio, rel=1e-9)
    (per_sample,) = (each for each in found.within("") if each.name == PER_SAMPLE)
    assert product(found.within(PER_SAMPLE)) == pytest.approx(per_sample.ratio, rel=1e-9)


@pytest.mark.parametrize(
    ("unknown", "lack"),
    [
        ({"warm_up_s": None}, "first steps: runs of b do not time enough steps one by one"),
        ({"warm_up_evaluation_s": None}, "the first evaluation: runs of b have no second one"),
    ],
)
def test_warm_up_that_one_side_does_not_tell_is_set_apart_on_neither_and_that_is_said(run, group, unknown, lack):
    a = group("a", [compiled(run, 3.75, s) for s in range(3)])
    b = group("b", [compiled(run, 3.75, s, **unknown) for s in range(3)])
    found = explain(a, b)
    assert [each.ratio for each in found.within("")] == pytest.approx([1, 1, 1])
    (per_sample,) = (each for each in found.within("") if each.name == PER_SAMPLE)
    assert (per_sample.a, per_sample.b) == pytest.approx(((1.5 + 3.75) / 100,) * 2)
    assert any(lack in each for each in found.lacks)


def prepared(run, time_s, samples, seed):
    """A run whose preparation takes 0.2 s of its time."""
    return run(time_s, samples, seed, phases_s={"prepare": 0.2, "forward": time_s - 0.2})


def test_the_ratio_of_the_samples_is_their_own_and_not_what_they_make_of_the_time(run, group):
    a = group("a", [prepared(run, 0.2 + 0.0001 * (352 + seed), 352, seed) for seed in range(4)])
    b = group("b", [prepared(run, 0.2 + 0.0001 * (672 - seed), 672, seed) for seed in range(4)])
    found = explain(a, b)
    samples, speed, fixed = (
        next(each for each in found.within("") if each.name == name) for name in (SAMPLES, PER_SAMPLE, FIXED)
    )
    assert samples.of_sides == pytest.approx(672 / 352)
    assert speed.of_sides == pytest.approx(1.0, rel=0.02)
    assert fixed.of_sides == 1.0
    assert samples.ratio < 1.2
    assert samples.ratio * speed.ratio * fixed.ratio == pytest.approx(found.ratio, rel=1e-12)
    assert "from 1.91 times the samples to target" in found.line()


def test_without_fixed_costs_the_factors_are_the_ratios_of_the_sides(run, group):
    a = group("a", [run(1.0 + 0.01 * seed, 100, seed) for seed in range(4)])
    b = group("b", [run(1.5 + 0.01 * seed, 120, seed) for seed in range(4)])
    for each in explain(a, b).within(""):
        assert each.of_sides == pytest.approx(each.ratio, rel=1e-9)


def test_columns_and_their_ratio_are_one_statistic_and_parts_sum_to_their_heading(run, group):
    # The arithmetic means of the times are 4 and 3.33, the geometric ones 2.15 and 3.30.
    times = {"a": [1.0, 1.0, 10.0], "b": [3.0, 3.0, 4.0]}
    a, b = (
        group(name, [run(t, 100, s, phases_s={"data": 0.5, "forward": t - 0.5}) for s, t in enumerate(side)])
        for name, side in times.items()
    )
    found = explain(a, b)
    head = next(each for each in found.within("") if each.name == PER_SAMPLE)
    assert (head.a, head.b) == pytest.approx((10 ** (1 / 3) / 100, 36 ** (1 / 3) / 100))
    for each in found.factors:
        assert each.of_sides == pytest.approx(each.b / each.a)
    parts = found.within(PER_SAMPLE)
    assert (sum(each.a for each in parts), sum(each.b for each in parts)) == pytest.approx((head.a, head.b))
    assert product(found.within("")) == pytest.approx(found.ratio, rel=1e-12)
    assert head.of_sides == pytest.approx(found.ratio)
    # What took as long in all runs has a ratio near 1, however much other parts vary.
    (data,) = (each for each in parts if each.name == "data")
    assert (data.ratio, data.of_sides) == (pytest.approx(1.0), pytest.approx(1.0, abs=0.05))


def test_a_factor_that_may_be_either_side_of_one_is_said_not_to_differ(run, group):
    times = [1.0, 2.0, 0.5, 1.5]
    a = group("a", [run(each, 100, s) for s, each in enumerate(times)])
    b = group("b", [run(3 * each, 300 + s, s) for s, each in enumerate(reversed(times))])
    found = explain(a, b)
    (speed,) = (each for each in found.factors if each.name == PER_SAMPLE)
    assert 1 in speed.interval
    assert found.line().endswith("3 from more samples to the target; no clear difference in time per sample")
    assert "3 from more samples to the target" in found.line()


@pytest.mark.parametrize("n", [3, 5, 8])
def test_the_interval_of_samples_holds_where_few_runs_need_another_evaluation(run, group, n):
    # Every run of a takes 5 evaluations, one of b takes 6, or in one case of ten 7.
    generator, share = np.random.default_rng(n), 0.1
    truth = (1 - share) * math.log(6 / 5) + share * math.log(7 / 5)

    def made(evaluations, seed):
        pace = math.exp(generator.normal(0, 0.01))
        times = {"prepare": 1e-4, "forward": evaluations * pace}
        return run(sum(times.values()), 100 * evaluations, seed, phases_s=times, evaluations=evaluations)

    held = 0
    for _ in range(100):
        a = [made(5, seed) for seed in range(n)]
        b = [made(6 + (generator.random() < share), seed) for seed in range(n)]
        known = explain(group("a", a), group("b", b)).within("")
        samples = next(each for each in known if each.name == SAMPLES).interval
        held += samples is not None and math.log(samples.low) <= truth <= math.log(samples.high)
    assert held >= 90


def test_many_operators_are_grouped_and_the_rest_is_overhead(run, group):
    a = group("a", [run(1.0, 100, seed, phases_s={"forward": 1.0}) for seed in range(3)])
    b = group("b", [run(2.0, 100, seed, phases_s={"forward": 2.0}) for seed in range(3)])
    names = ["Conv", "Gemm", "Relu", "Add", "Mul", "Exp", "Tanh"]
    shares = OperatorShares({name: [0.1] * 3 for name in names}, {})
    parts = {each.name: each for each in explain(a, b, profiles=(shares, shares)).within("forward")}
    assert len(parts) == 7
    assert {OTHERS, OVERHEAD} < {*parts}
    assert parts[OVERHEAD].a == pytest.approx(0.3 / 100)
    assert parts[OVERHEAD].ratio == pytest.approx(2**0.3)


def test_the_line_names_the_factors_the_biggest_first(run, group):
    a = group("a", [run(10.0, 1000, s, phases_s={"forward": 9.0, "data": 1.0}) for s in range(3)])
    b = group("b", [run(6.03, 900, s, phases_s={"forward": 5.13, "data": 0.9}) for s in range(3)])
    factors = "0.67 from time per sample (mostly forward), 0.9 from fewer samples to the target"
    assert explain(a, b).line() == f"b takes 0.6 times as long as a (no interval): {factors}"
    assert explain(a, b).reasons() == f"{factors} (no interval)"


def test_samples_of_runs_that_all_tie_have_an_interval(run, group):
    def of(name, evaluations, step_s):
        times = [{"forward": step_s * evaluations * (1 + 0.01 * (seed % 3))} for seed in range(8)]
        runs = [
            run(each["forward"], 100 * evaluations, seed, phases_s=each, evaluations=evaluations)
            for seed, each in enumerate(times)
        ]
        return group(name, runs)

    found = explain(of("a", 20, 0.01), of("b", 16, 0.01))
    (samples,) = (each for each in found.within("") if each.name == SAMPLES)
    assert samples.interval.low < 0.8 / 1.01 < 0.8 * 1.01 < samples.interval.high
    # Runs of a fixed length tie under every seed.
    sides = [
        replace(side, runs=tuple(msgspec.structs.replace(each, crossing="final") for each in side.runs))
        for side in (of("a", 20, 0.01), of("b", 16, 0.01))
    ]
    (samples,) = (each for each in explain(*sides).within("") if each.name == SAMPLES)
    assert samples.interval is None


def test_the_whole_of_runs_that_count_no_samples_has_the_interval_of_the_verdict(run, group):
    """Which allows for late evaluations, where all runs tie at one."""
    uncounted = {"samples_to_target": None, "evaluations": 4, "earlier_s": (0.5, 1.0)}
    sides = [
        group(
            name,
            [run(time + s / 100, 1, s, **uncounted, phases_s={"train": time + s / 100}) for s in range(4)],
        )
        for name, time in (("a", 2.0), ("b", 2.3))
    ]
    found = explain(*sides)
    (whole,), (part,) = found.within(""), found.within("time")
    for each in (whole, part):
        assert (each.interval.low, each.interval.high) == pytest.approx((found.interval.low, found.interval.high))


def test_runs_that_count_no_samples_are_split_by_phase_alone(run, group):
    sides = [
        group(
            name, [run(time, 1, s, samples_to_target=None, phases_s={"train": time - 1, "data": 1.0}) for s in range(3)]
        )
        for name, time in (("a", 4.0), ("b", 8.0))
    ]
    found = explain(*sides)
    assert product(found.within("time")) == pytest.approx(2.0)
    assert found.line() == "b takes 2 times as long as a (no interval): mostly training step"
    assert "do not count samples" in found.lacks[0]
    table = why_table(found)
    assert [column.title for column in table.columns[-2:]] == ["A, whole time", "B, whole time"]
    assert "Times: geometric means over the runs" in table.notes[0]


def test_pairs_cancel_the_luck_of_the_seed(run, group):
    rng = np.random.default_rng(0)
    luck = rng.lognormal(0, 1, 8)
    a = [run(float(x), 100, seed) for seed, x in enumerate(luck)]
    b = [run(float(2 * x * rng.lognormal(0, 0.01)), 100, seed) for seed, x in enumerate(luck)]
    other = [run(each.time_to_accuracy_s, 100, seed + 50) for seed, each in enumerate(b)]
    paired, unpaired = (explain(group("a", a), group("b", side)) for side in (b, other))
    assert (paired.paired, unpaired.paired) == (True, False)
    assert paired.ratio == pytest.approx(unpaired.ratio)
    assert paired.interval.high / paired.interval.low < 1.1 < unpaired.interval.high / unpaired.interval.low


def test_without_a_run_that_reached_nothing_is_split_and_the_reason_is_given(run, group):
    found = explain(group("a", [run(None, seed=s) for s in range(3)]), group("b", [run(1.0, seed=s) for s in range(3)]))
    assert (found.ratio, found.factors) == (None, ())
    assert found.lacks[0].startswith("no run of a reached the target (3 tried)")
    assert found.line() == "why b differs from a cannot be said"


def test_runs_that_missed_are_said_to_be_in_no_factor(run, group):
    a = group("a", [run(1.0, 100, 0), run(None, seed=1), run(1.1, 100, 2), run(1.2, 100, 3)])
    b = group("b", [run(2.0 + s / 10, 100, s) for s in range(4)])
    found = explain(a, b)
    assert found.n == (3, 3)
    assert "1 of 4 runs of a missed the target" in found.lacks[0]


def test_where_runs_missed_the_line_is_of_those_that_reached_and_has_its_interval(run, group):
    a = group("a", [run(1.0 + s / 10, 100, s) for s in range(5)])
    b = group("b", [*(run(0.5 + s / 30, 100, s) for s in range(3)), run(None, seed=3), run(None, seed=4)])
    found = explain(a, b)
    low, high = found.interval.low, found.interval.high
    assert found.missed == (0, 2)
    assert high < 1
    said = f"b takes {found.ratio:.2g} [{low:.2g}, {high:.2g}] times as long as a (of the runs that reached the target)"
    assert found.line().startswith(said)


@pytest.mark.parametrize("reason", [NOT_INTERLEAVED, "not interleaved: widened by how much 5 earlier sessions varied"])
def test_factors_have_no_interval_where_the_verdict_has_none_of_the_runs_alone(run, group, reason):
    a = group("a", [run(1.0 + s / 100, 100, s) for s in range(5)])
    b = group("b", [run(2.0 + s / 90, 100, s) for s in range(5)])
    outcome = replace(verdict([1.0, 1.1, 1.2], [2.0, 2.1, 2.2]), reason=reason)
    found = explain(a, b, outcome=outcome)
    assert found.ratio == pytest.approx(2.0, rel=0.01)
    assert {found.interval, *(each.interval for each in found.factors)} == {None}
    assert any(
        f"factors have no interval, for they see the spread of the runs alone ({reason})" in x for x in found.lacks
    )
    assert "times as long as a (no interval)" in found.line()


def test_one_run_has_factors_without_intervals(run, group):
    found = explain(group("a", [run(1.0, 100)]), group("b", [run(2.0, 100)]))
    assert found.ratio == pytest.approx(2.0)
    assert {each.interval for each in found.factors} == {None}
    assert "fewer than three runs" in found.lacks[0]


@pytest.mark.parametrize("n", [1, 4])
def test_where_the_times_may_be_equal_there_is_no_difference_to_share(run, group, n):
    def column(longer):
        times = [1.0, 1.1, 0.95, 1.05][:n]
        a = group("a", [run(each, 100, s) for s, each in enumerate(times)])
        b = group("b", [run(longer * each, 50 + s, s) for s, each in enumerate(reversed(times))])
        return {type(row[2]).__name__ for row in why_table(explain(a, b)).rows}

    assert column(1.01) == {"Absent"}
    assert column(3.0) == {"Number"}


def test_times_that_do_not_vary_get_no_interval(run, group):
    found = explain(group("a", [run(1.0, 100, s) for s in range(4)]), group("b", [run(2.0, 100, s) for s in range(4)]))
    assert found.interval is None
    assert any("do not vary at all" in each for each in found.lacks)


def test_a_level_that_is_no_probability_is_refused(run, group):
    with pytest.raises(UsageError, match="no probability"):
        explain(group("a", [run(1.0)]), group("b", [run(2.0)]), level=1.5)


@pytest.mark.parametrize(
    ("logs", "most"), [((0.5, 0.3, -0.4), "a"), ((0.5, 0.3, 0.25), None), ((-0.1, 0.05), "a"), ((), None)]
)
def test_a_part_is_most_of_the_whole_only_if_it_outweighs_all_others(logs, most):
    parts = [Factor(name, "x", math.exp(log), None, 1.0, math.exp(log)) for name, log in zip("abc", logs, strict=False)]
    found = _most(parts)
    assert (found and found.name) == most

"""Why one side is faster: the factors multiply back exactly, their intervals cover, and what is missing is said."""

import math
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from levelbench.analysis.why import (
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

SECONDS = st.floats(1e-6, 1e3)
RUN = st.tuples(
    st.dictionaries(st.sampled_from(["data", "forward", "backward", "evaluate"]), SECONDS, min_size=1),
    st.integers(1, 10**7),
)
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
    for name in ("", PER_SAMPLE, "forward", "backward"):
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
    assert explain(a, b).line() == f"b takes 0.6 times as long as a: {factors}"


def test_runs_that_count_no_samples_are_split_by_phase_alone(run, group):
    sides = [
        group(
            name, [run(time, 1, s, samples_to_target=None, phases_s={"train": time - 1, "data": 1.0}) for s in range(3)]
        )
        for name, time in (("a", 4.0), ("b", 8.0))
    ]
    found = explain(*sides)
    assert product(found.within("time")) == pytest.approx(2.0)
    assert found.line() == "b takes 2 times as long as a, mostly training step"
    assert "do not count samples" in found.lacks[0]


def simulated(rng, n, phases, noise, luck):
    """Runs with log-normal phases per sample (seconds) and samples; ``luck`` of the seed is shared by both sides."""
    samples = np.round(np.exp(math.log(1e6) + luck + rng.normal(0, 0.05, n)))
    table = np.exp(rng.normal(np.log(phases), noise, (n, len(phases))))
    return samples, table


def coverage(run, group, paired):
    rng = np.random.default_rng(24)
    names, a, b = ["data", "forward", "backward"], np.array([0.2, 1.0, 2.0]), np.array([0.3, 0.8, 1.0])
    shares = (np.array([0.6, 0.3]), np.array([0.3, 0.5]))
    # The truth: the same statistic on a large sample, where its error is negligible.
    hits, count, truth = {}, 200, None
    for turn in range(count + 1):
        n = 4000 if turn == 0 else 6
        runs = []
        luck = rng.normal(0, 0.3, n)
        for side, means in enumerate((a, b)):
            samples, table = simulated(rng, n, means, 0.15, luck if paired else rng.normal(0, 0.3, n))
            seeds = range(n) if paired else range(side * n, side * n + n)
            runs.append(
                [
                    run(
                        float(row.sum() * s),
                        int(s),
                        seed,
                        phases_s={k: float(v * s) for k, v in zip(names, row, strict=True)},
                    )
                    for s, row, seed in zip(samples, table, seeds, strict=True)
                ]
            )
        drawn = [np.tile(each, (4, 1)) + rng.normal(0, 0 if turn == 0 else 0.02, (4, 2)) for each in shares]
        profiles = tuple(OperatorShares({"Conv": d[:, 0].tolist(), "Relu": d[:, 1].tolist()}, {}) for d in drawn)
        found = explain(group("a", runs[0]), group("b", runs[1]), profiles=profiles)
        values = {(each.within, each.name): each for each in found.factors}
        if turn == 0:
            truth = {key: each.ratio for key, each in values.items()}
            continue
        for key, each in values.items():
            hits[key] = hits.get(key, 0) + (truth[key] in each.interval)
    return {key: value / count for key, value in hits.items()}


@pytest.mark.parametrize("paired", [True, False])
def test_the_intervals_of_all_factors_cover_at_their_level(run, group, paired):
    # Three standard deviations of 200 simulations around 95 % are 4.6 points.
    found = coverage(run, group, paired)
    assert min(found.values()) >= 0.90, found


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


def test_one_run_has_factors_without_intervals(run, group):
    found = explain(group("a", [run(1.0, 100)]), group("b", [run(2.0, 100)]))
    assert found.ratio == pytest.approx(2.0)
    assert {each.interval for each in found.factors} == {None}
    assert "fewer than three runs" in found.lacks[0]


def test_times_that_do_not_vary_get_no_interval(run, group):
    found = explain(group("a", [run(1.0, 100, s) for s in range(4)]), group("b", [run(2.0, 100, s) for s in range(4)]))
    assert found.interval is None
    assert "do not vary at all" in found.lacks[0]


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

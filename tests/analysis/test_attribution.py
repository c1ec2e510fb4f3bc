import pytest
from hypothesis import given
from hypothesis import strategies as st

from levelbench.analysis.attribution import attribute

TIMES = st.lists(st.tuples(st.floats(0.01, 100), st.integers(10, 10**6)), min_size=1, max_size=6)


@given(a=TIMES, b=TIMES)
def test_the_factors_multiply_to_the_ratio_without_a_rest(run, group, a, b):
    found = attribute(group("a", [run(*each) for each in a]), group("b", [run(*each) for each in b]))
    assert found.samples_ratio * found.time_per_sample_ratio == pytest.approx(found.ratio, rel=1e-9)


@given(a=TIMES, b=TIMES)
def test_the_phases_differences_sum_to_the_difference_of_the_means(run, group, a, b):
    found = attribute(group("a", [run(*each) for each in a]), group("b", [run(*each) for each in b]))
    difference = sum(t for t, _ in b) / len(b) - sum(t for t, _ in a) / len(a)
    assert sum(each.difference_s for each in found.phases) == pytest.approx(
        difference, abs=1e-9 * found.mean_a_s + 1e-9
    )


def test_twice_the_samples_at_the_same_speed_is_seen_as_such(run, group):
    found = attribute(group("a", [run(1.0, 1000)]), group("b", [run(2.0, 2000)]))
    assert (found.ratio, found.samples_ratio, found.time_per_sample_ratio) == pytest.approx((2, 2, 1))


def test_what_the_clock_leaves_out_is_no_part_of_it(run, group):
    slow_evaluation = run(1.0, 1000, phases_s={"forward": 1.0, "evaluate": 7.0}, excluded_s={"evaluate": 7.0})
    found = attribute(group("a", [run(1.0, 1000)]), group("b", [slow_evaluation]))
    assert found.mean_b_s == pytest.approx(1.0)


def test_runs_that_never_reached_have_nothing_to_attribute(run, group):
    assert attribute(group("a", [run(None)]), group("b", [run(1.0)])) is None


def test_in_words_it_names_the_largest_difference_first(run, group):
    found = attribute(group("a", [run(0.3, 1000)]), group("b", [run(0.6, 1000)]))
    assert found.lines() == [
        "times 2 (geometric means) = samples to target x1 · time per sample, fixed costs included, x2",
        "arithmetic means 300 -> 600 ms: backward +200 · forward +100",
    ]


def test_what_first_steps_and_evaluations_compile_is_named_as_such(run, group):
    parts = {"warm_up_s": {"backward": 5.0}, "warm_up_evaluation_s": 1.0}
    a = group("a", [run(1.0, 1000, phases_s={"backward": 1.0}, warm_up_s={}, warm_up_evaluation_s=0.0)])
    b = group("b", [run(8.0, 1000, phases_s={"backward": 6.5, "evaluate": 1.5}, **parts)])
    phases = "compilation and warm-up +6 · backward +0.5 · evaluate +0.5"
    assert attribute(a, b).lines()[1] == f"arithmetic means 1 -> 8 s: {phases}"

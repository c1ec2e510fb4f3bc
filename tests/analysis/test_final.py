import math

import pytest

from levelbench.analysis.targets import final_line, final_test


def ends(run, group, qualities):
    runs = [run(1.0, seed=i, crossing="final", quality={"validation": q}) for i, q in enumerate(qualities)]
    return group("fixed", runs, crossing="final")


@pytest.mark.parametrize(("qualities", "reached"), [([0.95, 0.96, 0.94], True), ([0.91, 0.89, 0.92], False)])
def test_the_end_of_a_fixed_schedule_is_tested_over_its_runs(run, group, qualities, reached):
    fixed = ends(run, group, qualities)
    assert final_test(fixed).reached is reached
    assert ("is shown" in final_line(fixed)) is reached


def test_a_brief_line_has_the_mean_and_whether_the_target_is_shown(run, group):
    assert final_line(ends(run, group, [0.95, 0.96, 0.94]), brief=True) == "fixed: 0.9500 at the end; >= 0.9 is shown"


def test_other_crossing_rules_have_no_such_test(run, group):
    assert final_line(group("a", [run(1.0)])) is None


@pytest.mark.parametrize("worst", [math.nan, math.inf, -math.inf])
def test_an_end_that_is_no_number_means_not_shown(run, group, worst):
    fixed = ends(run, group, [0.99, 0.99, worst])
    assert final_test(fixed).reached is False
    assert final_line(fixed) == (
        "fixed: validation top1 at the end is not a number in at least one of 3; >= 0.9 is not shown"
    )
    assert final_test(ends(run, group, [worst])).reached is False

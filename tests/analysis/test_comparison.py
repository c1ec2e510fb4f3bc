import pytest

from levelbench.analysis.comparison import compare
from levelbench.analysis.final import final_line, final_test
from levelbench.errors import IncomparableError
from levelbench.records.schema import Target

LUCK = [1.0, 1.5, 0.7, 2.0, 1.2]


def arm(run, factor, seeds=range(5), **replaced):
    return [run(factor * luck, seed=seed, **replaced) for seed, luck in zip(seeds, LUCK, strict=True)]


def test_arms_with_the_same_seeds_are_compared_in_pairs(run, group):
    found = compare(group("a", arm(run, 1.0)), group("b", reversed(arm(run, 1.1))))
    assert found.verdict.kind == "SLOWER"
    assert found.verdict.reason == "paired by seed"
    assert found.verdict.ratio == pytest.approx(1.1)


def test_arms_with_other_seeds_are_not(run, group):
    found = compare(group("a", arm(run, 1.0)), group("b", arm(run, 1.1, seeds=range(5, 10))))
    assert found.verdict.kind == "UNCLEAR"
    assert found.verdict.reason == ""


def test_runs_that_missed_are_kept_as_censored(run, group):
    found = compare(group("a", arm(run, 1.0)), group("b", [*arm(run, 1.0)[:4], run(None, seed=4)]))
    assert "4/5" in found.verdict.reason


def test_failed_runs_are_left_out(run, group):
    found = compare(group("a", arm(run, 1.0)), group("b", [*arm(run, 1.0), run(None, seed=9, status="failed")]))
    assert found.verdict.n_b == 5


def test_an_arm_without_a_finished_run_is_refused(run, group):
    with pytest.raises(IncomparableError, match="none of its 1 runs"):
        compare(group("a", arm(run, 1.0)), group("b", [run(None, status="failed")]))


@pytest.mark.parametrize(
    ("replaced", "says"),
    [
        ({"task": "letters"}, "task digits and letters"),
        ({"target": Target("top1", 0.8)}, "target validation top1 >= 0.9 and validation top1 >= 0.8"),
        ({"clock": "dawnbench"}, "clock wall and dawnbench"),
        ({"crossing": "first"}, "crossing rule confirmed and first"),
    ],
)
def test_what_would_mean_nothing_is_refused_with_what_differs(run, group, replaced, says):
    with pytest.raises(IncomparableError, match=says):
        compare(group("a", arm(run, 1.0)), group("b", arm(run, 1.0, **replaced)))


def test_a_schedule_of_fixed_length_may_be_set_beside_one_that_stops(run, group):
    assert compare(group("a", arm(run, 1.0)), group("b", arm(run, 1.0, crossing="final"))).verdict is not None


def test_other_machines_give_no_verdict_unless_asked(run, group):
    other = arm(run, 1.0, environment={"machine": {"id": "m2"}})
    assert compare(group("a", arm(run, 1.0)), group("b", other)).verdict is None
    assert compare(group("a", arm(run, 1.0)), group("b", other), across_machines=True).verdict is not None


def test_one_run_of_another_machine_among_many_is_enough(run, group):
    mixed = [*arm(run, 1.0)[:4], run(1.0, seed=4, environment={"machine": {"id": "m2"}})]
    assert compare(group("a", arm(run, 1.0)), group("b", mixed)).machines_differ


@pytest.mark.parametrize(("qualities", "reached"), [([0.95, 0.96, 0.94], True), ([0.91, 0.89, 0.92], False)])
def test_the_end_of_a_fixed_schedule_is_tested_over_its_runs(run, group, qualities, reached):
    runs = [run(1.0, seed=i, crossing="final", quality={"validation": q}) for i, q in enumerate(qualities)]
    fixed = group("fixed", runs, crossing="final")
    assert final_test(fixed).reached is reached
    assert ("is shown" in final_line(fixed)) is reached


def test_other_crossing_rules_have_no_such_test(run, group):
    assert final_line(group("a", arm(run, 1.0))) is None

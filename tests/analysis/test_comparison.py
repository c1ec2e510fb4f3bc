import dataclasses

import numpy as np
import pytest
from msgspec.structs import replace

from levelbench.analysis.comparison import among_others, compare, compare_all
from levelbench.analysis.ties import estimate_to_target, jumps_of
from levelbench.errors import IncomparableError
from levelbench.measure.statistics import estimate
from levelbench.records.schema import Target

LUCK = [1.0, 1.5, 0.7, 2.0, 1.2]


def arm(run, factor, seeds=range(5), **replaced):
    return [run(factor * luck, seed=seed, **replaced) for seed, luck in zip(seeds, LUCK, strict=True)]


def alternating(a, b):
    """Both arms in turns, A B B A A B ...: who goes first is balanced."""
    for at, pair in enumerate(zip(a, b, strict=True)):
        for later, each in enumerate(pair if at % 2 == 0 else pair[::-1]):
            yield replace(each, started=f"2026-01-01T00:01:{2 * at + later:02d}+00:00")


def test_arms_with_the_same_seeds_are_compared_in_pairs(run, group):
    runs = list(alternating(arm(run, 1.0), arm(run, 1.1)))
    first = {each.id for each in runs[0::4]} | {each.id for each in runs[3::4]}
    a, b = [each for each in runs if each.id in first], [each for each in runs if each.id not in first]
    found = compare(group("a", a), group("b", reversed(b)))
    assert found.verdict.kind == "SLOWER"
    assert found.verdict.reason == "paired by seed"
    assert found.verdict.ratio == pytest.approx(1.1)


def test_a_comparison_prints_its_verdict_and_what_speaks_against_it_and_nothing_else(run, group):
    found = compare(group("a", arm(run, 1.0)), group("b", arm(run, 2.0)))
    assert str(found) == repr(found) == "\n".join(found.lines())
    assert str(found).startswith(f"{found.verdict.kind}: b takes ")
    assert len(str(found)) < 2000


def test_arms_with_other_seeds_are_not(run, group):
    runs = list(alternating(arm(run, 1.0), arm(run, 1.1, seeds=range(5, 10))))
    a, b = [each for each in runs if each.seed < 5], [each for each in runs if each.seed >= 5]
    found = compare(group("a", a), group("b", b))
    assert (found.verdict.kind, found.verdict.reason) == ("UNCLEAR", "")
    assert found.verdict.low is not None


def test_arms_of_which_one_always_goes_first_are_widened_by_the_drift(run, group):
    def at(place, seconds, seed):
        run_at = run(seconds * 1.01**place, seed=seed)
        return replace(run_at, started=f"2026-01-01T00:01:{place:02d}+00:00")

    noise = [1.0, 1.001, 0.999, 1.002, 0.998, 1.0, 1.001]
    a = [at(2 * seed, noise[seed], seed) for seed in range(7)]
    b = [at(2 * seed + 1, noise[-seed], seed) for seed in range(7)]
    found = compare(group("a", a), group("b", b)).verdict
    assert found.kind != "SLOWER"
    assert found.low < 1.0 < found.high
    assert "widened by the drift" in found.reason


def test_arms_that_ran_one_after_the_other_get_no_verdict(run, group):
    found = compare(group("a", arm(run, 1.0)), group("b", arm(run, 3.0, seeds=range(5, 10))))
    assert (found.verdict.kind, found.verdict.reason) == ("UNCLEAR", "not interleaved: run them together, with --fresh")


@pytest.mark.parametrize(
    ("started", "do"),
    [("", "run them together, with --fresh"), ("in place", "let levelbench time start both in turns")],
)
def test_what_to_do_for_arms_that_were_not_interleaved_depends_on_what_starts_them(run, group, started, do):
    environment = {"machine": {"id": "m1"}, "started": started}
    first, second = (
        [run(seconds + at / 100, seed=seed, environment=environment) for at, seed in enumerate(seeds)]
        for seconds, seeds in ((1.0, range(5)), (3.0, range(5, 10)))
    )
    assert f"not interleaved: {do}" in compare(group("a", first), group("b", second)).answer()[0]


def test_runs_that_missed_are_kept_as_censored(run, group):
    found = compare(group("a", arm(run, 1.0)), group("b", [*arm(run, 1.0)[:4], run(None, seed=4)]))
    assert "4/5" in found.verdict.reason


def failed(run, seed=9, **replaced):
    return run(None, seed=seed, status="failed", error="out of memory", hopeless=True, **replaced)


def test_failed_runs_count_as_never_arriving(run, group):
    found = compare(group("a", arm(run, 1.0)), group("b", [*arm(run, 1.0), failed(run, given_up_s=0.0)]))
    assert (found.verdict.n_a, found.verdict.n_b) == (5, 6)
    assert "5/6 and 5/5 runs reached" in found.verdict.reason
    assert "not known" not in found.verdict.reason


def test_interrupted_and_running_runs_do_not_count(run, group):
    stopped = [run(None, seed=8, status="interrupted"), run(None, seed=9, status="running")]
    assert compare(group("a", arm(run, 1.0)), group("b", [*arm(run, 1.0), *stopped])).verdict.n_b == 5


def test_an_early_divergence_among_many_runs_leaves_the_verdict_on_time(run, group):
    slow = [run(10.0 + i / 10, seed=i) for i in range(12)]
    fast = [run(5.0 + i / 20, seed=i) for i in range(12)]
    diverged = run(None, seed=20, given_up_s=0.1, hopeless=True, error="the loss is not finite")
    found = compare(group("a", slow), group("b", [*fast, diverged]))
    assert found.verdict.kind == "FASTER"
    assert found.verdict.high < 1.0


def test_give_up_times_stand_in_the_order_of_the_runs_that_missed(run, group):
    a = [run(1.0 + i / 10, seed=i) for i in range(4)]
    again = [run(1.0 + i / 10, seed=i) for i in range(4)]
    b = [run(None, seed=3, given_up_s=0.5), *again[:2], run(None, seed=2, hopeless=True, given_up_s=0.1), *again[3:]]
    assert "3/5" in compare(group("a", a), group("b", b)).verdict.reason


def test_a_run_given_up_at_once_leaves_its_time_unknown_and_is_no_exception(run, group):
    found = compare(group("a", arm(run, 1.0)), group("b", [*arm(run, 1.0), run(None, seed=9, given_up_s=0.0)]))
    assert "not known" in found.verdict.reason


def test_an_arm_of_which_every_run_failed_is_unclear_with_the_reason(run, group):
    found = compare(group("a", arm(run, 1.0)), group("b", [failed(run, seed) for seed in range(5)]))
    assert (found.verdict.kind, found.verdict.n_b) == ("UNCLEAR", 5)
    assert found.verdict.reason == "all 5 runs of b failed: out of memory"
    assert found.attribution is None


@pytest.mark.parametrize("status", ["interrupted", "running"])
def test_an_arm_of_which_no_run_ended_is_refused(run, group, status):
    with pytest.raises(IncomparableError, match="none of the 1 runs of b has ended"):
        compare(group("a", arm(run, 1.0)), group("b", [run(None, status=status)]))


def test_runs_that_did_not_end_are_counted_whether_they_were_interrupted_or_go_on(run, group):
    unended = [run(None, seed=seed, status=status) for seed, status in enumerate(["interrupted", "running"])]
    found = dataclasses.replace(group("b", unended[:1]), unfinished=unended[1:])
    with pytest.raises(IncomparableError, match="none of the 2 runs of b has ended"):
        compare(group("a", arm(run, 1.0)), found)


@pytest.mark.parametrize("other", [{"train": "bb", "test": "cc"}, {"train": "aa"}])
def test_runs_that_read_other_data_are_refused(run, group, other):
    a = arm(run, 1.0, checksums={"train": "aa", "test": "cc"})
    # The last run of an arm is looked at as well as the first.
    mixed = [*arm(run, 1.0, checksums={"train": "aa", "test": "cc"})[:4], run(1.0, seed=4, checksums=other)]
    with pytest.raises(IncomparableError, match="the content of t"):
        compare(group("a", a), group("b", mixed))


def test_a_run_that_ended_before_it_read_any_data_is_no_difference(run, group):
    data = {"checksums": {"train": "aa"}}
    a, b = group("a", arm(run, 1.0, **data)), group("b", [*arm(run, 1.0, **data), failed(run)])
    assert compare(a, b).verdict.n_b == 6


@pytest.mark.parametrize(
    ("replaced", "says"),
    [
        ({"task": "letters"}, "task: digits against letters"),
        ({"target": Target("top1", 0.8)}, "target: validation top1 >= 0.9 against validation top1 >= 0.8"),
        ({"clock": "dawnbench"}, "clock: wall against dawnbench"),
        ({"crossing": "first"}, "crossing rule: confirmed against first"),
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


def test_differences_are_those_of_every_run_each_once(run, group):
    def at(kernel, governor="performance"):
        return {"machine": {"id": "m1", "kernel": kernel, "governor": governor}}

    a = [run(1.0, seed=0, environment=at("6.1")), run(1.1, seed=1, environment=at("6.1", "powersave"))]
    b = [run(1.0 + seed / 10, seed=seed, environment=at("6.2")) for seed in range(3)]
    found = compare(group("a", a), group("b", b)).differences
    assert [(each.path, each.a, each.b) for each in found] == [
        ("machine.governor", "performance", "powersave"),
        ("machine.kernel", "6.1", "6.2"),
    ]


def test_one_run_of_another_machine_among_many_is_enough(run, group):
    mixed = [*arm(run, 1.0)[:4], run(1.0, seed=4, environment={"machine": {"id": "m2"}})]
    assert compare(group("a", arm(run, 1.0)), group("b", mixed)).machines_differ


def test_every_group_is_compared_with_the_first_of_its_task(run, group):
    groups = [group("a", arm(run, 1.0)), group("b", arm(run, 1.1)), group("x", arm(run, 1.0), task="letters")]
    found, refusals = compare_all([*groups, group("c", arm(run, 1.2))], 0.02, 0.95)
    assert [(each.a.label, each.b.label) for each in found] == [("a", "b"), ("a", "c")]
    assert refusals == []


def test_the_level_is_bonferronis_over_the_pairs_that_end_in_a_verdict(run, group):
    refused = group("clock", arm(run, 1.0, clock="dawnbench"))
    elsewhere = group("elsewhere", arm(run, 1.0, environment={"machine": {"id": "m2"}}))
    groups = [group("a", arm(run, 1.0)), group("b", arm(run, 1.1)), refused, elsewhere, group("c", arm(run, 1.2))]
    found, refusals = compare_all(groups, 0.02, 0.95)
    levels = [each.verdict.level for each in found if each.verdict is not None]
    assert levels == pytest.approx([0.975, 0.975])
    assert refusals == ["no verdict on clock: they differ in clock: wall against dawnbench"]
    found, _ = compare_all(groups, 0.02, 0.95, across_machines=True)
    assert [each.verdict.level for each in found] == pytest.approx([1 - 0.05 / 3] * 3)


def test_a_group_of_which_no_run_ended_is_a_refusal_and_no_exception(run, group):
    found, refusals = compare_all([group("a", arm(run, 1.0)), group("b", [run(None, status="running")])], 0.02, 0.95)
    assert found == []
    assert refusals == ["no verdict on b: none of the 1 runs of b has ended"]


def in_turns(run, factor, n, place, **replaced):
    """Runs that took turns with another arm's: A B, A B, ..."""
    luck = [1.0 + 0.02 * ((7 * seed + 3 * place) % 5) for seed in range(n)]
    return [
        run(factor * each, seed=seed, started=f"2026-01-01T00:{2 * seed + place:02d}:00+00:00", **replaced)
        for seed, each in enumerate(luck)
    ]


def test_runs_that_were_looked_at_until_clear_have_the_wider_interval_for_every_reader(run, group):
    plain = compare(group("a", in_turns(run, 1.0, 9, 0)), group("b", in_turns(run, 1.02, 9, 1))).verdict
    marked = [
        group(name, in_turns(run, f, 9, at, planned_effect=0.05))
        for at, (name, f) in enumerate([("a", 1.0), ("b", 1.02)])
    ]
    looked = compare(*marked).verdict
    assert looked.low < plain.low < plain.high < looked.high
    assert looked.level > plain.level == 0.95
    assert "look 3 of --until-clear" in looked.reason


def test_runs_beyond_the_last_look_do_not_count_before_the_next_one(run, group):
    def judged(n):
        return compare(*(group(str(at), in_turns(run, 1.0, n, at, planned_effect=0.05)) for at in (0, 1))).verdict

    assert judged(10).level == judged(9).level
    assert judged(11).level != judged(9).level


def test_earlier_sessions_of_the_machine_widen_the_interval_of_arms_that_ran_one_after_the_other(run, group):
    def session(factor, day, n=5, **replaced):
        return [
            run(factor * (1 + 0.01 * at), seed=at, started=f"2026-01-{day:02d}T00:00:{at:02d}+00:00", **replaced)
            for at in range(n)
        ]

    earlier = [*session(1.0, 1), *session(1.02, 2), *session(0.99, 3), *session(1.01, 4)]
    a, b = group("a", session(1.0, 10)), group("b", session(2.0, 11))
    assert compare(a, b).verdict.kind == "UNCLEAR"
    found = compare(a, b, history=lambda: [group("old", earlier)]).verdict
    assert found.kind == "SLOWER"
    assert "4 earlier sessions" in found.reason
    elsewhere = [group("old", [replace(each, environment={"machine": {"id": "m2"}}) for each in earlier])]
    assert compare(a, b, history=lambda: elsewhere).verdict.kind == "UNCLEAR"
    old = group("old", earlier)
    other = dataclasses.replace(old, specification=replace(old.specification, task="other"))
    assert compare(a, b, history=lambda: [other]).verdict.kind == "UNCLEAR", "another task, other noise"


@pytest.mark.parametrize(
    ("n", "evaluations", "losses", "kind"),
    [
        (5, 8, "", "UNCLEAR"),
        (40, 8, "", "SAME"),
        (5, 200, "", "SAME"),
        (5, 8, "equal", "SAME"),
        (5, 0, "", "SAME"),
    ],
)
def test_runs_that_all_tie_at_an_evaluation_are_the_same_only_if_what_they_do_not_show_is_small(
    run, group, n, evaluations, losses, kind
):
    def started(place):
        return f"2026-01-01T00:{place // 60:02d}:{place % 60:02d}+00:00"

    def made(shift):
        return [
            run(
                1.0 + 0.1 * (seed % 4) + 0.0001 * ((seed + shift) % 3),
                100 * (seed % 4) + 1000,
                seed=seed,
                started=started(2 * seed + (shift if seed % 2 else 1 - shift)),
                wall_s=0.5,
                evaluations=evaluations,
                losses_digest=f"{losses}{seed}" if losses else "",
            )
            for seed in range(n)
        ]

    found = compare(group("a", made(0)), group("b", made(1))).verdict
    assert found.kind == kind
    if kind == "UNCLEAR":
        assert found.reason == "all pairs tie at an evaluation, and up to 45 % may differ by one or more"
        assert found.runs_to_settle == 28


@pytest.mark.parametrize(("n", "pace", "kind"), [(5, 1.05, "UNCLEAR"), (24, 1.05, "SLOWER"), (5, 1.4, "SLOWER")])
def test_a_difference_of_pace_alone_needs_as_many_ties_as_could_undo_it(run, group, n, pace, kind):
    def made(shift):
        return [
            run(
                (5.0 + 0.001 * ((seed + shift) % 3)) * pace**shift,
                seed=seed,
                started=f"2026-01-01T00:{seed:02d}:{30 * (shift if seed % 2 else 1 - shift):02d}+00:00",
                wall_s=6.0,
                evaluations=5,
            )
            for seed in range(n)
        ]

    found = compare(group("a", made(0)), group("b", made(1))).verdict
    assert found.kind == kind
    if kind == "UNCLEAR":
        assert found.reason == "all pairs tie at an evaluation, and up to 45 % may differ by one or more"
        assert found.runs_to_settle == 15


def late_now_and_then(run, n, late, pace, arm, spread=0.0):
    """Runs in turns, of which those with seeds in ``late`` need an eleventh evaluation."""
    return [
        run(
            (1.0 + 0.1 * (seed in late)) * pace * (1 + spread * ((7 * seed + 3 * arm) % 5 - 2)),
            10_000 + 1000 * (seed in late),
            seed=seed,
            started=f"2026-01-01T00:{seed:02d}:{30 * (arm if seed % 2 else 1 - arm):02d}+00:00",
            wall_s=1.0,
            evaluations=10 + (seed in late),
        )
        for seed in range(n)
    ]


def test_one_late_pair_undoes_a_small_difference_and_not_a_large_one(run, group):
    def judged(pace):
        a, b = late_now_and_then(run, 12, (), 1.0, 0, 0.001), late_now_and_then(run, 12, (5,), pace, 1, 0.001)
        return compare(group("a", a), group("b", b)).verdict

    found = judged(0.97)
    assert (found.kind, found.runs_to_settle) == ("UNCLEAR", 24)
    assert found.reason == "1 of 12 pairs differs by an evaluation, and up to 34 % of all may"
    assert judged(0.95).kind == "FASTER"


@pytest.mark.slow
def test_a_faster_step_that_late_evaluations_make_up_for_is_seldom_called_faster(run, group):
    random, false = np.random.default_rng(4), 0
    for _ in range(300):
        late = np.flatnonzero(random.random(12) < 0.15)
        a, b = late_now_and_then(run, 12, (), 1.0, 0), late_now_and_then(run, 12, late, 1.1**-0.15, 1)
        a, b = (
            [replace(x, time_to_accuracy_s=x.time_to_accuracy_s * random.lognormal(0, 0.008)) for x in y]
            for y in (a, b)
        )
        false += compare(group("a", a), group("b", b)).verdict.kind in ("FASTER", "SLOWER")
    assert false <= 12, "9.5 % in 1,500 trials by the interval of the times alone, 0.8 % with this bound"


def test_same_is_said_only_where_the_whole_interval_lies_within_the_margin(run, group):
    a, b = late_now_and_then(run, 24, (), 1.0, 0, 0.0005), late_now_and_then(run, 24, (3,), 1.008, 1, 0.0005)
    found = compare(group("a", a), group("b", b)).verdict
    assert found.high > 1.02
    assert found.kind == "UNCLEAR"


def test_a_lost_run_does_not_take_away_the_allowance_for_late_evaluations(run, group):
    a, b = late_now_and_then(run, 6, (), 1.0, 0, 0.001), late_now_and_then(run, 6, (), 0.97, 1, 0.001)[:5]
    found = compare(group("a", a), group("b", b)).verdict
    assert found.kind == "UNCLEAR"
    assert found.reason == "all runs tie at an evaluation, and up to 45 % may differ by one or more"


def test_arms_that_usually_need_different_numbers_of_evaluations_are_each_held_to_their_own(run, group):
    a = late_now_and_then(run, 8, (), 1.0, 0, 0.001)
    b = [replace(each, seed=each.seed + 100, evaluations=9) for each in late_now_and_then(run, 8, (), 0.97, 1, 0.001)]
    assert compare(group("a", a), group("b", b)).verdict.kind == "UNCLEAR"


def test_a_failed_run_does_not_take_it_away_either(run, group):
    a, b = late_now_and_then(run, 12, (), 1.0, 0, 0.001), late_now_and_then(run, 12, (), 0.97, 1, 0.001)
    failed = {"reached": False, "time_to_accuracy_s": None, "given_up_s": 0.5, "status": "failed", "hopeless": True}
    found = compare(group("a", [replace(a[0], **failed), *a[1:]]), group("b", b)).verdict
    assert found.kind == "UNCLEAR"
    assert "all pairs tie at an evaluation, and up to 24 % may differ" in found.reason


def test_two_late_runs_of_many_are_no_large_share_of_a_small_arm(run, group):
    a = late_now_and_then(run, 6, (), 1.0, 0, 0.001)
    b = [replace(each, seed=each.seed + 100) for each in late_now_and_then(run, 24, (3, 9), 0.97, 1, 0.001)]
    found = jumps_of(a, b)
    assert len(found.late(1)) == 1
    assert found.bound(1, 0.95) > 0.05


def test_an_evaluation_is_as_large_as_in_the_arm_that_needs_fewer(run, group):
    a = [replace(each, evaluations=20) for each in late_now_and_then(run, 8, (), 1.0, 0, 0.001)]
    b = [replace(each, evaluations=2, seed=each.seed + 100) for each in late_now_and_then(run, 8, (), 1.0, 1, 0.001)]
    assert jumps_of(a, b).step == pytest.approx(np.log(2))


def test_how_many_more_runs_it_takes_allows_for_ties(run, group):
    a, b = late_now_and_then(run, 4, (), 1.0, 0, 0.03), late_now_and_then(run, 4, (), 0.97, 1, 0.03)
    found = compare(group("a", a), group("b", b)).verdict
    assert found.kind == "UNCLEAR"
    assert found.runs_to_settle > 10


def test_ties_that_could_not_undo_a_large_difference_need_no_more_runs(run, group):
    a = [run(time, seed=at, evaluations=4) for at, time in enumerate([0.51, 0.23, 0.30, 0.24, 0.17])]
    b = [run(time, seed=at, evaluations=4) for at, time in enumerate([0.51, 0.29, 0.33, 0.49, 0.40])]
    found = compare(group("a", a), group("b", b)).verdict
    assert found.kind == "UNCLEAR"
    assert found.runs_to_settle == 4


def test_runs_that_were_given_up_at_the_usual_evaluation_count_as_late(run, group):
    a, b = late_now_and_then(run, 12, (), 1.0, 0, 0.001), late_now_and_then(run, 12, (), 0.98, 1, 0.001)
    missed = [
        replace(each, reached=False, time_to_accuracy_s=None, given_up_s=0.98) if each.seed in (2, 7, 8, 11) else each
        for each in b
    ]
    found = compare(group("a", a), group("b", missed)).verdict
    assert found.kind == "UNCLEAR"


def test_runs_of_a_fixed_length_always_end_together_and_can_be_the_same(run, group):
    def made(shift, **more):
        return [run(1.0 + 0.0001 * ((seed + shift) % 3), seed=seed, evaluations=8, **more) for seed in range(5)]

    fixed = {"crossing": "final"}
    sides = group("a", made(0, **fixed), **fixed), group("b", made(1, **fixed), **fixed)
    assert compare(*sides).verdict.kind == "SAME"


def estimated(runs):
    return estimate_to_target([each.time_to_accuracy_s for each in runs], runs)


@pytest.mark.parametrize("late", [(), (3,)])
def test_the_interval_of_a_time_has_room_for_late_evaluations_that_few_runs_show(run, late):
    found = estimated(late_now_and_then(run, 10, late, 1.0, 0, 0.0001))
    # Up to 26 % of all may be late if none of 10 is, by two evaluations of ten on average.
    assert found.interval.high >= 1.2**0.25
    assert found.interval.low <= 0.97
    assert found.interval.method == "Student's t on logarithms, with room for late evaluations"


def test_an_interval_that_has_seen_enough_late_runs_stays_as_it_is(run):
    runs = late_now_and_then(run, 10, (1, 4, 8), 1.0, 0, 0.0001)
    plain = estimate([each.time_to_accuracy_s for each in runs])
    assert estimated(runs).interval.high == plain.interval.high


def test_times_of_a_fixed_length_and_ranges_of_few_runs_have_no_room_added(run):
    for n, more in ((12, {"crossing": "final"}), (5, {})):
        runs = [replace(each, **more) for each in late_now_and_then(run, n, (), 1.0, 0, 0.0001)]
        assert estimated(runs) == estimate([each.time_to_accuracy_s for each in runs])


def test_intervals_of_times_to_the_target_hold_the_truth_where_runs_are_seldom_late(run):
    random = np.random.default_rng(3)
    truth, held = 0.1 * sum(0.5**j * np.log1p(j / 4) for j in range(1, 50)), []
    for _ in range(100):
        late = [int(random.geometric(0.5)) * bool(random.random() < 0.1) for _ in range(8)]
        runs = [run((1 + each / 4) * np.exp(random.normal(0, 0.01)), evaluations=4 + each) for each in late]
        held.append(np.exp(truth) in estimated(runs).interval)
    assert np.mean(held) >= 0.95


def test_what_took_turns_with_both_sides_is_noted_and_what_else_a_store_holds_is_not(run, group):
    def runs(key, places):
        times = [f"2026-01-01T00:{place:02d}:00+00:00" for place in places]
        return [run(1.0, seed=seed, key=key, started=started) for seed, started in enumerate(times)]

    a, b, third = (runs(key, range(at, 12, 3)) for at, key in enumerate("abc"))
    later, few = runs("later", range(20, 24)), runs("few", (0, 3))
    found = compare(group("a", a), group("b", b))
    assert among_others(found, [*a, *b, *later, *few]) is found
    (note,) = [each for each in among_others(found, [*a, *b, *third, *later]).caveats if each not in found.caveats]
    assert (note.weight, note.subject) == ("note", "level")
    assert note.sentence.startswith("1 other took turns with these two: the interval is that of one comparison")

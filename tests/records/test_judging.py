"""Verdicts with repeated looks at processes, and doubts about processes."""

from types import SimpleNamespace

import pytest

from levelbench.records.doubts import counted_doubts, in_steps, made_again, out_of_turn, process_doubts
from levelbench.records.figures import pair, planned_effect, verdicts


def values(factor, spread=0.01, count=9):
    return {seed: factor * (1.0 + spread * ((7 * seed + int(10 * factor)) % 5 - 2)) for seed in range(count)}


def test_repeated_looks_widen_the_interval():
    plain = pair(values(1.0), values(1.1)).verdict(0.02, 0.95)
    looked = pair(values(1.0), values(1.1), 0.05).verdict(0.02, 0.95)
    assert looked.low < plain.low < plain.high < looked.high
    assert looked.level > plain.level == 0.95
    assert "look 3 of --until-clear" in looked.reason


def test_among_many_comparisons_a_difference_must_be_larger():
    alike, slower = pair(values(1.0), values(1.0), 0.05), pair(values(1.0), values(1.1, 0.03), 0.05)
    alone = verdicts({0: slower}, 0.95, 0.02)[0]
    assert alone.kind == "SLOWER"
    among = verdicts(dict.fromkeys(range(1, 2000), alike) | {0: slower}, 0.95, 0.02)[0]
    assert among.kind == "UNCLEAR"
    assert "not among 2000 problems (Bonferroni)" in among.reason


def test_a_verdict_by_stretches_that_the_times_one_by_one_do_not_show_is_unclear_and_says_so():
    # As after a second command with --resume, which repeats some processes and finds others done.
    first, starts = {0: 0.30, 1: 0.27, 2: 0.24, 3: 0.23, 4: 0.24}, {0: 18.6, 1: 19.4, 2: 19.7, 3: 20.6, 4: 16.7}
    second, later = {0: 0.48, 1: 0.45, 2: 0.47, 3: 0.46, 4: 0.18}, {0: 18.0, 1: 18.9, 2: 20.0, 3: 20.8, 4: 22.3}
    (found,) = verdicts({0: pair(first, second, starts=(starts, later), by="turn")}, 0.95, 0.02, "commands").values()
    assert found.kind == "UNCLEAR"
    assert found.reason.endswith("SLOWER by stretches, but not one by one (p = 0.084)")


def test_the_smallest_effect_of_any_record_counts():
    records = [SimpleNamespace(header=SimpleNamespace(planned_effect=each)) for each in (None, 0.1, 0.05)]
    assert planned_effect(records) == 0.05
    assert planned_effect(records[:1]) is None


def test_every_doubt_is_given_once_with_the_processes_of_each_arm():
    suspects = [
        [["others kept 0.2 cores busy"], ["others kept 0.9 cores busy", "its clock went back"]],
        [[], ["its clock went back"]],
    ]
    assert list(counted_doubts(["a", "b"], suspects).values()) == [
        "2 of 2 processes of a: others kept 0.9 cores busy",
        "1 of 2 processes of a and of b: its clock went back",
    ]


def test_arms_with_as_many_doubted_processes_share_the_count_and_all_but_the_first_of_many_are_counted():
    hot = [["hot"]]
    assert [*counted_doubts("abc", [hot, hot, hot]).values()] == ["1 of 1 processes of a, of b and of c: hot"]
    assert [*counted_doubts("abc", [hot, [*hot, []], hot]).values()] == [
        "1 of 1 processes of a and of c, and 1 of 2 processes of b: hot"
    ]
    (many,) = counted_doubts("abcdefgh", [hot] * 8).values()
    assert many == "1 of 1 processes of a, of b, of c, of d, of e and of 3 others: hot"


def test_processes_that_were_added_after_a_look_are_a_doubt():
    def arm(*asked, effect=None):
        every = {"planned_effect": effect, "started": "", "environment": {}, "measured_before": 0}
        headers = [SimpleNamespace(seed=at, planned_runs=n, **every) for at, n in enumerate(asked)]
        return [SimpleNamespace(header=each, end=None) for each in headers]

    (doubt,) = process_doubts(["a", "b"], [arm(3, 3, 3), arm(3, 3, 3, 4, 5)])
    assert doubt.startswith("the processes of b were made in several steps (3, then 4, then 5 processes were asked for")
    assert process_doubts(["a"], [arm(3, 4, 5, effect=0.05)]) == []


def test_fewer_processes_than_were_asked_for_are_a_doubt():
    every = {"planned_runs": 5, "planned_effect": None, "started": "", "environment": {}, "measured_before": 0}
    arm = [SimpleNamespace(header=SimpleNamespace(seed=seed, **every), end=None) for seed in range(5)]
    assert process_doubts(["a"], [arm]) == []
    (doubt,) = process_doubts(["a"], [arm[:3]])
    assert doubt.startswith("5 processes of a were asked for, and 3 of them count: choosing processes chooses")
    assert doubt.endswith("-n 5 takes all of them")


@pytest.mark.parametrize(
    ("blocks", "doubted"),
    [
        pytest.param([(0, range(5)), (0, (5, 6))], "", id="one command, twice"),
        pytest.param([(0, range(5)), (5, range(5, 10))], "", id="one that continues"),
        pytest.param(
            [(5, range(5, 10)), (0, range(5))], "2 commands with --until-clear (seeds from 0, 5)", id="before"
        ),
        pytest.param([(0, range(5)), (7, range(7, 12))], "2 commands with --until-clear (seeds from 0, 7)", id="a gap"),
        pytest.param(
            [(at, (at,)) for at in range(40, 28, -2)], "6 commands with --until-clear (seeds from 30, 32,", id="many"
        ),
        pytest.param([(0, range(3), None), (0, (3, 4))], "", id="first without looks"),
        pytest.param([(1, range(1, 4), None), (0, (0, 4))], "", id="runs of its seeds without looks"),
        pytest.param(
            [(3, (3, 4), None), (2, (2,), None), (0, (0, 1))], "3 commands, not all", id="blocks of its seeds"
        ),
        pytest.param([(9, range(9, 12), None), (0, range(5))], "2 commands, not all with", id="others without looks"),
        pytest.param([(None, range(5)), (None, (9,))], "", id="older records"),
    ],
)
def test_looks_that_several_commands_began_from_other_seeds_are_a_doubt(blocks, doubted):
    made = [
        SimpleNamespace(
            seed=seed,
            started=f"{at:02d}",
            planned_runs=5,
            planned_effect=(*effect, 0.05)[0],
            environment={} if first is None else {"first_seed": first},
        )
        for at, (first, seeds, *effect) in enumerate(blocks)
        for seed in seeds
    ]
    found = in_steps("a", "runs", made)
    assert [f"the runs of a were made by {doubted}" in each for each in found] == [True] * bool(doubted)


def test_processes_that_began_after_later_ones_of_their_command_are_a_doubt():
    def told(started, planned=4, known=(), picked=False):
        every = {"planned_runs": planned, "planned_effect": None, "environment": {"seed_picked": picked}}
        made = [SimpleNamespace(seed=seed, started=each, **every) for seed, each in enumerate(started)]
        return made_again("a", "processes", made, known)

    assert told("1234") == told("1934", known=[1]) == told("1934", planned=0) == []
    assert told("1934", planned=0, picked=True) == told("1934")
    (doubt,) = told("1934")
    assert doubt.startswith("process 1 of a began after later ones, as where some were removed and made again")


@pytest.mark.parametrize(("first_seed", "doubted"), [(1, False), (0, True)])
def test_a_seed_below_the_first_of_the_command_is_not_one_that_was_made_again(first_seed, doubted):
    every = {"planned_runs": 4, "planned_effect": None}
    made = [SimpleNamespace(seed=0, started="9", environment={"first_seed": 0}, **every)]
    made += [
        SimpleNamespace(seed=seed, started=str(seed), environment={"first_seed": first_seed}, **every)
        for seed in (1, 2, 3)
    ]
    assert bool(made_again("a", "runs", made)) == doubted


@pytest.mark.parametrize(
    ("starts", "wall_s", "known", "doubted"),
    [
        pytest.param(([0, 3, 4, 7], [1, 2, 5, 6]), 1, (), False, id="in turn"),
        pytest.param(([0, 3, 4, 7], [1, 2, 8, 9]), 1, (), True, id="the last two made again"),
        pytest.param(([0, 3, 4, 7], [1, 2, 8, 9]), 1, (2,), False, id="for a known reason"),
        pytest.param(([0, 3, 4, 7], [11, 12, 13, 14]), 1, (), False, id="an arm that was begun later"),
        pytest.param(([0, 1, 2, 5], [3, 4, 6, 7]), 1, (), False, id="an arm that was added to another"),
        pytest.param(([0, 3, 6, 9], [1, 11, 21, 31]), 5, (), False, id="two commands at once"),
    ],
)
def test_the_last_processes_of_an_arm_that_no_longer_took_turns_are_a_doubt(starts, wall_s, known, doubted):
    every = {"planned_runs": 4, "planned_effect": None, "environment": {}}
    arms = [
        [SimpleNamespace(seed=seed, started=f"2026-01-01T12:00:{at:02d}", **every) for seed, at in enumerate(arm)]
        for arm in starts
    ]
    found = out_of_turn(["a", "b"], "processes", arms, [[wall_s] * 4] * 2, [(), known])
    expected = ["process 2 of b began after later ones of the others, though earlier ones took turns"]
    assert [each.partition(",")[0] for each in found] == [each.partition(",")[0] for each in expected * doubted]

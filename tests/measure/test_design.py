"""Whether two arms took turns is seen from when their runs took place."""

import math

import numpy as np
import pytest

from levelbench.measure.design import Between, between_sessions, order_bias, schedule_of, turns
from levelbench.measure.verdict import VerdictKind, verdict


def spans(order, *, gap=1.0, pauses=()):
    """Spans of 10 s each for a word such as ABBA; a pause of an hour before each place in ``pauses``."""
    found, now = {"A": [], "B": []}, 0.0
    for place, arm in enumerate(order):
        now += 3600.0 if place in pauses else gap
        found[arm].append((now, now + 10.0))
        now += 10.0
    return found["A"], found["B"]


def test_other_arms_that_had_their_turn_are_no_pause():
    # Three arms of 700 s a run, A B C C B A: of A and C, each has two runs in a row, 700 s from the other's.
    places = {"a": (0, 5, 6, 11), "c": (2, 3, 8, 9)}
    a, c = ([(700.0 * at, 700.0 * at + 699.0) for at in places[arm]] for arm in "ac")
    assert schedule_of(a, c, paired=True) is None


@pytest.mark.parametrize("order", ["ABBA" * 3, "ABBABAAB" * 2])
def test_stretches_of_a_balanced_order_are_pairs_in_which_one_arm_goes_first(order):
    word = "".join(each * 4 for each in order)
    drifting = [math.exp(0.005 * at) for at in range(len(word))]
    a, b = ([time for time, each in zip(drifting, word, strict=True) if each == arm] for arm in "AB")
    found = verdict(a, b, spans_a=spans(word)[0], spans_b=spans(word)[1])
    assert found.kind is VerdictKind.UNCLEAR
    assert "widened by the drift" in found.reason
    # Without a drift nothing is widened.
    flat = verdict(
        [1.0, 1.001] * (len(a) // 2), [1.1, 1.101] * (len(b) // 2), spans_a=spans(word)[0], spans_b=spans(word)[1]
    )
    assert flat.kind is VerdictKind.SLOWER


def test_an_arm_that_always_goes_first_takes_the_drift_along():
    spans = [(10.0 * at, 10.0 * at + 9.0) for at in range(12)]
    times = [1.01**at for at in range(12)]
    assert order_bias(times[0::2], times[1::2], spans[0::2], spans[1::2]) == pytest.approx(math.log(1.01))
    swapped = [0, 3, 4, 7, 8, 11], [1, 2, 5, 6, 9, 10]
    a, b = ([times[at] for at in arm] for arm in swapped)
    assert order_bias(a, b, *([spans[at] for at in arm] for arm in swapped)) == 0.0


@pytest.mark.parametrize("order", ["ABBAAB", "ABABAB", "ABBAABBAAB", "AABAABAAB"])
def test_arms_that_take_turns_are_interleaved(order):
    assert schedule_of(*spans(order)) is None


@pytest.mark.parametrize(
    "order", ["AAABBB", "AAAAABBBBB", "ABBAABBAABAAAAA", "BBBAAA", "AAABBBB", "BBBAAABBB", "BBAAABBB"]
)
def test_arms_that_ran_one_after_the_other_are_not(order):
    assert schedule_of(*spans(order)) is not None


def test_pairs_are_interleaved_only_if_the_two_of_a_pair_were_neighbours():
    a, b = spans("ABBAAB")
    assert schedule_of(a, b, paired=True) is None
    assert schedule_of(a, b[::-1], paired=True) is not None


def test_runs_of_one_arm_alone_between_two_pauses_are_no_turns():
    assert schedule_of(*spans("AABBAABB", pauses=(2, 4, 6)), paired=True) is not None
    assert schedule_of(*spans("ABBABBB", pauses=(4,))) is not None
    assert schedule_of(*spans("ABABABAB", pauses=range(1, 8)), paired=True) is None


def test_sessions_of_different_arms_that_follow_each_other_are_pairs():
    found = schedule_of(*spans("AAABBBBBBAAAAAABBB"))
    assert (found.a, found.b) == (((0, 1, 2), (3, 4, 5, 6, 7, 8)), ((0, 1, 2, 3, 4, 5), (6, 7, 8)))
    assert found.pairs == ((0, 0), (1, 1))


def test_one_session_of_each_arm_gives_a_ratio_and_no_verdict():
    a, b = spans("AAAAABBBBB")
    found = verdict([1.0, 1.01, 0.99, 1.0, 1.02], [1.3, 1.31, 1.29, 1.3, 1.32], spans_a=a, spans_b=b)
    assert (found.kind, found.low, found.high) == (VerdictKind.UNCLEAR, None, None)
    assert found.ratio == pytest.approx(1.3, rel=0.01)
    assert found.reason == "not interleaved: run them together, with --fresh"


def test_where_it_is_known_how_much_sessions_vary_the_interval_is_widened_by_it():
    a, b = spans("AAAAABBBBB")
    times = [1.0, 1.01, 0.99, 1.0, 1.02], [1.3, 1.31, 1.29, 1.3, 1.32]
    steady = verdict(*times, spans_a=a, spans_b=b, between=Between(0.01**2, 8))
    assert steady.kind is VerdictKind.SLOWER
    assert verdict(*times, spans_a=a, spans_b=b, between=Between(0.2**2, 8)).kind is VerdictKind.UNCLEAR
    assert "9 earlier sessions" in steady.reason


def test_three_pairs_of_neighbouring_stretches_are_what_is_compared():
    a, b = spans("AAABBBAAABBBAAABBB")
    day = np.repeat([1.0, 1.2, 0.8], 3)
    times = (day * np.tile([1.0, 1.01, 0.99], 3)).tolist()
    found = verdict(times, [2 * t for t in times[::-1]][::-1], spans_a=a, spans_b=b)
    assert found.kind is VerdictKind.SLOWER
    assert "3 pairs of neighbouring stretches" in found.reason


def test_sessions_of_one_arm_that_all_came_before_the_others_give_no_verdict():
    a, b = spans("AAAAAABBBBBB", pauses=range(1, 12))
    found = verdict([1.0, 1.01, 0.99] * 2, [1.3, 1.31, 1.29] * 2, spans_a=a, spans_b=b)
    assert (found.kind, found.low) == (VerdictKind.UNCLEAR, None)


def test_shares_of_runs_that_arrived_are_not_compared_either():
    # Runs fail together, too: for want of room on the disk that there is an hour later.
    a, b = spans("AAAAAABBBBBB")
    found = verdict([1.0] * 6, [None] * 6, censored_at_b=[float("inf")] * 6, spans_a=a, spans_b=b)
    assert found.kind is VerdictKind.UNCLEAR
    assert "not interleaved" in found.reason


def test_the_variance_between_sessions_is_pooled_within_specifications():
    random = np.random.default_rng(3)
    groups = []
    for level in (1.0, 50.0):
        times, when = [], []
        for session in range(200):
            shift = 0.1 * random.standard_normal()
            for run in range(3):
                times.append(level * float(np.exp(shift + 0.02 * random.standard_normal())))
                when.append((session * 1e5 + run, session * 1e5 + run + 1))
        groups.append((times, when))
    found = between_sessions(groups)
    assert found.dof == 398
    assert found.variance == pytest.approx(0.1**2 + 0.02**2 / 3, rel=0.2)


def test_one_session_tells_nothing_of_how_sessions_vary():
    assert between_sessions([([1.0, 1.1], [(0.0, 1.0), (2.0, 3.0)])]) is None


@pytest.mark.slow
def test_arms_in_blocks_on_a_drifting_machine_are_called_different_in_five_percent_at_most():
    random, repeats, wrong = np.random.default_rng(9), 400, 0
    a, b = spans("AAAAABBBBB" * 4)
    for _ in range(repeats):
        drift = np.empty(40)
        drift[0] = random.standard_normal()
        for at in range(1, 40):
            drift[at] = 0.98 * drift[at - 1] + (1 - 0.98**2) ** 0.5 * random.standard_normal()
        times = np.exp(0.05 * drift).reshape(8, 5)
        kind = verdict(times[::2].ravel().tolist(), times[1::2].ravel().tolist(), spans_a=a, spans_b=b).kind
        wrong += kind in (VerdictKind.FASTER, VerdictKind.SLOWER)
    assert wrong / repeats <= 0.05 + 3 * (0.05 * 0.95 / repeats) ** 0.5


@pytest.mark.parametrize("seed", range(20))
def test_turns_are_the_same_however_many_are_asked_for_and_the_first_five_are_balanced(seed):
    found = turns(40, str(seed))
    assert found[:17] == turns(17, str(seed))
    assert sum(found[:5]) in (2, 3)
    assert all(len({*turns(count, str(seed))}) == 2 for count in range(3, 41))


@pytest.mark.parametrize(("period", "n"), [(2, 3), (3, 12), (4, 9), (5, 9), (5, 12), (7, 12)])
def test_what_comes_and_goes_by_itself_is_no_verdict_on_an_arm(period, n):
    random, repeats, wrong = np.random.default_rng(period), 400, 0
    for _ in range(repeats):
        now, at, times, spans = 0.0, int(random.integers(period)), ([], []), ([], [])
        for reverse in turns(n, str(random.integers(2**32))):
            for arm in (1, 0) if reverse else (0, 1):
                value = float(np.exp(0.005 * random.standard_normal() + (at % period == 0) * np.log(1.5)))
                times[arm].append(value)
                spans[arm].append((now, now + value))
                now, at = now + value + 0.1, at + 1
        kind = verdict(*times, paired=True, spans_a=spans[0], spans_b=spans[1]).kind
        wrong += kind in (VerdictKind.FASTER, VerdictKind.SLOWER)
    # So few periods of so large a disturbance are no normal noise: at most 8 %, where a fixed order has up to 100 %.
    assert wrong / repeats <= 0.08 + 3 * (0.08 * 0.92 / repeats) ** 0.5


def test_turns_keep_no_period():
    assert len({tuple(turns(16, str(seed))) for seed in range(40)}) > 10

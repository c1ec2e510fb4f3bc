"""Whether two arms took turns is seen from when their runs took place."""

import numpy as np
import pytest

from levelbench.measure.design import Between, between_sessions, schedule_of
from levelbench.measure.verdict import VerdictKind, verdict


def spans(order, *, gap=1.0, pauses=()):
    """Spans of 10 s each for a word such as ABBA; a pause of an hour before each place in ``pauses``."""
    found, now = {"A": [], "B": []}, 0.0
    for place, arm in enumerate(order):
        now += 3600.0 if place in pauses else gap
        found[arm].append((now, now + 10.0))
        now += 10.0
    return found["A"], found["B"]


@pytest.mark.parametrize("order", ["ABBAAB", "ABABAB", "ABBAABBAAB", "AABAABAAB"])
def test_arms_that_take_turns_are_interleaved(order):
    assert schedule_of(*spans(order)).interleaved


@pytest.mark.parametrize("order", ["AAABBB", "AAAAABBBBB", "ABBAABBAABAAAAA", "BBBAAA"])
def test_arms_that_ran_one_after_the_other_are_not(order):
    assert not schedule_of(*spans(order)).interleaved


def test_pairs_are_interleaved_only_if_the_two_of_a_pair_were_neighbours():
    a, b = spans("ABBAAB")
    assert schedule_of(a, b, paired=True).interleaved
    assert not schedule_of(a, b[::-1], paired=True).interleaved


def test_a_long_pause_ends_a_session():
    found = schedule_of(*spans("AAAAAABBBBBB", pauses=(2, 4, 8, 10))).sessions
    assert found.a == ((0, 1), (2, 3), (4, 5))
    assert found.b == ((0, 1), (2, 3), (4, 5))
    assert found.pairs == ((2, 0),)


def test_sessions_of_different_arms_that_follow_each_other_are_pairs():
    found = schedule_of(*spans("AAABBBBBBAAAAAABBB")).sessions
    assert (found.a, found.b) == (((0, 1, 2), (3, 4, 5, 6, 7, 8)), ((0, 1, 2, 3, 4, 5), (6, 7, 8)))
    assert found.pairs == ((0, 0), (1, 1))


def test_one_session_of_each_arm_gives_a_ratio_and_no_verdict():
    a, b = spans("AAAAABBBBB")
    found = verdict([1.0, 1.01, 0.99, 1.0, 1.02], [1.3, 1.31, 1.29, 1.3, 1.32], spans_a=a, spans_b=b)
    assert (found.kind, found.low, found.high) == (VerdictKind.UNCLEAR, None, None)
    assert found.ratio == pytest.approx(1.3, rel=0.01)
    assert found.reason == "not interleaved: run them together"


def test_where_it_is_known_how_much_sessions_vary_the_interval_is_widened_by_it():
    a, b = spans("AAAAABBBBB")
    times = [1.0, 1.01, 0.99, 1.0, 1.02], [1.3, 1.31, 1.29, 1.3, 1.32]
    steady = verdict(*times, spans_a=a, spans_b=b, between=Between(0.01**2, 8))
    assert steady.kind is VerdictKind.SLOWER
    assert verdict(*times, spans_a=a, spans_b=b, between=Between(0.2**2, 8)).kind is VerdictKind.UNCLEAR
    assert "9 earlier sessions" in steady.reason


def test_three_sessions_of_each_arm_are_what_is_compared():
    a, b = spans("AAAAAABBBBBB", pauses=(2, 4, 8, 10))
    fast = verdict(
        [1.0, 1.01, 1.1, 1.11, 0.9, 0.91], [t * 2 for t in (1.0, 1.01, 1.1, 1.11, 0.9, 0.91)], spans_a=a, spans_b=b
    )
    assert fast.kind is VerdictKind.SLOWER
    assert "3 and 3 sessions" in fast.reason
    # The same runs believed to be independent would call a difference of 15 % that the sessions' spread allows.
    near = [t * 1.15 for t in (1.0, 1.01, 1.1, 1.11, 0.9, 0.91)]
    assert verdict([1.0, 1.01, 1.1, 1.11, 0.9, 0.91], near, spans_a=a, spans_b=b).kind is VerdictKind.UNCLEAR


def test_runs_that_could_never_arrive_are_judged_by_their_share_whenever_they_ran():
    a, b = spans("AAAAAABBBBBB")
    found = verdict([1.0] * 6, [None] * 6, censored_at_b=[float("inf")] * 6, spans_a=a, spans_b=b)
    assert found.kind is VerdictKind.SLOWER
    assert "Fisher" in found.reason


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

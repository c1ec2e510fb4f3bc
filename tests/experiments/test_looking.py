"""Continuing until the verdicts are clear: when to look, and when to stop."""

from itertools import islice

import pytest

from levelbench.experiments.kernel import UntilClear, go_on
from levelbench.measure.sequential import looks_at
from levelbench.measure.verdict import verdict

LOOKS = [*islice(looks_at(), 6)]


def times(factor, count):
    return [factor * (1.0 + 0.01 * (seed % 3)) for seed in range(count)]


def looked(until, factor, count=5, clear_from=0):
    """The counts that were made, and the looks, if the verdict is clear from some count on."""
    made, looks = [], []

    def make(runs):
        made.append(runs)
        unclear = [1.3 if seed % 2 else 0.75 for seed in range(runs)]
        return verdict(times(1.0, runs), times(factor, runs) if runs >= clear_from else unclear, paired=False)

    found = go_on(until, count, make, lambda each: ([("b", each)], ""), looks.append)
    return made, looks, found


def test_without_until_clear_the_users_number_of_runs_is_made_without_looks():
    made, looks, found = looked(None, 2.0, count=3)
    assert (made, looks, found.n_a) == ([3], [], 3)


@pytest.mark.parametrize("clear_from", [LOOKS[0], LOOKS[3]])
def test_looks_continue_until_the_verdict_is_clear(clear_from):
    made, looks, found = looked(UntilClear(0.05), 2.0, clear_from=clear_from)
    assert made == LOOKS[: LOOKS.index(clear_from) + 1]
    assert [each.count for each in looks] == made
    assert [each.clear for each in looks] == [False] * (len(made) - 1) + [True]
    assert found.kind == "SLOWER"
    assert looks[-1].verdicts == [("b", found)]


def test_looks_end_when_the_time_is_spent():
    made, looks, _ = looked(UntilClear(0.05, limit_s=1e-9), 2.0, clear_from=99)
    assert made == [5]
    assert not looks[0].clear
    assert looks[0].left_s <= 0

"""Steps by worker."""

from hypothesis import given
from hypothesis import strategies as st

from levelbench.distributed.schemes.parameter_server import StepCounts


@given(st.lists(st.integers(0, 4), max_size=60))
def test_the_slowest_is_the_one_with_the_fewest_steps_after_each(pushes):
    counts, made = StepCounts([0] * 5), [0] * 5
    for worker in pushes:
        made[worker] += 1
        assert counts.count(worker) == made[worker]
        assert (counts.made, counts.slowest) == (made, min(made))


def test_it_goes_on_from_what_was_kept():
    counts = StepCounts([3, 1, 2])
    assert counts.slowest == 1
    counts.count(1)
    assert counts.slowest == 2

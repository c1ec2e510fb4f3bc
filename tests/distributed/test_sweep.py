import numpy as np
import pytest

from levelbench.distributed.communicators.threads import run_ranks
from levelbench.distributed.sweep import OPERATIONS, parse_sizes, require_right, rule_for, sweep
from levelbench.errors import CheckFailedError, UnknownNameError, UsageError
from levelbench.frameworks.numpy.backend import NumpyBackend
from levelbench.measure.clocks import FakeClock
from levelbench.measure.stopping import FixedCount


def swept(size, operations, sizes, clocks=None):
    def work(communicator):
        clock = {} if clocks is None else {"clock": clocks[communicator.rank]}
        return list(sweep(communicator, NumpyBackend(), operations, sizes, FixedCount(8), **clock))

    return run_ranks(size, work)


@pytest.mark.parametrize("size", [2, 3])
def test_every_operation_is_right_and_measured_alike_on_all_ranks(size):
    found = swept(size, list(OPERATIONS), [4, 100])
    assert all(each == found[0] for each in found)
    assert {each.operation for each in found[0]} == set(OPERATIONS)
    assert all(time > 0 for each in found[0] for time in each.times_s)


def test_the_slowest_ranks_time_counts():
    # A reading costs the clock of rank 1 twice as much, and a turn is two readings.
    found = swept(2, ["all-reduce"], [4], clocks=[FakeClock(tick_ns=1000), FakeClock(tick_ns=2000)])
    assert found[0][0].times_s == pytest.approx([2e-6] * 8)


def test_a_message_there_and_back_is_two():
    found = swept(2, ["send-receive"], [4], clocks=[FakeClock(tick_ns=1000), FakeClock(tick_ns=1000)])
    assert found[0][0].times_s == pytest.approx([5e-7] * 8)


def test_sizes_are_those_of_the_whole_buffer():
    found = {each.operation: each.nbytes for each in swept(3, list(OPERATIONS), [40])[0]}
    assert found["all-reduce"] == found["broadcast"] == found["reduce-scatter"] == 40
    # Ten elements do not go into three equal parts: four each.
    assert found["all-gather"] == found["all-to-all"] == found["gather"] == found["scatter"] == 48
    assert found["barrier"] == 0


def test_a_wrong_sum_is_not_timed():
    def work(communicator):
        right = communicator.start_all_reduce

        def wrong(array, op="sum"):
            array += 1.0
            return right(array, op)

        communicator.start_all_reduce = wrong
        require_right(OPERATIONS["all-reduce"], communicator, NumpyBackend())

    with pytest.raises(CheckFailedError, match="should be 3"):
        run_ranks(2, work)


def test_a_budget_is_shared_between_points():
    assert "0.5 s" in rule_for(5.0, 10).check(Progressed()).text


class Progressed:
    values = np.full(4, 1e-3)
    elapsed_s = 0.1


def test_an_unknown_operation_is_refused():
    with pytest.raises(UnknownNameError, match="all-reduce"):
        swept(1, ["all-reduc"], [4])


def test_one_rank_has_nobody_to_send_to():
    with pytest.raises(UsageError, match="two ranks"):
        swept(1, ["send-receive"], [4])


@pytest.mark.parametrize(
    ("text", "sizes"),
    [
        ("4B:64B", [4, 8, 16, 32, 64]),
        ("1KiB:1MiB:32", [1024, 32768, 1048576]),
        ("4,1kB, 1MiB", [4, 1000, 1048576]),
        ("4B:7B", [4]),
        ("2 GiB", [2**31]),
    ],
)
def test_sizes_are_ranges_or_lists(text, sizes):
    assert parse_sizes(text) == sizes


@pytest.mark.parametrize("text", ["", "2B", "4B:1B", "4B:8B:1", "4B:8B:2:2", "x", "4Q", "1.5KiB", "4B:8B:", "٤B"])
def test_other_texts_are_refused(text):
    with pytest.raises(UsageError, match="4B:64MiB"):
        parse_sizes(text)

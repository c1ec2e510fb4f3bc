"""One query after the other: single-stream, multi-stream, DAWNBench's; on a clock that moves only by hand."""

import numpy as np
import pytest

from levelbench.errors import CheckFailedError, MissingError, UsageError
from levelbench.measure.clocks import FakeClock
from levelbench.measure.scenarios import (
    DawnBench,
    MultiStream,
    SingleStream,
    VirtualClock,
    VirtualServers,
    run_scenario,
)

MS = 10**6


class Answers:
    """Takes ``cost(indices)`` nanoseconds on a fake clock, and remembers what it was asked."""

    def __init__(self, clock, cost=lambda indices: MS * len(indices)):
        self.clock, self.cost, self.asked, self.calls = clock, cost, [], []

    def answer(self, indices):
        self.asked.append(list(indices))
        self.clock.advance(self.cost(indices))

    def load(self, indices):
        self.calls.append(("load", sorted(indices)))

    def unload(self, indices):
        self.calls.append(("unload", sorted(indices)))


def run(scenario, cost=lambda indices: MS * len(indices), samples=50, seed=0, progress=None):
    clock = FakeClock()
    sut = Answers(clock, cost)
    return run_scenario(scenario, sut, samples=samples, seed=seed, clock=clock, progress=progress), sut


def test_every_latency_is_kept_in_order_of_issue():
    result, sut = run(SingleStream(min_duration_s=0, warmup_queries=0), cost=lambda indices: (1 + indices[0]) * MS)
    assert result.latencies_ns.tolist() == [(1 + indices[0]) * MS for indices in sut.asked]
    assert result.indices.ravel().tolist() == [indices[0] for indices in sut.asked]


def test_a_run_lasts_until_time_and_queries_are_both_reached():
    by_queries, _ = run(SingleStream(min_duration_s=0.01, min_queries=100))
    by_time, _ = run(SingleStream(min_duration_s=0.5, min_queries=100))
    assert by_queries.queries == 100
    # The query that is issued after half a second is the last: it is number 501.
    assert by_time.queries == 501
    assert by_time.ended_by == "0.5 s and 100 queries"


def test_the_most_queries_end_a_run_and_say_so():
    result, _ = run(SingleStream(min_duration_s=10, max_queries=70))
    assert (result.queries, result.ended_by) == (70, "the most queries, 70")
    assert not result.valid
    assert result.reasons == ("it lasted 0.069 s, but 10 s are required", "70 queries, but 100 are required")


def test_the_longest_duration_ends_a_run():
    result, _ = run(SingleStream(min_duration_s=10, max_duration_s=0.2))
    assert result.ended_by == "the longest duration, 0.2 s"
    assert result.queries == 202


def test_the_warm_up_is_off_the_clock_and_said():
    result, sut = run(SingleStream(min_duration_s=0, warmup_queries=7))
    assert len(sut.asked) == result.queries + 7
    assert (result.warmup_queries, result.warmup_s) == (7, pytest.approx(0.007))
    assert result.duration_s == pytest.approx(result.queries * 0.001)


def test_the_warm_up_does_not_change_which_samples_are_measured():
    one, _ = run(SingleStream(min_duration_s=0, warmup_queries=0))
    other, _ = run(SingleStream(min_duration_s=0, warmup_queries=25))
    assert np.array_equal(one.indices, other.indices)


def test_equal_seeds_ask_for_equal_samples_and_others_for_others():
    one, _ = run(SingleStream(min_duration_s=0), seed=1)
    same, _ = run(SingleStream(min_duration_s=0), seed=1)
    other, _ = run(SingleStream(min_duration_s=0), seed=2)
    assert np.array_equal(one.indices, same.indices)
    assert not np.array_equal(one.indices, other.indices)


def test_a_multi_stream_query_has_eight_samples_and_one_latency():
    result, sut = run(MultiStream(min_duration_s=0))
    assert {len(indices) for indices in sut.asked} == {8}
    assert (result.queries, result.samples, len(result.latencies_ns)) == (662, 662 * 8, 662)
    assert result.mean_latency_s == pytest.approx(0.008)
    assert result.throughput_per_s == pytest.approx(1000, rel=0.01)


def test_dawnbench_asks_for_every_sample_once_and_one_at_a_time():
    result, sut = run(DawnBench(warmup_queries=3))
    assert sut.asked[3:] == [[index] for index in range(50)]
    assert (result.valid, result.ended_by, result.early) == (True, "every sample once", None)
    assert result.mean_latency_s == pytest.approx(0.001)


def test_dawnbench_is_not_valid_without_every_sample():
    result, _ = run(DawnBench(max_queries=30))
    assert result.reasons == ("not every sample was asked for: the most queries, 30, ended it",)


def test_rates_are_loadgens():
    result, _ = run(SingleStream(min_duration_s=0, warmup_queries=0))
    # The hundredth query is issued after 99 ms: 99 gaps in 99 ms.
    assert result.rates["with driver"] == pytest.approx(1000)
    assert result.rates["without driver"] == pytest.approx(1000)


def test_the_estimate_is_early_stoppings():
    result, _ = run(SingleStream(min_duration_s=0), cost=lambda indices: (1 + indices[0]) * MS, samples=100)
    assert result.early.discarded == 2
    assert result.estimate_s == pytest.approx(np.sort(result.latencies_ns)[-3] * 1e-9)


def test_too_few_queries_for_early_stopping_are_not_valid():
    result, _ = run(SingleStream(min_duration_s=0, min_queries=63, max_queries=63))
    assert result.reasons == ("early stopping: 63 queries, but 64 are needed",)
    assert result.estimate_s is None


def test_samples_are_loaded_before_and_unloaded_after():
    _, sut = run(SingleStream(min_duration_s=0), samples=5)
    assert sut.calls == [("load", [0, 1, 2, 3, 4]), ("unload", [0, 1, 2, 3, 4])]


def test_an_exception_of_the_system_ends_the_run_with_its_cause():
    def cost(indices):
        if indices[0] == 7:
            raise ZeroDivisionError("no scale")
        return MS

    clock = FakeClock()
    sut = Answers(clock, cost)
    with pytest.raises(CheckFailedError, match=r"single-stream query \d+ \(samples 7\).*ZeroDivisionError") as found:
        run_scenario(SingleStream(warmup_queries=0), sut, samples=20, clock=clock)
    assert isinstance(found.value.__cause__, ZeroDivisionError)
    assert sut.calls[-1][0] == "unload"


def test_an_error_that_says_what_to_do_is_passed_on_as_it_is():
    def cost(indices):
        raise MissingError("load the network", "no file", "fetch it")

    with pytest.raises(MissingError, match="load the network: no file"):
        run(SingleStream(), cost)


def test_ctrl_c_passes_and_the_samples_are_unloaded():
    def cost(indices):
        raise KeyboardInterrupt

    clock = FakeClock()
    sut = Answers(clock, cost)
    with pytest.raises(KeyboardInterrupt):
        run_scenario(SingleStream(), sut, samples=5, clock=clock)
    assert sut.calls[-1][0] == "unload"


def test_progress_is_told_about_five_times_a_second():
    told = []
    run(SingleStream(min_duration_s=1), progress=lambda queries, elapsed_s: told.append((queries, round(elapsed_s, 3))))
    assert told[0] == (1, 0.001)
    assert len(told) == 6
    assert told[1] == (201, 0.201)


@pytest.mark.slow
@pytest.mark.parametrize("scenario", [SingleStream(min_duration_s=0.2), MultiStream(min_duration_s=0.2)])
def test_a_system_that_answers_later_is_driven_the_same(scenario):
    clock = VirtualClock()
    result = run_scenario(scenario, VirtualServers(clock, 3 * MS), samples=50, clock=clock)
    assert set(result.latencies_ns.tolist()) == {3 * MS}
    direct, _ = run(scenario)
    assert np.array_equal(result.indices[:60], direct.indices[:60])


def test_a_clock_that_stands_still_is_an_error_and_no_endless_run():
    with pytest.raises(CheckFailedError, match="the clock has not moved in 20000 queries"):
        run(SingleStream(), cost=lambda indices: 0)


def test_a_system_with_neither_method_is_refused():
    with pytest.raises(UsageError, match="neither answer nor issue"):
        run_scenario(SingleStream(), object(), samples=5)


def test_a_set_without_samples_is_refused():
    with pytest.raises(UsageError, match="samples=0"):
        run(SingleStream(), samples=0)


@pytest.mark.parametrize(
    ("make", "named"),
    [
        (lambda: SingleStream(quantile=1.0), "quantile"),
        (lambda: SingleStream(min_queries=0), "min_queries"),
        (lambda: SingleStream(min_duration_s=float("nan")), "min_duration_s"),
        (lambda: MultiStream(samples_per_query=0), "samples_per_query"),
        (lambda: SingleStream(timeout_s=-1), "timeout_s"),
    ],
)
def test_a_setting_that_cannot_be_is_named(make, named):
    with pytest.raises(UsageError, match=named):
        make()

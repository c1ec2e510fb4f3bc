"""The server scenario: arrivals keep their schedule, latencies count from it, and queueing theory is met."""

import dataclasses
import threading
import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from levelbench.errors import CheckFailedError, UsageError
from levelbench.measure.clocks import FakeClock
from levelbench.measure.scenarios import (
    Seeds,
    Server,
    VirtualClock,
    VirtualServers,
    arrivals_ns,
    find_peak,
    run_scenario,
)
from levelbench.measure.scenarios.contract import wait_until
from levelbench.measure.statistics.early_stopping import queries_needed

MS = 10**6


def simulate(server, service_ns, servers=1, seed=0):
    clock = VirtualClock()
    return run_scenario(server, VirtualServers(clock, service_ns, servers), samples=50, seed=seed, clock=clock)


def exponential(rate, seed=0):
    draws = np.random.default_rng(seed)
    return lambda query: int(draws.exponential(1e9 / rate))


def test_a_latency_counts_from_the_scheduled_arrival():
    # Three at once, 10 ms each, one server: waiting is part of the latency.
    result = simulate(Server(qps=10**6, bound_s=1, min_duration_s=0, min_queries=3), 10 * MS)
    assert [round(latency / MS) for latency in result.latencies_ns.tolist()] == [10, 20, 30]


def test_queries_are_issued_whatever_is_still_open():
    result = simulate(Server(qps=1000, bound_s=1, min_duration_s=0.2), 50 * MS)
    assert result.lateness_ns.max() == 0
    assert result.duration_s == pytest.approx(0.05 * result.queries, rel=0.01)


def test_a_lone_queue_has_the_latencies_of_theory():
    # M/M/1: the time in the system is exponential with rate mu - lambda.
    result = simulate(Server(qps=500, bound_s=1, min_duration_s=20), exponential(1000))
    assert result.mean_latency_s == pytest.approx(1 / 500, rel=0.1)
    assert result.quantiles[0.99].value == pytest.approx(np.log(100) / 500, rel=0.1)


def test_a_constant_service_waits_half_as_long():
    # M/D/1: the mean wait is rho / (2 mu (1 - rho)).
    result = simulate(Server(qps=800, bound_s=1, min_duration_s=20), MS)
    assert result.mean_latency_s == pytest.approx(0.001 + 0.8 / (2 * 1000 * 0.2), rel=0.15)


@given(
    st.lists(st.integers(0, 5 * MS), min_size=1, max_size=7),
    st.integers(1, 4),
    st.sampled_from([50.0, 700.0, 10**6]),
    st.integers(0, 2**64),
)
@settings(max_examples=40, deadline=None)
def test_every_latency_is_that_of_the_queue(service_ns, servers, qps, seed):
    server = Server(qps=qps, bound_s=1, min_duration_s=0, min_queries=30, warmup_queries=0)
    result = simulate(server, service_ns, servers, seed)
    free = [0] * servers
    arrivals = arrivals_ns(qps, 0, 30, Seeds.of(seed).schedule).tolist()
    for number, (arrival, latency) in enumerate(zip(arrivals, result.latencies_ns.tolist(), strict=True)):
        free.sort()
        free[0] = max(free[0], arrival) + service_ns[number % len(service_ns)]
        assert latency == free[0] - arrival


def test_rates_are_loadgens():
    result = simulate(Server(qps=400, bound_s=1, min_duration_s=5), MS, servers=8)
    scheduled = result.queries - 1
    assert result.rates["scheduled"] == pytest.approx(scheduled / (result.duration_s - 0.001), rel=1e-3)
    assert result.throughput_per_s == result.rates["completed"] < result.rates["scheduled"]
    assert result.throughput_per_s / result.target_per_s == pytest.approx(1.0, rel=0.1)


def test_a_run_within_the_bound_is_valid():
    result = simulate(Server(qps=400, bound_s=0.01, min_duration_s=5), MS, servers=4)
    assert (result.valid, result.reasons, result.early.late) == (True, (), 0)


def test_a_run_over_the_bound_says_by_how_much_and_what_is_missing():
    result = simulate(Server(qps=400, bound_s=0.001, min_duration_s=5), 2 * MS, servers=50)
    assert not result.valid
    assert result.reasons[0] == "the 0.99 quantile is 0.002 s, over 0.001 s"
    assert f"{result.queries} of {result.queries} late" in result.reasons[1]


def test_a_run_too_short_to_prove_its_quantile_is_not_valid():
    result = simulate(Server(qps=400, bound_s=1, min_duration_s=1, max_queries=300), MS)
    assert "early stopping: 0 of 300 late; 159 more on time are needed" in result.reasons
    assert result.ended_by == "the most queries, 300"


def test_the_peak_of_a_lone_queue_is_near_that_of_theory():
    # M/M/1 with 1000 a second: p99 <= 50 ms up to 1000 - ln(100) / 0.05 = 908 a second.
    clock = VirtualClock()
    sut = VirtualServers(clock, exponential(1000))
    server = Server(qps=300, bound_s=0.05, min_duration_s=5, warmup_queries=1)
    peak = find_peak(server, sut, samples=10, clock=clock, tolerance=0.1)
    assert 700 < peak.qps <= 950
    assert peak.qps < peak.failed_qps <= 1.1 * peak.qps
    assert peak.result.valid
    assert peak.result.target_per_s == peak.qps
    assert {trial.valid for trial in peak.trials} == {True, False}


@pytest.mark.slow
def test_an_overloaded_server_is_stopped_once_its_bound_cannot_be_kept():
    clock = VirtualClock()
    server = Server(qps=20_000, bound_s=0.015, min_duration_s=10, min_queries=662, warmup_queries=0)
    result = run_scenario(server, VirtualServers(clock, MS), samples=50, clock=clock)
    # 200,000 queries of a millisecond would take 200 s; 1,900 may be late.
    assert clock.now_ns() < 5e9
    assert not result.valid
    assert result.queries < 5000
    assert "could no longer be kept" in result.ended_by
    assert len(result.latencies_ns) == result.queries


@pytest.mark.parametrize("qps", [905, 925, 940])
def test_no_run_that_would_pass_is_stopped(qps):
    server = Server(qps=qps, bound_s=0.02, min_duration_s=3, warmup_queries=0)
    stopped = simulate(server, MS)
    whole = simulate(dataclasses.replace(server, bound_s=10.0), MS)
    late = np.count_nonzero(whole.latencies_ns > 20 * MS)
    passes = queries_needed(late, 0.99) <= whole.queries
    assert stopped.valid == passes
    assert stopped.valid == (stopped.queries == whole.queries and stopped.early.passed)


def test_more_arrivals_than_can_be_made_are_refused():
    with pytest.raises(UsageError, match="2,000,000 at most"):
        simulate(Server(qps=10**6, bound_s=1), MS)


def test_the_peak_of_a_slow_server_is_found_however_long_its_runs_take():
    clock = VirtualClock()
    server = Server(qps=5, bound_s=1.0, min_duration_s=5, min_queries=662, warmup_queries=0)
    peak = find_peak(server, VirtualServers(clock, 100 * MS), samples=10, clock=clock)
    assert 6 < peak.qps < 10


def test_a_search_that_a_limit_cuts_short_ends_at_once_and_says_so():
    clock = VirtualClock()
    server = Server(qps=5, bound_s=1.0, min_duration_s=5, max_duration_s=50, warmup_queries=0)
    with pytest.raises(CheckFailedError, match=r"the longest duration, 50 s, ended it with .* 459 are needed") as found:
        find_peak(server, VirtualServers(clock, 100 * MS), samples=10, clock=clock)
    assert "allow a longer run" in found.value.do
    assert clock.now_ns() < 120e9


def test_a_start_above_the_peak_is_halved():
    clock = VirtualClock()
    server = Server(qps=5000, bound_s=0.02, min_duration_s=1, warmup_queries=1)
    peak = find_peak(server, VirtualServers(clock, MS), samples=10, clock=clock, tolerance=0.2)
    assert peak.trials[0].qps == 5000
    assert 500 < peak.qps < 1000


def test_no_rate_at_all_is_an_error_with_the_reason():
    clock = VirtualClock()
    server = Server(qps=100, bound_s=0.0005, min_duration_s=0, warmup_queries=1)
    with pytest.raises(CheckFailedError, match=r"failed: the 0\.99 quantile is 0\.001 s, over 0\.0005 s"):
        find_peak(server, VirtualServers(clock, MS), samples=10, clock=clock)


def test_threads_cannot_answer_on_a_fake_clock():
    class Answers:
        def answer(self, indices):
            pass

    with pytest.raises(UsageError, match="VirtualServers"):
        run_scenario(Server(qps=10, bound_s=1), Answers(), samples=1, clock=FakeClock())


class Threads:
    """Answers in the driver's worker threads, and counts."""

    def __init__(self, fault=None):
        self.threads, self.fault, self.count, self.lock = set(), fault, 0, threading.Lock()

    def answer(self, indices):
        with self.lock:
            self.threads.add(threading.current_thread().name)
            self.count += 1
            number = self.count
        if self.fault is not None:
            self.fault(number)


def test_a_system_that_answers_at_once_is_called_from_worker_threads():
    sut = Threads(fault=lambda number: time.sleep(0.002))
    server = Server(qps=1000, bound_s=5, min_duration_s=0, min_queries=100, workers=3, warmup_queries=3)
    result = run_scenario(server, sut, samples=10)
    assert len(sut.threads) == 3
    assert (result.queries, sut.count) == (100, 103)
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("scenario-")]


def test_the_issuing_thread_does_not_wait_for_answers():
    sut = Threads(fault=lambda number: time.sleep(0.05 if number <= 2 else 0))
    server = Server(qps=2000, bound_s=5, min_duration_s=0, min_queries=50, warmup_queries=0)
    result = run_scenario(server, sut, samples=10)
    # The first answer takes 50 ms, by when all are issued (the last is scheduled at about 25 ms).
    assert float(np.median(result.latencies_ns)) > 30 * MS


def test_no_query_is_issued_before_its_time_on_a_real_clock():
    result = run_scenario(Server(qps=500, bound_s=5, min_duration_s=0, min_queries=60), Threads(), samples=10)
    assert result.lateness_ns.min() >= 0
    assert (result.latencies_ns >= result.lateness_ns).all()


@pytest.mark.slow
def test_an_exception_in_a_worker_thread_ends_the_run_with_its_cause():
    def fault(number):
        if number == 20:
            raise OSError("device lost")

    # Ends long before its duration, or the test does not end in its time.
    server = Server(qps=1000, bound_s=1, min_duration_s=400, warmup_queries=0)
    with pytest.raises(CheckFailedError, match=r"server query 19 .*OSError: device lost") as found:
        run_scenario(server, Threads(fault), samples=10)
    assert isinstance(found.value.__cause__, OSError)


@pytest.mark.slow
def test_a_worker_that_hangs_is_given_up_after_the_timeout():
    release = threading.Event()
    server = Server(qps=1000, bound_s=1, min_duration_s=0, min_queries=5, warmup_queries=0, timeout_s=2.0)
    with pytest.raises(CheckFailedError, match="4 queries were never answered"):
        run_scenario(server, Threads(lambda number: number == 2 and release.wait()), samples=10)
    release.set()


def test_ctrl_c_stops_the_worker_threads():
    def interrupt(queries, elapsed_s):
        raise KeyboardInterrupt

    server = Server(qps=1000, bound_s=1, min_duration_s=30, workers=2, warmup_queries=0)
    with pytest.raises(KeyboardInterrupt):
        run_scenario(server, Threads(), samples=10, progress=interrupt)
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("scenario-")]


@pytest.mark.parametrize("wait_ns", [50_000, 3_000_000])
def test_a_wait_never_ends_early(wait_ns):
    from levelbench.measure.clocks import HOST

    at = HOST.now_ns() + wait_ns
    assert wait_until(HOST, at) >= at


def test_a_wait_is_given_up_when_it_is_told_to():
    from levelbench.measure.clocks import HOST

    at = HOST.now_ns() + 3600 * 10**9
    assert wait_until(HOST, at, stop=lambda: True) < at


def test_things_happen_on_a_virtual_clock_in_order_of_their_time():
    clock, seen = VirtualClock(), []
    for at in (30, 10, 20):
        clock.at(at, lambda at=at: seen.append((at, clock.now_ns())))
    clock.advance(25)
    assert seen == [(10, 10), (20, 20)]
    assert clock.now_ns() == 25
    assert clock.step()
    assert seen[-1] == (30, 30)
    assert not clock.step()

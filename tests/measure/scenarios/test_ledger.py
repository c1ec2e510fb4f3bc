"""Answers that are lost, doubled or never come are errors, on either kind of clock."""

import threading

import pytest

from levelbench.errors import CheckFailedError
from levelbench.measure.scenarios import Offline, Server, SingleStream, VirtualClock, run_scenario

MS = 10**6


class Later:
    """Completes each query after a millisecond, but for what ``fault`` does to it."""

    def __init__(self, clock, fault):
        self.clock, self.fault = clock, fault

    def issue(self, query):
        self.clock.at(self.clock.now_ns() + MS, lambda: self.fault(query))


def lose(query):
    if query.number != 42:
        query.complete()


def double(query):
    query.complete()
    if query.number == 42:
        query.complete()


def overdo(query):
    query.complete(len(query.indices) + 1)


def none_at_all(query):
    query.complete(0)


def fail(query):
    query.fail(RuntimeError("out of memory"))


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        (lose, "1 queries were never answered"),
        (double, r"server query 42 of 1 samples: 1 answers more than it has samples"),
        (overdo, "1 answers more than it has"),
        (none_at_all, "answers"),
        (fail, r"raised RuntimeError: out of memory"),
    ],
)
def test_a_wrong_answer_ends_the_run(fault, message):
    clock = VirtualClock()
    server = Server(qps=1000, bound_s=1, min_duration_s=0, warmup_queries=0)
    with pytest.raises(CheckFailedError, match=message):
        run_scenario(server, Later(clock, fault), samples=5, clock=clock)


def test_a_lost_part_of_a_query_is_a_lost_query():
    clock = VirtualClock()
    sut = Later(clock, lambda query: query.complete(len(query.indices) - 1))
    with pytest.raises(CheckFailedError, match="1 queries were never answered"):
        run_scenario(Offline(expected_per_s=1, min_duration_s=0, warmup_queries=0), sut, samples=5, clock=clock)


def test_a_system_that_raises_while_it_is_issued_a_query_is_named():
    class Full:
        def issue(self, query):
            raise BufferError("queue full")

    with pytest.raises(CheckFailedError, match=r"single-stream query 0 .* BufferError: queue full"):
        run_scenario(SingleStream(warmup_queries=0), Full(), samples=5)


def test_an_answer_that_never_comes_is_given_up_after_the_timeout():
    class Deaf:
        def issue(self, query):
            pass

    with pytest.raises(CheckFailedError, match=r"no answer came for 0\.05 s"):
        run_scenario(SingleStream(timeout_s=0.05), Deaf(), samples=5)


def test_answers_may_come_from_another_thread():
    class Threaded:
        def issue(self, query):
            threading.Thread(target=query.complete).start()

    result = run_scenario(SingleStream(min_duration_s=0, min_queries=64), Threaded(), samples=5)
    assert result.queries == 64
    assert result.latencies_ns.min() > 0


@pytest.mark.slow
def test_a_slow_system_that_still_answers_is_waited_for():
    class Slow:
        def issue(self, query):
            def work():
                for _ in query.indices:
                    threading.Event().wait(0.3)
                    query.complete(1)

            threading.Thread(target=work, daemon=True).start()

    offline = Offline(expected_per_s=1, min_duration_s=0, min_samples=8, timeout_s=2.0, warmup_queries=0)
    result = run_scenario(offline, Slow(), samples=8)
    assert result.samples == 8
    assert result.duration_s > 2.0

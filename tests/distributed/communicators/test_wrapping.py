import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from levelbench.distributed import traffic
from levelbench.distributed.communicators.algorithmic import Algorithmic
from levelbench.distributed.communicators.threads import rank_outcomes, run_ranks
from levelbench.distributed.communicators.wrapping import CountingCommunicator, DelayedCommunicator, Delays, RankDied
from levelbench.distributed.scheme import Traffic
from levelbench.distributed.traffic import ALGORITHMS, Algorithms
from levelbench.errors import CommunicationError
from levelbench.measure.clocks import HOST, FakeClock
from levelbench.measure.timeline import Phase

pytestmark = pytest.mark.usefixtures("small")


def arrivals(seed, most_s=0.01):
    def work(communicator):
        if communicator.rank:
            communicator.send(np.zeros(1), 0)
            return None
        return [communicator.receive_any(np.zeros(1))[1] for _ in range(communicator.size - 1)]

    return tuple(run_ranks(6, work, delays=Delays(seed, most_s))[0])


def test_a_delayed_communicator_keeps_its_contract(keeps_its_contract):
    keeps_its_contract(3, delays=Delays(seed=3, most_s=0.0002))


def test_the_order_of_arrival_varies_with_the_seed():
    assert len({arrivals(seed) for seed in range(4)}) > 1


def test_a_slow_rank_delays_all_in_a_collective():
    start = HOST.now_ns()
    run_ranks(2, lambda each: [each.barrier() for _ in range(3)], delays=Delays(most_s=0, slow={1: 0.02}))
    assert HOST.now_ns() - start >= 3 * 0.02e9


@pytest.mark.parametrize("operation", [1, 3])
def test_a_rank_dies_at_the_requested_operation_and_the_others_get_an_error(operation):
    done = [0, 0, 0]

    def work(communicator):
        for _ in range(5):
            communicator.all_reduce(np.zeros(2))
            done[communicator.rank] += 1

    outcomes = rank_outcomes(3, work, delays=Delays(fail_at={1: operation}))
    assert isinstance(outcomes[1], RankDied)
    assert all(isinstance(outcomes[rank], CommunicationError) for rank in (0, 2))
    assert done[1] == operation - 1
    assert max(done) <= operation - 1


def test_no_error_handler_survives_a_death():
    def work(communicator):
        for _ in range(3):
            try:
                communicator.barrier()
            except Exception:  # noqa: BLE001  # as a careless scheme would
                return "went on"
        return "ended"

    died, other = rank_outcomes(2, work, delays=Delays(fail_at={0: 2}))
    assert isinstance(died, RankDied)
    assert other == "went on"


ARRAY = np.ones(7, np.float32)


def everything(talk):
    """Each operation once, all-reduce once more with a handle."""
    size, rank, root = talk.size, talk.rank, talk.size - 1
    talk.all_reduce(ARRAY.copy())
    handle = talk.start_all_reduce(ARRAY.copy())
    talk.broadcast(ARRAY.copy(), root)
    talk.send(ARRAY, (rank + 1) % size)
    talk.receive(ARRAY.copy(), (rank - 1) % size)
    talk.reduce_scatter(ARRAY.copy())
    talk.all_gather(ARRAY)
    talk.gather(ARRAY, root)
    talk.scatter([ARRAY] * size if rank == root else None, ARRAY.copy(), root)
    talk.all_to_all([ARRAY] * size)
    talk.exchange(ARRAY, sorted({(rank + 1) % size, (rank - 1) % size} - {rank}))
    talk.barrier()
    handle.wait()


def counted(wrap, size):
    def work(communicator):
        talk = CountingCommunicator(wrap(communicator))
        everything(talk)
        return talk.take()

    return run_ranks(size, work)


def calls(totals):
    return {operation: each.calls for operation, each in totals.by_operation().items()}


def test_a_counting_communicator_keeps_its_contract(keeps_its_contract):
    keeps_its_contract(3, CountingCommunicator)


@pytest.mark.parametrize("size", [1, 2, 3, 4])
def test_declared_algorithms_count_what_our_algorithms_really_send(size):
    declared, sent = counted(lambda each: each, size), counted(Algorithmic, size)
    for one, other in zip(declared, sent, strict=True):
        assert (one.sent_bytes, one.messages, calls(one)) == (other.sent_bytes, other.messages, calls(other))
        assert one.payload_bytes == other.payload_bytes


names = st.fixed_dictionaries({operation: st.sampled_from(known) for operation, known in ALGORITHMS.items()})


@settings(max_examples=12, deadline=None)
@given(names, st.integers(1, 6))
def test_every_choice_of_declared_algorithms_counts_what_is_really_sent(chosen, size):
    algorithms = Algorithms(**chosen)

    def declaring(communicator):
        communicator.algorithms = algorithms
        return communicator

    declared, sent = counted(declaring, size), counted(lambda each: Algorithmic(each, algorithms), size)
    assert [(each.sent_bytes, each.messages) for each in declared] == [
        (each.sent_bytes, each.messages) for each in sent
    ]


def test_counts_are_by_operation_and_include_the_payload():
    totals = counted(lambda each: each, 3)
    ring = traffic.all_reduce(7, 4, 3, 0) * 2
    found = totals[0].by_operation()["all_reduce"]
    assert (found.calls, found.payload_bytes) == (2, 56)
    assert (found.sent_bytes, found.messages) == (ring.sent_bytes, ring.messages)
    assert [each.by_operation()["scatter"].payload_bytes for each in totals] == [0, 0, 3 * 28]
    assert totals[0].by_operation()["receive"].payload_bytes == 0
    assert calls(totals[0])["barrier"] == 1


def test_counts_are_by_phase_and_taken_once():
    def work(communicator):
        phase = Phase.COMMUNICATE
        talk = CountingCommunicator(communicator, lambda: phase)
        talk.all_reduce(ARRAY.copy())
        phase = Phase.EVALUATE
        talk.barrier()
        return talk.take(), talk.take()

    first, second = run_ranks(2, work)[0]
    sent = {
        phase: sum(each.sent_bytes for key, each in first.counts.items() if key[1] == phase)
        for _, phase in first.counts
    }
    assert sent == {"communicate": 28, "evaluate": 1}
    assert (second.sent_bytes, calls(second)) == (0, {})


def test_time_includes_the_call_and_the_wait_for_its_handle():
    def work(communicator):
        clock = FakeClock(tick_ns=[10, 30, 100, 170])
        talk = CountingCommunicator(communicator, clock=clock)
        talk.start_all_reduce(ARRAY.copy()).wait()
        return talk.take().time_ns

    assert run_ranks(1, work) == [10 + 100]


def test_a_message_to_oneself_is_not_sent():
    def work(communicator):
        talk = CountingCommunicator(communicator)
        talk.send(ARRAY, communicator.rank)
        talk.receive(ARRAY.copy(), communicator.rank)
        return talk.take()

    for totals in run_ranks(2, work):
        assert Traffic(totals.sent_bytes, totals.messages) == Traffic(0, 0)
        assert calls(totals) == {"send": 1, "receive": 1}


def test_counts_of_our_algorithms_are_found_through_other_wrappers():
    def wrap(communicator):
        return DelayedCommunicator(Algorithmic(communicator, "direct"), Delays(most_s=0))

    totals = counted(wrap, 3)
    direct = traffic.all_reduce(7, 4, 3, 0, "direct") * 2
    assert totals[0].by_operation()["all_reduce"].sent_bytes == direct.sent_bytes

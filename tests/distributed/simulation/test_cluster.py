import numpy as np
import pytest
from tests.distributed.simulation.simulated import run_simulated

from levelbench.distributed.communicators.meeting import LocalCommunicator
from levelbench.distributed.communicators.wrapping import CountingCommunicator
from levelbench.distributed.probes.communicators import check_communicator
from levelbench.distributed.simulation.cluster import Cluster
from levelbench.distributed.simulation.networks import Interconnect
from levelbench.errors import CommunicationError

pytest.importorskip("greenlet")

ALPHA, BETA = 1e-5, 1e8
FLAT = Interconnect(ALPHA, BETA)
BYTES = 1000.0
TOOK = BYTES / BETA


def parcel(value=0.0):
    return np.full(125, float(value))


@pytest.mark.parametrize("size", [1, 3])
def test_it_keeps_the_contract_of_a_communicator(size):
    for findings in run_simulated(size, check_communicator, FLAT):
        assert not [each for each in findings if each.status == "failed"]


@pytest.mark.parametrize("framework", ["torch", "jax"])
def test_native_arrays_come_back_as_the_same_type(framework):
    pytest.importorskip(framework)
    for findings in run_simulated(2, lambda each: check_communicator(each, (framework,)), FLAT):
        assert not [each for each in findings if each.status == "failed"]


def test_a_message_takes_latency_plus_its_bytes():
    def rank(communicator):
        if communicator.rank == 0:
            communicator.send(parcel(), 1)
        else:
            communicator.receive(parcel(), 0)
        return communicator.meeting.now_s

    assert run_simulated(2, rank, FLAT) == pytest.approx([TOOK, ALPHA + TOOK])


def test_messages_of_one_rank_are_sent_one_after_another():
    def rank(communicator):
        if communicator.rank == 0:
            for handle in [communicator.start_send(parcel(), each) for each in (1, 2, 3)]:
                handle.wait()
        else:
            communicator.receive(parcel(), 0)
        return communicator.meeting.now_s

    assert run_simulated(4, rank, FLAT) == pytest.approx([3 * TOOK, *(ALPHA + at * TOOK for at in (1, 2, 3))])


def test_many_senders_to_one_receiver_wait_for_each_other():
    def rank(communicator):
        if communicator.rank:
            communicator.send(parcel(), 0)
            return None
        for _ in range(4):
            communicator.receive_any(parcel())
        return communicator.meeting.now_s

    assert run_simulated(5, rank, FLAT)[0] == pytest.approx(ALPHA + 4 * TOOK)


@pytest.mark.parametrize(
    ("network", "pairs"),
    [
        (Interconnect(ALPHA, BETA, "ring"), {0: 2, 1: 3}),
        (Interconnect(ALPHA, BETA, "tree", radix=4), {0: 4, 1: 5}),
        (Interconnect(ALPHA, BETA, per_host=2, local_beta=1e12), {0: 2, 1: 3}),
    ],
    ids=["a cable of a ring", "the link of a subtree", "the link of a host"],
)
def test_messages_over_the_same_link_follow_one_another(network, pairs):
    def rank(communicator):
        if communicator.rank in pairs:
            communicator.send(parcel(), pairs[communicator.rank])
        for source, target in pairs.items():
            if communicator.rank == target:
                communicator.receive(parcel(), source)
        return communicator.meeting.now_s

    ended = run_simulated(8, rank, network)
    assert [ended[each] for each in pairs.values()] == pytest.approx([ALPHA + TOOK, ALPHA + 2 * TOOK])


def test_messages_arrive_in_the_order_of_virtual_time():
    def rank(communicator):
        if communicator.rank:
            communicator.meeting.spend(1.0 / communicator.rank)
            communicator.send(parcel(communicator.rank), 0)
            return None
        return [communicator.receive_any(parcel())[1] for _ in range(3)]

    assert run_simulated(4, rank, FLAT)[0] == [3, 2, 1]


def test_a_collective_ends_for_all_ranks_its_own_time_after_the_last_has_entered():
    def rank(communicator):
        communicator.meeting.spend(0.5 * communicator.rank)
        communicator.barrier()
        return communicator.meeting.now_s

    assert run_simulated(4, rank, FLAT) == pytest.approx([1.5 + 2 * ALPHA] * 4)


def test_collectives_in_progress_follow_one_another():
    def rank(communicator):
        handles = [communicator.start_all_reduce(parcel()) for _ in range(3)]
        for handle in handles:
            handle.wait()
        return communicator.meeting.now_s

    assert run_simulated(2, rank, FLAT, algorithm="ring") == pytest.approx([3 * 2 * (ALPHA + TOOK / 2)] * 2)


def test_a_collective_is_hidden_behind_computation():
    def rank(communicator):
        handle = communicator.start_all_reduce(parcel())
        communicator.meeting.spend(1.0)
        handle.wait()
        return communicator.meeting.now_s

    assert run_simulated(2, rank, FLAT) == [1.0, 1.0]


def test_small_arrays_stand_for_themselves_and_others_for_larger_ones():
    def rank(communicator):
        peer = 1 - communicator.rank
        communicator.exchange(np.zeros(2), [peer])
        communicator.exchange(parcel(), [peer])

    cluster = Cluster(2, FLAT, scale=1e3)
    cluster.scheduler.run([lambda each=each: rank(LocalCommunicator(cluster, each)) for each in range(2)])
    assert cluster.sent == [16 + 1e6, 16 + 1e6]


def test_what_is_sent_is_received():
    def rank(communicator):
        for step in range(3):
            communicator.exchange(parcel(), [(communicator.rank + 1) % 5, (communicator.rank - 1) % 5])
            communicator.send(parcel(), (communicator.rank + step) % 5)
        for source in [(communicator.rank - step) % 5 for step in range(3)]:
            communicator.receive(parcel(), source)

    cluster = Cluster(5, FLAT)
    cluster.scheduler.run([lambda each=each: rank(LocalCommunicator(cluster, each)) for each in range(5)])
    assert sum(cluster.sent) == sum(cluster.received) == 5 * 3 * 3 * BYTES


def test_a_counting_communicator_counts_the_same():
    def rank(communicator):
        counting = CountingCommunicator(communicator)
        counting.exchange(parcel(), [1 - communicator.rank])
        return counting.take().sent_bytes

    assert run_simulated(2, rank, FLAT) == [1000, 1000]


def test_a_deadlock_says_where_each_rank_waits():
    def rank(communicator):
        if communicator.rank == 0:
            communicator.barrier()
        communicator.receive(parcel(), 0, tag=7)

    with pytest.raises(
        CommunicationError, match=r"rank 0 waits in barrier\(\) for ranks 1, 2.*receive\(source=0, tag=7\)"
    ):
        run_simulated(3, rank, FLAT)


def test_waiting_for_a_message_after_all_others_have_ended_is_a_deadlock():
    def rank(communicator):
        if communicator.rank == 0:
            communicator.receive_any(parcel())

    with pytest.raises(CommunicationError, match=r"receive_any\(tag=0\); 2 have ended"):
        run_simulated(3, rank, FLAT)


def test_an_error_for_different_collectives_names_both():
    def rank(communicator):
        if communicator.rank == 1:
            communicator.barrier()
        else:
            communicator.all_reduce(parcel())

    with pytest.raises(CommunicationError, match=r"all_reduce.*barrier"):
        run_simulated(2, rank, FLAT)


def test_an_error_of_one_rank_ends_the_others_and_is_raised():
    ended = []

    def rank(communicator):
        if communicator.rank == 1:
            raise ValueError("one is ill")
        try:
            communicator.barrier()
        except CommunicationError as error:
            ended.append(str(error))
            raise

    with pytest.raises(ValueError, match="one is ill"):
        run_simulated(3, rank, FLAT)
    assert len(ended) == 2
    assert "rank 1 failed" in ended[0]


def test_polling_for_a_message_that_never_arrives_is_an_error():
    def rank(communicator):
        handle = communicator.start_receive(parcel(), 1 - communicator.rank)
        while not handle.done():
            pass

    with pytest.raises(CommunicationError, match="polls for a message"):
        run_simulated(2, rank, FLAT)


def test_a_polling_rank_makes_progress():
    def rank(communicator):
        if communicator.rank:
            communicator.meeting.spend(1.0)
            communicator.send(parcel(), 0)
            return None
        handle, looks = communicator.start_receive(parcel(), 1), 0
        while not handle.done():
            looks += 1
        return looks, communicator.meeting.now_s

    looks, now_s = run_simulated(2, rank, FLAT)[0]
    assert looks < 500
    assert 1.0 < now_s < 1.06


@pytest.mark.parametrize("any_source", [False, True])
def test_received_messages_are_not_kept(any_source):
    kept = []

    def work(communicator):
        array = np.zeros(8)
        if communicator.rank == 0:
            for _ in range(3):
                communicator.send(array, 1)
        communicator.barrier()
        if communicator.rank == 1:
            for _ in range(3):
                _ = communicator.receive_any(array) if any_source else communicator.receive(array, 0)
            boxes = communicator.meeting.boxes.values()
            kept.extend(each for box in boxes for each in (*box.arrivals, *box.by_source[0]))

    run_simulated(2, work, FLAT)
    assert not kept

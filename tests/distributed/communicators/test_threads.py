import threading
from time import sleep

import numpy as np
import pytest

from levelbench.distributed.communicators.threads import rank_outcomes, run_ranks
from levelbench.errors import CommunicationError, UnsupportedError, UsageError
from levelbench.measure.clocks import HOST


def ones(*shape, dtype=np.float32):
    return np.ones(shape, dtype)


def right(communicator):
    (following,) = {(communicator.rank + 1) % communicator.size}
    return following


def test_it_keeps_its_contract_with_large_messages(keeps_its_contract):
    keeps_its_contract(2)


@pytest.mark.parametrize("size", [1, 3, 5])
@pytest.mark.usefixtures("small")
def test_it_keeps_its_contract(size, keeps_its_contract):
    keeps_its_contract(size)


@pytest.mark.parametrize("framework", ["torch", "jax"])
@pytest.mark.usefixtures("small")
def test_arrays_of_a_framework_come_back_as_the_same_type(framework, keeps_its_contract):
    pytest.importorskip(framework)
    keeps_its_contract(2, frameworks=[framework])


def test_results_come_back_by_rank():
    assert run_ranks(4, lambda communicator: communicator.rank) == [0, 1, 2, 3]


def test_a_sum_is_taken_in_rank_order():
    values = np.array([1e16, 1.0, -1e16, 1.0])
    found = run_ranks(4, lambda each: each.all_reduce(values[each.rank : each.rank + 1].copy())[0])
    assert found == [((values[0] + values[1]) + values[2]) + values[3]] * 4


def test_a_sum_in_bfloat16_stays_bfloat16():
    torch = pytest.importorskip("torch")
    found = run_ranks(3, lambda each: each.all_reduce(torch.full((2,), 2.0, dtype=torch.bfloat16), "mean"))
    assert all(each.dtype == torch.bfloat16 and each.tolist() == [2, 2] for each in found)


def test_a_mean_of_whole_numbers_is_refused_on_every_rank():
    for each in rank_outcomes(2, lambda communicator: communicator.all_reduce(ones(2, dtype=np.int64), "mean")):
        assert isinstance(each, UnsupportedError)


def test_arrays_to_scatter_may_differ_in_size():
    def work(communicator):
        arrays = [np.full(rank, rank) for rank in range(3)] if communicator.rank == 1 else None
        return communicator.scatter(arrays, np.zeros(communicator.rank, np.int64), 1).tolist()

    assert run_ranks(3, work) == [[], [1], [2, 2]]


@pytest.mark.parametrize(
    ("other", "words"),
    [
        (lambda communicator: communicator.barrier(), r"barrier\(\)"),
        (lambda communicator: communicator.all_reduce(ones(3)), r"all_reduce\(sum, float32 \(3,\)\)"),
        (lambda communicator: communicator.all_reduce(ones(2, dtype=np.float64)), r"float64 \(2,\)"),
        (lambda communicator: communicator.all_reduce(ones(2), "mean"), r"all_reduce\(mean"),
        (lambda communicator: communicator.broadcast(ones(2), 1), r"broadcast\(root=1"),
    ],
)
def test_mismatched_calls_are_an_error_that_names_both(other, words):
    def work(communicator):
        return other(communicator) if communicator.rank else communicator.all_reduce(ones(2))

    with pytest.raises(CommunicationError, match=words) as caught:
        run_ranks(2, work)
    assert "all_reduce(sum, float32 (2,))" in str(caught.value)
    assert "collective number 1" in str(caught.value)


def test_a_message_of_the_wrong_shape_is_an_error_that_names_both():
    def work(communicator):
        return communicator.send(ones(3), 1) if communicator.rank == 0 else communicator.receive(ones(2), 0)

    with pytest.raises(CommunicationError, match=r"rank 0 sent float32 \(3,\) where float32 \(2,\) was expected"):
        run_ranks(2, work)


def test_a_deadlock_is_reported_at_once_with_where_each_rank_waits():
    start = HOST.now_ns()
    with pytest.raises(CommunicationError) as caught:
        run_ranks(3, lambda each: each.receive(ones(1), right(each), each.rank), timeout_s=60)
    assert HOST.now_ns() - start < 30e9
    for rank in range(3):
        assert f"rank {rank} in receive(source={(rank + 1) % 3}, tag={rank})" in str(caught.value)


def test_a_rank_that_skips_a_collective_is_reported_as_gone():
    with pytest.raises(CommunicationError, match=r"waits for a rank that has left \(gone: 1\)"):
        run_ranks(2, lambda each: each.rank or each.barrier())


def test_a_rank_that_waits_for_any_gets_an_error_when_all_others_have_left():
    with pytest.raises(CommunicationError, match=r"receive_any\(tag=0\).*gone: 0, 2"):
        run_ranks(3, lambda each: each.receive_any(ones(1)) if each.rank == 1 else None)


def test_a_message_outlives_its_sender():
    def work(communicator):
        if communicator.rank == 0:
            communicator.send(ones(1), 1)
            communicator.close()
            return 1.0
        sleep(0.01)
        return communicator.receive(ones(1) * 0, 0)[0]

    assert run_ranks(2, work) == [1.0, 1.0]


def test_a_helper_thread_of_a_rank_can_resolve_a_deadlock():
    def work(communicator):
        def late():
            sleep(0.05)
            communicator.send(ones(1), right(communicator))

        helper = threading.Thread(target=late)
        helper.start()
        found = communicator.receive(ones(1) * 0, right(communicator))
        helper.join()
        return found[0]

    assert run_ranks(2, work) == [1.0, 1.0]


def test_a_wait_times_out_while_a_helper_thread_lives():
    over = threading.Event()
    helper = threading.Thread(target=over.wait)

    def work(communicator):
        if communicator.rank == 0:
            helper.start()
        communicator.receive(ones(1), right(communicator))

    try:
        with pytest.raises(CommunicationError, match=r"nothing came in 0.2 s; rank \d in receive"):
            run_ranks(2, work, timeout_s=0.2)
    finally:
        over.set()
        helper.join()


def test_the_first_exception_of_a_rank_is_raised_and_the_others_get_a_communication_error():
    def work(communicator):
        if communicator.rank == 1:
            raise KeyError("the first")
        for _ in range(100):
            communicator.barrier()

    with pytest.raises(KeyError, match="the first"):
        run_ranks(3, work)
    outcomes = rank_outcomes(3, work)
    assert isinstance(outcomes[1], KeyError)
    for each in (outcomes[0], outcomes[2]):
        assert isinstance(each, CommunicationError)
        assert "rank 1 failed with KeyError: 'the first'" in str(each)


def test_abort_ends_the_others():
    def work(communicator):
        if communicator.rank == 1:
            communicator.abort()
        else:
            communicator.barrier()

    with pytest.raises(CommunicationError, match="rank 1 aborted"):
        run_ranks(3, work)


def test_a_rank_that_continues_after_a_failure_is_not_waited_for_for_ever():
    over = threading.Event()

    def work(communicator):
        if communicator.rank == 0:
            over.wait()
        raise KeyError("failed")

    with pytest.raises(KeyError):
        run_ranks(2, work, timeout_s=0.1)
    over.set()


def test_a_closed_communicator_cannot_be_used():
    def work(communicator):
        communicator.close()
        communicator.barrier()

    with pytest.raises(UsageError, match="has closed its communicator"):
        run_ranks(1, work)


def test_a_negative_tag_is_refused():
    with pytest.raises(UsageError, match="tag -1"):
        run_ranks(1, lambda each: each.send(ones(1), 0, -1))


def test_an_exchange_of_two_ranks_does_not_need_the_third():
    def work(communicator):
        if communicator.rank == 2:
            return None
        return communicator.exchange(ones(1) * communicator.rank, [1 - communicator.rank])[0][0]

    assert run_ranks(3, work) == [1.0, 0.0, None]


@pytest.mark.slow
def test_a_rank_that_continues_after_a_failure_is_named():
    over = threading.Event()

    def work(communicator):
        if communicator.rank == 0:
            over.wait()
        if communicator.rank == 1:
            raise KeyError("failed")
        return communicator.rank

    outcomes = rank_outcomes(3, work, timeout_s=1.0)
    over.set()
    assert "the end of rank 0" in str(outcomes[0])
    assert isinstance(outcomes[1], KeyError)
    assert outcomes[2] == 2

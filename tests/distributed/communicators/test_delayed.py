import numpy as np
import pytest

from levelbench.distributed.communicators.delayed import Delays, RankDied
from levelbench.distributed.communicators.threads import rank_outcomes, run_ranks
from levelbench.distributed.probes.communicators import check_communicator
from levelbench.errors import CommunicationError
from levelbench.measure.clocks import HOST


@pytest.fixture(autouse=True)
def small(monkeypatch):
    """What is large in the check of a communicator is small: it is checked with large messages in test_threads.py."""
    monkeypatch.setattr("levelbench.distributed.probes.communicators._LARGE", 1000)


def arrivals(seed, most_s=0.01):
    def work(communicator):
        if communicator.rank:
            communicator.send(np.zeros(1), 0)
            return None
        return [communicator.receive_any(np.zeros(1))[1] for _ in range(communicator.size - 1)]

    return tuple(run_ranks(6, work, delays=Delays(seed, most_s))[0])


def test_a_communicator_that_is_late_at_random_still_does_what_its_contract_says():
    for findings in run_ranks(3, check_communicator, delays=Delays(seed=3, most_s=0.0002)):
        assert [each for each in findings if each.status != "passed"] == []


def test_the_order_of_arrival_varies_with_the_seed():
    assert len({arrivals(seed) for seed in range(4)}) > 1


def test_a_slow_rank_makes_all_wait_in_a_collective():
    start = HOST.now_ns()
    run_ranks(2, lambda each: [each.barrier() for _ in range(3)], delays=Delays(most_s=0, slow={1: 0.02}))
    assert HOST.now_ns() - start >= 3 * 0.02e9


@pytest.mark.parametrize("operation", [1, 3])
def test_a_rank_dies_in_place_of_the_operation_that_was_asked_for_and_the_others_hear_of_it(operation):
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


def test_no_handler_of_errors_survives_a_death():
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

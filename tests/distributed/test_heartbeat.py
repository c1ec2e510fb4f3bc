"""Saying that one is still at work."""

import threading
import time

import numpy as np
import pytest

from levelbench.distributed.communicators.threads import run_ranks
from levelbench.distributed.ranks import Ranks, heartbeat
from levelbench.distributed.schemes.all_reduce import AllReduce
from levelbench.errors import CommunicationError


def test_a_block_that_is_quickly_over_says_nothing():
    said = []
    with heartbeat(lambda: said.append(1), every_s=60):
        pass
    assert not said
    assert not [each for each in threading.enumerate() if each.name == "levelbench-heartbeat"]


def test_a_long_one_says_so_until_it_is_over():
    said = threading.Semaphore(0)
    with heartbeat(said.release, every_s=0.001):
        assert all(said.acquire(timeout=120) for _ in range(3))


def test_what_could_not_be_said_is_raised_at_the_end():
    failed = threading.Event()

    def fail():
        failed.set()
        raise CommunicationError("a", "b", "c")

    with pytest.raises(CommunicationError), heartbeat(fail, every_s=0.001):
        assert failed.wait(120)


def test_an_error_of_the_block_itself_is_the_one_that_is_raised():
    def fail():
        raise CommunicationError("a", "b", "c")

    with pytest.raises(ZeroDivisionError), heartbeat(fail, every_s=0.001):
        _fail_later()


def test_ranks_wait_for_a_decision_longer_than_for_each_other():
    """The first rank decides for two seconds, where a rank that says nothing for one is taken for lost."""

    def work(communicator):
        team = Ranks(communicator, AllReduce(), heartbeat_s=0.2)
        return team.decide(lambda: time.sleep(2.0) or {"quality": 0.5, "not a number": float("nan")})

    for found in run_ranks(3, work, timeout_s=1.0):
        assert found["quality"] == 0.5
        assert np.isnan(found["not a number"])


def test_ranks_are_told_when_the_one_who_decides_fails():
    def work(communicator):
        return Ranks(communicator, AllReduce(), heartbeat_s=0.2).decide(lambda: 1 // 0)

    with pytest.raises(ZeroDivisionError):
        run_ranks(3, work, timeout_s=5.0)


def _fail_later():
    time.sleep(0.05)
    raise ZeroDivisionError

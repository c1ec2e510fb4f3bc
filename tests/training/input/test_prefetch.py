"""Work ahead: in order, not too far, and with its errors."""

from threading import Event, Lock

import pytest

from levelbench.training.input import Prefetch


@pytest.mark.parametrize("workers", [0, 1, 4])
def test_results_come_in_the_order_of_the_jobs(workers):
    prefetch = Prefetch(workers)
    assert list(prefetch.ordered(lambda at=at: at * at for at in range(20))) == [at * at for at in range(20)]
    prefetch.close()


def test_without_workers_nothing_is_done_before_it_is_asked_for():
    done = []
    results = Prefetch(0).ordered(lambda at=at: done.append(at) for at in range(5))
    next(results)
    assert done == [0]


@pytest.mark.parametrize("workers", [1, 2])
def test_work_is_done_ahead_but_never_further_than_there_are_workers(workers):
    begun, lock, enough = [], Lock(), Event()

    def job(at):
        with lock:
            begun.append(at)
            if len(begun) > workers:
                enough.set()
        return at

    prefetch = Prefetch(workers)
    results = prefetch.ordered(lambda at=at: job(at) for at in range(50))
    assert next(results) == 0
    assert enough.wait(120)
    assert len(begun) <= workers + 1
    prefetch.close()


@pytest.mark.parametrize("workers", [0, 2])
def test_an_error_comes_where_the_result_would_have_come(workers):
    def job(at):
        if at == 2:
            raise ValueError("the third")
        return at

    prefetch = Prefetch(workers)
    results = prefetch.ordered(lambda at=at: job(at) for at in range(5))
    assert [next(results), next(results)] == [0, 1]
    with pytest.raises(ValueError, match="the third"):
        next(results)
    prefetch.close()

"""Threads that work ahead of whoever consumes, in order and never further ahead than they are many.

NumPy lets go of the interpreter's lock while it copies and computes, so threads are enough and nothing is pickled.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import islice
from typing import TypeVar, final

__all__ = ["Prefetch"]

T = TypeVar("T")


@final
class Prefetch:
    """``workers`` threads; with none, work is done when it is asked for. The threads start at the first job."""

    def __init__(self, workers: int) -> None:
        self._workers = workers
        self._pool: ThreadPoolExecutor | None = None

    def ordered(self, jobs: Iterator[Callable[[], T]]) -> Iterator[T]:
        """The jobs' results in the jobs' order; an error of a job is raised where its result would have come.

        One result more than there are threads is held at most.
        """
        if not self._workers:
            for job in jobs:
                yield job()
            return
        if self._pool is None:
            self._pool = ThreadPoolExecutor(self._workers, thread_name_prefix="levelbench-input")
        submit = self._pool.submit
        ahead: deque[Future[T]] = deque(submit(job) for job in islice(jobs, self._workers))
        try:
            while ahead:
                result = ahead.popleft().result()
                ahead.extend(submit(job) for job in islice(jobs, 1))
                yield result
                del result
        finally:
            for each in ahead:
                each.cancel()

    def close(self) -> None:
        """Join the threads; jobs that have not begun are dropped."""
        if self._pool is not None:
            self._pool.shutdown(wait=True, cancel_futures=True)
            self._pool = None

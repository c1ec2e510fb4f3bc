"""What a scenario drives: a system under test, and the queries that it is given.

The driver sees nothing of the work but indices of samples going in and the news that they are answered.
A system either answers at once (:class:`Answering`) or takes queries and completes them when it likes
(:class:`SystemUnderTest`); the clock is read when the answer is reported, before anything else happens.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, runtime_checkable


class Completion(Protocol):
    """Who is told that samples of a query are answered, or that they never will be."""

    def completed(self, query: Query, count: int | None) -> None:
        """``count`` more samples of ``query`` are answered, all that are left for ``None``."""

    def failed(self, query: Query, error: BaseException) -> None:
        """The system raised ``error`` while it worked on ``query``."""


class Query:
    """Samples to answer together: ``indices`` of the sample set, ``number`` in the order of issue from 0."""

    __slots__ = ("_news", "indices", "left", "number")

    def __init__(self, number: int, indices: Sequence[int], news: Completion) -> None:
        self.number = number
        self.indices = indices
        self.left = len(indices)
        self._news = news

    def complete(self, count: int | None = None) -> None:
        """Report ``count`` more samples (default: all that are left) as answered, now, from any thread."""
        self._news.completed(self, count)

    def fail(self, error: BaseException) -> None:
        """Report that this query will not be answered because of ``error``; the run ends with it as the cause."""
        self._news.failed(self, error)


@runtime_checkable
class SystemUnderTest(Protocol):
    """A system that takes queries and answers them later, in any order, from any thread."""

    def issue(self, query: Query) -> None:
        """Take ``query`` and return without waiting for its answer; call ``query.complete()`` once it is there."""


@runtime_checkable
class Answering(Protocol):
    """A system that answers while it is called; on an accelerator it returns only once the answer is complete.

    May have ``load(indices)`` and ``unload(indices)``, which are called before and after the run, off the clock.
    """

    def answer(self, indices: Sequence[int]) -> None:
        """Answer these samples."""

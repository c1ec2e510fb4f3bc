"""Shares work on many files out among processes, and takes what comes of it in order.

The one idea: a chunk of files goes in and bytes come out, so what a process makes of a file cannot depend on which
process it is, and nothing but those bytes waits in memory.
"""

from __future__ import annotations

import gc
import multiprocessing
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from itertools import islice
from typing import Any, TypeVar

from levelbench.errors import MissingError

__all__ = ["FEW", "TOGETHER", "Steps", "in_step", "seldom_collecting", "shared_out"]

T = TypeVar("T")
Steps = Generator[None, None, T]
"""Work that yields after each of its steps, and returns what comes of it."""

_OBJECTS = 100_000
"""So many objects are made before the collector looks through them; usual are 700."""
TOGETHER = 8
"""So many files are worked on in step: of more the data would not stay in the processor's cache."""

FEW = 400
"""Below so many files another process takes longer to start than it saves."""
_CHUNK = 40
_AHEAD = 3
"""So many chunks are given to another process before it has done the first: it never has to wait for one."""
_MOST_WAITING = 64
"""What waits to be taken, in chunks a process, and no more: it would fill the memory."""


def shared_out(
    items: Sequence[T],
    work: Callable[[Sequence[T]], bytes],
    processes: int,
    begin: Callable[..., None],
    given: tuple[Any, ...],
) -> Iterator[bytes]:
    """What ``work`` makes of each chunk of ``items``, in their order.

    Each process, this one among them, calls ``begin(*given)`` once; the others are spawned, so both are functions of a
    module, and whoever asks is a program with a main guard. Raises ``MissingError`` where one is ended from outside.
    """
    rest = iter([items[at : at + _CHUNK] for at in range(0, len(items), _CHUNK)])
    others = processes - 1
    pool = ProcessPoolExecutor(others, multiprocessing.get_context("spawn"), _begin, (begin, given))
    try:
        with seldom_collecting():
            waiting: deque[Future[bytes] | bytes] = deque(
                pool.submit(work, chunk) for chunk in islice(rest, _AHEAD * others)
            )
            begin(*given)
            while waiting:
                first = waiting[0]
                # While the others have not come to what is next to be given, this process takes a chunk from the end.
                if isinstance(first, Future) and not first.done() and len(waiting) < _MOST_WAITING * processes:
                    mine = next(rest, None)
                    if mine is not None:
                        waiting.append(work(mine))
                        continue
                waiting.popleft()
                found = first.result() if isinstance(first, Future) else first
                if isinstance(first, Future):
                    waiting += [pool.submit(work, chunk) for chunk in islice(rest, 1)]
                yield found
    except BrokenProcessPool as error:
        asked, do = f"working on {len(items)} files", "see whether memory ran out, or take one: --jobs 1"
        raise MissingError(asked, "a process came to an end before its work", do) from error
    finally:
        pool.shutdown(cancel_futures=True)


def in_step(works: Iterable[Steps[T]]) -> list[T]:
    """What each of ``works`` returns, in their order: every one does its first step, then every one its second, ...

    What a step needs of the program is then in the processor's cache for all but the first. A work that yields nothing
    is done before the next one begins.
    """
    found: dict[int, T] = {}
    left = list(enumerate(works))
    while left:
        going = []
        for at, work in left:
            try:
                next(work)
            except StopIteration as end:
                found[at] = end.value
            else:
                going.append((at, work))
        left = going
    return [found[at] for at in range(len(found))]


def _begin(begin: Callable[..., None], given: tuple[Any, ...]) -> None:
    begin(*given)
    # Modules and rules stay until the end: the collector need not look at them again and again.
    gc.freeze()
    gc.set_threshold(_OBJECTS)


@contextmanager
def seldom_collecting() -> Iterator[None]:
    """While what is made of many files is kept, to look through all of it again and again finds nothing to free."""
    before = gc.get_threshold()
    gc.set_threshold(_OBJECTS, *before[1:])
    try:
        yield
    finally:
        gc.set_threshold(*before)

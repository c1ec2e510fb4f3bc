"""Shares work on many files out among processes, and takes what comes of it in order."""

from __future__ import annotations

import gc
import multiprocessing
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from typing import Any, TypeVar

from levelbench.errors import MissingError

__all__ = ["FEW", "Share", "shared_out"]

T = TypeVar("T")
R = TypeVar("R")
Share = Callable[[Callable[[T], R], Sequence[T]], Iterator[R]]
"""Gives what a function of a module makes of each item, in their order."""

FEW = 400
"""Below so many items another process takes longer to start than it saves."""
_CHUNK = 40
_OBJECTS = 100_000
"""So many objects are made before the collector looks through them; usual are 700."""


@contextmanager
def shared_out(
    count: int, processes: int, begin: Callable[..., None], given: tuple[Any, ...]
) -> Iterator[Share[Any, Any]]:
    """What shares work on about ``count`` items out among ``processes``, each of which calls ``begin(*given)`` first.

    They are spawned, so whoever asks for more than one is a program with a main guard; few items stay in this process.
    Raises ``MissingError`` where a process is ended from outside.
    """
    before = gc.get_threshold()
    # What is made of many files is kept: to look through all of it again and again finds nothing to free.
    gc.set_threshold(_OBJECTS, *before[1:])
    try:
        if processes < 2 or count < FEW:
            begin(*given)
            yield map
            return
        with ProcessPoolExecutor(processes, multiprocessing.get_context("spawn"), _begin, (begin, given)) as pool:
            try:
                yield lambda work, items: pool.map(work, items, chunksize=_CHUNK)
            finally:
                pool.shutdown(wait=False, cancel_futures=True)
    except BrokenProcessPool as error:
        asked, do = f"working on {count} files", "see whether memory ran out, or take one: --jobs 1"
        raise MissingError(asked, "a process came to an end before its work", do) from error
    finally:
        gc.set_threshold(*before)


def _begin(begin: Callable[..., None], given: tuple[Any, ...]) -> None:
    gc.set_threshold(_OBJECTS)
    begin(*given)
    # Modules and rules stay until the end.
    gc.freeze()

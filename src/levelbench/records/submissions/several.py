"""Shares work on many files out among processes, and takes what comes of it in order.

The one idea: a chunk of files goes in and bytes come out, so what a process makes of a file cannot depend on which
process it is, and nothing but those bytes waits in memory.
"""

from __future__ import annotations

import gc
import multiprocessing
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from itertools import islice
from typing import Any, TypeVar

from levelbench.errors import MissingError

__all__ = ["FEW", "shared_out"]

T = TypeVar("T")

FEW = 400
"""Below so many files another process takes longer to start than it saves."""
_CHUNK = 40


def shared_out(
    items: Sequence[T],
    work: Callable[[Sequence[T]], bytes],
    processes: int,
    begin: Callable[..., None],
    given: tuple[Any, ...],
) -> Iterator[bytes]:
    """What ``work`` makes of each chunk of ``items``, in their order.

    Each process calls ``begin(*given)`` once; it is spawned, so both are functions of a module, and whoever asks is a
    program with a main guard. Raises ``MissingError`` where one is ended from outside.
    """
    chunks = [items[at : at + _CHUNK] for at in range(0, len(items), _CHUNK)]
    pool = ProcessPoolExecutor(processes, multiprocessing.get_context("spawn"), _begin, (begin, given))
    try:
        # A few chunks ahead, and no more: what waits to be taken would fill the memory.
        waiting = [pool.submit(work, chunk) for chunk in chunks[: 4 * processes]]
        rest = iter(chunks[4 * processes :])
        while waiting:
            found = waiting.pop(0).result()
            waiting += [pool.submit(work, chunk) for chunk in islice(rest, 1)]
            yield found
    except BrokenProcessPool as error:
        asked, do = f"working on {len(items)} files", "see whether memory ran out, or take one: --jobs 1"
        raise MissingError(asked, "a process came to an end before its work", do) from error
    finally:
        pool.shutdown(cancel_futures=True)


def _begin(begin: Callable[..., None], given: tuple[Any, ...]) -> None:
    begin(*given)
    # Modules and rules stay until the end: the collector need not look at them again and again.
    gc.freeze()

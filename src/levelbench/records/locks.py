"""Whether a record's writer is still alive, and who makes a run.

A process that dies loses its locks with it, whatever killed it, so a record without an end whose lock is
held is running, and one whose lock is free was interrupted. No heartbeat, no process number, no clock.

A file system without locks (some network mounts) shows a running record as interrupted. A process forked by the writer
shares its lock: the record counts as running until the last of them is gone.
"""

from __future__ import annotations

import errno
import fcntl
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from levelbench.records.faults import store_fault

__all__ = ["claimed", "hold", "is_held"]

_NO_LOCKS = {errno.ENOLCK, errno.ENOTSUP, errno.ENOSYS, errno.EINVAL}


def hold(descriptor: int) -> None:
    """Lock the open file for as long as ``descriptor`` is open; on a file system without locks, do without."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno not in _NO_LOCKS:
            raise


def is_held(descriptor: int) -> bool:
    """Whether somebody else holds the open file's lock now."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError as error:
        if error.errno not in _NO_LOCKS:
            raise
        return False
    fcntl.flock(descriptor, fcntl.LOCK_UN)
    return False


@contextmanager
def claimed(path: Path, on_wait: Callable[[], None]) -> Iterator[None]:
    """Hold the claim at ``path`` while the block runs; where another process holds it, wait until that one is done.

    ``on_wait`` is called once before waiting. The file goes away with the claim, and the claim with its process.
    Raises ``StoreError`` if the file cannot be made.
    """
    descriptor = _claim(path, on_wait)
    try:
        yield
    finally:
        # While it is still locked: whoever waits for this file finds that it is gone, and makes another.
        with suppress(OSError):
            path.unlink()
        os.close(descriptor)


def _claim(path: Path, on_wait: Callable[[], None]) -> int:
    said = False
    while True:
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
        except OSError as error:
            raise store_fault(f"claiming a run in {path.parent.parent}", path, error) from error
        try:
            if is_held(descriptor) and not said:
                said = True
                on_wait()
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        except BaseException as error:
            if isinstance(error, OSError) and error.errno in _NO_LOCKS:
                return descriptor
            os.close(descriptor)
            raise
        with suppress(FileNotFoundError):
            if os.path.samestat(os.fstat(descriptor), path.stat()):
                return descriptor
        os.close(descriptor)

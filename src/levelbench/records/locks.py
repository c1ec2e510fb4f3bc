"""File locks, which show whether a record's writer is alive and which process makes a run; and errors of file systems.

A process loses its locks when it dies, whatever killed it. So a record without an end is running if its lock is held,
and was interrupted if not: no heartbeat, process id or clock is needed.

On a file system without locks (some network mounts) a running record looks interrupted. A process forked by the writer
shares its lock, so the record counts as running until the last of them has ended.

``store_fault`` turns every failed system call of this package into a ``StoreError`` that names the folder.
"""

from __future__ import annotations

import errno
import fcntl
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from levelbench.errors import StoreError

__all__ = ["claimed", "hold", "is_held", "store_fault"]


_FULL = {errno.ENOSPC: "the disk is full", errno.EDQUOT: "the disk quota is used up"}
_CLOSED = {
    errno.EROFS: "the file system is read-only",
    errno.EACCES: "permission is denied",
    errno.EPERM: "it is not permitted",
}


def store_fault(asked: str, path: Path, error: OSError) -> StoreError:
    """The ``StoreError`` for ``error``, which occurred at ``path`` when doing what ``asked`` says."""
    code = error.errno or 0
    if code in _FULL:
        return StoreError(asked, _FULL[code], f"make room for {path}, or choose a store on another disk")
    if code == errno.EFBIG:
        return StoreError(asked, "the file would be larger than this process may write", "raise the limit (ulimit -f)")
    if code in _CLOSED:
        return StoreError(asked, f"{_CLOSED[code]} at {path}", "make the folder writable, or choose another store")
    blocking = _file_in_the_way(path)
    if blocking is not None:
        return StoreError(asked, f"{blocking} is a file, not a folder", "choose a folder as the store")
    if code == errno.EEXIST:
        return StoreError(asked, f"{path} exists already, and records are never overwritten", "use another id")
    return StoreError(asked, f"{error.strerror or error} at {path}", "check that the store is a usable folder")


def _file_in_the_way(path: Path) -> Path | None:
    """The nearest existing parent of ``path``, if it is a file."""
    for part in path.parents:
        if part.exists():
            return None if part.is_dir() else part
    return None


_NO_LOCKS = {errno.ENOLCK, errno.ENOTSUP, errno.ENOSYS, errno.EINVAL}


def hold(descriptor: int) -> None:
    """Lock the open file for as long as ``descriptor`` is open; no-op on a file system without locks."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno not in _NO_LOCKS:
            raise


def is_held(descriptor: int) -> bool:
    """Whether another process holds the open file's lock."""
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
    """Hold the claim at ``path`` while the block runs; if another process holds it, wait until that one is done.

    ``on_wait`` is called once before waiting. The file is removed with the claim, and the claim ends with its process.
    Raises ``StoreError`` if the file cannot be made.
    """
    descriptor = _claim(path, on_wait)
    try:
        yield
    finally:
        # Before it is unlocked: a process that waits for this file then finds that it is gone, and makes another.
        with suppress(OSError):
            path.unlink()
        os.close(descriptor)


def _claim(path: Path, on_wait: Callable[[], None]) -> int:
    waited = False
    while True:
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
        except OSError as error:
            raise store_fault(f"claiming a run in {path.parent.parent}", path, error) from error
        try:
            if is_held(descriptor) and not waited:
                waited = True
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

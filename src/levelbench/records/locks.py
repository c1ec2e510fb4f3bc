"""Whether a record's writer is still alive.

The one idea: a process that dies loses its locks with it, whatever killed it, so a record without an end whose lock is
held is running, and one whose lock is free was interrupted. No heartbeat, no process number, no clock.

A file system without locks (some network mounts) shows a running record as interrupted. A process forked by the writer
shares its lock: the record counts as running until the last of them is gone.
"""

from __future__ import annotations

import errno
import fcntl

__all__ = ["hold", "is_held"]

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

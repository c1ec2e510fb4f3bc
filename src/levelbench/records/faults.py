"""What the operating system says about a store, in words of what to do about it.

A person who sees ``[Errno 28]`` wants to know which folder is full; every failed system call of this
package comes through here and leaves as one three-part ``StoreError``.
"""

from __future__ import annotations

import errno
from pathlib import Path

from levelbench.errors import StoreError

__all__ = ["store_fault"]

_FULL = {errno.ENOSPC: "the disk is full", errno.EDQUOT: "the disk quota is used up"}
_CLOSED = {
    errno.EROFS: "the file system is read-only",
    errno.EACCES: "permission is denied",
    errno.EPERM: "it is not permitted",
}


def store_fault(asked: str, path: Path, error: OSError) -> StoreError:
    """The ``StoreError`` for ``error``, met at ``path`` when doing what ``asked`` says."""
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
    return StoreError(
        asked, f"{error.strerror or error} at {path}", "check that the store is a folder that can be used"
    )


def _file_in_the_way(path: Path) -> Path | None:
    """The nearest part of ``path`` above it that exists and is no folder."""
    for part in path.parents:
        if part.exists():
            return None if part.is_dir() else part
    return None

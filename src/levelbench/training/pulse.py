"""How far a run is, in memory that another process may share.

The trainer stores one number a step, which takes some tens of nanoseconds, whether it is read or not; so no step waits
for a reader, and between two evaluations there is something to see.
"""

from __future__ import annotations

import mmap
import os
from pathlib import Path

_BYTES = 16


class Pulse:
    """The steps done and the most that there will be: ``counts[0]`` and ``counts[1]``, 0 until they are known.

    Shared with whoever has the same ``descriptor`` of a file; without one, this process's own.
    """

    def __init__(self, descriptor: int | None = None) -> None:
        if descriptor is None:
            memory: mmap.mmap | bytearray = bytearray(_BYTES)
        else:
            os.ftruncate(descriptor, _BYTES)
            memory = mmap.mmap(descriptor, _BYTES)
        self.counts = memoryview(memory).cast("q")

    @classmethod
    def at(cls, path: Path) -> Pulse:
        """Shared through the file at ``path``, made where there is none; its own where that cannot be shared."""
        try:
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o666)
        except OSError:
            return cls()
        try:
            return cls(descriptor)
        except (OSError, ValueError):
            # A file system without shared memory: nothing is shown then, and the run goes on.
            return cls()
        finally:
            os.close(descriptor)

    @property
    def text(self) -> str:
        """``step 812/4,292``; empty before the first step."""
        done, most = self.counts
        return f"step {done:,}/{most:,}" if done else ""

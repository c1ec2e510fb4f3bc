"""How a child ends with its parent, so that no measurement goes on that nobody waits for."""

from __future__ import annotations

import ctypes
import signal
import sys

_PR_SET_PDEATHSIG = 1


def die_with_parent() -> None:
    """Ask the kernel to kill this process when its parent dies, so that no run goes on that nobody waits for."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def end_on_interrupt() -> None:
    """An interrupt ends this process at once and without a traceback: what it means is the parent's decision.

    Where interrupts are ignored (a command started with ``&`` in a script), they stay ignored, as in the parent.
    """
    if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.SIG_DFL)

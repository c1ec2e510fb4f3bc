"""A process that looks at a clock of its own whenever a tracked program says that a moment has come.

Started with two pipes by ``levelbench.experiments.track``. A byte on standard input is a moment: the program waits
until it is answered, so that the moment lies at this clock's reading. After an ``e``, the end, all readings are
printed. It imports little, ignores Ctrl-C, which is the program's, and ends with the pipe.
"""

from __future__ import annotations

import os
import signal

from levelbench.measure.clocks import SECOND

__all__ = ["main"]


def main(asked: int = 0, answers: int = 1) -> None:
    """Say that it is ready, then read moments from the descriptor ``asked`` until it ends; answer on ``answers``."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    seen: list[int] = []
    os.write(answers, b"\n")
    while moment := os.read(asked, 1):
        seen.append(SECOND.now_ns())
        if moment == b"e":
            os.write(answers, " ".join(map(str, seen)).encode() + b"\n")
        else:
            os.write(answers, b"\n")


if __name__ == "__main__":
    main()

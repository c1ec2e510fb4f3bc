"""A process that reads its own clock whenever a tracked program announces a moment.

``levelbench.experiments.tracked`` starts it with two pipes. A byte on standard input is a moment: the program waits for
the answer, so this clock's reading is the time of the moment. After an ``e``, the end, all readings are printed. The
process imports little, ignores Ctrl-C, which is meant for the program, and ends when the pipe is closed.
"""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
from contextlib import suppress
from typing import TYPE_CHECKING, final

from levelbench.measure.clocks import SECOND

if TYPE_CHECKING:
    from levelbench.experiments.jobs import Message
    from levelbench.records.schema import Between

__all__ = ["Bystander", "main"]

_ANSWER_S = 10.0


def main(asked: int = 0, answers: int = 1) -> None:
    """Report that it is ready, then answer moments from the descriptor ``asked`` on ``answers`` until it closes."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    seen: list[int] = []
    os.write(answers, b"\n")
    while moment := os.read(asked, 1):
        seen.append(SECOND.now_ns())
        if moment == b"e":
            os.write(answers, " ".join(map(str, seen)).encode() + b"\n")
        else:
            os.write(answers, b"\n")


@final
class Bystander:
    """The program's side: starts the process and tells it each moment of the run."""

    def __init__(self) -> None:
        self._absent, self._seen = "", ""
        self._process: subprocess.Popen[bytes] | None = None
        try:
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-m", "levelbench.experiments.bystander"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                bufsize=0,
                start_new_session=True,
            )
        except (OSError, ValueError, TypeError) as error:
            self._absent = f"no process could be started: {type(error).__name__}"
        self._answer()

    def tell(self, message: Message) -> None:
        """Tell it a moment, and wait until it has read its clock."""
        if self._process is not None and self._process.stdin is not None:
            with suppress(OSError, ValueError):
                self._process.stdin.write(b"e" if message.moment == "end" else b".")
            self._seen = self._answer()

    def _answer(self) -> str:
        process, line = self._process, b""
        if process is None or process.stdout is None:
            return ""
        with suppress(OSError, ValueError):
            ready, _, _ = select.select([process.stdout], [], [], _ANSWER_S)
            line = process.stdout.readline() if ready else b""
        if not line:
            self._absent = "the process that watched it did not answer"
            self.close()
        return line.decode().strip()

    def hear(self) -> list[Between] | str:
        """All its readings, at the end of the run, or why there are none."""
        return self._absent or [(int(each), int(each)) for each in self._seen.split()]

    def close(self) -> None:
        """End it."""
        process, self._process = self._process, None
        if process is not None:
            for pipe in (process.stdin, process.stdout):
                if pipe is not None:
                    pipe.close()
            process.kill()
            process.wait()


if __name__ == "__main__":
    main()

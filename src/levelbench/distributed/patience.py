"""Says now and then that this process is still at work, to those who would take it for lost."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

__all__ = ["still_there"]


@contextmanager
def still_there(say: Callable[[], object], every_s: float) -> Iterator[None]:
    """Call ``say`` from a thread, each time that so many seconds have gone by before the end of the block.

    Nobody else may use what ``say`` uses meanwhile. What ``say`` raises is raised at the end of a block that went well.
    """
    over = threading.Event()
    raised: list[BaseException] = []

    def watch() -> None:
        while not over.wait(every_s):
            try:
                say()
            except BaseException as error:  # noqa: BLE001  # told by the thread that waits for this one
                raised.append(error)
                return

    thread = threading.Thread(target=watch, name="levelbench-still-there", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
    if raised:
        raise raised[0]

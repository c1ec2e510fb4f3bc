"""The phases that a program under ``levelbench time`` reports about itself, on their way to the record.

The two processes share a page of memory, a mapped file. The program writes its totals there at each switch of phase, a
few words, and the measuring process reads them whenever it needs them, so neither waits for the other. A pipe beside
it, which the program keeps open, says when that process has ended, however it ended. Both read the
monotonic clock of the machine. Only the split is the program's: how long it took in all is measured from outside.
"""

from __future__ import annotations

import json
import mmap
import os
import struct
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import cached_property
from pathlib import Path
from typing import NamedTuple, final

from levelbench.measure.clocks import HOST
from levelbench.measure.timeline import Phase, Timeline

__all__ = ["OWN_LINE", "TRAINED", "UNSEEN", "Page", "TellingTimeline", "ToldChannel", "ToldTimeline", "channel_of"]
__all__ += ["open_channel", "told_quality"]

OWN_LINE = "levelbench: "
"""How the lines begin that levelbench prints in a program, among what the program prints itself."""

TRAINED = f"{OWN_LINE}trained"

UNSEEN = (
    "autophase saw no forward pass of its model, or no step of its optimizer: its phases are not told apart; give it "
    "what the loop calls"
)

# Words of 8 bytes: how often it was written (odd: it is being written), when the first phase began, the current phase
# and since when, then the nanoseconds of each phase up to then; how many parts that should tell phases have not been
# seen at work, and whether the program has left its last phase.
_WRITTEN, _BEGAN, _CURRENT, _SINCE, _TOTALS = range(5)
_MISSING = _TOTALS + len(Phase)
_LEFT = _MISSING + 1
_WORDS = struct.Struct(f"={_LEFT + 1}q")

_IMPOSSIBLE = "the phases that its program reports do not fit into the time that it took"

_MOST_READS, _READS_AT_ONCE, _BETWEEN_READS_S = 200, 100, 1e-4
"""A program may wait for a processor in the middle of writing; it gets one while its reader waits."""

_MOST_LINE_BYTES = 4096


def told_quality(said: Mapping[str, object]) -> str:
    """The line with which a callback tells what its trainer logs, or first of all that it will."""
    return f"{OWN_LINE}{json.dumps(said)}"


class _Told(NamedTuple):
    began_ns: int
    current: int
    since_ns: int
    totals_ns: list[int]
    missing: int
    left: bool


@final
class Page:
    """Words that two processes share: the program maps them, and its reader, which nothing may end, does not."""

    def __init__(self, path: Path) -> None:
        with _above_streams():
            self._descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        if os.fstat(self._descriptor).st_size != _WORDS.size:
            os.close(self._descriptor)
            raise OSError(f"{path.name} is of another version of levelbench")
        self.damaged = False
        """Whether a part of it is gone."""

    @cached_property
    def words(self) -> memoryview:
        """To be written by the program."""
        with _above_streams():
            return memoryview(mmap.mmap(self._descriptor, _WORDS.size)).cast("q")

    @classmethod
    def create(cls, path: Path) -> Page:
        """A new one, on which nothing was written."""
        path.write_bytes(bytes(_WORDS.size))
        return cls(path)

    def read(self) -> _Told | None:
        """What was written last; ``None`` if nothing is there, or not all of it."""
        for at in range(_MOST_READS):
            if at > _READS_AT_ONCE:
                time.sleep(_BETWEEN_READS_S)
            found = os.pread(self._descriptor, _WORDS.size, 0)
            if len(found) < _WORDS.size:
                self.damaged = True
                return None
            written, began_ns, current, since_ns, *totals_ns, missing, left = _WORDS.unpack(found)
            if written % 2 == 0 and os.pread(self._descriptor, 8, 0) == found[:8]:
                return _Told(began_ns, current, since_ns, totals_ns, missing, bool(left)) if began_ns else None
        # The program was killed while it wrote.
        return None

    def missing(self, count: int) -> None:
        """Write how many parts have not been seen at work."""
        self.words[_MISSING] = count

    def leave(self) -> None:
        """Write that the program has left its last phase."""
        self.words[_LEFT] = 1

    def close(self) -> None:
        """No more is read."""
        os.close(self._descriptor)


@final
class ToldChannel:
    """Lines that a program tells apart from what it prints, and that the process which reports phases has ended.

    A named pipe, which the kernel closes however that process ends. ``on_end`` is called each time nobody has it open
    any more. A context manager.
    """

    def __init__(self, path: Path, on_end: Callable[[], object]) -> None:
        os.mkfifo(path)
        self._path, self._on_end, self._rest = path, on_end, b""
        self.descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)

    def __enter__(self) -> ToldChannel:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self.descriptor)

    def take(self) -> list[str]:
        """The lines that are new; to be called when there is something to read or nobody has it open any more."""
        with suppress(BlockingIOError):
            found = os.read(self.descriptor, _MOST_LINE_BYTES)
            *whole, self._rest = (self._rest + found)[-_MOST_LINE_BYTES:].split(b"\n")
            if not found:
                self._on_end()
                # Else it would be told for ever that nobody has it open. Another process may come.
                with suppress(OSError):
                    again = os.open(self._path, os.O_RDONLY | os.O_NONBLOCK)
                    os.dup2(again, self.descriptor, inheritable=False)
                    os.close(again)
            return [each.decode("utf-8", "replace") for each in whole]
        return []


def open_channel(page: Path) -> int:
    """The program's end of the channel beside a page, to be kept open or written to; ``OSError`` without a reader."""
    with _above_streams():
        return os.open(channel_of(page), os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC)


@contextmanager
def _above_streams() -> Iterator[None]:
    """What is opened here is none of the standard streams, which a program may have closed and print to all the same.

    A mapped file has a descriptor of its own, too.
    """
    taken = [os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)]
    while taken[-1] < 3:
        taken.append(os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC))
    try:
        yield
    finally:
        for each in taken:
            os.close(each)


def channel_of(page: Path) -> Path:
    """Where the channel of a page is."""
    return page.with_name(f"{page.name}.told")


class TellingTimeline(Timeline):
    """The timeline of the program, which writes on the page what it knows.

    One that follows a device knows how long phases took only when it has waited for the device, in ``totals_ns``.
    """

    __slots__ = ("_words",)

    def __init__(self, page: Page) -> None:
        super().__init__(HOST)
        self._words = page.words
        self._words[_BEGAN] = self.started_ns
        self._tell()

    def switch(self, phase: int) -> None:
        """As for any timeline."""
        before = self._current
        Timeline.switch(self, phase)  # faster than super(), in every step
        if self._marks is None:
            words = self._words
            words[_WRITTEN] += 1
            words[_TOTALS + before] = self._totals_ns[before]
            words[_CURRENT] = phase
            words[_SINCE] = self._since_ns
            words[_WRITTEN] += 1

    def totals_ns(self) -> dict[str, int]:
        """As for any timeline."""
        found = super().totals_ns()
        self._tell()
        return found

    def _tell(self) -> None:
        words = self._words
        words[_WRITTEN] += 1
        for phase in Phase:
            words[_TOTALS + phase] = self._totals_ns[phase]
        words[_CURRENT] = self._current
        words[_SINCE] = self._since_ns
        words[_WRITTEN] += 1


class ToldTimeline(Timeline):
    """The timeline of a program that is measured from outside, whose phase ``train`` is split as the program reports.

    What it took before it first reported a phase is ``prepare``, unless a record has it as ``train`` by then.
    """

    __slots__ = ("_known_ns", "_page", "_prepared_ns", "_told_ns", "contradicted", "ended_inside", "unseen")

    def __init__(self) -> None:
        super().__init__(HOST)
        self._page: Page | None = None
        self._told_ns = [0] * len(Phase)
        # What a record has as ``train`` that nothing was told of.
        self._known_ns = 0
        self._prepared_ns: int | None = None
        self.contradicted = ""
        """Why what the program has reported cannot be right; from then on it is not read."""
        self.ended_inside = ""
        """The phase that the process which reports them had not left when it ended."""
        self.unseen = False
        """Whether a part of the program that should tell phases was not seen at work."""

    def listen(self, page: Page) -> None:
        """Read ``page`` from now on, while the phase is ``train``."""
        self._page = page

    def switch(self, phase: int) -> None:
        """As for any timeline, but the program does not stop for an evaluation."""
        if self._page is not None and self._current == Phase.TRAIN:
            if phase == Phase.EVALUATE:
                phase = Phase.TRAIN
            elif phase != Phase.TRAIN:
                self.end_listening()
        super().switch(phase)

    def end_listening(self) -> None:
        """What the program did until now is what counts."""
        if self._page is not None:
            self._look(self._page)
            self._page.close()
            self._page = None

    def program_ended(self) -> bool:
        """The process that reports phases has ended; whether there was one until now."""
        page = self._page
        if page is None:
            return False
        self._look(page)
        found = None if self.contradicted else page.read()
        outside = Phase.PREPARE, Phase.OTHER
        if found is not None and not found.left and 0 <= found.current < len(Phase) and found.current not in outside:
            self.ended_inside = Phase(found.current).label
        return found is not None

    def totals_ns(self) -> dict[str, int]:
        """As for any timeline."""
        if self._page is not None:
            self._look(self._page)
        else:
            super().switch(self._current)
        totals = dict(zip(Phase, self._totals_ns, strict=True))
        for phase, told_ns in zip(Phase, self._told_ns, strict=True):
            totals[phase] += told_ns
            totals[Phase.TRAIN] -= told_ns
        prepared_ns = self._prepared_ns or 0
        totals[Phase.PREPARE] += prepared_ns
        totals[Phase.TRAIN] -= prepared_ns
        self._known_ns = self._totals_ns[Phase.TRAIN] - sum(self._told_ns) - prepared_ns
        return {phase.label: ns for phase, ns in totals.items() if ns}

    def _look(self, page: Page) -> None:
        """Bring what the program has reported up to now."""
        # What is read before the clock has happened by then.
        found = None if self.contradicted else page.read()
        super().switch(self._current)
        if found is None and self._prepared_ns is None and not self.contradicted:
            # It may have begun in between.
            found = page.read()
            super().switch(self._current)
        if page.damaged and not self.contradicted:
            self.contradicted = "a part of what its program reports of its phases is gone: the file was made shorter"
        if found is None:
            return
        began_ns, current, since_ns, totals_ns, missing, _ = found
        self.unseen = missing > 0
        whole_ns, now_ns = self._totals_ns[Phase.TRAIN], self._since_ns
        fits = 0 <= current < len(Phase) and min(totals_ns) >= 0 and since_ns <= now_ns
        fits = fits and sum(totals_ns) == since_ns - began_ns and now_ns - began_ns <= whole_ns
        if not fits:
            self.contradicted = _IMPOSSIBLE
            return
        if (self._prepared_ns or 0) + sum(totals_ns) + now_ns - since_ns > whole_ns:
            # Another beginning than it told before.
            self.contradicted = _IMPOSSIBLE
            return
        if self._prepared_ns is None:
            self._prepared_ns = whole_ns - (now_ns - began_ns) if not self._known_ns else 0
        totals_ns[current] += now_ns - since_ns
        # It may have switched since the page was read, or learnt later what its device did: nothing that a record has
        # already shrinks, so phases that grew have this much less.
        gains = {at: max(0, ns - before) for at, (ns, before) in enumerate(zip(totals_ns, self._told_ns, strict=True))}
        room_ns = min(sum(totals_ns), whole_ns - self._known_ns - self._prepared_ns)
        excess = sum(gains.values()) + sum(self._told_ns) - room_ns
        for at in sorted(gains, key=gains.__getitem__, reverse=True):
            cut = min(gains[at], excess)
            self._told_ns[at] += gains[at] - cut
            excess -= cut

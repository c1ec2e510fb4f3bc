"""The phases that a program under ``levelbench time`` reports about itself, on their way to the record.

The two processes share a page of memory, a mapped file. The program writes its totals there at each switch of phase, a
few words, and the measuring process reads them whenever it needs them, so neither waits for the other. Both read the
monotonic clock of the machine. Only the split is the program's: how long it took in all is measured from outside.
"""

from __future__ import annotations

import mmap
import os
from pathlib import Path
from typing import final

from levelbench.measure.clocks import HOST
from levelbench.measure.timeline import Phase, Timeline

__all__ = ["Page", "TellingTimeline", "ToldTimeline"]

# Words of 8 bytes: how often it was written (odd: it is being written), when the first phase began, the current phase
# and since when, then the nanoseconds of each phase up to then.
_WRITTEN, _BEGAN, _CURRENT, _SINCE, _TOTALS = range(5)
_BYTES = 8 * (_TOTALS + len(Phase))

_MOST_READS = 1000


@final
class Page:
    """Words that two processes share."""

    def __init__(self, path: Path) -> None:
        with path.open("r+b") as file:
            if os.fstat(file.fileno()).st_size != _BYTES:
                raise OSError(f"{path.name} is of another version of levelbench")
            self._map = mmap.mmap(file.fileno(), _BYTES)
        self.words = memoryview(self._map).cast("q")

    @classmethod
    def create(cls, path: Path) -> Page:
        """A new one, on which nothing was written."""
        path.write_bytes(bytes(_BYTES))
        return cls(path)

    def read(self) -> tuple[int, int, int, list[int]] | None:
        """When the first phase began, the current one, since when, and the totals; ``None`` if nothing is there."""
        for _ in range(_MOST_READS):
            before = self.words[_WRITTEN]
            _, began_ns, current, since_ns, *totals_ns = self.words.tolist()
            if before == self.words[_WRITTEN] and before % 2 == 0:
                return (began_ns, current, since_ns, totals_ns) if began_ns else None
        # The program was killed while it wrote.
        return None

    def close(self) -> None:
        """No more is read."""
        self.words.release()
        self._map.close()


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

    __slots__ = ("_known_ns", "_page", "_prepared_ns", "_told_ns", "contradicted")

    def __init__(self) -> None:
        super().__init__(HOST)
        self._page: Page | None = None
        self._told_ns = [0] * len(Phase)
        self._known_ns = 0
        self._prepared_ns: int | None = None
        self.contradicted = False
        """Whether the program has reported what cannot be; from then on it is not read."""

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
        if self._prepared_ns is None:
            self._known_ns = self._totals_ns[Phase.TRAIN]
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
        if found is None:
            return
        began_ns, current, since_ns, totals_ns = found
        whole_ns, now_ns = self._totals_ns[Phase.TRAIN], self._since_ns
        fits = 0 <= current < len(Phase) and min(totals_ns) >= 0 and since_ns <= now_ns
        fits = fits and sum(totals_ns) == since_ns - began_ns and now_ns - began_ns <= whole_ns
        if not fits:
            self.contradicted = True
            return
        if (self._prepared_ns or 0) + sum(totals_ns) + now_ns - since_ns > whole_ns:
            # Another beginning than it told before.
            self.contradicted = True
            return
        if self._prepared_ns is None:
            self._prepared_ns = whole_ns - (now_ns - began_ns) if not self._known_ns else 0
        totals_ns[current] += now_ns - since_ns
        # It may have switched since the page was read, or learnt later what its device did: nothing that a record has
        # already shrinks, so phases that grew have this much less.
        gains = {at: max(0, ns - before) for at, (ns, before) in enumerate(zip(totals_ns, self._told_ns, strict=True))}
        excess = sum(gains.values()) + sum(self._told_ns) - sum(totals_ns)
        for at in sorted(gains, key=gains.__getitem__, reverse=True):
            cut = min(gains[at], excess)
            self._told_ns[at] += gains[at] - cut
            excess -= cut

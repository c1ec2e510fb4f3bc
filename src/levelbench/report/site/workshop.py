"""Makes of each file of a leaderboard what the site keeps of it, and its page; on several processors where asked.

The one idea: an entry and its page depend on its own file alone, so files are shared out in any way and the result
is the same; only what comes of all entries together (twins, ranks) is for the one process that asked.
"""

from __future__ import annotations

import multiprocessing
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from datetime import date
from itertools import islice
from pathlib import Path

import msgspec
from msgspec import Struct

from levelbench.records.rulesets.registry import task_rules
from levelbench.report.site import pages
from levelbench.report.site.boards import empty_board
from levelbench.report.site.intake import Leaderboard
from levelbench.report.site.payload import BoardPayload
from levelbench.report.site.state import Entry

__all__ = ["FEW", "Made", "Workshop"]

FEW = 400
"""Below so many files another process takes longer to start than it saves."""
_CHUNK = 40


class Made(Struct, array_like=True):
    """What came of a file: its entry, and its page for one that can be shown."""

    entry: Entry
    page: bytes | None


_ENCODER = msgspec.msgpack.Encoder()
_DECODER = msgspec.msgpack.Decoder(list[Made])


class Workshop:
    """Reads entries of one leaderboard and renders their pages."""

    def __init__(self, leaderboard: Leaderboard) -> None:
        self.leaderboard = leaderboard
        self._boards: dict[tuple[str, str], BoardPayload] = {}

    def board(self, key: tuple[str, str]) -> BoardPayload:
        """The board of a ruleset's id and a task, without entries."""
        if key not in self._boards:
            rules = self.leaderboard.rules_of(key[0])
            task = task_rules(rules, key[1])
            assert task is not None, "an entry's task is its ruleset's"
            self._boards[key] = empty_board(self.leaderboard.title, rules, task)
        return self._boards[key]

    def make(self, path: Path) -> Made:
        """The entry in the file at ``path``, whatever is in it."""
        read = self.leaderboard.read(path)
        entry = read.entry
        if entry.payload is None or entry.board is None or read.submission is None:
            return Made(entry, None)
        text = pages.entry_page(self.board(entry.board), entry.payload, read.submission, read.findings)
        # The page had them; from here on they are in entry.steps alone.
        entry.payload = msgspec.structs.replace(entry.payload, steps=[])
        return Made(entry, text.encode("utf-8", "replace"))

    def make_all(self, paths: Sequence[Path], processes: int) -> Iterator[Made]:
        """What comes of each of ``paths``, in their order."""
        if processes < 2 or len(paths) < FEW:
            yield from map(self.make, paths)
            return
        chunks = [paths[at : at + _CHUNK] for at in range(0, len(paths), _CHUNK)]
        board = self.leaderboard
        pool = ProcessPoolExecutor(
            processes, multiprocessing.get_context("spawn"), _begin, (board.folder, board.today, board.only)
        )
        try:
            # A few chunks ahead, and no more: pages that wait for the disk would fill the memory.
            waiting = [pool.submit(_make_chunk, chunk) for chunk in chunks[: 4 * processes]]
            rest = iter(chunks[4 * processes :])
            while waiting:
                found = _DECODER.decode(waiting.pop(0).result())
                waiting += [pool.submit(_make_chunk, chunk) for chunk in islice(rest, 1)]
                yield from found
        finally:
            pool.shutdown(cancel_futures=True)


_workshops: list[Workshop] = []
"""The workshop of a process of the pool."""


def _begin(folder: Path, today: date, only: str | None) -> None:
    _workshops[:] = [Workshop(Leaderboard(folder, today, only=only))]


def _make_chunk(paths: Sequence[Path]) -> bytes:
    return _ENCODER.encode([_workshops[0].make(path) for path in paths])

"""Makes of each file of a leaderboard what the site keeps of it, and its page; on several processors where asked.

The one idea: an entry and its page depend on its own file alone, so files are shared out in any way and the result
is the same; only what comes of all entries together (twins, ranks) is for the one process that asked.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import date
from pathlib import Path

import msgspec
from msgspec import Struct

from levelbench.records.rulesets.registry import task_rules
from levelbench.records.submissions.several import FEW, TOGETHER, Steps, in_step, shared_out
from levelbench.report.site import pages
from levelbench.report.site.boards import empty_board
from levelbench.report.site.intake import KnownLimits, Leaderboard, Lint
from levelbench.report.site.outputs import write
from levelbench.report.site.payload import BoardPayload
from levelbench.report.site.sides import keys_of, sides
from levelbench.report.site.state import BoardKey, Entry, Output

__all__ = ["CARRIED_BYTES", "Made", "Workshop", "files_of"]

CARRIED_BYTES = 1 << 15
"""A submission of so many bytes, as nearly all are, is in its page: to make a file for each would double their number,
and that is what a file system is slow at."""


class Made(Struct, array_like=True):
    """What came of a file: its entry, and for one that can be shown its files: to be written, or written already."""

    entry: Entry
    contents: list[tuple[str, bytes]] = []
    written: list[tuple[str, Output]] = []


def files_of(entry: Entry) -> tuple[str, ...]:
    """The files of an entry that is shown: its page, and before it the copy of a submission too large to be in it."""
    if entry.payload is None:
        return ()
    page = entry.payload.page
    return (page,) if entry.file.size <= CARRIED_BYTES else (f"{page.removesuffix('.html')}.json", page)


class Workshop:
    """Reads entries of one leaderboard and renders their pages."""

    def __init__(self, leaderboard: Leaderboard) -> None:
        self.leaderboard = leaderboard
        self._boards: dict[BoardKey, BoardPayload] = {}

    def board(self, key: BoardKey) -> BoardPayload:
        """The board of a ruleset's id, a task, and a scenario that has one apart; without entries."""
        if key not in self._boards:
            rules = self.leaderboard.rules_of(key[0])
            task = task_rules(rules, key[1])
            assert task is not None, "an entry's task is its ruleset's"
            self._boards[key] = empty_board(self.leaderboard.title, rules, task, key[2])
        return self._boards[key]

    def make(self, path: Path, off: Sequence[BoardKey] = ()) -> Made:
        """The entry in the file at ``path``, whatever is in it; ``off`` are boards of its that are not built."""
        (made,) = in_step([self._make(path, off)])
        return made

    def _make(self, path: Path, off: Sequence[BoardKey] = ()) -> Steps[Made]:
        read = yield from self.leaderboard.read(path)
        entry = read.entry
        if entry.payload is None or read.submission is None:
            return Made(entry)
        entry.off = [key for key in keys_of(entry) if key in off]
        # What was read decides: the file may have changed since its size was asked for.
        entry.file = msgspec.structs.replace(entry.file, size=len(read.raw))
        *copy, page = files_of(entry)
        source = copy[0] if copy else read.raw
        shown = [(self.board(side.board), side.payload) for side in sides(entry) if side.board and side.payload]
        (board, payload), *further = shown
        text = pages.entry_page(
            board,
            payload,
            read.submission,
            read.findings,
            source=source,
            linted=read.linted,
            further=further,
            off=[self.board(key).task_title for key in entry.off],
        )
        return Made(entry, [*((name, read.raw) for name in copy), (page, text.encode("utf-8", "replace"))])

    def make_each(self, paths: Sequence[Path]) -> Iterator[Made]:
        """What comes of each of ``paths``, in their order; a few are worked on together."""
        for at in range(0, len(paths), TOGETHER):
            yield from in_step(map(self._make, paths[at : at + TOGETHER]))

    def make_all(self, paths: Sequence[Path], site: Path, processes: int) -> Iterator[Made]:
        """What comes of each of ``paths``, in their order; other processes write into ``site`` what they made."""
        if processes < 2 or len(paths) < FEW:
            yield from self.make_each(paths)
            return
        board = self.leaderboard
        given = (board.folder, board.today, board.only, board.lint, board.limits, site)
        for raw in shared_out(paths, _make_chunk, processes, _begin, given):
            yield from _DECODER.decode(raw)


_ENCODER = msgspec.msgpack.Encoder()
_DECODER = msgspec.msgpack.Decoder(list[Made])
_workshops: list[tuple[Workshop, Path]] = []
"""The workshop of a process of its own, and the site that it writes into."""


def _begin(
    folder: Path, today: date, only: str | None, lint: Lint | None, limits: KnownLimits | None, site: Path
) -> None:
    _workshops[:] = [(Workshop(Leaderboard(folder, today, only=only, lint=lint, limits=limits)), site)]


def _make_chunk(paths: Sequence[Path]) -> bytes:
    ((workshop, site),) = _workshops
    found = []
    for made in workshop.make_each(paths):
        written = [(name, write(site, name, content)) for name, content in made.contents]
        found.append(Made(made.entry, [], written))
    return _ENCODER.encode(found)

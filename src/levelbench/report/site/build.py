"""Builds the site of a leaderboard: a folder that is whole at every instant, and made again only where it must be.

The one idea: an entry's page depends on its file alone, and everything else on what is remembered of all entries. So
one changed file is one submission to read and one page to render, and the rest is ranked from memory.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from datetime import date
from pathlib import Path

import msgspec
from msgspec import Struct, field

from levelbench import __version__
from levelbench.measure.clocks import utc_now
from levelbench.records.submissions.rules import Finding
from levelbench.records.submissions.rules.checking import submission_files
from levelbench.report.site import pages
from levelbench.report.site.boards import board_slug, card, filled, leaderboard_csv, leaderboard_json
from levelbench.report.site.feed import feed
from levelbench.report.site.intake import Leaderboard, Twins, line
from levelbench.report.site.outputs import Outputs
from levelbench.report.site.payload import BoardPayload, NotShown, SiteFacts, script
from levelbench.report.site.state import Board, Entry, State, load, made_by, new
from levelbench.report.site.workshop import Made, Workshop

__all__ = ["Built", "build"]

_GENERATED = b'"generated":""'


class Built(Struct):
    """What a build did: entries shown, files read again, boards, what is not shown and why, files written and removed.

    ``errors`` and ``warnings`` count the findings about all files.
    """

    site: str
    boards: list[str] = field(default_factory=list)
    entries: int = 0
    read: int = 0
    errors: int = 0
    warnings: int = 0
    not_shown: list[NotShown] = field(default_factory=list)
    written: list[str] = field(default_factory=list)
    removed: list[str] = field(default_factory=list)
    kept: int = 0


def build(
    folder: Path,
    site: Path,
    *,
    ruleset: str | None = None,
    base_url: str | None = None,
    force: bool = False,
    today: date | None = None,
    processes: int = 1,
) -> Built:
    """Build the site of the leaderboard in ``folder`` as the folder ``site``.

    Each entry is scored under the ruleset that it names, or all under ``ruleset``. A file that is wrong is listed as
    not shown, with its findings, and stops nothing. ``base_url`` is where the site will be (else the ``url`` of
    ``board.toml``); with one there is a feed. ``force`` trusts nothing that an earlier build remembers. Many files are
    shared out among ``processes``, which are spawned: whoever asks for more than one is a program with a main guard.

    Raises ``UsageError`` where ``folder`` is none or ``site`` holds something else, ``UnknownNameError`` for a ruleset
    that is not there, ``DefinitionError`` for a ``board.toml`` that cannot be read, ``StoreError`` where nothing can be
    written.
    """
    day = today or utc_now().date()
    board = Leaderboard(folder, day, only=ruleset)
    url = (base_url if base_url is not None else board.url).rstrip("/")
    made = made_by(__version__, url.encode(), *board.settings())
    before = (None if force else load(site, made)) or new(made, day.isoformat())
    return _Build(board, site, before, new(made, day.isoformat()), url, processes).run()


class _Build:
    """One build under way: what was, what is, and what was done."""

    def __init__(
        self, leaderboard: Leaderboard, site: Path, before: State, now: State, url: str, processes: int
    ) -> None:
        self._leaderboard, self._site, self._url = leaderboard, site, url
        self._before, self._now = before, now
        self._outputs = Outputs.open(site, before.outputs)
        self._workshop, self._processes = Workshop(leaderboard), processes
        self._built = Built(str(site))

    def run(self) -> Built:
        """In this order: what is pointed at is there before what points there."""
        self._outputs.forget()
        for name, content in pages.assets().items():
            self._outputs.put(f"assets/{name}", content)
        members: dict[tuple[str, str], list[Entry]] = {}
        for entry in self._shown_entries():
            if entry.board is not None:
                members.setdefault(entry.board, []).append(entry)
        boards = [self._finished(key, members[key]) for key in sorted(members, key=lambda key: (key[1], key[0]))]
        self._write_whole(boards)
        self._outputs.finish(self._now)
        built, outputs = self._built, self._outputs
        built.boards = [board.page for board in boards]
        built.entries = sum(map(len, members.values()))
        built.written, built.removed, built.kept = outputs.written, outputs.removed, outputs.kept
        return built

    def _shown_entries(self) -> Iterator[Entry]:
        """Each entry that is shown, with its page in place; what is not shown is noted."""
        around: list[Finding] = list(self._leaderboard.problems)
        known = [(path, id, self._remembered(path, id)) for path, id in self._files(around)]
        unknown = [path for path, _, entry in known if entry is None]
        made = self._workshop.make_all(unknown, self._processes)
        twins = Twins()
        for path, id, before in known:
            fresh = next(made) if before is None else None
            entry = fresh.entry if fresh else before
            assert entry is not None
            like = twins.add(entry, f"{id}.json")
            entry.twin = bool(like)
            self._now.entries[id] = entry
            self._count(entry.errors + len(like), entry.warnings)
            if entry.payload is None or like:
                self._built.not_shown.append(NotShown(f"{id}.json", [*entry.reasons, *map(line, like)]))
                continue
            self._place(path, entry.payload.page, fresh)
            yield entry
        self._built.read += len(unknown)
        for finding in around:
            self._count(finding.severity == "error", finding.severity == "warning")
            if finding.severity == "error":
                self._built.not_shown.append(NotShown(finding.file, [line(finding)]))

    def _remembered(self, path: Path, id: str) -> Entry | None:
        """What is known of the file, if neither it nor the page made of it has changed."""
        entry = self._leaderboard.remembered(str(path), self._before.entries.get(id), self._before.day)
        if entry is None or entry.payload is None or entry.twin or self._outputs.is_intact(entry.payload.page):
            return entry
        return None

    def _count(self, errors: int, warnings: int) -> None:
        self._built.errors += errors
        self._built.warnings += warnings

    def _place(self, path: Path, page: str, fresh: Made | None) -> None:
        """The page of an entry that is shown: as it lies there, or as it was made now."""
        if fresh is None and self._outputs.is_intact(page):
            self._outputs.keep(page)
            return
        if fresh is None:
            # It was another's twin until now.
            self._built.read += 1
            fresh = self._workshop.make(path)
        if fresh.page is not None:
            self._outputs.put(page, fresh.page)

    def _files(self, findings: list[Finding]) -> Iterator[tuple[Path, str]]:
        """The files of entries with their ids; the site may lie in the leaderboard's folder, and is none of it."""
        root, own = self._leaderboard.folder.resolve(), self._site.resolve()
        inside = own.is_relative_to(root)
        around: list[Finding] = []
        start = len(str(self._leaderboard.folder / "x")) - 1
        for path in submission_files(self._leaderboard.folder, around):
            if inside and path.resolve().is_relative_to(own):
                continue
            name = str(path)[start:].removesuffix(".json").replace(os.sep, "/")
            yield path, name.encode("utf-8", "backslashreplace").decode()
        findings += [each for each in around if not (inside and (root / each.file).is_relative_to(own))]

    def _finished(self, key: tuple[str, str], entries: list[Entry]) -> BoardPayload:
        """The board with its ranks; its files are written, with today's date if anything in it is new."""
        payloads = [entry.payload for entry in entries if entry.payload is not None]
        board = filled(self._workshop.board(key), payloads)
        content = script(board, {entry.payload.id: entry.steps for entry in entries if entry.payload is not None})
        digest = hashlib.sha256(content).hexdigest()
        slug = board_slug(key[1], key[0])
        before = self._before.boards.get(slug)
        known = before is not None and before.sha256 == digest
        generated = before.generated if before is not None and known else self._now.day
        self._now.boards[slug] = Board(digest, generated)
        # No text of an entry holds these characters: its quotes are escaped. So the first is the field itself.
        self._outputs.put(board.data, content.replace(_GENERATED, b'"generated":"%s"' % generated.encode(), 1))
        board = msgspec.structs.replace(board, generated=generated)
        self._outputs.put(board.page, pages.task_page(board).encode("utf-8", "replace"))
        return board

    def _write_whole(self, boards: list[BoardPayload]) -> None:
        """What is about all boards: for programs first, the index last."""
        title = self._leaderboard.title
        self._outputs.put("leaderboard.json", leaderboard_json(title, __version__, boards))
        self._outputs.put("leaderboard.csv", leaderboard_csv(boards))
        generated = max((board.generated for board in boards), default=self._now.day)
        if self._url:
            self._outputs.put("feed.xml", feed(title, self._url, generated, boards))
        facts = SiteFacts(
            title=title,
            generated=generated,
            url=self._url,
            version=__version__,
            entries=sum(len(board.entries) for board in boards),
            not_shown=self._built.not_shown,
            feed="feed.xml" if self._url else "",
        )
        index = pages.index_page(facts, [card(board) for board in boards])
        self._outputs.put("index.html", index.encode("utf-8", "replace"))

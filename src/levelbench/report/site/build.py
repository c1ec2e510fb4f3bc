"""Builds the site of a leaderboard: a folder that is whole at every instant, and made again only where it must be.

The one idea: an entry's page depends on its file alone, and everything else on what is remembered of all entries. So
one changed file is one submission to read and one page to render, and the rest is ranked from memory.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Iterator, Sequence
from datetime import date
from itertools import islice
from pathlib import Path

import msgspec

from levelbench import __version__
from levelbench.errors import UsageError
from levelbench.measure.clocks import utc_now
from levelbench.records.submissions.addresses import is_address
from levelbench.records.submissions.rules import Finding
from levelbench.records.submissions.rules.listing import submission_paths
from levelbench.records.submissions.several import seldom_collecting
from levelbench.report.site import pages
from levelbench.report.site.boards import card, filled
from levelbench.report.site.intake import KnownLimits, Leaderboard, Lint, line
from levelbench.report.site.outputs import Outputs
from levelbench.report.site.payload import BoardPayload, NotShown, SiteFacts
from levelbench.report.site.place import fault, held
from levelbench.report.site.programs import leaderboard_csv, leaderboard_json
from levelbench.report.site.scripts import FEW_BYTES, joined_steps, script, steps_script
from levelbench.report.site.sides import TOO_MANY, in_order, keys_of, sides, too_many
from levelbench.report.site.state import Board, BoardKey, Built, Entry, State, digest_of, load, made_by, new
from levelbench.report.site.together import Together
from levelbench.report.site.workshop import Made, Workshop, files_of

__all__ = ["Built", "build"]

_GENERATED = b'"generated":""'
_Known = tuple[str, str, Entry | None]
"""A file of the leaderboard, its id, and what is remembered of it."""


def build(
    folder: Path,
    site: Path,
    *,
    ruleset: str | None = None,
    base_url: str | None = None,
    force: bool = False,
    today: date | None = None,
    processes: int = 1,
    lint: Lint | None = None,
    limits: KnownLimits | None = None,
) -> Built:
    """Build the site of the leaderboard in ``folder`` as the folder ``site``.

    Each entry is scored under the ruleset that it names, or all under ``ruleset``. A file that is wrong is listed as
    not shown, with its findings, and stops nothing. ``base_url`` is where the site will be (else the ``url`` of
    ``board.toml``); with one there is a feed. ``force`` trusts nothing that an earlier build remembers. Many files are
    shared out among ``processes``, which are spawned: whoever asks for more than one is a program with a main guard.
    ``lint`` says what the linter finds in an entry; it is a function of a module, beside its rules. ``limits`` says
    what is known of its machine and network, as a check asks it: what that refuses is not shown.

    Raises ``UsageError`` where ``folder`` is none, ``site`` holds something else or ``base_url`` is no address of the
    web, ``UnknownNameError`` for a ruleset that is not there, ``DefinitionError`` for a ``board.toml`` that cannot be
    read, ``StoreError`` where nothing can be written or another build is at it.
    """
    day = today or utc_now().date()
    board = Leaderboard(folder, day, only=ruleset, lint=lint, limits=limits)
    if base_url and not is_address(base_url):
        do = "give an address with http or https, such as https://example.org/board"
        raise UsageError("--base-url", f"it is {base_url!r}", do)
    url = (base_url if base_url is not None else board.url).rstrip("/")
    made = made_by(__version__, url.encode(), *board.settings(), digest_of(lint), digest_of(limits))
    with held(site, folder), seldom_collecting():
        before = None if force else load(site, made)
        if before is None or before.day > day.isoformat():
            # What was judged tomorrow may have been too new today.
            before = new(made, day.isoformat())
        return _Build(board, site, before, new(made, day.isoformat()), url, processes).run()


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


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
        around: list[Finding] = list(self._leaderboard.problems)
        known = [(path, id, self._remembered(path, id)) for path, id in self._files(around)]
        self._now.around = _digest(msgspec.msgpack.encode(around))
        if self._is_as_it_was(known):
            return self._as_it_was()
        self._outputs.forget()
        for name, content in pages.assets().items():
            self._outputs.put(f"assets/{name}", content)
        members: dict[BoardKey, list[Entry]] = {}
        for entry in self._shown_entries(known, around):
            self._built.entries += 1
            for side in sides(entry):
                if side.board is not None:
                    members.setdefault(side.board, []).append(side)
        beside: dict[tuple[str, str], list[BoardKey]] = {}
        for key in sorted(members, key=in_order):
            beside.setdefault(key[:2], []).append(key)
        boards = [self._finished(key, members[key], group) for group in beside.values() for key in group]
        self._write_whole(boards)
        built, outputs = self._built, self._outputs
        built.boards = [board.page for board in boards]
        self._now.built = msgspec.structs.replace(built, read=0)
        self._outputs.finish(self._now)
        built.written, built.removed, built.kept = outputs.written, outputs.removed, outputs.kept
        return built

    def _is_as_it_was(self, known: Sequence[_Known]) -> bool:
        """Whether all files, their signatures and all pages are what the last build left: it would do nothing."""
        before = self._before
        return (
            before.built is not None
            and before.around == self._now.around
            # The index of a site without a board has today's date.
            and len(known) == len(before.entries) > 0 < len(before.boards)
            and all(entry is not None and entry is before.entries[id] for _, id, entry in known)
            and self._outputs.are_as_they_were()
        )

    def _as_it_was(self) -> Built:
        assert self._before.built is not None
        return msgspec.structs.replace(self._before.built, site=self._built.site, kept=len(self._before.outputs))

    def _shown_entries(self, known: Sequence[_Known], around: Sequence[Finding]) -> Iterator[Entry]:
        """Each entry that is shown, with its page in place; what is not shown is noted."""
        unknown = [Path(path) for path, _, entry in known if entry is None]
        made = self._workshop.make_all(unknown, self._site, self._processes)
        together = Together()
        entries: list[tuple[str, str, Entry, Made | None]] = []
        for path, id, before in known:
            fresh = self._next(made) if before is None else None
            entry = fresh.entry if fresh else before
            assert entry is not None
            together.add(f"{id}.json", entry)
            if fresh:
                self._place(fresh)
                fresh.contents.clear()
            entries.append((path, id, entry, fresh))
        self._built.read += len(unknown)
        self._now.compared.update(self._before.compared)
        together.compare({f"{id}.json": path for path, id, _ in known}, self._now.compared)
        self._built.near = together.near()
        self._count(0, together.warnings() or not known)
        crowd = too_many(keys_of(entry) for _, id, entry, _ in entries if not together.lost(f"{id}.json"))
        for path, id, entry, fresh in entries:
            like, off = together.lost(f"{id}.json"), [key for key in keys_of(entry) if key in crowd] if crowd else []
            apart = len(off) > len(entry.further)
            if self._decide(path, entry, fresh, bool(like) or apart, off):
                yield together.marked(f"{id}.json", entry)
            else:
                reasons = [*entry.reasons, *map(line, like), *([TOO_MANY] if apart else [])]
                self._built.not_shown.append(NotShown(f"{id}.json", reasons))
            self._now.entries[id] = entry
            self._count(entry.errors + len(like), entry.warnings)
        for finding in around:
            self._count(finding.severity == "error", finding.severity == "warning")
            if finding.severity == "error":
                self._built.not_shown.append(NotShown(finding.file, [line(finding)]))

    def _decide(self, path: str, entry: Entry, fresh: Made | None, kept_off: bool, off: list[BoardKey]) -> bool:
        """Whether the entry is shown; its files are there then, and gone where others took its place.

        ``off`` are boards of its that are not built: its page was made as if they were those of the last time.
        """
        anew = (entry.twin or entry.off != off) and not kept_off
        entry.twin, entry.off = kept_off, off
        if entry.payload is None:
            return False
        if fresh and (kept_off or anew):
            self._outputs.drop(files_of(entry))
        if kept_off:
            return False
        if anew:
            # Others took its place, or that of a board of its, until now.
            self._built.read += fresh is None
            self._place(self._workshop.make(Path(path), off))
        elif fresh is None:
            for name in files_of(entry):
                self._outputs.keep(name)
        return True

    def _next(self, made: Iterator[Made]) -> Made:
        try:
            return next(made)
        except OSError as error:
            raise fault(self._site, error) from error

    def _remembered(self, path: str, id: str) -> Entry | None:
        """What is known of the file, if neither it nor the page made of it has changed."""
        entry = self._leaderboard.remembered(path, self._before.entries.get(id))
        if entry is None or entry.payload is None or entry.twin:
            return entry
        return entry if all(map(self._outputs.is_intact, files_of(entry))) else None

    def _count(self, errors: int, warnings: int) -> None:
        self._built.errors += errors
        self._built.warnings += warnings

    def _place(self, made: Made) -> None:
        """The files of an entry, as they were made now."""
        for name, content in made.contents:
            self._outputs.put(name, content)
        for name, output in made.written:
            self._outputs.adopt(name, output)

    def _files(self, findings: list[Finding]) -> Iterator[tuple[str, str]]:
        """The files of entries with their ids; the site may lie in the leaderboard's folder, and is none of it."""
        folder = self._leaderboard.folder
        root, own = folder.resolve(), self._site.resolve()
        inside = own.is_relative_to(root)
        around: list[Finding] = []
        start = len(os.path.join(folder, ""))  # noqa: PTH118 -- as a text, which is what it is cut from
        for path in submission_paths(folder, around, self._site):
            if inside and Path(path).resolve().is_relative_to(own):
                continue
            name = path[start:].removesuffix(".json").replace(os.sep, "/")
            yield path, name.encode("utf-8", "backslashreplace").decode()
        findings += [each for each in around if not (inside and (root / each.file).is_relative_to(own))]

    def _finished(self, key: BoardKey, entries: list[Entry], group: Iterable[BoardKey]) -> BoardPayload:
        """The board with its ranks; its files are written, with today's date if anything in it is new.

        ``group`` are the boards of the same task under the same rules: its page has links to some.
        """
        payloads = [entry.payload for entry in entries if entry.payload is not None]
        board = filled(self._workshop.board(key), payloads)
        slug = board.slug
        steps = joined_steps(board, {entry.payload.id: entry.steps for entry in entries if entry.payload is not None})
        if len(steps) > FEW_BYTES:
            apart = steps_script(steps)
            board = msgspec.structs.replace(board, steps=f"data/{slug}-steps-{_digest(apart)[:10]}.js")
            self._outputs.put(board.steps, apart)
        content = script(board, steps)
        digest = _digest(content)
        before = self._before.boards.get(slug)
        known = before is not None and before.sha256 == digest
        generated = before.generated if before is not None and known else self._now.day
        self._now.boards[slug] = Board(digest, generated)
        # No text of an entry holds these characters: its quotes are escaped. So the first is the field itself.
        content = content.replace(_GENERATED, b'"generated":"%s"' % generated.encode(), 1)
        # Named after its content: a page that was written before this one keeps its own.
        data = f"data/{slug}-{_digest(content)[:10]}.js"
        self._outputs.put(data, content)
        board = msgspec.structs.replace(board, generated=generated, data=data)
        beside = islice((each for each in group if each != key), pages.MOST_OTHERS + 1)
        others = [(each.task_title, each.page) for each in map(self._workshop.board, beside)]
        self._outputs.put(board.page, pages.task_page(board, others).encode("utf-8", "replace"))
        return board

    def _write_whole(self, boards: list[BoardPayload]) -> None:
        """What is about all boards: for programs first, the index last."""
        title = self._leaderboard.title
        self._outputs.put("leaderboard.json", leaderboard_json(title, __version__, boards))
        self._outputs.put("leaderboard.csv", leaderboard_csv(boards))
        generated = max((board.generated for board in boards), default=self._now.day)
        if self._url:
            # It brings much of the standard library with it, which few sites need.
            from levelbench.report.site.feed import feed

            self._outputs.put("feed.xml", feed(title, self._url, generated, boards))
        facts = SiteFacts(
            title=title,
            generated=generated,
            url=self._url,
            version=__version__,
            entries=self._built.entries,
            not_shown=self._built.not_shown,
            near=self._built.near,
            feed="feed.xml" if self._url else "",
        )
        index = pages.index_page(facts, [card(board) for board in boards])
        self._outputs.put("index.html", index.encode("utf-8", "replace"))

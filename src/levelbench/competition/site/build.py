"""Builds the site of a leaderboard, whole each time, on as many processors as asked.

First every file is read, judged and scored; then what comes of all entries together is decided (copies, boards,
ranks); then the pages are made. Of a submission only what the site shows is kept in between, so ten thousand of them
need no more memory than their pages' data; and a file that is wrong is a reason to say so, never to stop.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import date
from itertools import islice
from pathlib import Path

import msgspec
from msgspec import Struct, field

from levelbench import __version__
from levelbench.competition.checks import EntryFinding, ordered
from levelbench.competition.entries import Submission, is_address, parse_submission, read_bytes
from levelbench.competition.figures import RankedScenario, is_apart
from levelbench.competition.leaderboard import (
    BOARD,
    BoardSettings,
    KnownLimits,
    Leaderboard,
    board_settings,
    curves_of,
    shared_out,
    submission_paths,
)
from levelbench.competition.rivals import EntryTrace, Rivals, doubts_beside_rank
from levelbench.competition.rulesets import Ruleset, task_rules
from levelbench.competition.scoring import climbs_of, crossing_of, score
from levelbench.competition.site import BoardPayload, EntryPayload, FindingCounts, NotShown, entry_payload, steps_json
from levelbench.competition.site.boards import (
    FEW_BYTES,
    empty_board,
    feed,
    filled,
    joined_steps,
    leaderboard_csv,
    leaderboard_json,
    leaders_of,
    script,
    steps_script,
)
from levelbench.competition.site.entry_page import entry_page
from levelbench.competition.site.pages import MOST_OTHERS, index_page, task_page
from levelbench.competition.site.parts import assets
from levelbench.competition.site.place import SiteFolder, held, stage
from levelbench.errors import DefinitionError, LevelbenchError, StoreError, UnknownNameError, UsageError
from levelbench.measure.clocks import utc_now
from levelbench.report.remarks import Remarks

Lint = Callable[[Submission, str, Mapping[str, Ruleset]], Remarks]
"""What says what the linter finds in an entry: a function of a module, so that other processes have it, too."""
BoardKey = tuple[str, str, RankedScenario | None]
"""A board: the ruleset's id, the task, and the scenario that it is apart for."""

CARRIED_BYTES = 1 << 15
"""A submission of so many bytes, as nearly all are, is in its page: to make a file for each would double their number,
and that is what a file system is slow at."""
MOST_APART = 50
"""How many boards of scenarios a task has under one ruleset: their bounds and queries are their authors' choice."""
TOO_MANY = (
    f"Its scenario would have a board beyond the {MOST_APART} that a task has, which are those of most entries. "
    "Measure a latency bound or a number of samples a query that others measured."
)


class Built(Struct):
    """What a build did: entries shown, files read, boards, what is not shown and why, files written and removed.

    ``errors`` and ``warnings`` count the findings about all files. ``near`` are the files that are doubtful beside
    others: copies, or nearly, and those that are not comparable with the rest of their board. ``kept`` counts files
    that are as they lay there.
    """

    site: str
    boards: list[str] = field(default_factory=list)
    entries: int = 0
    read: int = 0
    errors: int = 0
    warnings: int = 0
    not_shown: list[NotShown] = field(default_factory=list)
    near: list[NotShown] = field(default_factory=list)
    written: list[str] = field(default_factory=list)
    removed: list[str] = field(default_factory=list)
    kept: int = 0


class _Scored(Struct):
    """What is kept of a file between reading it and making its page.

    ``sides`` has the entry, without ranks, as each of its boards shows it, of inference that of the first scenario
    first; none of one that cannot be shown, for ``reasons``. ``steps`` are those of its runs as JSON: only the page's
    script looks into them.
    """

    path: str
    file: str
    findings: list[EntryFinding]
    sha256: bytes = b""
    trace: EntryTrace | None = None
    reasons: list[str] = []
    sides: list[tuple[BoardKey, EntryPayload]] = []
    steps: bytes = b"[]"
    linted: Remarks | None = None

    def for_page(self) -> _Scored:
        """Without what its page has no use for, which need not be sent to another process."""
        return msgspec.structs.replace(self, trace=None, steps=b"")

    @property
    def keys(self) -> list[BoardKey]:
        """The boards that it belongs on."""
        return [key for key, _ in self.sides]


class _Workshop:
    """What a process needs to read entries of one leaderboard and to make their pages."""

    def __init__(
        self, folder: Path, today: date, limits: KnownLimits | None, only: str | None, lint: Lint | None, site: Path
    ) -> None:
        self.leaderboard = Leaderboard(folder, today, limits=limits)
        self.settings, _ = board_settings(folder, self.leaderboard.known)
        self.only, self.lint, self.site = only, lint, site
        self._boards: dict[BoardKey, BoardPayload] = {}

    def board(self, key: BoardKey) -> BoardPayload:
        """The board of a ruleset's id, a task, and a scenario that has one apart; without entries."""
        if key not in self._boards:
            rules = self.leaderboard.known[key[0]]
            task = task_rules(rules, key[1])
            assert task is not None, "an entry's task is its ruleset's"
            self._boards[key] = empty_board(self.settings.title, rules, task, key[2])
        return self._boards[key]

    def score(self, path: str) -> _Scored:
        """The file, judged and scored, whatever is in it."""
        read = self.leaderboard.read(path)
        reasons = [line(each) for each in ordered(read.findings) if each.severity == "error"]
        scored = _Scored(
            path, read.file, ordered(read.findings), hashlib.sha256(read.raw).digest(), read.trace, reasons
        )
        if read.entry is None or reasons:
            return scored
        entry, submission, listed = read.entry, read.entry.submission, self.settings.rulesets
        if self.only is None and listed and submission.ruleset not in listed:
            names = ", ".join(sorted(listed))
            scored.reasons = [
                f"It is made for {submission.ruleset}; {BOARD} lists {names}. Submit it under one of them."
            ]
            return scored
        rules = self.leaderboard.known[self.only or submission.ruleset]
        task = task_rules(rules, submission.task)
        if task is None:
            scored.reasons = [f"{rules.id} has no task {submission.task!r}. Build the site under its own ruleset."]
            return scored
        # An entry that keeps the rules it is scored by has been looked at by them already.
        own = rules is entry.rules and submission.target == task.target
        climbs = entry.climbs if own else climbs_of(submission, task.target, crossing_of(submission, rules))
        found = score(submission, rules, climbs=climbs)
        id = read.file.removesuffix(".json")
        for each in found.in_scenarios():
            apart = each.scenario if is_apart(each.scenario, task.inference) else None
            payload = entry_payload(id, submission, each, rules, signed=read.signed, climbs=climbs)
            scored.sides.append(((rules.id, task.task, apart), payload))
        scored.steps = steps_json(climbs, task.target)
        if self.lint is not None:
            # Of some entries no claim can be made.
            with suppress(LevelbenchError):
                scored.linted = self.lint(submission, read.file, self.leaderboard.known)
        said = "" if scored.linted is None else scored.linted.words()
        for _, payload in scored.sides:
            payload.lint = said
        return scored

    def make_page(self, given: tuple[_Scored, set[BoardKey]]) -> list[tuple[str, bool]]:
        """Write the files of an entry that is shown; their names, and whether each differs from what lies there.

        ``given`` with the entry are the boards that are not built.
        """
        scored, off = given
        raw = read_bytes(scored.path)
        if hashlib.sha256(raw).digest() != scored.sha256:
            raise StoreError(f"build a site of {scored.path}", "it was changed meanwhile", "build again")
        page = scored.sides[0][1].page
        # A copy of a submission that is too large to be in its page lies beside it.
        copy = "" if len(raw) <= CARRIED_BYTES else f"{page.removesuffix('.html')}.json"
        (board, payload), *further = ((self.board(key), side) for key, side in scored.sides if key not in off)
        text = entry_page(
            board,
            payload,
            parse_submission(raw),
            scored.findings,
            source=copy or raw,
            linted=scored.linted,
            further=further,
            off=[self.board(key).task_title for key in scored.keys if key in off],
        )
        files = [*([(copy, raw)] if copy else []), (page, text.encode("utf-8", "replace"))]
        return [(name, stage(self.site, name, content)) for name, content in files]


def build(
    folder: Path,
    site: Path,
    *,
    ruleset: str | None = None,
    base_url: str | None = None,
    today: date | None = None,
    processes: int = 1,
    lint: Lint | None = None,
    limits: KnownLimits | None = None,
) -> Built:
    """Build the site of the leaderboard in ``folder`` as the folder ``site``.

    Each entry is scored under the ruleset that it names, or all under ``ruleset``. A file that is wrong is listed as
    not shown, with its findings, and stops nothing. ``base_url`` is where the site will be (else the ``url`` of
    ``board.toml``); with one there is a feed. Many files are shared out among ``processes``, which are spawned: whoever
    asks for more than one is a program with a main guard. ``lint`` says what the linter finds in an entry; it is a
    function of a module, beside its rules. ``limits`` says what is known of its machine and network, as a check asks
    it: what that refuses is not shown.

    Raises ``UsageError`` where ``folder`` is no folder, ``site`` holds something else or ``base_url`` is no web
    address, ``UnknownNameError`` for an unknown ruleset, ``DefinitionError`` for a ``board.toml`` that cannot be read,
    ``StoreError`` where nothing can be written, another build is at it, or an entry changes meanwhile.
    """
    if not folder.is_dir():
        raise UsageError(f"the leaderboard {folder}", "there is no such folder", "give the folder of the entries")
    day = today or utc_now().date()
    leaderboard = Leaderboard(folder, day)
    if ruleset and ruleset not in leaderboard.known:
        raise UnknownNameError("ruleset", ruleset, leaderboard.known)
    settings = _settings_of(folder, leaderboard.known)
    if base_url and not is_address(base_url):
        do = "give an address with http or https, such as https://example.org/board"
        raise UsageError("--base-url", f"it is {base_url!r}", do)
    url = (base_url if base_url is not None else settings.url).rstrip("/")
    with held(site, folder) as place:
        around: list[EntryFinding] = list(leaderboard.problems)
        paths = list(_paths(folder, site, around))
        given = (folder, day, limits, ruleset, lint, site)
        with shared_out(len(paths), processes, _Workshop, given) as share:
            entries = list(share(_Workshop.score, paths))
            built = Built(str(site), read=len(paths))
            shown, off = _decide(entries, around, built)
            for written in share(_Workshop.make_page, [(entry.for_page(), off) for entry in shown]):
                for name, differs in written:
                    place.claim(name, differs)
        _Pages(place, _Workshop(*given), day, url).write(shown, off, built)
        place.publish()
    built.written, built.removed, built.kept = place.written, place.removed, place.kept
    return built


def _settings_of(folder: Path, known: Mapping[str, Ruleset]) -> BoardSettings:
    """What ``board.toml`` says; an error where a check would call it one."""
    settings, found = board_settings(folder, known)
    for name in settings.rulesets:
        if name not in known:
            raise UnknownNameError(f"ruleset of {folder / BOARD}", name, known, "correct that file's rulesets")
    for each in found:
        if each.severity == "error":
            raise DefinitionError(f"reading {folder / BOARD}", f"{each.field}: {each.found}".lstrip(": "), each.do)
    return settings


def _paths(folder: Path, site: Path, findings: list[EntryFinding]) -> Iterator[str]:
    """The files of entries; the site may lie in the leaderboard's folder without being part of it."""
    root, own = folder.resolve(), site.resolve()
    inside = own.is_relative_to(root)
    around: list[EntryFinding] = []
    for path in submission_paths(folder, around, site):
        if not (inside and Path(path).resolve().is_relative_to(own)):
            yield path
    findings += [each for each in around if not (inside and (root / each.file).is_relative_to(own))]


def line(finding: EntryFinding) -> str:
    """A finding as a line for people."""
    at = f" {finding.field}" if finding.field else ""
    return f"{finding.code}{at}: {finding.found.rstrip('.')}. {finding.do[:1].upper()}{finding.do[1:].rstrip('.')}."


def _decide(
    entries: Sequence[_Scored], around: Sequence[EntryFinding], built: Built
) -> tuple[list[_Scored], set[BoardKey]]:
    """Which entries are shown, and which boards are not built; what comes of comparing the entries is added to them.

    An entry that cannot be shown is not compared with others, so a broken one takes no other entry's place.
    """
    rivals, told = Rivals(), dict[str, list[EntryFinding]]()
    for entry in entries:
        if entry.trace is not None and entry.sides:
            for each in rivals.add(entry.trace, entry.file):
                told.setdefault(each.file, []).append(each)
    for each in rivals.near(curves_of({entry.file: entry.path for entry in entries})):
        told.setdefault(each.file, []).append(each)
    lost = {file: [each for each in said if each.severity == "error"] for file, said in told.items()}
    crowd = _too_many(entry.keys for entry in entries if not lost.get(entry.file))
    shown = []
    for entry in entries:
        entry.findings = ordered([*entry.findings, *told.get(entry.file, ())])
        like = lost.get(entry.file, [])
        apart = bool(entry.keys) and crowd.issuperset(entry.keys)
        if entry.sides and not like and not apart:
            for _, payload in entry.sides:
                payload.findings = FindingCounts(warnings=_count(entry.findings, "warning"))
                payload.doubts = doubts_beside_rank(entry.findings)
            shown.append(entry)
        else:
            reasons = [*entry.reasons, *map(line, like), *([TOO_MANY] if apart else [])]
            built.not_shown.append(NotShown(entry.file, reasons))
    built.entries = len(shown)
    looked_at = {file: [line(each) for each in said if each.severity != "error"] for file, said in told.items()}
    built.near = [NotShown(file, said) for file, said in sorted(looked_at.items()) if said]
    built.not_shown += [NotShown(each.file, [line(each)]) for each in around if each.severity == "error"]
    all_of_them = [*around, *(each for entry in entries for each in entry.findings)]
    built.errors = _count(all_of_them, "error")
    # As a check does: a leaderboard without an entry is told.
    built.warnings = _count(all_of_them, "warning") + (not entries)
    return shown, crowd


def _count(findings: Iterable[EntryFinding], severity: str) -> int:
    return sum(each.severity == severity for each in findings)


def _too_many(groups: Iterable[Sequence[BoardKey]]) -> set[BoardKey]:
    """The boards of scenarios that are not built, of the boards that each entry belongs on.

    Of as many entries the one goes that is the first scenario of fewer: it is not their only board.
    """
    counts: Counter[BoardKey] = Counter()
    firsts: Counter[BoardKey] = Counter()
    for keys in groups:
        counts.update(key for key in keys if key[2] is not None)
        firsts.update(keys[:1])
    found: set[BoardKey] = set()
    taken: Counter[tuple[str, str]] = Counter()
    for key in sorted(counts, key=lambda key: (-counts[key], -firsts[key], _in_order(key))):
        taken[key[:2]] += 1
        if taken[key[:2]] > MOST_APART:
            found.add(key)
    return found


def _in_order(key: BoardKey) -> tuple[str, str, str, float, int]:
    """By task, then rules; the task's own board before those of scenarios."""
    ruleset, task, scenario = key
    if scenario is None:
        return task, ruleset, "", 0.0, 0
    return task, ruleset, scenario.name, scenario.bound_s or 0.0, scenario.samples or 0


class _Pages:
    """Writes what is about several entries: boards, the index, and the files for programs."""

    def __init__(self, place: SiteFolder, workshop: _Workshop, day: date, url: str) -> None:
        self._place, self._workshop, self._day, self._url = place, workshop, day.isoformat(), url

    def write(self, shown: Sequence[_Scored], off: set[BoardKey], built: Built) -> None:
        """All of it."""
        for name, content in assets().items():
            self._place.put(f"assets/{name}", content)
        members: dict[BoardKey, list[tuple[EntryPayload, bytes]]] = {}
        for entry in shown:
            for key, payload in entry.sides:
                if key not in off:
                    members.setdefault(key, []).append((payload, entry.steps))
        of_one_task: dict[tuple[str, str], list[BoardKey]] = {}
        for key in sorted(members, key=_in_order):
            of_one_task.setdefault(key[:2], []).append(key)
        boards = [self._board(key, members[key], keys) for keys in of_one_task.values() for key in keys]
        built.boards = [board.page for board in boards]
        title = self._workshop.settings.title
        self._place.put("leaderboard.json", leaderboard_json(title, __version__, boards))
        self._place.put("leaderboard.csv", leaderboard_csv(boards))
        if self._url:
            self._place.put("feed.xml", feed(title, self._url, self._day, boards))
        cards = [(board, leaders_of(board)) for board in boards]
        files = built.near, built.not_shown
        index = index_page(title, self._day, built.entries, cards, *files, feed="feed.xml" if self._url else "")
        self._place.put("index.html", index.encode("utf-8", "replace"))

    def _board(
        self, key: BoardKey, members: Sequence[tuple[EntryPayload, bytes]], of_one_task: Sequence[BoardKey]
    ) -> BoardPayload:
        """The board with its ranks; its files are written. Its page has links to some ``of_one_task``."""
        board = filled(self._workshop.board(key), [payload for payload, _ in members])
        board.generated = self._day
        steps = joined_steps(board, {payload.id: known for payload, known in members})
        if len(steps) > FEW_BYTES:
            apart = steps_script(steps)
            board.steps = f"data/{board.slug}-steps-{_digest(apart)}.js"
            self._place.put(board.steps, apart)
        content = script(board, steps)
        # Named after its content: a page that was written before this one keeps its own.
        board.data = f"data/{board.slug}-{_digest(content)}.js"
        self._place.put(board.data, content)
        others = islice((each for each in of_one_task if each != key), MOST_OTHERS + 1)
        links = [(each.task_title, each.page) for each in map(self._workshop.board, others)]
        self._place.put(board.page, task_page(board, links).encode("utf-8", "replace"))
        return board


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:10]

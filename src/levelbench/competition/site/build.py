"""Builds the site of a leaderboard, always as a whole, with as many processes as requested.

First every file is read, judged and scored; then comes what depends on all entries (copies, boards, ranks); then the
pages are made. In between, only what the site shows of a submission is kept, so ten thousand of them need no more
memory than their pages' data. A broken file is reported and never stops the build.

The folder of the site may have come with a checkout, so before anything is written or removed, it is checked for links
on the way, for files that are not a site's, and for another build. All files are first written into a hidden folder in
it; then each that differs is renamed into its place, targets of links before the pages with the links. So a build that
is killed leaves the site as it was, or complete pages whose links work.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import date
from itertools import islice
from pathlib import Path

import msgspec
from msgspec import Struct, field

from levelbench import __version__
from levelbench.competition.checks import EntryFinding, ordered
from levelbench.competition.entries import Submission, UnreadableError, is_address, parse_submission, read_bytes
from levelbench.competition.figures import RankedScenario, is_apart
from levelbench.competition.leaderboard import (
    BOARD,
    SITE_MARKER,
    BoardSettings,
    KnownLimits,
    Leaderboard,
    board_settings,
    curves_of,
    shared_out,
    submission_paths,
    thawed,
)
from levelbench.competition.rivals import EntryTrace, Rivals, doubts_at_rank
from levelbench.competition.rulesets import Ruleset, task_rules
from levelbench.competition.scoring import climbs_of, crossing_of, score
from levelbench.competition.site import BoardPayload, EntryPayload, FindingCounts, NotShown, entry_payload, steps_json
from levelbench.competition.site.boards import (
    FEW_BYTES,
    BoardRanking,
    empty_board,
    feed,
    filled,
    joined_steps,
    leaderboard_csv,
    leaderboard_json,
    leaderboard_markdown,
    leaders_of,
    rankings,
    script,
    steps_script,
)
from levelbench.competition.site.index import ComparedScore, PublishedScore, compared, index_page, search_script
from levelbench.competition.site.pages import MOST_OTHERS, entry_page, task_page
from levelbench.competition.site.parts import assets
from levelbench.errors import DefinitionError, LevelbenchError, StoreError, UnknownNameError, UsageError
from levelbench.measure.clocks import utc_now
from levelbench.records.locks import hold
from levelbench.report.remarks import Remarks

Lint = Callable[[Submission, str, Mapping[str, Ruleset]], Remarks]
"""Returns what the linter finds in an entry: a function of a module, so that other processes can use it."""
BoardKey = tuple[str, str, RankedScenario | None]
"""A board: the ruleset's id, the task, and the scenario if it is a separate board."""

CARRIED_BYTES = 1 << 15
"""Submissions up to this size (nearly all) are embedded in their page: another file for each would double the number of
files, which file systems are slow at."""
MOST_APART = 50
"""The most separate boards of scenarios per task and ruleset: authors choose bounds and queries freely."""
LATER_BYTES = 1 << 18
"""A board with more data than this (about 900 entries) opens with its static table: 30 kB instead of its megabytes."""
TOO_MANY = (
    f"Its scenario is not among the {MOST_APART} with the most entries, which have a board. "
    "Measure a latency bound or a number of samples per query that others measured."
)


class Built(Struct):
    """The result of a build: entries shown, files read, boards, what is not shown and why, files written and removed.

    ``rankings`` has the first rows of every ranking. ``errors`` and ``warnings`` count the findings about all files.
    ``near`` are the files with doubts compared with others: (near) copies, and those that are not comparable with the
    rest of their board. ``kept`` counts unchanged files. ``published`` has scores of other sites beside ours.
    """

    site: str
    boards: list[str] = field(default_factory=list)
    rankings: list[BoardRanking] = field(default_factory=list)
    entries: int = 0
    read: int = 0
    errors: int = 0
    warnings: int = 0
    not_shown: list[NotShown] = field(default_factory=list)
    near: list[NotShown] = field(default_factory=list)
    written: list[str] = field(default_factory=list)
    removed: list[str] = field(default_factory=list)
    kept: int = 0
    published: list[ComparedScore] = field(default_factory=list)


class _Scored(Struct):
    """What is kept of a file between reading it and making its page.

    ``sides`` has the entry, without ranks, as shown on each of its boards, for inference that of the first scenario
    first; it is empty for an entry that cannot be shown, for ``reasons``. ``steps`` are those of its runs as JSON,
    which only the page's script reads.
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
        """Without what its page does not need, to send less to other processes."""
        return msgspec.structs.replace(self, trace=None, steps=b"")

    @property
    def keys(self) -> list[BoardKey]:
        """The boards that it belongs on."""
        return [key for key, _ in self.sides]


class _Workshop:
    """What a process needs to read entries of one leaderboard and to make their pages."""

    def __init__(
        self,
        folder: Path,
        today: date,
        limits: KnownLimits | None,
        only: str | None,
        lint: Lint | None,
        site: Path,
        reruns: Mapping[str, str],
    ) -> None:
        self.leaderboard = Leaderboard(folder, today, limits=limits)
        self.settings, _ = board_settings(folder, self.leaderboard.known)
        self.only, self.lint, self.site, self.reruns = only, lint, site, reruns
        self._boards: dict[BoardKey, BoardPayload] = {}

    def board(self, key: BoardKey) -> BoardPayload:
        """The board of a ruleset's id, a task, and a scenario if separate; without entries."""
        if key not in self._boards:
            rules = self.leaderboard.known[key[0]]
            task = task_rules(rules, key[1])
            assert task is not None, "an entry's task is its ruleset's"
            board = self._boards[key] = empty_board(self.settings.title, rules, task, key[2])
            if key[0] in self.leaderboard.frozen:
                board.ruleset.frozen = self.leaderboard.frozen[key[0]].on
        return self._boards[key]

    def score(self, path: str) -> _Scored:
        """Read, judge and score a file, whatever is in it."""
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
        if later := thawed(self.leaderboard.frozen, read.file, read.raw, rules.id):
            scored.reasons = [line(each) for each in later]
            return scored
        # An entry scored by its own rules has been examined by them already.
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
            # For some entries no claim can be made.
            with suppress(LevelbenchError):
                scored.linted = self.lint(submission, read.file, self.leaderboard.known)
        said = "" if scored.linted is None else scored.linted.words()
        for _, payload in scored.sides:
            payload.lint, payload.rerun = said, self.reruns.get(scored.sha256.hex(), "")
            payload.private = read.private
        return scored

    def make_page(self, given: tuple[_Scored, set[BoardKey]]) -> list[tuple[str, bool]]:
        """Write the files of an entry that is shown; their names, and whether each differs from the one in place.

        ``given`` holds the entry and the boards that are not built.
        """
        scored, off = given
        raw = read_bytes(scored.path)
        if hashlib.sha256(raw).digest() != scored.sha256:
            raise StoreError(f"build a site of {scored.path}", "it changed during the build", "build again")
        page = scored.sides[0][1].page
        # A copy of a submission that is too large for its page is written next to it.
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
    top: int = 5,
    lint: Lint | None = None,
    limits: KnownLimits | None = None,
    reruns: Mapping[str, str] | None = None,
    published: Sequence[PublishedScore] = (),
) -> Built:
    """Build the site of the leaderboard in ``folder`` as the folder ``site``.

    Each entry is scored under the ruleset that it names, or all under ``ruleset``. A broken file is listed as not
    shown, with its findings, and stops nothing. ``base_url`` is the address of the site (default: the ``url`` of
    ``board.toml``); with an address there is a feed. The result has the first ``top`` rows of each ranking. Many files
    are distributed over ``processes``, which are spawned: a caller that asks for more than one needs a main guard, and
    ``lint`` and ``limits`` must be functions of a module. ``lint`` returns what the linter finds in an entry,
    ``limits`` what is known about its machine and network, as for a check: an entry that is refused is not shown.
    ``reruns`` says how the organiser's re-runs ended, by the SHA-256 of the entry's file. ``published`` are scores that
    the front page compares with ours.

    Raises ``UsageError`` if ``folder`` is not a folder, ``site`` holds something else or ``base_url`` is not a web
    address, ``UnknownNameError`` for an unknown ruleset, ``DefinitionError`` for a broken ``board.toml``,
    ``StoreError`` if nothing can be written, another build is running, or an entry changes during the build.
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
        given = (folder, day, limits, ruleset, lint, site, reruns or {})
        with shared_out(len(paths), processes, _Workshop, given) as share:
            entries = list(share(_Workshop.score, paths))
            built = Built(str(site), read=len(paths))
            shown, off = _decide(entries, around, built)
            for written in share(_Workshop.make_page, [(entry.for_page(), off) for entry in shown]):
                for name, differs in written:
                    place.claim(name, differs)
        boards = _write_pages(place, _Workshop(*given), day.isoformat(), url, shown, off, built, published)
        place.publish()
    built.rankings = [each for board in boards for each in rankings(board, top)]
    built.written, built.removed, built.kept = place.written, place.removed, place.kept
    return built


def _settings_of(folder: Path, known: Mapping[str, Ruleset]) -> BoardSettings:
    """The settings in ``board.toml``; raises what a check would call an error."""
    settings, found = board_settings(folder, known)
    for name in settings.rulesets:
        if name not in known:
            raise UnknownNameError(f"ruleset of {folder / BOARD}", name, known, "correct that file's rulesets")
    for each in found:
        if each.severity == "error":
            raise DefinitionError(f"reading {folder / BOARD}", f"{each.field}: {each.found}".lstrip(": "), each.do)
    return settings


def _paths(folder: Path, site: Path, findings: list[EntryFinding]) -> Iterator[str]:
    """The entry files; the site may be inside the leaderboard's folder without being part of it."""
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
    """The entries that are shown and the boards that are not built; adds the findings from comparing entries.

    An entry that cannot be shown is not compared with others, so a broken one does not displace another.
    """
    rivals, compared = Rivals(), dict[str, list[EntryFinding]]()
    for entry in entries:
        if entry.trace is not None and entry.sides:
            for each in rivals.add(entry.trace, entry.file):
                compared.setdefault(each.file, []).append(each)
    for each in rivals.near(curves_of({entry.file: entry.path for entry in entries})):
        compared.setdefault(each.file, []).append(each)
    lost = {file: [each for each in said if each.severity == "error"] for file, said in compared.items()}
    crowd = _too_many(entry.keys for entry in entries if not lost.get(entry.file))
    shown = []
    for entry in entries:
        entry.findings = ordered([*entry.findings, *compared.get(entry.file, ())])
        like = lost.get(entry.file, [])
        apart = bool(entry.keys) and crowd.issuperset(entry.keys)
        if entry.sides and not like and not apart:
            for _, payload in entry.sides:
                payload.findings = FindingCounts(warnings=_count(entry.findings, "warning"))
                payload.doubts = doubts_at_rank(entry.findings)
            shown.append(entry)
        else:
            reasons = [*entry.reasons, *map(line, like), *([TOO_MANY] if apart else [])]
            built.not_shown.append(NotShown(entry.file, reasons))
    built.entries = len(shown)
    looked_at = {file: [line(each) for each in said if each.severity != "error"] for file, said in compared.items()}
    on_board = {entry.file for entry in shown}
    for each in around:
        if each.severity == "error" and each.file in on_board:
            looked_at.setdefault(each.file, []).append(line(each))
        elif each.severity == "error":
            built.not_shown.append(NotShown(each.file, [line(each)]))
    built.near = [NotShown(file, said) for file, said in sorted(looked_at.items()) if said]
    all_of_them = [*around, *(each for entry in entries for each in entry.findings)]
    built.errors = _count(all_of_them, "error")
    # An empty leaderboard counts as a warning, as in a check.
    built.warnings = _count(all_of_them, "warning") + (not entries)
    return shown, crowd


def _count(findings: Iterable[EntryFinding], severity: str) -> int:
    return sum(each.severity == severity for each in findings)


def _too_many(groups: Iterable[Sequence[BoardKey]]) -> set[BoardKey]:
    """The separate boards that are not built, given the boards of each entry.

    Among boards with equally many entries, the one that is fewer entries' first scenario goes: it is not their only
    board.
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
    """Sort key: by task, then rules; the task's main board before separate ones."""
    ruleset, task, scenario = key
    if scenario is None:
        return task, ruleset, "", 0.0, 0
    return task, ruleset, scenario.name, scenario.bound_s or 0.0, scenario.samples or 0


def _write_pages(
    place: SiteFolder,
    workshop: _Workshop,
    day: str,
    url: str,
    shown: Sequence[_Scored],
    off: set[BoardKey],
    built: Built,
    published: Sequence[PublishedScore],
) -> list[BoardPayload]:
    """Write what covers several entries: boards, the index, and the files for programs."""
    for name, content in assets().items():
        place.put(f"assets/{name}", content)
    members: dict[BoardKey, list[tuple[EntryPayload, bytes]]] = {}
    for entry in shown:
        for key, payload in entry.sides:
            if key not in off:
                members.setdefault(key, []).append((payload, entry.steps))
    of_one_task: dict[tuple[str, str], list[BoardKey]] = {}
    for key in sorted(members, key=_in_order):
        of_one_task.setdefault(key[:2], []).append(key)
    boards = []
    for keys in of_one_task.values():
        for key in keys:
            board = filled(workshop.board(key), [payload for payload, _ in members[key]])
            board.generated = day
            # A task may have more boards than a page links to.
            others = islice((each for each in keys if each != key), MOST_OTHERS + 1)
            links = [(each.task_title, each.page) for each in map(workshop.board, others)]
            _write_board(place, board, joined_steps(board, {each.id: steps for each, steps in members[key]}), links)
            boards.append(board)
    built.boards = [board.page for board in boards]
    title = workshop.settings.title
    place.put("leaderboard.json", leaderboard_json(title, __version__, boards))
    place.put("leaderboard.csv", leaderboard_csv(boards))
    place.put("leaderboard.md", leaderboard_markdown(title, boards))
    if url:
        place.put("feed.xml", feed(title, url, day, boards))
    cards = [(board, leaders_of(board)) for board in boards]
    files = built.near, built.not_shown
    built.published = compared(boards, published)
    search = ""
    if boards:
        content = search_script(boards)
        search = f"data/search-{_digest(content)}.js"
        place.put(search, content)
    index = index_page(
        title, day, built.entries, cards, *files,
        feed="feed.xml" if url else "", search=search, published=built.published,
    )  # fmt: skip
    place.put("index.html", index.encode("utf-8", "replace"))
    return boards


def _write_board(place: SiteFolder, board: BoardPayload, steps: bytes, links: Sequence[tuple[str, str]]) -> None:
    if len(steps) > FEW_BYTES:
        apart = steps_script(steps)
        board.steps = f"data/{board.slug}-steps-{_digest(apart)}.js"
        place.put(board.steps, apart)
    content = script(board, steps)
    # Named after its content: a page written earlier keeps its own.
    board.data = f"data/{board.slug}-{_digest(content)}.js"
    place.put(board.data, content)
    place.put(board.page, task_page(board, links, later=len(content) > LATER_BYTES).encode("utf-8", "replace"))


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:10]


FOLDERS = ("assets", "data", "entries")
"""The folders of a site, all of whose files are ours, in the order in which their files are moved into place."""
LOCK = ".levelbench-site.lock"
STAGING = ".levelbench-site.new"
"""Where files are kept until all exist."""
_ALLOWED = frozenset({"CNAME"})
"""The file that names the host of a repository's pages."""
_MARKER_BYTES = 1 << 20
_SAFE = re.compile(r"(?:(?:assets|data|entries)/)?[A-Za-z0-9_][A-Za-z0-9_.-]*")


class _Marker(Struct):
    """The marker of a site's folder: the tool, and our names in its top folder."""

    made_by: str
    files: list[str]


@contextmanager
def held(site: Path, leaderboard: Path) -> Iterator[SiteFolder]:
    """Lock ``site``, with its folders created if necessary, against other builds until the end.

    Raises ``UsageError`` if it holds anything but a site of ours, or links; ``StoreError`` if another build is writing
    it, or nothing can be written.
    """
    _require_ours(site, leaderboard)
    try:
        for name in FOLDERS:
            (site / name).mkdir(parents=True, exist_ok=True)
        descriptor = os.open(site / LOCK, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o666)
    except OSError as error:
        raise _fault(site, error) from error
    try:
        try:
            hold(descriptor)
        except BlockingIOError:
            do = "wait until it has finished, then build again"
            raise StoreError(f"build a site in {site}", "another build is writing it", do) from None
        except OSError as error:
            raise _fault(site / LOCK, error) from error
        # A previous writer may have left something else.
        _require_ours(site, leaderboard)
        try:
            folder = SiteFolder(site)
            yield folder
        except OSError as error:
            raise _fault(Path(error.filename or site), error) from error
        finally:
            # If the build is killed, the next one removes it.
            shutil.rmtree(site / STAGING, ignore_errors=True)
    finally:
        os.close(descriptor)


def stage(site: Path, name: str, content: bytes) -> bool:
    """Stage a file of the site, from any process; returns whether it differs from the one in place."""
    if not _SAFE.fullmatch(name):
        raise ValueError(f"{name!r} is not a name for a file of a site")
    # As strings: Path objects for each of ten thousand pages would cost as much as the calls.
    try:
        with open(f"{site}/{name}", "rb") as file:  # noqa: PTH123
            if os.fstat(file.fileno()).st_size == len(content) and file.read() == content:
                return False
    except FileNotFoundError:
        pass
    try:
        with open(f"{site}/{STAGING}/{name}", "xb") as file:  # noqa: PTH123
            file.write(content)
    except FileExistsError:
        raise _twice(site, name) from None
    return True


def _twice(site: Path, name: str) -> DefinitionError:
    """Names are unique by design: a duplicate would show an entry or a board as another."""
    found, do = f"two of its pages are named {name}", "rename one of the files, tasks or rulesets"
    return DefinitionError(f"build a site in {site}", found, do)


class SiteFolder:
    """The folder of a site during a build; ``written`` and ``removed`` list names relative to it.

    Files are not synced to disk: they are derived data, and the next build compares their content.
    """

    def __init__(self, site: Path) -> None:
        self.site = site
        self._present = _present(site)
        self._names: dict[str, bool] = {}
        self._marked = _marked(site) or []
        self.written: list[str] = []
        self.removed: list[str] = []
        self.kept = 0
        shutil.rmtree(site / STAGING, ignore_errors=True)
        for name in FOLDERS:
            (site / STAGING / name).mkdir(parents=True)

    def put(self, name: str, content: bytes) -> None:
        """Make ``content`` the file ``name``."""
        self.claim(name, stage(self.site, name, content))

    def claim(self, name: str, differs: bool) -> None:
        """Register a file that another process staged, or that is already in place unless it ``differs``."""
        if name in self._names:
            raise _twice(self.site, name)
        self._names[name] = differs

    def publish(self) -> None:
        """Move all files into place, then remove those that no page links to any more."""
        ours = {name for name in self._present if "/" in name or name in self._marked}
        top = [name for name in self._names if "/" not in name]
        self._mark({*top, *self._marked})
        for name in sorted(self._names, key=_order):
            if self._names[name]:
                (self.site / STAGING / name).replace(self.site / name)
                self.written.append(name)
        for name in sorted(ours - self._names.keys()):
            (self.site / name).unlink(missing_ok=True)
            self.removed.append(name)
        self.kept = len(self._names) - len(self.written)
        self._mark(top)

    def _mark(self, names: Iterable[str]) -> None:
        aside = self.site / STAGING / SITE_MARKER
        aside.write_bytes(msgspec.json.encode(_Marker("levelbench board build", sorted(names))))
        aside.replace(self.site / SITE_MARKER)


def _order(name: str) -> tuple[int, bool, bool, str]:
    """Sort key, link targets first: folders in their order, copies of submissions before pages, the index last."""
    folder = name.partition("/")[0]
    return FOLDERS.index(folder) if "/" in name else len(FOLDERS), name == "index.html", name.endswith(".html"), name


def _present(site: Path) -> list[str]:
    """The files in the folders of a site, and in its top folder."""
    found = []
    for folder in ("", *FOLDERS):
        with os.scandir(site / folder) as entries:
            for each in entries:
                if folder and not each.is_file(follow_symlinks=False):
                    raise _refusal(site, f"{folder}/{each.name} is not a plain file")
                if each.is_file(follow_symlinks=False) and (folder or not each.name.startswith(".")):
                    found.append(f"{folder}/{each.name}".lstrip("/"))
    return found


def _marked(site: Path) -> list[str] | None:
    """Our names in the top folder of a site; ``None`` for a folder that no build has marked."""
    with suppress(UnreadableError, msgspec.DecodeError):
        marker = msgspec.json.decode(read_bytes(site / SITE_MARKER, limit=_MARKER_BYTES), type=_Marker)
        return list(filter(_SAFE.fullmatch, marker.files))
    return None


def _fault(path: Path, error: OSError) -> StoreError:
    """A ``StoreError`` for an error of the system about ``path``."""
    found = error.strerror or str(error)
    return StoreError(f"write {path}", found, "choose a writable folder with free space")


def _refusal(site: Path, found: str) -> UsageError:
    """The error for a folder ``site`` that must not be used."""
    return UsageError(f"build a site in {site}", found, "give a new or empty folder; nothing was changed")


def _require_ours(site: Path, leaderboard: Path) -> None:
    """Refuse a folder that is not ours, and every link that a write or removal would follow."""
    root, place = Path(os.path.abspath(leaderboard)), Path(os.path.abspath(site))  # noqa: PTH100 -- links stay
    # The folders between the leaderboard's and that of a site in it, which may come from strangers.
    for each in (*(folder for folder in place.parents if folder != root and folder.is_relative_to(root)), site):
        if each.is_symlink():
            raise _refusal(site, f"{each} is a link, so the site would be written somewhere else")
    try:
        found = sorted(os.scandir(site), key=lambda each: each.name)
    except FileNotFoundError:
        return
    except OSError as error:
        raise _refusal(site, error.strerror or str(error)) from error
    for entry in found:
        if entry.is_symlink():
            raise _refusal(site, f"it holds a link: {entry.name}")
        if entry.name in FOLDERS and not entry.is_dir(follow_symlinks=False):
            raise _refusal(site, f"{entry.name} is not a folder")
    marked = _marked(site)
    # A build that was killed before it marked the folder left empty ones.
    folders = FOLDERS if marked is not None else [name for name in FOLDERS if not any((site / name).glob("*"))]
    ours = _ALLOWED.union(folders, marked or ())
    foreign = [each.name for each in found if not each.name.startswith(".") and each.name not in ours]
    if foreign:
        raise _refusal(site, f"it holds files that are not from a levelbench site: {', '.join(foreign[:3])}")

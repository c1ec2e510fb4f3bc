"""The folder of a leaderboard: its own files, its entry files, and the check of all of them against the rules.

A leaderboard is read as a stream, by several processes if asked, and links in it are not followed. Every file is read
once, by ``Leaderboard.read``, both for a check and for the site; of an entry that was judged, a check keeps only what
other entries are compared with (its ``EntryTrace``).
"""

from __future__ import annotations

import difflib
import gc
import hashlib
import multiprocessing
import os
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager, suppress
from datetime import date
from functools import lru_cache, partial
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeVar

import msgspec
from msgspec import Struct

from levelbench.competition.checks import (
    CheckedEntry,
    EntryFinding,
    MachineLimits,
    error,
    identity,
    latency,
    ordered,
    results,
    warning,
)
from levelbench.competition.entries import (
    Submission,
    SubmittedCurve,
    UnreadableError,
    file_digest,
    is_address,
    name_in,
    parse_submission,
    read_bytes,
    write_whole,
)
from levelbench.competition.private import SCORE, private_score
from levelbench.competition.rivals import EntryTrace, Rivals, trace_of
from levelbench.competition.rulesets import Ruleset, folder_rulesets, rulesets
from levelbench.competition.signatures import ENDING, Signing
from levelbench.errors import LevelbenchError, MissingError, UsageError
from levelbench.measure.clocks import utc_now
from levelbench.records.writer import path_part
from levelbench.report.numbers import plural

W = TypeVar("W")
Share = Callable[[Callable[[W, Any], Any], Sequence[Any]], Iterator[Any]]
"""Applies a function of a module to each item, with a worker, and yields the results in order."""

FEW = 400
"""Below this many items, starting another process takes longer than it saves."""
_CHUNK = 40
_OBJECTS = 100_000
"""Allocations between garbage collections; the default is 700."""


@contextmanager
def shared_out(count: int, processes: int, make: Callable[..., W], given: tuple[object, ...]) -> Iterator[Share[W]]:
    """Yield what distributes work on about ``count`` items over ``processes``, each with a worker ``make(*given)``.

    The processes are spawned, so a caller that asks for more than one needs a main guard. With few items everything
    stays in this process. Raises ``MissingError`` if a process is killed.
    """
    before = gc.get_threshold()
    # Nearly all that is made of the files is kept: scanning it again and again would find nothing to free.
    gc.set_threshold(_OBJECTS, *before[1:])
    try:
        if processes < 2 or count < FEW:
            worker = make(*given)
            yield lambda work, items: map(partial(work, worker), items)
            return
        with ProcessPoolExecutor(processes, multiprocessing.get_context("spawn"), _begin, (make, given)) as pool:
            try:
                yield lambda work, items: pool.map(partial(_work, work), items, chunksize=_CHUNK)
            finally:
                pool.shutdown(wait=False, cancel_futures=True)
    except BrokenProcessPool as error:
        asked, do = f"working on {count} files", "check whether memory ran out, or use one process: --jobs 1"
        raise MissingError(asked, "a process died before it finished", do) from error
    finally:
        gc.set_threshold(*before)


_workers: list[Any] = []
"""The worker of a spawned process."""


def _begin(make: Callable[..., Any], given: tuple[Any, ...]) -> None:
    gc.set_threshold(_OBJECTS)
    _workers[:] = [make(*given)]
    # Modules and rules stay until the end.
    gc.freeze()


def _work(work: Callable[[Any, Any], Any], item: object) -> object:
    return work(_workers[0], item)


BOARD = "board.toml"
_RULESETS = "rulesets"
_LARGEST_BYTES = 1 << 20
_KEYS = {"title": str, "rulesets": list, "url": str}


class BoardSettings(Struct):
    """The settings of ``board.toml``: the site's title, the ids of the rulesets that are shown, the site's address."""

    title: str = "Time to accuracy"
    rulesets: list[str] = []
    url: str = ""


def own_rulesets(root: Path) -> tuple[dict[str, Ruleset], list[EntryFinding]]:
    """The rulesets that entries may name, by id (shipped ones and the folder's own), and findings about broken ones.

    A broken ruleset file stops nothing: an entry that names it finds no ruleset of that id.
    """
    refused: dict[str, LevelbenchError] = {}
    known = folder_rulesets(root, refused)
    return known, [
        error("B252", file.encode("utf-8", "backslashreplace").decode(), "", problem.found, problem.do)
        for file, problem in refused.items()
    ]


def is_new_ruleset(root: Path, rules: Ruleset) -> bool:
    """Whether the leaderboard at ``root`` lacks ``rules``; ``UsageError`` if another ruleset has their id."""
    held = own_rulesets(root)[0].get(rules.id)
    if held is not None and held != rules:
        found = f"{root / _RULESETS} has another ruleset with that id"
        raise UsageError(f"the ruleset {rules.id}", found, "change its id, name and version")
    return held is None


def add_ruleset(root: Path, rules: Ruleset, raw: bytes) -> Path | None:
    """Copy ``raw``, the file of ``rules``, into the leaderboard so that its entries can name them; returns its path.

    ``None`` if the leaderboard has them already. Raises ``UsageError`` if something else has their id or path.
    """
    if not is_new_ruleset(root, rules):
        return None
    place = root / _RULESETS
    path = place / f"{path_part(rules.id)}.toml"
    if place.is_symlink() or os.path.lexists(path):
        found = "its folder is a link" if place.is_symlink() else "something else is already there"
        raise UsageError(f"writing {path}", found, "put the ruleset into the leaderboard's rulesets/ yourself")
    return write_whole(path, raw, replace=False)


def board_settings(root: Path, known: Mapping[str, Ruleset]) -> tuple[BoardSettings, list[EntryFinding]]:
    """The settings in ``board.toml`` and findings about it; ``known`` are the rulesets that it may list.

    A value of the wrong type is ignored.
    """
    path = root / BOARD
    if not path.exists() and not path.is_symlink():
        return BoardSettings(), []
    do = "write TOML: it may have title, rulesets (a list of ids) and url"
    try:
        read = tomllib.loads(read_bytes(path, limit=_LARGEST_BYTES).decode("utf-8"))
    except UnreadableError as problem:
        return BoardSettings(), [error("B252", BOARD, "", problem.found, problem.do)]
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as problem:
        return BoardSettings(), [error("B252", BOARD, "", f"it is not TOML ({str(problem)[:200]})", do)]
    settings, found = BoardSettings(), list(_wrong_settings(read, known))
    for name, kind in _KEYS.items():
        if isinstance(read.get(name), kind):
            setattr(settings, name, read[name])
    settings.rulesets = [each for each in settings.rulesets if isinstance(each, str)]
    return settings, found


def _wrong_settings(read: Mapping[str, object], known: Mapping[str, Ruleset]) -> Iterator[EntryFinding]:
    for name, value in read.items():
        kind = _KEYS.get(name)
        if kind is None:
            close = difflib.get_close_matches(name, _KEYS, 1)
            do = f"write {close[0]}" if close else f"remove it; there are {', '.join(_KEYS)}"
            yield warning("B255", BOARD, _cut(name), "unknown key", do)
        elif not isinstance(value, kind):
            do = "write a list of ids" if kind is list else "write a string"
            yield error("B252", BOARD, name, f"it is {_cut(repr(value))}", do)
    listed, url = read.get("rulesets"), read.get("url")
    for at, id in enumerate(listed if isinstance(listed, list) else ()):
        if not isinstance(id, str) or id not in known:
            found = f"it is {_cut(repr(id))}; there are {', '.join(sorted(known))}"
            yield error("B110", BOARD, f"rulesets[{at}]", found, "list one of these, or add its file to rulesets/")
    if isinstance(url, str) and url and not is_address(url):
        yield error("B172", BOARD, "url", f"it is {_cut(repr(url))}")


FROZEN = "frozen.toml"


class FrozenRound(Struct, frozen=True, forbid_unknown_fields=True):
    """A round that accepts no more changes: the day of its freeze, and the SHA-256 of its entries by file.

    ``ruleset`` is that of the file of its rules; ``None`` for rules that ship.
    """

    on: str
    entries: dict[str, str]
    ruleset: str | None = None


def frozen_rounds(root: Path) -> tuple[dict[str, FrozenRound], list[EntryFinding]]:
    """The frozen rounds of the leaderboard at ``root`` by their ruleset, and what was removed or changed since.

    Entries that were changed or added are found when they are read (``thawed``).
    """
    path, do = root / FROZEN, "restore the file that levelbench board freeze wrote"
    if not os.path.lexists(path):
        return {}, []
    try:
        read = tomllib.loads(read_bytes(path, limit=_LARGEST_BYTES * 16).decode("utf-8"))
        rounds = msgspec.convert(read, dict[str, FrozenRound])
    except UnreadableError as problem:
        return {}, [error("B252", FROZEN, "", problem.found, problem.do)]
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError, msgspec.ValidationError) as problem:
        return {}, [error("B252", FROZEN, "", f"it is not a list of frozen rounds ({str(problem)[:200]})", do)]
    found = []
    for id, each in rounds.items():
        if ruleset_digest(root, id) != each.ruleset:
            found.append(error("B266", FROZEN, _cut(id), "the file of its ruleset was changed or removed"))
        # A folder or a link with the name of an entry is no entry.
        lost = [file for file in each.entries if (root / file).is_symlink() or not (root / file).is_file()]
        found += [error("B266", _cut(file), "", f"it was removed from the frozen round {_cut(id)}") for file in lost]
    return rounds, found


def ruleset_digest(root: Path, id: str) -> str | None:
    """The SHA-256 of the leaderboard's own file of the ruleset ``id``; ``None`` if it has none."""
    for path in sorted((root / _RULESETS).glob("*.toml")):
        with suppress(UnreadableError, tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError):
            raw = read_bytes(path, limit=_LARGEST_BYTES)
            if tomllib.loads(raw.decode("utf-8")).get("id") == id:
                return hashlib.sha256(raw).hexdigest()
    return None


def thawed(rounds: Mapping[str, FrozenRound], file: str, raw: bytes, ruleset: str) -> list[EntryFinding]:
    """What is wrong with an entry if its round, or the round that had its file, is frozen."""
    for id, each in rounds.items():
        if file in each.entries and hashlib.sha256(raw).hexdigest() != each.entries[file]:
            return [error("B266", file, "", f"it was changed after the freeze of {_cut(id)} on {_cut(each.on)}")]
    own = rounds.get(ruleset)
    if own is None or file in own.entries:
        return []
    found = f"{_cut(ruleset)} was frozen on {_cut(own.on)} without it"
    return [error("B266", file, "ruleset", found, "submit it to the next round")]


def freeze(root: Path, rules: Ruleset, today: date, limits: KnownLimits | None = None) -> FrozenRound:
    """Freeze the round of ``rules``: write the digests of its entries to ``frozen.toml``.

    Raises ``UsageError`` if it is frozen already, has no entries, its deadline is not over, an entry has an error (by
    itself or beside the others), or a file cannot be read.
    """
    asked, rounds = f"freezing {rules.id}", frozen_rounds(root)[0]
    if rules.id in rounds:
        do = f"leave it; whoever maintains the leaderboard may remove its table from {FROZEN} to open it again"
        raise UsageError(asked, f"it has been frozen since {rounds[rules.id].on}", do)
    if rules.deadline and today.isoformat() <= rules.deadline:
        raise UsageError(asked, f"its deadline is {rules.deadline}, and today is {today}", "wait until it is over")
    leaderboard, entries, wrong = Leaderboard(root, today, limits=limits), dict[str, str](), list[str]()
    among = {each.file for each in checked_folder(root, today=today, limits=limits)[1] if each.severity == "error"}
    for path in submission_paths(root, []):
        read = leaderboard.read(path, root)
        if read.entry is not None and read.entry.submission.ruleset != rules.id:
            continue
        # Of a file that cannot be read nobody knows the round.
        entries |= {read.file: hashlib.sha256(read.raw).hexdigest()} if read.entry is not None else {}
        if read.file in among or any(each.severity == "error" for each in read.findings):
            wrong.append(read.file)
    if wrong or not entries:
        found = (
            f"{plural(len(wrong), 'entry has', 'entries have')} errors: {wrong[0]}" if wrong else "it has no entries"
        )
        raise UsageError(asked, found, "see levelbench board check, and correct or remove them first")
    frozen = FrozenRound(today.isoformat(), dict(sorted(entries.items())), ruleset_digest(root, rules.id))
    lines = ["# Written by levelbench board freeze: rounds that accept no more changes."]
    for id, each in {**rounds, rules.id: frozen}.items():
        lines += ["", f"[{_quoted(id)}]", f"on = {_quoted(each.on)}"]
        lines += [] if each.ruleset is None else [f"ruleset = {_quoted(each.ruleset)}"]
        lines += [f"[{_quoted(id)}.entries]"]
        lines += [f"{_quoted(file)} = {_quoted(digest)}" for file, digest in each.entries.items()]
    write_whole(root / FROZEN, "\n".join(lines) + "\n")
    return frozen


def _quoted(text: str) -> str:
    """``text`` as a basic string of TOML."""
    plain = (each if each.isprintable() and each not in '"\\' else f"\\U{ord(each):08x}" for each in text)
    return f'"{"".join(plain)}"'


def _cut(text: str) -> str:
    return ascii(text)[1:-1][:100]


MODES = ("training", "inference")
"""The folders of a task in a leaderboard, one per mode."""
SITE_MARKER = ".levelbench-site"
"""The file that marks a folder as a built site."""
_OWN = frozenset({"board.toml", "authors.toml"})
_PLAIN_ENDINGS = (".md", ".txt", ".yml", ".yaml", ".toml")


def submission_paths(root: Path, findings: list[EntryFinding], site: Path | None = None) -> Iterator[str]:
    """The paths of a leaderboard's entry files; links and files that do not belong there are added to ``findings``.

    Links are not followed and hidden files are skipped. ``site`` is the output folder of a running build, if any, which
    is skipped too.
    """
    output = None if site is None else site.resolve()

    def closed(problem: OSError) -> None:
        place = Path(os.fsdecode(problem.filename or root))
        findings.append(error("B252", name_in(place, root), "", problem.strerror or str(problem)))

    def link(path: Path) -> EntryFinding:
        return error("B250", name_in(path, root), "", "it is a link, which is not followed")

    for place, inner, names in os.walk(root, onerror=closed):
        here, links = Path(place), frozenset[str]()
        # A folder that was removed a moment ago has no links.
        with suppress(OSError), os.scandir(place) as there:
            links = frozenset(each.name for each in there if each.is_symlink())
        findings += [link(here / name) for name in sorted(inner) if name in links]
        inner[:] = sorted(name for name in inner if not name.startswith(".") and name not in links)
        if here == root:
            sites = {name for name in inner if os.path.lexists(here / name / SITE_MARKER)}
            findings += [
                warning("B253", name_in(here / name, root), "", "it is marked as a built site")
                for name in sorted(sites)
                if (here / name).resolve() != output
            ]
            # A marker must not hide entries: anybody may send one.
            full = {name for name in sites if any(os.path.lexists(here / name / mode) for mode in MODES)}
            inner[:] = [name for name in inner if name not in (sites - full) | {_RULESETS}]
        alike: dict[str, list[str]] = {}
        for name in sorted(names):
            alike.setdefault(name.casefold(), []).append(name)
        known = frozenset(names)
        for name in sorted(name for name in names if not name.startswith(".")):
            path = here / name if name in links or not name.endswith(".json") else here
            if name in links:
                findings.append(link(path))
            elif name.endswith(".json"):
                # Which of them came first, their names do not tell.
                if others := [each for each in alike[name.casefold()] if each != name]:
                    found = f"it differs from {others[0]} only in case"
                    findings.append(error("B115", name_in(here / name, root), "", found))
                yield os.path.join(place, name)  # noqa: PTH118 -- a Path for each of ten thousand files costs more
            elif name.endswith((f".json{ENDING}", f".json{SCORE}")):
                if name.rpartition(".")[0] not in known:
                    findings.append(warning("B236", name_in(path, root), "", "there is no such entry"))
            elif not (here == root and (name in _OWN or name.endswith(_PLAIN_ENDINGS) or "." not in name)):
                findings.append(warning("B251", name_in(path, root), "", "it is not an entry"))


RULES: tuple[Callable[[CheckedEntry], Iterator[EntryFinding]], ...] = (
    identity.rules_of,
    identity.place,
    identity.dates,
    identity.author,
    results.curves,
    results.claims,
    results.reached,
    results.ranked,
    results.replicates,
    results.measurements,
    results.phases,
    results.numbers,
    identity.price,
    identity.code,
    identity.data,
    identity.records,
    identity.hardware,
    identity.recorded,
    identity.tuning,
    identity.origin,
    results.ceiling,
    identity.closed,
    latency.inference,
    identity.texts,
)
_RECORDS = (".jsonl", ".jsonlines")
_WRONG = frozenset({"B230", "B232", "B233", "B235"})
_UNVERIFIED = "B231"

Signed = Literal["signed", "unsigned", "wrong"]
KnownLimits = Callable[[Submission], MachineLimits]
"""Returns what is known about an entry's machine and network apart from its own statements."""
Lint = Callable[[Submission, str, Mapping[str, Ruleset]], list[EntryFinding]]
"""Returns what the linter finds in an entry, given its file name and the rulesets that it may name."""


def judged(entry: CheckedEntry) -> Iterator[EntryFinding]:
    """The findings about one entry, in the order of the rules."""
    for rule in RULES:
        yield from rule(entry)


class FileRead(NamedTuple):
    """A file of a leaderboard after reading: its bytes, its entry, the findings, and the state of its signature.

    ``entry`` and ``trace`` are ``None`` if it is not a submission; ``findings`` says why. ``private`` is how the
    organiser scored it on the private test set; empty: its rules have none.
    """

    file: str
    raw: bytes
    entry: CheckedEntry | None
    findings: list[EntryFinding]
    signed: Signed = "unsigned"
    trace: EntryTrace | None = None
    private: str = ""


class Leaderboard:
    """Reads the files of one leaderboard; ``problems`` are findings about the leaderboard's own files.

    ``frozen`` are its frozen rounds by their ruleset. ``records`` maps the digests of available records to their names;
    ``limits`` returns what is known about an entry's machine and network apart from its own statements, ``lint`` what
    the linter finds in it. ``alone``: the folder is
    not a leaderboard, and its files belong to none.
    """

    def __init__(
        self,
        root: Path,
        today: date,
        records: Mapping[str, str] | None = None,
        limits: KnownLimits | None = None,
        lint: Lint | None = None,
        *,
        alone: bool = False,
    ) -> None:
        self.root, self.today, self.records, self.limits, self.lint = root, today, records, limits, lint
        self.known: Mapping[str, Ruleset] = {each.id: each for each in rulesets()}
        self.problems: list[EntryFinding] = []
        self.frozen: Mapping[str, FrozenRound] = {}
        if not alone:
            self.known, self.problems = own_rulesets(root)
            self.problems += board_settings(root, self.known)[1]
            self.frozen, changed = frozen_rounds(root)
            self.problems += changed
        self._signing, self._alone = Signing(root), alone
        self.problems += self._signing.problems
        self._within = os.path.join(root, "")  # noqa: PTH118 -- the prefix to remove

    def name(self, path: str) -> str:
        """The file's name in findings."""
        return path.removeprefix(self._within).replace(os.sep, "/").encode("utf-8", "backslashreplace").decode()

    def read(self, path: str, root: Path | None = None) -> FileRead:
        """Read one file, whatever is in it; ``root`` is the folder that no link may lead out of, if not checked yet."""
        file = self.name(path)
        try:
            raw = read_bytes(path, root=root)
            submission = parse_submission(raw)
        except UnreadableError as problem:
            return FileRead(file, b"", None, [error(problem.code, file, problem.field, problem.brief, problem.do)])
        place = "" if self._alone else file
        entry = CheckedEntry(submission, self.today, self.known, place, self.records, raw, self.limits)
        signing = list(self._signing.check(Path(path), file, raw, submission))
        codes = {each.code for each in signing}
        signed: Signed = "wrong" if codes & _WRONG else "signed"
        if _UNVERIFIED in codes or not os.path.lexists(f"{path}{ENDING}"):
            signed = "unsigned"
        task = entry.task.task if entry.task else None
        trace = trace_of(submission, task, signed=signed == "signed", imported=entry.imported)
        linted = [] if self.lint is None else self.lint(submission, file, self.known)
        about = thawed(self.frozen, file, raw, submission.ruleset)
        private, rules = "", entry.task.private if entry.task else None
        if rules is not None:
            private, scored = private_score(Path(path), file, raw, rules, _best_share(submission))
            about += scored
        return FileRead(file, raw, entry, [*judged(entry), *about, *signing, *linted], signed, trace, private)


def _best_share(submission: Submission) -> float | None:
    """The highest quality that a run states, if it is a share of right answers."""
    shares = submission.target.metric in ("top1", "accuracy") and submission.target.high == 1
    return max((each for run in submission.runs for each in run.curve.quality), default=None) if shares else None


def check(
    submission: Submission,
    file: str = "",
    *,
    known: Mapping[str, Ruleset] | None = None,
    records: Mapping[str, str] | None = None,
    today: date | None = None,
    limits: KnownLimits | None = None,
) -> list[EntryFinding]:
    """The findings about one submission, errors first.

    ``file`` is its path in the leaderboard (empty: it is in none), ``known`` the rulesets by id (default: the shipped
    ones), ``records`` the digests of available records with their names, ``limits`` what is known about an entry's
    machine and network apart from its own statements.
    """
    day = today or utc_now().date()
    known = {each.id: each for each in rulesets()} if known is None else known
    return ordered(judged(CheckedEntry(submission, day, known, file, records, limits=limits)))


def check_file(
    path: Path | str,
    *,
    root: Path | None = None,
    records: Mapping[str, str] | None = None,
    today: date | None = None,
    limits: KnownLimits | None = None,
    lint: Lint | None = None,
) -> list[EntryFinding]:
    """The findings about the file at ``path``, including its signature; ``root`` is the leaderboard that it is in.

    Without ``root``, the leaderboard is ``path``'s third parent if its folder is called like a mode; otherwise there is
    none. ``lint`` returns what the linter finds.
    """
    path = Path(path).absolute()
    if root is None and len(path.parents) > 2 and path.parent.name in MODES:
        # DIR/<task>/<mode>/<stem>.json is an entry of the leaderboard DIR.
        root = path.parents[2]
    root = root.absolute() if root else None
    day = today or utc_now().date()
    leaderboard = Leaderboard(root or path.parent, day, records, limits, lint, alone=root is None)
    return ordered([*leaderboard.problems, *leaderboard.read(str(path), root).findings])


def checked_folder(
    folder: Path | str,
    *,
    records: Mapping[str, str] | None = None,
    today: date | None = None,
    processes: int = 1,
    limits: KnownLimits | None = None,
    lint: Lint | None = None,
) -> tuple[int, list[EntryFinding]]:
    """The number of entry files in a leaderboard and all findings: about each by itself, and about all together.

    Raises ``UnreadableError`` if the folder does not exist. A file that cannot be read is a finding.
    Many files are distributed over ``processes``, which are spawned: a caller that asks for more than one needs a main
    guard, and ``limits`` and ``lint`` must be functions of a module.
    """
    root = Path(folder)
    if not root.is_dir():
        raise UnreadableError(f"checking the leaderboard {root}", "there is no such folder", "check the path")
    given = (root, today or utc_now().date(), records, limits, lint)
    leaderboard, rivals = Leaderboard(*given), Rivals()
    found = leaderboard.problems
    paths = list(submission_paths(root, found))
    names = list(map(leaderboard.name, paths))
    if not paths:
        found.append(warning("B254", ".", "", "there are no entries"))
    with shared_out(len(paths), processes, Leaderboard, given) as share:
        for file, (findings, trace) in zip(names, share(_checked, paths), strict=True):
            found += findings
            if trace is not None:
                found += rivals.add(trace, file)
    found += rivals.near(curves_of(dict(zip(names, paths, strict=True))))
    return len(paths), ordered(found)


def _checked(leaderboard: Leaderboard, path: str) -> tuple[Sequence[EntryFinding], EntryTrace | None]:
    """The findings about a file, and its trace for the comparison with other entries."""
    read = leaderboard.read(path)
    return read.findings, read.trace


def curves_of(paths: Mapping[str, Path] | Mapping[str, str]) -> Callable[[str], list[SubmittedCurve]]:
    """A reader of the curves of a file; a file that can no longer be read has none."""

    @lru_cache(maxsize=512)
    def read(file: str) -> list[SubmittedCurve]:
        try:
            return [run.curve for run in parse_submission(read_bytes(paths[file])).runs]
        except UnreadableError:
            return []

    return read


def record_digests(folder: Path) -> dict[str, str]:
    """The SHA-256 of every record of training or inference below ``folder``, with the record's path."""
    found = {}
    for place, inner, names in os.walk(folder):
        inner[:] = sorted(name for name in inner if not name.startswith("."))
        for name in sorted(names):
            if name.endswith(_RECORDS) and not name.startswith("."):
                found[file_digest(Path(place, name))] = str(Path(place, name))
    return found

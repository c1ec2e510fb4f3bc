"""What a build remembers for the next one: digests of what it read and wrote, and each entry as the site shows it.

The one idea: what is remembered is never trusted on its own. An input counts as unchanged only if its size and time
are, an output only if it still lies there as it was left, and all of it only if the same tool, rules and assets made
it; while files are being written nothing is remembered, so a build that was killed is followed by a whole one.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from functools import cache
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path

import msgspec
from msgspec import Struct, field

from levelbench.records.submissions.reading import UnreadableError, read_bytes
from levelbench.records.submissions.rules.rivals import Compared, Trace
from levelbench.records.submissions.scenarios import RankedScenario
from levelbench.report.site.payload import EntryPayload, Further, NotShown
from levelbench.report.site.seal import plain_file, unseal

__all__ = [
    "MARKER", "STATE", "Board", "BoardKey", "Built", "Entry", "Input", "Output", "State", "digest_of", "glance",
    "is_same", "load", "look", "made_by", "new",
]  # fmt: skip

MARKER = ".levelbench-site"
"""The file that says that a folder is a site of ours, with the names that lie at its top."""
STATE = ".levelbench-site.state"
_SCHEMA = 6
_PACKAGES = ("report", "records", "measure", "claims", "networks", "tasks", "runner")
"""What pages are made with, and what an entry is held to beside its own file: rules, peaks, networks, recipes."""
_MOST_BYTES = 1 << 30

BoardKey = tuple[str, str, RankedScenario | None]
"""A board: the ruleset's id, the task, and the scenario that it is apart for."""


class Input(Struct, frozen=True, array_like=True, gc=False):
    """A file that was read: size in bytes, time of its last change, SHA-256."""

    size: int
    mtime_ns: int
    sha256: str


class Output(Struct, frozen=True, array_like=True, gc=False):
    """A file that was written, as it was left."""

    size: int
    mtime_ns: int
    sha256: str


class Entry(Struct, array_like=True, gc=False):
    """One file of the leaderboard: what it was, and what came of it.

    ``board`` is its board, of inference that of the first scenario, ``payload`` the entry there without ranks; ``None``
    for one that cannot be shown, for ``reasons``. ``further`` has what differs on its boards of other scenarios.
    ``steps`` are those of the payload as JSON: only the page's script looks into them. ``trace`` tells it from others;
    a file that is no submission has none. ``errors`` and ``warnings`` count the findings of its check.
    """

    file: Input
    signature: Input | None
    board: BoardKey | None
    payload: EntryPayload | None
    errors: int
    warnings: int
    reasons: list[str] = field(default_factory=list)
    trace: Trace | None = None
    again: str = ""
    """The day from which on it is judged anew, since a date in it will have come; empty: never."""
    steps: bytes = b"[]"
    twin: bool = False
    """Whether other entries keep it off the boards, an earlier one or too many boards: then it has no page."""
    further: list[Further] = []
    off: list[BoardKey] = []
    """Boards of its that are not built, since the task has too many: its page leads to the others alone."""


class Board(Struct, array_like=True, gc=False):
    """One board: the digest of its content without the day, and the day on which that was new."""

    sha256: str
    generated: str


class Built(Struct):
    """What a build did: entries shown, files read again, boards, what is not shown and why, files written and removed.

    ``errors`` and ``warnings`` count the findings about all files. ``near`` are those of curves that are nearly copies.
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


class State(Struct):
    """All that is remembered. ``made_by`` is a digest of everything beside the entries that a page depends on."""

    schema: int
    made_by: str
    day: str
    entries: dict[str, Entry]
    outputs: dict[str, Output]
    boards: dict[str, Board]
    compared: Compared = field(default_factory=dict)
    """What came of comparing curves that have something in common."""
    built: Built | None = None
    """What the build that left it told, but for what it did."""
    around: str = ""
    """A digest of the findings about other files than entries."""


def load(site: Path, made_by_now: str) -> State | None:
    """What this user's last build remembered; ``None`` if nothing, if it was killed, or if something else made it."""
    lying = plain_file(site / STATE, _MOST_BYTES)
    raw = None if lying is None else unseal(site, lying[0])
    if raw is None:
        return None
    try:
        found = msgspec.msgpack.decode(raw, type=State)
    except msgspec.DecodeError:
        return None
    return found if found.schema == _SCHEMA and found.made_by == made_by_now else None


def new(made_by_now: str, day: str) -> State:
    """A state that remembers nothing yet."""
    return State(_SCHEMA, made_by_now, day, {}, {}, {})


def made_by(version: str, *further: bytes) -> str:
    """A digest of this tool (its version and the sources and assets of what makes a site) and of ``further`` bytes."""
    digest = hashlib.sha256(version.encode())
    for package in _PACKAGES:
        digest.update(_sources(f"levelbench.{package}"))
    for each in further:
        digest.update(len(each).to_bytes(8, "big") + each)
    return digest.hexdigest()


def digest_of(function: Callable[..., object] | None) -> bytes:
    """A digest of the package that the function's module is in, its data among them; without one, of nothing."""
    return b"" if function is None else _sources(function.__module__.rpartition(".")[0])


@cache
def _sources(package: str) -> bytes:
    """A digest of all files of a package, read once: what this process runs is what it found when it began."""
    digest = hashlib.sha256()
    outermost, *inner = package.split(".")
    # Not imported: some of them bring much that no build needs.
    folder = resources.files(outermost)
    for name in inner:
        folder = folder / name
    _add(digest, folder)
    return digest.digest()


def _add(digest: hashlib._Hash, folder: Traversable) -> None:
    for each in sorted(folder.iterdir(), key=lambda found: found.name):
        if each.is_dir():
            if each.name != "__pycache__":
                _add(digest, each)
        else:
            raw = each.read_bytes()
            digest.update(f"{each.name} {len(raw)} ".encode() + raw)


def look(path: str, before: Input | None) -> Input | None:
    """What the file is now; the same object as ``before`` if its size and time have not changed, ``None`` without one.

    A file with another time and the same content (a fresh clone) equals ``before`` but for that time.
    """
    try:
        # Done for every file of a board at every build: making a path of it would cost more than the call.
        facts = os.stat(path, follow_symlinks=False)  # noqa: PTH116
    except OSError:
        return None
    if before is not None and (facts.st_size, facts.st_mtime_ns) == (before.size, before.mtime_ns):
        return before
    return Input(facts.st_size, facts.st_mtime_ns, _digest(path))


def glance(path: str) -> Input:
    """The file's size and time, without its content."""
    try:
        facts = os.stat(path, follow_symlinks=False)  # noqa: PTH116
    except OSError:
        return Input(0, 0, "")
    return Input(facts.st_size, facts.st_mtime_ns, "")


def _digest(path: str) -> str:
    """SHA-256 of a regular file within the limit; empty for one that cannot be read: it differs from everything."""
    try:
        return hashlib.sha256(read_bytes(path)).hexdigest()
    except UnreadableError:
        return ""


def is_same(now: Input | None, before: Input | None) -> bool:
    """Whether both have the same content, or neither is there."""
    if now is None or before is None:
        return now is before
    return now is before or (now.sha256 == before.sha256 != "")

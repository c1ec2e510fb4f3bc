"""Writes a site's files so that, wherever it is killed, what lies there is whole pages whose links lead somewhere.

The one idea: each file is written beside its place and renamed into it, what is pointed at before what points there,
and nothing is removed before the last page that led to it has been replaced. Files are not forced to the disk one by
one: they are derived, and one that a power failure cut short differs in size from what the state remembers.
"""

from __future__ import annotations

import hashlib
import os
import re
from contextlib import suppress
from pathlib import Path

import msgspec
from msgspec import Struct

from levelbench.errors import StoreError, UsageError
from levelbench.report.site.state import MARKER, STATE, Output, State

__all__ = ["FOLDERS", "Outputs"]

FOLDERS = ("assets", "data", "entries")
"""The folders of a site: all files in them are ours."""
_BESIDE = ".levelbench.part"
_SAFE = re.compile(r"(?:(?:assets|data|entries)/)?[A-Za-z0-9_][A-Za-z0-9_.-]*")
_FOREIGN_ALLOWED = frozenset({"CNAME"})


class _Marker(Struct):
    made_by: str
    files: list[str]


class Outputs:
    """The files of one site while they are written; ``written`` and ``removed`` list names relative to it."""

    def __init__(self, site: Path, before: dict[str, Output]) -> None:
        self._site = site
        self._before = before
        self._lying = _lying(site)
        self._now: dict[str, Output] = {}
        self._at_top: set[str] = set()
        self.written: list[str] = []
        self.removed: list[str] = []
        self.kept = 0

    @classmethod
    def open(cls, site: Path, before: dict[str, Output]) -> Outputs:
        """Begin to write; makes the folder. ``UsageError`` where it holds something else than a site of ours."""
        marker = _read_marker(site)
        if marker is None:
            _refuse_foreign(site)
        try:
            for name in FOLDERS:
                (site / name).mkdir(parents=True, exist_ok=True)
            outputs = cls(site, before)
            outputs._at_top = {name for name in (marker.files if marker else []) if _SAFE.fullmatch(name)}
            outputs._mark()
        except OSError as error:
            raise _fault(site, error) from error
        return outputs

    def is_intact(self, name: str) -> bool:
        """Whether the file lies there as the last build left it."""
        before = self._before.get(name)
        return before is not None and self._lying.get(name) == (before.size, before.mtime_ns)

    def keep(self, name: str) -> None:
        """The file of the last build stays: it is intact, and what it was made of has not changed."""
        self._now[name] = self._before[name]
        self.kept += 1

    def put(self, name: str, content: bytes) -> None:
        """``content`` as the file ``name``; one that lies there with this very content is left alone."""
        if not _SAFE.fullmatch(name):
            raise ValueError(f"{name!r} is no name of a file of a site")
        digest = hashlib.sha256(content).hexdigest()
        if self.is_intact(name) and self._before[name].sha256 == digest:
            self.keep(name)
            return
        if "/" not in name and name not in self._at_top:
            self._at_top.add(name)
            self._mark()
        try:
            facts = self._write(name, content)
        except OSError as error:
            raise _fault(self._site / name, error) from error
        self._now[name] = Output(facts.st_size, facts.st_mtime_ns, digest)
        self.written.append(name)

    def forget(self) -> None:
        """From here on files differ from what the last build remembers: if this one is killed, all are made again."""
        with suppress(FileNotFoundError):
            (self._site / STATE).unlink()

    def finish(self, state: State) -> None:
        """Remove what no page leads to any more, and remember what was written."""
        # What a killed build left beside its files lies in the folders, where all is ours, or at the top.
        with suppress(OSError):
            (self._site / _BESIDE).unlink()
        ours = {name for name in self._lying if "/" in name or name in self._at_top}
        for name in sorted(ours - set(self._now)):
            self._remove(name)
        self._at_top = {name for name in self._now if "/" not in name}
        state.outputs = self._now
        try:
            self._mark()
            self._write(STATE, msgspec.msgpack.encode(state))
        except OSError as error:
            raise _fault(self._site / STATE, error) from error

    def _remove(self, name: str) -> None:
        try:
            (self._site / name).unlink(missing_ok=True)
        except OSError as error:
            raise _fault(self._site / name, error) from error
        self.removed.append(name)

    def _write(self, name: str, content: bytes) -> os.stat_result:
        path = self._site / name
        # One name for all: this process is the only writer, and what a killed one left is overwritten.
        beside = path.with_name(_BESIDE)
        with beside.open("wb") as file:
            file.write(content)
            file.flush()
            facts = os.fstat(file.fileno())
        beside.replace(path)
        return facts

    def _mark(self) -> None:
        self._write(MARKER, msgspec.json.encode(_Marker("levelbench board build", sorted(self._at_top))))


def _lying(site: Path) -> dict[str, tuple[int, int]]:
    """Size and time of each file in the folders of a site, and at its top."""
    found = {}
    for folder in ("", *FOLDERS):
        with os.scandir(site / folder) as entries:
            for each in entries:
                if each.is_file(follow_symlinks=False) and (folder or not each.name.startswith(".")):
                    facts = each.stat(follow_symlinks=False)
                    found[f"{folder}/{each.name}".lstrip("/")] = (facts.st_size, facts.st_mtime_ns)
    return found


def _read_marker(site: Path) -> _Marker | None:
    try:
        return msgspec.json.decode((site / MARKER).read_bytes(), type=_Marker)
    except (OSError, msgspec.DecodeError):
        return None


def _refuse_foreign(site: Path) -> None:
    """What begins with a dot, or names the host of a repository's pages, may lie there; anything else is not ours."""
    asked = f"build a site in {site}"
    try:
        names = sorted(each.name for each in site.iterdir())
    except FileNotFoundError:
        return
    except OSError as error:
        raise UsageError(asked, error.strerror or str(error), "give a folder for the site alone") from error
    foreign = [name for name in names if not name.startswith(".") and name not in _FOREIGN_ALLOWED]
    if foreign:
        found = f"it holds something else than a site of ours: {', '.join(foreign[:3])}"
        raise UsageError(asked, found, "give a new or empty folder; nothing was changed")


def _fault(path: Path, error: OSError) -> StoreError:
    found = error.strerror or str(error)
    return StoreError(f"write {path}", found, "choose a folder that is writable and has room")

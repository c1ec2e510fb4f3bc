"""Writes a site's files so that, wherever it is killed, what lies there is whole pages whose links lead somewhere.

The one idea: each file is written beside its place and renamed into it, what is pointed at before what points there,
and nothing is removed before the last page that led to it has been replaced. Files are not forced to the disk one by
one: they are derived, and one that a power failure cut short differs in size from what the state remembers.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

import msgspec

from levelbench.errors import DefinitionError
from levelbench.report.site.place import FOLDERS, Marker, fault, read_marker, refusal
from levelbench.report.site.seal import seal
from levelbench.report.site.state import MARKER, STATE, Output, State

__all__ = ["Outputs", "write"]

_BESIDE = ".levelbench.part"
_BESIDE_OF = ".levelbench.{process}.part"
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
"""Never into what lies there already: it may be a link, or have a second name elsewhere."""
_SAFE = re.compile(r"(?:(?:assets|data|entries)/)?[A-Za-z0-9_][A-Za-z0-9_.-]*")


def write(site: Path, name: str, content: bytes) -> Output:
    """Write a file of a site from a process that is not alone; ``OSError`` where that fails."""
    if not _SAFE.fullmatch(name):
        raise ValueError(f"{name!r} is no name of a file of a site")
    facts = _renamed(str(site), name, [content], _BESIDE_OF.format(process=os.getpid()))
    return Output(facts.st_size, facts.st_mtime_ns, hashlib.sha256(content).hexdigest())


def _renamed(site: str, name: str, contents: Iterable[bytes], beside_name: str) -> os.stat_result:
    """Write the contents, one after another, beside the file's place and rename that; what it is then."""
    # As texts: for each of ten thousand pages a path of its own would cost as much as the calls.
    path = f"{site}/{name}"
    beside = f"{path[: path.rindex('/')]}/{beside_name}"
    try:
        descriptor = os.open(beside, _NEW, 0o666)
    except FileExistsError:
        os.unlink(beside)  # noqa: PTH108
        descriptor = os.open(beside, _NEW, 0o666)
    try:
        for content in contents:
            left = memoryview(content)
            while left:
                left = left[os.write(descriptor, left) :]
        facts = os.fstat(descriptor)
    finally:
        os.close(descriptor)
    os.replace(beside, path)  # noqa: PTH105
    return facts


class Outputs:
    """The files of one site while they are written; ``written`` and ``removed`` list names relative to it."""

    def __init__(self, site: Path, before: dict[str, Output]) -> None:
        self._site, self._path = site, str(site)
        self._before = before
        self._lying = _lying(site)
        self._now: dict[str, Output] = {}
        self._at_top: set[str] = set()
        self.written: list[str] = []
        self.removed: list[str] = []
        self.kept = 0

    @classmethod
    def open(cls, site: Path, before: dict[str, Output]) -> Outputs:
        """Begin to write into a folder that is ours (``place.held``)."""
        marker = read_marker(site)
        try:
            outputs = cls(site, before)
            outputs._at_top = {name for name in (marker.files if marker else []) if _SAFE.fullmatch(name)}
            outputs._mark()
        except OSError as error:
            raise fault(site, error) from error
        return outputs

    def is_intact(self, name: str) -> bool:
        """Whether the file lies there as the last build left it."""
        before = self._before.get(name)
        return before is not None and self._lying.get(name) == (before.size, before.mtime_ns)

    def are_as_they_were(self) -> bool:
        """Whether all files lie there as the last build left them, and none beside them."""
        left = {name: (each.size, each.mtime_ns) for name, each in self._before.items()}
        return left == {name: facts for name, facts in self._lying.items() if self._is_ours(name)}

    def _is_ours(self, name: str) -> bool:
        return "/" in name or name in self._at_top

    def keep(self, name: str) -> None:
        """The file of the last build stays: it is intact, and what it was made of has not changed."""
        self._claim(name, self._before[name])
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
            raise fault(self._site / name, error) from error
        self._claim(name, Output(facts.st_size, facts.st_mtime_ns, digest))
        self.written.append(name)

    def adopt(self, name: str, output: Output) -> None:
        """A file that another process wrote, just now."""
        self._claim(name, output)
        self.written.append(name)

    def drop(self, names: Iterable[str]) -> None:
        """Files of now that no page leads to after all: they are removed in the end."""
        for name in names:
            output = self._now.pop(name)
            self._lying[name] = (output.size, output.mtime_ns)
            if name in self.written:
                self.written.remove(name)
            else:
                self.kept -= 1

    def _claim(self, name: str, output: Output) -> None:
        """Names are made so that none comes twice: one that did would show an entry or a board as another."""
        if name in self._now:
            do = "rename one of the files, tasks or rulesets"
            raise DefinitionError(f"build a site in {self._site}", f"two of its pages are named {name}", do)
        self._now[name] = output

    def forget(self) -> None:
        """From here on files differ from what the last build remembers: if this one is killed, all are made again."""
        with suppress(FileNotFoundError):
            (self._site / STATE).unlink()

    def finish(self, state: State) -> None:
        """Remove what no page leads to any more, and remember what was written."""
        # What a killed build left beside its files lies in the folders, where all is ours, or at the top.
        with suppress(OSError):
            (self._site / _BESIDE).unlink()
        ours = set(filter(self._is_ours, self._lying))
        for name in sorted(ours - set(self._now)):
            self._remove(name)
        self._at_top = {name for name in self._now if "/" not in name}
        state.outputs = self._now
        try:
            self._mark()
            raw = msgspec.msgpack.encode(state)
            if mac := seal(self._site, raw):
                self._write(STATE, mac, raw)
        except OSError as error:
            raise fault(self._site / STATE, error) from error

    def _remove(self, name: str) -> None:
        try:
            (self._site / name).unlink(missing_ok=True)
        except OSError as error:
            raise fault(self._site / name, error) from error
        self.removed.append(name)

    def _write(self, name: str, *contents: bytes) -> os.stat_result:
        # One name for all: this process is the only one that uses it, and what a killed one left is overwritten.
        return _renamed(self._path, name, contents, _BESIDE)

    def _mark(self) -> None:
        self._write(MARKER, msgspec.json.encode(Marker("levelbench board build", sorted(self._at_top))))


def _lying(site: Path) -> dict[str, tuple[int, int]]:
    """Size and time of each file in the folders of a site, and at its top."""
    found = {}
    for folder in ("", *FOLDERS):
        with os.scandir(site / folder) as entries:
            for each in entries:
                if folder and not each.is_file(follow_symlinks=False):
                    raise refusal(site, f"{folder}/{each.name} is no plain file")
                if each.is_file(follow_symlinks=False) and (folder or not each.name.startswith(".")):
                    facts = each.stat(follow_symlinks=False)
                    found[f"{folder}/{each.name}".lstrip("/")] = (facts.st_size, facts.st_mtime_ns)
    return found

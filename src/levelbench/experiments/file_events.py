"""What a program does with the files of a folder, seen by inotify(7), and whether it goes on from what it left there.

A program that saves its weights and loads them at its next start trains less each time. What tells that from one that
only writes its results, or only reads its data, is that it reads a file which lay there before it began, and writes it,
or the next one of its kind, later. A file that an earlier run of the same command wrote, and this one reads, needs no
more: it is a cache, or one of two checkpoints in turns. The kernel notes all that; nothing runs beside the program.
"""

from __future__ import annotations

import ctypes
import math
import os
import re
import struct
from bisect import bisect_right
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final, NamedTuple, final

from levelbench.experiments.own_code import (
    data_digests,
    is_data,
    is_program,
    is_settings,
    settings_digests,
    settings_outside,
    source_behind,
    texts_among,
)
from levelbench.records.caveats import kind_of
from levelbench.records.schema import redact

__all__ = ["IN_ACCESS", "IN_OPEN", "WATCHED", "Earlier", "FileEvents", "LeftFiles"]

IN_ACCESS: Final = 0x1
IN_OPEN: Final = 0x20
WATCHED: Final = "LEVELBENCH_WATCHED"
"""Is in the environment of programs whose files are watched from outside."""
_MODIFY, _CLOSE_WRITE, _CLOSE_NOWRITE, _ISDIR = 0x2, 0x8, 0x10, 0x40000000
_MOVED_FROM, _MOVED_TO, _CREATE, _OVERFLOW = 0x40, 0x80, 0x100, 0x4000
_READ, _WRITTEN = IN_ACCESS | _CLOSE_WRITE | _CLOSE_NOWRITE, _MODIFY | _MOVED_FROM | _MOVED_TO | _CREATE
"""A file that is mapped into memory is closed without having been read or written; to truncate one modifies it."""
_READ_LIGHT, _WRITTEN_LIGHT = _CLOSE_NOWRITE, _CLOSE_WRITE | _MOVED_FROM | _MOVED_TO | _CREATE
"""One event a file instead of one a call, which costs a program that reads much about a microsecond each."""

_CLOSE = _CLOSE_WRITE | _CLOSE_NOWRITE

_ONESHOT = 0x80000000

_EVENT = struct.Struct("iIII")

_MOST_FOLDERS, _MOST_FILES = 500, 10_000

_PASSED_OVER = {"__pycache__", "node_modules", "site-packages"}

_HIDDEN_OVER = {".git", ".hg", ".svn", ".venv", ".tox", ".nox", ".eggs", ".conda", ".env", ".local", ".dvc", ".triton"}
_HIDDEN_OVER |= {".hypothesis", ".ipynb_checkpoints"}
"""Hidden folders that hold what was installed, and histories; those whose names have *cache* in them are caches."""

_BUILT = {".a", ".o", ".obj", ".lib", ".class"}

_SQLITE = b"SQLite format 3\0"
"""Trackers of experiments keep theirs in the working folder, and read it before they add to it."""

_INDEX = ".index.sqlite"

_RECORD = b'{"kind":"header","schema":'

_ALIKE = 0.05

_MOST_ADDED_TO, _MOST_BYTES, _MOST_BYTES_INSIDE = 200, 4 << 20, 1 << 20
"""How many files, those that changed last, and how much of their contents is kept, to tell what is only added to.

The last is for within a program, whose peak memory is measured.
"""

_CHUNK_BYTES, _HEADER_BYTES = 16, 512

_UNLESS = "unless another program did"
"""The kernel does not say who reads a file."""

_RESULTS = "results that you keep would be lost: let it write those elsewhere"

_LOOK_BYTES = 1024

_LARGE_TEXT_BYTES = 64 * 1024

_MOST_TEXTS = 1000

_TICK_NS = 10_000_000
"""The time of a file is that of the kernel's last tick."""

_LEAST_BYTES = 4096
"""What is smaller, and read as an earlier run left it, spares little work; such files hold results."""


@final
class FileEvents:
    """What happens to the files of some folders from now on; of nothing where the system has no inotify, or no room.

    A context manager. The kernel keeps a limited number of events, the first ones.
    """

    def __init__(self, mask: int) -> None:
        self._mask, self._descriptor, self._folders = mask, -1, dict[int, Path]()
        self._files = dict[int, Path]()
        self.overflowed = False
        """Whether the kernel has dropped some."""
        self.wrote = False
        """Whether anything was written, files or folders, as far as the mask tells."""
        with suppress(OSError, AttributeError):
            self._libc = ctypes.CDLL(None)
            self._descriptor = self._libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)

    def __enter__(self) -> FileEvents:
        return self

    def __exit__(self, *_: object) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    @property
    def sees(self) -> bool:
        """Whether this system has inotify, and there was room."""
        return self._descriptor >= 0 and bool(self._folders)

    def watch(self, folder: Path, name: Path) -> None:
        """Watch the files right in ``folder``, which :meth:`take` is to call ``name``."""
        if self._descriptor >= 0:
            number = self._libc.inotify_add_watch(self._descriptor, os.fsencode(folder), self._mask)
            if number >= 0:
                self._folders[number] = name

    def watch_first(self, what: int, file: Path) -> None:
        """Tell when ``file`` is first accessed or opened, though the mask does not ask for that of every file."""
        if self._descriptor >= 0:
            number = self._libc.inotify_add_watch(self._descriptor, os.fsencode(file), what | _ONESHOT)
            if number >= 0:
                self._files[number] = file

    def take(self) -> Iterator[tuple[Path, int]]:
        """The files and what happened to them since this was asked last, in order."""
        while data := self._read():
            at = 0
            while at < len(data):
                number, mask, _, length = _EVENT.unpack_from(data, at)
                at += _EVENT.size + length
                self.overflowed = self.overflowed or bool(mask & _OVERFLOW)
                self.wrote = self.wrote or bool(mask & (_WRITTEN | _WRITTEN_LIGHT))
                name, folder = os.fsdecode(data[at - length : at].rstrip(b"\0")), self._folders.get(number)
                if name and folder is not None and not mask & _ISDIR:
                    yield folder / name, mask
                elif mask & (IN_ACCESS | IN_OPEN) and number in self._files:
                    yield self._files[number], mask

    def _read(self) -> bytes:
        if self._descriptor < 0:
            return b""
        try:
            return os.read(self._descriptor, 1 << 16)
        except BlockingIOError:
            return b""


class _State(NamedTuple):
    file: int
    size: int
    changed_ns: int


@final
class Earlier:
    """The files that earlier runs left: of this command, or all that were written from ``since_ns`` (since 1970) on."""

    def __init__(self, since_ns: int | None = None) -> None:
        self._since_ns = since_ns
        self.said = "an earlier run wrote" if since_ns is None else "was written after the first run of this began"
        self._left: dict[Path, _State] = {}
        self._torn: dict[Path, _State] = {}
        self._spans: list[tuple[int, int]] = []

    def add_spans(self, spans_ns: Iterable[tuple[int, int]]) -> None:
        """Runs of earlier commands, by when they began and ended (since 1970): they left what was written then."""
        ends, spans = 0, sorted([*self._spans, *spans_ns])
        self._spans = [(start, ends := max(ends, end)) for start, end in spans]

    def left(self, path: Path, state: _State) -> bool:
        """Whether ``path`` is as one of them left it."""
        late = self._since_ns is not None and state.changed_ns >= self._since_ns
        at = bisect_right(self._spans, (state.changed_ns, math.inf))
        in_span = at > 0 and state.changed_ns <= self._spans[at - 1][1]
        return late or in_span or self._left.get(path) == state

    def torn(self, path: Path, state: _State) -> bool:
        """Whether one of them was ended while it wrote ``path``."""
        return self._torn.get(path) == state

    def add(self, changed: Mapping[Path, _State], torn: Iterable[Path]) -> None:
        """Another one ended: what it wrote, and of that what it had not closed."""
        self._left |= changed
        open_still = {path.resolve() for path in torn}
        self._torn |= {path: state for path, state in changed.items() if path.resolve() in open_still}


@dataclass
class _Openings:
    """How a file was opened and closed around the first time that it was written; ``open`` is how often it is now."""

    open: int = 0
    written: bool = False
    held: int = 0
    """How often it was open when it was first written, not counting for that."""
    unsure: bool = False
    """Whether that may be more: two openings with nothing in between are one event."""
    last: int = 0
    opened: int = 0
    closed_written: int = 0
    closed_unwritten: int = 0
    """All three since it was first written."""

    def add(self, mask: int, writing: int) -> None:
        """What happened to it next."""
        next_to_writing = self.unsure and not self.opened and bool(self.last & _MODIFY)
        if mask & IN_OPEN and next_to_writing and not _opening_comes_first():
            # What was open was not what truncated it.
            self.held, self.unsure = self.open, False
        if mask & writing and not self.written:
            through = bool(mask & (_MODIFY | _CLOSE_WRITE) and self.open)
            self.written, self.held, self.unsure = True, self.open - through, through
        self.last = mask
        if mask & IN_OPEN:
            self.open += 1
            self.opened += self.written
        elif mask & _CLOSE:
            self.open = max(0, self.open - 1)
            self.closed_written += self.written and bool(mask & _CLOSE_WRITE)
            self.closed_unwritten += self.written and bool(mask & _CLOSE_NOWRITE)

    @property
    def held_for_reading(self) -> bool:
        """Whether it was open for reading, and may be mapped, when it was first written."""
        if self.held:
            return bool(self.closed_unwritten or self.open)
        read_since = self.opened - (self.closed_written - 1)
        return self.unsure and bool(self.closed_unwritten) and read_since <= 0


@cache
def _opening_comes_first() -> bool:
    """Whether this kernel says that a file was opened before it says that this truncated it; older ones do not."""
    with TemporaryDirectory(prefix="levelbench-") as folder, FileEvents(IN_OPEN | _MODIFY) as events:
        file = Path(folder) / "file"
        file.write_text("1")
        events.watch(Path(folder), Path(folder))
        file.write_text("")
        return next((bool(mask & IN_OPEN) for _, mask in events.take()), True)


@final
class LeftFiles:
    """Files that lie in the folder of a program when it starts, in those that its words name, and next to named files.

    ``passed_over``, packages and caches are not looked at, and only for settings what is hidden, elsewhere in the
    repository or on ``PYTHONPATH``. A context manager around one run of the program.
    ``earlier`` knows what other runs left. For a program that began before this, ``begun_ns`` is when (since 1970). A
    ``light`` look sees files that are read and written, not in which order where both happens through one descriptor.
    Of what is not ``training``, only what earlier runs left is of interest.
    """

    def __init__(
        self,
        folder: Path,
        words: Iterable[str],
        passed_over: Iterable[Path],
        earlier: Earlier | None = None,
        *,
        begun_ns: int | None = None,
        light: bool = False,
        training: bool = True,
    ) -> None:
        self._passed_over = {each.resolve() for each in passed_over}
        self._roots, self._flat, self._words = [folder], set[Path](), tuple(words)
        for at, word in enumerate(self._words):
            # As in --output=DIR.
            place = folder / word.rpartition("=")[2]
            with suppress(OSError, ValueError):
                if place.is_dir() and not folder.resolve().is_relative_to(place.resolve()):
                    self._roots.append(place)
                elif at and place.is_file() and not place.resolve().is_relative_to(folder.resolve()):
                    self._roots.append(place.parent)
                    self._flat.add(place.parent)
        self._folder, self.incomplete = folder, False
        # Only for settings, as hidden ones; not on the clock of a program that has begun.
        self._around = list(_around(folder, self._flat)) if self._words and begun_ns is None else []
        self._hidden = set(self._around)
        self._earlier, self._begun_ns = earlier or Earlier(), begun_ns
        self._was_read, self._training = set[Path](), training
        self._reading, self._writing = (_READ_LIGHT, _WRITTEN_LIGHT) if light else (_READ, _WRITTEN)
        self._events = FileEvents(self._reading | self._writing | IN_OPEN)
        self._before = self._look(watch=True)
        # Who watches the program that this is part of would take that for its reading.
        inside = begun_ns is not None and WATCHED in os.environ
        self._contents = {} if inside else dict(self._read_contents())
        # Not what was read just now.
        deque(self._events.take(), maxlen=0)
        for path, state in self._before.items() if light else ():
            # One that is read is not always closed before it is written, as by numpy.load.
            if state.size >= _LEAST_BYTES and self._earlier.left(path, state):
                self._events.watch_first(IN_ACCESS, path)
        self._read_at_all, self._now = set[Path](), self._before
        self.torn: tuple[str, ...] = ()
        """What it read although an earlier run was ended while writing it; known after :meth:`doubts`."""

    def __enter__(self) -> LeftFiles:
        return self

    def __exit__(self, *_: object) -> None:
        self._events.__exit__()

    def _look(self, *, watch: bool = False) -> dict[Path, _State]:
        """The files, by their paths, with what changes when they are written; those of outer folders first."""
        found: dict[Path, _State] = {}
        seen: set[tuple[int, int]] = set()
        todo, hidden = deque(self._roots), deque(self._around)
        full = False
        while (todo or hidden) and not full:
            place = (todo or hidden).popleft()
            with suppress(OSError), os.scandir(place) as entries:
                own = place.stat()
                if (own.st_dev, own.st_ino) in seen or place.resolve() in self._passed_over:
                    continue
                seen.add((own.st_dev, own.st_ino))
                full = len(seen) > _MOST_FOLDERS
                if watch and not full:
                    self._events.watch(place, place)
                for each in islice(entries, _MOST_FILES):
                    if each.is_dir():
                        if watch and each.name == "__pycache__":
                            self._events.watch(place / each.name, place / each.name)
                        inner = place / each.name
                        if each.name in _PASSED_OVER or place in self._flat:
                            continue
                        if place not in self._hidden and not each.name.startswith("."):
                            todo.append(inner)
                        elif each.name not in _HIDDEN_OVER and "cache" not in each.name.lower():
                            self._hidden.add(inner)
                            hidden.append(inner)
                    elif each.is_file():
                        state = each.stat()
                        found[place / each.name] = _State(state.st_ino, state.st_size, state.st_mtime_ns)
                        # The first reading after a change is noted on the disk (relatime).
                        if watch and self._begun_ns is not None:
                            was_read = state.st_mtime_ns < self._begun_ns <= state.st_atime_ns
                            self._was_read |= {place / each.name} if was_read else set()
                full = full or len(found) >= _MOST_FILES
                self.incomplete = self.incomplete or (full and place not in self._hidden)
        return found

    def _read_contents(self) -> Iterator[tuple[Path, bytes]]:
        """What is in the files that may hold results, without a trace on the disk."""
        left = _MOST_BYTES if self._begun_ns is None else _MOST_BYTES_INSIDE
        seen = self._before.items() if self._events.sees else ()
        kept = [
            (state.changed_ns, path, state.size)
            for path, state in seen
            if 0 < state.size <= left
            and path.parent not in self._hidden
            and (self._training or self._earlier.left(path, state))
        ]
        for _, path, size in sorted(kept, reverse=True)[:_MOST_ADDED_TO]:
            if size > left:
                continue
            left -= size
            with suppress(OSError), os.fdopen(os.open(path, os.O_RDONLY | os.O_NOATIME), "rb") as file:
                yield path, file.read(size)

    def _added_to(self, path: Path, written: Path) -> bool:
        """Whether ``written`` is what was in ``path`` before and more, as results are and no weights."""
        old = self._contents.get(path)
        try:
            if old is None or not len(old) < written.stat().st_size <= 2 * _MOST_BYTES:
                return False
            with open(written, "rb", opener=_traceless) as file:
                return _is_kept_in(old, file.read())
        except OSError:
            return False

    def changed(self) -> list[Path]:
        """What has been written since it began, by absolute paths."""
        changed = (path for path, state in self._look().items() if self._before.get(path) != state)
        return [path.resolve() for path in changed if path.parent not in self._hidden]

    def doubts(
        self, do: str = "let --prepare remove it before each run", torn: Iterable[Path] = (), or_else: str = ""
    ) -> list[str]:
        """A doubt where the program, which has ended, went on from what lay there before it began; ``do`` ends it.

        So does ``or_else`` for what it only read. ``torn`` are the files that it had open for writing when ended.
        """
        before, read, now = self._read()
        changed = {
            path: state for path, state in now.items() if before.get(path) != state and path.parent not in self._hidden
        }
        kinds: dict[str, list[Path]] = {}
        for path in changed:
            kinds.setdefault(kind_of(path), []).append(path)
        self.torn = tuple(self._name(path) for path in sorted(read) if self._earlier.torn(path, before[path]))
        found = self._went_on(before, read, now, kinds)
        if not found and (found := self._spared(before, read, changed, kinds)):
            do += or_else
        self._earlier.add(changed, torn)
        more = f" (an earlier run was ended while it wrote {self.torn[0]})" if self.torn else ""
        return [redact(f"{each}{more}; {do} ({_RESULTS})") for each in found]

    def texts(self) -> dict[str, str] | None:
        """What it has read of sources and small texts, by their paths from the folder with their SHA-256.

        Known after :meth:`doubts`; ``None`` where the system does not tell. What it has written itself is left out, but
        of a source that has changed since it began nobody knows which text it read. With them are the variables and the
        files elsewhere that they, or the words of the command, name.
        """
        if not self._events.sees:
            return None
        read = sorted(self._read_at_all & self._before.keys(), key=lambda path: (path.suffix != ".py", path))
        kept = [path for path in read if self._now.get(path) == self._before[path] and _is_known(path)]
        texts = texts_among(kept[:_MOST_TEXTS])
        found = {self._name(Path(path)): digest for path, digest in texts.items()}
        found |= settings_outside(texts, self._words, self._folder)
        changed = [path for path in read if path.suffix == ".py" and self._now.get(path) != self._before[path]]
        return found | {self._name(path): "changed while it was read" for path in changed}

    def settings(self, named: Iterable[str]) -> dict[str, str]:
        """The files of settings that it has read, by their paths from the folder with a digest of each.

        Known after :meth:`doubts`. Readings of a program that has begun are not all known, so those are among them that
        have one of the names that it has ``named``, as far as anything has read them since they were written. Results
        are kept in JSON as well, so of these only those count that the words name.
        """
        said = {word.rpartition("=")[2] for word in self._words}
        given = set(self._places(said))
        kept = {path for path in self._read_at_all if is_settings(path.name) and path.suffix != ".json"} | given
        for path in self._places(named):
            with suppress(OSError):
                state = path.stat()
                kept |= {path} if state.st_atime_ns > state.st_mtime_ns else set()
        same = (path for path in kept if path in self._before and self._now.get(path) == self._before[path])
        return settings_digests(same, self._folder)

    def _places(self, names: Iterable[str]) -> Iterator[Path]:
        """Where files of settings may lie: in the folder, or next to the program."""
        program = Path(next(iter(self._words), "")).absolute().parent
        for name in filter(is_settings, names):
            yield from {Path(os.path.normpath(folder / name)) for folder in (self._folder, program)}

    def data(self) -> dict[str, str] | None:
        """The data files that it has read, by their paths from the folder with a digest of each.

        Known after :meth:`doubts`; ``None`` where the system does not tell, or not of all.
        """
        if not self._events.sees or self.incomplete:
            return None
        read = (path for path in self._read_at_all if self._now.get(path) == self._before.get(path) and is_data(path))
        return data_digests((path for path in read if not _is_of_a_store(path)), self._folder)

    def written_in(self, began_ns: int, ended_ns: int) -> list[str]:
        """What it read of that which was written before it, in this time (since 1970), and may hold weights.

        Known after :meth:`doubts`.
        """
        found = (
            path
            for path in self._read_at_all
            if (state := self._before.get(path)) is not None
            and state.size >= _LEAST_BYTES
            and began_ns - _TICK_NS <= state.changed_ns <= ended_ns
        )
        return [self._name(path) for path in sorted(found) if _may_hold_weights(path) and not is_program(path)]

    def _read(self) -> tuple[dict[Path, _State], list[Path], dict[Path, _State]]:
        """What lay there, by the names that it had when it was read; what of it was read first of all; what is now."""
        before, first, moved = dict(self._before), dict[Path, int](), None
        read_at_all, openings = set(self._was_read), dict[Path, _Openings]()
        for path, mask in self._events.take():
            openings.setdefault(path, _Openings()).add(mask, self._writing)
            if not mask & (self._reading | self._writing | IN_ACCESS):
                continue
            if mask & _MOVED_TO and moved in before and not first.get(moved, 0) & self._writing:
                # What is renamed is still what lay there.
                before[path] = before[moved]
            elif not mask & _MOVED_FROM:
                first.setdefault(path, mask)
            moved = path if mask & _MOVED_FROM else None
            read_at_all |= {path} if mask & (self._reading | IN_ACCESS) else set()
        mapped = {path for path, each in openings.items() if each.held_for_reading}
        read_at_all |= mapped
        self.incomplete = self.incomplete or self._events.overflowed
        files = {state.file: path for path, state in before.items()}
        blind = self.incomplete or not self._events.sees
        now = self._look() if blind or self._events.wrote else before
        self._read_at_all, self._now = {source_behind(path) for path in read_at_all}, now
        # A link is read in place of what it is a link of.
        linked = {files.get(now[path].file) for path in read_at_all - before.keys() if path in now}
        known = self._was_read | mapped
        in_time = {path for path in read_at_all if path in known or not first.get(path, 0) & self._writing}
        seen = (path for path in before if path.parent not in self._hidden)
        return before, [path for path in seen if path in linked or path in in_time], now

    def _went_on(
        self,
        before: Mapping[Path, _State],
        read: Iterable[Path],
        now: Mapping[Path, _State],
        kinds: Mapping[str, list[Path]],
    ) -> list[str]:
        """Whether it wrote anew what it had read, or the next of its kind."""
        alike = Counter(map(kind_of, read))
        for path in sorted(read):
            if not self._training and not self._earlier.left(path, before[path]):
                continue
            again = path in now and now[path] != before[path]
            others = [] if alike[kind_of(path)] > 1 else kinds.get(kind_of(path), [])
            for written in [path] if again else others:
                if not _alike(before[path].size, now[written].size) or not _may_hold_weights(written):
                    continue
                if self._added_to(path, written):
                    continue
                old, new = self._name(path), self._name(written)
                what = f"wrote {'it anew' if old == new else new}"
                did = "did not train from nothing" if self._training else "had less to do than the first run"
                lay = "which lay there before it began"
                return [f"it read {old} ({_UNLESS}), {lay}, and {what}: if it went on from there, it {did}"]
        return []

    def _spared(
        self,
        before: Mapping[Path, _State],
        read: Iterable[Path],
        changed: Mapping[Path, _State],
        kinds: Mapping[str, list[Path]],
    ) -> list[str]:
        """Whether it read what an earlier run had left, and neither changed that nor added one of its kind to it."""
        for path in sorted(read):
            left = path not in changed and self._earlier.left(path, before[path])
            if left and before[path].size >= _LEAST_BYTES and kind_of(path) not in kinds and _may_hold_weights(path):
                text = f"it read {self._name(path)} ({_UNLESS}), which {self._earlier.said}: if that is a checkpoint"
                return [f"{text} or a cache, it spared this run work that the first one did"]
        return []

    def _name(self, path: Path) -> str:
        return os.path.relpath(path, self._folder)


def _around(folder: Path, others: Iterable[Path]) -> Iterator[Path]:
    """Where else a program reads modules and settings: ``PYTHONPATH``, and the repositories that the folders lie in."""
    for each in filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep)):
        yield folder / each
    home = Path(os.path.expanduser("~"))  # noqa: PTH111 - raises nothing without a home
    for place in {folder.resolve(), *(each.resolve() for each in others)}:
        yield from [each for each in (place, *place.parents) if each != home and (each / ".git").exists()][:1]


def _alike(old: int, new: int) -> bool:
    """Whether two sizes may be those of the same weights; results that are added to grow."""
    return abs(new - old) <= _ALIKE * max(old, new)


def _is_kept_in(old: bytes, new: bytes) -> bool:
    """Whether nearly all of ``old`` is in ``new``, in order, with something added.

    What may differ are headers and ends, as of arrays and pickled lists. Weights that were trained differ throughout.
    """
    at, added = 0, len(new) - len(old)
    allowed = min(len(old) // 4, max(4 * _CHUNK_BYTES, min(_HEADER_BYTES, len(old) // 16)))
    for start in range(0, len(old), _CHUNK_BYTES):
        chunk = old[start : start + _CHUNK_BYTES]
        found = new.find(chunk, max(at, start - _HEADER_BYTES), start + added + _HEADER_BYTES)
        if found >= 0:
            at = found + len(chunk)
        else:
            allowed -= len(chunk)
        if allowed < 0:
            return False
    return added > 0


def _may_hold_weights(path: Path) -> bool:
    """Whether it is data, and neither a small text without weights nor what a build or a tracker keeps."""
    try:
        # Without a trace on the disk, where the next run looks for readings.
        with open(path, "rb", opener=_traceless) as file:
            head = file.read(_LOOK_BYTES)
        if head.startswith((_SQLITE, _RECORD)) or path.suffix in _BUILT:
            return False
        if b"\0" in head or not _is_text(head):
            return True
        if path.stat().st_size >= _LARGE_TEXT_BYTES:
            return is_data(path)
        with open(path, "rb", opener=_traceless) as file:
            return path.suffix not in (".py", ".pyi") and _looks_like_weights(file.read(_LARGE_TEXT_BYTES))
    except OSError:
        return False


_LEAST_WEIGHTS, _DIGITS, _MOSTLY, _BOTH = 200, 5, 0.8, 0.2
_NUMBER = re.compile(rb"(?<![\w.])[-+]?(?:\d+\.\d*|\.\d+|\d+)(?:[eE][-+]?\d+)?(?![\w.])")


def _looks_like_weights(text: bytes) -> bool:
    """Whether a text is mostly hundreds of precise numbers of both signs.

    Those of results are not: losses and shares have one sign, and epochs and steps beside them are whole.
    """
    numbers = _NUMBER.findall(text)
    if len(numbers) < _LEAST_WEIGHTS or sum(map(len, numbers)) < len(text) / 2:
        return False
    precise = [each for each in numbers if b"." in each and len(each.strip(b"-+0.")) >= _DIGITS]
    negative = sum(each.startswith(b"-") for each in precise)
    return len(precise) >= _MOSTLY * len(numbers) and _BOTH <= negative / len(precise) <= 1 - _BOTH


def _is_of_a_store(path: Path) -> bool:
    """Whether it is a record of levelbench (``levelbench list`` reads all), the index of a store, or a report in it."""
    if path.name.startswith(_INDEX):
        return True
    try:
        if path.name.startswith("report-") and path.suffix == ".html":
            return path.with_name(_INDEX).exists()
        with open(path, "rb", opener=_traceless) as file:
            return path.suffix == ".jsonl" and file.read(len(_RECORD)) == _RECORD
    except OSError:
        return False


def _is_known(path: Path) -> bool:
    """Whether it is a text or a program."""
    try:
        with open(path, "rb", opener=_traceless) as file:
            return b"\0" not in file.read(_LOOK_BYTES) or is_program(path)
    except OSError:
        return False


def _traceless(path: str, flags: int) -> int:
    """Open a file without a change of its time of access, where that is allowed."""
    with suppress(OSError):
        return os.open(path, flags | getattr(os, "O_NOATIME", 0))
    return os.open(path, flags)


def _is_text(head: bytes) -> bool:
    try:
        head.decode()
    except UnicodeDecodeError as error:
        # The last character may be cut in two.
        return error.start > len(head) - 4
    return True

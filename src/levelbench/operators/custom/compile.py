"""Compiles an operator's C++ file to a shared library, once for the same text, header, flags and compiler.

The one idea: what a library was made of is digested into its file name, so a library that is there is the right one; it
is written beside and renamed, so one that is there is whole, however many processes compile at once.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from levelbench.errors import DefinitionError, MissingError, StoreError
from levelbench.operators.custom.toolchain import INCLUDE, command_of, compiler, dependencies, identity, refusal

__all__ = ["INCLUDE", "cache_folder", "compile_source", "compiler"]

_TIMEOUT_S: Final = 600.0


def cache_folder() -> Path:
    """``$XDG_CACHE_HOME/levelbench/operators``, made if it is not there, readable by its owner alone."""
    base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    folder = Path(base) / "levelbench" / "operators"
    with _stored(folder):
        folder.mkdir(parents=True, exist_ok=True)
        owner, mode = folder.stat().st_uid, folder.stat().st_mode
        # Libraries are loaded from here: nobody else may put one in.
        if owner != os.getuid():
            raise StoreError(f"the cache {folder}", "it belongs to another user", "set XDG_CACHE_HOME to your own")
        if mode & 0o077:
            folder.chmod(0o700)
    return folder


@contextlib.contextmanager
def _stored(folder: Path) -> Iterator[None]:
    """What the file system refuses, in the cache, as ``StoreError``."""
    try:
        yield
    except OSError as error:
        found, do = str(error.strerror or error), "set XDG_CACHE_HOME to a folder that is writable and has room"
        raise StoreError(f"the cache {folder}", found, do) from None


def compile_source(source: Path, *, cuda: bool = False, flags: Sequence[str] = ()) -> Path:
    """The shared library made of ``source``: from the cache, else compiled now (then a few seconds).

    ``cuda`` compiles with nvcc, for the GPU that is here. ``$LEVELBENCH_CXXFLAGS`` and ``flags`` come after ours.
    A library stands for the text of all files that it was made of, those of the system included. A header that is
    written later, into a folder that is searched before that of the one that was found, is not noticed.

    Raises ``DefinitionError`` with the line of ``source`` that does not compile (all that the compiler said is in its
    ``trace``), ``MissingError`` without a compiler or the file, ``StoreError`` for a cache that cannot be written.
    """
    try:
        text = source.read_bytes()
    except OSError as error:
        raise MissingError(f"the operator file {source}", str(error.strerror), "give the path of a file") from None
    command = command_of(cuda, flags)
    # A path is part of the digest, as includes are looked up beside the file.
    made_of = [text, *map(os.fsencode, (str(source.resolve()), identity(cuda), *command))]
    key = hashlib.sha256(b"\0".join(hashlib.sha256(each).digest() for each in made_of)).hexdigest()[:32]
    folder = cache_folder()
    if (found := _cached(folder, key)) is not None:
        return found
    with _stored(folder), _alone(folder / f"{key}.lock"):
        return _cached(folder, key) or _compile(source, command, folder, key)


@contextlib.contextmanager
def _alone(lock: Path) -> Iterator[None]:
    """One process at a time: a second one finds the library when the first is done."""
    with lock.open("w") as file:
        # A file system without locks only compiles twice.
        with contextlib.suppress(OSError):
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _cached(folder: Path, key: str) -> Path | None:
    """The library, if it and all files that it was made of are as they were."""
    try:
        known = json.loads((folder / f"{key}.json").read_text())
        library = folder / Path(known["library"]).name
        # One that was cut short would end the process that loads it.
        if _digest(library) == known["digest"] and _digests(map(Path, known["files"])) == known["files"]:
            return library
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None
    return None


def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _digests(paths: Iterator[Path]) -> dict[str, str]:
    return {str(each): _digest(each) for each in paths}


def _compile(source: Path, command: Sequence[str], folder: Path, key: str) -> Path:
    with tempfile.TemporaryDirectory(dir=folder) as place:
        made, rule = Path(place) / "made.so", Path(place) / "made.d"
        began = _now(Path(place))
        _run(source, [*command, str(source.resolve()), "-o", str(made), "-MD", "-MT", "made", "-MF", str(rule)])
        if not made.is_file() or not made.stat().st_size or not rule.is_file():
            found = f"{command[0]} ended well and wrote no library"
            raise MissingError("a C++ compiler", found, "name another one in CXX")
        files = _unchanged(dependencies(rule.read_bytes()), began, _now(Path(place)))
        digest = _digest(made)
        if files is None:
            # What it was made of is not known, so it serves this once and is under no note.
            library = folder / f"{key}-{digest[:16]}-once.so"
            made.replace(library)
            return library
        # A file that was edited gets a library of another name: a loaded one cannot be loaded anew.
        name = hashlib.sha256(json.dumps(files, sort_keys=True).encode()).hexdigest()[:16]
        library = folder / f"{key}-{name}.so"
        made.replace(library)
        note = Path(place) / "note.json"
        said = {"library": library.name, "digest": digest, "source": str(source.resolve()), "files": files}
        note.write_text(json.dumps(said))
        note.replace(folder / f"{key}.json")
    return library


def _run(source: Path, words: Sequence[str]) -> None:
    try:
        done = subprocess.run(words, capture_output=True, text=True, errors="replace", timeout=_TIMEOUT_S, check=False)
    except subprocess.TimeoutExpired:
        found = f"the compiler was not done after {_TIMEOUT_S:g} s"
        raise DefinitionError(f"compiling {source}", found, "make it smaller") from None
    except OSError as error:
        raise MissingError("a C++ compiler", f"{words[0]} cannot be run: {error.strerror}", "name another") from None
    if done.returncode != 0:
        raise refusal(source, done.stderr + done.stdout)


def _now(folder: Path) -> int:
    """The time by which the file system dates what is written now, in nanoseconds."""
    file = folder / "now"
    file.write_text("")
    return file.stat().st_mtime_ns


def _unchanged(paths: Sequence[Path], began: int, ended: int) -> dict[str, str] | None:
    """Digests of files by their paths; ``None`` if one was written between the two times, or cannot be read."""
    try:
        files = _digests(iter(paths))
        written = [each.stat().st_mtime_ns for each in paths]
    except OSError:
        return None
    return None if any(began < each <= ended for each in written) else files

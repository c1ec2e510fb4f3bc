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
import re
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Final

from levelbench.errors import DefinitionError, MissingError, StoreError, UnsupportedError

__all__ = ["INCLUDE", "cache_folder", "compile_source", "compiler"]

INCLUDE: Final = Path(__file__).parent / "include"
"""The folder of ``levelbench.h``."""

_FLAGS: Final = ("-std=c++17", "-O3", "-march=native", "-shared", "-fPIC", "-fvisibility=hidden", "-Wall")
_CUDA_FLAGS: Final = ("-x", "cu", "-std=c++17", "-O3", "-arch=native", "-shared", "-Xcompiler")
_HOST_FLAGS: Final = "-fPIC,-fvisibility=hidden,-march=native,-Wall"
_TIMEOUT_S: Final = 600.0


def cache_folder() -> Path:
    """``$XDG_CACHE_HOME/levelbench/operators``, made if it is not there, readable by its owner alone."""
    base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    folder = Path(base) / "levelbench" / "operators"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        owner, mode = folder.stat().st_uid, folder.stat().st_mode
        # Libraries are loaded from here: nobody else may put one in.
        if owner != os.getuid():
            raise StoreError(f"the cache {folder}", "it belongs to another user", "set XDG_CACHE_HOME to your own")
        if mode & 0o077:
            folder.chmod(0o700)
    except OSError as error:
        raise StoreError(
            f"the cache {folder}", str(error.strerror), "set XDG_CACHE_HOME to a writable folder"
        ) from None
    return folder


def compiler(cuda: bool = False) -> tuple[str, ...]:
    """``$CXX``, else ``c++``'s usual names, or ``nvcc``; ``MissingError`` where there is none."""
    wanted = ["nvcc"] if cuda else [os.environ["CXX"]] if os.environ.get("CXX") else ["g++", "clang++", "c++"]
    for each in wanted:
        words = shlex.split(each)
        if words and (found := shutil.which(words[0])):
            return (found, *words[1:])
    what = f"there is no {' or '.join(wanted)} on the path"
    raise MissingError("a C++ compiler", what, "install one (apt-get install g++), or name it in CXX")


def compile_source(source: Path, *, cuda: bool = False, flags: Sequence[str] = ()) -> Path:
    """The shared library made of ``source``: from the cache, else compiled now (then a few seconds).

    ``cuda`` compiles with nvcc, for the GPU that is here. ``$LEVELBENCH_CXXFLAGS`` and ``flags`` come after ours.
    Raises ``DefinitionError`` with the line of ``source`` that does not compile (all that the compiler said is in its
    ``trace``), ``MissingError`` without a compiler or the file, ``StoreError`` for a cache that cannot be written.
    """
    try:
        text = source.read_bytes()
    except OSError as error:
        raise MissingError(f"the operator file {source}", str(error.strerror), "give the path of a file") from None
    command = [*_command(cuda), *flags, *shlex.split(os.environ.get("LEVELBENCH_CXXFLAGS", ""))]
    # A path is part of the digest, as includes are looked up beside the file.
    made_of = [
        text,
        str(source.resolve()).encode(),
        _identity(compiler(cuda), cuda).encode(),
        *map(str.encode, command),
    ]
    key = hashlib.sha256(b"\0".join(hashlib.sha256(each).digest() for each in made_of)).hexdigest()[:32]
    folder = cache_folder()
    if (found := _cached(folder, key)) is not None:
        return found
    with _alone(folder / f"{key}.lock"):
        return _cached(folder, key) or _compile(source, command, folder, key)


def _command(cuda: bool) -> list[str]:
    flags = [*_CUDA_FLAGS, _HOST_FLAGS] if cuda else list(_FLAGS)
    return [*compiler(cuda), *flags, f"-I{INCLUDE}"]


@lru_cache
def _identity(words: tuple[str, ...], cuda: bool) -> str:
    """All that the compiler defines of itself, its ABI and this processor; of nvcc, also the GPU's architecture."""
    asked = [*words, "--version"] if cuda else [*words, "-march=native", "-dM", "-E", "-x", "c++", os.devnull]
    done = subprocess.run(asked, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise MissingError(
            "a C++ compiler", f"{shlex.join(asked)} failed: {done.stderr.strip()}", "install another one"
        )
    return done.stdout + (_gpus() if cuda else "")


def _gpus() -> str:
    """The compute capabilities of the GPUs here, by which ``-arch=native`` compiles."""
    program = shutil.which("nvidia-smi")
    if program is None:
        raise UnsupportedError("an operator for CUDA", "there is no GPU here (no nvidia-smi)", "use --device cpu")
    asked = [program, "--query-gpu=compute_cap", "--format=csv,noheader"]
    return subprocess.run(asked, capture_output=True, text=True, check=False).stdout


@contextlib.contextmanager
def _alone(lock: Path) -> Iterator[None]:
    """One process at a time: a second one finds the library when the first is done."""
    with lock.open("w") as file:
        # A file system without locks only compiles twice.
        with contextlib.suppress(OSError):
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _cached(folder: Path, key: str) -> Path | None:
    """The library, if all files that it was made of are as they were."""
    try:
        known = json.loads((folder / f"{key}.json").read_text())
        library = folder / Path(known["library"]).name
        if library.is_file() and all(_digest(Path(path)) == digest for path, digest in known["files"].items()):
            return library
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None
    return None


def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _compile(source: Path, command: Sequence[str], folder: Path, key: str) -> Path:
    with tempfile.TemporaryDirectory(dir=folder) as place:
        made, read = Path(place) / "made.so", Path(place) / "made.d"
        words = [*command, str(source.resolve()), "-o", str(made), "-MMD", "-MF", str(read)]
        try:
            done = subprocess.run(words, capture_output=True, text=True, timeout=_TIMEOUT_S, check=False)
        except subprocess.TimeoutExpired:
            found = f"the compiler was not done after {_TIMEOUT_S:g} s"
            raise DefinitionError(f"compiling {source}", found, "make it smaller") from None
        if done.returncode != 0:
            raise _refusal(source, done.stderr)
        files = {str(each): _digest(each) for each in _read(read)}
        # A file that was edited gets a library of another name: a loaded one cannot be loaded anew.
        digest = hashlib.sha256(json.dumps(files, sort_keys=True).encode()).hexdigest()[:16]
        library = folder / f"{key}-{digest}.so"
        made.replace(library)
        note = Path(place) / "note.json"
        note.write_text(json.dumps({"library": library.name, "source": str(source.resolve()), "files": files}))
        note.replace(folder / f"{key}.json")
    return library


def _read(dependencies: Path) -> list[Path]:
    """The files that a make rule names, but the target: the source and what it includes, system headers left out."""
    text = dependencies.read_text().replace("\\\n", " ").partition(": ")[2]
    words = re.findall(r"(?:\\ |\S)+", text)
    return [Path(each.replace("\\ ", " ").replace("$$", "$")) for each in words]


_PLACE = re.compile(r"^(?P<path>[^:\n]+):(?P<line>\d+)(?::\d+)?:\s*(?P<what>.*)$", re.MULTILINE)
_ERROR = re.compile(r"(?:fatal )?error: (?P<what>.*)")


def _refusal(source: Path, said: str) -> DefinitionError:
    """The first error, with the line of the user's own file that led to it."""
    what, line = "", 0
    for place in _PLACE.finditer(said):
        mine = Path(place["path"]).resolve() == source.resolve()
        error = _ERROR.match(place["what"])
        if mine and not what:
            # An error in a header comes after the lines of the file that led there.
            line = int(place["line"])
        if error and not what:
            what = error["what"]
    lines = source.read_text(errors="replace").splitlines()
    shown = f"\n    {lines[line - 1].strip()}\n" if 0 < line <= len(lines) else ""
    where = f"{source}:{line}: " if line else ""
    found = f"{where}{what or said.strip() or 'the compiler said nothing'}{shown}"
    refusal = DefinitionError(
        f"compiling {source}", found, "correct the file; --debug shows all that the compiler said"
    )
    refusal.trace = said
    return refusal

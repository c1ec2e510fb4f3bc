"""Compiles an operator's C++ file to a shared library, once for the same text, headers, flags and compiler.

The file name of a library contains a digest of everything it was built from, so an existing library is the right one.
The result also depends on the compiler's version, its flags, the variables that add folders, and this processor.
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
import sys
import tempfile
from collections.abc import Iterator, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Final

from levelbench.errors import DefinitionError, LevelbenchError, MissingError, StoreError, UnsupportedError, UsageError

INCLUDE: Final = Path(__file__).parent / "include"
"""The folder of ``levelbench.h``."""

# Make an undefined function an error when linking, not when loading the library.
_DEFINED: Final = ("-z", "defs") if sys.platform == "linux" else ()
_FLAGS: Final = (
    *("-std=c++17", "-O3", "-march=native", "-shared", "-fPIC", "-fvisibility=hidden", "-Wall"),
    *(f"-Wl,{each}" for each in _DEFINED),
)
_CUDA_FLAGS: Final = (
    *("-x", "cu", "-std=c++17", "-O3", "-arch=native", "-shared"),
    *(word for each in _DEFINED for word in ("-Xlinker", each)),
    "-Xcompiler",
)
_HOST_FLAGS: Final = "-fPIC,-fvisibility=hidden,-march=native,-Wall"
_VARIABLES: Final = ("CPATH", "C_INCLUDE_PATH", "CPLUS_INCLUDE_PATH", "LIBRARY_PATH", "GCC_EXEC_PREFIX")


def compiler(cuda: bool = False) -> tuple[str, ...]:
    """``$CXX``, else the usual C++ compilers; or ``nvcc``. ``MissingError`` if there is none."""
    wanted = ["nvcc"] if cuda else [os.environ["CXX"]] if os.environ.get("CXX") else ["g++", "clang++", "c++"]
    for each in wanted:
        words = _split(each, "CXX")
        if words and (found := shutil.which(words[0])):
            return (found, *words[1:])
    what = f"there is no {' or '.join(wanted)} on the path that can be run"
    raise MissingError("a C++ compiler", what, "install one (apt-get install g++), or set CXX to its name")


def _split(text: str, variable: str) -> list[str]:
    """The words of a variable, split as in a shell."""
    try:
        return shlex.split(text)
    except ValueError as error:
        found = f"{text!r} cannot be split as in a shell: {error}"
        raise UsageError(f"the variable {variable}", found, "close its quotes") from None


def command_of(cuda: bool, flags: Sequence[str]) -> list[str]:
    """The whole command without the files: our flags, ``flags``, and finally those of ``$LEVELBENCH_CXXFLAGS``."""
    ours = [*_CUDA_FLAGS, _HOST_FLAGS] if cuda else list(_FLAGS)
    more = _split(os.environ.get("LEVELBENCH_CXXFLAGS", ""), "LEVELBENCH_CXXFLAGS")
    return [*compiler(cuda), *ours, f"-I{INCLUDE}", *flags, *more]


def identity(cuda: bool) -> str:
    """What a library depends on besides command and files: the compiler, the processor, and added folders."""
    return "\n".join([_identity(compiler(cuda), cuda), *(f"{each}={os.environ.get(each)}" for each in _VARIABLES)])


@lru_cache
def _identity(words: tuple[str, ...], cuda: bool) -> str:
    """All that the compiler defines about itself, its ABI and this processor; for nvcc, also the GPU architecture."""
    asked = [*words, "--version"] if cuda else [*words, "-march=native", "-dM", "-E", "-x", "c++", os.devnull]
    try:
        done = subprocess.run(asked, capture_output=True, text=True, errors="replace", check=False)
    except OSError as error:
        raise MissingError("a C++ compiler", f"{words[0]} cannot be run: {error.strerror}", "use another") from None
    if done.returncode != 0:
        raise MissingError(
            "a C++ compiler", f"{shlex.join(asked)} failed: {done.stderr.strip()}", "install another one"
        )
    return done.stdout + (_gpus() if cuda else "")


def _gpus() -> str:
    """The compute capabilities of the GPUs here, for which ``-arch=native`` compiles."""
    program = shutil.which("nvidia-smi")
    if program is None:
        raise UnsupportedError("an operator for CUDA", "there is no GPU here (no nvidia-smi)", "use --device cpu")
    asked = [program, "--query-gpu=compute_cap", "--format=csv,noheader"]
    return subprocess.run(asked, capture_output=True, text=True, check=False).stdout


def dependencies(rule: bytes) -> list[Path]:
    r"""The prerequisites of a make rule: the source and everything it includes.

    A compiler writes a space as ``\ `` (doubling each backslash before it), ``#`` as ``\#`` and ``$`` as ``$$``.
    """
    text = os.fsdecode(rule).replace("\\\n", " ").partition(": ")[2]
    words = re.findall(r"(?:\\[ \t#]|\S)+", text)
    return [Path(re.sub(r"(\\*)\\([ \t])|\\(#)|\$(\$)", _plain, each)) for each in words]


def _plain(found: re.Match[str]) -> str:
    backslashes, space, sharp, dollar = found.groups()
    return sharp or dollar or "\\" * (len(backslashes) // 2) + space


_PLACE = re.compile(
    r"^(?:In file included from |\s+from )?(?P<path>[^\n]+?):(?P<line>\d+)(?::\d+)?[:,][ \t]*(?P<what>.*)$",
    re.MULTILINE,
)
_ERROR = re.compile(r"(?:fatal )?error: (?P<what>.*)")
_UNDEFINED = re.compile(r"undefined (?:reference to|symbol:?) (?P<what>.*)")
_FULL = "No space left on device"


def refusal(source: Path, printed: str) -> LevelbenchError:
    """The compiler's first error, with the line of the user's own file or header that led to it."""
    if _FULL in printed:
        return StoreError(f"compiling {source}", _FULL, "free space, or set XDG_CACHE_HOME and TMPDIR to other disks")
    do = "correct the file; --debug shows the compiler's full output"
    what, path, line = _first(source, printed)
    if not what and (missing := _UNDEFINED.search(printed)):
        what = f"{missing['what'].strip()} is declared but nowhere defined"
        do = "define it, or add its library to LEVELBENCH_CXXFLAGS (-l...)"
    try:
        lines = path.read_text(errors="replace").splitlines()
    except OSError:
        lines = []
    shown = f"\n    {lines[line - 1].strip()}\n" if 0 < line <= len(lines) else ""
    where = f"{path}:{line}: " if line else ""
    found = f"{where}{what or printed.strip() or 'the compiler printed nothing'}{shown}"
    failure = DefinitionError(f"compiling {source}", found, do)
    failure.trace = printed
    return failure


def _first(source: Path, printed: str) -> tuple[str, Path, int]:
    """The first error and its place: in the source, in the user's header, or the line of the source that led there."""
    line = 0
    for place in _PLACE.finditer(printed):
        path = Path(place["path"])
        if mine := path.resolve() == source.resolve():
            line = int(place["line"])
        if error := _ERROR.match(place["what"]):
            if not mine and _is_user_header(path, source):
                return error["what"], path, int(place["line"])
            return error["what"], source, line
    # Linker errors have no place.
    return "", source, 0


def _is_user_header(path: Path, source: Path) -> bool:
    """Whether a header is the user's to correct, and not ours, the compiler's or the system's."""
    if path.resolve().is_relative_to(INCLUDE) or "/include/c++/" in str(path) or "/lib/gcc/" in str(path):
        return False
    return path.is_relative_to(source.resolve().parent) or not str(path).startswith(("/usr/", "/opt/"))


# A library is written to a temporary file and renamed, so an existing one is complete even if several processes compile
# at the same time.


_TIMEOUT_S: Final = 600.0


def cache_folder() -> Path:
    """``$XDG_CACHE_HOME/levelbench/operators``, created if missing, accessible only to its owner."""
    base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    folder = Path(base) / "levelbench" / "operators"
    with _stored(folder):
        folder.mkdir(parents=True, exist_ok=True)
        owner, mode = folder.stat().st_uid, folder.stat().st_mode
        # Libraries are loaded from here, so nobody else may write to it.
        if owner != os.getuid():
            raise StoreError(
                f"the cache {folder}", "it belongs to another user", "set XDG_CACHE_HOME to your own folder"
            )
        if mode & 0o077:
            folder.chmod(0o700)
    return folder


@contextlib.contextmanager
def _stored(folder: Path) -> Iterator[None]:
    """Turn errors of the file system into ``StoreError``."""
    try:
        yield
    except OSError as error:
        found, do = str(error.strerror or error), "set XDG_CACHE_HOME to a writable folder with free space"
        raise StoreError(f"the cache {folder}", found, do) from None


def compile_source(source: Path, *, cuda: bool = False, flags: Sequence[str] = ()) -> Path:
    """The shared library built from ``source``: from the cache, else compiled now (which takes a few seconds).

    ``cuda`` compiles with nvcc for the GPU of this machine. ``flags`` and ``$LEVELBENCH_CXXFLAGS`` come after ours. A
    library is rebuilt if any file that it was built from changes, including system headers. It is not noticed if a
    header is added later to a folder that is searched before that of the header that was found.

    Raises ``DefinitionError`` with the line of ``source`` that does not compile (its ``trace`` has the compiler's full
    output), ``MissingError`` without a compiler or the file, ``StoreError`` if the cache cannot be written.
    """
    try:
        text = source.read_bytes()
    except OSError as error:
        raise MissingError(f"the operator file {source}", str(error.strerror), "give the path of a file") from None
    command = command_of(cuda, flags)
    # The path is part of the digest, because includes are searched for next to the file.
    made_of = [text, *map(os.fsencode, (str(source.resolve()), identity(cuda), *command))]
    key = hashlib.sha256(b"\0".join(hashlib.sha256(each).digest() for each in made_of)).hexdigest()[:32]
    folder = cache_folder()
    if (found := _cached(folder, key)) is not None:
        return found
    with _stored(folder), _alone(folder / f"{key}.lock"):
        return _cached(folder, key) or _compile(source, command, folder, key)


@contextlib.contextmanager
def _alone(lock: Path) -> Iterator[None]:
    """Let one process compile at a time: the next one finds the library when the first is done."""
    with lock.open("w") as file:
        # Without locks in the file system, two processes merely compile the same twice.
        with contextlib.suppress(OSError):
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _cached(folder: Path, key: str) -> Path | None:
    """The library, if neither it nor any file that it was built from has changed."""
    try:
        known = json.loads((folder / f"{key}.json").read_text())
        library = folder / Path(known["library"]).name
        # Loading a truncated library would crash the process.
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
            found = f"{command[0]} succeeded but wrote no library"
            raise MissingError("a C++ compiler", found, "set CXX to another one")
        files = _unchanged(dependencies(rule.read_bytes()), began, _now(Path(place)))
        digest = _digest(made)
        if files is None:
            # It is unclear what it was built from, so it is used only once, without a note.
            library = folder / f"{key}-{digest[:16]}-once.so"
            made.replace(library)
            return library
        # After an edit the library gets another name, because a loaded library cannot be loaded again.
        name = hashlib.sha256(json.dumps(files, sort_keys=True).encode()).hexdigest()[:16]
        library = folder / f"{key}-{name}.so"
        made.replace(library)
        note = Path(place) / "note.json"
        content = {"library": library.name, "digest": digest, "source": str(source.resolve()), "files": files}
        note.write_text(json.dumps(content))
        note.replace(folder / f"{key}.json")
    return library


def _run(source: Path, words: Sequence[str]) -> None:
    try:
        done = subprocess.run(words, capture_output=True, text=True, errors="replace", timeout=_TIMEOUT_S, check=False)
    except subprocess.TimeoutExpired:
        found = f"the compiler did not finish within {_TIMEOUT_S:g} s"
        raise DefinitionError(f"compiling {source}", found, "make the file smaller") from None
    except OSError as error:
        raise MissingError("a C++ compiler", f"{words[0]} cannot be run: {error.strerror}", "use another") from None
    if done.returncode != 0:
        raise refusal(source, done.stderr + done.stdout)


def _now(folder: Path) -> int:
    """The modification time that the file system gives to a file written now, in nanoseconds."""
    file = folder / "now"
    file.write_text("")
    return file.stat().st_mtime_ns


def _unchanged(paths: Sequence[Path], began: int, ended: int) -> dict[str, str] | None:
    """Digests of files by path; ``None`` if one was written between the two times or cannot be read."""
    try:
        files = _digests(iter(paths))
        written = [each.stat().st_mtime_ns for each in paths]
    except OSError:
        return None
    return None if any(began < each <= ended for each in written) else files

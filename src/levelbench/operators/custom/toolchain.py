"""Which compiler makes an operator's library, how it is called, and what it says when it refuses.

The one idea: what a compiler makes depends on its version, its flags, the variables that add folders to it and this
processor, so all of these are told here, for the library's name.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Final

from levelbench.errors import DefinitionError, LevelbenchError, MissingError, StoreError, UnsupportedError, UsageError

__all__ = ["INCLUDE", "command_of", "compiler", "dependencies", "identity", "refusal"]

INCLUDE: Final = Path(__file__).parent / "include"
"""The folder of ``levelbench.h``."""

# A function that is nowhere is an error of the linker's, not of whoever loads the library.
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
    """``$CXX``, else ``c++``'s usual names, or ``nvcc``; ``MissingError`` where there is none."""
    wanted = ["nvcc"] if cuda else [os.environ["CXX"]] if os.environ.get("CXX") else ["g++", "clang++", "c++"]
    for each in wanted:
        words = _split(each, "CXX")
        if words and (found := shutil.which(words[0])):
            return (found, *words[1:])
    what = f"there is no {' or '.join(wanted)} on the path that can be run"
    raise MissingError("a C++ compiler", what, "install one (apt-get install g++), or name it in CXX")


def _split(text: str, variable: str) -> list[str]:
    """The words of a variable, as a shell would read them."""
    try:
        return shlex.split(text)
    except ValueError as error:
        found = f"{text!r} cannot be read as a shell would: {error}"
        raise UsageError(f"the variable {variable}", found, "close its quotes") from None


def command_of(cuda: bool, flags: Sequence[str]) -> list[str]:
    """All words but the files: ours, ``flags``, and at last those of ``$LEVELBENCH_CXXFLAGS``."""
    ours = [*_CUDA_FLAGS, _HOST_FLAGS] if cuda else list(_FLAGS)
    more = _split(os.environ.get("LEVELBENCH_CXXFLAGS", ""), "LEVELBENCH_CXXFLAGS")
    return [*compiler(cuda), *ours, f"-I{INCLUDE}", *flags, *more]


def identity(cuda: bool) -> str:
    """What a compiler makes depends on, but for its words and the files: itself, the processor, folders added to it."""
    return "\n".join([_identity(compiler(cuda), cuda), *(f"{each}={os.environ.get(each)}" for each in _VARIABLES)])


@lru_cache
def _identity(words: tuple[str, ...], cuda: bool) -> str:
    """All that the compiler defines of itself, its ABI and this processor; of nvcc, also the GPU's architecture."""
    asked = [*words, "--version"] if cuda else [*words, "-march=native", "-dM", "-E", "-x", "c++", os.devnull]
    try:
        done = subprocess.run(asked, capture_output=True, text=True, errors="replace", check=False)
    except OSError as error:
        raise MissingError("a C++ compiler", f"{words[0]} cannot be run: {error.strerror}", "name another") from None
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


def dependencies(rule: bytes) -> list[Path]:
    r"""The files that a make rule names, but the target: the source and all that it includes.

    A compiler writes a space as ``\ `` (with each backslash before it twice), ``#`` as ``\#`` and ``$`` as ``$$``.
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


def refusal(source: Path, said: str) -> LevelbenchError:
    """The first error, with the line of the user's own file, or of a header beside it, that led to it."""
    if _FULL in said:
        return StoreError(f"compiling {source}", _FULL, "make room, or set XDG_CACHE_HOME and TMPDIR to other disks")
    do = "correct the file; --debug shows all that the compiler said"
    what, path, line = _first(source, said)
    if not what and (missing := _UNDEFINED.search(said)):
        what = f"{missing['what'].strip()} is declared and nowhere defined"
        do = "define it, or add its library to LEVELBENCH_CXXFLAGS (-l...)"
    try:
        lines = path.read_text(errors="replace").splitlines()
    except OSError:
        lines = []
    shown = f"\n    {lines[line - 1].strip()}\n" if 0 < line <= len(lines) else ""
    where = f"{path}:{line}: " if line else ""
    found = f"{where}{what or said.strip() or 'the compiler said nothing'}{shown}"
    failure = DefinitionError(f"compiling {source}", found, do)
    failure.trace = said
    return failure


def _first(source: Path, said: str) -> tuple[str, Path, int]:
    """The first error, and where: in the source, in a header of the user's, or the source's line that led there."""
    line = 0
    for place in _PLACE.finditer(said):
        path = Path(place["path"])
        if mine := path.resolve() == source.resolve():
            line = int(place["line"])
        if error := _ERROR.match(place["what"]):
            if not mine and _is_users(path, source):
                return error["what"], path, int(place["line"])
            return error["what"], source, line
    # The linker's errors have no place, and those that are no errors led nowhere.
    return "", source, 0


def _is_users(path: Path, source: Path) -> bool:
    """Whether a header is the user's to correct: not ours, and not the compiler's or the system's."""
    if path.resolve().is_relative_to(INCLUDE) or "/include/c++/" in str(path) or "/lib/gcc/" in str(path):
        return False
    return path.is_relative_to(source.resolve().parent) or not str(path).startswith(("/usr/", "/opt/"))

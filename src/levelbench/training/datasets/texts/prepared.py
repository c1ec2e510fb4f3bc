"""Keeps arrays that are slow to make from text: made once, written under their name only when whole.

The one idea: a kept file says which bytes it was made of and by which rule, and the SHA-256 of what it holds; anything
else, damage too, makes it anew. That guards against damage, not against someone who writes both: whoever wants to be
sure asks for ``anew``.
"""

from __future__ import annotations

import hashlib
import os
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path
from tokenize import TokenError
from typing import Any
from uuid import uuid4

import numpy as np
from numpy.typing import NDArray

__all__ = ["Arrays", "joined", "parted", "prepared"]

Arrays = dict[str, NDArray[Any]]
"""Arrays by name."""

_KEY = "made-of"
_DIGEST = "sha256"
# What NumPy and zipfile raise for files that are damaged, encrypted or packed in a way that they do not know.
_UNREADABLE = (
    OSError,
    ValueError,
    EOFError,
    KeyError,
    MemoryError,
    NotImplementedError,
    RuntimeError,
    SyntaxError,
    TypeError,
    TokenError,
    zipfile.BadZipFile,
    zlib.error,
)


def prepared(path: Path, key: str, make: Callable[[], Arrays], *, anew: bool = False) -> Arrays:
    """The arrays of ``make()``, from ``path`` if it holds those of the same ``key`` whole; ``anew`` looks at no file.

    Where the folder cannot be written they are made each time: a cache is a help and no need.
    """
    kept = None if anew else _kept(path, key)
    if kept is not None:
        return kept
    arrays = make()
    part = path.with_name(f"{path.name}.{uuid4().hex}.part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            with part.open("xb") as file:
                marks = {_KEY: np.array(key), _DIGEST: np.array(_digest(arrays))}
                np.savez(file, allow_pickle=False, **marks, **arrays)
                file.flush()
                os.fsync(file.fileno())
            part.replace(path)
        finally:
            part.unlink(missing_ok=True)
    except OSError:
        return arrays
    return arrays


def _kept(path: Path, key: str) -> Arrays | None:
    try:
        # Opened here, for ``np.load`` leaves a file open that it cannot read.
        with path.open("rb") as stream, np.load(stream, allow_pickle=False) as file:
            if _KEY not in file or str(file[_KEY]) != key:
                return None
            arrays = {name: file[name] for name in file.files if name not in {_KEY, _DIGEST}}
            return arrays if str(file[_DIGEST]) == _digest(arrays) else None
    except _UNREADABLE:
        return None


def _digest(arrays: Arrays) -> str:
    """The SHA-256 of names, types, shapes and values; so an array that is missing is seen as well."""
    digest = hashlib.sha256()
    for name in sorted(arrays):
        each = np.ascontiguousarray(arrays[name])
        digest.update(f"{name}\0{each.dtype.str}\0{each.shape}\0".encode("utf-8", "backslashreplace"))
        digest.update(each.data)
    return digest.hexdigest()


def joined(lines: list[str]) -> NDArray[np.uint8]:
    """Lines as the bytes of their UTF-8, a line feed between them; no line may hold one."""
    return np.frombuffer("\n".join(lines).encode(), np.uint8)


def parted(content: NDArray[np.uint8]) -> list[str]:
    """The lines of :func:`joined`."""
    return content.tobytes().decode().split("\n")

"""Opens arrays that are larger than memory where they lie: ``.npy`` files without pickles, and raw values.

The one idea: the file is mapped, not read, once its size is exactly what its header or the caller says. The header is
matched against the one form that NumPy writes, so that nothing in it is evaluated. Format: NEP 1,
https://numpy.org/neps/nep-0001-npy-format.html .
"""

from __future__ import annotations

import math
import re
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt

from levelbench.errors import MissingError
from levelbench.training.datasets.formats.unpacking import bad

__all__ = ["map_npy", "map_raw"]

_KIND = "an array"
_MOST_HEADER_BYTES = 1 << 16
_MOST_DIMENSIONS = 32
_HEADER = re.compile(
    rb"\{'descr': '([<>|][biuf][1248])', 'fortran_order': (True|False), "
    rb"'shape': \(((?:\d{1,15}, ?)*\d{0,15})\), ?\} *\n"
)
_DTYPE = re.compile(r"[<>|=]?(b1|[iu][1248]|f[248])")


def map_npy(path: Path) -> npt.NDArray[Any]:
    """The array of a ``.npy`` file, read-only, its values on the disk until they are used.

    :raises MissingError: when there is no such file.
    :raises DataError: when it is no array of plain numbers, or has another size than its header says.
    """
    with _opened(path) as file:
        magic = file.read(8)
        if magic[:6] != b"\x93NUMPY" or magic[6:] not in {b"\1\0", b"\2\0", b"\3\0"}:
            raise bad(path, _KIND, "it does not begin as a .npy file does")
        width = 2 if magic[6] == 1 else 4
        length = int.from_bytes(file.read(width), "little")
        if length > _MOST_HEADER_BYTES:
            raise bad(path, _KIND, f"it claims a header of {length:,} bytes, and {_MOST_HEADER_BYTES:,} is the most")
        found = _HEADER.fullmatch(file.read(length))
        offset = file.tell()
    if found is None:
        raise bad(path, _KIND, "its header is not that of an array of plain numbers (objects are never read)")
    shape = tuple(int(size) for size in found[3].replace(b" ", b"").split(b",") if size)
    return _mapped(path, found[1].decode(), shape, offset, "F" if found[2] == b"True" else "C")


def map_raw(path: Path, dtype: str, shape: tuple[int, ...]) -> npt.NDArray[Any]:
    """A file of values and nothing else: ``dtype`` as ``"<f4"`` or ``"uint8"``, in C order; raises as :func:`map_npy`.

    :raises DataError: when ``dtype`` is no plain number, or the file is not as large as it and ``shape`` say.
    """
    try:
        name = np.dtype(dtype).str
    except (TypeError, ValueError, SyntaxError):
        raise bad(path, _KIND, f"{dtype!r} is no plain number", 'Give a type as "<f4" or "uint8"') from None
    with _opened(path):
        return _mapped(path, name, shape, 0, "C")


def _opened(path: Path) -> BinaryIO:
    try:
        return path.open("rb")
    except FileNotFoundError:
        raise MissingError(f"reading {path}", "there is no such file", "Name a file that exists") from None
    except OSError as error:
        raise bad(path, _KIND, f"it cannot be read ({error})") from error


def _mapped(path: Path, name: str, shape: tuple[int, ...], offset: int, order: Any) -> npt.NDArray[Any]:
    if not _DTYPE.fullmatch(name):
        raise bad(path, _KIND, f"{name!r} is no plain number")
    dtype = np.dtype(name)
    if not shape or len(shape) > _MOST_DIMENSIONS or min(shape) < 1:
        raise bad(path, _KIND, f"its shape {shape} holds no rows")
    wanted, size = offset + math.prod(shape) * dtype.itemsize, path.stat().st_size
    if wanted != size:
        raise bad(path, _KIND, f"{shape} of {dtype} are {wanted:,} bytes with the header, and it has {size:,}")
    return np.memmap(path, dtype, "r", offset, shape, order)

"""Arrays as files of raw bytes, described in JSON: what two processes that do not trust each other exchange."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import ml_dtypes  # noqa: F401  # it teaches NumPy the name bfloat16
import numpy as np
from numpy.typing import NDArray

from levelbench.errors import DataError

__all__ = ["read_arrays", "write_arrays"]


def write_arrays(folder: Path, kind: str, arrays: Sequence[NDArray[Any] | None]) -> list[dict[str, Any] | None]:
    """Write each to ``folder/<kind>-<number>``; the answer describes them."""
    described: list[dict[str, Any] | None] = []
    for at, each in enumerate(arrays):
        if each is None:
            described.append(None)
            continue
        native = np.asarray(each, each.dtype.newbyteorder("="), order="C")
        (folder / f"{kind}-{at}").write_bytes(native.tobytes())
        described.append({"file": f"{kind}-{at}", "dtype": native.dtype.name, "shape": list(native.shape)})
    return described


def read_arrays(folder: Path, described: Sequence[Mapping[str, Any] | None]) -> list[NDArray[Any] | None]:
    """The arrays; ``DataError`` for a file that is not what its description says, or is not in ``folder``."""
    return [None if each is None else _read(folder, each) for each in described]


def _read(folder: Path, said: Mapping[str, Any]) -> NDArray[Any]:
    file = folder / Path(str(said["file"])).name
    try:
        dtype = np.dtype(str(said["dtype"]))
        if dtype.hasobject:
            raise TypeError(f"{dtype} holds Python objects")
        return np.fromfile(file, dtype).reshape([int(size) for size in said["shape"]])
    except (OSError, ValueError, TypeError) as error:
        raise DataError(f"the array {file.name}", str(error), "run the operator again") from None

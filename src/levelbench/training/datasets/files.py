"""Finds the files of a dataset in a folder, and reads them against their checksums.

The one idea: a file is its content. Whether it is gzipped, and by whom, does not matter; the SHA-256 of what it
unpacks to does. (Debian's copy of Fashion-MNIST and the official one differ in every .gz, and in no image.)
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any, final

import numpy.typing as npt

from levelbench.errors import DataError, MissingError
from levelbench.records.places import cache_folder
from levelbench.training.datasets.formats.idx import read_idx

__all__ = ["DataFile", "cache_folder", "offline", "read_checked"]


@final
@dataclass(frozen=True)
class DataFile:
    """One file: its name without ``.gz``, the SHA-256 of its content, and that of its official ``.gz`` download."""

    name: str
    content_sha256: str
    download_sha256: str = ""

    def within(self, folder: Path) -> Path | None:
        """Where it is in ``folder``, gzipped or plain; ``None`` where there is none to read."""
        paths = (folder / f"{self.name}.gz", folder / self.name)
        # ``access`` first: ``is_file`` raises for a folder that may not be entered, which is a place like any other.
        return next((path for path in paths if os.access(path, os.R_OK) and path.is_file()), None)


def read_checked(folder: Path, file: DataFile) -> npt.NDArray[Any]:
    """The array of ``file`` in ``folder``.

    :raises MissingError: when it is not there.
    :raises DataError: when it is not IDX, or has another content.
    """
    path = file.within(folder)
    if path is None:
        raise MissingError(f"reading {file.name}", f"{folder} does not hold it", "Fetch the file again")
    read = read_idx(path)
    if read.sha256 != file.content_sha256:
        raise DataError(
            f"reading {path}",
            f"its content has SHA-256 {read.sha256}, and {file.content_sha256} is expected",
            "Remove the file and fetch it again",
        )
    return read.array


def offline() -> bool:
    """Whether ``LEVELBENCH_OFFLINE`` forbids downloads: set, and neither empty nor ``0``."""
    return os.environ.get("LEVELBENCH_OFFLINE", "") not in {"", "0"}

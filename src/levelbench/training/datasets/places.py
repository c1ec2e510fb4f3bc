"""Finds a dataset's files on this machine, or downloads them: the places, their order and the messages.

A folder named for this dataset is the only place searched. Otherwise the places are searched in a fixed order
(LEVELBENCH_DATA, the cache, a system package, the official download), and it does not matter which one has the files,
because their content is checked against the same checksums.
"""

from __future__ import annotations

import os
from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, final

from levelbench.errors import MissingError, UsageError
from levelbench.training.datasets.base import DatasetSource, Progress, silent

__all__ = ["cache_folder"]


def cache_folder() -> Path:
    """``LEVELBENCH_CACHE``, else ``levelbench`` in ``XDG_CACHE_HOME`` or in ``~/.cache``.

    An ``XDG_CACHE_HOME`` that is not absolute is ignored, as the XDG Base Directory Specification requires. Raises
    ``RuntimeError`` for a user without a home.
    """
    own = os.environ.get("LEVELBENCH_CACHE")
    if own:
        return Path(own)
    shared = Path(os.environ.get("XDG_CACHE_HOME", ""))
    return (shared if shared.is_absolute() else Path.home() / ".cache") / "levelbench"


@final
@dataclass(frozen=True)
class FileLocation:
    """A folder that may have the files, and its name in messages."""

    label: str
    folder: Path


@final
@dataclass(frozen=True)
class Found:
    """Where the files are: the place's name, the result of ``FileSource.held``, and the folder."""

    label: str
    held: Any
    folder: Path


@final
@dataclass(frozen=True)
class DataFile:
    """One file: its name without ``.gz``, the SHA-256 of its content, and that of its official ``.gz`` download."""

    name: str
    content_sha256: str
    download_sha256: str = ""

    def within(self, folder: Path) -> Path | None:
        """Its path in ``folder``, gzipped or plain; ``None`` if there is no readable one."""
        return next(filter(readable, (folder / f"{self.name}.gz", folder / self.name)), None)


def readable(path: Path) -> bool:
    """Whether the file exists and is readable; an impossible name is not an error."""
    # ``access`` first, as ``is_file`` raises for a folder without permission.
    return os.access(path, os.R_OK) and path.is_file()


def offline() -> bool:
    """Whether ``LEVELBENCH_OFFLINE`` forbids downloads: set, and neither empty nor ``0``."""
    return os.environ.get("LEVELBENCH_OFFLINE", "") not in {"", "0"}


def named_folder(folder: Path | None) -> Path | None:
    """``folder`` if it was named for the dataset, as with ``--data``: then no other place is searched.

    ``None`` if it is the folder of LEVELBENCH_DATA, which options pass on: that one is for all datasets, and one that
    is not in it is searched for elsewhere.
    """
    configured = os.environ.get("LEVELBENCH_DATA")
    # Resolved, because jobs on several ranks pass on the absolute path.
    if folder is None or (configured and os.path.realpath(configured) == os.path.realpath(folder)):
        return None
    return folder


def refuse_folder(name: str, folder: Path | None) -> None:
    """``UsageError`` for a folder named for a dataset without files, which would not be used."""
    if named_folder(folder) is not None:
        raise UsageError(
            f"--data {folder} for the dataset {name}",
            "its data is part of levelbench, so the folder would be ignored",
            "leave it out; if other tasks of the same command need a folder, name it with LEVELBENCH_DATA",
        )


class FileSource(DatasetSource):
    """A dataset of files in a folder; an incomplete set counts as missing."""

    size: str
    """The number of files and their size, in words: "4 files, 31 MB"."""
    home: str
    """Where a person gets the files."""
    ways: str
    """How to get missing files, as the advice of an error."""
    downloads: bool = True
    why_not: str = "it may not be redistributed"
    """Why the files are not downloaded, where they are not."""

    @abstractmethod
    def held(self, folder: Path) -> Any | None:
        """What to read from ``folder`` (a path, or more about it) if the files are there, else ``None``."""

    def download(self, progress: Progress) -> Any:
        """Download the files into the cache and return the result of ``held`` there. By default ``MissingError``."""
        raise self._missing(None, self.why_not)

    @property
    def mirror(self) -> str:
        """The environment variable for a mirror: ``LEVELBENCH_SQUAD_URL``."""
        return f"LEVELBENCH_{self.name.upper().replace('-', '_')}_URL"

    def fetch_file(
        self,
        name: str,
        sha256: str,
        official_url: str,
        most_bytes: int,
        progress: Progress,
        digest: Callable[[Path], str] | None = None,
    ) -> Path:
        """Download one file from the mirror, or else from the official address, into the cache."""
        # Imported here because it imports ssl and http, which local files do not need.
        from levelbench.training.datasets.download import fetch

        url = (os.environ.get(self.mirror) or official_url).rstrip("/")
        target = cache_folder() / self.name / name
        return fetch(f"{url}/{name}", target, sha256, digest=digest, most_bytes=most_bytes, progress=progress)

    def packaged(self) -> Sequence[FileLocation]:
        """Where operating system packages put the files."""
        return ()

    def found(self, folder: Path | None = None) -> Found | None:
        """Where the files are on this machine. Reads no data and uses no network."""
        for place in self.places(folder):
            held = self.held(place.folder)
            if held is not None:
                return Found(place.label, held, place.folder)
        return None

    def places(self, folder: Path | None) -> list[FileLocation]:
        """The places to search, in order: the named folder alone, or all."""
        if (named := named_folder(folder)) is not None:
            return [FileLocation("--data", named)]
        said = os.environ.get("LEVELBENCH_DATA")
        return [
            *([FileLocation("LEVELBENCH_DATA", Path(said))] if said else []),
            FileLocation("the cache", cache_folder() / self.name),
            *self.packaged(),
        ]

    def lacks(self, folder: Path | None = None) -> str | None:
        """``None`` if the files are on this machine or may be downloaded, whether or not the network works."""
        if self.found(folder):
            return None
        if (named := named_folder(folder)) is not None:
            return f"{self._not_in(named)}; see levelbench data list {self.name} for what they are"
        if self.downloads and not offline():
            return None
        if self.downloads:
            return "its files are not on this machine, and LEVELBENCH_OFFLINE forbids downloading them"
        return f"its files are not on this machine; levelbench data list {self.name} says how to get them"

    def awaits(self, folder: Path | None = None) -> str | None:
        """How much is downloaded at the first use; ``None`` if the files are on this machine or unavailable."""
        return self.size if self.lacks(folder) is None and self.found(folder) is None else None

    def where(self, folder: Path | None = None) -> str | None:
        """The folder of the files and its label, and a note if LEVELBENCH_DATA does not have them."""
        found = self.found(folder)
        if found is None:
            return None
        said = os.environ.get("LEVELBENCH_DATA")
        passed = said and named_folder(folder) is None and found.label != "LEVELBENCH_DATA"
        also = f"; LEVELBENCH_DATA ({said}) does not have its files" if passed else ""
        return f"{found.folder} ({found.label}){also}"

    def fetch(self, folder: Path | None = None, progress: Progress = silent) -> None:
        """Download the files to the cache unless they are on this machine; raises the errors of ``load``."""
        self.located(folder, progress)

    def located(self, folder: Path | None, progress: Progress = silent) -> Found:
        """Where the files are, after a download if necessary.

        :raises MissingError: when they are not found and cannot be downloaded, or are not in the folder named for them.
        """
        found = self.found(folder)
        if found is not None:
            return found
        if (named := named_folder(folder)) is not None:
            raise MissingError(
                f"--data {named} for the dataset {self.name} ({self.size})",
                self._not_in(named),
                f"name the folder that has them (see levelbench data list {self.name}), or leave --data "
                "out to search elsewhere and download them"
                if self.downloads
                else f"get them: {self.ways}",
            )
        if not self.downloads:
            raise self._missing(folder, self.why_not)
        if offline():
            raise self._missing(folder, "LEVELBENCH_OFFLINE forbids downloading it")
        try:
            return Found("downloaded", self.download(progress), cache_folder() / self.name)
        except MissingError as error:
            raise self._missing(folder, f"the download failed ({error.asked}: {error.found})") from error

    def _not_in(self, named: Path) -> str:
        return "its files are not there" if os.path.exists(named) else "there is no such file or folder"  # noqa: PTH110

    def _missing(self, folder: Path | None, why: str) -> MissingError:
        looked = ", ".join(f"{place.label} ({place.folder})" for place in self.places(folder))
        return MissingError(
            f"the dataset {self.name} ({self.size})", f"it is not in {looked}, and {why}", f"Get it: {self.ways}"
        )


def folders_of(folder: Path, word: str) -> list[Path]:
    """``folder``, and the folders in it whose names contain ``word`` (in lower case), each with its folder ``raw``."""
    candidates = [folder]
    # ``access`` first, as ``is_dir`` raises for a folder without permission.
    if os.access(folder, os.R_OK | os.X_OK) and folder.is_dir():
        named = (child for child in sorted(folder.iterdir()) if word in child.name.lower())
        candidates += [each for child in named for each in (child, child / "raw")]
    return candidates

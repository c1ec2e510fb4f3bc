"""Downloads one file over HTTP, checked by SHA-256, resumed after an interruption, and renamed only when complete.

Until the checksum matches, the file is called ``.part``. Whatever happens (a dying server, a full disk, a killed
process), a file under the final name is the expected one, and the next call resumes from the part.
"""

from __future__ import annotations

import fcntl
import hashlib
import http.client
import os
import re
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import final
from urllib.error import HTTPError
from urllib.parse import urlsplit

from levelbench.errors import DataError, MissingError, StoreError, UsageError
from levelbench.training.datasets.base import Progress, silent

_CHUNK_BYTES = 1 << 16
_MOST_BYTES = 1 << 30
_WORTH_ANOTHER_TRY = frozenset({408, 425, 429, 500, 502, 503, 504})
_CONTENT_RANGE = re.compile(r"bytes ([0-9]{1,19})-([0-9]{1,19})/([0-9]{1,19}|\*)")
_CONTENT_LENGTH = re.compile(r"[0-9]{1,19}")


class _Interrupted(Exception):
    """An attempt failed in a way that may not repeat."""


def fetch(
    url: str,
    path: Path,
    sha256: str,
    *,
    digest: Callable[[Path], str] | None = None,
    most_bytes: int = _MOST_BYTES,
    opener: urllib.request.OpenerDirector | None = None,
    timeout_s: float = 30.0,
    attempts: int = 5,
    sleep: Callable[[float], None] = time.sleep,
    progress: Progress = silent,
) -> Path:
    """Download ``url`` to ``path`` and return ``path``; a correct file that is already there is left alone.

    ``sha256`` is the expected result of ``digest`` (by default the SHA-256 of the file's bytes; a digest that raises
    ``DataError`` does not match). ``timeout_s`` limits the wait for each answer and each read. Before attempt k the
    wait is min(8, 0.5 * 2^(k-2)) seconds. If two processes ask for the same file, the second waits for the first.

    :raises UsageError: when ``url`` is not an http or https address.
    :raises MissingError: when the server refuses, or every attempt is interrupted; the part stays for the next call.
    :raises DataError: when a complete file has another checksum or is larger than ``most_bytes``; the part is removed.
    :raises StoreError: when the folder cannot be written.
    """
    _require_http(url)
    transfer = _Transfer(
        url,
        path.with_name(f"{path.name}.part"),
        sha256,
        digest or file_digest,
        most_bytes,
        opener or http_opener(),
        timeout_s,
        progress,
    )
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with _locked(path.with_name(f"{path.name}.lock")):
            if not transfer.is_right(path):
                transfer.complete(attempts, sleep)
                _publish(transfer.part, path)
    except OSError as error:
        raise StoreError(
            f"download of {url} to {path}", str(error), "Make the folder writable, or free some disk space"
        ) from error
    return path


def file_digest(path: Path) -> str:
    """The SHA-256 of a file's bytes, in hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def http_opener() -> urllib.request.OpenerDirector:
    """An opener for http and https only, also after redirects, that honours the proxy settings."""
    opener = urllib.request.OpenerDirector()
    for handler in (
        urllib.request.ProxyHandler(),
        urllib.request.UnknownHandler(),
        urllib.request.HTTPHandler(),
        urllib.request.HTTPSHandler(),
        urllib.request.HTTPDefaultErrorHandler(),
        urllib.request.HTTPRedirectHandler(),
        urllib.request.HTTPErrorProcessor(),
    ):
        opener.add_handler(handler)
    return opener


def _require_http(url: str) -> None:
    try:
        parts = urlsplit(url)
        usable = parts.scheme in {"http", "https"} and parts.hostname and parts.port != 0
    except ValueError:
        usable = False
    if not usable or any(character.isspace() or not character.isprintable() for character in url):
        raise UsageError(
            f"download of {url}", "it is not an http or https address", "Give one, such as http://host/folder"
        )


@final
@dataclass(frozen=True)
class _Transfer:
    """A download in progress: its source, its part, and how to verify it."""

    url: str
    part: Path
    sha256: str
    digest: Callable[[Path], str]
    most_bytes: int
    opener: urllib.request.OpenerDirector
    timeout_s: float
    progress: Progress

    def is_right(self, path: Path) -> bool:
        """Whether ``path`` exists and is the expected file."""
        try:
            return path.is_file() and self.digest(path) == self.sha256
        except DataError:
            return False

    def complete(self, attempts: int, sleep: Callable[[float], None]) -> None:
        if self.is_right(self.part):  # an earlier process ended before renaming it
            return
        last = "none was allowed"
        for attempt in range(attempts):
            if attempt:
                sleep(min(8.0, 0.5 * 2 ** (attempt - 1)))
            resumed = self._part_bytes() > 0
            try:
                self._attempt()
            except _Interrupted as interruption:
                last = str(interruption)
                continue
            if self.is_right(self.part):
                return
            self.part.unlink()
            # A part of unknown origin may be to blame; bytes received in one go are what the server has.
            if not resumed:
                raise self._bad("its SHA-256 is not the expected " + self.sha256)
            last = "the resumed file had the wrong checksum and was removed"
        raise MissingError(
            f"download of {self.url}",
            f"{attempts} attempts failed, the last because {last}",
            "Check the connection and run again; the download resumes where it stopped",
        )

    def _part_bytes(self) -> int:
        return self.part.stat().st_size if self.part.exists() else 0

    def _attempt(self) -> None:
        """One request and its answer, appended to the part."""
        have = self._part_bytes()
        headers = {"User-Agent": "levelbench", "Accept-Encoding": "identity"}
        if have:
            headers["Range"] = f"bytes={have}-"
        with self._open(urllib.request.Request(self.url, headers=headers)) as response:
            start, total = self._response_range(response, have)
            if total is not None and total > self.most_bytes:
                raise self._too_large()
            with self.part.open("r+b" if start else "wb") as file:
                file.seek(start)
                done = self._write_response(response, file.write, start, total)
        if total is not None and done < total:
            raise _Interrupted(f"the connection ended after {done:,} of {total:,} bytes")

    def _open(self, request: urllib.request.Request) -> http.client.HTTPResponse:
        try:
            response: http.client.HTTPResponse = self.opener.open(request, timeout=self.timeout_s)
        except HTTPError as error:
            with error:
                raise self._status_error(error.code, error.reason) from None
        except ValueError as error:
            raise MissingError(
                f"download of {self.url}",
                f"it redirects to an invalid address ({error})",
                "Give an address that has the file",
            ) from error
        except (OSError, http.client.HTTPException) as error:
            raise _Interrupted(f"the server could not be reached ({error})") from error
        return response

    def _status_error(self, code: int, reason: object) -> Exception:
        if code == 416:
            self.part.unlink(missing_ok=True)
            return _Interrupted("the part on disk did not match the file on the server and was removed")
        if code in _WORTH_ANOTHER_TRY:
            return _Interrupted(f"the server answered {code} {reason}")
        return MissingError(
            f"download of {self.url}", f"the server answered {code} {reason}", "Give an address that has the file"
        )

    def _response_range(self, response: http.client.HTTPResponse, have: int) -> tuple[int, int | None]:
        """Where in the file this response starts, and the file's size if it is stated."""
        if response.status == 206:
            stated = _CONTENT_RANGE.fullmatch(response.headers.get("Content-Range", ""))
            if not have or stated is None or int(stated[1]) != have:
                self.part.unlink(missing_ok=True)
                raise _Interrupted("the server answered with a different range from the one requested")
            return have, None if stated[3] == "*" else int(stated[3])
        if response.status != 200:
            raise self._status_error(response.status, response.reason)
        length = response.headers.get("Content-Length", "")
        return 0, int(length) if _CONTENT_LENGTH.fullmatch(length) else None

    def _write_response(
        self, response: http.client.HTTPResponse, write: Callable[[bytes], object], start: int, total: int | None
    ) -> int:
        """Write the response's bytes; the size of the file afterwards."""
        done = start
        self.progress(done, total)
        while chunk := _read_chunk(response):
            done += len(chunk)
            if done > self.most_bytes:
                raise self._too_large()
            write(chunk)
            self.progress(done, total)
        return done

    def _too_large(self) -> DataError:
        self.part.unlink(missing_ok=True)
        return self._bad(f"the server sends more than the limit of {self.most_bytes:,} bytes")

    def _bad(self, found: str) -> DataError:
        return DataError(
            f"download of {self.url}", f"{found}; the part was removed", "Run again, or give another address"
        )


def _read_chunk(response: http.client.HTTPResponse) -> bytes:
    try:
        return response.read1(_CHUNK_BYTES)
    except (OSError, http.client.HTTPException) as error:
        raise _Interrupted(f"the connection broke ({error})") from error


def _publish(part: Path, path: Path) -> None:
    """Rename the part to its final name, durably: sync its bytes, rename it, sync the folder."""
    with part.open("rb") as file:
        os.fsync(file.fileno())
    part.replace(path)
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Hold the lock of ``path``; the operating system releases it when the process ends, however it ends."""
    with path.open("ab") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield

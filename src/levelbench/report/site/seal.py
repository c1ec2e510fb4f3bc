"""Tells what this user's own builds left in a site from what somebody sent with it.

The one idea: what a build remembers carries an HMAC under a key that lies in the user's cache and never in a site, over
the site's place too. So nothing that came with a checkout, or from another site, is believed; where there is no such
key, nothing is remembered and everything is built anew.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import secrets
import stat
from contextlib import suppress
from pathlib import Path

from levelbench.records.places import cache_folder

__all__ = ["plain_file", "seal", "unseal"]

_KEY = "site-key"
_KEY_BYTES = 32
_MAC_BYTES = hashlib.sha256().digest_size


def seal(site: Path, raw: bytes) -> bytes:
    """What goes before ``raw`` for ``unseal`` to give it back for the same site; empty where no key can be kept."""
    key = _read_key() or _make_key()
    return b"" if key is None else _mac(key, site, raw)


def unseal(site: Path, sealed: bytes) -> memoryview | None:
    """What was sealed for this site by this user; ``None`` for anything else."""
    key = _read_key()
    if key is None or len(sealed) < _MAC_BYTES:
        return None
    # It may be tens of megabytes: it is not copied.
    raw = memoryview(sealed)[_MAC_BYTES:]
    return raw if hmac.compare_digest(sealed[:_MAC_BYTES], _mac(key, site, raw)) else None


def plain_file(path: Path, most: int) -> tuple[bytes, os.stat_result] | None:
    """The content of a regular file of at most ``most`` bytes, and what it is; ``None`` for a link or anything else."""
    try:
        # Not blocking: a named pipe would keep us waiting for somebody to write to it.
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW)
    except OSError:
        return None
    with os.fdopen(descriptor, "rb") as file:
        facts = os.fstat(descriptor)
        if not stat.S_ISREG(facts.st_mode) or facts.st_size > most:
            return None
        try:
            return file.read(), facts
        except OSError:
            return None


def _mac(key: bytes, site: Path, raw: bytes | memoryview) -> bytes:
    place = os.fsencode(site.resolve())
    digest = hmac.new(key, len(place).to_bytes(8, "big") + place, hashlib.sha256)
    digest.update(raw)
    return digest.digest()


def _cache_folder() -> Path | None:
    """That of downloads; ``None`` for a user without a home."""
    try:
        return cache_folder()
    except RuntimeError:
        return None


def _read_key() -> bytes | None:
    """The key, if it is this user's and nobody else may read it."""
    folder = _cache_folder()
    found = None if folder is None else plain_file(folder / _KEY, _KEY_BYTES)
    if found is None:
        return None
    key, facts = found
    return key if len(key) == _KEY_BYTES and facts.st_uid == os.getuid() and not facts.st_mode & 0o077 else None


def _make_key() -> bytes | None:
    folder = _cache_folder()
    if folder is None:
        return None
    key, beside = secrets.token_bytes(_KEY_BYTES), folder / f".{_KEY}.{secrets.token_hex(4)}.part"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.write(key)
        beside.replace(folder / _KEY)
    except OSError:
        return None
    finally:
        with suppress(OSError):
            beside.unlink(missing_ok=True)
    return key

"""Signatures of entries (Ed25519) and the rules about them: whose key signed, and whether it is the author's."""

from __future__ import annotations

import base64
import binascii
import hashlib
import os
import tomllib
from collections.abc import Iterator, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from levelbench.competition.checks import EntryFinding, error, shown, warning
from levelbench.competition.checks.identity import skeleton
from levelbench.competition.entries import Submission, UnreadableError, read_bytes, write_whole
from levelbench.errors import DefinitionError, LevelbenchError, MissingError, StoreError, UsageError

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey


AUTHORS = "authors.toml"
ENDING = ".sig"
_PREFIX = "ed25519:"
_MOST_BYTES = 1 << 20
_SIGNATURE_BYTES = 64
_SIGNATURE_FILE_BYTES = 4096


def available() -> bool:
    """Whether this installation can make and verify signatures."""
    return find_spec("cryptography") is not None


def _need(asked: str) -> None:
    if not available():
        raise MissingError(asked, "cryptography is not installed", "install the extra: pip install levelbench[sign]")


def new_key(path: Path) -> str:
    """Make a key, write it to ``path`` (mode 600, never overwriting a file) and return its public text."""
    asked = f"making the key {path}"
    _need(asked)
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

    key = Ed25519PrivateKey.generate()
    raw = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
    except FileExistsError:
        raise UsageError(asked, "the file exists, and keys are never overwritten", "give another name") from None
    except OSError as error:
        raise StoreError(asked, error.strerror or str(error), "choose a writable folder") from error
    with os.fdopen(descriptor, "wb") as file:
        file.write(raw)
        file.flush()
        os.fsync(descriptor)
    return public_text(key.public_key())


def read_key(path: Path) -> Ed25519PrivateKey:
    """The private key in a PEM file; ``UsageError`` for another kind of key or file."""
    asked = f"reading the key {path}"
    _need(asked)
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    try:
        if path.stat().st_size > _MOST_BYTES:
            raise UsageError(asked, "it is too large to be a key", "give the PEM file of a private key")
        raw = path.read_bytes()
    except OSError as error:
        raise StoreError(asked, error.strerror or str(error), "give the path of a key") from error
    try:
        key = load_pem_private_key(raw, password=None)
    except (ValueError, TypeError, UnsupportedAlgorithm) as error:
        found = f"it is not a PEM file with an unencrypted private key ({str(error)[:100]})"
        raise UsageError(asked, found, "make one: levelbench board keys new NAME -o FILE") from error
    if not isinstance(key, Ed25519PrivateKey):
        raise UsageError(asked, "it is another kind of key", "make an Ed25519 key: levelbench board keys new")
    return key


def public_text(key: Ed25519PublicKey) -> str:
    """``ed25519:`` and the key's 32 bytes in base64."""
    return _PREFIX + base64.b64encode(key.public_bytes_raw()).decode("ascii")


def fingerprint(public: str) -> str:
    """``SHA256:`` and the digest of the key's bytes in base64 without padding; ``UsageError`` if it is not a key."""
    digest = hashlib.sha256(_key_bytes(public)).digest()
    return "SHA256:" + base64.b64encode(digest).decode("ascii").rstrip("=")


def _key_bytes(public: str) -> bytes:
    asked = f"the public key {public[:60]!r}"
    do = "write it as levelbench board keys show prints it"
    if not public.startswith(_PREFIX):
        raise UsageError(asked, f"it does not begin with {_PREFIX}", do)
    try:
        raw = base64.b64decode(public[len(_PREFIX) :], validate=True)
    except (binascii.Error, ValueError) as error:
        raise UsageError(asked, "it is not base64", do) from error
    if len(raw) != 32:
        raise UsageError(asked, f"it has {len(raw)} bytes instead of 32", do)
    return raw


def read_authors(path: Path) -> dict[str, list[str]]:
    """The keys by author in an ``authors.toml``, none if there is no file; ``DefinitionError`` for a malformed one."""
    asked = f"reading {path}"
    do = 'write "Name" = ["ed25519:..."], one line per author'
    if not path.is_symlink() and not path.exists():
        return {}
    raw = read_bytes(path, limit=_MOST_BYTES)
    try:
        read: dict[str, Any] = tomllib.loads(raw.decode("utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise DefinitionError(asked, f"it is not TOML ({error})", do) from error
    found: dict[str, list[str]] = {}
    owners: dict[bytes, str] = {}
    for name, keys in read.items():
        listed = [keys] if isinstance(keys, str) else keys
        if not isinstance(listed, list) or not all(isinstance(key, str) for key in listed):
            raise DefinitionError(asked, f"the keys of {name!r} are not a list of strings", do)
        for key in listed:
            try:
                owner = owners.setdefault(_key_bytes(key), name)
            except UsageError as error:
                raise DefinitionError(asked, f"a key of {name!r}: {error.found}", error.do) from error
            if owner != name:
                do = "give each author another key, or list one of the names"
                raise DefinitionError(asked, f"{owner!r} and {name!r} have the same key", do)
        found[name] = listed
    return found


def sign(path: Path, key: Path, raw: bytes | None = None) -> Path:
    """Sign the file at ``path`` with the key in the file ``key`` and write the signature next to it.

    An old signature is replaced. ``raw``: the bytes that the caller inspected; they are signed, even if the file has
    changed since.
    """
    raw = read_bytes(path) if raw is None else raw
    return write_whole(path.with_name(path.name + ENDING), base64.b64encode(read_key(key).sign(raw)) + b"\n")


def signature_of(raw: bytes, signature: bytes, keys: Sequence[str]) -> str | None:
    """The public key among ``keys`` that signed ``raw``; ``None`` if none of them did."""
    _need("verifying a signature")
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

    try:
        plain = base64.b64decode(signature.strip(), validate=True)
    except (binascii.Error, ValueError):
        return None
    if len(plain) != _SIGNATURE_BYTES:
        return None
    for key in keys:
        try:
            Ed25519PublicKey.from_public_bytes(_key_bytes(key)).verify(plain, raw)
        except InvalidSignature:
            continue
        return key
    return None


class Signing:
    """The authors of a leaderboard and their keys. ``problems`` are findings about its ``authors.toml``."""

    def __init__(self, root: Path) -> None:
        self.problems: list[EntryFinding] = []
        self._authors: dict[str, list[str]] = {}
        try:
            self._authors = read_authors(root / AUTHORS)
        except LevelbenchError as problem:
            self.problems.append(error("B252", AUTHORS, "", problem.found, problem.do))
        self._others = {key: name for name, keys in self._authors.items() for key in keys}
        self._alike = {skeleton(name): name for name, keys in self._authors.items() if keys}

    def check(self, path: Path, file: str, raw: bytes, submission: Submission) -> Iterator[EntryFinding]:
        """The findings about the signature of the entry in ``path``, whose bytes are ``raw``."""
        signature_path, name = f"{path}{ENDING}", submission.author.name
        own = self._authors.get(name, [])
        alike = None if own else self._alike.get(skeleton(name))
        if alike is not None:
            found = f"{shown(name)} looks like {shown(alike)}, who has a key in {AUTHORS}"
            yield error("B237", file, "author.name", found, "write the name as it is there and sign, or use another")
        if not os.path.lexists(signature_path):
            if own:
                found = f"{shown(name)} has a key in {AUTHORS}, but this entry has no signature"
                yield warning("B234", file, "author.name", found)
            if submission.author.key:
                found = f"it is {shown(submission.author.key)}, but the entry has no signature"
                yield warning("B238", file, "author.key", found)
            return
        if not available():
            yield warning("B231", f"{file}{ENDING}", "", "cryptography is not installed")
            return
        try:
            signature = read_bytes(signature_path, limit=_SIGNATURE_FILE_BYTES)
        except UnreadableError as problem:
            yield error("B230", f"{file}{ENDING}", "", problem.found, problem.do)
            return
        signed = f"{file}{ENDING}"
        key = signature_of(raw, signature, own)
        if key is not None:
            stated = submission.author.key
            if stated is not None and stated != fingerprint(key):
                yield error("B235", file, "author.key", f"it is {shown(stated)}; {fingerprint(key)} signed")
            return
        other = signature_of(raw, signature, list(self._others))
        if other is not None:
            found = f"signed with the key of {shown(self._others[other])}, but the entry is from {shown(name)}"
            do = f"sign with a key of {shown(name)}, or name {shown(self._others[other])} as the author"
            yield error("B233", signed, "", found, do)
        elif not own:
            found = f"{shown(name)} has no key in {AUTHORS}, so the signer is unknown"
            yield warning("B232", signed, "", found, f"add the author's public key to {AUTHORS}")
        else:
            found = f"it is not a signature of these bytes by {shown(name)}"
            yield error("B230", signed, "", found, "sign the file again, after its last change")

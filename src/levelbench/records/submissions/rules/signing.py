"""Rules about signatures: whose key signed an entry, and whether that is who the entry says it is from."""

from __future__ import annotations

import os
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path

from levelbench.errors import LevelbenchError
from levelbench.records.submissions.names import skeleton
from levelbench.records.submissions.reading import UnreadableError, read_bytes
from levelbench.records.submissions.rules.entry import shown
from levelbench.records.submissions.rules.findings import Finding, error, warning
from levelbench.records.submissions.schema import Submission
from levelbench.records.submissions.signatures import (
    AUTHORS,
    ENDING,
    available,
    fingerprint,
    read_authors,
    signature_of,
)

__all__ = ["Signing"]

_MOST_BYTES = 4096


class Signing:
    """A leaderboard's authors and their keys. ``problems`` says what of its ``authors.toml`` cannot be used."""

    def __init__(self, root: Path) -> None:
        self.problems: list[Finding] = []
        self._authors: dict[str, list[str]] = {}
        try:
            self._authors = read_authors(root / AUTHORS)
        except LevelbenchError as problem:
            self.problems.append(error("B252", AUTHORS, "", problem.found, problem.do))

    @cached_property
    def _others(self) -> dict[str, str]:
        """The author of each key."""
        return {key: name for name, keys in self._authors.items() for key in keys}

    @cached_property
    def _alike(self) -> dict[str, str]:
        """The author of each name's skeleton."""
        return {skeleton(name): name for name, keys in self._authors.items() if keys}

    def check(self, path: Path, file: str, raw: bytes, submission: Submission) -> Iterator[Finding]:
        """What is wrong with the signature of the entry in ``path``, whose bytes are ``raw``."""
        beside, name = f"{path}{ENDING}", submission.author.name
        own = self._authors.get(name, [])
        alike = self._alike.get(skeleton(name)) if not own else None
        if alike is not None:
            found = f"{shown(name)} looks like {shown(alike)}, who has a key in {AUTHORS}"
            yield error("B237", file, "author.name", found, "write the name as it is there and sign, or use another")
        if not os.path.lexists(beside):
            if own:
                found = f"{shown(name)} has a key in {AUTHORS}, and this entry has no signature"
                yield warning("B234", file, "author.name", found, "sign it: levelbench board keys sign FILE --key KEY")
            if submission.author.key:
                found = f"it is {shown(submission.author.key)}, and the entry has no signature"
                yield warning("B238", file, "author.key", found, "sign the entry, or leave the key out")
            return
        if not available():
            do = "install the extra: pip install levelbench[sign]"
            yield warning("B231", f"{file}{ENDING}", "", "cryptography is not installed", do)
            return
        try:
            signature = read_bytes(beside, limit=_MOST_BYTES)
        except UnreadableError as problem:
            yield error("B230", f"{file}{ENDING}", "", problem.found, problem.do)
            return
        yield from self._judged(file, raw, signature, submission, own)

    def _judged(
        self, file: str, raw: bytes, signature: bytes, submission: Submission, own: list[str]
    ) -> Iterator[Finding]:
        name, signed = submission.author.name, f"{file}{ENDING}"
        key = signature_of(raw, signature, own)
        if key is not None:
            stated = submission.author.key
            if stated is not None and stated != fingerprint(key):
                found = f"it is {shown(stated)}; {fingerprint(key)} signed"
                yield error("B235", file, "author.key", found, "name the key that signs")
            return
        other = signature_of(raw, signature, list(self._others))
        if other is not None:
            found = f"signed with the key of {shown(self._others[other])}, and the entry is from {shown(name)}"
            do = f"sign with a key of {shown(name)}, or name {shown(self._others[other])} as the author"
            yield error("B233", signed, "", found, do)
        elif not own:
            found = f"{shown(name)} has no key in {AUTHORS}, so nobody can tell whose signature it is"
            yield warning("B232", signed, "", found, f"add the author's public key to {AUTHORS}")
        else:
            found = f"it is not a signature of {shown(name)} over these bytes"
            yield error("B230", signed, "", found, "sign the file again, after its last change")

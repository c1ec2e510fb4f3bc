"""Reads a submission that somebody else wrote: under limits, and with an error that says where and what to do.

Size, depth and duplicate keys are looked at in the bytes, before anything is built of them; then the schema refuses
what it does not know. What comes back is well-formed, and nothing in it is believed yet.
"""

from __future__ import annotations

import json
import os
import re
import stat
from collections import Counter
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import msgspec

from levelbench.competition.entries import SUBMISSION_SCHEMA, Submission
from levelbench.errors import RecordError


def seen(text: str, most: int = 60) -> str:
    """``text`` cut to ``most`` characters, with escapes for what cannot be seen: it is printed, in one line."""
    cut = text if len(text) <= most else f"{text[: most - 3]}..."
    return cut if cut.isprintable() else cut.encode("unicode_escape").decode("ascii")


FILE_LIMIT = 16 << 20
"""The largest file in bytes that is read."""
DEPTH_LIMIT = 16
"""How deep objects and lists may be nested; the schema itself needs five."""
_LONGEST_NAME = 200
_TOO_LONG = re.compile(r"Expected `(?:array|object)` of length <= ")

_DECODER = msgspec.json.Decoder(Submission)
_ANYTHING = msgspec.json.Decoder()
# Possessive, and a text that never ends is taken to the end of the file: nothing is ever looked at twice.
_STRING = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+(?:"|\\?\Z)', re.DOTALL)
_NO_SHAPE = bytes(set(range(256)) - set(b"[]{}:"))
_PLACE = re.compile(r"\s{0,4}-?\s{0,4}at `(?:key` in `|key in )?\$\.?([^`]*)`")
_MALFORMED = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)


class UnreadableError(RecordError):
    """A file that is no submission: ``code`` names the rule that it breaks, ``field`` where, if it is known.

    ``brief`` is ``found`` for whoever says the field beside it.
    """

    def __init__(
        self, asked: str, found: str, do: str, code: str = "B101", field: str = "", brief: str | None = None
    ) -> None:
        super().__init__(asked, found, do)
        self.code = code
        self.field = field
        self.brief = found if brief is None else brief


class _Preamble(msgspec.Struct):
    schema: Any = None


def read_submission(path: str | Path, *, root: str | Path | None = None) -> Submission:
    """The submission in the file at ``path``, which must lie in the folder ``root`` where one is given.

    Raises ``UnreadableError`` (a ``RecordError``) for whatever is not a submission within the limits.
    """
    path = Path(path)
    return parse_submission(read_bytes(path, root=root), f"reading the submission {path}")


def read_bytes(path: str | Path, *, root: str | Path | None = None, limit: int = FILE_LIMIT) -> bytes:
    """The bytes of a regular file of at most ``limit`` bytes; no link is followed, inside of ``root`` or to it."""
    asked = f"reading the submission {path}"
    if root is not None and not _lies_in(Path(path), Path(root)):
        raise UnreadableError(asked, f"it lies outside of {root}", "give a file in the folder")
    try:
        # Not blocking: a named pipe would keep us waiting for somebody to write to it.
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW)
    except FileNotFoundError:
        raise UnreadableError(asked, "there is no such file", "check the path") from None
    except (OSError, ValueError) as error:
        found = "it is a link" if Path(path).is_symlink() else getattr(error, "strerror", None) or str(error)
        raise UnreadableError(asked, found, "give the path of a regular file") from error
    try:
        facts = os.fstat(descriptor)
        if not stat.S_ISREG(facts.st_mode):
            raise UnreadableError(asked, "it is not a regular file", "give the path of a regular file")
        raw = b"" if facts.st_size > limit else _read(descriptor, facts.st_size, limit)
    finally:
        os.close(descriptor)
    if facts.st_size > limit or len(raw) > limit:
        found = f"it has {max(facts.st_size, len(raw))} bytes, more than {limit}"
        raise UnreadableError(asked, found, "submit fewer runs, or thinner curves, in one file")
    return raw


def _read(descriptor: int, size: int, limit: int) -> bytes:
    """All of an open file that was of ``size`` bytes a moment ago; of one that grows not much more than ``limit``.

    Some file systems call every file empty, so no call asks for less than 64 KiB.
    """
    parts: list[bytes] = []
    left = limit + 1
    # Asked for as much as there is and one byte more: to ask for the limit would take that much memory each time.
    while left > 0 and (part := os.read(descriptor, min(left, max(size + 1, 1 << 16)))):
        parts.append(part)
        left -= len(part)
    return parts[0] if len(parts) == 1 else b"".join(parts)


def _lies_in(path: Path, root: Path) -> bool:
    """Whether ``path`` is below ``root`` with no link on its way there."""
    inside = root.resolve()
    plain = inside.joinpath(path.relative_to(root)) if path.is_relative_to(root) else path
    return plain.is_relative_to(inside) and plain.resolve() == plain


def parse_submission(raw: bytes, asked: str = "reading a submission") -> Submission:
    """The submission that ``raw`` writes; ``UnreadableError`` (about ``asked``) for whatever is none."""
    if len(raw) > FILE_LIMIT:
        raise UnreadableError(asked, f"it has {len(raw)} bytes, more than {FILE_LIMIT}", "submit fewer runs")
    if raw.startswith(b"\xef\xbb\xbf"):
        raise UnreadableError(asked, "it begins with a byte order mark", "save it as UTF-8 without one")
    shape = _shape(raw)
    if _is_too_deep(shape):
        raise UnreadableError(asked, f"it is nested deeper than {DEPTH_LIMIT}", "write a submission", code="B102")
    _refuse_other_schema(raw, asked)
    try:
        submission = _DECODER.decode(raw)
        repeated = _keys(_ANYTHING.decode(raw)) != shape.count(b":")
    except msgspec.ValidationError as error:
        raise _invalid(error, asked) from error
    except _MALFORMED as error:
        raise UnreadableError(asked, f"it is not JSON ({error})", "correct the file") from error
    if repeated:
        # A decoder keeps the last of two equal keys, a reader sees the first.
        name = seen(_repeated_key(raw))
        raise UnreadableError(asked, f"the key {name} is there twice in one object", "keep one", "B104", name)
    for field, name in (("target.metric", submission.target.metric), ("target.split", submission.target.split)):
        if len(name) > _LONGEST_NAME:
            found = f"{field} has {len(name)} characters, more than {_LONGEST_NAME}"
            raise UnreadableError(asked, found, "name what was measured", code="B102", field=field)
    return submission


def _shape(raw: bytes) -> bytes:
    """The brackets and colons outside of texts: all of a file's shape in a thousandth of its length."""
    if b"\\" not in raw:
        # Without an escape every quote begins or ends a text: so are nearly all files, and to cut them is quicker.
        return b"".join(raw.split(b'"')[::2]).translate(None, _NO_SHAPE)
    return _STRING.sub(b"", raw).translate(None, _NO_SHAPE)


def _is_too_deep(shape: bytes) -> bool:
    """Whether brackets are open within more than ``DEPTH_LIMIT`` others, closed or not."""
    depth = 0
    for each in shape:
        depth += (each in b"[{") - (each in b"]}")
        if depth > DEPTH_LIMIT:
            return True
    return False


def _refuse_other_schema(raw: bytes, asked: str) -> None:
    try:
        schema = msgspec.json.decode(raw, type=_Preamble).schema
    except msgspec.ValidationError as error:
        raise _invalid(error, asked) from error
    except _MALFORMED as error:
        raise UnreadableError(asked, f"it is not JSON ({error})", "correct the file") from error
    if isinstance(schema, int) and not isinstance(schema, bool) and schema > SUBMISSION_SCHEMA:
        found = f"it was written in schema {schema} and this version reads up to schema {SUBMISSION_SCHEMA}"
        raise UnreadableError(asked, found, "upgrade levelbench to read it", code="B103", field="schema")
    if schema is not None and (isinstance(schema, bool) or not isinstance(schema, int) or schema < 1):
        found = f"its schema is {seen(repr(schema))}"
        raise UnreadableError(asked, found, f"write {SUBMISSION_SCHEMA}", code="B103", field="schema")


_NESTED = frozenset({dict, list})


def _keys(value: Any) -> int:
    """How many keys came out of a submission; its lists hold objects only, or none."""
    count, left = 0, [value]
    while left:
        each = left.pop()
        if isinstance(each, dict):
            count += len(each)
            left += [inner for inner in each.values() if inner.__class__ in _NESTED]
        elif each and isinstance(each[0], dict):
            left += each
    return count


def _repeated_key(raw: bytes) -> str:
    repeated: list[str] = []

    def note(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        names = Counter(name for name, _ in pairs)
        repeated.extend(name for name, times in names.items() if times > 1)
        return dict(pairs)

    json.loads(raw, object_pairs_hook=note)
    return repeated[0]


def _invalid(error: msgspec.ValidationError, asked: str) -> UnreadableError:
    text = str(error)
    place = _PLACE.search(text)
    field = place[1] if place else ""
    found = _PLACE.sub("", text).strip()
    if match := re.search(r"(?:missing required|unknown) field `([^`]*)`", found):
        field = f"{field}.{match[1]}" if field else match[1]
        found = "a field is missing" if match[0].startswith("missing") else "no field has that name"
    field, found = seen(field, 200), seen(found, 400)
    if _TOO_LONG.match(found):
        most = found.rpartition(" ")[2]
        found = f"{field} has more than {most} elements"
        return UnreadableError(asked, found, "submit fewer in one file", code="B102", field=field)
    whole = f"it is not a submission: {found}{f' at {field}' if field else ''}"
    do = "correct the field; docs/submission.md has every field"
    return UnreadableError(asked, whole, do, code="B105", field=field, brief=found)


_UNSAFE = re.compile(r"[\s\"'<>\\`]")


def is_address(text: str) -> bool:
    """Whether ``text`` is an address with http or https and a host, and has nothing that an address must not.

    >>> is_address("https://example.org/board"), is_address("javascript:alert(1)"), is_address("example.org")
    (True, False, False)
    """
    try:
        parts = urlsplit(text)
    except ValueError:
        return False
    return parts.scheme in ("http", "https") and bool(parts.netloc) and _UNSAFE.search(text) is None

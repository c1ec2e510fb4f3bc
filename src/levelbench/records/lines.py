"""Encodes and decodes the lines of records, with the checksum that chains each to the previous line.

JSON has neither NaN nor infinity, but a diverged run has, so they are written as the strings ``"nan"``, ``"inf"`` and
``"-inf"``, and decoded as numbers.

A line of a chained file ends with ``,"sum":"..."}``: 64 bits of BLAKE2b over the previous line's checksum and all bytes
of the line before this member, so white space and the order of keys count. This finds damage and careless edits.
Anyone who edits a line can recompute the sums, so they do not authenticate an author.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from hashlib import blake2b
from typing import Any, Generic, Protocol, TypeVar, get_args

import msgspec

from levelbench.errors import RecordError
from levelbench.records.schema import SCHEMA, Event, Header

__all__ = ["CHAINED_SINCE", "LINE_LIMIT", "MALFORMED", "RESTORE", "RUN", "Chain", "Format", "InvalidLine"]
__all__ += ["chain_from", "checksum_in", "encode", "encode_file", "first_line", "sealed"]

LINE_LIMIT = 64 * 1024 * 1024
"""The longest line in bytes that is written or read."""

MALFORMED = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
"""What the decoders raise for bytes that are not a line: truncated, not JSON, not UTF-8, or nested too deeply."""

CHAINED_SINCE = 2
"""The first schema with chained lines, for every kind of record."""

_SUM_BYTES = 8
_SUM = re.compile(rb',"sum":"([0-9a-f]{16})"}\n')
_MEMBER = len(',"sum":""}\n') + 2 * _SUM_BYTES
"""Bytes of the member with the checksum and the end of the line."""
RESTORE = "restore the record from a copy, or remove the file"


class InvalidLine(Exception):
    """A complete line of JSON that is not valid in a record."""


class _Preamble(msgspec.Struct):
    """The part of the first line that is the same in every schema."""

    kind: str = ""
    schema: int = 0


def _builtin(value: object) -> object:
    """The plain value of a NumPy or torch scalar or array, which msgspec does not support."""
    tolist = getattr(value, "tolist", None)
    if tolist is None:
        raise TypeError(f"a record cannot hold a {type(value).__name__}")
    return tolist()


_ENCODER = msgspec.json.Encoder(enc_hook=_builtin)
_PREAMBLE = msgspec.json.Decoder(_Preamble)


def encode(line: msgspec.Struct) -> bytes:
    """The line with its newline. NumPy scalars and arrays become plain values; for NaN see the module."""
    try:
        raw = _ENCODER.encode(line)
    except UnicodeEncodeError:
        raw = b"null"
    # msgspec writes NaN and infinity as null. Only lines with a null are encoded again, to keep the others fast.
    if b"null" in raw:
        raw = _ENCODER.encode(_plain(msgspec.to_builtins(line, str_keys=True, enc_hook=_builtin)))
    return raw + b"\n"


def _plain(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if isinstance(value, str):
        # A lone surrogate (from an undecodable path in an error's text) has no UTF-8.
        return value.encode("utf-8", "backslashreplace").decode("utf-8")
    if isinstance(value, dict):
        return {_plain(key): _plain(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    return value


def sealed(line: bytes, before: str) -> bytes:
    """``line``, an encoded object with its newline, with a checksum added; ``before`` is the previous line's."""
    body = line[:-2]
    return body + _member(_checksum(body, before))


def _checksum(body: bytes, before: str) -> str:
    return blake2b(before.encode() + body, digest_size=_SUM_BYTES).hexdigest()


def _member(checksum: str) -> bytes:
    return b',"sum":"%b"}\n' % checksum.encode()


def checksum_in(line: bytes) -> str:
    """The checksum in a line, not verified; empty if there is none."""
    found = _SUM.fullmatch(line, max(0, len(line) - _MEMBER))
    return found[1].decode() if found else ""


def first_line(header: Any) -> bytes:
    """The first line of a file, with a checksum if its schema has them."""
    line = encode(header)
    return sealed(line, "") if header.schema >= CHAINED_SINCE else line


def encode_file(header: Any, events: Iterable[Any]) -> bytes:
    """A complete file, as a writer leaves it."""
    written = [first_line(header)]
    for each in events:
        line, before = encode(each), checksum_in(written[-1])
        written.append(sealed(line, before) if before else line)
    return b"".join(written)


class Chain:
    """Checks the lines of one file in order. ``last`` is the checksum of the last valid line.

    A file of an older schema is not chained: ``last`` stays empty, and a line with a checksum is invalid.
    """

    def __init__(self, chained: bool = True) -> None:
        self.chained, self.last = chained, ""

    def holds(self, line: bytes) -> bool:
        """Whether ``line``, with its newline, is valid after the lines checked so far."""
        return self._next(line) is not None

    def check(self, line: bytes) -> None:
        """Check the next line; ``InvalidLine`` if it is not valid."""
        found = self._next(line)
        if found is None:
            carried = checksum_in(line)
            if self.chained:
                raise InvalidLine("its checksum is not that of its bytes" if carried else "it has no checksum")
            raise InvalidLine("it has a checksum, but by its header this record has none")
        self.last = found

    def _next(self, line: bytes) -> str | None:
        """The checksum of a valid line, empty without a chain; ``None`` for an invalid line."""
        if not self.chained:
            return None if checksum_in(line) else ""
        expected = _checksum(line[:-_MEMBER], self.last)
        return expected if line[-_MEMBER:] == _member(expected) else None


def chain_from(line: bytes, schema: int, asked: str) -> Chain:
    """The chain after the header ``line`` of a file of ``schema``; ``RecordError`` for an invalid header."""
    chain = Chain(schema >= CHAINED_SINCE)
    try:
        if schema < 1:
            raise InvalidLine(f"there is no schema {schema}")
        chain.check(line)
    except InvalidLine as error:
        raise RecordError(asked, f"line 1 is damaged: {error}", RESTORE) from error
    return chain


class _AnyHeader(Protocol):
    """The fields that headers of all kinds of records have."""

    @property
    def schema(self) -> int: ...
    @property
    def id(self) -> str: ...
    @property
    def key(self) -> str: ...
    @property
    def seed(self) -> int: ...
    @property
    def started(self) -> str: ...
    @property
    def specification(self) -> Any: ...


H = TypeVar("H", bound=_AnyHeader)
E = TypeVar("E")


class Format(Generic[H, E]):
    """The lines of one kind of record: a header of type ``header``, then events, one of which is the end.

    ``name`` is the kind's name in messages.
    """

    def __init__(self, name: str, header: type[H], events: object) -> None:
        """``events`` is the union of the types of events; the one with the tag ``end`` is the last in a file."""
        self.name = name
        self.end: type[Any] = next(each for each in get_args(events) if each.__struct_config__.tag == "end")
        self._tag = header.__struct_config__.tag  # type: ignore[attr-defined]
        self._header = msgspec.json.Decoder(header)
        # Lax, so that "nan" and "inf" are decoded as numbers where the field is a number.
        self._event: msgspec.json.Decoder[E] = msgspec.json.Decoder(events, strict=False)

    def decode_header(self, line: bytes, asked: str) -> H:
        """The header in a record's first line; ``RecordError`` (about ``asked``) if it cannot be read."""
        try:
            preamble = _PREAMBLE.decode(line)
            if preamble.kind == self._tag and preamble.schema > SCHEMA:
                found = f"it was written in schema {preamble.schema} and this version reads up to schema {SCHEMA}"
                raise RecordError(asked, found, "upgrade levelbench to read it")
            return self._header.decode(line)
        except MALFORMED as error:
            found = f"line 1 is not the header of a {self.name} ({_reason(error)})"
            raise RecordError(asked, found, RESTORE) from error

    def decode_event(self, line: bytes) -> E:
        """The event in a line.

        Raises one of ``MALFORMED`` for bytes that are not JSON, ``InvalidLine`` for JSON that is not an event.
        """
        try:
            return self._event.decode(line)
        except msgspec.ValidationError as error:
            raise InvalidLine(_reason(error)) from error


RUN: Format[Header, Event] = Format("record", Header, Event)
"""The record of a run."""


def _reason(error: BaseException) -> str:
    return "nested too deeply" if isinstance(error, RecursionError) else str(error)

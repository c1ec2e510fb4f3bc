"""One line of a record: to bytes and back, with the checksum that chains it to the line before.

JSON has no NaN and no infinity, and a diverged run has both, so a figure that is not finite is written as the string
``"nan"``, ``"inf"`` or ``"-inf"`` and read back as the figure.

A line of a chained file ends with ``,"sum":"..."}``: 64 bits of BLAKE2b over the checksum of the line before and all
bytes of the line up to that member. The check is on bytes, so white space and the order of keys count. It finds damage
and careless edits; whoever edits a line can compute the sums again, so it says nothing about who wrote the file.
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

__all__ = ["CHAINED_SINCE", "LINE_LIMIT", "MALFORMED", "RUN", "Chain", "Format", "InvalidLine"]
__all__ += ["chain_from", "checksum_in", "encode", "encode_file", "first_line", "sealed"]

LINE_LIMIT = 64 * 1024 * 1024
"""The longest line in bytes that is written or read."""

MALFORMED = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
"""What the decoders raise at bytes that are not a line: torn, not JSON, not UTF-8, or nested beyond reason."""

CHAINED_SINCE = 2
"""The schema from which on the lines of a file are chained: the same number for every kind of record."""

_SUM_BYTES = 8
_SUM = re.compile(rb',"sum":"([0-9a-f]{16})"}\n')
_MEMBER = len(',"sum":""}\n') + 2 * _SUM_BYTES
"""Bytes of a line's last member, with what ends the line."""
_RESTORE = "restore the record from a copy, or remove the file"


class InvalidLine(Exception):
    """A whole line of JSON that says something which a record cannot say."""


class _Preamble(msgspec.Struct):
    """What every schema's first line says."""

    kind: str = ""
    schema: int = 0


def _builtin(value: object) -> object:
    """The plain value of a NumPy or torch scalar or array, which msgspec does not know."""
    tolist = getattr(value, "tolist", None)
    if tolist is None:
        raise TypeError(f"a record cannot hold a {type(value).__name__}")
    return tolist()


_ENCODER = msgspec.json.Encoder(enc_hook=_builtin)
_PREAMBLE = msgspec.json.Decoder(_Preamble)


def encode(line: msgspec.Struct) -> bytes:
    """The line, with its newline. NumPy scalars and arrays become plain; the module says what becomes of NaN."""
    try:
        raw = _ENCODER.encode(line)
    except UnicodeEncodeError:
        raw = b"null"
    # msgspec writes what is not finite as null; looking closer only where there is one keeps the common line fast.
    if b"null" in raw:
        raw = _ENCODER.encode(_plain(msgspec.to_builtins(line, str_keys=True, enc_hook=_builtin)))
    return raw + b"\n"


def _plain(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if isinstance(value, str):
        # Half a surrogate pair (an undecodable path in an error's text) has no UTF-8.
        return value.encode("utf-8", "backslashreplace").decode("utf-8")
    if isinstance(value, dict):
        return {_plain(key): _plain(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    return value


def sealed(line: bytes, before: str) -> bytes:
    """``line``, an encoded object and its newline, with its checksum; ``before`` is that of the line before it."""
    body = line[:-2]
    return body + _member(_checksum(body, before))


def _checksum(body: bytes, before: str) -> str:
    return blake2b(before.encode() + body, digest_size=_SUM_BYTES).hexdigest()


def _member(checksum: str) -> bytes:
    return b',"sum":"%b"}\n' % checksum.encode()


def checksum_in(line: bytes) -> str:
    """The checksum that a line carries; empty for a line without one. It is not verified."""
    found = _SUM.fullmatch(line, max(0, len(line) - _MEMBER))
    return found[1].decode() if found else ""


def first_line(header: Any) -> bytes:
    """The line that begins a file; with a checksum from the schema on that has one."""
    line = encode(header)
    return sealed(line, "") if header.schema >= CHAINED_SINCE else line


def encode_file(header: Any, events: Iterable[Any]) -> bytes:
    """A whole file, as a writer leaves it: the header and the events."""
    written = [first_line(header)]
    for each in events:
        line, before = encode(each), checksum_in(written[-1])
        written.append(sealed(line, before) if before else line)
    return b"".join(written)


class Chain:
    """Checks the lines of one file in their order. ``last`` is the checksum of the last line that was right.

    A file of an older schema has no chain: ``last`` stays empty, and a line of it that carries a checksum is wrong.
    """

    def __init__(self, chained: bool = True) -> None:
        self.chained, self.last = chained, ""

    def holds(self, line: bytes) -> bool:
        """Whether ``line``, with its newline, is what was written after the lines that were checked."""
        return self._next(line) is not None

    def check(self, line: bytes) -> None:
        """Take the next line; ``InvalidLine`` where it does not hold."""
        found = self._next(line)
        if found is None:
            carried = checksum_in(line)
            if self.chained:
                raise InvalidLine("its checksum is not that of its bytes" if carried else "it has no checksum")
            raise InvalidLine("it has a checksum, and the header says that this record has none")
        self.last = found

    def _next(self, line: bytes) -> str | None:
        """The checksum that a right line has, empty without a chain; ``None`` for a wrong one."""
        if not self.chained:
            return None if checksum_in(line) else ""
        expected = _checksum(line[:-_MEMBER], self.last)
        return expected if line[-_MEMBER:] == _member(expected) else None


def chain_from(line: bytes, schema: int, asked: str) -> Chain:
    """The chain that begins with a file's header, of ``schema``; ``RecordError`` where the header does not hold."""
    chain = Chain(schema >= CHAINED_SINCE)
    try:
        if schema < 1:
            raise InvalidLine(f"there is no schema {schema}")
        chain.check(line)
    except InvalidLine as error:
        raise RecordError(asked, f"line 1 is damaged: {error}", _RESTORE) from error
    return chain


class _AnyHeader(Protocol):
    """What the first lines of all kinds of record say."""

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
    """What the lines of one kind of record are: a header of type ``header``, then events, one of which is its end.

    ``name`` is what messages call such a record.
    """

    def __init__(self, name: str, header: type[H], events: object) -> None:
        """``events`` is the union of the types of events; the one whose tag is ``end`` comes last in a file."""
        self.name = name
        self.end: type[Any] = next(each for each in get_args(events) if each.__struct_config__.tag == "end")
        self._tag = header.__struct_config__.tag  # type: ignore[attr-defined]
        self._header = msgspec.json.Decoder(header)
        # Lax, so that "nan" and "inf" are figures where a figure is due; strings stay strings where a string is due.
        self._event: msgspec.json.Decoder[E] = msgspec.json.Decoder(events, strict=False)

    def decode_header(self, line: bytes, asked: str) -> H:
        """The header in a record's first line; ``RecordError`` (about ``asked``) if there is none that can be read."""
        try:
            preamble = _PREAMBLE.decode(line)
            if preamble.kind == self._tag and preamble.schema > SCHEMA:
                found = f"it was written in schema {preamble.schema} and this version reads up to schema {SCHEMA}"
                raise RecordError(asked, found, "upgrade levelbench to read it")
            return self._header.decode(line)
        except MALFORMED as error:
            found = f"line 1 is not the header of a {self.name} ({_reason(error)})"
            raise RecordError(asked, found, _RESTORE) from error

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

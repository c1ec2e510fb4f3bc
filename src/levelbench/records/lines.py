"""One line of a record: to bytes and back.

The one idea: JSON has no NaN and no infinity, and a diverged run has both, so a figure that is not finite is written as
the string ``"nan"``, ``"inf"`` or ``"-inf"`` and read back as the figure. Nothing that a run can do makes its record
unreadable.
"""

from __future__ import annotations

import math
from typing import Any

import msgspec

from levelbench.errors import RecordError
from levelbench.records.schema import SCHEMA, End, Evaluation, Event, Header, Measurement, RankSamples, Samples

__all__ = ["LINE_LIMIT", "MALFORMED", "InvalidLine", "decode_event", "decode_header", "encode"]

LINE_LIMIT = 64 * 1024 * 1024
"""The longest line in bytes that is written or read."""

MALFORMED = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
"""What the decoders raise at bytes that are not a line: torn, not JSON, not UTF-8, or nested beyond reason."""

_KINDS = frozenset({"header", "evaluation", "samples", "measurement", "rank", "end"})


class InvalidLine(Exception):
    """A whole line of JSON that says something which a record cannot say."""


class _Preamble(msgspec.Struct):
    """What every schema's first line says."""

    kind: str = ""
    schema: int = 0


class _Kind(msgspec.Struct):
    """What every event says, also one of a kind that is not known here."""

    kind: Any = None


def _builtin(value: Any) -> Any:
    """The plain value of a NumPy or torch scalar or array, which msgspec does not know."""
    tolist = getattr(value, "tolist", None)
    if tolist is None:
        raise TypeError(f"a record cannot hold a {type(value).__name__}")
    return tolist()


_ENCODER = msgspec.json.Encoder(enc_hook=_builtin)
_HEADER = msgspec.json.Decoder(Header)
_PREAMBLE = msgspec.json.Decoder(_Preamble)
_KIND = msgspec.json.Decoder(_Kind)
# Lax, so that "nan" and "inf" are figures where a figure is due; strings stay strings where a string is due.
_EVENT: msgspec.json.Decoder[Event] = msgspec.json.Decoder(
    Evaluation | Samples | RankSamples | Measurement | End, strict=False
)


def encode(line: Header | Event) -> bytes:
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


def decode_header(line: bytes, asked: str) -> Header:
    """The header in a record's first line; ``RecordError`` (about ``asked``) if there is none that can be read."""
    try:
        preamble = _PREAMBLE.decode(line)
        if preamble.kind == "header" and preamble.schema > SCHEMA:
            found = f"it was written in schema {preamble.schema} and this version reads up to schema {SCHEMA}"
            raise RecordError(asked, found, "upgrade levelbench to read it")
        return _HEADER.decode(line)
    except MALFORMED as error:
        found = f"line 1 is not the header of a record ({_reason(error)})"
        raise RecordError(asked, found, "restore the record from a copy, or remove the file") from error


def decode_event(line: bytes) -> Event | None:
    """The event in a line, or ``None`` for an event of a kind that this version does not know.

    Raises one of ``MALFORMED`` for bytes that are not JSON, ``InvalidLine`` for JSON that is not an event.
    """
    try:
        return _EVENT.decode(line)
    except msgspec.ValidationError as error:
        kind = _kind_of(line)
        if isinstance(kind, str) and kind not in _KINDS:
            return None
        raise InvalidLine(_reason(error)) from error


def _kind_of(line: bytes) -> Any:
    """The kind that a line of JSON names; ``None`` for what is no object. Its other fields are not looked at."""
    try:
        return _KIND.decode(line).kind
    except msgspec.ValidationError:
        return None


def _reason(error: BaseException) -> str:
    return "nested too deeply" if isinstance(error, RecursionError) else str(error)

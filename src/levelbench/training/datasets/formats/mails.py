"""Reads mails (RFC 5322, MIME) as words: subject and text, whatever their encoding, nothing of them executed.

The one idea: a mail is hostile input. Python's own parser takes it apart, a wrong or made-up encoding costs a
replacement character and never an error, HTML is read for its text alone, and attachments are not looked at. How much
of it is read is bounded, for some of Python's parsers take the square of the length for what is made to be slow.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from email import message_from_bytes, policy
from email.errors import HeaderParseError
from email.header import decode_header
from email.message import Message
from email.parser import BytesHeaderParser
from encodings import normalize_encoding
from encodings.aliases import aliases
from html.parser import HTMLParser
from pathlib import Path
from typing import Final, final

from levelbench.errors import DataError, MissingError
from levelbench.training.datasets.formats.tar import members
from levelbench.training.datasets.formats.text import read_bytes
from levelbench.training.datasets.formats.unpacking import unpacked

__all__ = ["MOST_IN_ALL", "Mail", "mail_files", "read_mail"]

MOST_BYTES: Final = 1 << 20
"""A mail that is larger is an error; the longest of SpamAssassin's has 0.3 MB."""
MOST_IN_ALL: Final = 200_000_000
"""An archive, unpacked, or the mails of a folder may have so many bytes; SpamAssassin's have 82 million."""
MOST_FILES: Final = 100_000
"""A folder may hold so many mails."""
MOST_HTML: Final = 1 << 17
"""So many characters of an HTML part are read; the longest of SpamAssassin's has 82 thousand."""
MOST_TAGS: Final = 1 << 12
"""So many tags of an HTML part are read; SpamAssassin's have 2,299 at most."""
MOST_OPEN: Final = 100
"""An HTML part is read up to so many tags, or comments, in which another begins before they end; SpamAssassin's
have 65 at most."""

_UNSEEN = frozenset({"script", "style", "head", "title"})
_SPACES = re.compile(r"\s+")
# Python knows more: some are no encodings of text (rot13), some are slow (punycode takes the square of the length).
_CODEC_NAMES = (
    "ascii utf_8 utf_7 utf_16 utf_16_be utf_16_le utf_32 latin_1 iso8859_2 iso8859_3 iso8859_4 iso8859_5 iso8859_6 "
    "iso8859_7 iso8859_8 iso8859_9 iso8859_10 iso8859_11 iso8859_13 iso8859_14 iso8859_15 iso8859_16 cp1250 cp1251 "
    "cp1252 cp1253 cp1254 cp1255 cp1256 cp1257 cp1258 cp437 cp850 cp852 cp866 cp874 koi8_r koi8_u mac_roman gb2312 "
    "gbk gb18030 hz big5 big5hkscs cp950 euc_kr cp949 johab iso2022_kr euc_jp shift_jis cp932 iso2022_jp tis_620"
)
_CODECS = frozenset(_CODEC_NAMES.split())
# What Python's parsers of mail and HTML raise for mails that only spam has: nested a thousandfold, a part of a
# parameter twice, numbers of thousands of digits, null bytes in names, declarations that never end.
_GIVES_UP = (RecursionError, ValueError, TypeError, LookupError, AttributeError, AssertionError, HeaderParseError)


@final
@dataclass(frozen=True)
class Mail:
    """What a reader sees of a mail."""

    subject: str
    text: str


def read_mail(content: bytes) -> Mail:
    """The subject and all text parts of a mail, with runs of white space as one space. Never raises.

    Of a mail that Python's parser gives up on the subject alone is read.
    """
    # The policy of old: the modern one raises for some headers that only spam has.
    try:
        message: Message = message_from_bytes(content, policy=policy.compat32)
        parts = [_part(each) for each in message.walk() if not each.is_multipart()]
    except _GIVES_UP:
        message, parts = BytesHeaderParser(policy=policy.compat32).parsebytes(content), []
    return Mail(_squeezed(_header(str(message.get("subject", "")))), _squeezed("\n".join(parts)))


def mail_files(place: Path, pattern: str) -> Iterator[tuple[str, bytes]]:
    """Name and content of the mails in a folder or a tar archive, in the names' order.

    ``pattern`` is a regular expression for the end of a path, ``folder/file``, which is the name that is given. Nothing
    is unpacked to disk.

    :raises MissingError: when there is no such place.
    :raises DataError: when the archive is damaged, holds anything but files and folders, or a path that leads out of
        it; or when a mail is too large, or all of them are.
    """
    wanted = re.compile(rf"(?:^|/)({pattern})$")
    if place.is_dir():
        yield from _filed(place, wanted)
        return
    if not place.is_file():
        raise MissingError(f"reading mails from {place}", "there is no such folder or archive", "Name one that exists")
    yield from sorted(_archived(place, wanted))


def _filed(place: Path, wanted: re.Pattern[str]) -> Iterator[tuple[str, bytes]]:
    paths: dict[str, Path] = {}
    for path in place.rglob("*"):
        found = wanted.search(path.as_posix())
        if found and path.is_file():
            paths[found[1]] = path
            if len(paths) > MOST_FILES:
                raise _bad(place, f"it holds more than {MOST_FILES:,} mails")
    done = 0
    for name in sorted(paths):
        content = read_bytes(paths[name], MOST_BYTES)
        done += len(content)
        if done > MOST_IN_ALL:
            raise _bad(place, f"its mails have more than {MOST_IN_ALL:,} bytes")
        yield name, content


def _archived(place: Path, wanted: re.Pattern[str]) -> Iterator[tuple[str, bytes]]:
    with unpacked(place, "mails", MOST_IN_ALL) as stream:
        for member in members(stream):
            found = wanted.search(member.name)
            if not found:
                continue
            if member.size > MOST_BYTES:
                raise _bad(place, f"{member.name} has {member.size:,} bytes, and {MOST_BYTES:,} is the most")
            yield found[1], stream.exactly(member.size, f"its member {member.name!r}")


def _part(message: Message) -> str:
    """The text of a part; nothing of an attachment that is no text."""
    kind = message.get_content_type()
    if not kind.startswith("text/"):
        return ""
    content = message.get_payload(decode=True)
    text = _decoded(content if isinstance(content, bytes) else b"", _charset(message))
    return _seen(text) if kind == "text/html" else text


def _charset(message: Message) -> str | None:
    try:
        return message.get_content_charset()
    except _GIVES_UP:
        return None


def _decoded(content: bytes, encoding: str | None) -> str:
    """``content`` in its own encoding, else in UTF-8, else in Latin-1, which every byte is."""
    known = normalize_encoding(encoding or "utf-8").lower()
    for each in (aliases.get(known, known), "utf_8"):
        try:
            if each in _CODECS:
                return content.decode(each)
        except ValueError:  # bytes that are not in it
            continue
    return content.decode("latin-1")


def _header(value: str) -> str:
    try:
        pieces = decode_header(value)
    except _GIVES_UP:  # base64 that is none
        return value.encode("utf-8", "replace").decode("utf-8")
    return "".join(
        _decoded(each, encoding) if isinstance(each, bytes) else each.encode("utf-8", "replace").decode("utf-8")
        for each, encoding in pieces
    )


class _Seen(HTMLParser):
    """Collects the text of HTML that a browser would show."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.text: list[str] = []
        self._hidden = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Text inside of what is not shown is skipped; any other tag parts words."""
        if tag in _UNSEEN and not self._hidden:
            self._hidden = tag
        self.text.append(" ")

    def handle_endtag(self, tag: str) -> None:
        """What was hidden ends."""
        if tag == self._hidden:
            self._hidden = ""
        self.text.append(" ")

    def handle_data(self, data: str) -> None:
        """Text."""
        if not self._hidden:
            self.text.append(data)


def _bounded(source: str) -> str:
    """The beginning of HTML, so far that no parser takes long: each tag without an end is looked for to the last."""
    first, *pieces = source[:MOST_HTML].split("<", MOST_TAGS + 1)
    kept, open_ = [first], 0
    for piece in pieces[:MOST_TAGS]:
        open_ += ">" not in piece
        if open_ > MOST_OPEN:
            break
        kept.append(piece)
    return "<".join(kept)


def _seen(source: str) -> str:
    parser = _Seen()
    try:
        parser.feed(_bounded(source))
        parser.close()
    except _GIVES_UP:  # html.parser gives up on some malformed declarations
        return "".join(parser.text)
    return "".join(parser.text)


def _squeezed(text: str) -> str:
    return _SPACES.sub(" ", text).strip()


def _bad(place: Path, found: str) -> DataError:
    return DataError(f"reading mails from {place}", found, "Fetch the archive again")

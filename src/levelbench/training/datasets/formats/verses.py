"""Reads Bibles as SWORD keeps them (driver zText with OSIS markup), as Debian's packages ``sword-text-*`` ship them.

A testament is three files: ``.bzz`` holds blocks of text packed with zlib, ``.bzs`` says of each block where it starts,
how long it is packed and how long unpacked (three little-endian uint32), and ``.bzv`` says of each entry its block
(uint32), its place there (uint32) and its length (uint16), all in bytes. Entries are titles and verses in order.

The one idea: which entry is which verse is read off the text itself. The entry ahead of each chapter says
``<chapter osisID="Gen.1">``, and the last verse ends it; so no table of any versification is needed, and a Bible that
counts its verses in its own way cannot be read as another by mistake.
"""

from __future__ import annotations

import html
import re
import struct
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

from levelbench.errors import DataError
from levelbench.training.datasets.formats.text import decode, read_bytes

__all__ = ["TESTAMENTS", "Chapters", "plain", "read_bible", "read_testament"]

TESTAMENTS: Final = ("ot", "nt")
FILES: Final = (".bzs", ".bzv", ".bzz")
Chapters = dict[str, list[str]]
"""Verses by chapter, as in ``"Gen.1"``: each in OSIS markup, the first verse first."""

_BLOCK = struct.Struct("<III")
_ENTRY = struct.Struct("<IIH")
# World English Bible's Old Testament, the largest, has 23 million bytes of text in 3 million packed ones.
_MOST_FILE_BYTES = 1 << 26
_MOST_TEXT_BYTES = 1 << 27
_BEGINS = re.compile(r'<chapter\b[^>]*?\bosisID="([^"]+)"')
_ENDS = re.compile(r'<chapter\b[^>]*?\beID="([^"]+)"')
# What stands in a verse and is none of its words: notes with their readings, headings, who speaks.
_ASIDE = re.compile(r"<(note|title|speaker)\b[^>]*(?<!/)>.*?</\1>", re.DOTALL)
# A line of verse that ends without a space must not run into the next.
_BREAK = re.compile(r"<(?:l|lg|lb|div)\b[^>]*>")
# Where an aside stood, words part; but no space comes ahead of a sign that follows it.
_GAP = "\0"
_GAP_AHEAD_OF_SIGN = re.compile(r"\0+(?=[^\w“‘(¿¡\0])")
_TAG = re.compile(r"<[^>]*>")


def read_bible(folder: Path) -> Chapters:
    """All chapters of both testaments in ``folder``; raises as :func:`read_testament`."""
    found: Chapters = {}
    for testament in TESTAMENTS:
        found |= read_testament(folder, testament)
    return found


def read_testament(folder: Path, testament: str) -> Chapters:
    """The chapters of ``ot`` or ``nt`` in ``folder``.

    A chapter is left out that is not whole in this order of verses: osis2mod keeps it so where its versification has
    no place for it (the Greek additions to Daniel and Esther in the World English Bible).

    :raises MissingError: when one of the three files is not there.
    :raises DataError: when they do not fit together, or a chapter is there twice.
    """
    where = folder / testament
    found: Chapters = {}
    current = ""
    verses: list[str] = []
    for text in _entries(where):
        begins, ends = _BEGINS.findall(text), _ENDS.findall(text)
        if current and not begins:
            verses.append(text)
            if ends == [current]:
                if current in found:
                    raise _bad(where, f"chapter {current} is there twice")
                found[current] = verses
            if ends:
                current = ""
        elif begins:
            current, verses = ("" if ends or len(begins) > 1 else begins[0]), []
    return found


def plain(markup: str) -> str:
    """The words of a verse: without markup, notes and headings, with single spaces."""
    text = _TAG.sub("", _BREAK.sub(" ", _ASIDE.sub(_GAP, markup)))
    text = _GAP_AHEAD_OF_SIGN.sub("", text).replace(_GAP, " ")
    return " ".join(html.unescape(text).split())


def _entries(where: Path) -> Iterator[str]:
    """The text of every entry, in order."""
    blocks, entries, packed = (read_bytes(where.with_suffix(suffix), _MOST_FILE_BYTES) for suffix in FILES)
    for name, content, struct_ in ((".bzs", blocks, _BLOCK), (".bzv", entries, _ENTRY)):
        if not content or len(content) % struct_.size:
            raise _bad(where, f"{name} has {len(content)} bytes, which is no multiple of {struct_.size}")
    # Blocks may all name the same packed bytes, and entries the same text, so each alone may be small.
    _require_little(where, "blocks", (block[2] for block in _BLOCK.iter_unpack(blocks)))
    _require_little(where, "entries", (entry[2] for entry in _ENTRY.iter_unpack(entries)))
    texts = [_unpacked(where, packed, *block) for block in _BLOCK.iter_unpack(blocks)]
    for at, (block, start, length) in enumerate(_ENTRY.iter_unpack(entries)):
        if block >= len(texts) or start + length > len(texts[block]):
            raise _bad(where, f"entry {at} lies outside the text: block {block}, bytes {start} to {start + length}")
        yield decode(texts[block][start : start + length], f"reading entry {at} of {where}")


def _require_little(where: Path, what: str, sizes: Iterable[int]) -> None:
    total = sum(sizes)
    if total > _MOST_TEXT_BYTES:
        raise _bad(where, f"its {what} claim {total:,} bytes of text, and {_MOST_TEXT_BYTES:,} is the most")


def _unpacked(where: Path, packed: bytes, start: int, length: int, claimed: int) -> bytes:
    if start + length > len(packed):
        raise _bad(where, f"a block claims bytes {start} to {start + length} of {len(packed)}, {claimed} unpacked")
    unpacker = zlib.decompressobj()
    try:
        text = unpacker.decompress(packed[start : start + length], claimed + 1)
    except zlib.error as error:
        raise _bad(where, f"a block cannot be unpacked ({error})") from None
    if len(text) != claimed:
        raise _bad(where, f"a block unpacks to {len(text)} bytes or more, and {claimed} are claimed")
    return text


def _bad(where: Path, found: str) -> DataError:
    return DataError(f"reading {where}.bzz", found, "Install the package that it comes from again")

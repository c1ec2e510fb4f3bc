"""The bytes of a DAWNBench entry, its JSON and its TSV, as plain values under limits, with what is odd about them.

The one idea: here nothing is interpreted. Real files begin with a byte-order mark, end their lines as Windows does and
miss the last newline: all of that is read, and noted.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import Any

from levelbench.errors import RecordError
from levelbench.records.exchange.dawnbench.figures import figure
from levelbench.records.exchange.files import read_bytes

__all__ = ["LARGEST_JSON", "LARGEST_TSV", "RawEntry", "parse_json", "parse_tsv", "read_raw"]

LARGEST_JSON = 1 << 20
LARGEST_TSV = 16 << 20
_DEEPEST = 32
_MOST_ROWS = 100_000
_MOST_MEMBERS = 500
_MOST_COLUMNS = 32
_BOM = b"\xef\xbb\xbf"
_STRINGS = re.compile(rb'"(?:[^"\\]|\\.)*"', re.DOTALL)
_BRACKETS = re.compile(rb"[][{}]")


@dataclass(frozen=True)
class RawEntry:
    """One entry as its files say it: ``columns`` is ``None`` where no TSV lies beside the JSON.

    ``digest`` is the SHA-256 of the JSON's bytes followed by the TSV's; ``oddities`` are sentences about their form.
    """

    path: Path
    record: Mapping[str, Any]
    columns: Mapping[str, list[Decimal]] | None
    digest: str
    oddities: list[str] = field(default_factory=list)


def read_raw(path: Path, root: Path | None = None) -> RawEntry:
    """The entry whose JSON is at ``path``, with the TSV of its name. ``RecordError`` for what is no entry.

    ``root`` is the folder that no file may lead out of.
    """
    encoded = read_bytes(path, LARGEST_JSON, root)
    oddities: list[str] = []
    record = parse_json(encoded, str(path), oddities)
    beside = path.with_suffix(".tsv")
    columns, table = None, b""
    if beside.is_symlink() or beside.exists():
        table = read_bytes(beside, LARGEST_TSV, root)
        columns = parse_tsv(table, str(beside), oddities)
    return RawEntry(path, record, columns, hashlib.sha256(encoded + table).hexdigest(), oddities)


def parse_json(data: bytes, name: str, oddities: list[str]) -> dict[str, Any]:
    """The object that ``data`` holds, its numbers with a point as decimals. ``RecordError`` for anything else."""
    asked = f"reading {name}"
    text = _text(data, asked, "the JSON", oddities)
    depth = 0
    for bracket in _BRACKETS.findall(_STRINGS.sub(b"", data)):
        depth += 1 if bracket in b"[{" else -1
        if depth > _DEEPEST:
            raise RecordError(asked, f"it nests deeper than {_DEEPEST} levels", "flatten the file")
    try:
        found = json.loads(
            text,
            parse_float=lambda number: figure(number, asked, "a number"),
            parse_int=lambda number: _whole(number, asked),
            parse_constant=lambda word: figure(word, asked, "a number"),
            object_pairs_hook=lambda pairs: _object(pairs, asked),
        )
        json.dumps(found, ensure_ascii=False, default=str).encode()
    except (json.JSONDecodeError, RecursionError) as error:
        raise RecordError(asked, f"it is not JSON ({error})", "correct the file") from error
    except UnicodeEncodeError as error:
        raise RecordError(asked, "a text holds half a surrogate pair", "write the text as UTF-8") from error
    if not isinstance(found, dict):
        raise RecordError(asked, f"it holds a {type(found).__name__}, not an object", "give an entry's file")
    return found


def _whole(number: str, asked: str) -> int:
    value = int(figure(number, asked, "a number"))
    if abs(value) >= 2**63:
        raise RecordError(asked, f"{number[:40]} is beyond 64 bits", "correct or remove the figure")
    return value


def _object(pairs: list[tuple[str, Any]], asked: str) -> dict[str, Any]:
    if len(pairs) > _MOST_MEMBERS:
        raise RecordError(asked, f"an object has more than {_MOST_MEMBERS} members", "shorten it")
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise RecordError(asked, f"the key {twice!r} is there twice", "keep one of them")
    return found


def _text(data: bytes, asked: str, what: str, oddities: list[str]) -> str:
    if data.startswith(_BOM):
        oddities.append(f"{what} begins with a byte-order mark")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise RecordError(asked, f"byte {error.start} is not UTF-8", "save the file as UTF-8") from error


def parse_tsv(data: bytes, name: str, oddities: list[str]) -> dict[str, list[Decimal]]:
    """The columns of tab-separated ``data`` by their header. ``RecordError`` with the line of what is wrong."""
    asked = f"reading {name}"
    text = _text(data, asked, "the TSV", oddities)
    if "\r" in text:
        oddities.append("the TSV's lines end in CRLF")
    lines = text.replace("\r\n", "\n").split("\n")
    if lines[-1]:
        oddities.append("the TSV has no final newline")
    if len(lines) > _MOST_ROWS:
        raise RecordError(asked, f"it has more than {_MOST_ROWS:,} lines", "give one row an epoch")
    header = [each.strip() for each in lines[0].split("\t")]
    if len(set(header)) < len(header) or "" in header or len(header) > _MOST_COLUMNS:
        found = f"its header is {lines[0][:80]!r}"
        raise RecordError(asked, found, f"name every column, each once, at most {_MOST_COLUMNS}")
    columns: dict[str, list[Decimal]] = {each: [] for each in header}
    for at, line in enumerate(lines[1:], 2):
        if not line.strip():
            continue
        cells = line.split("\t")
        if len(cells) != len(header):
            found = f"line {at} has {len(cells)} cells for {len(header)} columns"
            raise RecordError(asked, found, "give every column one figure a row")
        for column, cell in zip(header, cells, strict=True):
            columns[column].append(figure(cell.strip(), asked, f"{column} in line {at}"))
    return columns

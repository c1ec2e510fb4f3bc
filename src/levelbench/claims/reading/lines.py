"""On which line of a TOML text each key stands: the standard library's parser does not say.

The one idea: a reader of messages needs the line of a key, and a key stands at the beginning of a line; what is inside
inline tables and lists has the line of the key that holds it.
"""

from __future__ import annotations

import re
from collections import Counter

__all__ = ["lines_of", "nearest_line"]

_PART = r"""(?:[\w-]+|"[^"\n]*"|'[^'\n]*')"""
_KEY = rf"{_PART}(?:[ \t]*\.[ \t]*{_PART})*"
_HEADER = re.compile(rf"[ \t]*(\[\[?)[ \t]*({_KEY})[ \t]*\]\]?[ \t]*(?:#.*)?$")
_PAIR = re.compile(rf"[ \t]*({_KEY})[ \t]*=[ \t]*(.*)$")
_PARTS = re.compile(_PART)
_LAST = re.compile(r"(?:\[\d+\]|\.?[^.\[\]]+|\.)$")
_LONG = re.compile(r'"""|\'\'\'')


def lines_of(text: str) -> dict[str, int]:
    """The line, from 1, of every key at the beginning of a line, by its path as rules write it (``sides[0].name``)."""
    found: dict[str, int] = {}
    counts: Counter[str] = Counter()
    arrays: set[str] = set()
    table, open_with = "", ""
    for number, line in enumerate(text.split("\n"), 1):
        if open_with:
            open_with = "" if open_with in line else open_with
            continue
        if header := _HEADER.match(line):
            parts = _split(header[2])
            if header[1] == "[[":
                parent = _placed(parts[:-1], counts, arrays)
                plain = _joined(parent, parts[-1])
                arrays.add(plain)
                found.setdefault(plain, number)
                table = f"{plain}[{counts[plain]}]"
                counts[plain] += 1
            else:
                table = _placed(parts, counts, arrays)
            found.setdefault(table, number)
        elif pair := _PAIR.match(line):
            path = table
            for part in _split(pair[1]):
                path = _joined(path, part)
                found.setdefault(path, number)
            long = _LONG.match(pair[2])
            open_with = long[0] if long and long[0] not in pair[2][3:] else ""
    return found


def nearest_line(field: str, lines: dict[str, int]) -> int | None:
    """The line of ``field``, or of what holds it."""
    while field:
        if field in lines:
            return lines[field]
        shorter = _LAST.sub("", field)
        if shorter == field:
            return None
        field = shorter
    return None


def _split(key: str) -> list[str]:
    return [part[1:-1] if part[0] in "\"'" else part for part in _PARTS.findall(key)]


def _joined(path: str, part: str) -> str:
    return f"{path}.{part}" if path else part


def _placed(parts: list[str], counts: Counter[str], arrays: set[str]) -> str:
    """The path of a table: within lists of tables the last one is meant."""
    path = ""
    for part in parts:
        path = _joined(path, part)
        if path in arrays:
            path = f"{path}[{counts[path] - 1}]"
    return path

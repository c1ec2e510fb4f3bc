"""Reads a claim that somebody wrote down: TOML with the names of the view.

The one idea: every place is checked against the schema on its own, so that an error names the line and the nearest
name, and is not the decoder's word for the whole file.
"""

from __future__ import annotations

import math
import os
import re
import stat
import tomllib
from pathlib import Path
from typing import Any

import msgspec

from levelbench.claims.reading.checking import Wrong, faults
from levelbench.claims.reading.lines import lines_of, nearest_line
from levelbench.claims.view import Claim, Side
from levelbench.errors import RecordError

__all__ = ["DEPTH_LIMIT", "FILE_LIMIT", "parse_claim", "read_claim"]

FILE_LIMIT = 1 << 20
"""The largest file in bytes that is read."""
DEPTH_LIMIT = 12
"""How deep tables and lists may be nested; the view itself needs five."""

_PART = r"""(?:[\w-]+|"[^"\n]*"|'[^'\n]*')"""
# Bounded, and begun only where a word begins: linear in the text, which the parser's work on such keys is not.
_DEEP_KEY = re.compile(rf"(?<![\w-]){_PART}(?:[ \t]*\.[ \t]*{_PART}){{{DEPTH_LIMIT}}}")
_DO = "levelbench lint --template shows every field"


def read_claim(path: str | Path) -> Claim:
    """The claim in the file at ``path``; ``RecordError`` for whatever is none, with the line where it can be told."""
    path = Path(path)
    asked = f"reading the claim {path}"
    try:
        # Not blocking: a named pipe would keep us waiting for somebody to write to it.
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    except (OSError, ValueError) as error:
        found = getattr(error, "strerror", None) or str(error)
        raise RecordError(asked, found, "give a file that can be read") from error
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise RecordError(asked, "it is no regular file", "give the path of a file")
    with os.fdopen(descriptor, "rb") as file:
        raw = file.read(FILE_LIMIT + 1)
    try:
        text = raw.decode("utf-8")
    except UnicodeDecodeError as error:
        raise RecordError(asked, f"it is not UTF-8 ({error.reason})", "save it as UTF-8") from error
    claim = parse_claim(text, str(path))
    if _is_empty(claim):
        # No rule finds anything in it, which would look like praise.
        raise RecordError(asked, "it states nothing but names", f"fill in what is known; {_DO}")
    return claim


def _is_empty(claim: Claim) -> bool:
    """Whether nothing is stated but a title and what its sides are called: a template that nobody filled in."""
    named = [Side(each.name, where=each.where) for each in claim.sides]
    return claim == Claim(claim.title, named, where=claim.where)


def parse_claim(text: str, where: str = "") -> Claim:
    """The claim that ``text`` writes. ``where`` names its file, and is kept with the line in every part."""
    asked = f"reading the claim {where}".rstrip()
    if len(text) > FILE_LIMIT:
        raise RecordError(asked, f"it has more than {FILE_LIMIT} bytes", "state figures, and keep raw data elsewhere")
    if _DEEP_KEY.search(text):
        raise RecordError(asked, f"a key has more than {DEPTH_LIMIT} parts", _DO)
    try:
        value = tomllib.loads(text)
    except RecursionError:
        raise RecordError(asked, f"it is nested deeper than {DEPTH_LIMIT}", _DO) from None
    except ValueError as error:
        raise RecordError(asked, f"it is not TOML: {error}", "correct it there") from error
    if _depth(value) > DEPTH_LIMIT:
        raise RecordError(asked, f"it is nested deeper than {DEPTH_LIMIT}", _DO)
    lines = lines_of(text)
    if wrong := faults(value, Claim):
        raise _error(asked, wrong, lines)
    _say_where(value, where, lines)
    return msgspec.convert(value, Claim)


def _error(asked: str, wrong: list[Wrong], lines: dict[str, int]) -> RecordError:
    first = min(wrong, key=lambda each: nearest_line(each.field, lines) or math.inf)
    line = nearest_line(first.field, lines)
    more = f" (the first of {len(wrong)} errors)" if len(wrong) > 1 else ""
    place = f"line {line}: " if line else ""
    return RecordError(asked, f"{place}{first.found}{more}", first.do)


def _depth(value: Any) -> int:
    deepest, waiting = 0, [(value, 1)]
    while waiting:
        each, depth = waiting.pop()
        deepest = max(deepest, depth)
        if depth <= DEPTH_LIMIT and isinstance(each, dict | list):
            inside = each.values() if isinstance(each, dict) else each
            waiting += [(one, depth + 1) for one in inside if isinstance(one, dict | list)]
    return deepest


def _say_where(value: dict[str, Any], where: str, lines: dict[str, int]) -> None:
    """Write the file into the claim, and file and line into each part whose author names no place."""
    if not where:
        return
    value["where"], value["read_from"] = where, "claim"
    for name in ("sides", "comparisons", "scaling", "summaries", "figures", "compositions", "uncounted"):
        for at, each in enumerate(value.get(name, ())):
            each.setdefault("where", _at(where, f"{name}[{at}]", lines))
            for number, run in enumerate(each.get("runs", ()) if name == "sides" else ()):
                run.setdefault("where", _at(where, f"{name}[{at}].runs[{number}]", lines))


def _at(where: str, field: str, lines: dict[str, int]) -> str:
    line = nearest_line(field, lines)
    return f"{where}:{line}" if line else where

"""Reads a written claim: TOML with the names of the view.

The types of the view say what is allowed. What types cannot say (a share is not a percentage, a name must exist,
columns have equal lengths) is checked here, because otherwise a slip would become a finding about the claim. An error
names the line, which the standard library's parser does not keep, and the nearest name.
"""

from __future__ import annotations

import math
import os
import re
import stat
import tomllib
from collections import Counter
from collections.abc import Iterator
from functools import cache
from itertools import chain, islice
from pathlib import Path
from types import UnionType
from typing import Any, Literal, NamedTuple, Union, get_args, get_origin, get_type_hints

import msgspec

from levelbench.claims.view import Claim, Side
from levelbench.errors import RecordError, nearest

__all__ = ["DEPTH_LIMIT", "FILE_LIMIT", "TABLE_LIMIT", "ClaimFault", "faults", "hints", "lines_of", "nearest_line"]
__all__ += ["parse_claim", "read_claim"]

_PART = r"""(?:[\w-]+|"[^"\n]*"|'[^'\n]*')"""
_KEY = rf"{_PART}(?:[ \t]*\.[ \t]*{_PART})*"
_HEADER = re.compile(rf"[ \t]*(\[\[?)[ \t]*({_KEY})[ \t]*\]\]?[ \t]*(?:#.*)?$")
_PAIR = re.compile(rf"[ \t]*({_KEY})[ \t]*=[ \t]*(.*)$")
_PARTS = re.compile(_PART)
_LAST = re.compile(r"(?:\[\d+\]|\.?[^.\[\]]+|\.)$")
_LONG = re.compile(r'"""|\'\'\'')


def lines_of(text: str) -> dict[str, int]:
    """The line, from 1, of every key at the beginning of a line, by its path as in rules (``sides[0].name``)."""
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
    """The line of ``field``, or of the table around it."""
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
    """The path of a table; within lists of tables, the last one."""
    path = ""
    for part in parts:
        path = _joined(path, part)
        if path in arrays:
            path = f"{path}[{counts[path] - 1}]"
    return path


_SHARES = {"part_share", "stall_share", "share_of_peak"}
_COUNTS = {"runs_made", "runs_reached", "test_looks", "nodes", "accelerators", "cores", "threads_used", "n", "trials"}
_COUNTS |= {"global_batch", "ranks", "input_size", "iterations_measured", "iterations_to_target", "runs"}
_NOT_NEGATIVE = ("_s", "_w", "_usd", "hours", "ratio", "flops", "throughput", "bandwidth", "price_per_hour")
TABLE_LIMIT = 1000
"""The maximum number of tables in a list, because rules compare each with the others."""
_MOST, _SHOWN = 100, 10
_LARGEST = 2**63
_EXTREME = 1e300


class ClaimFault(NamedTuple):
    """One error: the path of the field, what was found there and what to do."""

    field: str
    found: str
    do: str


def faults(value: dict[str, object], kind: type[msgspec.Struct]) -> list[ClaimFault]:
    """Up to a hundred reasons why ``value`` is not a ``kind``; none if it converts."""
    found = list(islice(_of_struct(value, kind, ""), _MOST))
    return found or list(islice(chain(_of_names(value), _of_curves(value)), _MOST))


@cache
def hints(kind: type) -> dict[str, object]:
    """The types of a struct's fields."""
    return get_type_hints(kind)


@cache
def _fields(kind: type[msgspec.Struct]) -> dict[str, bool]:
    """Whether each field is required."""
    return {field.name: field.required for field in msgspec.structs.fields(kind)}


def _of_struct(value: object, kind: type[msgspec.Struct], path: str) -> Iterator[ClaimFault]:
    if not isinstance(value, dict):
        yield ClaimFault(path, f"{path} is {_kind_of(value)}", "write a table there")
        return
    fields, types = _fields(kind), hints(kind)
    for name in value:
        at = f"{path}.{name}" if path else name
        if name not in fields:
            yield _unknown(at, name, list(fields), path)
        else:
            yield from _of_value(value[name], types[name], at, name)
    if value.keys() - fields.keys():
        # A missing field may be the one with an unknown name.
        return
    for name, required in fields.items():
        if required and name not in value:
            at = f"{path}.{name}" if path else name
            yield ClaimFault(path or name, f"{at} is missing", f"add {name} to {path or 'the file'}")


def _unknown(at: str, name: str, fields: list[str], path: str) -> ClaimFault:
    close = nearest(name, fields)
    do = f"there are {', '.join(sorted(fields))}; {_DO}"
    if close:
        do = f"did you mean {' or '.join(close)}? {_DO}"
    return ClaimFault(at, f"{path or 'the file'} has no field {name!r}", do)


def _of_value(value: object, kind: object, at: str, name: str) -> Iterator[ClaimFault]:
    kinds = [each for each in _alternatives(kind) if each is not type(None)]
    kind = kinds[0] if len(kinds) == 1 else kind
    origin, inside = get_origin(kind), get_args(kind)
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        yield from _of_struct(value, kind, at)
    elif origin is list and isinstance(value, list):
        if len(value) > TABLE_LIMIT and isinstance(value[0], dict):
            yield ClaimFault(at, f"{at} has {len(value)} tables, more than {TABLE_LIMIT}", "split the claim")
            return
        for number, each in enumerate(value):
            yield from _of_value(each, inside[0], f"{at}[{number}]", name)
    elif origin is Literal:
        if value not in inside:
            close = nearest(value, inside) if isinstance(value, str) else []
            hint = f"write {close[0]!r}; there are" if close else "write one of"
            yield ClaimFault(at, f"{at} is {_shown(value)}", f"{hint} {', '.join(map(repr, inside))}")
    else:
        yield from _of_leaf(value, kind, at, name)


def _of_leaf(value: object, kind: object, at: str, name: str) -> Iterator[ClaimFault]:
    try:
        msgspec.convert(value, kind)
    except msgspec.ValidationError:
        yield ClaimFault(at, f"{at} is {_kind_of(value)} ({_shown(value)})", f"write {_wanted(kind)}")
        return
    numbers = value.values() if isinstance(value, dict) else value if isinstance(value, list) else [value]
    for each in numbers:
        if isinstance(each, int | float) and not isinstance(each, bool):
            yield from _of_number(each, at, name)
    if get_origin(kind) is tuple and isinstance(value, list) and value[0] > value[1]:
        yield ClaimFault(at, f"{at} goes down from {value[0]:g} to {value[1]:g}", "write the lower end first")


def _of_number(value: float, at: str, name: str) -> Iterator[ClaimFault]:
    if not math.isfinite(value) or abs(value) > (_LARGEST if isinstance(value, int) else _EXTREME):
        yield ClaimFault(at, f"{at} is {_shown(value)}", "write a finite number, or leave the field out")
    elif (name in _SHARES or name == "precisions") and not 0 <= value <= 1:
        yield ClaimFault(at, f"{at} is {value:g}", "write a share from 0 to 1: 40 % is 0.4")
    elif value < 0 and (name in _COUNTS or name.endswith(_NOT_NEGATIVE)):
        yield ClaimFault(at, f"{at} is {value:g}", "write a number that is not negative")


def _of_names(value: dict[str, Any]) -> Iterator[ClaimFault]:
    names = [side["name"] for side in value["sides"]]
    if not names:
        yield ClaimFault("sides", "the claim has no side", "add [[sides]] with a name")
    known: set[str] = set()
    for at, name in enumerate(names):
        if name in known:
            yield ClaimFault(
                f"sides[{at}].name", f"two sides have the name {name!r}", "give each side a name of its own"
            )
        known.add(name)
    meant = [(f"scaling[{at}].side", each["side"]) for at, each in enumerate(value.get("scaling", ()))]
    for at, each in enumerate(value.get("comparisons", ())):
        meant += [(f"comparisons[{at}].{key}", each[key]) for key in ("new", "base")]
    for field, name in meant:
        if name not in known:
            close = nearest(name, names[:_MOST])
            do = f"write {close[0]!r}" if close else f"there are {', '.join(map(repr, names[:_SHOWN]))}"
            yield ClaimFault(field, f"{field} is {name!r}, and no side has that name", do)


def _of_curves(value: dict[str, Any]) -> Iterator[ClaimFault]:
    for at, side in enumerate(value["sides"]):
        for number, run in enumerate(side.get("runs", ())):
            curve = run.get("curve", {})
            lengths = {name: len(column) for name, column in curve.items()}
            if len(set(lengths.values())) > 1:
                field = f"sides[{at}].runs[{number}].curve"
                stated = ", ".join(f"{name} {length}" for name, length in lengths.items())
                yield ClaimFault(
                    field, f"the columns of {field} differ in length: {stated}", "give one value an evaluation"
                )


def _alternatives(kind: object) -> tuple[object, ...]:
    return get_args(kind) if get_origin(kind) in (Union, UnionType) else (kind,)


def _kind_of(value: object) -> str:
    kinds = {dict: "a table", list: "a list", str: "text", bool: "true or false", int: "a number", float: "a number"}
    return kinds.get(type(value), "a date or time")


def _wanted(kind: object) -> str:
    names = {int: "a whole number", float: "a number", str: "text in quotes", bool: "true or false"}
    if kind in names:
        return names[kind]
    origin, inside = get_origin(kind), get_args(kind)
    if origin is list:
        return f"a list, each {_wanted(inside[0])}"
    if origin is tuple:
        return "a list of two numbers, as in [0.8, 1.2]"
    if origin is dict:
        return f"a table, each {_wanted(inside[1])}"
    return " or ".join(_wanted(each) for each in _alternatives(kind)) if origin else "a table"


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


FILE_LIMIT = 1 << 20
"""The largest file that is read, in bytes."""
DEPTH_LIMIT = 12
"""The maximum nesting of tables and lists; the view itself needs five levels."""

_KEY_PART = r"""(?:[\w-]+|"[^"\n]*"|'[^'\n]*')"""
# Bounded, and starting only at the beginning of a word: linear in the text, unlike the parser's work on such keys.
_DEEP_KEY = re.compile(rf"(?<![\w-]){_PART}(?:[ \t]*\.[ \t]*{_PART}){{{DEPTH_LIMIT}}}")
_DO = "levelbench lint --template shows every field"


def read_claim(path: str | Path) -> Claim:
    """The claim in the file at ``path``; ``RecordError`` if it is not a claim, with the line where known."""
    path = Path(path)
    asked = f"reading the claim {path}"
    try:
        # Not blocking: opening a named pipe would wait for a writer.
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    except (OSError, ValueError) as error:
        found = getattr(error, "strerror", None) or str(error)
        raise RecordError(asked, found, "give a file that can be read") from error
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise RecordError(asked, "it is not a regular file", "give the path of a file")
    with os.fdopen(descriptor, "rb") as file:
        raw = file.read(FILE_LIMIT + 1)
    try:
        text = raw.decode("utf-8")
    except UnicodeDecodeError as error:
        raise RecordError(asked, f"it is not UTF-8 ({error.reason})", "save it as UTF-8") from error
    claim = parse_claim(text, str(path))
    if _is_empty(claim):
        # No rule finds anything in it, which would look like approval.
        raise RecordError(asked, "it states only names", f"fill in what is known; {_DO}")
    return claim


def _is_empty(claim: Claim) -> bool:
    """Whether only a title and the names of sides are stated: a template that was never filled in."""
    named = [Side(each.name, where=each.where) for each in claim.sides]
    return claim == Claim(claim.title, named, where=claim.where)


def parse_claim(text: str, where: str = "") -> Claim:
    """The claim in ``text``. ``where`` names its file, and is kept with the line in every part."""
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
        raise RecordError(asked, f"it is not TOML: {error}", "fix it there") from error
    if _depth(value) > DEPTH_LIMIT:
        raise RecordError(asked, f"it is nested deeper than {DEPTH_LIMIT}", _DO)
    lines = lines_of(text)
    if wrong := faults(value, Claim):
        raise _error(asked, wrong, lines)
    _say_where(value, where, lines)
    return msgspec.convert(value, Claim)


def _error(asked: str, wrong: list[ClaimFault], lines: dict[str, int]) -> RecordError:
    first = min(wrong, key=lambda each: nearest_line(each.field, lines) or math.inf)
    line = nearest_line(first.field, lines)
    others = list(dict.fromkeys(each.found for each in wrong if each.found != first.found))
    more = f"; also: {'; '.join(others[:_SHOWN])}{' ...' if others[_SHOWN:] else ''}" if others else ""
    place = f"line {line}: " if line else ""
    return RecordError(asked, f"{place}{first.found}{more}", first.do)


def _depth(value: object) -> int:
    deepest, waiting = 0, [(value, 1)]
    while waiting:
        each, depth = waiting.pop()
        deepest = max(deepest, depth)
        if depth <= DEPTH_LIMIT and isinstance(each, dict | list):
            inside = each.values() if isinstance(each, dict) else each
            waiting += [(one, depth + 1) for one in inside if isinstance(one, dict | list)]
    return deepest


def _say_where(value: dict[str, Any], where: str, lines: dict[str, int]) -> None:
    """Set the file of the claim, and the file and line of each part for which the author names no place."""
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

"""What is wrong with a claim that somebody wrote, place by place.

The one idea: the view's types say what may stand where; what types cannot say (a share is no percentage, a name must
exist, columns have one length) is said here, because a slip of the pen would else become a finding about the claim.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import cache
from itertools import chain, islice
from types import UnionType
from typing import Any, Literal, NamedTuple, Union, get_args, get_origin, get_type_hints

import msgspec

from levelbench.errors import nearest

__all__ = ["TABLE_LIMIT", "Wrong", "faults", "hints"]

_SHARES = {"part_share", "stall_share", "share_of_peak"}
_COUNTS = {"runs_made", "runs_reached", "test_looks", "nodes", "accelerators", "cores", "threads_used", "n", "trials"}
_COUNTS |= {"global_batch", "ranks", "input_size", "iterations_measured", "iterations_to_target", "runs"}
_NOT_NEGATIVE = ("_s", "_w", "_usd", "hours", "ratio", "flops", "throughput", "bandwidth", "price_per_hour")
TABLE_LIMIT = 1000
"""How many tables a list may have: rules hold each against the others."""
_MOST, _SHOWN = 100, 10
_LARGEST = 2**63
_EXTREME = 1e300


class Wrong(NamedTuple):
    """One thing that is wrong: the path of the field, what was found there and what to do."""

    field: str
    found: str
    do: str


def faults(value: dict[str, Any], kind: type[msgspec.Struct]) -> list[Wrong]:
    """What keeps ``value`` from being a ``kind``, up to a hundred things; none means that it converts."""
    found = list(islice(_of_struct(value, kind, ""), _MOST))
    return found or list(islice(chain(_of_names(value), _of_curves(value)), _MOST))


@cache
def hints(kind: type) -> dict[str, Any]:
    """The types of a struct's fields."""
    return get_type_hints(kind)


@cache
def _fields(kind: type[msgspec.Struct]) -> dict[str, bool]:
    """Whether each field is required."""
    return {field.name: field.required for field in msgspec.structs.fields(kind)}


def _of_struct(value: Any, kind: type[msgspec.Struct], path: str) -> Iterator[Wrong]:
    if not isinstance(value, dict):
        yield Wrong(path, f"{path} is {_kind_of(value)}", "write a table there")
        return
    fields, types = _fields(kind), hints(kind)
    for name in value:
        at = f"{path}.{name}" if path else name
        if name not in fields:
            yield _unknown(at, name, list(fields), path)
        else:
            yield from _of_value(value[name], types[name], at, name)
    if value.keys() - fields.keys():
        # What is missing may be what has the unknown name.
        return
    for name, required in fields.items():
        if required and name not in value:
            at = f"{path}.{name}" if path else name
            yield Wrong(path or name, f"{at} is missing", f"add {name} to {path or 'the file'}")


def _unknown(at: str, name: str, fields: list[str], path: str) -> Wrong:
    close = nearest(name, fields)
    do = f"write {' or '.join(close)}" if close else f"there are {', '.join(sorted(fields))}"
    return Wrong(at, f"{path or 'the file'} has no field {name!r}", do)


def _of_value(value: Any, kind: Any, at: str, name: str) -> Iterator[Wrong]:
    kinds = [each for each in _alternatives(kind) if each is not type(None)]
    kind = kinds[0] if len(kinds) == 1 else kind
    origin, inside = get_origin(kind), get_args(kind)
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        yield from _of_struct(value, kind, at)
    elif origin is list and isinstance(value, list):
        if len(value) > TABLE_LIMIT and isinstance(value[0], dict):
            yield Wrong(at, f"{at} has {len(value)} tables, more than {TABLE_LIMIT}", "split the claim")
            return
        for number, each in enumerate(value):
            yield from _of_value(each, inside[0], f"{at}[{number}]", name)
    elif origin is Literal:
        if value not in inside:
            close = nearest(value, inside) if isinstance(value, str) else []
            hint = f"write {close[0]!r}; there are" if close else "write one of"
            yield Wrong(at, f"{at} is {_shown(value)}", f"{hint} {', '.join(map(repr, inside))}")
    else:
        yield from _of_leaf(value, kind, at, name)


def _of_leaf(value: Any, kind: Any, at: str, name: str) -> Iterator[Wrong]:
    try:
        msgspec.convert(value, kind)
    except msgspec.ValidationError:
        yield Wrong(at, f"{at} is {_kind_of(value)} ({_shown(value)})", f"write {_wanted(kind)}")
        return
    numbers = value.values() if isinstance(value, dict) else value if isinstance(value, list) else [value]
    for each in numbers:
        if isinstance(each, int | float) and not isinstance(each, bool):
            yield from _of_number(each, at, name)
    if get_origin(kind) is tuple and isinstance(value, list) and value[0] > value[1]:
        yield Wrong(at, f"{at} goes down from {value[0]:g} to {value[1]:g}", "write the lower end first")


def _of_number(value: float, at: str, name: str) -> Iterator[Wrong]:
    if not math.isfinite(value) or abs(value) > (_LARGEST if isinstance(value, int) else _EXTREME):
        yield Wrong(at, f"{at} is {_shown(value)}", "write a finite number, or leave the field out")
    elif (name in _SHARES or name == "precisions") and not 0 <= value <= 1:
        yield Wrong(at, f"{at} is {value:g}", "write a share from 0 to 1: 40 % is 0.4")
    elif value < 0 and (name in _COUNTS or name.endswith(_NOT_NEGATIVE)):
        yield Wrong(at, f"{at} is {value:g}", "write a number that is not negative")


def _of_names(value: dict[str, Any]) -> Iterator[Wrong]:
    names = [side["name"] for side in value["sides"]]
    if not names:
        yield Wrong("sides", "the claim has no side", "add [[sides]] with a name")
    known: set[str] = set()
    for at, name in enumerate(names):
        if name in known:
            yield Wrong(f"sides[{at}].name", f"two sides have the name {name!r}", "give each side a name of its own")
        known.add(name)
    meant = [(f"scaling[{at}].side", each["side"]) for at, each in enumerate(value.get("scaling", ()))]
    for at, each in enumerate(value.get("comparisons", ())):
        meant += [(f"comparisons[{at}].{key}", each[key]) for key in ("new", "base")]
    for field, name in meant:
        if name not in known:
            close = nearest(name, names[:_MOST])
            do = f"write {close[0]!r}" if close else f"there are {', '.join(map(repr, names[:_SHOWN]))}"
            yield Wrong(field, f"{field} is {name!r}, and no side has that name", do)


def _of_curves(value: dict[str, Any]) -> Iterator[Wrong]:
    for at, side in enumerate(value["sides"]):
        for number, run in enumerate(side.get("runs", ())):
            curve = run.get("curve", {})
            lengths = {name: len(column) for name, column in curve.items()}
            if len(set(lengths.values())) > 1:
                field = f"sides[{at}].runs[{number}].curve"
                stated = ", ".join(f"{name} {length}" for name, length in lengths.items())
                yield Wrong(field, f"the columns of {field} differ in length: {stated}", "give one value an evaluation")


def _alternatives(kind: Any) -> tuple[Any, ...]:
    return get_args(kind) if get_origin(kind) in (Union, UnionType) else (kind,)


def _kind_of(value: Any) -> str:
    kinds = {dict: "a table", list: "a list", str: "text", bool: "true or false", int: "a number", float: "a number"}
    return kinds.get(type(value), "a date or time")


def _wanted(kind: Any) -> str:
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


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."

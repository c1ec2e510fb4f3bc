"""What an entry says and our schema has no place for: kept by name, and put back when it is written.

The one idea: a name says how its value is kept: ``misc.optimizer`` as it is, ``misc.schedule:json`` as the text of a
list or object; so nothing is lost, and the keys of the format stay readable.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from decimal import Decimal
from typing import Any

__all__ = ["MISC", "Leaf", "keep", "kept", "put_back"]

Leaf = int | float | str | bool | None
MISC = "misc."
_JSON = ":json"


def keep(record: Mapping[str, Any]) -> dict[str, Leaf]:
    """Every member of ``record`` (an entry without what has a place, its ``misc`` taken apart one level) by name."""
    found: dict[str, Leaf] = {}
    for key, value in record.items():
        if key == "misc" and isinstance(value, dict):
            found.update(kept(f"{MISC}{name}", each) for name, each in value.items())
        else:
            found.update([kept(f".{key}" if key.startswith((".", MISC)) else key, value)])
    return found


def kept(name: str, value: Any) -> tuple[str, Leaf]:
    """The name and value under which one member is kept."""
    if isinstance(value, Decimal):
        value = float(value)
    if isinstance(value, dict | list) or name.endswith(_JSON):
        return f"{name}{_JSON}", json.dumps(value, ensure_ascii=False, default=float)
    return name, value


def put_back(fields: Mapping[str, Leaf]) -> dict[str, Any]:
    """What :func:`keep` took apart."""
    record: dict[str, Any] = {}
    misc: dict[str, Any] = {}
    for name, value in fields.items():
        key, plain = name, value
        if name.endswith(_JSON) and isinstance(value, str):
            key, plain = name.removesuffix(_JSON), _parsed(value)
        if key.startswith(MISC):
            misc[key.removeprefix(MISC)] = plain
        else:
            record[key.removeprefix(".")] = plain
    return {**record, "misc": misc} if misc else record


def _parsed(text: str) -> Any:
    """The value of ``text``; the text itself where somebody wrote what is no JSON under such a name."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text

"""Selects runs: one grammar for every command that takes runs.

    3f9a                          the run whose id begins with this (four digits or more)
    digits                        all runs of a task
    digits[framework=numpy,lr=0.1]  ... with these parts, settings or results
    [status=failed]               ... of any task
    results/digits                a record or folder (a path has a slash, or ends in .jsonl); filters may follow
    mine                          a folder here with records, unless it is the name of a task; ./mine always is one
    latest, latest:5              the newest run, or runs

The same words name what to run and what has run: ``parse_item`` reads the former, ``parse_selector`` the latter. The
type of a value follows from its form (int, float, true, false, else text). Text that looks like another type, or has a
comma or bracket, is written in double quotes as in JSON, and so is a name that has more than letters, digits, '_', '.'
and '-'.
"""

from __future__ import annotations

import json
import math
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from itertools import islice
from pathlib import Path
from typing import Any, Protocol

from levelbench import plugins
from levelbench.errors import UsageError
from levelbench.records.schema import Specification, Target

__all__ = ["ATTRIBUTES", "OWN_NAMES", "PREFIXES", "RULES", "Selector", "Summary", "Value", "format_item", "format_name"]
__all__ += ["format_value", "parse_item", "parse_selector", "parse_value", "short_name"]

Value = int | float | str | bool

ATTRIBUTES = (
    *("recipe", "framework", "device", "seed", "status", "reached", "key", "id", "source", "target", "crossing"),
    "clock",
)
"""What filters can select by, in addition to settings, the words of a distribution (``ranks``, ``scheme``, ...) and
``RULES``. ``target`` is the threshold."""
RULES = ("evaluate_every", "budget_epochs", "budget_s", "budget_samples", "budget_j", "plateau")
"""When a run is evaluated and ends, which labels name where runs differ in it; ``none`` for what is not limited. A
setting with such a name hides it."""
OWN_NAMES = frozenset(ATTRIBUTES) - {"source"}
"""Names that a filter never reads as those of settings."""
PREFIXES = {"key": "key", "id": "id", "source": "source_digest"}
"""Digests that filters select by their beginning, with the attribute of a run. They are always text: 12e45678 is not a
number."""

_DO = "write task[name=value,...]; text with commas or brackets goes in double quotes"
_ITEM = re.compile(r"\s*(?P<name>[^\[\]\"=,]*?)\s*(?:\[(?P<inside>.*)\])?\s*", re.DOTALL)
_PAIR = re.compile(
    r"\s*(?P<key>[A-Za-z_][\w.-]*|\"(?:[^\"\\]|\\.)*\")\s*=\s*(?P<value>\"(?:[^\"\\]|\\.)*\"|[^,\[\]\"]*?)\s*(?P<more>,|$)",
    re.ASCII | re.DOTALL,
)
_INT = re.compile(r"[+-]?[0-9]+")
_FLOAT = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")
_HEX = re.compile(r"[0-9a-f]{4,}")
_MOST_ENTRIES = 10_000
_LATEST = re.compile(r"latest(?::([0-9]+))?")


class Summary(Protocol):
    """What a selector needs of a ``RunSummary`` or a ``Row`` of the index."""

    @property
    def id(self) -> str: ...  # noqa: D102
    @property
    def task(self) -> str: ...  # noqa: D102
    @property
    def target(self) -> Target: ...  # noqa: D102
    @property
    def settings(self) -> dict[str, int | float | str | bool]: ...  # noqa: D102
    @property
    def specification(self) -> Specification: ...  # noqa: D102
    @property
    def source_digest(self) -> str: ...  # noqa: D102
    @property
    def path(self) -> str: ...  # noqa: D102


@dataclass(frozen=True)
class Selector:
    """A parsed selection. ``word`` is a task or the beginning of an id; ``filters`` are names with texts of values."""

    text: str
    word: str = ""
    filters: tuple[tuple[str, str], ...] = ()
    path: Path | None = None
    latest: int | None = None

    def matches(self, run: Summary) -> bool:
        """Whether ``run`` is selected. ``latest`` matches every run, because only the store can count."""
        if self.path is not None and not _lies_in(run.path, str(self.path)):
            return False
        if self.word and run.task != self.word and not (self.is_id and run.id.startswith(self.word)):
            return False
        return all(_agrees(run, name, text) for name, text in self.filters)

    @property
    def is_id(self) -> bool:
        """Whether the word can be the beginning of an id."""
        return _HEX.fullmatch(self.word) is not None

    def names(self, identity: str) -> bool:
        """Whether it selects the run ``identity`` by its id or file, not by what it was."""
        if self.path is not None and self.path.is_file():
            return True
        words = [self.word] * self.is_id + [text.strip('"') for name, text in self.filters if name == "id"]
        return any(identity.startswith(word) for word in words)


def parse_selector(text: str) -> Selector:
    """The selection in ``text``; ``UsageError`` if it is not in the grammar above."""
    stripped = text.strip()
    latest = _LATEST.fullmatch(stripped)
    if latest:
        if latest[1] and not int(latest[1]):
            raise UsageError(f"the selection {text!r}", "it selects no run", "write latest, or latest:5 for five")
        return Selector(text, latest=int(latest[1] or 1))
    if _is_path(stripped):
        place, bracket, inside = stripped.partition("[") if stripped.endswith("]") else (stripped, "", "")
        filters = _split(bracket + inside, "the filter")[1]
        return Selector(text, filters=tuple(filters.items()), path=Path(place).expanduser().resolve())
    name, pairs = _split(text, "the selection")
    if not name and not pairs:
        raise UsageError(f"the selection {text!r}", "it is empty", f"{_DO}, an id, a path or latest")
    return Selector(text, name, tuple(pairs.items()))


def parse_item(text: str, before: str = "") -> tuple[str, dict[str, Value]]:
    """The name and settings in ``digits[framework=numpy,lr=0.05]``; ``UsageError`` if it is not in the grammar.

    ``before`` is the name that stands before ``text``, to which a setting without brackets was meant to belong.
    """
    name, pairs = _split(text, "the item", before)
    if not name:
        raise UsageError(f"the item {text!r}", "there is no name before the bracket", _DO)
    return name, {key: value if _is_source(key, value) else parse_value(value) for key, value in pairs.items()}


def format_item(name: str, settings: Mapping[str, Value]) -> str:
    """The text that ``parse_item`` reads as ``name`` and ``settings``."""
    inside = ",".join(
        f"{format_name(key)}={value if _is_source(key, str(value)) else format_value(value)}"
        for key, value in settings.items()
    )
    return f"{name}[{inside}]" if inside else name


def short_name(label: str, *, terse: bool = False) -> str:
    """``lr=0.1`` of ``digits[lr=0.1]``: what distinguishes it within its task.

    If ``terse``, without the names of recipes, frameworks, devices and schemes: ``torch,lr=0.1``.
    """
    name = label.partition("[")[2].removesuffix("]") or label
    return re.sub(r"(^|,)(recipe|framework|device|scheme)=", r"\1", name) if terse else name


def format_name(name: str) -> str:
    """The name of a setting as written in the grammar."""
    return name if re.fullmatch(r"[A-Za-z_][\w.-]*", name, re.ASCII) else json.dumps(name)


def _is_source(key: str, value: str) -> bool:
    """Whether it is the beginning of a digest, as in a label: always text."""
    return key == "source" and re.fullmatch("[0-9a-f]{8}", value) is not None


def format_value(value: Value) -> str:
    """A value as written in the grammar; text is quoted only if it would be read as something else."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        # A record may hold a number that nobody can ask for.
        return repr(value) if _reads_as_itself(repr(value), value) else json.dumps(repr(value))
    plain = bool(value) and not re.search(r"[,\[\]\"]", value) and value == value.strip() and value.isprintable()
    return value if plain and _reads_as_itself(value) else json.dumps(value)


def _reads_as_itself(text: str, value: Value | None = None) -> bool:
    try:
        return parse_value(text) == (text if value is None else value)
    except UsageError:
        # A number that is too large, such as 12e34567.
        return False


@cache
def parse_value(text: str) -> Value:
    """An int, float, boolean or text, by its form. ``nan`` and ``inf`` are text, since no setting can be either."""
    if text.startswith('"'):
        try:
            return str(json.loads(text, strict=False))
        except ValueError as error:
            raise UsageError(f"the value {text}", f"it is not quoted text ({error})", _DO) from error
    if text.lower() in ("true", "false"):
        return text.lower() == "true"
    if _INT.fullmatch(text):
        return _whole(text)
    if _FLOAT.fullmatch(text):
        number = float(text)
        if math.isinf(number):
            raise UsageError(f"the value {text}", "it is larger than a float can be", "write a smaller number")
        return number
    return text


def _whole(text: str) -> int:
    number = int(text) if len(text) < 21 else 1 << 64
    if not -(1 << 63) <= number < 1 << 63:
        raise UsageError(f"the value {text}", "it does not fit into 64 bits", "write a smaller number")
    return number


def _is_path(text: str) -> bool:
    before = text.split("[", 1)[0]
    return "/" in before or text.endswith(".jsonl") or text in (".", "..", "~") or _is_store(before.strip())


def _is_store(word: str) -> bool:
    """Whether a word is a folder here with records, and neither a task nor possibly the beginning of an id.

    The number of entries checked is limited, since the word may be the name of any folder.
    """
    if not word or not os.path.isdir(word) or _HEX.fullmatch(word) or word in plugins.names("task"):  # noqa: PTH112
        return False
    entries = (name for _, _, names in os.walk(word) for name in ("", *names))
    return any(name.endswith((".jsonl", ".jsonlines")) for name in islice(entries, _MOST_ENTRIES))


@cache
def _resolved(folder: str) -> str:
    return str(Path(folder).resolve())


def _lies_in(path: str, place: str) -> bool:
    """Whether ``path`` is ``place`` or below it (``place`` is resolved already)."""
    folder, _, name = path.rpartition("/")
    whole = f"{_resolved(folder or '.')}/{name}"
    return whole == place or whole.startswith(f"{place}/")


def _split(text: str, what: str, before: str = "") -> tuple[str, dict[str, str]]:
    """The name, and the values by key, as text."""
    asked = f"{what} {text!r}"
    whole = _ITEM.fullmatch(text)
    if whole is None and "=" in text and not set(text) & set('[]"'):
        found = "it stands outside of the brackets of a task"
        raise UsageError(asked, found, f"write {before or 'task'}[{text.strip()}]")
    if whole is None:
        raise UsageError(asked, "its brackets do not match, or something follows them", _DO)
    pairs: dict[str, str] = {}
    inside, at = whole["inside"] or "", 0
    while inside.strip() and at < len(inside):
        pair = _PAIR.match(inside, at)
        if pair is None or not pair["value"]:
            spaced = re.match(r'[^="\[\],]*[^\w.="\[\],-][^="\[\],]*(?==)', inside[at:].strip())
            do = f"write that name in double quotes: {format_name(spaced[0].strip())}=..." if spaced else _DO
            raise UsageError(asked, f"{inside[at:].strip()!r} is not name=value", do)
        key = str(parse_value(pair["key"])) if pair["key"].startswith('"') else pair["key"]
        if key in pairs:
            raise UsageError(asked, f"{key} is given twice", "give it once")
        pairs[key] = pair["value"]
        at = pair.end()
    return whole["name"], pairs


def _agrees(run: Summary, name: str, text: str) -> bool:
    if name in PREFIXES and not (name == "source" and name in run.settings):
        return str(getattr(run, PREFIXES[name])).startswith(text.strip('"'))
    actual: Any = run.settings.get(name)
    if actual is None:
        actual = run.specification.team().get(name)
    if actual is None and name in RULES:
        limit = getattr(run.specification, name)
        actual = "none" if limit is None else limit
    if name == "target":
        actual = run.target.threshold
    elif name in ATTRIBUTES:
        actual = getattr(run, name)
    value = parse_value(text)
    if name == "scheme" and isinstance(actual, str):
        return _scheme(actual) == _scheme(text)
    if isinstance(actual, str):
        return actual in (value, text)
    return isinstance(actual, bool) == isinstance(value, bool) and actual == value


@cache
def _scheme(name: str) -> str:
    """The definition of the scheme of that name, which all its names share; an unknown name is returned."""
    found = plugins.names("scheme").get(name)
    return found.value if found else name

"""Finds a ruleset by its id, or reads one from a file of the user's own.

The one idea: a ruleset is data that ships with a version; nothing else knows a threshold, so an entry names the rules
it was made for and anybody may score it under others.
"""

from __future__ import annotations

import math
import tomllib
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any

import msgspec

from levelbench.errors import DefinitionError, StoreError, UnknownNameError
from levelbench.measure.crossing import sign_of
from levelbench.measure.policies import POLICIES
from levelbench.records.rulesets.schema import Ruleset, TaskRules

__all__ = ["folder_rulesets", "read_ruleset", "ruleset", "ruleset_ids", "rulesets", "task_rules"]

_ENDING = ".toml"
_LARGEST_BYTES = 1 << 20
_DO = "correct the file; docs/rulesets.md has every field"


@cache
def ruleset_ids() -> tuple[str, ...]:
    """The ids of the rulesets that ship, in order."""
    names = (each.name for each in resources.files(__package__).joinpath("data").iterdir())
    return tuple(sorted(name.removesuffix(_ENDING) for name in names if name.endswith(_ENDING)))


def ruleset(id: str) -> Ruleset:
    """The ruleset of that id among those that ship; ``UnknownNameError`` if there is none.

    No file of a user's own is opened: an id may stand in somebody else's submission.
    """
    if id not in ruleset_ids():
        raise UnknownNameError("ruleset", id, ruleset_ids())
    return _shipped(id)


def rulesets() -> list[Ruleset]:
    """All rulesets that ship, by id."""
    return [_shipped(id) for id in ruleset_ids()]


def task_rules(rules: Ruleset, task: str) -> TaskRules | None:
    """What the rules say of the task of that name or alias; ``None`` where they do not have it."""
    exact = (each for each in rules.tasks if each.task == task)
    return next(exact, None) or next((each for each in rules.tasks if task in each.aliases), None)


@cache
def _shipped(id: str) -> Ruleset:
    file = resources.files(__package__).joinpath("data").joinpath(f"{id}{_ENDING}")
    return _parsed(file.read_bytes(), f"reading the ruleset {id}")


def read_ruleset(path: str | Path) -> Ruleset:
    """The ruleset in a file of the user's own.

    Raises ``StoreError`` for a file that cannot be read and ``DefinitionError``, which names the field, for one that is
    no ruleset or calls itself by the id of one that ships.
    """
    path = Path(path)
    asked = f"reading the ruleset {path}"
    try:
        if path.stat().st_size > _LARGEST_BYTES:
            raise DefinitionError(asked, f"it is larger than {_LARGEST_BYTES} bytes", "give a ruleset")
        raw = path.read_bytes()
    except OSError as error:
        raise StoreError(asked, error.strerror or str(error), "give the path of a .toml file") from error
    rules = _parsed(raw, asked)
    if rules.id in ruleset_ids() and rules != _shipped(rules.id):
        raise DefinitionError(asked, f"id is {rules.id!r}, which ships and says something else", "call it otherwise")
    return rules


def folder_rulesets(folder: str | Path) -> dict[str, Ruleset]:
    """The rulesets that entries of a leaderboard may name, by id: those that ship, and its own ``rulesets/*.toml``."""
    own = (read_ruleset(path) for path in sorted(Path(folder, "rulesets").glob(f"*{_ENDING}")))
    return {each.id: each for each in (*rulesets(), *own)}


def _parsed(raw: bytes, asked: str) -> Ruleset:
    try:
        read = tomllib.loads(raw.decode("utf-8"))
        rules = msgspec.convert(_without_infinity(read), Ruleset)
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise DefinitionError(asked, f"it is not TOML ({error})", _DO) from error
    except msgspec.ValidationError as error:
        raise DefinitionError(asked, str(error).replace("$.", ""), _DO) from error
    for found in _faults(rules):
        raise DefinitionError(asked, found, _DO)
    return rules


def _without_infinity(value: Any) -> Any:
    """``high = inf`` is how TOML, which has no null, says that a scale has no end."""
    if isinstance(value, dict):
        return {name: _without_infinity(each) for name, each in value.items()}
    if isinstance(value, list):
        return [_without_infinity(each) for each in value]
    return None if isinstance(value, float) and value == math.inf else value


def _faults(rules: Ruleset) -> list[str]:
    """What types cannot say: each with the field that it is about."""
    found = []
    if rules.id != f"{rules.name}-{rules.version}":
        found.append(f"id is {rules.id!r}, not name-version ({rules.name}-{rules.version})")
    if rules.clock not in POLICIES:
        found.append(f"clock is {rules.clock!r}; there are {', '.join(POLICIES)}")
    if rules.aggregation.runs < 1:
        found.append(f"aggregation.runs is {rules.aggregation.runs}: an entry needs a run")
    if not 0 <= 2 * rules.aggregation.drop < rules.aggregation.runs:
        found.append(f"aggregation.drop is {rules.aggregation.drop}: nothing is left of {rules.aggregation.runs} runs")
    names: set[str] = set()
    for at, each in enumerate(rules.tasks):
        for name in {each.task, *each.aliases}:
            if name in names:
                found.append(f"tasks[{at}] is called {name!r}, as another is")
            names.add(name)
        found += [f"tasks[{at}].{fault}" for fault in _target_faults(each)]
    return found


def _target_faults(rules: TaskRules) -> list[str]:
    target, found = rules.target, []
    high = math.inf if target.high is None else target.high
    if not target.low <= target.threshold <= high:
        found.append(f"target.threshold is {target.threshold:g}, off its scale from {target.low:g} to {high:g}")
    kept = rules.inference.threshold if rules.inference else None
    if kept is not None and not target.low <= kept <= high:
        found.append(f"inference.threshold is {kept:g}, off the scale from {target.low:g} to {high:g}")
    sign_of(target.direction)
    return found

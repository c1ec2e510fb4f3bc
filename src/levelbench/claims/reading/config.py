"""Settings of the linter in a project: ``lint.toml``, or ``[tool.levelbench.lint]`` of ``pyproject.toml``.

The one idea: they are looked for where the linter is called and never beside the claim, for its author must not silence
whoever reviews it.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from levelbench.errors import UnknownNameError, UsageError

__all__ = ["NAMES", "Settings", "find_settings", "read_settings"]

NAMES = ("select", "ignore", "show", "fail-on")
_LIMIT = 1 << 20


@dataclass(frozen=True)
class Settings:
    """What a project has set: codes to select, codes to ignore with their reasons, severities."""

    select: tuple[str, ...] = ()
    ignore: Mapping[str, str] = field(default_factory=dict)
    show: str | None = None
    fail_on: str | None = None


def find_settings(folder: Path) -> Settings:
    """The settings of ``folder``: those of ``lint.toml``, else of ``pyproject.toml``, else none."""
    for name in ("lint.toml", "pyproject.toml"):
        if (folder / name).is_file():
            return read_settings(folder / name)
    return Settings()


def read_settings(path: Path) -> Settings:
    """The settings in the file at ``path``; ``UsageError`` where they cannot be meant as they stand."""
    asked = f"reading the settings in {path}"
    try:
        with path.open("rb") as file:
            raw = file.read(_LIMIT + 1)
        if len(raw) > _LIMIT:
            raise UsageError(asked, f"it has more than {_LIMIT} bytes", "give a file of settings")
        value = tomllib.loads(raw.decode("utf-8"))
    except OSError as error:
        raise UsageError(asked, error.strerror or str(error), "give a file that can be read") from error
    except (ValueError, RecursionError) as error:
        raise UsageError(asked, f"it is not TOML: {error}", "correct it there") from error
    if path.name == "pyproject.toml":
        value = _table(_table(_table(value, "tool"), "levelbench"), "lint")
    return _checked(value, asked)


def _table(value: dict[str, Any], name: str) -> dict[str, Any]:
    inside = value.get(name, {})
    return inside if isinstance(inside, dict) else {}


def _checked(value: dict[str, Any], asked: str) -> Settings:
    for name in value:
        if name not in NAMES:
            raise UnknownNameError("setting of lint", name, NAMES)
    select, ignore = value.get("select", []), value.get("ignore", {})
    if not isinstance(select, list) or not all(isinstance(each, str) for each in select):
        raise UsageError(asked, "select is no list of codes", 'write select = ["LB1", "LB204"]')
    if not isinstance(ignore, dict) or not all(isinstance(each, str) for each in ignore.values()):
        raise UsageError(asked, "ignore has no reasons", 'write [ignore] and a line as LB107 = "why it is sound here"')
    for name in ("show", "fail-on"):
        if not isinstance(value.get(name, ""), str):
            raise UsageError(asked, f"{name} is no text", 'write "error", "warning" or "not-stated"')
    return Settings(tuple(select), ignore, value.get("show"), value.get("fail-on"))

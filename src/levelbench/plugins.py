"""Finds frameworks and tasks by name through entry points, and runs users' files, so that nobody needs a fork.

A name is known without importing what it names; only :func:`load` imports, and only the one asked for.
Somebody else's module may raise anything; what leaves here is an error that names it.
"""

from __future__ import annotations

import hashlib
import importlib.util
import sys
import traceback
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from types import ModuleType
from typing import Any

from levelbench.errors import DefinitionError, LevelbenchError, UnknownNameError, UsageError

__all__ = ["load", "load_file", "names", "place", "typed_setting"]


def names(kind: str) -> dict[str, EntryPoint]:
    """Entry points of ``levelbench.<kind>s`` by name: ``names("framework")``.

    What is installed later is seen by the next process.
    """
    return dict(_found(kind))


# Looking through all installed distributions takes 9 ms.
@cache
def _found(kind: str) -> dict[str, EntryPoint]:
    return {point.name: point for point in entry_points(group=f"levelbench.{kind}s")}


def load(kind: str, name: str) -> object:
    """The object that ``name`` names; an unknown name answers with the nearest ones.

    ``DefinitionError`` for a plug-in that raises on import, or has no such attribute.
    """
    found = names(kind)
    if name not in found:
        raise UnknownNameError(kind, name, found, f"see what there is: levelbench list {kind}s")
    point = found[name]
    try:
        loaded: object = point.load()
    except LevelbenchError:
        raise
    except (Exception, SystemExit) as error:  # the boundary to code that is not ours
        raise DefinitionError(
            f"{kind} {name!r}",
            f"its entry point {point.value!r} does not load ({type(error).__name__}: {error})",
            "repair the plug-in or remove its package; --debug shows where",
        ) from error
    return loaded


def load_file(kind: str, path: Path) -> ModuleType:
    """The module that a user's Python file makes, under a name of its own.

    ``UsageError`` where there is no such file, ``DefinitionError`` with the line for one that raises.
    """
    if not path.is_file():
        raise UsageError(
            f"{kind} file {path}", "there is no such file", f"give the path of a Python file with a {kind}"
        )
    name = f"levelbench_{kind}_{hashlib.sha256(str(path.resolve()).encode()).hexdigest()[:8]}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise DefinitionError(f"{kind} file {path}", "Python cannot import it", "give a .py file")
    module = importlib.util.module_from_spec(spec)
    # A dataclass looks its module up there.
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except LevelbenchError:
        raise
    except Exception as error:  # a user's file may raise anything; it becomes an error with its place
        raise DefinitionError(f"{kind} file {path}", f"it raised {place(error, path)}", "correct the file") from error
    return module


def typed_setting(asked: str, name: str, value: Any, default: Any) -> Any:
    """A setting's new value, of its default's type; a whole number is taken for a float. ``UsageError`` else."""
    if isinstance(default, float) and type(value) is int:
        return float(value)
    if type(value) is not type(default):
        kind = type(default).__name__
        found = f"{name} is of type {kind} (default {default!r}), not {type(value).__name__}"
        raise UsageError(asked, found, f"give a value of type {kind}")
    return value


def place(error: BaseException, path: Path) -> str:
    """The error, and the line of the user's file that raised it."""
    frames = traceback.extract_tb(error.__traceback__)
    lines = [frame.lineno for frame in frames if Path(frame.filename).resolve() == path.resolve()]
    line = getattr(error, "lineno", None) if isinstance(error, SyntaxError) else (lines[-1] if lines else None)
    where = f" at line {line}" if line else ""
    return f"{type(error).__name__}: {error}{where}"

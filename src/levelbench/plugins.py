"""Finds frameworks and tasks by name through entry points, and runs users' files, so that extensions need no fork.

Names are listed without importing anything; :func:`load` imports only the requested one. A plug-in may raise anything;
that becomes an error that names it.
"""

from __future__ import annotations

import hashlib
import importlib.util
import inspect
import sys
import traceback
from collections.abc import Mapping
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from types import ModuleType
from typing import Any

from levelbench.errors import DefinitionError, LevelbenchError, UnknownNameError, UsageError

__all__ = ["defined_in", "load", "load_file", "made_of", "names", "place", "title_of", "typed_setting"]


def names(kind: str) -> dict[str, EntryPoint]:
    """Entry points of ``levelbench.<kind>s`` by name: ``names("framework")``.

    Packages that are installed later are found by the next process.
    """
    return dict(_found(kind))


# Looking through all installed distributions takes 9 ms.
@cache
def _found(kind: str) -> dict[str, EntryPoint]:
    return {point.name: point for point in entry_points(group=f"levelbench.{kind}s")}


def load(kind: str, name: str) -> object:
    """The object with that name; ``UnknownNameError`` with the nearest names if there is none.

    Raises ``DefinitionError`` for a plug-in that raises on import, or lacks the attribute.
    """
    found = names(kind)
    if name not in found:
        raise UnknownNameError(kind, name, found, f"levelbench list {kind}s shows them all")
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
    """Import a user's Python file under a unique module name. It may import modules next to it, then and later.

    Raises ``UsageError`` if there is no such file, ``DefinitionError`` with the line if it raises.
    """
    if not path.is_file():
        article = "an" if kind[:1] in "aeio" else "a"
        do = f"give the path of a Python file with {article} {kind}"
        raise UsageError(f"{kind} file {path}", "there is no such file", do)
    name = f"levelbench_{kind}_{hashlib.sha256(str(path.resolve()).encode()).hexdigest()[:8]}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise DefinitionError(f"{kind} file {path}", "Python cannot import it", "give a .py file")
    module = importlib.util.module_from_spec(spec)
    # Dataclasses look up their module there.
    sys.modules[name] = module
    # Last, so that no file of the user's hides an installed module.
    if (folder := str(path.resolve().parent)) not in sys.path:
        sys.path.append(folder)
    try:
        spec.loader.exec_module(module)
    except LevelbenchError:
        raise
    except Exception as error:  # a user's file may raise anything; it becomes an error with its place
        do = "correct the file"
        if isinstance(error, ImportError) and "relative import" in str(error):
            do = "import by the package's name, or declare an entry point of the package and use that"
        raise DefinitionError(f"{kind} file {path}", f"it raised {place(error, path)}", do) from error
    return module


def typed_setting(asked: str, name: str, value: Any, default: Any) -> Any:
    """A setting's new value, converted from int to float if needed; ``UsageError`` if it has another type."""
    if isinstance(default, float) and type(value) is int:
        return float(value)
    if type(value) is not type(default):
        needed = _KINDS.get(type(default), f"a {type(default).__name__}")
        found = f"{name} must be {needed} (its default is {_spelt(default)}), not {_spelt(value)}"
        raise UsageError(asked, found, f"give {needed}, as in {name}={_spelt(default)}")
    return value


_KINDS: Mapping[type, str] = {bool: "true or false", int: "a whole number", float: "a number", str: "a word"}


def _spelt(value: Any) -> str:
    """As settings are written on the command line."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def place(error: BaseException, path: Path) -> str:
    """The error, and the line of the user's file that raised it."""
    frames = traceback.extract_tb(error.__traceback__)
    lines = [frame.lineno for frame in frames if Path(frame.filename).resolve() == path.resolve()]
    line = getattr(error, "lineno", None) if isinstance(error, SyntaxError) else (lines[-1] if lines else None)
    where = f" at line {line}" if line else ""
    return f"{type(error).__name__}: {error}{where}"


def defined_in(
    module: ModuleType, path: Path, what: str, base: type, own: type, needs: Mapping[str, Any]
) -> dict[str, Any]:
    """The instances of ``base`` that a loaded file defines, by name; ``what`` is ``optimizer`` or ``scheme``.

    That is the object called ``what`` if there is one, under its own title; otherwise all instances; otherwise the
    file's own subclasses of ``own``, created by :func:`made_of` with ``needs``. ``DefinitionError`` if there is none.
    """
    found = {name: each for name, each in vars(module).items() if isinstance(each, base) and not name.startswith("_")}
    if what in found:
        return {title_of(found[what]): found[what]}
    found.pop("reference", None)
    if found:
        return found
    kinds: list[Any] = [
        each
        for each in vars(module).values()
        if inspect.isclass(each) and issubclass(each, own) and each.__module__ == module.__name__
    ]
    made = {
        kind.__name__: made_of(kind, f"{kind.__name__} of {path}", path, what, needs)
        for kind in kinds
        if not inspect.isabstract(kind)
    }
    if made:
        return made
    if lacking := next((kind for kind in kinds if inspect.isabstract(kind)), None):
        missing = ", ".join(sorted(lacking.__abstractmethods__))
        do = f"write it: see docs/guides/check-{what}.md"
        raise DefinitionError(f"{lacking.__name__} of {path}", f"it has no {missing}", do)
    do = f"write {what} = ..., or a subclass of {own.__name__} with defaults"
    raise DefinitionError(f"{what} file {path}", f"it defines no {what}", do)


def title_of(made: object) -> str:
    """The name that its class has for it, else the class's own."""
    return str(getattr(type(made), "name", type(made).__name__))


def made_of(kind: type, asked: str, path: Path | None, what: str, needs: Mapping[str, Any] | None = None) -> Any:
    """One of a class, of its defaults; settings among ``needs`` may have none, and are given theirs."""
    needs = needs or {}
    lacking = [
        each.name
        for each in inspect.signature(kind).parameters.values()
        if each.default is inspect.Parameter.empty and each.kind is not inspect.Parameter.VAR_KEYWORD
    ]
    if not set(lacking) <= needs.keys():
        do = f"give them defaults, or write {what} = {kind.__name__}(...)"
        raise DefinitionError(asked, f"{', '.join(lacking)} have no default", do)
    try:
        return kind(**{name: needs[name] for name in lacking})
    except LevelbenchError:
        raise
    except Exception as error:  # a user's class may raise anything; it becomes an error with its place
        where = place(error, path) if path else f"{type(error).__name__}: {error}"
        raise DefinitionError(asked, f"making it raised {where}", "correct it") from error

"""Schemes and communicators by name: installed ones, and schemes defined in a user's file.

A scheme is a frozen dataclass whose fields are its settings. They are checked like those of a recipe, and a run records
all of them, not only those that were given. Communicators of a framework are requested from the framework, so this
module imports none.
"""

from __future__ import annotations

import hashlib
import inspect
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import fields, is_dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from levelbench import plugins
from levelbench.distributed.communicator import Communicator
from levelbench.distributed.scheme import Scheme
from levelbench.errors import DefinitionError, MissingError, UnknownNameError
from levelbench.operators.contract import Framework
from levelbench.operators.frameworks import load_framework

if TYPE_CHECKING:
    from levelbench.distributed.launching.environment import RankPlace

Setting = int | float | str | bool


def named_scheme(name: str, settings: Mapping[str, Setting] | None = None) -> Scheme:
    """The scheme with this name or alias, or from ``FILE.py`` or ``FILE.py:NAME``, with these settings.

    Raises ``UnknownNameError`` for an unknown name or setting, ``UsageError`` for a value of the wrong type,
    ``DefinitionError`` for a scheme that cannot be used.
    """
    if ".py" in name:
        return with_settings(_from_file(name), settings or {})
    kind: Any = plugins.load("scheme", name)
    if not (inspect.isclass(kind) and issubclass(kind, Scheme)):
        found = f"its entry point is a {type(kind).__name__}"
        raise DefinitionError(f"scheme {name!r}", found, "point it to a subclass of Scheme")
    made: Scheme = plugins.made_of(kind, f"scheme {name!r}", None, "scheme")
    return with_settings(made, settings or {})


def settings_of(scheme: Scheme) -> dict[str, Setting]:
    """All settings by name. ``DefinitionError`` for one that is not an int, float, str or bool."""
    result: dict[str, Setting] = {}
    declared: Any = scheme
    for each in fields(declared) if is_dataclass(declared) else ():
        value = getattr(scheme, each.name)
        if not isinstance(value, int | float | str | bool):
            found = f"setting {each.name!r} is a {type(value).__name__}, not an int, float, str or bool"
            do = "use one of these types, or keep it out of the fields"
            raise DefinitionError(f"scheme {plugins.title_of(scheme)!r}", found, do)
        result[each.name] = value
    return result


def with_settings(scheme: Scheme, given: Mapping[str, Setting]) -> Scheme:
    """The scheme with some settings changed, each to a value of the same type."""
    known = settings_of(scheme)
    typed: dict[str, Setting] = {}
    for name, value in given.items():
        if name not in known:
            raise UnknownNameError(f"setting of scheme {plugins.title_of(scheme)!r}", name, known)
        typed[name] = plugins.typed_setting(f"{plugins.title_of(scheme)}[{name}={value}]", name, value, known[name])
    changed: Any = scheme
    return replace(changed, **typed) if typed else scheme


def load_schemes(path: Path) -> dict[str, Scheme]:
    """The schemes of a file by name, with their settings.

    These are ``scheme`` if the file defines it, otherwise every instance of ``Scheme``, otherwise its own subclasses of
    ``Scheme`` with their defaults. The file is executed. Raises ``UsageError`` if it does not exist,
    ``DefinitionError`` if it raises (naming the line) or defines no scheme.
    """
    module = plugins.load_file("scheme", path)
    return plugins.defined_in(module, path, "scheme", Scheme, Scheme, {})


def file_of(name: str) -> tuple[str, str]:
    """``FILE.py`` or ``FILE.py:NAME`` with an absolute path, and the SHA-256 of the file."""
    file, colon, inside = name.partition(":")
    path = Path(file).resolve()
    return f"{path}{colon}{inside}", hashlib.sha256(path.read_bytes()).hexdigest()


def _from_file(text: str) -> Scheme:
    file, _, name = text.partition(":")
    found = load_schemes(Path(file))
    by_name = {**found, **{plugins.title_of(each): each for each in found.values()}}
    if not name and len(found) == 1:
        return next(iter(found.values()))
    if name not in by_name:
        raise UnknownNameError(f"scheme of {file}", name, by_name, f"write {file}:NAME")
    return by_name[name]


def communicator_kinds() -> dict[str, str | None]:
    """The communicators between processes by name, and what each lacks here; imports nothing heavy."""
    from levelbench.distributed.communicators import mpi

    found = {"mpi": mpi.lacks()}
    for framework in _frameworks():
        found |= dict.fromkeys(framework.communicators, framework.lacks())
    return dict(sorted(found.items()))


def open_communicator(kind: str, place: RankPlace, timeout_s: float = 60.0) -> Communicator:
    """Connect to the other ranks over ``gloo``, ``nccl`` or ``mpi``. Collective; close it afterwards.

    Raises ``UnknownNameError``, ``MissingError`` if the library is not installed, ``CommunicationError`` if some rank
    does not connect within ``timeout_s``.
    """
    if kind == "mpi":
        from levelbench.distributed.communicators.mpi import open_mpi

        return open_mpi(place, timeout_s)
    for framework in _frameworks():
        if kind not in framework.communicators:
            continue
        if lacking := framework.lacks():
            raise MissingError(f"a communicator over {kind}", lacking, "install it, or use mpi")
        return cast("Communicator", framework.communicator(kind, place, timeout_s))
    raise UnknownNameError("communicator", kind, communicator_kinds())


def _frameworks() -> Iterator[Framework]:
    """The frameworks that load; a broken plug-in is skipped."""
    for name in plugins.names("framework"):
        with suppress(DefinitionError):
            yield load_framework(name)

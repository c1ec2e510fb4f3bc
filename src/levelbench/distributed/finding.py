"""Schemes and communicators by name: those that are installed, and schemes that a user's file defines.

A scheme is a frozen dataclass, so its fields are its settings, checked as a recipe's are; all of them, not only those
that were given, are what a run records. Communicators of a framework are asked of the framework, so none is imported
here.
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
    """The scheme of a name, an alias, or ``FILE.py``, with ``:NAME`` where the file has several; with these settings.

    Raises ``UnknownNameError`` for an unknown name or setting, ``UsageError`` for a value of another type,
    ``DefinitionError`` for a scheme that cannot be used.
    """
    if ".py" in name:
        return with_settings(_of_file(name), settings or {})
    kind: Any = plugins.load("scheme", name)
    if not (inspect.isclass(kind) and issubclass(kind, Scheme)):
        found = f"its entry point is a {type(kind).__name__}"
        raise DefinitionError(f"scheme {name!r}", found, "name a Scheme's class")
    made: Scheme = plugins.made_of(kind, f"scheme {name!r}", None, "scheme")
    return with_settings(made, settings or {})


def settings_of(scheme: Scheme) -> dict[str, Setting]:
    """All its settings by name. ``DefinitionError`` for one that is no int, float, str or bool."""
    result: dict[str, Setting] = {}
    declared: Any = scheme
    for each in fields(declared) if is_dataclass(declared) else ():
        value = getattr(scheme, each.name)
        if not isinstance(value, int | float | str | bool):
            found = f"setting {each.name!r} is a {type(value).__name__}, of none of the types int, float, str and bool"
            raise DefinitionError(
                f"scheme {plugins.title_of(scheme)!r}", found, "use those, or keep it out of the fields"
            )
        result[each.name] = value
    return result


def with_settings(scheme: Scheme, given: Mapping[str, Setting]) -> Scheme:
    """The scheme with some settings changed, each to a value of the type that it has."""
    known = settings_of(scheme)
    typed: dict[str, Setting] = {}
    for name, value in given.items():
        if name not in known:
            raise UnknownNameError(f"setting of scheme {plugins.title_of(scheme)!r}", name, known)
        typed[name] = plugins.typed_setting(f"{plugins.title_of(scheme)}[{name}={value}]", name, value, known[name])
    changed: Any = scheme
    return replace(changed, **typed) if typed else scheme


def load_schemes(path: Path) -> dict[str, Scheme]:
    """The schemes of a file by name, each with its settings.

    That is ``scheme`` where the file makes it; else every scheme that it makes; else its own subclasses of ``Scheme``,
    with their defaults. The file is run. Raises ``UsageError`` if the file does not exist, ``DefinitionError`` where it
    raises, naming the line, or defines none.
    """
    module = plugins.load_file("scheme", path)
    return plugins.defined_in(module, path, "scheme", Scheme, Scheme, {})


def file_of(name: str) -> tuple[str, str]:
    """``FILE.py`` or ``FILE.py:NAME`` with its absolute path, and the SHA-256 of the file's text."""
    file, colon, inside = name.partition(":")
    path = Path(file).resolve()
    return f"{path}{colon}{inside}", hashlib.sha256(path.read_bytes()).hexdigest()


def _of_file(text: str) -> Scheme:
    file, _, name = text.partition(":")
    found = load_schemes(Path(file))
    by_name = {**found, **{plugins.title_of(each): each for each in found.values()}}
    if not name and len(found) == 1:
        return next(iter(found.values()))
    if name not in by_name:
        raise UnknownNameError(f"scheme of {file}", name, by_name, f"write {file}:NAME")
    return by_name[name]


def communicator_kinds() -> dict[str, str | None]:
    """The communicators between processes by name, and what each lacks here; nothing heavy is imported to look."""
    from levelbench.distributed.communicators import mpi

    found = {"mpi": mpi.lacks()}
    for framework in _frameworks():
        found |= dict.fromkeys(framework.communicators, framework.lacks())
    return dict(sorted(found.items()))


def open_communicator(kind: str, place: RankPlace, timeout_s: float = 60.0) -> Communicator:
    """Meet the other ranks over ``gloo``, ``nccl`` or ``mpi``. Collective; to be closed.

    Raises ``UnknownNameError``, ``MissingError`` where the library is not installed, ``CommunicationError`` where not
    all ranks come within ``timeout_s``.
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
    """Those that load: a plug-in of somebody else's that does not is no reason to open nothing."""
    for name in plugins.names("framework"):
        with suppress(DefinitionError):
            yield load_framework(name)

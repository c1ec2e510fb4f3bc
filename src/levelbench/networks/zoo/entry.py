"""The register of the zoo: a network's name, how it is built, its paper, and the sizes that were published of it.

An entry says what ours must equal, so a network that is subtly wrong fails a test and not a benchmark.
"""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

from levelbench import plugins
from levelbench.errors import UnknownNameError, UsageError
from levelbench.networks.network import Network

Build = Callable[..., Network]


@dataclass(frozen=True)
class Published:
    """What was published: trainable scalars, multiply-adds of one sample, where, and by how much ours differ and why.

    ``None`` stands for a figure that was not published.
    """

    parameters: int | None
    multiply_adds: float | None
    source: str
    note: str = ""


@dataclass(frozen=True)
class Architecture:
    """A network of the zoo. ``build`` takes options by keyword, all with defaults."""

    name: str
    build: Build
    paper: str
    published: Published
    kind: str
    summary: str


_ENTRIES: dict[str, Architecture] = {}


def register(name: str, build: Build, paper: str, published: Published, kind: str, summary: str) -> None:
    """Add an architecture; ``ValueError`` for a name that is taken."""
    if name in _ENTRIES:
        raise ValueError(f"the zoo has two networks of name {name!r}")
    _ENTRIES[name] = Architecture(name, build, paper, published, kind, summary)


@cache
def _load() -> None:
    package = importlib.import_module("levelbench.networks.zoo")
    for module in pkgutil.iter_modules(package.__path__):
        if not module.name.startswith("_"):
            importlib.import_module(f"{package.__name__}.{module.name}")


def names() -> list[str]:
    """The names of all entries, in the order of the alphabet."""
    _load()
    return sorted(_ENTRIES)


def entry(name: str) -> Architecture:
    """The entry of that name; an unknown one answers with the nearest."""
    _load()
    if name not in _ENTRIES:
        raise UnknownNameError("network", name, _ENTRIES, "see what there is: levelbench list networks")
    return _ENTRIES[name]


def build(name: str, **options: Any) -> Network:
    """The network of that name.

    ``UnknownNameError`` for an option that its function does not take, ``UsageError`` for a value of another type than
    its default's, and for one of which no network can be made.
    """
    found = entry(name)
    known = inspect.signature(found.build).parameters
    typed = dict(options)
    for option, value in options.items():
        if option not in known:
            raise UnknownNameError(f"option of {name}", option, list(known))
        default = known[option].default
        if default is not None and default is not inspect.Parameter.empty:
            typed[option] = plugins.typed_setting(f"{name} with {option}={value}", option, value, default)
    try:
        return found.build(**typed)
    except (ArithmeticError, ValueError) as error:
        given = ", ".join(f"{option}={value}" for option, value in options.items())
        raise UsageError(f"{name} with {given}", f"no network can be made of it ({error})", "give others") from error

"""The zoo's networks by name: how each is built, its paper, and its published sizes.

``published.toml`` lists them by paper. Tests compare our networks with these figures, so that a subtly wrong network
fails a test and not a benchmark.
"""

from __future__ import annotations

import importlib
import inspect
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache, partial
from importlib.resources import files
from typing import Any

from levelbench import plugins
from levelbench.errors import UnknownNameError, UsageError
from levelbench.networks.network import Network


@dataclass(frozen=True)
class Published:
    """Published trainable scalars and multiply-adds of one sample, with their source; ``note`` explains differences.

    ``None`` stands for an unpublished figure.
    """

    parameters: int | None
    multiply_adds: float | None
    source: str
    note: str = ""


@dataclass(frozen=True)
class Architecture:
    """A network of the zoo. ``build`` takes keyword options, all with defaults."""

    name: str
    build: Callable[..., Network]
    paper: str
    published: Published
    kind: str
    summary: str


@cache
def _table() -> dict[str, Mapping[str, Any]]:
    """The rows of ``published.toml`` by name, each with the title and kind of its paper."""
    text = files(__package__).joinpath("published.toml").read_text(encoding="utf-8")
    papers = tomllib.loads(text)["papers"]
    return {name: {**paper, **row} for paper in papers for name, row in paper["networks"].items()}


def names() -> list[str]:
    """The names of all entries, in alphabetical order."""
    return sorted(_table())


@cache
def entry(name: str) -> Architecture:
    """The entry of that name; ``UnknownNameError`` with similar names for an unknown one."""
    if name not in _table():
        raise UnknownNameError("network", name, _table(), "see all of them: levelbench list networks")
    row = _table()[name]
    module, function = row["build"].split(".")
    make = getattr(importlib.import_module(f"{__package__}.{module}"), function)
    if "args" in row or "options" in row:
        make = partial(make, *row.get("args", ()), **row.get("options", {}))
    published = Published(
        row.get("parameters"), row.get("multiply_adds"), row.get("source", row["title"]), row.get("note", "")
    )
    return Architecture(name, make, row["title"], published, row["kind"], row["summary"])


def build(name: str, **options: Any) -> Network:
    """The network of that name.

    ``UnknownNameError`` for an unknown option, ``UsageError`` for a value whose type differs from the default's or that
    makes no valid network.
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
        raise UsageError(f"{name} with {given}", f"it makes no valid network ({error})", "give others") from error

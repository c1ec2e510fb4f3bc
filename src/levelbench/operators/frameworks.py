"""Loads and opens frameworks by name, with errors that say what is missing."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from levelbench import plugins
from levelbench.errors import DefinitionError, UsageError
from levelbench.operators.contract import Framework, OperatorBackend


def load_framework(name: str) -> Framework:
    """The installed framework of that name, not opened.

    ``UnknownNameError`` or ``DefinitionError`` if there is none, ``UsageError`` for a file: it may change, and a record
    of a framework has its name alone.
    """
    if name.endswith(".py"):
        do = 'declare it in a package, under [project.entry-points."levelbench.frameworks"]; check takes files'
        raise UsageError(f"framework {name}", "it is a file, and what is recorded needs an installed framework", do)
    if name == "keras" and name not in plugins.names("framework"):
        why = "Keras computes with TensorFlow, JAX or PyTorch, which are the frameworks that are measured"
        do = "use tensorflow, jax or torch: a recipe's Keras model is built there on that backend"
        raise UsageError("framework 'keras'", why, do)
    found = plugins.load("framework", name)
    if not isinstance(found, Framework):
        found_type = f"its entry point is a {type(found).__name__}"
        raise DefinitionError(f"framework {name!r}", found_type, "make it an instance of Framework")
    return found


def installed_frameworks(names: Iterable[str], device: str = "cpu") -> list[str]:
    """Those of these frameworks that run on ``device`` here."""
    known = plugins.names("framework")
    return [name for name in names if name in known and load_framework(name).lacks(device) is None]


def named_framework(name: str) -> Framework:
    """The same for checks, of which nothing is recorded: the name may also be that of a file which defines one."""
    if not name.endswith(".py"):
        return load_framework(name)
    path = Path(name)
    found: dict[str, Framework] = plugins.defined_in(
        plugins.load_file("framework", path), path, "framework", Framework, Framework, {}
    )
    if len(found) > 1:
        do = "name the one that is meant `framework`"
        raise DefinitionError(f"framework file {path}", f"it defines {len(found)}: {', '.join(found)}", do)
    return next(iter(found.values()))


def open_framework(name: str, device: str = "cpu") -> OperatorBackend:
    """The framework of that name or in that file on ``device``; ``MissingError`` if it cannot be opened."""
    return named_framework(name).open(device)

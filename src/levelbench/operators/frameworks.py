"""Loads and opens frameworks by name, with errors that say what is missing."""

from __future__ import annotations

from levelbench import plugins
from levelbench.errors import DefinitionError
from levelbench.operators.contract import Framework, OperatorBackend


def load_framework(name: str) -> Framework:
    """The framework of that name, not opened; ``UnknownNameError`` or ``DefinitionError`` if there is none."""
    found = plugins.load("framework", name)
    if not isinstance(found, Framework):
        found_type = f"its entry point is a {type(found).__name__}"
        raise DefinitionError(f"framework {name!r}", found_type, "make it an instance of Framework")
    return found


def open_framework(name: str, device: str = "cpu") -> OperatorBackend:
    """The framework of that name on ``device``; ``MissingError`` if it cannot be opened."""
    return load_framework(name).open(device)

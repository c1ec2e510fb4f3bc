"""Finds frameworks and tasks by name through entry points, so that a third party adds one without a fork.

The one idea: a name is known without importing what it names; only :func:`load` imports, and only the one asked for.
"""

from __future__ import annotations

from importlib.metadata import EntryPoint, entry_points

from levelbench.errors import DefinitionError, UnknownNameError

__all__ = ["load", "names"]


def names(kind: str) -> dict[str, EntryPoint]:
    """Entry points of ``levelbench.<kind>s`` by name: ``names("framework")``."""
    return {point.name: point for point in entry_points(group=f"levelbench.{kind}s")}


def load(kind: str, name: str) -> object:
    """The object that ``name`` names; an unknown name answers with the nearest ones."""
    found = names(kind)
    if name not in found:
        raise UnknownNameError(kind, name, found, f"see what there is: levelbench list {kind}s")
    point = found[name]
    try:
        loaded: object = point.load()
    except (ImportError, AttributeError) as error:
        raise DefinitionError(
            f"{kind} {name!r}", f"its entry point {point.value!r} does not load ({error})", "repair or remove it"
        ) from error
    return loaded

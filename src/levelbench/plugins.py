"""Finds frameworks and tasks by name through entry points, so that a third party adds one without a fork.

The one idea: a name is known without importing what it names; only :func:`load` imports, and only the one asked for.
Somebody else's module may raise anything; what leaves here is an error that names it.
"""

from __future__ import annotations

from importlib.metadata import EntryPoint, entry_points

from levelbench.errors import DefinitionError, LevelbenchError, UnknownNameError

__all__ = ["load", "names"]


def names(kind: str) -> dict[str, EntryPoint]:
    """Entry points of ``levelbench.<kind>s`` by name: ``names("framework")``."""
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

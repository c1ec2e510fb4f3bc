"""Classes of the operators of a compiled file.

The one idea: a compiled library describes its operators itself (names, attributes with their defaults, types), so the
class is made from the library and the author writes everything once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from levelbench.errors import DefinitionError
from levelbench.operators.custom.binary import Library
from levelbench.operators.custom.compiled import CompiledOperator
from levelbench.operators.custom.definition import Attribute

__all__ = ["classes_of"]


def classes_of(library: Library) -> list[type[CompiledOperator]]:
    """One class an operator of the file."""
    return [_class(library, at, each) for at, each in enumerate(library.descriptions)]


def _class(library: Library, index: int, said: Mapping[str, Any]) -> type[CompiledOperator]:
    """The class of one description."""
    kinds = {name: kind for name, kind, _ in said["attributes"]}
    defaults = {name: _default(kind, values) for name, kind, values in said["attributes"]}
    place = f"the operator {said['name']} in {library.source}"
    members = {
        "__doc__": f"{said['name']} of {library.source.name}.",
        "__module__": __name__,
        "name": said["name"],
        "inputs": _names(said["inputs"]),
        "outputs": _names(said["outputs"]),
        "library": library,
        "index": index,
        "source": library.source,
        "types": tuple(said["types"]),
        "typed_by": said["typed_by"],
        "defaults": defaults,
        "kinds": kinds,
        "example_shapes": _shapes(said.get("examples", ""), len(_names(said["inputs"])), place),
        "runs_on_cuda": said["cuda"],
    }
    if not 0 <= said["typed_by"] < len(_names(said["inputs"])):
        found = f"its typed_by is {said['typed_by']}, and its inputs are {said['inputs']}"
        raise DefinitionError(place, found, "give the number of an input, from 0")
    made: type[CompiledOperator] = type(said["name"], (CompiledOperator,), members)
    made.has_backward = said["backward"]
    return made


def _default(kind: str, values: Sequence[Any]) -> Attribute:
    """The value with its type: JSON tells 2.0 from 2 no more than C++ wrote it."""
    typed: list[Any] = [float(each) for each in values] if kind in "fF" else list(values)
    return typed if kind.isupper() else typed[0]


def _names(text: str) -> tuple[str, ...]:
    return tuple(each.strip() for each in text.split(","))


def _shapes(text: str, inputs: int, place: str) -> tuple[tuple[tuple[int, ...], ...], ...]:
    """``4x8, 8; 1x1, 1``: cases by semicolon, one shape an input by comma; ``-`` for a scalar."""
    cases = []
    for case in (each for each in text.split(";") if each.strip()):
        words = [each.strip() for each in case.split(",")]
        try:
            shapes = tuple(() if word == "-" else tuple(int(size) for size in word.split("x")) for word in words)
        except ValueError:
            shapes = ()
        if len(shapes) != inputs or any(size < 0 for shape in shapes for size in shape):
            found = f"the example {case.strip()!r} does not give {inputs} shapes"
            raise DefinitionError(place, found, 'write them as "4x8, 8; 1x1, 1" ("-" for a scalar)')
        cases.append(shapes)
    return tuple(cases)

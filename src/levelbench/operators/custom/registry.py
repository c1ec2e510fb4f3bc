"""Custom operators by name: what a node of the domain ``levelbench.custom`` means in this process."""

from __future__ import annotations

import inspect
from typing import TypeVar

from levelbench.errors import DefinitionError, UnknownNameError, UsageError
from levelbench.operators.custom.definition import CustomOperator
from levelbench.operators.node import CUSTOM_DOMAIN, OperatorNode

__all__ = ["create", "find", "names", "node_of", "register"]

Class = TypeVar("Class", bound=type[CustomOperator])

_REGISTERED: dict[str, type[CustomOperator]] = {}


def register(cls: Class) -> Class:
    """Make the class known by its name; can be written above it as ``@register``.

    A class of the same name takes the place of an older one of the same file, as when a file is loaded again, and of
    the one that it derives from. ``DefinitionError`` where an unrelated class of another file has the name.
    """
    if not (isinstance(cls, type) and issubclass(cls, CustomOperator)) or inspect.isabstract(cls):
        raise DefinitionError(f"custom operator {cls!r}", "it is no class with a forward", "register a CustomOperator")
    known = _REGISTERED.get(cls.name)
    if known is not None and not _related(known, cls) and _origin(known) != _origin(cls):
        found = f"{_origin(known)} has an operator of that name already"
        raise DefinitionError(f"custom operator {cls.name!r} of {_origin(cls)}", found, "set another `name`")
    _REGISTERED[cls.name] = cls
    return cls


def _related(one: type[CustomOperator], other: type[CustomOperator]) -> bool:
    return issubclass(one, other) or issubclass(other, one)


def _origin(cls: type[CustomOperator]) -> str:
    """The file of a class, else its module."""
    source = getattr(cls, "source", None)
    try:
        # A class derived from a compiled one is its own file's, not that of the C++.
        return str(inspect.getfile(cls) if source is None or "source" not in cls.__dict__ else source)
    except (TypeError, OSError):
        return cls.__module__


def names() -> list[str]:
    """The names that are registered."""
    return sorted(_REGISTERED)


def find(name: str) -> type[CustomOperator]:
    """The class of that name; ``UnknownNameError`` with the nearest ones."""
    if name not in _REGISTERED:
        do = "load its file first: levelbench.operators.custom.load_file(path)"
        raise UnknownNameError("custom operator", name, _REGISTERED, do)
    return _REGISTERED[name]


def create(node: OperatorNode) -> CustomOperator:
    """The operator that a node describes.

    Raises ``UnknownNameError`` for a name or an attribute that does not exist, ``UsageError`` for another number of
    inputs or outputs, or an attribute of another type.
    """
    cls = find(node.op_type)
    for kind, given, known in (("inputs", node.inputs, cls.inputs), ("outputs", node.outputs, cls.outputs)):
        if len(given) != len(known) or not all(given):
            found = f"the node has {sum(map(bool, given))} {kind}, the operator {len(known)}: {', '.join(known)}"
            raise UsageError(node.title, found, "give as many")
    return cls(**node.attributes)


def node_of(operator: CustomOperator) -> OperatorNode:
    """The ONNX node of an operator, with its inputs' and outputs' own names."""
    return OperatorNode(operator.name, operator.inputs, operator.outputs, dict(operator.attributes), CUSTOM_DOMAIN, 1)

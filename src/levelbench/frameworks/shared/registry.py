"""Which function computes an operator on a framework: a table by ONNX's domain and name, filled by decorators.

An operator is a plain function of its inputs; its keyword-only parameters are attributes of the node, bound once, when
the node's function is made, so a call looks nothing up. Where attributes decide on the function itself, a *maker* does:
it reads the node and answers with the function to call.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import FunctionType
from typing import Generic, TypeVar

from levelbench.errors import UnsupportedError
from levelbench.operators.contract import Function
from levelbench.operators.node import OperatorNode

__all__ = ["Function", "Makers", "with_attributes"]

Entry = TypeVar("Entry")


def with_attributes(function: Function, node: OperatorNode, given: Mapping[str, object] | None = None) -> Function:
    """``function`` with its keyword-only parameters bound to what ``given`` has of these names, else to attributes.

    ``node`` is the node itself. A parameter's default is for an attribute that has none in ONNX. They become defaults
    of a copy of the function, which is as fast to call as the function.
    """
    if not isinstance(function, FunctionType) or not function.__code__.co_kwonlyargcount:
        return function
    code, defaults = function.__code__, function.__kwdefaults__ or {}
    known = {"node": node, **(given or {})}
    made = FunctionType(code, function.__globals__, function.__name__, function.__defaults__, function.__closure__)
    made.__kwdefaults__ = {}
    for name in code.co_varnames[code.co_argcount : code.co_argcount + code.co_kwonlyargcount]:
        if name in known:
            made.__kwdefaults__[name] = known[name]
        else:
            made.__kwdefaults__[name] = node.get(name, defaults[name]) if name in defaults else node[name]
    return made


class Makers(Generic[Entry]):
    """What a framework knows of each operator: an entry of its own kind, by (domain, name)."""

    def __init__(self, framework: str) -> None:
        self._framework = framework
        self._entries: dict[tuple[str, str], Entry] = {}

    def add(self, domain: str, name: str, entry: Entry) -> None:
        """Take over an entry; a later one of the same operator takes its place."""
        self._entries[domain, name] = entry

    def names(self) -> list[str]:
        """The operators that are there, as ``Conv`` or ``domain::Name``."""
        return sorted(f"{domain}::{name}" if domain else name for domain, name in self._entries)

    def find(self, node: OperatorNode) -> Entry:
        """The entry of a node's operator; ``UnsupportedError`` where there is none."""
        found = self._entries.get((node.domain, node.op_type))
        if found is None:
            asked = f"operator {node.title} on {self._framework}"
            raise UnsupportedError(asked, "this adapter has none", "use another framework")
        return found

    def refuse(self, node: OperatorNode, found: str, do: str = "use another framework") -> UnsupportedError:
        """The error that says what of an operator the framework, or its adapter, cannot do."""
        return UnsupportedError(f"{node.title} on {self._framework}", found, do)

"""Which function makes an operator on a framework: a table by ONNX's domain and name, filled by decorators."""

from __future__ import annotations

from typing import Generic, TypeVar

from levelbench.errors import UnsupportedError
from levelbench.operators.node import OperatorNode

__all__ = ["Makers"]

Entry = TypeVar("Entry")


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

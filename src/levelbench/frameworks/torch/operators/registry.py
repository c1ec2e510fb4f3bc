"""The register of makers: which function turns a node of an operator into a call on tensors.

The one idea: a maker reads the node's attributes once and answers with the function to call, PyTorch's own wherever
that one does the same, so that a call costs what PyTorch's costs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import torch

from levelbench.errors import UnsupportedError
from levelbench.operators.node import OperatorNode

__all__ = ["Entry", "Function", "device_maker", "find", "make", "maker", "names", "plain", "refuse"]

Function = Callable[..., Any]
"""Native arrays in (``None`` for one that is left out, NumPy's for structural ones), a tensor or a tuple out."""

Retry = Callable[[Function, tuple[Any, ...]], Any]


class Entry(NamedTuple):
    """How an operator is made."""

    make: Callable[[OperatorNode, torch.device], Function]
    unsigned: Retry | None
    """How to call the function for unsigned integers for which PyTorch has no kernel of it."""


_REGISTER: dict[tuple[str, str], Entry] = {}


def device_maker(
    *names: str, domain: str = "", unsigned: Retry | None = None
) -> Callable[[Callable[[OperatorNode, torch.device], Function]], Callable[[OperatorNode, torch.device], Function]]:
    """Register a maker of the operators ``names`` that must know the device."""

    def register(
        make: Callable[[OperatorNode, torch.device], Function],
    ) -> Callable[[OperatorNode, torch.device], Function]:
        for name in names:
            _REGISTER[domain, name] = Entry(make, unsigned)
        return make

    return register


def maker(
    *names: str, domain: str = "", unsigned: Retry | None = None
) -> Callable[[Callable[[OperatorNode], Function]], Callable[[OperatorNode], Function]]:
    """Register a maker of the operators ``names``."""

    def register(make: Callable[[OperatorNode], Function]) -> Callable[[OperatorNode], Function]:
        device_maker(*names, domain=domain, unsigned=unsigned)(lambda node, _: make(node))
        return make

    return register


def plain(functions: Mapping[str, Function], unsigned: Retry | None = None) -> None:
    """Register operators without attributes that are one function each."""
    for name, function in functions.items():
        _REGISTER["", name] = Entry(_always(function), unsigned)


def _always(function: Function) -> Callable[[OperatorNode, torch.device], Function]:
    return lambda _, __: function


def names() -> list[str]:
    """The operators that are registered, as ``Conv`` or ``domain::Name``."""
    return sorted(f"{domain}::{name}" if domain else name for domain, name in _REGISTER)


def find(node: OperatorNode) -> Entry:
    """The entry of a node's operator; ``UnsupportedError`` where there is none."""
    found = _REGISTER.get((node.domain, node.op_type))
    if found is None:
        raise UnsupportedError(f"operator {node.title} on torch", "this adapter has none", "use another framework")
    return found


def make(node: OperatorNode, device: torch.device) -> Function:
    """The function of a node; ``UnsupportedError`` where there is none."""
    return find(node).make(node, device)


def refuse(node: OperatorNode, found: str, do: str = "use another framework") -> UnsupportedError:
    """The error that says what of an operator PyTorch, or this adapter, cannot do."""
    return UnsupportedError(f"{node.title} on torch", found, do)

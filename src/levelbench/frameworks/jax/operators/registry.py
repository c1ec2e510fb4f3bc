"""The register of makers: which function turns a node of an operator into a function of JAX's arrays.

The one idea: a maker reads the node's attributes once and answers with a pure function that JAX can trace, compile and
differentiate; XLA fuses what it is written in, so it is written for the reader.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from levelbench.errors import UnsupportedError
from levelbench.operators.node import OperatorNode

__all__ = ["Entry", "Function", "Maker", "entry", "maker", "names", "plain", "refuse"]

Function = Callable[..., Any]
"""Arrays in (``None`` for one that is left out, NumPy's for structural ones), an array or a tuple out."""

Maker = Callable[[OperatorNode], Function]


class Entry(NamedTuple):
    """How an operator is made."""

    make: Maker
    eager: Callable[[OperatorNode], bool]
    """Whether the shape of an output depends on values, so that the node cannot be compiled as a whole."""
    random: bool = False
    """Whether the function takes a key of JAX's random numbers first."""
    backward: Callable[[OperatorNode], Function] | None = None
    """Makes (gradients, inputs, outputs) -> gradients of inputs, where JAX cannot find them from the inputs alone."""


_REGISTER: dict[tuple[str, str], Entry] = {}


def maker(
    *names: str,
    domain: str = "",
    eager: bool | Callable[[OperatorNode], bool] = False,
    random: bool = False,
    backward: Callable[[OperatorNode], Function] | None = None,
) -> Callable[[Maker], Maker]:
    """Register a maker of the operators ``names``."""

    def register(make: Maker) -> Maker:
        asked = eager if callable(eager) else lambda _: eager
        for name in names:
            _REGISTER[domain, name] = Entry(make, asked, random, backward)
        return make

    return register


def plain(functions: Mapping[str, Function]) -> None:
    """Register operators without attributes that are one function each."""
    for name, function in functions.items():
        maker(name)(_always(function))


def _always(function: Function) -> Maker:
    return lambda _: function


def names() -> list[str]:
    """The operators that are registered, as ``Conv`` or ``domain::Name``."""
    return sorted(f"{domain}::{name}" if domain else name for domain, name in _REGISTER)


def entry(node: OperatorNode) -> Entry:
    """The entry of a node's operator; ``UnsupportedError`` where there is none."""
    found = _REGISTER.get((node.domain, node.op_type))
    if found is None:
        raise UnsupportedError(f"operator {node.title} on jax", "this adapter has none", "use another framework")
    return found


def refuse(node: OperatorNode, found: str, do: str = "use another framework") -> UnsupportedError:
    """The error that says what of an operator JAX, or this adapter, cannot do."""
    return UnsupportedError(f"{node.title} on jax", found, do)

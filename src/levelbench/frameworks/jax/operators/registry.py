"""The register of makers: which function turns a node of an operator into a function of JAX's arrays.

A maker reads the node's attributes once and answers with a pure function that JAX can trace, compile and differentiate;
XLA fuses what it is written in, so it is written for the reader. The shared operators are there first; one of JAX's own
takes the place of a shared one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax.numpy as jnp

from levelbench.frameworks.shared.operators import SHARED, ArrayLibrary, SharedMaker
from levelbench.frameworks.shared.registry import Makers
from levelbench.operators.node import OperatorNode

__all__ = ["Function", "JaxEntry", "Maker", "find", "maker", "names", "plain", "refuse"]

Function = Callable[..., Any]
"""Arrays in (``None`` for one that is left out, NumPy's for structural ones), an array or a tuple out."""

Maker = Callable[[OperatorNode], Function]
Condition = Callable[[OperatorNode], bool]


class JaxEntry(NamedTuple):
    """How an operator is made."""

    make: Maker
    eager: Condition
    """Whether the shape of an output depends on values, so that the node cannot be compiled as a whole."""
    random: bool = False
    """Whether the function takes a key of JAX's random numbers first."""
    backward: Maker | None = None
    """Makes (gradients, inputs, outputs) -> gradients of inputs, where JAX cannot find them from the inputs alone."""


_MAKERS: Makers[JaxEntry] = Makers("jax")
names, find, refuse = _MAKERS.names, _MAKERS.find, _MAKERS.refuse


def maker(
    *names: str, domain: str = "", eager: bool | Condition = False, random: bool = False, backward: Maker | None = None
) -> Callable[[Maker], Maker]:
    """Register a maker of the operators ``names``."""

    def register(make: Maker) -> Maker:
        condition = eager if callable(eager) else lambda _: eager
        for name in names:
            _MAKERS.add(domain, name, JaxEntry(make, condition, random, backward))
        return make

    return register


def plain(functions: Mapping[str, Function]) -> None:
    """Register operators without attributes that are one function each."""
    for name, function in functions.items():
        maker(name)(_always(function))


def _always(function: Function) -> Maker:
    return lambda _: function


_NATIVE = ArrayLibrary(jnp, jnp.asarray)
_EAGER: dict[str, Condition] = {
    # Without a number of samples, the size of a region says how many there are.
    "RoiAlign": lambda node: int(node["sampling_ratio"]) == 0,
}


def _shared(make: SharedMaker) -> Maker:
    return lambda node: make(node, _NATIVE)


for (_domain, _name), _make in SHARED.items():
    maker(_name, domain=_domain, eager=_EAGER.get(_name, False))(_shared(_make))

"""The register of makers: which function turns a node of an operator into a call on tensors.

A maker reads the node's attributes once and answers with the function to call, PyTorch's own wherever that one does the
same, so that a call costs what PyTorch's costs. The shared operators are there first; one of PyTorch's own takes the
place of a shared one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, NamedTuple

import array_api_compat.torch as xp
import torch

from levelbench.frameworks.shared.operators import SHARED, ArrayLibrary, SharedMaker
from levelbench.frameworks.shared.registry import Makers
from levelbench.frameworks.torch.arrays import from_numpy
from levelbench.operators.node import OperatorNode

__all__ = ["Function", "TorchEntry", "device_maker", "find", "maker", "names", "plain", "refuse"]

Function = Callable[..., Any]
"""Native arrays in (``None`` for one that is left out, NumPy's for structural ones), a tensor or a tuple out."""

Retry = Callable[[Function, tuple[Any, ...]], Any]
DeviceMaker = Callable[[OperatorNode, torch.device], Function]
Maker = Callable[[OperatorNode], Function]


class TorchEntry(NamedTuple):
    """How an operator is made."""

    make: DeviceMaker
    unsigned: Retry | None
    """How to call the function for unsigned integers for which PyTorch has no kernel of it."""


_MAKERS: Makers[TorchEntry] = Makers("torch")
names, find, refuse = _MAKERS.names, _MAKERS.find, _MAKERS.refuse


def device_maker(*names: str, domain: str = "", unsigned: Retry | None = None) -> Callable[[DeviceMaker], DeviceMaker]:
    """Register a maker of the operators ``names`` that must know the device."""

    def register(make: DeviceMaker) -> DeviceMaker:
        for name in names:
            _MAKERS.add(domain, name, TorchEntry(make, unsigned))
        return make

    return register


def maker(*names: str, domain: str = "", unsigned: Retry | None = None) -> Callable[[Maker], Maker]:
    """Register a maker of the operators ``names``."""

    def register(make: Maker) -> Maker:
        device_maker(*names, domain=domain, unsigned=unsigned)(lambda node, _: make(node))
        return make

    return register


def plain(functions: Mapping[str, Function], unsigned: Retry | None = None) -> None:
    """Register operators without attributes that are one function each."""
    for name, function in functions.items():
        device_maker(name, unsigned=unsigned)(_always(function))


def _always(function: Function) -> DeviceMaker:
    return lambda _, __: function


def _shared(make: SharedMaker) -> DeviceMaker:
    return lambda node, device: make(node, ArrayLibrary(xp, partial(from_numpy, device=device)))


for (_domain, _name), _make in SHARED.items():
    device_maker(_name, domain=_domain)(_shared(_make))

"""The registry of PyTorch operators: which function of tensors computes a node.

It is PyTorch's own function wherever that computes the same, so that a call costs no more than PyTorch's. The shared
operators are registered first, and may be replaced.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import array_api_compat.torch as xp
import torch
from torch import Tensor
from torch.nn import functional

from levelbench.frameworks.shared import resize, sequences  # noqa: F401  # they register shared operators, too
from levelbench.frameworks.shared.operators import SHARED, ArrayLibrary, Makers, SharedMaker, with_attributes
from levelbench.frameworks.torch.arrays import from_numpy, torch_dtype
from levelbench.operators.contract import Function
from levelbench.operators.node import OperatorNode

Retry = Callable[[Function, tuple[Any, ...]], Any]
DeviceMaker = Callable[[OperatorNode, torch.device], Function]
Maker = Callable[[OperatorNode], Function]


class TorchEntry(NamedTuple):
    """How the function of an operator is made."""

    make: DeviceMaker
    unsigned: Retry | None
    """How to call the function for unsigned integers without a kernel in PyTorch."""


_MAKERS: Makers[TorchEntry] = Makers("torch")
names, find, refuse = _MAKERS.names, _MAKERS.find, _MAKERS.refuse


def device_maker(*names: str, domain: str = "", unsigned: Retry | None = None) -> Callable[[DeviceMaker], DeviceMaker]:
    """Register a maker: it returns the function of a node on a device."""

    def register(make: DeviceMaker) -> DeviceMaker:
        for name in names:
            _MAKERS.add(domain, name, TorchEntry(make, unsigned))
        return make

    return register


def maker(*names: str, domain: str = "", unsigned: Retry | None = None) -> Callable[[Maker], Maker]:
    """Register a maker that does not depend on the device."""

    def register(make: Maker) -> Maker:
        device_maker(*names, domain=domain, unsigned=unsigned)(lambda node, _: make(node))
        return make

    return register


def operator(*names: str, domain: str = "", unsigned: Retry | None = None) -> Callable[[Function], Function]:
    """Register a function of tensors whose keyword-only parameters are attributes, or the operator's ``device``."""

    def register(function: Function) -> Function:
        make = device_maker(*names, domain=domain, unsigned=unsigned)
        make(lambda node, device: with_attributes(function, node, {"device": device}))
        return function

    return register


def table(unsigned: Retry | None = None, **functions: Function) -> None:
    """Register the functions of operators by name."""
    for name, function in functions.items():
        operator(name, unsigned=unsigned)(function)


def _scan(
    step: Function, state: Tensor | tuple[Tensor, ...], along: tuple[Tensor, ...]
) -> tuple[Tensor | tuple[Tensor, ...], Tensor]:
    outputs = []
    for at in range(along[0].shape[0]):
        state, output = step(state, tuple(each[at] for each in along))
        outputs.append(output)
    return state, torch.stack(outputs)


def library(device: torch.device) -> ArrayLibrary:
    """What the shared operators need from PyTorch."""
    return ArrayLibrary(
        xp,
        array=partial(from_numpy, device=device),
        dtype_of=torch_dtype,
        arange=partial(torch.arange, device=device),
        take=lambda x, indices, axis: torch.index_select(x, axis, indices),
        scan=_scan,
        linear=functional.linear,
        einsum=torch.einsum,
        matmul=torch.matmul,
        softmax=partial(torch.softmax, dim=-1),
    )


def _shared(make: SharedMaker) -> DeviceMaker:
    return lambda node, device: make(node, library(device))


for (_domain, _name), _make in SHARED.items():
    device_maker(_name, domain=_domain)(_shared(_make))

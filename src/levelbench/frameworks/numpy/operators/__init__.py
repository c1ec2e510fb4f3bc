"""ONNX's operators in NumPy, vectorised, forward and backward: one module a family.

A module that holds a registry named ``OPERATORS`` adds its operators by being in this folder.
"""

from __future__ import annotations

from importlib import import_module
from pkgutil import iter_modules

from levelbench.frameworks.numpy.operators.kernel import Kernel, Maker, Registry

__all__ = ["OPERATORS", "Kernel", "Maker", "Registry"]


def _collect() -> Registry:
    every = Registry()
    for name in sorted(each.name for each in iter_modules(__path__)):
        found = getattr(import_module(f"{__name__}.{name}"), "OPERATORS", None)
        if isinstance(found, Registry):
            every.merge(found)
    return every


OPERATORS = _collect()
"""The makers of all operators that are ours; onnx.reference has the rest."""

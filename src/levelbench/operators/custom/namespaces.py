"""The functions of the Array API standard for arrays of whichever framework: ``xp = namespace(x)``.

The one idea: JAX's arrays name their namespace themselves; a framework whose arrays do not brings one. NumPy's own is
the standard's but for sorting.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from levelbench.errors import UnsupportedError

__all__ = ["NUMPY", "NumpyNamespace", "namespace", "provide"]


class NumpyNamespace:
    """NumPy, whose ``sort`` and ``argsort`` are those of the standard: stable unless asked, and in either direction."""

    def __getattr__(self, name: str) -> Any:
        """NumPy's own function, which is the standard's."""
        return getattr(np, name)

    @staticmethod
    def sort(x: NDArray[Any], /, *, axis: int = -1, descending: bool = False, stable: bool = True) -> NDArray[Any]:
        """Values in order."""
        found = np.sort(x, axis=axis, stable=stable)
        return np.flip(found, axis) if descending else found

    @staticmethod
    def argsort(x: NDArray[Any], /, *, axis: int = -1, descending: bool = False, stable: bool = True) -> NDArray[Any]:
        """The indices that put values in order; equal ones stay as they come, unless that is not asked for."""
        if not descending:
            return np.argsort(x, axis=axis, stable=stable)
        # Sorted the other way round, equal values come last first: so they are turned before and after.
        last = x.shape[axis] - 1
        return np.flip(last - np.argsort(np.flip(x, axis), axis=axis, stable=stable), axis)


NUMPY = NumpyNamespace()

_PROVIDED: dict[type, Any] = {}


def provide(kind: type, module: Any) -> None:
    """Use ``module`` for arrays of that type, whose framework has no namespace of the standard."""
    _PROVIDED[kind] = module


def namespace(*arrays: Any) -> Any:
    """The namespace that the arrays (numbers are ignored) have in common.

    Raises ``UnsupportedError`` for something that is no array of the standard.
    """
    for each in arrays:
        if isinstance(each, bool | int | float | complex | None):
            continue
        if isinstance(each, np.ndarray | np.generic):
            return NUMPY
        if hasattr(each, "__array_namespace__"):
            return each.__array_namespace__()
        for kind, module in _PROVIDED.items():
            if isinstance(each, kind):
                return module
        found = f"a {type(each).__name__} has no namespace of the Array API standard"
        raise UnsupportedError("namespace(...)", found, "give arrays of numpy, torch or jax")
    return NUMPY

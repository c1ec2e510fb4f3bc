"""The functions of the Array API standard for arrays of whichever framework: ``xp = namespace(x)``.

The one idea: NumPy's and JAX's arrays name their namespace themselves; a framework whose arrays do not brings one.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from levelbench.errors import UnsupportedError

__all__ = ["namespace", "provide"]

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
            return np
        if hasattr(each, "__array_namespace__"):
            return each.__array_namespace__()
        for kind, module in _PROVIDED.items():
            if isinstance(each, kind):
                return module
        found = f"a {type(each).__name__} has no namespace of the Array API standard"
        raise UnsupportedError("namespace(...)", found, "give arrays of numpy, torch or jax")
    return np

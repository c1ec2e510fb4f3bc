"""ONNX's operators as functions of JAX's arrays, by group; importing this registers them all."""

from levelbench.frameworks.jax.operators import (  # noqa: F401  # each registers its operators
    elementwise,
    layers,
    reductions,
    shapes,
    windows,
)
from levelbench.frameworks.jax.operators.registry import find, names

__all__ = ["find", "names"]

"""ONNX operators on JAX; importing this package registers all of them."""

from levelbench.frameworks.jax.operators import (  # noqa: F401  # each registers its operators
    elementwise,
    layers,
    reductions,
    shapes,
    windows,
)
from levelbench.frameworks.jax.operators.registry import find, names

__all__ = ["find", "names"]

"""Vectorised ONNX operators in NumPy, forward and backward; importing this package registers all of them."""

from levelbench.frameworks.numpy.operators import (  # noqa: F401  # each registers its operators
    activations,
    convolution,
    elementwise,
    indexing,
    layers,
    linear,
    pooling,
    recurrent,
    reductions,
    shapes,
)
from levelbench.frameworks.numpy.operators.kernel import OPERATORS, Kernel

__all__ = ["OPERATORS", "Kernel"]

"""ONNX's operators in NumPy, vectorised, forward and backward, by family; importing this registers them all."""

from levelbench.frameworks.numpy.operators import (  # noqa: F401  # each registers its operators
    activations,
    attention,
    convolution,
    elementwise,
    indexing,
    linear,
    loss,
    normalization,
    pooling,
    random,
    recurrent,
    reductions,
    resize,
    shapes,
)
from levelbench.frameworks.numpy.operators.kernel import OPERATORS, Kernel

__all__ = ["OPERATORS", "Kernel"]

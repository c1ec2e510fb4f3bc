"""ONNX operators on TensorFlow; importing this package registers all of them."""

from levelbench.frameworks.tensorflow.operators import (  # noqa: F401  # each registers its operators
    elementwise,
    layers,
    reductions,
    shapes,
    windows,
)
from levelbench.frameworks.tensorflow.operators.registry import find, names

__all__ = ["find", "names"]

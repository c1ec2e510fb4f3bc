"""ONNX operators on PyTorch; importing this package registers all of them."""

from levelbench.frameworks.torch.operators import (  # noqa: F401  # each registers its operators
    elementwise,
    layers,
    reductions,
    shapes,
    windows,
)
from levelbench.frameworks.torch.operators.registry import find, names

__all__ = ["find", "names"]

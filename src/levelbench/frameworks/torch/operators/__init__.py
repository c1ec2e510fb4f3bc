"""ONNX's operators on PyTorch, by group; importing this registers them all."""

from levelbench.frameworks.torch.operators import (  # noqa: F401  # each registers its operators
    elementwise,
    images,
    normalization,
    quantization,
    random,
    reductions,
    sequences,
    shapes,
    windows,
)
from levelbench.frameworks.torch.operators.registry import Function, find, names

__all__ = ["Function", "find", "names"]

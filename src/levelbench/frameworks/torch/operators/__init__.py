"""ONNX's operators on PyTorch, by group; importing this registers them all."""

from levelbench.frameworks.torch.operators import (  # noqa: F401  # each registers its operators
    activations,
    attention,
    casting,
    convolution,
    detection,
    drawing,
    elementwise,
    generators,
    image,
    indexing,
    linear,
    losses,
    normalisation,
    padding,
    pooling,
    quantisation,
    recurrent,
    reduction,
    resize,
    scattering,
    shape,
    signals,
    text,
    training,
)
from levelbench.frameworks.torch.operators.registry import Entry, Function, find, names

__all__ = ["Entry", "Function", "find", "names"]

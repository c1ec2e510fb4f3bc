"""Small networks that transforms can change."""

import numpy as np
import pytest

from levelbench.networks import Draw, GraphBuilder
from levelbench.operators.frameworks import open_framework

NORMAL = Draw("normal", 0.3)
ZERO, ONE = Draw("constant", 0.0), Draw("constant", 1.0)


@pytest.fixture(scope="session")
def backend():
    return open_framework("numpy")


def norm(g, x, channels, name="norm", **settings):
    """Batch normalisation with its running statistics as buffers."""
    with g.scope(name):
        scale, shift = g.parameter("scale", (channels,), ONE), g.parameter("shift", (channels,), ZERO)
        mean = g.parameter("mean", (channels,), ZERO, trainable=False)
        variance = g.parameter("variance", (channels,), ONE, trainable=False)
        return g.node("BatchNormalization", x, scale, shift, mean, variance, **settings)


def conv(g, x, before, after, name="conv", **settings):
    """A 3x3 convolution without bias that keeps the size."""
    with g.scope(name):
        return g.node("Conv", x, g.parameter("weight", (after, before, 3, 3), NORMAL), pads=[1] * 4, **settings)


@pytest.fixture
def residual():
    """Convolutions with batch normalisation, one block with a shortcut, pooling, and a product."""
    g = GraphBuilder("residual")
    x = g.input("input", ("batch", 3, 8, 8))
    x = g.node("Relu", norm(g, conv(g, x, 3, 4, "conv0"), 4, "norm0"))
    y = g.node("Relu", norm(g, conv(g, x, 4, 4, "conv1"), 4, "norm1"))
    y = norm(g, conv(g, y, 4, 4, "conv2"), 4, "norm2")
    x = g.node("Relu", g.node("Add", x, y))
    x = g.node("Flatten", g.node("GlobalAveragePool", x))
    weight, bias = g.parameter("weight", (4, 5), NORMAL), g.parameter("bias", (5,), ZERO)
    g.output(g.node("Gemm", x, weight, bias), "output")
    return g.build()


@pytest.fixture
def exported():
    """A network as exporters write it: the batch size from a Shape, an erf-GELU and a layer norm in pieces."""
    g = GraphBuilder("exported")
    x = g.input("input", ("batch", 4, 6))
    batch = g.node("Unsqueeze", g.node("Gather", g.node("Shape", x), g.constant(0)), g.constant([0]))
    shape = g.node("Concat", batch, g.constant([-1]), axis=0)
    mean = g.node("ReduceMean", x, g.constant([-1]))
    centred = g.node("Sub", x, mean)
    variance = g.node("ReduceMean", g.node("Pow", centred, g.constant(2.0)), g.constant([-1]))
    deviation = g.node("Sqrt", g.node("Add", variance, g.constant(1e-5)))
    x = g.node("Mul", g.node("Div", centred, deviation), g.parameter("scale", (6,), ONE))
    x = g.node("Add", x, g.parameter("shift", (6,), ZERO))
    erf = g.node("Erf", g.node("Div", x, g.constant(np.float32(np.sqrt(2)))))
    x = g.node("Mul", g.node("Mul", x, g.node("Add", erf, g.constant(1.0))), g.constant(0.5))
    x = g.node("Reshape", x, shape)
    x = g.node("MatMul", x, g.parameter("weight", (24, 3), NORMAL))
    g.output(g.node("Add", x, g.parameter("bias", (3,), ZERO)), "output")
    return g.build()

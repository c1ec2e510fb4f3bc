"""A network for tests of ONNX Runtime's executor, its inputs, and the reference's outputs."""

import numpy as np
import pytest

from levelbench.frameworks.numpy import framework as numpy_framework
from levelbench.networks import Draw, GraphBuilder

MODES = pytest.mark.parametrize("mode", ["optimised", "unoptimised"])
HE = Draw("normal", 0.3)


def build():
    """A convolution with normalisation and Relu, shape arithmetic, Dropout, two linear layers."""
    g = GraphBuilder("small")
    x = g.input("x", ["batch", 2, 6, 6])
    g.parameter("unread", [3], HE)
    y = g.node("Conv", x, g.parameter("conv", [4, 2, 3, 3], HE), g.parameter("offset", [4], HE), pads=[1, 1, 1, 1])
    ones, zeros = Draw("constant", 1.0), Draw("constant", 0.0)
    scale, bias = g.parameter("scale", [4], ones), g.parameter("bias", [4], HE)
    mean = g.parameter("mean", [4], zeros, trainable=False)
    y = g.node("BatchNormalization", y, scale, bias, mean, g.parameter("variance", [4], ones, trainable=False))
    y = g.node("GlobalAveragePool", g.node("Relu", y))
    rows = g.node("Slice", g.node("Shape", y), *(g.constant([each]) for each in (0, 1)))
    y = g.node("Reshape", y, g.node("Concat", rows, g.constant([-1]), axis=0))
    hidden = g.node("Relu", g.node("Gemm", y, g.parameter("w0", [4, 300], HE)))
    hidden = g.node("Dropout", hidden, g.constant(0.5))
    g.output(g.node("Gemm", hidden, g.parameter("w1", [300, 3], HE)), "logits")
    return g.build()


def data(network, batch=4):
    return next(iter(network.make_inputs(batch, seed=1).values()))


def wanted(network, parameters=None, batch=4):
    return numpy_framework.open("cpu").executor(network, parameters).infer(data(network, batch))[0]


def close(found, expected, relative=1e-4):
    assert found.shape == expected.shape
    assert np.abs(found - expected).max() <= relative * np.abs(expected).max()

"""A small network for tests of JAX's executor, its inputs, and the tolerance."""

import numpy as np
import pytest

from levelbench.networks import Draw, GraphBuilder

MODES = pytest.mark.parametrize("mode", ["jit", "eager"])
HE = Draw("normal", 0.3)


def tiny(dropout=False):
    """Two linear layers, and one unused parameter."""
    g = GraphBuilder("tiny")
    g.parameter("unread", [3], HE)
    y = g.node("Relu", g.node("Gemm", g.input("x", ["batch", 6]), g.parameter("w0", [6, 36], HE)))
    if dropout:
        y = g.node("Dropout", y, g.constant(0.5))
    g.output(g.node("Gemm", y, g.parameter("weight", [36, 3], HE)), "logits")
    return g.build().with_loss()


def build():
    """Convolution, normalisation, shape arithmetic, and one unused parameter."""
    g = GraphBuilder("small")
    x = g.input("x", ["batch", 2, 6, 6])
    g.parameter("unread", [3], HE)
    y = g.node("Conv", x, g.parameter("conv", [4, 2, 3, 3], HE), pads=[1, 1, 1, 1])
    ones, zeros = Draw("constant", 1.0), Draw("constant", 0.0)
    scale, bias = g.parameter("scale", [4], ones), g.parameter("bias", [4], zeros)
    mean = g.parameter("mean", [4], zeros, trainable=False)
    variance = g.parameter("variance", [4], ones, trainable=False)
    y = g.node("BatchNormalization", y, scale, bias, mean, variance)
    y = g.node("MaxPool", g.node("Relu", y), kernel_shape=[2, 2], strides=[2, 2])
    rows = g.node("Slice", g.node("Shape", y), *(g.constant([each]) for each in (0, 1)))
    y = g.node("Reshape", y, g.node("Concat", rows, g.constant([-1]), axis=0))
    g.output(g.node("Gemm", y, g.parameter("weight", [36, 3], HE)), "logits")
    return g.build().with_loss()


def given(backend, network, batch=4):
    return [backend.array(each) for each in network.make_inputs(batch, seed=1).values()]


def close(found, wanted, relative=1e-4):
    found, wanted = np.asarray(found), np.asarray(wanted)
    assert found.shape == wanted.shape
    assert np.abs(found - wanted).max(initial=0) <= relative * max(np.abs(wanted).max(initial=0), 1e-3)

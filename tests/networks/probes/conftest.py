"""A network with many operators, and backends with one planted fault."""

import numpy as np
import onnx
import pytest

from levelbench.frameworks.numpy.backend import NumpyBackend
from levelbench.networks import Draw, GraphBuilder
from levelbench.networks.probes.running import needed_nodes
from levelbench.operators.contract import Operator

WEIGHT = Draw("normal", 0.4)


def build_network():
    """Images to classes: convolutions, norms, a residual branch, pools, attention-like products, softmax."""
    g = GraphBuilder("varied")
    x = g.input("x", ("batch", 3, 8, 8))
    with g.scope("stem"):
        w = g.parameter("weight", (6, 3, 3, 3), WEIGHT)
        b = g.parameter("bias", (6,), WEIGHT)
        stem = g.node("Conv", x, w, b, name="conv", pads=[1, 1, 1, 1])
        scale, shift = g.parameter("scale", (6,), Draw("normal", 0.2, 1.0)), g.parameter("shift", (6,), WEIGHT)
        mean = g.parameter("mean", (6,), WEIGHT, trainable=False)
        variance = g.parameter("variance", (6,), Draw("constant", 0.05), trainable=False)
        normal = g.node("BatchNormalization", stem, scale, shift, mean, variance, name="norm", epsilon=1e-5)
        active = g.node("Relu", normal, name="relu")
    with g.scope("branch"):
        w = g.parameter("weight", (6, 1, 3, 3), WEIGHT)
        depthwise = g.node("Conv", active, w, name="depthwise", pads=[1, 1, 1, 1], group=6)
        leaky = g.node("LeakyRelu", depthwise, name="leaky", alpha=0.1)
        joined = g.node("Add", active, leaky, name="add")
    pooled = g.node("MaxPool", joined, name="maxpool", kernel_shape=[2, 2], strides=[2, 2])
    average = g.node("AveragePool", pooled, name="average", kernel_shape=[3, 3], pads=[1, 1, 1, 1], strides=[1, 1])
    both = g.node("Concat", pooled, average, name="concat", axis=1)
    rows = g.node("Reshape", both, g.constant(np.array([0, 12, 16])), name="rows")
    rows = g.node("Add", rows, g.parameter("position", (12, 16), WEIGHT), name="placed")
    scale, shift = g.parameter("ln.scale", (16,), Draw("normal", 0.2, 1.0)), g.parameter("ln.shift", (16,), WEIGHT)
    tokens = g.node("LayerNormalization", rows, scale, shift, name="layernorm")
    square = g.parameter("square", (16, 16), WEIGHT)
    query = g.node("MatMul", tokens, square, name="query")
    keys = g.node("Transpose", tokens, name="keys", perm=[0, 2, 1])
    scores = g.node(
        "Softmax", g.node("Mul", g.node("MatMul", query, keys, name="scores"), g.constant(0.1)), name="softmax"
    )
    mixed = g.node("MatMul", scores, tokens, name="mixed")
    bent = g.node("Gelu", mixed, name="gelu")
    mean = g.node("ReduceMean", bent, g.constant(np.array([1])), name="mean", keepdims=0)
    part = g.node("Slice", mean, g.constant([2]), g.constant([14]), g.constant([1]), name="slice")
    w, b = g.parameter("head.weight", (12, 12), WEIGHT), g.parameter("head.bias", (12,), WEIGHT)
    g.output(g.node("Gemm", part, w, b, name="head", transB=1), "logits")
    return g.build()


class Edited(NumpyBackend):
    """Passes every network to NumPy, with the node of one output changed by ``edit(node, graph)``."""

    def __init__(self, output, edit):
        self._output, self._edit = output, edit

    def executor(self, network, parameters=None, **options):
        parameters = network.initialise() if parameters is None else parameters
        model = onnx.ModelProto()
        model.CopyFrom(network.model)
        for node in list(model.graph.node):
            if self._output in node.output:
                self._edit(node, model.graph)
        edited = super().executor(network.replace(model=model), parameters, **options)
        return self._with_what_it_still_reads(edited, network, model)

    def _with_what_it_still_reads(self, executor, network, model):
        """Accepts and ignores inputs that a dropped branch or bias no longer reads."""
        names = [each.name for each in network.outputs]
        before, now = (needed_nodes(graph, names)[1] for graph in (network.model.graph, model.graph))
        taken = [each.name for each in network.inputs if each.name in before]
        infer = executor.infer
        executor.infer = lambda *given: infer(*[each for name, each in zip(taken, given, strict=True) if name in now])
        return executor


class Wrong(Operator):
    """An operator whose outputs, or whose gradients, are changed."""

    def __init__(self, inner, forward, backward):
        self.node, self._inner, self._forward, self._backward = inner.node, inner, forward, backward

    def forward(self, *inputs):
        if self._forward is None:
            return self._inner.forward(*inputs)
        return tuple(self._forward(*inputs))

    def vjp(self, *inputs):
        outputs, pullback = self._inner.vjp(*inputs)
        if self._backward is None:
            return self.forward(*inputs), pullback
        return outputs, lambda *gradients: tuple(self._backward(inputs, gradients, pullback(*gradients)))


class Replaced(NumpyBackend):
    """NumPy with one operator, of a type or of the node of that output, replaced by :class:`Wrong`."""

    def __init__(self, which, forward=None, backward=None):
        self._which, self._forward, self._backward = which, forward, backward

    def operator(self, node):
        inner = super().operator(node)
        if node.op_type == self._which or self._which in node.outputs:
            return Wrong(inner, self._forward, self._backward)
        return inner


@pytest.fixture(scope="session")
def varied():
    return build_network()


@pytest.fixture(scope="session")
def planting():
    """The two kinds of backends with one planted fault."""
    return Edited, Replaced

"""Small models in ONNX's text and protobuf, and their files, valid and invalid."""

import numpy as np
from onnx import TensorProto, numpy_helper, parser

from levelbench.networks import Draw, GraphBuilder

SUFFIXES = (".onnx", ".json", ".textproto")


def small():
    g = GraphBuilder("small")
    ids = g.input("ids", ["batch", "length"], "int64", high=7)
    g.size("length", 5)
    table = g.parameter("table", [7, 300], Draw("normal", 0.5))
    weight = g.parameter("weight", [300, 3], Draw("uniform", 0.1))
    counter = g.parameter("counter", [3], Draw("constant", 1.0), trainable=False)
    y = g.node("Add", g.node("MatMul", g.node("Gather", table, ids), weight), counter)
    g.update("counter", g.node("Add", counter, g.constant(np.ones(3, np.float32))))
    g.output(y, "y")
    return g.build()


def write(path, model):
    path.write_bytes(model if isinstance(model, bytes) else model.SerializeToString())
    return path


def graph_of(text):
    return parser.parse_model(f'<ir_version: 10, opset_import: ["" : 21, "local" : 1]> {text}')


def chain(**changes):
    """A model of two nodes on one weight, with fields of the weight replaced."""
    model = graph_of("g (float[N] x) => (float[N] y) { a = Add(x, w)  y = Relu(a) }")
    tensor = numpy_helper.from_array(np.ones(4, np.float32), "w")
    for name, value in changes.items():
        if isinstance(value, list):
            tensor.ClearField(name)
            getattr(tensor, name).extend(value)
        else:
            setattr(tensor, name, value)
    model.graph.initializer.append(tensor)
    return model


RICH = """g (float[N] x, bool c, seq(float[N]) s, optional(seq(float[N])) o) => (float[N] y, seq(float[N]) t) {
    z = If (c) <then_branch = yes () => (float[N] a) { a = Abs(x) }, else_branch = no () => (float[N] b) { b = Neg(x) }>
    w = Loop (, c, z) <body = turn (int64 i, bool go, float[N] v) => (bool go2, float[N] v2)
        { go2 = Identity(go) v2 = local.twice(v) }>
    u = Scan <body = step (float v) => (float q) { q = Exp(v) }, num_scan_inputs = 1> (w)
    y = Relu(u)
    t = Identity(s)
} <domain: "local", opset_import: ["" : 21]> twice (v) => (r) { r = Add(v, v) }"""


def referring(**entries):
    """A model whose weight of four float32 numbers is in another file."""
    model = chain()
    tensor = model.graph.initializer[0]
    tensor.ClearField("raw_data")
    tensor.data_location = TensorProto.EXTERNAL
    for key, value in entries.items():
        tensor.external_data.add(key=key, value=str(value))
    return model

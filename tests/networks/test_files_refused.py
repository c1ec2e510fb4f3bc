"""An invalid file is refused, and the error says what is wrong with it."""

import json
from dataclasses import replace

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper
from tests.networks.models import chain, graph_of, small, write

from levelbench.errors import DefinitionError, MissingError
from levelbench.networks import Draw, GraphBuilder, Network, Parameter
from levelbench.networks.files import load


def simple(nodes):
    """A model with one input and one output."""
    return graph_of(f"g (float[N] x) => (float[N] y) {{ {nodes} }}")


def test_a_file_that_does_not_exist_is_missing(tmp_path):
    with pytest.raises(MissingError, match="there is no file"):
        load(tmp_path / "model.onnx")


MALFORMED = {
    "empty": (b"", "the file is empty"),
    "no protobuf": (b"this is no model", "it is not an ONNX model, or truncated"),
    "cut short": (chain().SerializeToString()[:-7], "it is not an ONNX model, or truncated"),
    "no graph": (onnx.ModelProto(ir_version=10).SerializeToString(), "it has no graph"),
    "too little data": (chain(dims=[5]), r"claims the shape \(5,\), 20 bytes, but holds 16"),
    "too much data": (chain(dims=[3]), r"claims the shape \(3,\), 12 bytes, but holds 16"),
    "absurd shape": (chain(dims=[2**30, 2**30]), r"Use at most 2\*\*40 elements"),
    "absurd shape of nothing": (chain(dims=[0, 2**62], raw_data=b""), r"Use at most 2\*\*40 elements"),
    "negative size": (chain(dims=[-4]), "Use sizes of 0 or more"),
    "unknown type": (chain(data_type=99), "elements of unknown type 99"),
    "values missing": (simple("a = Add(x, w) y = Relu(a)"), "reads 'w', which no node makes"),
    "output missing": (graph_of("g (float[N] x) => (float[N] z) { y = Relu(x) }"), "no node makes its output 'z'"),
    "cycle": (simple("a = Add(x, y) y = Relu(a)"), "it has a cycle through Add 'a'"),
    "self": (simple("y = Add(x, y)"), "it has a cycle through Add 'y'"),
    "twice": (simple("y = Relu(x) y = Abs(x)"), "the value 'y' is made twice"),
    "input twice": (graph_of("g (float[N] x, float[N] x) => (float[N] y) { y = Relu(x) }"), "two inputs called 'x'"),
    "input made": (graph_of("g (float[N] x, float[N] y) => (y) { y = Relu(x) }"), "the value 'y' is made twice"),
    "input absurd": (graph_of("g (float[1099511627776, 2] x) => (float[N] y) { }"), "Use at most"),
    "wrong arity": (simple("y = Relu(x, x)"), "Relu"),
    "unknown operator": (simple("y = Frobnicate(x)"), "Frobnicate"),
    "no opset": (simple("y = elsewhere.Relu(x)"), "elsewhere"),
    "recursion": (
        graph_of('g (float[N] x) => (float[N] y) { y = local.f(x) } <domain: "local", opset_import: ["local" : 1]> '
                 'f (a) => (b) { b = local.h(a) } <domain: "local", opset_import: ["local" : 1]> '
                 'h (a) => (b) { b = local.f(a) }'),
        "its functions call each other in a cycle",
    ),
    "subgraph reads nothing": (
        graph_of("g (float[N] x, bool c) => (float[N] y) { "
                 "y = If (c) <then_branch = t () => (float[N] a) { a = Abs(q) }, "
                 "else_branch = e () => (float[N] b) { b = Abs(x) }> }"),
        "reads 'q', which no node makes",
    ),
}  # fmt: skip


@pytest.mark.parametrize("what", MALFORMED)
def test_a_malformed_model_gets_an_error_that_says_what_is_wrong(tmp_path, what):
    content, says = MALFORMED[what]
    with pytest.raises(DefinitionError, match=says) as caught:
        load(write(tmp_path / "model.onnx", content))
    assert caught.value.asked.startswith("model 'model.onnx'")
    assert caught.value.do


def test_functions_that_would_expand_without_measure_are_refused(tmp_path):
    bodies = "".join(
        f'<domain: "local", opset_import: ["local" : 1]> f{at} (a) => (c) {{ b = local.f{at + 1}(a) '
        f"c = local.f{at + 1}(b) }}"
        for at in range(30)
    )
    last = '<domain: "local", opset_import: ["" : 21]> f30 (a) => (c) { c = Relu(a) }'
    model = graph_of(f"g (float[N] x) => (float[N] y) {{ y = local.f0(x) }} {bodies} {last}")
    with pytest.raises(DefinitionError, match="its functions expand to"):
        load(write(tmp_path / "model.onnx", model))


def nested(depth):
    """A graph in a graph in a graph, in protobuf's own bytes: its Python package refuses to write so many."""

    def field(number, content):
        size, length = len(content), b""
        while size >= 128:
            length, size = length + bytes([size & 127 | 128]), size >> 7
        return bytes([number << 3 | 2]) + length + bytes([size]) + content

    graph = b""
    for _ in range(depth):
        # GraphProto.node, NodeProto.attribute, AttributeProto.g
        graph = field(1, field(5, field(6, graph)))
    return field(7, graph)


@pytest.mark.parametrize("depth", [35, 200, 1000])
def test_graphs_that_are_nested_too_deeply_are_refused(tmp_path, depth):
    with pytest.raises(DefinitionError):
        load(write(tmp_path / "model.onnx", nested(depth)))


@pytest.mark.parametrize("depth", [70, 1000, 100_000])
@pytest.mark.parametrize(
    ("suffix", "opening"),
    [
        (".textproto", "graph { node { attribute { g { "),
        (".json", '{"graph":{"node":[{"attribute":[{"g":'),
        (".onnxtxt", "<ir_version: 10> g (float x) => (float[N] y) { y = If (x) <then_branch = "),
        (".onnxtxt", "seq("),
    ],
)
def test_text_that_is_nested_too_deeply_does_not_crash_the_process(tmp_path, suffix, opening, depth):
    (tmp_path / f"model{suffix}").write_text(opening * depth)
    with pytest.raises(DefinitionError):
        load(tmp_path / f"model{suffix}")


@pytest.mark.parametrize("shape", ["[1099511627776,1099511627776]", "[300,4]", "[-1,3]"])
def test_metadata_that_do_not_fit_the_graph_are_refused(tmp_path, shape):
    model = small().to_proto()
    for each in model.metadata_props:
        each.value = each.value.replace("[300,3]", shape)
    with pytest.raises(DefinitionError, match="in the graph and"):
        load(write(tmp_path / "model.onnx", model))


ODD_DTYPES = ["float64", "O", "U9", "f4,f4", "finfo", "bool", "nothing"]


@pytest.mark.parametrize("dtype", ODD_DTYPES)
@pytest.mark.parametrize("stored", [False, True])
def test_a_dtype_other_than_the_graphs_is_refused(tmp_path, dtype, stored):
    network = small().stored(small().initialise()) if stored else small()
    parameters = [replace(each, dtype=dtype) for each in network.parameters]
    with pytest.raises(DefinitionError, match=f"is float32 in the graph and {dtype} in the metadata"):
        load(write(tmp_path / "model.onnx", network.replace(parameters=parameters).to_proto()))


def test_a_parameter_that_does_not_hold_numbers_is_refused(tmp_path):
    model = graph_of("g (float[N] x, bool[2] w) => (float[N] y) { c = Cast<to = 1>(w) y = Add(x, c) }")
    network = Network(model, [Parameter("w", (2,), "bool", Draw("constant", 1.0), trainable=False)])
    with pytest.raises(DefinitionError, match="parameter 'w' holds bool, not numbers"):
        load(write(tmp_path / "model.onnx", network.to_proto()))


FACTS = {
    "negative width": (("draw", {"kind": "uniform", "scale": -1.0}), "negative width|scale -1.0"),
    "absurd width": (("draw", {"kind": "uniform", "scale": 1e308}), "scale 1e\\+308: it is not finite"),
    "fill of nothing": (("fills", {"ids": 0}), ">= 1"),
    "negative fill": (("fills", {"ids": -5}), ">= 1"),
    "absurd fill": (("fills", {"ids": 10**30}), "fills"),
    "negative size": (("sizes", {"length": -5}), ">= 0"),
    "absurd size": (("sizes", {"length": 10**13}), "<= 1099511627776"),
    "unknown loss": (("loss", "nope"), "has no output 'nope', its loss"),
    "unknown buffer": (("updates", {"nope": "y"}), "no buffer 'nope' to update"),
    "update of what is trained": (("updates", {"table": "y"}), "no buffer 'table' to update"),
    "unknown update": (("updates", {"counter": "nope"}), "no node makes 'nope', which updates 'counter'"),
    "update by an input": (("updates", {"counter": "ids"}), "no node makes 'ids'"),
}


@pytest.mark.parametrize("what", FACTS)
def test_impossible_metadata_are_refused(tmp_path, what):
    (key, value), says = FACTS[what]
    model = small().to_proto()
    facts = json.loads(model.metadata_props[0].value)
    (facts["parameters"][0] if key == "draw" else facts)[key] = value
    model.metadata_props[0].value = json.dumps(facts)
    with pytest.raises(DefinitionError, match=says) as caught:
        load(write(tmp_path / "model.onnx", model))
    assert "levelbench.network" in caught.value.asked


def test_a_duplicate_parameter_is_refused(tmp_path):
    network = small()
    model = network.replace(parameters=[*network.parameters, network.parameters[0]]).to_proto()
    with pytest.raises(DefinitionError, match="it has two parameters 'table'"):
        load(write(tmp_path / "model.onnx", model))


def test_a_sparse_initialiser_that_claims_to_be_huge_is_refused(tmp_path):
    model = simple("y = Add(x, w)")
    entries = numpy_helper.from_array(np.ones(1, np.float32), "w")
    places = numpy_helper.from_array(np.array([2]), "w_places")
    model.graph.sparse_initializer.append(helper.make_sparse_tensor(entries, places, [2**39]))
    with pytest.raises(DefinitionError, match=r"its sparse tensor 'w' claims the shape \(549755813888,\)"):
        load(write(tmp_path / "model.onnx", model))


@pytest.mark.parametrize(
    ("text", "words"),
    [("k = Size(x)  y = Add(x, k)", "B has inconsistent type"),
     ("y = MaxPool<kernel_shape = [3], pads = [1]>(x)", "Attribute pads has incorrect size")],
)  # fmt: skip
def test_an_invalid_node_is_refused_with_onnx_s_words(tmp_path, text, words):
    with pytest.raises(DefinitionError, match=words):
        load(write(tmp_path / "model.onnx", graph_of(f"g (float[1, 1, 5] x) => (float[1, 1, 5] y) {{ {text} }}")))


def test_parameters_that_no_memory_can_hold_are_refused_before_they_are_drawn(tmp_path):
    g = GraphBuilder("huge")
    g.output(g.node("Mul", g.parameter("w", [2**20, 2**19], Draw("constant", 1.0)), g.input("x", [1])))
    model = g.build().to_proto()
    with pytest.raises(DefinitionError, match="its parameters take 2,199,023,255,552 bytes"):
        load(write(tmp_path / "model.onnx", model))

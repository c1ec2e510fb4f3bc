import json
import os
from dataclasses import replace

import ml_dtypes
import numpy as np
import onnx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper, parser

from levelbench.errors import DefinitionError, LevelbenchError, MissingError, StoreError, UsageError
from levelbench.frameworks.numpy import framework as numpy_framework
from levelbench.networks import Draw, GraphBuilder, Network, Parameter, external, files
from levelbench.networks.files import load, save

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


def outputs(network, parameters=None):
    executor = numpy_framework.open("cpu").executor(network, parameters)
    return executor.infer(network.make_inputs(2)["ids"])


def write(path, model):
    path.write_bytes(model if isinstance(model, bytes) else model.SerializeToString())
    return path


def graph_of(text):
    return parser.parse_model(f'<ir_version: 10, opset_import: ["" : 21, "local" : 1]> {text}')


def simple(nodes):
    """A model with one input and one output."""
    return graph_of(f"g (float[N] x) => (float[N] y) {{ {nodes} }}")


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


# Round trips


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_a_network_comes_back_with_all_that_it_knows(tmp_path, suffix):
    network = small().with_loss()
    save(network, tmp_path / f"model{suffix}")
    loaded = load(tmp_path / f"model{suffix}")
    assert loaded.parameters == network.parameters
    assert loaded.fills == network.fills
    assert loaded.sizes == network.sizes
    assert (loaded.loss, loaded.updates) == (network.loss, network.updates)
    assert loaded.inputs == network.inputs
    assert loaded.model.graph == network.model.graph


@pytest.mark.parametrize("external_data", [False, True])
@pytest.mark.parametrize("suffix", SUFFIXES)
def test_stored_parameters_come_back_and_compute_the_same(tmp_path, suffix, external_data):
    network = small()
    values = network.initialise(3)
    save(network, tmp_path / f"model{suffix}", values, external=external_data)
    loaded = load(tmp_path / f"model{suffix}")
    assert all(np.array_equal(value, values[name]) for name, value in loaded.initialise().items())
    assert np.array_equal(outputs(loaded)[0], outputs(network, values)[0])
    assert loaded.stored(values).initialise().keys() == values.keys()


def test_any_onnx_tool_reads_what_was_saved(tmp_path):
    save(small(), tmp_path / "model.onnx", small().initialise(), external=True)
    onnx.checker.check_model(str(tmp_path / "model.onnx"), full_check=True)
    found = {each.name: each for each in onnx.load(tmp_path / "model.onnx").graph.initializer}
    assert np.array_equal(numpy_helper.to_array(found["table"]), small().initialise()["table"])


def test_saving_does_not_change_the_network(tmp_path):
    network = small()
    before = network.model.SerializeToString(deterministic=True)
    save(network, tmp_path / "model.onnx", external=True)
    save(network, tmp_path / "stored.onnx", network.initialise(), external=True)
    assert network.model.SerializeToString(deterministic=True) == before


DTYPES = [
    *(np.bool_, np.int8, np.uint8, np.int16, np.uint16, np.int32, np.uint32, np.int64, np.uint64),
    *(np.float16, np.float32, np.float64, np.complex64, np.complex128, ml_dtypes.bfloat16),
    *(ml_dtypes.int4, ml_dtypes.uint4, ml_dtypes.int2, ml_dtypes.uint2, ml_dtypes.float4_e2m1fn),
    *(ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e4m3fnuz, ml_dtypes.float8_e5m2, ml_dtypes.float8_e5m2fnuz),
    ml_dtypes.float8_e8m0fnu,
]


@pytest.mark.parametrize("dtype", DTYPES, ids=lambda each: np.dtype(each).name)
@pytest.mark.parametrize("raw", [True, False])
def test_a_tensor_of_any_dtype_survives(tmp_path, dtype, raw):
    values = np.array([[1, 0, 1], [0, 1, 1]]).astype(dtype)
    if raw:
        tensor = numpy_helper.from_array(values, "w")
    else:
        element = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
        tensor = helper.make_tensor("w", element, values.shape, values.astype(values.dtype).ravel())
    node = helper.make_node("Identity", ["w"], ["y"])
    result = helper.make_tensor_value_info("y", tensor.data_type, [2, 3])
    graph = helper.make_graph([node], "g", [], [result], [tensor])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 25)], ir_version=13)
    save(load(write(tmp_path / "a.onnx", model)), tmp_path / "b.onnx", external=True)
    assert load(tmp_path / "b.onnx").model.graph.initializer[0] == tensor


def test_strings_survive_and_stay_in_the_model(tmp_path):
    tensor = helper.make_tensor("w", TensorProto.STRING, [200], [b"a long string indeed"] * 200)
    graph = helper.make_graph(
        [helper.make_node("Identity", ["w"], ["y"])],
        "g",
        [],
        [helper.make_tensor_value_info("y", TensorProto.STRING, [200])],
        [tensor],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    save(load(write(tmp_path / "a.onnx", model)), tmp_path / "b.onnx", external=True)
    assert load(tmp_path / "b.onnx").model.graph.initializer[0] == tensor


RICH = """g (float[N] x, bool c, seq(float[N]) s, optional(float[N]) o) => (float[N] y, seq(float[N]) t) {
    z = If (c) <then_branch = yes () => (float[N] a) { a = Abs(x) }, else_branch = no () => (float[N] b) { b = Neg(x) }>
    w = Loop (, c, z) <body = turn (int64 i, bool go, float[N] v) => (bool go2, float[N] v2)
        { go2 = Identity(go) v2 = local.twice(v) }>
    u = Scan <body = step (float v) => (float q) { q = Exp(v) }, num_scan_inputs = 1> (w)
    y = Relu(u)
    t = Identity(s)
} <domain: "local", opset_import: ["" : 21]> twice (v) => (r) { r = Add(v, v) }"""


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_subgraphs_functions_metadata_and_types_that_are_no_tensors_survive(tmp_path, suffix):
    model = graph_of(RICH)
    model.metadata_props.add(key="author", value="somebody")
    model.doc_string, model.producer_name = "what it is for", "a tool"
    save(load(write(tmp_path / "a.onnx", model)), tmp_path / f"b{suffix}")
    found = load(tmp_path / f"b{suffix}").model
    assert found.graph == model.graph
    assert found.functions == model.functions
    assert found.metadata_props[0] == model.metadata_props[0]
    assert (found.doc_string, found.producer_name) == (model.doc_string, model.producer_name)


def test_onnx_text_is_read_and_not_written(tmp_path):
    (tmp_path / "model.onnxtxt").write_text(
        onnx.printer.to_text(graph_of("g (float[N] x) => (float[N] y) { y = Relu(x) }"))
    )
    assert load(tmp_path / "model.onnxtxt").nodes[0].op_type == "Relu"
    with pytest.raises(UsageError, match="loses metadata"):
        save(load(tmp_path / "model.onnxtxt"), tmp_path / "again.onnxtxt")


# Writing whole files


def test_a_model_too_large_for_protobuf_is_saved_with_external_data_by_itself(tmp_path, monkeypatch):
    monkeypatch.setattr(files, "_MOST_IN_ONE_FILE", 4000)
    save(small(), tmp_path / "model.onnx", small().initialise())
    (data,) = tmp_path.glob("*.data")
    assert data.name.startswith("model.onnx.")
    assert np.array_equal(load(tmp_path / "model.onnx").initialise()["table"], small().initialise()["table"])


def test_data_of_the_model_before_are_removed_and_those_of_others_are_not(tmp_path):
    for other in ("model.onnx.data", "other.onnx.0123456789abcdef.data"):
        (tmp_path / other).write_bytes(b"precious")
    save(small(), tmp_path / "model.onnx", small().initialise(1), external=True)
    save(small(), tmp_path / "model.onnx", small().initialise(2), external=True)
    assert len(list(tmp_path.glob("*.data"))) == 3
    assert np.array_equal(load(tmp_path / "model.onnx").initialise()["table"], small().initialise(2)["table"])
    save(small(), tmp_path / "model.onnx")
    assert len(list(tmp_path.glob("*.data"))) == 2


def test_a_write_that_fails_leaves_the_old_model_and_nothing_else(tmp_path, monkeypatch):
    save(small(), tmp_path / "model.onnx", small().initialise(1), external=True)
    before = {each.name: each.read_bytes() for each in tmp_path.iterdir()}

    def full(_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(StoreError, match="No space left"):
        save(small(), tmp_path / "model.onnx", small().initialise(2), external=True)
    assert {each.name: each.read_bytes() for each in tmp_path.iterdir()} == before


def test_a_suffix_that_is_no_format_is_refused_before_anything_is_written(tmp_path):
    with pytest.raises(UsageError, match=r"no format has the suffix '\.zip'"):
        save(small(), tmp_path / "model.zip")
    assert not list(tmp_path.iterdir())


# What is wrong with a file


def test_a_file_that_is_not_there_is_missing(tmp_path):
    with pytest.raises(MissingError, match="there is no file"):
        load(tmp_path / "model.onnx")


MALFORMED = {
    "empty": (b"", "the file is empty"),
    "no protobuf": (b"this is no model", "it is no ONNX model, or cut short"),
    "cut short": (chain().SerializeToString()[:-7], "it is no ONNX model, or cut short"),
    "no graph": (onnx.ModelProto(ir_version=10).SerializeToString(), "it has no graph"),
    "too little data": (chain(dims=[5]), r"claims the shape \(5,\), 20 bytes, and holds 16"),
    "too much data": (chain(dims=[3]), r"claims the shape \(3,\), 12 bytes, and holds 16"),
    "absurd shape": (chain(dims=[2**30, 2**30]), r"No tensor has more than 2\*\*40 elements"),
    "absurd shape of nothing": (chain(dims=[0, 2**62], raw_data=b""), r"No tensor has more than 2\*\*40 elements"),
    "negative size": (chain(dims=[-4]), "Sizes are 0 or more"),
    "unknown type": (chain(data_type=99), "elements of type 99"),
    "values missing": (simple("a = Add(x, w) y = Relu(a)"), "reads 'w', which nothing"),
    "output missing": (graph_of("g (float[N] x) => (float[N] z) { y = Relu(x) }"), "output 'z' is made by nothing"),
    "cycle": (simple("a = Add(x, y) y = Relu(a)"), "it has a cycle through Add 'a'"),
    "self": (simple("y = Add(x, y)"), "it has a cycle through Add 'y'"),
    "twice": (simple("y = Relu(x) y = Abs(x)"), "the value 'y' is made twice"),
    "input twice": (graph_of("g (float[N] x, float[N] x) => (float[N] y) { y = Relu(x) }"), "two inputs called 'x'"),
    "input made": (graph_of("g (float[N] x, float[N] y) => (y) { y = Relu(x) }"), "the value 'y' is made twice"),
    "input absurd": (graph_of("g (float[1099511627776, 2] x) => (float[N] y) { }"), "No tensor has more than"),
    "wrong arity": (simple("y = Relu(x, x)"), "Relu"),
    "unknown operator": (simple("y = Frobnicate(x)"), "Frobnicate"),
    "no opset": (simple("y = elsewhere.Relu(x)"), "elsewhere"),
    "recursion": (
        graph_of('g (float[N] x) => (float[N] y) { y = local.f(x) } <domain: "local", opset_import: ["local" : 1]> '
                 'f (a) => (b) { b = local.h(a) } <domain: "local", opset_import: ["local" : 1]> '
                 'h (a) => (b) { b = local.f(a) }'),
        "its functions call each other without end",
    ),
    "subgraph reads nothing": (
        graph_of("g (float[N] x, bool c) => (float[N] y) { "
                 "y = If (c) <then_branch = t () => (float[N] a) { a = Abs(q) }, "
                 "else_branch = e () => (float[N] b) { b = Abs(x) }> }"),
        "reads 'q', which nothing makes",
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
def test_graphs_that_lie_too_deep_are_refused(tmp_path, depth):
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
def test_text_that_is_nested_too_deep_does_not_end_the_process(tmp_path, suffix, opening, depth):
    (tmp_path / f"model{suffix}").write_text(opening * depth)
    with pytest.raises(DefinitionError):
        load(tmp_path / f"model{suffix}")


def test_nodes_are_put_in_an_order_that_can_be_executed(tmp_path):
    text = """g (float[N] x, bool c) => (float[N] y) {
        y = If (c) <then_branch = t () => (float[N] d) { d = Abs(e) e = Neg(b) },
        else_branch = e () => (float[N] f) { f = Abs(a) }> b = Relu(a) a = Exp(x) }"""
    network = load(write(tmp_path / "model.onnx", graph_of(text)))
    assert [each.op_type for each in network.nodes] == ["Exp", "Relu", "If"]
    branch = next(each.g for each in network.model.graph.node[2].attribute if each.name == "then_branch")
    assert [each.op_type for each in branch.node] == ["Neg", "Abs"]


def test_nodes_that_are_in_order_stay_as_they_are(tmp_path):
    model = graph_of("g (float[N] x) => (float[N] y) { a = Exp(x) b = Abs(x) c = Add(b, a) y = Relu(c) }")
    assert load(write(tmp_path / "model.onnx", model)).model == model


def test_an_operator_of_another_domain_is_no_error_yet(tmp_path):
    model = graph_of("g (float[N] x) => (float[N] y) { y = local.Frobnicate(x) }")
    assert load(write(tmp_path / "model.onnx", model)).nodes[0].title == "local::Frobnicate"


def test_a_size_of_minus_one_is_one_that_is_not_known(tmp_path):
    model = graph_of("g (float[N] x) => (float[N] y) { y = Relu(x) }")
    model.graph.input[0].type.tensor_type.shape.dim[0].dim_value = -1
    assert load(write(tmp_path / "model.onnx", model)).inputs[0].shape == ("x_0",)


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
def test_a_dtype_that_is_not_the_graphs_is_refused(tmp_path, dtype, stored):
    network = small().stored(small().initialise()) if stored else small()
    parameters = [replace(each, dtype=dtype) for each in network.parameters]
    with pytest.raises(DefinitionError, match=f"is float32 in the graph and {dtype} in the metadata"):
        load(write(tmp_path / "model.onnx", network.replace(parameters=parameters).to_proto()))


def test_a_parameter_that_holds_no_numbers_is_refused(tmp_path):
    model = graph_of("g (float[N] x, bool[2] w) => (float[N] y) { c = Cast<to = 1>(w) y = Add(x, c) }")
    network = Network(model, [Parameter("w", (2,), "bool", Draw("constant", 1.0), trainable=False)])
    with pytest.raises(DefinitionError, match="parameter 'w' holds bool, no numbers"):
        load(write(tmp_path / "model.onnx", network.to_proto()))


FACTS = {
    "negative width": (("draw", {"kind": "uniform", "scale": -1.0}), "a width is 0 or more|scale -1.0"),
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
def test_metadata_that_no_network_can_have_are_refused(tmp_path, what):
    (key, value), says = FACTS[what]
    model = small().to_proto()
    facts = json.loads(model.metadata_props[0].value)
    (facts["parameters"][0] if key == "draw" else facts)[key] = value
    model.metadata_props[0].value = json.dumps(facts)
    with pytest.raises(DefinitionError, match=says) as caught:
        load(write(tmp_path / "model.onnx", model))
    assert "levelbench.network" in caught.value.asked


def test_a_parameter_that_is_there_twice_is_refused(tmp_path):
    network = small()
    model = network.replace(parameters=[*network.parameters, network.parameters[0]]).to_proto()
    with pytest.raises(DefinitionError, match="it has two parameters 'table'"):
        load(write(tmp_path / "model.onnx", model))


def test_a_sparse_initialiser_is_refused_by_its_name(tmp_path):
    model = simple("y = Add(x, w)")
    entries = numpy_helper.from_array(np.ones(1, np.float32), "w")
    places = numpy_helper.from_array(np.array([2]), "w_places")
    model.graph.sparse_initializer.append(helper.make_sparse_tensor(entries, places, [4]))
    with pytest.raises(DefinitionError, match="its initialiser 'w' is a sparse tensor, which is not read"):
        load(write(tmp_path / "model.onnx", model))


def test_parameters_that_no_memory_can_hold_are_refused_before_they_are_drawn(tmp_path):
    g = GraphBuilder("huge")
    g.output(g.node("Mul", g.parameter("w", [2**20, 2**19], Draw("constant", 1.0)), g.input("x", [1])))
    model = g.build().to_proto()
    with pytest.raises(DefinitionError, match="its parameters take 2,199,023,255,552 bytes"):
        load(write(tmp_path / "model.onnx", model))


# External data


def referring(**entries):
    """A model whose weight of four float32 lies elsewhere."""
    model = chain()
    tensor = model.graph.initializer[0]
    tensor.ClearField("raw_data")
    tensor.data_location = TensorProto.EXTERNAL
    for key, value in entries.items():
        tensor.external_data.add(key=key, value=str(value))
    return model


@pytest.fixture
def folder(tmp_path):
    """A folder with data, in another one with a secret."""
    (tmp_path / "secret").write_bytes(bytes(64))
    inner = tmp_path / "inner"
    (inner / "sub").mkdir(parents=True)
    (inner / "data").write_bytes(np.arange(8, dtype=np.float32).tobytes())
    (inner / "sub" / "data").write_bytes(np.arange(8, dtype=np.float32).tobytes())
    (inner / "link").symlink_to(tmp_path / "secret")
    (inner / "near").symlink_to(inner / "data")
    (inner / "away").symlink_to(tmp_path)
    (inner / "loop").symlink_to(inner / "loop")
    os.mkfifo(inner / "pipe")
    return inner


@pytest.mark.parametrize(
    ("entries", "first"),
    [
        ({"location": "data"}, 0),
        ({"location": "data", "offset": 16}, 4),
        ({"location": "data", "offset": 4, "length": 16}, 1),
        ({"location": "sub/data", "checksum": "unused"}, 0),
        ({"location": "./sub/data"}, 0),
        ({"location": "near"}, 0),
    ],
)
def test_external_data_are_read_from_inside_the_folder(folder, entries, first):
    network = load(write(folder / "model.onnx", referring(**entries)))
    assert np.array_equal(network.initialise()["w"], np.arange(first, first + 4, dtype=np.float32))
    assert not network.model.graph.initializer[0].external_data


OUTSIDE = "outside of the model's folder"


@pytest.mark.parametrize(
    ("entries", "says"),
    [
        ({"location": "../secret"}, OUTSIDE),
        ({"location": "sub/../../secret"}, OUTSIDE),
        ({"location": "sub/../data"}, OUTSIDE),
        ({"location": "/etc/passwd"}, OUTSIDE),
        ({"location": "C:\\data"}, OUTSIDE),
        ({"location": "..\\secret"}, OUTSIDE),
        ({"location": "\\\\server\\share\\data"}, OUTSIDE),
        ({"location": "link"}, OUTSIDE),
        ({"location": "away/secret"}, OUTSIDE),
        ({"location": "loop"}, "cannot be read|leads nowhere"),
        ({"location": ""}, "without a place"),
        ({}, "without a place"),
        ({"location": "nothing"}, "cannot be read"),
        ({"location": "sub"}, "is no plain file|cannot be read"),
        ({"location": "pipe"}, "is no plain file"),
        ({"location": "data", "offset": 17}, "end at byte 33 of data, which has 32"),
        ({"location": "data", "offset": 2**60}, "of data, which has 32"),
        ({"location": "data", "offset": -4}, "are numbers of bytes"),
        ({"location": "data", "offset": "0x10"}, "are numbers of bytes"),
        ({"location": "data", "offset": "9" * 5000}, "are numbers of bytes"),
        ({"location": "data", "length": 2**50}, "takes 16 bytes, its external data say"),
        ({"location": "data", "length": 8}, "takes 16 bytes, its external data say 8"),
        ({"location": "data", "length": "١٦"}, "are numbers of bytes"),
        ({"location": "data", "whence": 2}, "external data with 'whence'"),
    ],
)  # fmt: skip
def test_external_data_that_are_elsewhere_or_too_short_are_refused(folder, entries, says):
    with pytest.raises(DefinitionError, match=says):
        load(write(folder / "model.onnx", referring(**entries)))


def test_a_shape_is_looked_at_before_as_much_is_read(folder):
    model = referring(location="data")
    model.graph.initializer[0].dims[:] = [2**38]
    with pytest.raises(DefinitionError, match="its tensors take 1,099,511,627,776 bytes, this machine has"):
        load(write(folder / "model.onnx", model))


def test_one_file_that_is_read_again_and_again_counts_as_often(folder, monkeypatch):
    model = referring(location="data")
    for at in range(9):
        model.graph.initializer.add().CopyFrom(model.graph.initializer[0])
        model.graph.initializer[-1].name = f"w{at}"
    monkeypatch.setattr(external, "memory_bytes", lambda: 159)
    with pytest.raises(DefinitionError, match="its tensors take 160 bytes"):
        load(write(folder / "model.onnx", model))


def test_external_data_of_attributes_are_read_too(folder):
    model = graph_of("g (float[N] x) => (float[N] y) { a = Identity(x) y = Relu(a) }")
    tensor = referring(location="data").graph.initializer[0]
    model.graph.node[0].CopyFrom(helper.make_node("Constant", [], ["a"], value=tensor))
    node = load(write(folder / "model.onnx", model)).nodes[0]
    assert np.array_equal(node["value"], np.arange(4, dtype=np.float32))


# Anything at all


def load_or_refuse(path):
    try:
        network = load(path)
    except LevelbenchError:
        return
    assert isinstance(network, Network)


SEEDS = [
    small().to_proto().SerializeToString(),
    small().stored({"counter": np.ones(3, np.float32)}).to_proto().SerializeToString(),
    graph_of(RICH).SerializeToString(),
    chain().SerializeToString(),
    referring(location="data", offset=4, length=16).SerializeToString(),
]
EDITS = st.lists(st.tuples(st.integers(0, 10**6), st.integers(0, 12), st.binary(max_size=12)), min_size=1, max_size=6)
SETTINGS = settings(max_examples=400, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


@SETTINGS
@given(seed=st.sampled_from(SEEDS), edits=EDITS)
def test_a_model_with_bytes_changed_is_loaded_or_refused(folder, seed, edits):
    content = bytearray(seed)
    for at, removed, inserted in edits:
        place = at % (len(content) + 1)
        content[place : place + removed] = inserted
    load_or_refuse(write(folder / "model.onnx", bytes(content)))


@SETTINGS
@given(content=st.binary(max_size=300), suffix=st.sampled_from([*SUFFIXES, ".onnxtxt"]))
def test_bytes_that_are_no_model_are_refused(tmp_path, content, suffix):
    load_or_refuse(write(tmp_path / f"model{suffix}", content))


@SETTINGS
@given(
    dims=st.lists(st.integers(-(2**63), 2**63 - 1) | st.integers(-2, 9), max_size=6),
    element=st.integers(-1, 40),
    raw=st.binary(max_size=40) | st.none(),
    floats=st.lists(st.floats(width=32), max_size=4),
    integers=st.lists(st.integers(-(2**31), 2**31 - 1), max_size=6),
)
def test_a_tensor_that_claims_anything_is_loaded_or_refused(tmp_path, dims, element, raw, floats, integers):
    model = chain()
    tensor = TensorProto(name="w", data_type=element, dims=dims, float_data=floats, int32_data=integers)
    if raw is not None:
        tensor.raw_data = raw
    model.graph.initializer[0].CopyFrom(tensor)
    load_or_refuse(write(tmp_path / "model.onnx", model))


def test_a_size_without_a_name_gets_one_by_which_it_can_be_bound(tmp_path):
    text = '<ir_version: 10, opset_import: ["" : 21]> g (float[n, ?, 3] x) => (float[n, m, 3] y) { y = Relu(x) }'
    model = parser.parse_model(text)
    onnx.save(model, tmp_path / "open.onnx")
    network = load(tmp_path / "open.onnx")
    assert network.inputs[0].shape == ("n", "x_1", 3)
    assert network.make_inputs(4, sizes={"x_1": 5})["x"].shape == (4, 5, 3)

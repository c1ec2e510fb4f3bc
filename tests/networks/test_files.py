"""A network survives a round trip through a file, which is either complete or absent."""

import os

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper, parser
from tests.networks.models import RICH, SUFFIXES, graph_of, small, write

from levelbench.errors import StoreError, UsageError
from levelbench.frameworks.numpy import framework as numpy_framework
from levelbench.networks.files import load, save
from levelbench.operators.frameworks import load_framework
from levelbench.operators.node import OPSETS


def outputs(network, parameters=None):
    executor = numpy_framework.open("cpu").executor(network, parameters)
    return executor.infer(network.make_inputs(2)["ids"])


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_a_network_survives_a_round_trip_completely(tmp_path, suffix):
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


def test_any_onnx_tool_can_read_a_saved_network(tmp_path):
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


def test_onnx_text_is_read_but_not_written(tmp_path):
    (tmp_path / "model.onnxtxt").write_text(
        onnx.printer.to_text(graph_of("g (float[N] x) => (float[N] y) { y = Relu(x) }"))
    )
    assert load(tmp_path / "model.onnxtxt").nodes[0].op_type == "Relu"
    with pytest.raises(UsageError, match="loses metadata"):
        save(load(tmp_path / "model.onnxtxt"), tmp_path / "again.onnxtxt")


def test_a_failed_write_leaves_only_the_old_model(tmp_path, monkeypatch):
    save(small(), tmp_path / "model.onnx", small().initialise(1), external=True)
    before = {each.name: each.read_bytes() for each in tmp_path.iterdir()}

    def full(_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(StoreError, match="No space left"):
        save(small(), tmp_path / "model.onnx", small().initialise(2), external=True)
    assert {each.name: each.read_bytes() for each in tmp_path.iterdir()} == before


def test_an_unknown_suffix_is_refused_before_anything_is_written(tmp_path):
    with pytest.raises(UsageError, match=r"unknown suffix '\.zip'"):
        save(small(), tmp_path / "model.zip")
    assert not list(tmp_path.iterdir())


def test_nodes_are_sorted_into_an_executable_order(tmp_path):
    text = """g (float[N] x, bool c) => (float[N] y) {
        y = If (c) <then_branch = t () => (float[N] d) { d = Abs(e) e = Neg(b) },
        else_branch = e () => (float[N] f) { f = Abs(a) }> b = Relu(a) a = Exp(x) }"""
    network = load(write(tmp_path / "model.onnx", graph_of(text)))
    assert [each.op_type for each in network.nodes] == ["Exp", "Relu", "If"]
    branch = next(each.g for each in network.model.graph.node[2].attribute if each.name == "then_branch")
    assert [each.op_type for each in branch.node] == ["Neg", "Abs"]


def test_sorted_nodes_are_not_moved(tmp_path):
    model = graph_of("g (float[N] x) => (float[N] y) { a = Exp(x) b = Abs(x) c = Add(b, a) y = Relu(c) }")
    assert load(write(tmp_path / "model.onnx", model)).model == model


def test_an_operator_of_another_domain_is_not_an_error_yet(tmp_path):
    model = graph_of("g (float[N] x) => (float[N] y) { y = local.Frobnicate(x) }")
    assert load(write(tmp_path / "model.onnx", model)).nodes[0].title == "local::Frobnicate"


def test_a_size_of_minus_one_is_unknown(tmp_path):
    model = graph_of("g (float[N] x) => (float[N] y) { y = Relu(x) }")
    model.graph.input[0].type.tensor_type.shape.dim[0].dim_value = -1
    assert load(write(tmp_path / "model.onnx", model)).inputs[0].shape == ("x_0",)


def test_a_size_without_a_name_gets_one(tmp_path):
    text = '<ir_version: 10, opset_import: ["" : 21]> g (float[n, ?, 3] x) => (float[n, m, 3] y) { y = Relu(x) }'
    model = parser.parse_model(text)
    onnx.save(model, tmp_path / "open.onnx")
    network = load(tmp_path / "open.onnx")
    assert network.inputs[0].shape == ("n", "x_1", 3)
    assert network.make_inputs(4, sizes={"x_1": 5})["x"].shape == (4, 5, 3)


def written(path, text, **constants):
    """A file of a model in ONNX's text format, with more initialisers."""
    model = parser.parse_model(text)
    model.graph.initializer.extend(
        numpy_helper.from_array(np.asarray(value), name) for name, value in constants.items()
    )
    onnx.save(model, path)
    return path


def test_a_model_of_an_old_opset_is_brought_to_an_implemented_one(tmp_path):
    text = """<ir_version: 4, opset_import: ["" : 7]>
        old (float[2, 3] x) => (float[2, 3] y) { y = Softmax<axis = 1>(x) }"""
    network = load(written(tmp_path / "old.onnx", text))
    x = np.random.default_rng(0).standard_normal((2, 3)).astype(np.float32)
    (y,) = numpy_framework.open("cpu").executor(network).infer(x)
    np.testing.assert_allclose(y.sum(1), 1, rtol=1e-6)
    assert network.opsets[""] in OPSETS


def test_an_old_resize_still_measures_from_the_corner(tmp_path):
    text = """<ir_version: 4, opset_import: ["" : 9]> old (float[1, 1, 1, 2] x) => (float[1, 1, 1, 4] y)
        <float[4] scales = {1, 1, 1, 2}> { y = Upsample<mode = "linear">(x, scales) }"""
    network = load(written(tmp_path / "old.onnx", text))
    (y,) = numpy_framework.open("cpu").executor(network).infer(np.array([[[[0, 2]]]], np.float32))
    assert y.reshape(-1).tolist() == [0, 1, 2, 2]


def test_an_old_resize_takes_the_next_pixel_where_a_picture_shrinks(tmp_path):
    text = """<ir_version: 5, opset_import: ["" : 10]> old (float[1, 1, 2, 4] x) => (float[1, 1, 4, 2] y)
        <float[4] scales = {1, 1, 2, 0.6}> { y = Resize<mode = "nearest">(x, scales) }"""
    network = load(written(tmp_path / "old.onnx", text))
    (y,) = numpy_framework.open("cpu").executor(network).infer(np.arange(1, 9, dtype=np.float32).reshape(1, 1, 2, 4))
    assert y.tolist() == [[[[1, 3], [1, 3], [5, 7], [5, 7]]]]


def test_a_withdrawn_group_normalisation_scales_whole_groups(tmp_path):
    text = """<ir_version: 8, opset_import: ["" : 18]> groups (float[1, 4, 1] x, float[2] w, float[2] b)
        => (float[1, 4, 1] y) { y = GroupNormalization<num_groups = 2, epsilon = 0.0>(x, w, b) }"""
    network = load(written(tmp_path / "groups.onnx", text))
    x, w, b = np.array([[[1], [3], [0], [8]]], np.float32), np.array([2, 5], np.float32), np.array([0, 1], np.float32)
    (y,) = numpy_framework.open("cpu").executor(network).infer(x, w, b)
    np.testing.assert_allclose(y.reshape(-1), [-2, 2, -4, 6], rtol=1e-5)


def test_a_sparse_initialiser_becomes_a_dense_one(tmp_path):
    model = onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["" : 17]> sparse (float[4] x) => (float[4] y) { y = Add(x, w) }'
    )
    entries = onnx.numpy_helper.from_array(np.array([7], np.float32), "w")
    model.graph.sparse_initializer.append(
        onnx.helper.make_sparse_tensor(entries, onnx.numpy_helper.from_array(np.array([2]), "places"), [4])
    )
    onnx.save(model, tmp_path / "sparse.onnx")
    (y,) = numpy_framework.open("cpu").executor(load(tmp_path / "sparse.onnx")).infer(np.zeros(4, np.float32))
    assert y.tolist() == [0, 0, 7, 0]


def test_an_optional_input_is_given_as_a_tensor(tmp_path):
    node = onnx.helper.make_node("OptionalGetElement", ["x"], ["y"])
    tensor = onnx.helper.make_tensor_type_proto(onnx.TensorProto.FLOAT, [2])
    given = onnx.helper.make_value_info("x", onnx.helper.make_optional_type_proto(tensor))
    graph = onnx.helper.make_graph([node], "maybe", [given], [onnx.helper.make_value_info("y", tensor)])
    imports = [onnx.helper.make_opsetid("", 18)]
    onnx.save(onnx.helper.make_model(graph, opset_imports=imports, ir_version=8), tmp_path / "maybe.onnx")
    assert load(tmp_path / "maybe.onnx").inputs[0].shape == (2,)


def test_an_old_hardmax_sees_a_matrix(tmp_path):
    text = """<ir_version: 6, opset_import: ["" : 11]>
        old (float[1, 2, 3] x) => (float[1, 2, 3] y) { y = Hardmax<axis = 1>(x) }"""
    (y,) = (
        numpy_framework.open("cpu")
        .executor(load(written(tmp_path / "old.onnx", text)))
        .infer(np.array([[[1, 5, 3], [9, 4, 2]]], np.float32))
    )
    assert y.tolist() == [[[0, 0, 0], [1, 0, 0]]]


def test_functions_of_an_old_opset_are_converted_too(tmp_path):
    text = """<ir_version: 8, opset_import: ["" : 11, "own" : 1]>
        old (float[2, 3] x) => (float[2, 1] y) { y = own.Total(x) }
        <domain: "own", opset_import: ["" : 11]> Total (a) => (b) { b = ReduceSum<axes = [1]>(a) }"""
    network = load(written(tmp_path / "old.onnx", text))
    (y,) = numpy_framework.open("cpu").executor(network).infer(np.ones((2, 3), np.float32))
    assert network.opsets[""] in OPSETS
    assert y.tolist() == [[3], [3]]


@pytest.mark.parametrize(
    ("name", "expected"), [("LayerNormalization", [-1, 1]), ("SimplifiedLayerNormalization", [0.447, 1.342])]
)
def test_a_normalisation_that_onnx_runtime_had_first_is_brought_to_onnx_s(tmp_path, name, expected):
    text = f"""<ir_version: 8, opset_import: ["" : 14]> early (float[1, 2] x) => (float[1, 2] y)
        <float[2] scale = {{1, 1}}> {{ y = {name}<axis = -1>(x, scale) }}"""
    network = load(written(tmp_path / "early.onnx", text))
    (y,) = numpy_framework.open("cpu").executor(network).infer(np.array([[1, 3]], np.float32))
    np.testing.assert_allclose(y, [expected], atol=1e-3)


def test_an_old_scan_keeps_its_batches(tmp_path):
    text = """<ir_version: 3, opset_import: ["" : 8]> old (float[1, 2] s, float[1, 3, 2] x) => (float[1, 2] y) {
        y = Scan<num_scan_inputs = 1, body = b (float[2] a, float[2] e) => (float[2] t) { t = Add(a, e) }>(, s, x) }"""
    assert load(written(tmp_path / "old.onnx", text)).opsets[""] == 8


def test_an_old_model_that_cannot_be_converted_stays_as_it_is(tmp_path, monkeypatch):
    def refuse(*_):
        raise RuntimeError("no adapter")

    monkeypatch.setattr("levelbench.networks.modernise.version_converter.convert_version", refuse)
    text = """<ir_version: 4, opset_import: ["" : 7]>
        old (float[2, 3] x) => (float[2, 3] y) { y = Softmax<axis = 1>(x) }"""
    assert load(written(tmp_path / "old.onnx", text)).opsets[""] == 7


def test_weights_of_four_bits_compute_on_torch(tmp_path):
    text = """<ir_version: 10, opset_import: ["" : 21]> small (float[1, 2] x) => (float[1, 2] y)
        <float[2] scale = {0.5, 2}> { w = DequantizeLinear<axis = 0>(q, scale) y = MatMul(x, w) }"""
    path = tmp_path / "small.onnx"
    model = parser.parse_model(text)
    model.graph.initializer.append(helper.make_tensor("q", TensorProto.INT4, [2, 2], [2, -4, 7, -8]))
    onnx.save(model, path)
    backend = load_framework("torch").open("cpu")
    (y,) = backend.executor(load(path)).infer(backend.array(np.array([[1, 1]], np.float32)))
    assert backend.host(y).tolist() == [[15, -18]]


def test_the_pixels_of_tensorflow_s_resize_are_taken(tmp_path):
    text = """<ir_version: 6, opset_import: ["" : 11]> old (float[1, 1, 1, 4] x) => (float[1, 1, 1, 2] y)
        <float[0] region = {}, float[4] scales = {1, 1, 1, 0.5}> {
        y = Resize<mode = "nearest", nearest_mode = "floor", coordinate_transformation_mode = "tf_half_pixel_for_nn">
            (x, region, scales) }"""
    network = load(written(tmp_path / "old.onnx", text))
    (y,) = numpy_framework.open("cpu").executor(network).infer(np.array([[[[0, 1, 2, 3]]]], np.float32))
    assert y.reshape(-1).tolist() == [1, 3]


def test_a_stale_shape_is_corrected(tmp_path):
    text = """<ir_version: 8, opset_import: ["" : 17]> stale (float[batch, 3] x) => (float[8, 3] y) { y = Relu(x) }"""
    assert load(written(tmp_path / "stale.onnx", text)).outputs[0].shape == ("batch", 3)


def test_an_output_need_not_have_a_shape(tmp_path):
    text = """<ir_version: 8, opset_import: ["" : 17]> open (float[2, 3] x) => (float[2, 3] y) { y = Relu(x) }"""
    path = written(tmp_path / "open.onnx", text)
    model = onnx.load(path)
    model.graph.output[0].type.tensor_type.ClearField("shape")
    onnx.save(model, path)
    assert [each.name for each in load(path).outputs] == ["y"]


def test_the_long_name_of_onnx_own_domain_is_understood(tmp_path):
    model = graph_of("g (float[N] x) => (float[N] y) { y = Relu(x) }")
    model.graph.node[0].domain = model.opset_import[0].domain = "ai.onnx"
    loaded = load(write(tmp_path / "long.onnx", model)).model
    assert loaded.graph.node[0].domain == loaded.opset_import[0].domain == ""
    assert loaded.opset_import[0].version == 21


def test_initialisers_that_are_no_inputs_are_accepted_in_the_oldest_format(tmp_path):
    model = graph_of("g (float[N] x) => (float[N] y) { y = Add(x, w) }")
    model.graph.initializer.append(numpy_helper.from_array(np.ones(1, np.float32), "w"))
    model.ir_version, model.opset_import[0].version = 3, 7
    assert [each.name for each in load(write(tmp_path / "old.onnx", model)).inputs] == ["x"]

"""Inferred shapes are those of the computed values; false claims of a model are refused before they do harm."""

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from levelbench.errors import DefinitionError, UsageError
from levelbench.networks import GraphBuilder, Network, zoo
from levelbench.networks.inspect import without_values
from levelbench.networks.shapes import infer_shapes, open_sizes, other_sizes_or, usual_sizes
from levelbench.operators.frameworks import open_framework


def foreign(nodes, inputs, outputs=("y",), initialisers=(), opset=21, domains=()):
    """A network whose model declares only the shapes of its inputs."""
    infos = [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in inputs.items()]
    made = [onnx.ValueInfoProto(name=name) for name in outputs]
    for each in made:
        each.type.tensor_type.elem_type = TensorProto.FLOAT
    graph = helper.make_graph(nodes, "foreign", infos, made, list(initialisers))
    imports = [helper.make_opsetid("", opset), *(helper.make_opsetid(domain, 1) for domain in domains)]
    return Network(helper.make_model(graph, opset_imports=imports, ir_version=10))


NETWORKS = ("lenet5", "unet-tiny", "bert-tiny", "gpt2-tiny", "transformer-tiny", "deepspeech2-tiny", "memnet")
SIZES = {"batch": 2, "length": 5, "source": 4, "target": 3, "frames": 52, "steps": 11, "sentences": 6}


@pytest.mark.parametrize("name", NETWORKS)
def test_inferred_shapes_and_dtypes_are_those_of_the_computed_values(name):
    network = zoo.build(name)
    made = [each for node in network.nodes for each in node.outputs if each]
    inputs = network.make_inputs(SIZES["batch"], sizes=SIZES)
    executor = open_framework("numpy").executor(network.with_outputs(made), network.initialise(0), trains=False)
    computed = dict(zip(made, executor.infer(*inputs.values()), strict=True))
    inferred = infer_shapes(network, SIZES)
    assert len(computed) > 20
    for value, array in computed.items():
        assert (value, inferred[value].shape) == (value, np.shape(array))
        assert inferred[value].dtype == np.asarray(array).dtype.name


def test_without_sizes_symbolic_ones_stay_symbolic():
    shapes = infer_shapes(zoo.build("bert-tiny"))
    assert shapes["last_hidden_state"].shape == ("batch", "length", 128)
    assert shapes["input_ids"].dtype == "int64"


def test_names_that_inference_invents_are_not_reported():
    network = foreign(
        [helper.make_node("NonZero", ["x"], ["at"]), helper.make_node("Cast", ["at"], ["y"], to=1)], {"x": ["n", 3]}
    )
    assert infer_shapes(network)["y"].shape == (2, None)


def test_parameters_and_initialisers_are_values_too():
    network = zoo.build("gpt2-tiny")
    shapes = infer_shapes(network)
    assert all(shapes[each.name].shape == each.shape for each in network.parameters)
    stored = infer_shapes(network.stored(network.initialise(0)))
    assert all(stored[each.name].shape == each.shape for each in network.parameters)


def test_sizes_of_the_caller_override_those_of_the_network():
    network = zoo.build("bert-tiny")
    assert infer_shapes(network, {})["last_hidden_state"].shape == (1, network.sizes["length"], 128)
    assert infer_shapes(network, {"length": 9, "batch": 4})["last_hidden_state"].shape == (4, 9, 128)


def test_an_open_first_axis_is_the_batch_with_any_name():
    network = foreign([helper.make_node("Relu", ["x"], ["y"])], {"x": ["N", 3]})
    assert infer_shapes(network, {"batch": 5})["y"].shape == (5, 3)


def test_a_missing_size_is_named():
    network = foreign([helper.make_node("Relu", ["x"], ["y"])], {"x": ["N", "width"]})
    with pytest.raises(UsageError, match="width"):
        infer_shapes(network, {"batch": 5})
    assert infer_shapes(network, {"width": 3})["y"].shape == (1, 3)


def test_a_size_that_is_first_in_one_input_and_inner_in_another_is_open():
    network = foreign([helper.make_node("MatMul", ["x", "z"], ["y"])], {"x": ["N", "inner"], "z": ["inner", "M"]})
    assert open_sizes(network) == ["inner", "M"]
    assert infer_shapes(network, {"batch": 5, **usual_sizes(network, {})})["y"].shape == (5, 16)


def test_other_sizes_are_advised_where_some_are_open():
    network = foreign([helper.make_node("MatMul", ["x", "z"], ["y"])], {"x": ["N", "inner"], "z": ["inner", "M"]})
    assert other_sizes_or("leave it", network) == "give other sizes (--size inner=... --size M=...), or leave it"
    assert other_sizes_or("leave it", zoo.build("lenet5")) == "leave it"


def test_an_open_size_that_the_file_reshapes_to_a_fixed_one_gets_that_one():
    shape = helper.make_node("Constant", [], ["s"], value_ints=[5, 2, 3])
    network = foreign([shape, helper.make_node("Reshape", ["x", "s"], ["y"])], {"x": ["N", "length", 6]})
    assert usual_sizes(network, {}) == {"length": 5}


def test_a_name_that_means_another_size_after_an_operator_is_inferred():
    network = zoo.build("deepspeech2-tiny")
    short, long = (infer_shapes(network, {"frames": frames})["logits"].shape for frames in (51, 201))
    assert (short, long) == ((1, 11, 29), (1, 86, 29))


def test_the_declared_shape_of_a_custom_operator_is_bound():
    g = GraphBuilder("custom")
    x = g.input("x", ("batch", 3))
    g.output(g.node("Relu", g.node("Own", x, domain="levelbench.custom", shape=("batch", 7))), "y")
    assert infer_shapes(g.build())["y"].shape == ("batch", 7)
    assert infer_shapes(g.build(), {"batch": 4})["y"].shape == (4, 7)


def test_a_value_that_cannot_be_inferred_has_no_shape():
    network = foreign([helper.make_node("Own", ["x"], ["y"], domain="elsewhere")], {"x": [2, 3]}, domains=["elsewhere"])
    network.model.graph.output[0].type.Clear()
    assert (infer_shapes(network)["y"].dtype, infer_shapes(network)["y"].shape) == ("", None)


def test_the_network_is_not_changed():
    network = zoo.build("gpt2-tiny")
    before = network.model.SerializeToString(deterministic=True)
    infer_shapes(network, {"length": 3})
    assert network.model.SerializeToString(deterministic=True) == before


def test_only_values_of_small_arrays_are_passed_to_inference():
    arrays = [numpy_helper.from_array(np.zeros(size, np.float32), name) for size, name in ((5000, "a"), (3, "b"))]
    nodes = [helper.make_node("Add", ["a", "x"], ["s"]), helper.make_node("Identity", ["b"], ["y"])]
    model = foreign(nodes, {"x": [1]}, initialisers=arrays).model
    light = without_values(model, lambda each: each.dims[0] < 1000)
    assert [each.name for each in light.graph.initializer] == ["b"]
    assert light.ByteSize() < 1000


# Invalid models are refused


def test_shapes_that_contradict_each_other_are_refused():
    network = foreign([helper.make_node("MatMul", ["x", "w"], ["y"])], {"x": [2, 3], "w": [4, 5]})
    with pytest.raises(DefinitionError, match="shapes of foreign"):
        infer_shapes(network)


def test_an_impossible_declared_output_is_refused():
    network = foreign([helper.make_node("Relu", ["x"], ["y"])], {"x": [2, 3]})
    network.model.graph.output[0].CopyFrom(helper.make_tensor_value_info("y", TensorProto.FLOAT, [2, 4]))
    with pytest.raises(DefinitionError, match="shapes of foreign"):
        infer_shapes(network, {})


def test_sizes_that_do_not_fit_once_bound_are_refused():
    network = foreign([helper.make_node("Add", ["a", "b"], ["y"])], {"a": ["n", "p"], "b": ["n", "q"]})
    assert infer_shapes(network, {"p": 3, "q": 1})["y"].shape == (1, 3)
    with pytest.raises(DefinitionError, match="shapes of foreign"):
        infer_shapes(network, {"p": 3, "q": 2})


@pytest.mark.parametrize("shape", [[2**21, 2**20], [2**41, 0]])
def test_an_absurd_input_is_refused(shape):
    network = foreign([helper.make_node("Relu", ["x"], ["y"])], {"x": shape})
    with pytest.raises(DefinitionError, match="claims the shape"):
        infer_shapes(network)


def test_an_absurd_initialiser_is_refused_even_if_empty():
    claim = TensorProto(name="w", data_type=TensorProto.FLOAT, dims=[2**30, 2**30])
    network = foreign([helper.make_node("Add", ["x", "w"], ["y"])], {"x": [1]}, initialisers=[claim])
    with pytest.raises(DefinitionError, match="claims the shape"):
        infer_shapes(network)


@pytest.mark.parametrize("op_type", ["ConstantOfShape", "Expand", "Tile"])
def test_an_absurd_output_of_a_node_is_refused_and_never_allocated(op_type):
    size = numpy_helper.from_array(np.array([2**41]), "size")
    inputs = ["size"] if op_type == "ConstantOfShape" else ["x", "size"]
    nodes = [helper.make_node(op_type, inputs, ["big"]), helper.make_node("Relu", ["big"], ["y"])]
    with pytest.raises(DefinitionError, match="claims the shape"):
        infer_shapes(foreign(nodes, {"x": [1]}, initialisers=[size]), {})


def test_the_length_of_a_range_is_inferred_if_small():
    ends = [numpy_helper.from_array(np.array(end), name) for end, name in ((0, "a"), (1, "c"))]
    nodes = [
        helper.make_node("Shape", ["x"], ["size"], start=0, end=1),
        helper.make_node("Squeeze", ["size"], ["b"]),
        helper.make_node("Range", ["a", "b", "c"], ["positions"]),
        helper.make_node("Cast", ["positions"], ["y"], to=TensorProto.FLOAT),
    ]
    assert infer_shapes(foreign(nodes, {"x": ["n", 3]}, initialisers=ends), {"n": 7})["y"].shape == (7,)
    with pytest.raises(DefinitionError, match="claims the shape"):
        infer_shapes(foreign(nodes, {"x": ["n", 2]}, initialisers=ends), {"n": 2**40})


def test_a_range_inside_a_branch_is_not_followed():
    ends = [numpy_helper.from_array(np.array(end), name) for end, name in ((0, "a"), (2**33, "b"), (1, "c"))]
    out = [helper.make_tensor_value_info("z", TensorProto.INT64, ["n"])]
    branch = [helper.make_node("Range", ["a", "b", "c"], ["r"]), helper.make_node("Slice", ["r", "at", "to"], ["z"])]
    ends += [numpy_helper.from_array(np.array([at]), name) for at, name in ((1, "at"), (2, "to"))]
    either = helper.make_graph(branch, "branch", [], out)
    nodes = [
        helper.make_node("If", ["condition"], ["i"], then_branch=either, else_branch=either),
        helper.make_node("Cast", ["i"], ["y"], to=TensorProto.FLOAT),
    ]
    given = [*ends, numpy_helper.from_array(np.array(True), "condition")]
    assert len(infer_shapes(foreign(nodes, {"x": [1]}, initialisers=given))["y"].shape) == 1


def test_large_shape_arithmetic_is_not_computed():
    # A range of 2**33 numbers as a shape: 64 GiB if it were computed to see what it says.
    ends = [numpy_helper.from_array(np.array(end), name) for end, name in ((0, "a"), (2**33, "b"), (1, "c"))]
    nodes = [
        helper.make_node("Range", ["a", "b", "c"], ["shape"]),
        helper.make_node("Slice", ["shape", "one", "two"], ["part"]),
        helper.make_node("Reshape", ["x", "part"], ["y"]),
    ]
    one, two = (numpy_helper.from_array(np.array([at]), name) for at, name in ((1, "one"), (2, "two")))
    shapes = infer_shapes(foreign(nodes, {"x": [1]}, initialisers=[*ends, one, two]), {})
    assert shapes["shape"].shape == (2**33,)
    assert shapes["y"].shape is None or None in shapes["y"].shape


def test_a_vector_that_claims_to_be_long_is_not_treated_as_a_shape():
    nodes = [
        helper.make_node("Slice", ["x", "one", "two"], ["part"]),
        helper.make_node("Cast", ["part"], ["y"], to=TensorProto.FLOAT),
    ]
    one, two = (numpy_helper.from_array(np.array([at]), name) for at, name in ((1, "one"), (2, "two")))
    network = foreign(nodes, {"x": [2**38]}, initialisers=[one, two])
    network.model.graph.input[0].type.tensor_type.elem_type = TensorProto.INT64
    assert infer_shapes(network, {})["y"].shape == (1,)


def test_doubling_a_vector_of_floats_is_refused_for_its_size_and_not_followed():
    nodes = [helper.make_node("Concat", [f"t{at}", f"t{at}"], [f"t{at + 1}"], axis=0) for at in range(45)]
    nodes[0].input[:] = ["x", "x"]
    nodes.append(helper.make_node("ReduceSum", ["t45"], ["y"], keepdims=0))
    with pytest.raises(DefinitionError, match="claims the shape"):
        infer_shapes(foreign(nodes, {"x": [2]}), {})


def test_a_missing_size_with_blanks_in_its_name_is_quoted():
    network = foreign([helper.make_node("Relu", ["x"], ["y"])], {"x": ["N", "seq len + 1"]})
    with pytest.raises(UsageError, match=r"--size 'seq len \+ 1=16'"):
        network.make_inputs(1)

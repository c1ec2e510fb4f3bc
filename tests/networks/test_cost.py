"""Costs of networks: counted by hand for small ones, and by PyTorch's own counter for others."""

import numpy as np
import pytest
from onnx import TensorProto, helper

from levelbench.networks import Draw, GraphBuilder, Network, zoo
from levelbench.networks.cost import backward_costs, network_cost, training_operations
from levelbench.operators.frameworks import open_framework

F32 = 4


def mlp():
    """A perceptron with 4 inputs, 5 hidden units with ReLU, and 3 outputs."""
    g = GraphBuilder("mlp")
    x = g.input("x", ("batch", 4))
    for at, (inputs, outputs) in enumerate(((4, 5), (5, 3))):
        weight = g.parameter(f"w{at}", (outputs, inputs), Draw("normal", 1.0))
        x = g.node("Gemm", x, weight, g.parameter(f"b{at}", (outputs,), Draw("constant", 0.0)), transB=1)
        x = g.node("Relu", x) if at == 0 else x
    g.output(x, "y")
    return g.build()


def test_the_cost_of_a_perceptron_matches_a_count_by_hand():
    cost = network_cost(mlp(), batch=2)
    assert cost.multiply_adds == 2 * (4 * 5 + 5 * 3)
    assert cost.flops == 2 * cost.multiply_adds + 2 * 5
    assert cost.unknown == {}
    assert cost.parameter_bytes == F32 * (4 * 5 + 5 + 5 * 3 + 3)
    read, written = (2 * 4 + 25) + 2 * 5 + (2 * 5 + 18), 2 * 5 + 2 * 5 + 2 * 3
    assert cost.bytes == F32 * (read + written)


def test_activations_are_what_nodes_make():
    assert network_cost(mlp(), batch=2).activation_bytes == F32 * 2 * (5 + 5 + 3)


def test_the_peak_is_the_inputs_plus_what_is_alive_at_once():
    # At the ReLU: its input, its output and the network's input.
    assert network_cost(mlp(), batch=2).peak_activation_bytes == F32 * 2 * (4 + 5 + 5)


def test_training_keeps_what_derivatives_read():
    # The output of the ReLU, which the second matrix reads too; the network's input is the caller's.
    assert network_cost(mlp(), batch=2).training_activation_bytes == F32 * 2 * 5


def test_a_cost_grows_with_the_batch_and_parameters_do_not():
    one, many = (network_cost(zoo.build("resnet20"), batch=batch) for batch in (1, 16))
    assert many.multiply_adds == 16 * one.multiply_adds
    assert many.activation_bytes == 16 * one.activation_bytes
    assert many.peak_activation_bytes == 16 * one.peak_activation_bytes
    assert many.parameter_bytes == one.parameter_bytes


def test_costs_are_given_by_node_and_add_up():
    network = zoo.build("resnet20")
    cost = network_cost(network)
    assert [each.index for each in cost.nodes] == list(range(len(network.nodes)))
    assert [each.title for each in cost.nodes] == [each.title for each in network.nodes]
    assert [each.output for each in cost.nodes] == [each.outputs[0] for each in network.nodes]
    assert sum(each.multiply_adds for each in cost.nodes) == cost.multiply_adds
    assert sum(each.cost.flops for each in cost.nodes) == cost.flops


def build(nodes, width=8):
    """Nodes with one output each, from x to y, of shape (batch, width)."""
    g = GraphBuilder("chain")
    x = g.input("x", ("batch", width))
    for op_type, *others in nodes:
        x = g.node(op_type, x, *(g.constant(each) for each in others))
    g.output(x, "y")
    return g.build()


def test_a_view_is_not_an_activation_and_keeps_its_source_alive():
    plain = network_cost(build([("Relu",), ("Tanh",)]), 2)
    viewed = network_cost(build([("Relu",), ("Reshape", [-1, 4]), ("Reshape", [-1, 8]), ("Dropout",), ("Tanh",)]), 2)
    for figure in ("activation_bytes", "peak_activation_bytes", "flops", "bytes"):
        assert getattr(viewed, figure) == getattr(plain, figure)


def test_a_shortcut_lives_until_it_is_added():
    g = GraphBuilder("residual")
    x = g.input("x", ("batch", 8))
    first = g.node("Relu", x)
    second = g.node("Tanh", g.node("Tanh", first))
    g.output(g.node("Add", first, second), "y")
    # At the second tanh: the input, the shortcut, and the input and output of the tanh.
    assert network_cost(g.build()).peak_activation_bytes == F32 * 8 * 4


def test_outputs_live_until_the_end():
    g = GraphBuilder("early")
    x = g.input("x", ("batch", 8))
    early = g.node("Relu", x)
    late = g.node("Tanh", g.node("Tanh", early))
    g.output(early, "early")
    g.output(late, "late")
    assert network_cost(g.build()).peak_activation_bytes == F32 * 8 * 4


def test_shape_arithmetic_costs_nothing():
    g = GraphBuilder("arithmetic")
    x = g.input("x", ("batch", 8))
    size = g.node("Shape", x, start=0, end=1)
    doubled = g.node("Concat", g.node("Mul", size, g.constant([2])), g.constant([4]), axis=0)
    g.output(g.node("Relu", g.node("Reshape", x, doubled)), "y")
    cost = network_cost(g.build(), 3)
    assert (cost.flops, cost.activation_bytes, cost.unknown) == (24, F32 * 24, {})


def test_an_operator_without_a_known_cost_is_named_and_counted():
    graph = GraphBuilder("unknown")
    x = graph.input("x", ("batch", 3))
    graph.output(graph.node("Hardmax", graph.node("Hardmax", graph.node("Relu", x))))
    cost = network_cost(graph.build())
    assert cost.unknown == {"Hardmax": 2}
    assert [each.cost.flops for each in cost.nodes if each.title == "Hardmax"] == [None, None]
    assert cost.flops == sum(each.cost.flops or 0 for each in cost.nodes)


def test_a_value_of_unknown_size_makes_its_nodes_unknown():
    infos = [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in (("x", ["n", 3]),)]
    nodes = [
        helper.make_node("NonZero", ["x"], ["at"]),
        helper.make_node("Cast", ["at"], ["c"], to=1),
        helper.make_node("Relu", ["c"], ["y"]),
    ]
    graph = helper.make_graph(nodes, "open", infos, [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    assert network_cost(Network(model)).unknown == {"NonZero": 1, "Cast": 1, "Relu": 1}


@pytest.mark.parametrize(
    ("op_type", "kept"),
    [("Relu", "output"), ("Tanh", "output"), ("Softmax", "output"), ("Gelu", "input"), ("Neg", ""), ("Mish", "both")],
)
def test_a_derivative_reads_the_input_the_output_both_or_neither(op_type, kept):
    g = GraphBuilder("kept")
    x = g.input("x", ("batch", 8))
    weight = g.parameter("w", (8,), Draw("normal", 1.0))
    # With an addition before and after, which itself keeps nothing.
    made = g.node(op_type, g.node("Add", x, weight))
    g.output(g.node("Add", made, weight), "y")
    expected = {"output": 1, "input": 1, "both": 2, "": 0}[kept]
    cost = network_cost(g.build())
    assert cost.training_activation_bytes == F32 * 8 * expected


def test_nothing_before_the_first_parameter_is_kept():
    g = GraphBuilder("frozen")
    x = g.node("Tanh", g.node("Tanh", g.input("x", ("batch", 8))))
    g.output(g.node("Add", x, g.parameter("w", (8,), Draw("normal", 1.0))), "y")
    assert network_cost(g.build()).training_activation_bytes == 0


def test_a_loss_is_part_of_the_cost():
    network = mlp()
    assert network_cost(network.with_loss("mse")).flops > network_cost(network).flops


SMALL = {
    "lenet5": {},
    "alexnet": {"size": 67, "width": 8},
    "resnet50": {"size": 32, "width": 8},
    "mobilenetv2": {"size": 64},
    "unet-tiny": {},
    "vit-tiny": {"layers": 2, "width": 12, "heads": 3, "size": 48},
    "bert-tiny": {"vocabulary": 31, "width": 16, "layers": 1},
    "transformer-tiny": {},
    "dqn": {},
}


@pytest.mark.parametrize("name", SMALL)
def test_multiply_adds_are_half_of_the_operations_that_pytorch_counts(name):
    counter = pytest.importorskip("torch.utils.flop_counter")
    network = zoo.build(name, **SMALL[name])
    backend = open_framework("torch")
    executor = backend.executor(network, network.initialise(0), trains=False)
    inputs = network.make_inputs(2, sizes={"length": 9})
    with counter.FlopCounterMode(display=False) as counted:
        executor.infer(*[backend.array(np.asarray(each)) for each in inputs.values()])
    assert counted.get_total_flops() == 2 * network_cost(network, 2, {"length": 9}).multiply_adds


def test_training_costs_each_product_and_the_gradients_that_are_needed():
    # No gradient goes into the examples, so the first product needs only that of its weights.
    found = training_operations(mlp())
    assert (found.forward, found.gradients, found.unknown) == (2 * (20 + 15), 2 * (20 + 2 * 15), {})


def test_layers_before_the_first_that_trains_need_no_gradient():
    g = GraphBuilder("frozen")
    x = g.input("x", ("batch", 4))
    x = g.node("MatMul", x, g.constant(np.ones((4, 5), np.float32)))
    x = g.node("MatMul", x, g.parameter("w", (5, 3), Draw("normal", 1.0)))
    g.output(x, "y")
    found = training_operations(g.build())
    assert (found.forward, found.gradients) == (2 * (20 + 15), 2 * 15)


def test_the_backward_pass_counts_only_the_gradients_that_are_needed():
    """Of the first product those of weights and bias: it reads examples, bias and gradient, and no weights."""
    first, _, second = backward_costs(mlp(), batch=2)
    assert first.flops == 2 * 2 * 20
    assert first.bytes == 4 * (2 * 4 + 5 + 2 * 5 + 20 + 5)
    assert second.flops == 2 * 2 * 2 * 15


def test_what_needs_no_gradient_costs_nothing_in_the_backward_pass():
    g = GraphBuilder("frozen")
    x = g.input("x", ("batch", 4))
    x = g.node("MatMul", x, g.constant(np.ones((4, 5), np.float32)))
    x = g.node("MatMul", x, g.parameter("w", (5, 3), Draw("normal", 1.0)))
    g.output(x, "y")
    frozen, trained = backward_costs(g.build())
    assert (frozen.flops, frozen.bytes, trained.flops) == (0, 0, 2 * 15)


@pytest.mark.parametrize("name", ["resnet50", "mobilenetv2", "unet-tiny", "transformer-tiny"])
def test_backward_costs_and_training_operations_agree(name):
    network = zoo.build(name, **SMALL[name])
    found = training_operations(network, {"length": 9})
    by_node = backward_costs(network, 1, {"length": 9})
    kinds = ("Conv", "ConvTranspose", "Gemm", "MatMul")
    products = [each.flops for node, each in zip(network.nodes, by_node, strict=True) if node.op_type in kinds]
    assert sum(products) == found.gradients


def test_the_gradients_of_a_grouped_convolution_cost_two_forwards():
    """PyTorch's counter forgets the groups there."""
    found = training_operations(zoo.build("mobilenetv2"))
    first = 2 * 112 * 112 * 32 * 3 * 9
    assert found.gradients == 2 * found.forward - first


@pytest.mark.parametrize("name", ["resnet20", "lenet5-dense"])
def test_training_costs_what_pytorchs_counter_counts_in_a_step(name):
    torch = pytest.importorskip("torch")
    from torch.utils.flop_counter import FlopCounterMode

    network = zoo.build(name)
    trained = network.with_loss("cross-entropy").training()
    executor = open_framework("torch").executor(trained, trained.initialise(0))
    made = trained.make_inputs(2, 0)
    inputs = [torch.from_numpy(made[each.name]) for each in trained.inputs]
    with FlopCounterMode(display=False) as counter:
        executor.forward(*inputs)
        executor.backward()
    found = training_operations(trained)
    assert counter.get_total_flops() == pytest.approx(2 * (found.forward + found.gradients), rel=1e-6)

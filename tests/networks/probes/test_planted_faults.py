"""Networks with one planted fault: each is found, and the faulty operator is named."""

import numpy as np
import pytest

from levelbench.errors import CheckFailedError, UsageError
from levelbench.frameworks.numpy.backend import NumpyBackend
from levelbench.networks import Draw, GraphBuilder
from levelbench.networks.probes import compare_network

pytestmark = pytest.mark.sampled(3)


def attribute(name, value):
    def edit(node, graph):
        import onnx

        for old in [each for each in node.attribute if each.name == name]:
            node.attribute.remove(old)
        node.attribute.append(onnx.helper.make_attribute(name, value))

    return edit


def without_bias(node, graph):
    del node.input[2:]


def first_input_alone(node, graph):
    node.op_type = "Identity"
    del node.input[1:]


def swapped(node, graph):
    node.input[0], node.input[1] = node.input[1], node.input[0]


def one_further(node, graph):
    import onnx

    for name, value in (("wrong.starts", 3), ("wrong.ends", 15)):
        graph.initializer.append(onnx.numpy_helper.from_array(np.array([value]), name))
    node.input[1], node.input[2] = "wrong.starts", "wrong.ends"


def sums(node, graph):
    node.op_type = "ReduceSum"


EDITS = {
    "a wrong epsilon in BatchNormalization": ("stem.norm", attribute("epsilon", 1e-3)),
    "a weight that is transposed": ("logits", attribute("transB", 0)),
    "a pad that is one off": ("stem.conv", attribute("pads", [0, 0, 2, 2])),
    "a missing bias of a convolution": ("stem.conv", without_bias),
    "a missing bias of a matrix product": ("logits", without_bias),
    "a dropped branch": ("branch.add", first_input_alone),
    "a wrong axis in Softmax": ("softmax", attribute("axis", 1)),
    "a wrong slope in LeakyRelu": ("branch.leaky", attribute("alpha", 0.01)),
    "Gelu by its approximation": ("gelu", attribute("approximate", "tanh")),
    "a pool that counts its padding": ("average", attribute("count_include_pad", 1)),
    "inputs of Concat in the wrong order": ("concat", swapped),
    "a slice that begins one too far": ("slice", one_further),
    "a mean that is a sum": ("mean", sums),
    "a LayerNormalization with a wrong epsilon": ("layernorm", attribute("epsilon", 1e-2)),
}


def in_half_precision(a, b):
    return [(a.astype(np.float16) @ b.astype(np.float16)).astype(np.float32)]


def gemm_in_half_precision(x, w, b):
    return [in_half_precision(x, w.T)[0] + b]


def unbiased_variance(x, scale, shift):
    spread = x.std(-1, ddof=1, keepdims=True)
    return [((x - x.mean(-1, keepdims=True)) / (spread + 1e-5) * scale + shift).astype(np.float32)]


def nan_to_zero(x):
    return [np.where(x > 0, x, np.float32(0))]


REPLACEMENTS = {
    "a product in half precision": ("logits", gemm_in_half_precision),
    "a variance over n - 1": ("layernorm", unbiased_variance),
    "an activation that is cut off": ("stem.relu", lambda x: [np.clip(x, 0, 3)]),
    "a product with one wrong row": ("mixed", lambda a, b: [np.roll(a, 1, axis=0) @ b]),
}


@pytest.mark.parametrize("fault", EDITS)
def test_a_fault_in_a_node_is_found_at_that_node(varied, planting, fault):
    output, edit = EDITS[fault]
    found = compare_network(varied, {"faulty": planting[0](output, edit)}, NumpyBackend(), gradients=False)
    (faulty,) = found.failed
    assert faulty.divergences[0].cause == "operator"
    assert faulty.divergences[0].output == output


@pytest.mark.parametrize("fault", REPLACEMENTS)
def test_a_fault_in_an_operator_is_found_at_that_operator(varied, planting, fault):
    output, forward = REPLACEMENTS[fault]
    found = compare_network(varied, {"faulty": planting[1](output, forward)}, NumpyBackend(), gradients=False)
    (faulty,) = found.failed
    assert faulty.divergences[0].cause == "operator"
    assert faulty.divergences[0].output == output


def test_a_fault_that_the_outputs_hide_is_found_by_checking_each_operator(varied, planting):
    faulty = {"faulty": planting[1]("query", in_half_precision), "right": NumpyBackend()}
    assert not compare_network(varied, faulty, NumpyBackend(), gradients=False).failed
    (found,) = compare_network(varied, faulty, NumpyBackend(), gradients=False, operators=True).failed
    assert [each.output for each in found.divergences] == ["query"]


def relu_of_all(inputs, gradients, found):
    return [gradients[0]]


def negated_weight(inputs, gradients, found):
    return [found[0], -found[1], *found[2:]]


def without_the_mean(inputs, gradients, found):
    y = np.exp(inputs[0] - inputs[0].max(-1, keepdims=True))
    return [gradients[0] * (y / y.sum(-1, keepdims=True))]


def bias_of_one_sample(inputs, gradients, found):
    return [found[0], found[1], gradients[0][0]]


def first_cell(inputs, gradients, found):
    spread = np.zeros_like(inputs[0])
    spread[:, :, ::2, ::2] = gradients[0]
    return [spread]


BACKWARDS = {
    "Relu passes every gradient": ("stem.relu", relu_of_all),
    "the gradient of a weight has the wrong sign": ("branch.depthwise", negated_weight),
    "the gradient of Softmax lacks a term": ("softmax", without_the_mean),
    "the gradient of a bias is of one sample": ("logits", bias_of_one_sample),
    "MaxPool sends it to the first cell": ("maxpool", first_cell),
    "a gradient is off by a hundredth": ("gelu", lambda x, g, found: [found[0] * np.float32(1.01)]),
    "a branch gets no gradient": ("branch.add", lambda x, g, found: [found[0], np.zeros_like(found[1])]),
    "a mean forgets to divide": ("mean", lambda x, g, found: [found[0] * np.float32(12), None]),
}


@pytest.mark.parametrize("fault", BACKWARDS)
def test_a_wrong_gradient_of_one_operator_is_found_at_that_operator(varied, planting, fault):
    output, backward = BACKWARDS[fault]
    found = compare_network(varied, {"faulty": planting[1](output, None, backward)}, NumpyBackend())
    (faulty,) = found.failed
    assert not [each for each in faulty.wrong if each.kind == "output"]
    assert (faulty.divergences[0].phase, faulty.divergences[0].cause) == ("backward", "operator")
    assert faulty.divergences[0].output == output


def test_nan_that_is_swallowed_is_found_at_the_operator_that_swallows_it(varied, planting):
    inputs = varied.make_inputs(2)
    inputs["x"][0, 0, 0, 0] = np.nan
    found = compare_network(
        varied, {"faulty": planting[1]("stem.relu", nan_to_zero)}, NumpyBackend(), inputs, gradients=False
    )
    assert found.failed[0].divergences[0].output == "stem.relu"


def test_nan_at_the_same_places_agrees(varied):
    inputs = varied.make_inputs(2)
    inputs["x"][0, 0, 0, 0] = np.nan
    assert not compare_network(varied, {"same": NumpyBackend()}, NumpyBackend(), inputs, gradients=False).failed


def cancelling():
    g = GraphBuilder("cancelling")
    x = g.input("x", ("batch", 32))
    one = g.node("Sigmoid", x, name="sigmoid")
    w = g.parameter("weight", (32, 32), Draw("normal", 1.0))
    two = g.node("MatMul", one, w, name="product")
    g.output(g.node("Mul", g.node("Sub", two, two, name="none"), g.constant(1.0)), "zero")
    near = g.node("Sub", g.node("Add", one, g.constant(1e2)), g.constant(1e2), name="near")
    g.output(g.node("Sub", near, one, name="difference"), "noise")
    return g.build()


def test_what_rounding_the_inputs_explains_is_not_a_fault():
    def slightly(x):
        return [(1 / (1 + np.exp(-x))).astype(np.float32) * np.float32(1 + 6e-8)]

    from levelbench.frameworks.numpy.backend import NumpyBackend as Backend

    network = cancelling()
    found = compare_network(network, {"same": Backend()}, Backend())
    assert not found.failed


def test_a_small_error_that_grows_later_is_traced_to_the_operator_that_made_it(planting):
    g = GraphBuilder("growing")
    x = g.input("x", ("batch", 16))
    w = g.parameter("weight", (16, 16), Draw("normal", 0.3))
    curve = g.node("Tanh", g.node("MatMul", x, w, name="product"), name="tanh")
    centred = g.node("Sub", curve, g.constant(np.full(1, 0.999, np.float32)), name="centred")
    near = g.node("Min", g.node("Abs", centred), g.constant(0.001), name="near")
    g.output(g.node("Mul", near, g.constant(1000.0)), "y")
    network = g.build()
    inputs = {"x": np.full((2, 16), 2.0, np.float32)}

    def off(x):
        return [np.tanh(x) * np.float32(1 + 2e-5)]

    values = {"weight": np.eye(16, dtype=np.float32) * np.float32(1.9)}
    found = compare_network(
        network, {"faulty": planting[1]("tanh", off)}, NumpyBackend(), inputs, values, gradients=False
    )
    parting = found.failed[0].divergences[0]
    assert (parting.output, parting.cause) == ("tanh", "operator")
    assert "grows" in parting.detail


def test_a_failed_check_reports_what_where_by_how_much_and_which_operator(varied, planting):
    faulty = planting[0]("stem.norm", attribute("epsilon", 1e-3))
    with pytest.raises(CheckFailedError) as caught:
        compare_network(varied, {"faulty": faulty}, NumpyBackend()).raise_for_findings()
    for part in ("'logits' is wrong in", "worst at", "1e-04 is allowed", "BatchNormalization 'stem.norm'"):
        assert part.replace("1e-04", "0.0001") in str(caught.value)


def test_a_framework_with_varying_results_is_noted(varied, planting):
    random = np.random.default_rng(0)
    noisy = planting[1]("gelu", lambda x: [x * np.float32(1 + 1e-6 * random.random())])
    found = compare_network(varied, {"noisy": noisy, "same": NumpyBackend()}, NumpyBackend(), gradients=False)
    assert [each.repeats for each in found.backends] == [False, True]


def test_a_wider_tolerance_accepts_larger_errors(varied, planting):
    slightly = planting[1]("logits", lambda x, w, b: [(x @ w.T + b) * np.float32(1 + 3e-4)])
    assert compare_network(varied, {"one": slightly}, NumpyBackend(), gradients=False).failed
    assert not compare_network(varied, {"one": slightly}, NumpyBackend(), gradients=False, tolerance=5.0).failed


def test_values_are_read_a_few_at_a_time_if_memory_is_short(varied, planting):
    faulty = planting[0]("gelu", attribute("approximate", "tanh"))
    found = compare_network(varied, {"faulty": faulty}, NumpyBackend(), gradients=False, budget=1)
    assert found.failed[0].divergences[0].output == "gelu"


def test_inputs_that_the_reference_does_not_accept_are_an_error_with_the_way_out():
    graph = GraphBuilder("reshaped")
    graph.output(graph.node("Reshape", graph.input("x", (2, 3)), graph.input("shape", (2,), "int64")))
    drawn = {"x": np.zeros((2, 3), np.float32), "shape": np.ones(2, np.int64)}
    with pytest.raises(UsageError, match="--inputs"):
        compare_network(graph.build(), {}, NumpyBackend(), drawn)

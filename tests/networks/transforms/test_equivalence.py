"""The check catches all faults planted in transformed networks, and correct ones pass."""

import numpy as np
import pytest
from onnx import helper, numpy_helper

from levelbench.errors import CheckFailedError
from levelbench.networks import Draw, GraphBuilder, transforms
from levelbench.networks.transforms import Allowance, check_equivalence, check_transform, random_parameters
from levelbench.networks.transforms.transform import ROUNDING

BATCH = 6


def edited(network, edit):
    model = network.copied()
    edit(model.graph)
    return network.replace(model=model)


def find(graph, op_type, at=0):
    return [each for each in graph.node if each.op_type == op_type][at]


def bypass(op_type):
    """Drop a node: readers of its output read its input."""

    def edit(graph):
        node = find(graph, op_type)
        for other in graph.node:
            for at, name in enumerate(other.input):
                if name == node.output[0]:
                    other.input[at] = node.input[0]
        graph.node.remove(node)

    return edit


def swap_inputs(op_type, first, second):
    def edit(graph):
        inputs = find(graph, op_type, -1).input
        inputs[first], inputs[second] = inputs[second], inputs[first]

    return edit


def set_attribute(op_type, name, value):
    def edit(graph):
        node = find(graph, op_type)
        for old in [each for each in node.attribute if each.name == name]:
            node.attribute.remove(old)
        node.attribute.append(helper.make_attribute(name, value))

    return edit


def scale_constant(factor):
    """Change the largest stored array."""

    def edit(graph):
        tensor = max(graph.initializer, key=lambda each: len(each.raw_data))
        tensor.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(tensor) * np.float32(factor), tensor.name))

    return edit


def shift_slice(graph):
    """A piece that begins and ends one sample too early."""
    node = find(graph, "Slice", 1)
    stored = {each.name: numpy_helper.to_array(each) for each in graph.initializer}
    for at in (1, 2):
        graph.initializer.append(numpy_helper.from_array(stored[node.input[at]] - 1, f"wrong{at}"))
        node.input[at] = f"wrong{at}"


def repeat_piece(graph):
    concat = find(graph, "Concat")
    concat.input[1] = concat.input[0]


MICRO = {"memory": 15000, "batch": BATCH, "workspace": "none"}
IN_PIECES = {
    "pieces joined in the wrong order": swap_inputs("Concat", 0, 1),
    "a piece joined twice": repeat_piece,
    "a piece of the wrong samples": shift_slice,
    "a piece that skips an activation": bypass("Relu"),
    "a piece with another padding": set_attribute("Conv", "pads", [0, 0, 2, 2]),
}
FOLDED = {
    "weights a thousandth too large": scale_constant(1.001),
    "an activation that is gone": bypass("Relu"),
    "a shortcut that is read twice": lambda graph: find(graph, "Add").input.__setitem__(0, find(graph, "Add").input[1]),
    "another padding": set_attribute("Conv", "pads", [0, 0, 2, 2]),
    "weights that are those of another layer": lambda graph: find(graph, "Conv", 1).input.__setitem__(
        1, find(graph, "Conv", 2).input[1]
    ),
}


@pytest.mark.parametrize("fault", IN_PIECES)
def test_a_fault_in_the_pieces_is_caught(fault, residual, backend):
    values = random_parameters(residual)
    done = transforms.make("microbatch", **MICRO).apply(residual, values)
    assert done.details.splits
    check_equivalence(residual, done.network, backend, parameters=values, after_parameters=done.parameters)
    wrong = edited(done.network, IN_PIECES[fault])
    with pytest.raises(CheckFailedError, match="differs at"):
        check_equivalence(residual, wrong, backend, parameters=values, after_parameters=done.parameters)


@pytest.mark.parametrize("fault", FOLDED)
def test_a_fault_in_a_folded_network_is_caught(fault, residual, backend):
    values = random_parameters(residual)
    done = transforms.make("fold-batchnorm").apply(residual, values)
    wrong = edited(done.network, FOLDED[fault])
    given = {"parameters": values, "tolerance": done.tolerance}
    check_equivalence(residual, done.network, backend, after_parameters=done.parameters, **given)
    with pytest.raises(CheckFailedError, match="differs at"):
        check_equivalence(residual, wrong, backend, after_parameters=wrong.initialise(), **given)


def test_a_wrong_epsilon_is_caught(residual, backend):
    values = random_parameters(residual)
    other = edited(residual, set_attribute("BatchNormalization", "epsilon", 1e-3))
    done = transforms.make("fold-batchnorm").apply(other, values)
    with pytest.raises(CheckFailedError, match=r"allowed is 0\.0001"):
        check_equivalence(
            residual,
            done.network,
            backend,
            parameters=values,
            after_parameters=done.parameters,
            tolerance=done.tolerance,
        )


def test_random_parameters_reveal_a_lost_normalisation_that_initial_ones_hide(residual, backend):
    lost = edited(residual, bypass("BatchNormalization"))
    outputs_only = Allowance(ROUNDING.outputs, None, "")
    check_equivalence(residual, lost, backend, tolerance=outputs_only)
    values = random_parameters(residual)
    with pytest.raises(CheckFailedError):
        check_equivalence(residual, lost, backend, parameters=values, after_parameters=values, tolerance=outputs_only)


def test_a_split_over_a_normalisation_in_training_mode_is_caught(residual, backend):
    """Splitting before switching to training mode normalises by pieces, which is wrong."""
    values = random_parameters(residual)
    right = residual.with_loss("mse").training()
    pieces = transforms.make("microbatch", **MICRO).apply(residual, values).network
    wrong = pieces.with_loss("mse").training()
    with pytest.raises(CheckFailedError, match=r"(loss|gradient|buffer)"):
        check_equivalence(right, wrong, backend, parameters=values, after_parameters=values, batches=[BATCH])


def test_a_wrong_gradient_with_right_outputs_is_caught(backend):
    def build(constant):
        g = GraphBuilder("stopped")
        x, w = g.input("x", ("batch", 3)), g.parameter("w", (3, 2), Draw("normal", 1.0))
        y = g.node("MatMul", x, w)
        # The value does not change, but half of the gradient is twice as large.
        g.output(g.node("Add", y, g.node("Sub", y, y)) if constant else g.node("Add", y, y, name="y2"), "y")
        return g.build()

    before, after = build(True), build(True)
    check_equivalence(before, after, backend)

    class Wrong:
        """A backend whose gradients are off for networks of one name."""

        def __getattr__(self, name):
            return getattr(backend, name)

        def executor(self, network, *arguments, **settings):
            made = backend.executor(network, *arguments, **settings)
            if network.name == "other":
                plain = made.backward
                made.backward = lambda: {name: 1.01 * each for name, each in plain().items()}
            return made

    model = after.copied()
    model.graph.name = "other"
    with pytest.raises(CheckFailedError, match="gradient 'w'"):
        check_equivalence(before, after.replace(model=model), Wrong())


@pytest.mark.parametrize(
    ("edit", "says"),
    [
        (lambda graph: graph.output[0].__setattr__("name", "wrong"), "outputs"),
        (lambda graph: graph.input[0].__setattr__("name", "wrong"), "inputs"),
    ],
)
def test_a_changed_interface_is_caught(edit, says, residual, backend):
    with pytest.raises(CheckFailedError, match=says):
        check_equivalence(residual, edited(residual, edit), backend)


def test_a_changed_shape_is_caught(backend):
    def build(keep):
        g = GraphBuilder("reduced")
        g.output(g.node("ReduceSum", g.input("x", ("batch", 3)), g.constant([1]), keepdims=keep), "y")
        return g.build()

    with pytest.raises(CheckFailedError, match=r"has shape \(1,\), expected \(1, 1\)"):
        check_equivalence(build(1), build(0), backend)


def test_nan_is_a_difference_unless_both_are(backend):
    def build(operator):
        g = GraphBuilder("undefined")
        g.output(g.node(operator, g.input("x", ("batch", 3))), "y")
        return g.build()

    with np.errstate(invalid="ignore"):
        check_equivalence(build("Sqrt"), build("Sqrt"), backend, tolerance=Allowance(1e-4, None, ""), batches=[5])
        with pytest.raises(CheckFailedError):
            check_equivalence(build("Relu"), build("Sqrt"), backend, tolerance=Allowance(10.0, None, ""), batches=[5])


def test_the_message_has_tensor_index_deviation_and_reason(residual, backend):
    wrong = edited(residual, bypass("Relu"))
    with pytest.raises(CheckFailedError) as caught:
        check_equivalence(residual, wrong, backend)
    for word in ("output 'output' at batch", "differs at (", "largest magnitude", "allowed is 0.0001", "float32 sums"):
        assert word in str(caught.value)


def test_the_report_counts_what_was_compared(residual, backend):
    done, report = check_transform(transforms.make("microbatch", **MICRO), residual, backend)
    kinds = [each.kind for each in report.differences]
    assert report.batches == (BATCH,)
    assert {kind: kinds.count(kind) for kind in set(kinds)} == {"output": 1, "loss": 1, "gradient": 11, "buffer": 6}
    assert done.details.splits
    assert "11 x gradient" in report.text()


def test_an_open_batch_is_checked_at_several_sizes(residual, backend):
    _, report = check_transform(transforms.make("dead-nodes"), residual, backend)
    assert report.batches == (1, 2, 5)

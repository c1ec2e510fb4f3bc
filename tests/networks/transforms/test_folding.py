"""Constant folding, batch-normalisation folding, and dead nodes."""

import numpy as np
import onnx
import pytest
from onnx import helper

from levelbench.networks import Draw, GraphBuilder, Network, transforms
from levelbench.networks.transforms import check_transform

W = Draw("normal", 0.5)


def types(network):
    return [each.op_type for each in network.nodes]


def test_nodes_that_depend_only_on_constants_are_computed_in_advance(backend):
    g = GraphBuilder("table")
    table = g.node("Mul", g.node("Cast", g.node("Range", *(g.constant(n) for n in (0, 4, 1))), to=1), g.constant(0.5))
    g.output(g.node("Add", g.input("x", ("batch", 4)), g.node("Sin", table)), "y")
    done, _ = check_transform(transforms.make("fold-constants"), g.build(), backend)
    assert types(done.network) == ["Add"]
    assert done.changed == ("computed 4 of 5 nodes in advance",)


def test_shape_arithmetic_is_folded_once_the_batch_is_bound(exported, backend):
    done, _ = check_transform(transforms.make("fold-constants", batch=3), exported, backend)
    assert not {"Shape", "Gather", "Unsqueeze", "Concat"} & set(types(done.network))
    assert done.network.inputs[0].shape == (3, 4, 6)
    assert done.network.outputs[0].shape == (3, 3)


def test_known_sizes_of_an_open_shape_are_folded(backend):
    g = GraphBuilder("partly")
    x = g.input("x", ("batch", 4, 6))
    width = g.node("Gather", g.node("Shape", x), g.constant([2]))
    g.output(g.node("Reshape", x, g.node("Concat", g.constant([-1]), width, axis=0)), "y")
    done, _ = check_transform(transforms.make("fold-constants"), g.build(), backend)
    assert types(done.network) == ["Reshape"]


def test_a_shape_with_an_open_size_stays(exported):
    done = transforms.make("fold-constants").apply(exported)
    assert "Shape" in types(done.network)


def test_parameters_are_not_constants():
    g = GraphBuilder("weights")
    g.output(g.node("Add", g.input("x", ("batch", 3)), g.node("Exp", g.parameter("w", (3,), W))), "y")
    network = g.build()
    assert types(transforms.make("fold-constants").apply(network).network) == ["Exp", "Add"]
    stored = network.stored(network.initialise())
    assert types(transforms.make("fold-constants").apply(stored).network) == ["Exp", "Add"]


def test_large_constants_are_not_stored():
    g = GraphBuilder("giant")
    filled = g.node("ConstantOfShape", g.constant([1000, 1000]))
    g.output(g.node("Add", g.input("x", ("batch", 1000, 1000)), filled), "y")
    done = transforms.make("fold-constants").apply(g.build())
    assert "ConstantOfShape" in types(done.network)
    assert "over 1,048,576 bytes" in done.changed[0]
    assert types(transforms.make("fold-constants", most_bytes=1 << 23).apply(g.build()).network) == ["Add"]


def test_random_numbers_are_not_folded():
    g = GraphBuilder("random")
    g.output(g.node("Add", g.input("x", ("batch", 3)), g.node("RandomNormalLike", g.constant([1.0, 2.0, 3.0]))), "y")
    assert "RandomNormalLike" in types(transforms.make("fold-constants").apply(g.build()).network)


def test_batch_normalisation_goes_into_the_convolutions_before_it(residual, backend):
    done, report = check_transform(transforms.make("fold-batchnorm"), residual, backend)
    assert "BatchNormalization" not in types(done.network)
    assert done.changed == ("folded 3 BatchNormalization into 3 Conv",)
    assert report.worst.relative < 1e-5
    assert set(done.parameters) == {each.name for each in done.network.parameters}


def test_without_values_those_of_the_seed_are_used(residual, backend):
    done = transforms.make("fold-batchnorm").apply(residual)
    assert done.parameters is None
    x = residual.make_inputs(2)["input"]
    (expected,) = backend.executor(residual, None, trains=False).infer(x)
    (found,) = backend.executor(done.network, None, trains=False).infer(x)
    np.testing.assert_allclose(found, expected, atol=1e-5)


@pytest.mark.parametrize("groups", [1, 2])
@pytest.mark.parametrize("bias", [False, True])
def test_every_suitable_layer_is_folded(groups, bias, backend):
    for kind in ("Conv", "ConvTranspose", "Gemm"):
        for transposed in (0, 1):
            g = GraphBuilder("layer")
            if kind == "Gemm":
                x = g.input("x", ("batch", 4))
                w = g.parameter("w", (6, 4) if transposed else (4, 6), W)
                settings = {"transB": transposed, "alpha": 0.5, "beta": 2.0}
            else:
                x = g.input("x", ("batch", 4, 5, 5))
                shape = (6, 4 // groups) if kind == "Conv" else (4, 6 // groups)
                w, settings = g.parameter("w", (*shape, 3, 3), W), {"group": groups}
            biases = [g.parameter("b", (6,), W)] if bias else []
            y = g.node(kind, x, w, *biases, **settings)
            statistics = (g.parameter(name, (6,), Draw("uniform", 0.5, 1.0)) for name in "smtv")
            g.output(g.node("BatchNormalization", y, *statistics, epsilon=1e-2), "y")
            done, _ = check_transform(transforms.make("fold-batchnorm"), g.build(), backend)
            assert types(done.network) == [kind]


def two_readers(g, y):
    return g.node("Add", y, g.node("Relu", y))


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ("training", "training mode"),
        ("reader", "also read elsewhere"),
        ("output", "also read elsewhere"),
        ("relu", "no Conv"),
    ],
)
def test_a_normalisation_that_cannot_be_folded_stays_with_the_reason(change, why):
    g = GraphBuilder("left")
    y = g.node("Conv", g.input("x", ("batch", 2, 4, 4)), g.parameter("w", (3, 2, 3, 3), W), name="conv")
    before = g.node("Relu", y) if change == "relu" else y
    statistics = [g.parameter(name, (3,), Draw("uniform", 0.5, 1.0)) for name in "smtv"]
    training = {"training_mode": 1, "outputs": 3} if change == "training" else {}
    z = g.node("BatchNormalization", before, *statistics, **training)
    z = z[0] if change == "training" else z
    g.output(g.node("Add", z, y) if change == "reader" else z, "z")
    if change == "output":
        g.output(y, "y")
    done = transforms.make("fold-batchnorm").apply(g.build())
    assert "BatchNormalization" in types(done.network)
    assert why in done.changed[-1]


def test_unneeded_nodes_are_removed_with_their_weights(backend):
    g = GraphBuilder("dead")
    x = g.input("x", ("batch", 3))
    g.node("MatMul", g.node("Relu", x), g.parameter("unused", (3, 100), W))
    g.output(g.node("MatMul", x, g.parameter("used", (3, 2), W)), "y")
    network = g.build()
    done, _ = check_transform(transforms.make("dead-nodes"), network, backend)
    assert types(done.network) == ["MatMul"]
    assert done.network.parameter_count() == 6
    assert done.changed[0] == "removed 2 of 3 nodes"
    assert "unused" in done.changed[1]


def test_what_replaces_a_buffer_is_needed(residual):
    training = residual.with_loss("mse").training()
    done = transforms.make("dead-nodes").apply(training)
    assert done.changed == ()
    assert done.network.updates == training.updates


def test_what_a_subgraph_reads_is_needed():
    branch = [
        helper.make_graph([helper.make_node(op, ["doubled"], [f"{op}.out"])], op, [], [
            helper.make_tensor_value_info(f"{op}.out", onnx.TensorProto.FLOAT, None)
        ]) for op in ("Relu", "Neg")
    ]  # fmt: skip
    nodes = [
        helper.make_node("Add", ["x", "x"], ["doubled"]),
        helper.make_node("Exp", ["x"], ["dead"]),
        helper.make_node("If", ["flag"], ["y"], then_branch=branch[0], else_branch=branch[1]),
    ]
    x = helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, ("batch", 2))
    flag = helper.make_tensor_value_info("flag", onnx.TensorProto.BOOL, ())
    y = helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, ("batch", 2))
    graph = helper.make_graph(nodes, "branches", [x, flag], [y])
    network = Network(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10))
    done = transforms.make("dead-nodes").apply(network)
    assert types(done.network) == ["Add", "If"]
    onnx.checker.check_model(done.network.model)


@pytest.mark.parametrize("name", ["dead-nodes", "fold-batchnorm", "fold-constants"])
def test_the_given_network_is_not_changed(name, residual):
    before = residual.model.SerializeToString(deterministic=True)
    transforms.make(name).apply(residual)
    assert residual.model.SerializeToString(deterministic=True) == before

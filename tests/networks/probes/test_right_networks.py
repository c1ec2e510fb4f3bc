"""Correct networks pass; what cannot be compared is reported."""

import ml_dtypes
import numpy as np
import pytest
from onnx import numpy_helper

from levelbench.errors import UnsupportedError
from levelbench.frameworks.numpy.backend import NumpyBackend
from levelbench.networks import Draw, GraphBuilder
from levelbench.networks.inspect import random_values
from levelbench.networks.probes import compare_network, divergence
from levelbench.networks.probes.agreement import coarsest_dtype, judge, limit_for
from levelbench.operators.frameworks import load_framework


def opened(name):
    framework = load_framework(name)
    if lacking := framework.lacks():
        pytest.skip(lacking)
    return framework.open()


@pytest.mark.parametrize("framework", ["torch", "jax", "onnxruntime"])
def test_a_correct_framework_passes(varied, framework):
    found = compare_network(varied, {framework: opened(framework)}, NumpyBackend(), operators=True)
    found.raise_for_findings()
    assert found.backends[0].compared
    assert not found.backends[0].lacks


def test_the_gradient_of_a_bias_before_a_norm_is_only_rounding_and_passes():
    g = GraphBuilder("cancelled")
    x = g.input("x", ("batch", 3, 6, 6))
    w, b = g.parameter("weight", (4, 3, 3, 3), Draw("normal", 0.5)), g.parameter("bias", (4,), Draw("normal", 0.5))
    scale, shift = g.parameter("scale", (4,), Draw("constant", 1.0)), g.parameter("shift", (4,), Draw("constant", 0.0))
    y = g.node("InstanceNormalization", g.node("Conv", x, w, b), scale, shift)
    g.output(g.node("Tanh", y), "y")
    found = compare_network(g.build(), {"torch": opened("torch")}, NumpyBackend())
    statuses = {each.name: each.status for each in found.backends[0].tensors}
    assert statuses["bias"] in ("rounding", "agrees")
    assert {statuses[name] for name in ("weight", "scale", "shift", "y")} == {"agrees"}


def test_a_network_with_a_loss_is_compared_by_that_loss():
    g = GraphBuilder("classes")
    x = g.input("x", ("batch", 5))
    g.output(g.node("MatMul", x, g.parameter("weight", (5, 3), Draw("normal", 0.5))), "logits")
    network = g.build().with_loss("cross-entropy")
    found = compare_network(network, {"torch": opened("torch")}, NumpyBackend(), batch=4)
    found.raise_for_findings()
    assert [each.kind for each in found.backends[0].tensors] == ["output", "gradient"]
    assert "labels" in found.inputs


def test_integers_are_exact():
    g = GraphBuilder("integers")
    x = g.input("x", ("batch", 4), "int64", high=9)
    g.output(g.node("Mul", x, g.constant(np.array(3))), "y")
    network = g.build()

    class OneOff(NumpyBackend):
        def host(self, array):
            return np.array(array) + 1

    (found,) = compare_network(network, {"off": OneOff()}, NumpyBackend(), locate=False).backends
    assert "int64 is exact" in found.wrong[0].detail


def test_random_outputs_are_not_compared():
    g = GraphBuilder("random")
    x = g.input("x", ("batch", 4))
    noise = g.node("RandomNormalLike", x)
    g.output(g.node("Add", x, noise), "noisy")
    g.output(g.node("Neg", x), "plain")
    network = g.build()
    (found,) = compare_network(network, {"same": NumpyBackend()}, NumpyBackend()).backends
    assert {each.name: each.status for each in found.tensors} == {"noisy": "not compared", "plain": "agrees"}
    assert "noisy" in random_values(network.model.graph)


@pytest.mark.parametrize("training", [True, False])
def test_a_dropout_that_its_file_leaves_on_depends_on_random_numbers(training):
    g = GraphBuilder("dropping")
    x = g.input("x", ("batch", 6))
    on = g.node("Constant", value=numpy_helper.from_array(np.array(training), "on"))
    g.output(g.node("Dropout", x, g.constant(np.float32(0.5)), on), "y")
    assert ("y" in random_values(g.build().model.graph)) is training


def test_a_framework_that_only_infers_has_its_gradients_not_compared_with_the_reason(varied):
    (found,) = compare_network(varied, {"onnxruntime": opened("onnxruntime")}, NumpyBackend()).backends
    gradients = [each for each in found.tensors if each.kind == "gradient"]
    assert gradients
    assert all(each.status == "not compared" and "inference" in each.detail for each in gradients)


def test_a_refusal_of_a_framework_is_reported_but_not_a_failure(varied):
    class Refusing(NumpyBackend):
        def operator(self, node):
            raise UnsupportedError(f"operator {node.title}", "it is refused", "use another")

    found = compare_network(varied, {"refusing": Refusing()}, NumpyBackend())
    assert "it is refused" in found.backends[0].lacks
    assert not found.failed


def test_an_exception_other_than_a_refusal_is_a_failure(varied):
    class Raising(NumpyBackend):
        def operator(self, node):
            raise KeyError("gone")

    (found,) = compare_network(varied, {"raising": Raising()}, NumpyBackend()).failed
    assert found.raised == "KeyError: 'gone'"


@pytest.mark.parametrize(
    ("dtype", "off", "status"),
    [
        (np.float32, 5e-5, "agrees"),
        (np.float32, 5e-4, "wrong"),
        (np.float64, 1e-9, "wrong"),
        (np.float16, 1e-2, "agrees"),
        (ml_dtypes.bfloat16, 5e-2, "agrees"),
        (ml_dtypes.bfloat16, 5e-1, "wrong"),
    ],
)
def test_the_tolerance_follows_from_the_dtype(dtype, off, status):
    expected = np.linspace(-1, 1, 9).astype(dtype)
    actual = (expected.astype(np.float64) + off).astype(dtype)
    assert judge("y", "output", actual, expected, limit_for("output", dtype)).status == status


@pytest.mark.parametrize("other", [np.ones((3, 2), np.float32), np.ones((2, 3), np.float64)])
def test_another_shape_or_dtype_is_wrong(other):
    found = judge("y", "output", other, np.ones((2, 3), np.float32), 1e-4)
    assert found.status == "wrong"
    assert "expected" in found.detail


def test_a_network_is_judged_by_the_coarsest_dtype_that_it_computes_in():
    g = GraphBuilder("half")
    x = g.input("x", (2, 3))
    half = g.node("Cast", x, to=10)
    g.output(g.node("Cast", g.node("Tanh", half), to=1), "y")
    assert coarsest_dtype(g.build()) == np.float16


def test_weights_that_are_stored_in_half_precision_and_cast_do_not_loosen_the_tolerance():
    g = GraphBuilder("stored")
    x = g.input("x", (2, 3))
    weight = g.node("Cast", g.constant(np.ones((3, 2), np.float16)), to=1)
    g.output(g.node("MatMul", x, weight), "y")
    assert coarsest_dtype(g.build()) == np.float32


def test_only_some_of_very_many_nodes_that_are_alike_are_run_alone(monkeypatch):
    class Counting(NumpyBackend):
        built = 0

        def executor(self, *args, **options):
            self.built += 1
            return super().executor(*args, **options)

    g = GraphBuilder("chain")
    x = g.input("x", ("batch", 4))
    for _ in range(40):
        x = g.node("Tanh", x)
    g.output(x, "y")
    monkeypatch.setattr(divergence, "_MOST_ALIKE", 5)
    counting = Counting()
    found = compare_network(g.build(), {"counting": counting}, NumpyBackend(), gradients=False, operators=True)
    assert found.backends[0].compared
    assert counting.built < 40

import numpy as np
import pytest
from onnx.reference import ReferenceEvaluator

from levelbench.errors import DefinitionError, UsageError
from levelbench.networks import Builder, zoo


def test_initial_weights_depend_only_on_the_seed():
    network = zoo.mlp(64, 32, 10)
    first, again, other = network.initialise(3), network.initialise(3), network.initialise(4)
    assert all(np.array_equal(first[name], again[name]) for name in first)
    assert not np.array_equal(first["layer0.weight"], other["layer0.weight"])


def test_another_layer_does_not_change_the_weights_of_the_others():
    short = Builder("short", (8,)).gemm(4).build().initialise(0)
    long = Builder("long", (8,)).gemm(4).relu().gemm(2).build().initialise(0)
    assert np.array_equal(short["layer0.weight"], long["layer0.weight"])


def test_weights_have_the_variance_of_he_initialisation():
    weight = Builder("wide", (400,)).gemm(500).build().initialise(0)["layer0.weight"]
    assert weight.std() == pytest.approx(np.sqrt(2 / 400), rel=0.01)
    assert abs(weight.mean()) < 4 * np.sqrt(2 / 400) / np.sqrt(weight.size)


def test_biases_start_at_zero():
    assert not zoo.mlp(64, 32, 10).initialise(0)["layer1.bias"].any()


def test_the_parameter_count_of_the_mlp_matches_its_formula():
    assert zoo.mlp(64, 128, 10).parameter_count() == 64 * 128 + 128 + 128 * 10 + 10


def test_the_parameter_count_of_the_cnn_matches_its_formula():
    network = zoo.cnn((1, 28, 28), 32, 128, 10)
    convolutions = (9 * 32 + 32) + (9 * 32 * 64 + 64)
    assert network.parameter_count() == convolutions + (64 * 7 * 7 * 128 + 128) + (128 * 10 + 10)


def test_the_builder_keeps_track_of_shapes_through_padding_stride_and_pooling():
    network = Builder("shapes", (3, 9, 7)).conv(5, 3, padding=1, stride=2).max_pool(2).build()
    assert network.outputs[0].shape == ("batch", 5, 2, 2)


def test_the_builder_scales_and_reshapes_outputs():
    made = Builder("scaled", (6,)).affine(2.0, 1.0).affine(3.0).reshape((2, 3)).build()
    assert [node.op_type for node in made.nodes] == ["Mul", "Add", "Mul", "Reshape"]
    (found,) = ReferenceEvaluator(made.to_proto()).run(None, {"input": np.ones((4, 6), np.float32)})
    np.testing.assert_array_equal(found, np.full((4, 2, 3), 9, np.float32))


@pytest.mark.parametrize(
    ("build", "says"),
    [
        (lambda: Builder("x", (1, 4, 4)).gemm(3), "flatten\\(\\) before it"),
        (lambda: Builder("x", (16,)).conv(3, 3), "channels, height, width"),
        (lambda: Builder("x", (1, 2, 2)).conv(3, 5), "only 2 to slide over"),
        (lambda: Builder("x", (1, 2, 2)).build(), "no layer"),
        (lambda: Builder("x", (6,)).reshape((2, 4)), "they are of shape \\(6,\\)"),
    ],
)
def test_an_impossible_layer_is_refused_with_the_reason(build, says):
    with pytest.raises(DefinitionError, match=says):
        build()


def test_any_operator_can_be_a_layer_with_its_own_weights():
    network = (
        Builder("custom", (4,))
        .operator("GeluBias", [((4,), 0.5)], domain="levelbench.custom", approximate=True)
        .gemm(2)
        .build()
    )
    node = network.nodes[0]
    assert (node.op_type, node.domain, dict(node.attributes)) == ("GeluBias", "levelbench.custom", {"approximate": 1})
    assert node.inputs == ("input", network.parameters[0].name)
    assert len({each.name for each in network.parameters}) == 3
    assert network.outputs[0].shape == ("batch", 2)


def test_parameters_that_the_free_memory_cannot_hold_are_refused_before_they_are_drawn(monkeypatch):
    monkeypatch.setattr("levelbench.networks.network.memory_left_bytes", lambda: 20 * 2**30)
    with pytest.raises(UsageError, match=r"174 GiB, and 20\.0 GiB are free"):
        zoo.build("mixtral-8x7b").initialise()

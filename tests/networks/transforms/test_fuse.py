import numpy as np
import pytest

from levelbench.errors import UnknownNameError, UsageError
from levelbench.networks import Draw, GraphBuilder, transforms, zoo
from levelbench.networks.transforms import check_transform

W = Draw("normal", 0.5)
TANH = np.float32(np.sqrt(2 / np.pi))


def types(network):
    return [each.op_type for each in network.nodes]


def fused(build, backend, opset=None, shape=("batch", 4, 6), **settings):
    g = GraphBuilder("fused", opset=opset or 21)
    x = g.node("MatMul", g.input("x", shape), g.parameter("in", (shape[-1], shape[-1]), W))
    g.output(g.node("Neg", build(g, x)), "y")
    done, _ = check_transform(transforms.make("fuse", **settings), g.build(), backend)
    return types(done.network)[1:-1], done


def erf_gelu(g, x, order):
    root = np.float32(np.sqrt(2))
    inner = g.node("Div", x, g.constant(root)) if order % 2 else g.node("Mul", g.constant(1 / root), x)
    gate = g.node("Add", g.constant(1.0), g.node("Erf", inner))
    if order < 2:
        return g.node("Mul", g.node("Mul", x, gate), g.constant(0.5))
    if order == 2:
        return g.node("Mul", g.node("Mul", g.constant(0.5), x), gate)
    return g.node("Div", g.node("Mul", gate, x), g.constant(2.0))


def tanh_gelu(g, x, order):
    if order == 0:
        cube = g.node("Mul", g.constant(0.044715), g.node("Pow", x, g.constant(3.0)))
        inner = g.node("Mul", g.node("Add", x, cube), g.constant(TANH))
    elif order == 1:
        cube = g.node("Mul", x, g.node("Mul", x, g.node("Mul", x, g.constant(0.044715))))
        inner = g.node("Mul", g.constant(TANH), g.node("Add", cube, x))
    else:
        square = g.node("Add", g.constant(1.0), g.node("Mul", g.node("Mul", x, x), g.constant(0.044715)))
        inner = g.node("Mul", g.node("Mul", x, g.constant(TANH)), square)
    return g.node("Mul", g.node("Mul", x, g.constant(0.5)), g.node("Add", g.node("Tanh", inner), g.constant(1.0)))


def layer_norm(g, x, order=0, size=6, shift=True):
    mean = g.node("ReduceMean", x, g.constant([-1]))
    d = g.node("Sub", x, mean)
    square = g.node("Mul", d, d) if order % 2 else g.node("Pow", d, g.constant(2.0))
    variance = g.node("ReduceMean", square, g.constant([-1]))
    root = g.node("Sqrt", g.node("Add", variance, g.constant(1e-5)))
    d = g.node("Div", d, root) if order < 2 else g.node("Mul", g.node("Reciprocal", root), d)
    d = g.node("Mul", g.parameter("scale", (size,), W), d)
    return g.node("Add", d, g.parameter("shift", (size,), W)) if shift else d


def rms_norm(g, x):
    mean = g.node("ReduceMean", g.node("Pow", x, g.constant(2.0)), g.constant([-1]))
    root = g.node("Sqrt", g.node("Add", mean, g.constant(1e-6)))
    return g.node("Mul", g.node("Div", x, root), g.parameter("scale", (6,), W))


def attention(g, x, order=0, mask=False):
    heads = g.node("Transpose", g.node("Reshape", x, g.constant([0, 4, 2, 3])), perm=[0, 2, 1, 3])
    number = g.constant(np.float32(3**-0.5))
    if order == 0:
        key = g.node("Transpose", heads, perm=[0, 1, 3, 2])
        scores = g.node("Mul", g.node("MatMul", heads, key), number)
    elif order == 1:
        key = g.node("Transpose", g.node("Reshape", x, g.constant([0, 4, 2, 3])), perm=[0, 2, 3, 1])
        scores = g.node("Div", g.node("MatMul", heads, key), g.constant(np.float32(3**0.5)))
    else:
        key = g.node("Transpose", heads, perm=[0, 1, 3, 2])
        scores = g.node("MatMul", g.node("Mul", heads, number), key)
    if mask:
        scores = g.node("Add", scores, g.constant(np.triu(np.full((4, 4), -1e9, np.float32), 1)))
    return g.node("MatMul", g.node("Softmax", scores, axis=-1), g.node("Mul", heads, heads))


@pytest.mark.parametrize("order", range(4))
def test_a_gelu_by_the_error_function_is_found_however_it_is_written(order, backend):
    assert fused(lambda g, x: erf_gelu(g, x, order), backend)[0] == ["Gelu"]


@pytest.mark.parametrize("order", range(3))
def test_a_gelu_by_the_hyperbolic_tangent_is_found_however_it_is_written(order, backend):
    found, done = fused(lambda g, x: tanh_gelu(g, x, order), backend)
    assert found == ["Gelu"]
    assert done.network.nodes[1]["approximate"] == "tanh"


@pytest.mark.parametrize("order", range(3))
@pytest.mark.parametrize("shift", [True, False])
def test_a_layer_normalisation_is_found_however_it_is_written(order, shift, backend):
    found, done = fused(lambda g, x: layer_norm(g, x, order, shift=shift), backend)
    assert found == ["LayerNormalization"]
    assert done.network.nodes[1]["epsilon"] == pytest.approx(1e-5)


def test_an_rms_normalisation_is_found(backend):
    assert fused(rms_norm, backend, opset=23)[0] == ["RMSNormalization"]


@pytest.mark.parametrize("order", range(3))
@pytest.mark.parametrize("mask", [False, True])
def test_attention_is_found_however_it_is_written(order, mask, backend):
    found, done = fused(lambda g, x: attention(g, x, order, mask), backend, opset=23)
    assert found.count("Attention") == 1
    assert not {"Softmax", "MatMul"} & set(found)
    assert "Attention" in done.changed[0]


def test_a_swish_is_found_with_its_slope(backend):
    found, done = fused(
        lambda g, x: g.node("Mul", x, g.node("Sigmoid", g.node("Mul", x, g.constant(1.5)))), backend, opset=24
    )
    assert found == ["Swish"]
    assert done.network.nodes[1]["alpha"] == pytest.approx(1.5)


def test_a_hard_swish_is_found_in_both_ways_of_writing_it(backend):
    def by_gate(g, x):
        return g.node("Mul", x, g.node("HardSigmoid", x, alpha=1 / 6, beta=0.5))

    def by_clip(g, x):
        clipped = g.node("Clip", g.node("Add", x, g.constant(3.0)), g.constant(0.0), g.constant(6.0))
        return g.node("Div", g.node("Mul", x, clipped), g.constant(6.0))

    assert fused(by_gate, backend)[0] == ["HardSwish"]
    assert fused(by_clip, backend)[0] == ["HardSwish"]


@pytest.mark.parametrize("shape", [(5,), (1, 5), ()])
def test_a_product_of_matrices_and_a_bias_become_gemm(shape, backend):
    def build(g, x):
        return g.node("Add", g.node("MatMul", x, g.parameter("w", (6, 5), W)), g.parameter("b", shape, W))

    assert fused(build, backend, shape=("batch", 6))[0] == ["Gemm"]


def test_a_product_with_more_axes_does_not_become_gemm(backend):
    def build(g, x):
        return g.node("Add", g.node("MatMul", x, g.parameter("w", (6, 5), W)), g.parameter("b", (5,), W))

    assert fused(build, backend)[0] == ["MatMul", "Add"]


def _mixed_axes(g, x):
    d = g.node("Sub", x, g.node("ReduceMean", x, g.constant([1])))
    variance = g.node("ReduceMean", g.node("Mul", d, d), g.constant([-1]))
    root = g.node("Sqrt", g.node("Add", variance, g.constant(1e-5)))
    return g.node("Mul", g.node("Div", d, root), g.parameter("scale", (6,), W))


def root_of_two(g):
    return g.constant(np.float32(np.sqrt(2)))


NEARLY = {
    "a gelu with another constant": lambda g, x: g.node(
        "Mul", g.node("Mul", x, g.node("Add", g.node("Erf", g.node("Mul", x, g.constant(0.7))), g.constant(1.0))),
        g.constant(0.5),
    ),
    "a gelu of two values": lambda g, x: g.node(
        "Mul",
        g.node("Neg", x),
        g.node("Mul", g.node("Add", g.node("Erf", g.node("Div", x, root_of_two(g))), g.constant(1.0)), g.constant(0.5)),
    ),
    "a hard swish of another slope": lambda g, x: g.node("Mul", x, g.node("HardSigmoid", x, alpha=0.2, beta=0.5)),
    "a normalisation over another axis than its mean": _mixed_axes,
}  # fmt: skip


@pytest.mark.parametrize("name", NEARLY)
def test_near_matches_of_a_pattern_are_left_alone(name, backend):
    _, done = fused(NEARLY[name], backend, patterns=["gelu", "hard-swish", "layer-norm"])
    assert done.changed == ()


@pytest.mark.parametrize("build", [lambda g, x: erf_gelu(g, x, 0), layer_norm, attention])
def test_a_pattern_with_a_value_that_is_read_elsewhere_is_left(build, backend):
    """Each value inside in turn becomes an output, which must not disappear."""
    g = GraphBuilder("read", opset=23)
    x = g.input("x", ("batch", 4, 6))
    y = build(g, x)
    inner = [node.output[0] for node in g._graph.node[:-1] if node.op_type in ("Erf", "Softmax", "Sqrt", "Sub")]
    g.output(g.node("Neg", y), "y")
    network = g.build()
    assert inner
    for name in inner:
        more = network.with_outputs(["y", name])
        done, _ = check_transform(transforms.make("fuse", patterns=["gelu", "layer-norm", "attention"]), more, backend)
        assert done.changed == ()


def test_an_operator_of_a_later_opset_is_used_only_on_request(backend):
    found, done = fused(attention, backend)
    assert "Softmax" in found
    assert done.changed == ("left 1 x attention: Attention needs opset 23, but the network has 21",)
    found, done = fused(attention, backend, opset=21, patterns=["attention"])
    g = GraphBuilder("raised")
    g.output(attention(g, g.input("x", ("batch", 4, 6))), "y")
    done, _ = check_transform(transforms.make("fuse", opset=23), g.build(), backend)
    assert "Attention" in types(done.network)
    assert done.network.opsets[""] == 23


def test_an_opset_cannot_be_lowered():
    with pytest.raises(UsageError, match="opset 13"):
        transforms.make("fuse", opset=13).apply(zoo.mlp(3, 4, 2))


def test_an_unknown_pattern_is_refused_with_similar_names():
    with pytest.raises(UnknownNameError, match="gelu"):
        transforms.make("fuse", patterns=["gelo"])


def test_all_patterns_of_a_network_are_fused_together(exported, backend):
    done, _ = check_transform(transforms.make("fuse"), exported, backend)
    assert {"LayerNormalization", "Gelu", "Gemm"} <= set(types(done.network))
    assert done.network.parameter_count() == exported.parameter_count()


def test_constants_may_be_nodes(backend):
    def build(g, x):
        half, one, root = (
            g.node("Constant", value_float=value) for value in (0.5, 1.0, float(np.float32(np.sqrt(0.5))))
        )
        gate = g.node("Add", g.node("Erf", g.node("Mul", x, root)), one)
        return g.node("Mul", g.node("Mul", x, gate), half)

    assert fused(build, backend)[0] == ["Gelu"]

"""Vector-Jacobian products against central differences in float64, along random directions."""

import numpy as np
import pytest

from levelbench.errors import UnsupportedError
from levelbench.operators.node import OperatorNode, operator_node, structural

RNG = np.random.default_rng(0)


def normal(*shape):
    return RNG.standard_normal(shape)


def apart(*shape):
    """Values much further apart than a step, so that no maximum moves to another element."""
    return RNG.permutation(int(np.prod(shape))).reshape(shape) / 10.0


def ints(*values):
    return np.array(values, np.int64)


def case(op_type, *inputs, outputs=1, **attributes):
    names = [f"x{at}" if each is not None else "" for at, each in enumerate(inputs)]
    return pytest.param(op_type, names, [f"y{at}" for at in range(outputs)], inputs, attributes, id=_id(op_type))


def _id(op_type, seen={}):  # noqa: B006
    seen[op_type] = seen.get(op_type, 0) + 1
    return f"{op_type}-{seen[op_type]}"


IMAGE, VOLUME = normal(2, 4, 5, 6), normal(1, 2, 4, 4, 3)
POSITIVE = np.abs(normal(3, 4)) + 0.5

CASES = [
    *(case(name, normal(3, 4)) for name in ("Sin", "Tanh", "Sigmoid", "Erf", "Softplus", "Mish", "Gelu", "Celu")),
    *(case(name, POSITIVE) for name in ("Log", "Sqrt", "Reciprocal")),
    case("Gelu", normal(3, 4), approximate="tanh"),
    case("Clip", apart(3, 4), np.array(0.25), np.array(0.75)),
    case("PRelu", normal(3, 4), normal(4)),
    case("Div", normal(3, 1), POSITIVE),
    case("Pow", POSITIVE, normal(4)),
    *(case("Mod", apart(3, 4) - 0.55, np.array([0.4, -0.4, 0.7, -2.0]), fmod=each) for each in (0, 1)),
    case("Max", apart(3, 4), apart(3, 4) + 0.05),
    case("Where", np.array([[True, False, True]]), normal(2, 3), normal(2, 1)),
    case("Softmax", normal(3, 4), axis=0),
    case("LogSoftmax", normal(3, 4)),
    case("ReduceMean", normal(3, 4), ints(1), keepdims=0),
    case("ReduceL2", normal(3, 4), ints(0)),
    case("ReduceLogSumExp", normal(3, 4)),
    case("ReduceMax", apart(3, 4), ints(1)),
    case("ReduceProd", POSITIVE, ints(1)),
    case("CumSum", normal(3, 4), np.array(1), exclusive=1, reverse=1),
    case("CumProd", POSITIVE, np.array(0), opset=26),
    case("TopK", apart(3, 5), ints(2), outputs=2),
    case("MatMul", normal(2, 3, 4), normal(4, 5)),
    case("Gemm", normal(4, 3), normal(5, 4), normal(5), alpha=0.5, beta=2.0, transA=1, transB=1),
    case("Einsum", normal(2, 3), normal(3, 4), equation="ij,jk->ik"),
    case("Det", normal(2, 3, 3)),
    case("Conv", IMAGE, normal(6, 2, 3, 2), normal(6), group=2, strides=[2, 1], pads=[1, 0, 2, 1], dilations=[1, 2]),
    case("Conv", normal(2, 3, 7), normal(4, 3, 3), auto_pad="SAME_LOWER", strides=[2]),
    case("Conv", VOLUME, normal(3, 2, 2, 2, 2)),
    case(
        "ConvTranspose",
        IMAGE,
        normal(4, 3, 3, 3),
        normal(6),
        group=2,
        strides=[2, 3],
        pads=[1, 0, 0, 1],
        output_padding=[1, 0],
        dilations=[1, 2],
    ),
    case("MaxPool", apart(1, 2, 6, 6), kernel_shape=[3, 2], strides=[2, 1], pads=[1, 0, 1, 1], ceil_mode=1),
    case("MaxPool", apart(1, 2, 7), kernel_shape=[2], dilations=[2]),
    case("AveragePool", IMAGE, kernel_shape=[3, 3], pads=[1, 1, 1, 1], strides=[2, 2], ceil_mode=1),
    case("LpPool", IMAGE, kernel_shape=[2, 2], p=3),
    case("GlobalAveragePool", IMAGE),
    case("BatchNormalization", IMAGE, normal(4), normal(4), normal(4), np.abs(normal(4)) + 1),
    case("BatchNormalization", IMAGE, normal(4), normal(4), normal(4), np.ones(4), outputs=3, training_mode=1),
    case("LayerNormalization", normal(3, 4), normal(4), normal(4), stash_type=11),
    case("GroupNormalization", IMAGE, normal(4), normal(4), num_groups=2, stash_type=11),
    case("InstanceNormalization", IMAGE, normal(4), normal(4)),
    case("RMSNormalization", normal(3, 4), normal(4), stash_type=11, opset=23),
    case("LRN", IMAGE, size=3, alpha=0.3),
    case("LpNormalization", normal(3, 4)),
    case("Concat", normal(2, 3), normal(2, 1), axis=1),
    case("Split", normal(5, 2), ints(2, 3), outputs=2),
    case("Slice", normal(5, 6), ints(4, 1), ints(0, 5), ints(0, 1), ints(-2, 2)),
    case("Pad", normal(3, 4), ints(1, 0, -1, 2), np.array(0.5)),
    case("Pad", normal(3, 4), ints(1, 2, 1, 0), mode="reflect"),
    case("Reshape", normal(2, 6), ints(3, -1)),
    case("Transpose", normal(2, 3, 4), perm=[2, 0, 1]),
    case("Expand", normal(3, 1), ints(2, 3, 4)),
    case("Tile", normal(2, 3), ints(2, 2)),
    case("Gather", normal(5, 3), ints(0, -1, 0), axis=0),
    case("GatherElements", normal(3, 4), np.array([[0, 2], [1, 1]]), axis=1),
    case("ScatterND", normal(4, 3), np.array([[1], [3]]), normal(2, 3), reduction="add"),
    case("ScatterElements", normal(3, 4), np.array([[0, 2]]), normal(1, 2), axis=1),
    case("Resize", IMAGE, None, np.array([1.0, 1.0, 1.6, 0.7], np.float32), mode="cubic"),
    case("Resize", IMAGE, None, np.array([1.0, 1.0, 0.6, 0.5], np.float32), mode="linear", antialias=1),
    case("GridSample", IMAGE, np.tanh(normal(2, 3, 3, 2)), align_corners=1, mode="linear"),
    case("SoftmaxCrossEntropyLoss", normal(4, 3), ints(0, 2, 1, 2), np.abs(normal(3)), outputs=2, ignore_index=1),
    case("NegativeLogLikelihoodLoss", normal(4, 3), ints(0, 2, 1, 2), reduction="sum"),
    case("Attention", normal(2, 4, 3, 5), normal(2, 2, 6, 5), normal(2, 2, 6, 4), is_causal=1, opset=23),
    case("RotaryEmbedding", normal(2, 2, 3, 4), normal(3, 2), normal(3, 2), ints([0, 1, 2], [2, 1, 0]), opset=23),
    case("RNN", normal(4, 2, 3), normal(1, 5, 3), normal(1, 5, 5), normal(1, 10), outputs=2, hidden_size=5),
    case("GRU", normal(4, 2, 3), normal(1, 15, 3), normal(1, 15, 5), normal(1, 30), outputs=2, hidden_size=5),
    case(
        "LSTM",
        normal(4, 2, 3),
        normal(2, 20, 3),
        normal(2, 20, 5),
        normal(2, 40),
        np.array([4, 2], np.int32),
        normal(2, 2, 5),
        normal(2, 2, 5),
        normal(2, 15),
        outputs=3,
        hidden_size=5,
        direction="bidirectional",
    ),
]


def floating(array):
    return array is not None and array.dtype == np.float64


def native(backend, node, inputs):
    known = structural(node)
    return [each if each is None or at in known else backend.array(each) for at, each in enumerate(inputs)]


def projected(backend, operator, node, inputs, cotangents):
    # The outputs that come with the pullback, which are already compiled.
    outputs, _ = operator.vjp(*native(backend, node, inputs))
    pairs = zip(outputs, cotangents, strict=True)
    return sum(float((backend.host(y) * g).sum()) for y, g in pairs if g is not None)


@pytest.mark.parametrize(("op_type", "names", "outputs", "inputs", "attributes"), CASES)
def test_the_gradient_is_the_slope(backend, op_type, names, outputs, inputs, attributes):
    node = operator_node(op_type, names, outputs, **attributes)
    operator = backend.operator(node)
    found, pullback = operator.vjp(*native(backend, node, inputs))
    rng = np.random.default_rng(1)
    # Means and deviations of a normalisation are excluded: they have another type than the output.
    cotangents = [rng.standard_normal(y.shape) if y.dtype == np.float64 else None for y in found]
    gradients = pullback(*(None if g is None else backend.array(g) for g in cotangents))
    free = [at for at, each in enumerate(inputs) if floating(each) and at not in structural(node)]
    assert [at for at, each in enumerate(gradients) if each is not None] == free
    step = 1e-6
    for at in free:
        assert gradients[at].shape == inputs[at].shape
        direction = rng.standard_normal(inputs[at].shape)
        moved = [[*inputs[:at], inputs[at] + sign * step * direction, *inputs[at + 1 :]] for sign in (1, -1)]
        high, low = (projected(backend, operator, node, each, cotangents) for each in moved)
        slope = (high - low) / (2 * step)
        assert float((backend.host(gradients[at]) * direction).sum()) == pytest.approx(slope, rel=1e-5, abs=1e-6)


@pytest.mark.parametrize(("op_type", "names", "outputs", "inputs", "attributes"), CASES[::12])
def test_backward_is_what_the_pullback_gives(backend, op_type, names, outputs, inputs, attributes):
    node = operator_node(op_type, names, outputs, **attributes)
    operator = backend.operator(node)
    arguments = native(backend, node, inputs)
    found, pullback = operator.vjp(*arguments)
    ones = [backend.array(np.ones(each.shape)) for each in found]
    for one, other in zip(pullback(*ones), operator.backward(ones, arguments, found), strict=True):
        assert (one is None) == (other is None)
        if one is not None:
            np.testing.assert_allclose(backend.host(one), backend.host(other), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize(
    ("op_type", "at", "slope"),
    [("Relu", 0, 0), ("Abs", 0, 0), ("LeakyRelu", 0, 0.01), ("HardSigmoid", 2.5, 0), ("HardSwish", 3, 1)],
)
def test_at_a_kink_it_is_the_one_that_pytorch_takes(backend, op_type, at, slope):
    _, pullback = backend.operator(operator_node(op_type)).vjp(backend.array(np.array([float(at)])))
    (gradient,) = pullback(backend.array(np.ones(1)))
    assert float(gradient[0]) == pytest.approx(slope)


def test_the_bounds_of_clip_have_the_full_gradient(backend):
    arguments = [backend.array(np.array(each)) for each in ([0.0, 0.5, 1.0], 0.0, 1.0)]
    _, pullback = backend.operator(operator_node("Clip", ["x", "low", "high"])).vjp(*arguments)
    np.testing.assert_array_equal(backend.host(pullback(backend.array(np.ones(3)))[0]), [1, 1, 1])


def test_an_output_without_a_gradient_counts_as_zero(backend):
    operator = backend.operator(OperatorNode("Split", ("x", "sizes"), ("a", "b")))
    outputs, pullback = operator.vjp(backend.array(np.ones(4)), ints(1, 3))
    gradient, of_sizes = pullback(None, backend.array(np.ones(3)))
    assert of_sizes is None
    np.testing.assert_array_equal(backend.host(gradient), [0, 1, 1, 1])
    again, _ = operator.backward((None, backend.array(np.ones(3))), (backend.array(np.ones(4)), ints(1, 3)), outputs)
    np.testing.assert_array_equal(backend.host(again), [0, 1, 1, 1])


def test_integers_have_no_gradient(backend):
    operator = backend.operator(operator_node("Add"))
    x = backend.array(np.array([1, 2]))
    outputs, pullback = operator.vjp(x, x)
    assert pullback(None) == (None, None)
    assert operator.backward((None,), (x, x), outputs) == (None, None)


@pytest.mark.parametrize("way", ["vjp", "backward"])
def test_dropout_passes_the_gradient_where_it_passed_the_value(backend, way):
    operator = backend.operator(OperatorNode("Dropout", ("x", "ratio", "training"), ("y", "mask")))
    arguments = (backend.array(np.ones(1000)), np.array(0.25), np.array(True))
    outputs, pullback = operator.vjp(*arguments)
    ones = backend.array(np.ones(1000))
    gradients = pullback(ones, None) if way == "vjp" else operator.backward((ones, None), arguments, outputs)
    mask = backend.host(outputs[1])
    assert 650 < mask.sum() < 850
    np.testing.assert_allclose(backend.host(gradients[0]), mask / 0.75)
    assert gradients[1:] == (None, None)


def test_the_gradient_of_a_draw_that_is_not_kept_is_refused(backend):
    operator = backend.operator(OperatorNode("Dropout", ("x", "ratio", "training"), ("y",)))
    arguments = (backend.array(np.ones(4)), np.array(0.5), np.array(True))
    with pytest.raises(UnsupportedError, match="vjp"):
        operator.backward((backend.array(np.ones(4)),), arguments, operator.forward(*arguments))


def test_the_gradient_of_an_output_whose_size_depends_on_values_is_refused(backend):
    with pytest.raises(UnsupportedError, match="depends on values"):
        backend.operator(operator_node("Unique")).vjp(backend.array(np.array([1.0, 2.0, 1.0])))

"""More than 200 correct operators, of two frameworks and written by hand, with several seeds: all pass."""

import numpy as np
import pytest

from levelbench.errors import UnsupportedError
from levelbench.operators.frameworks import open_framework
from levelbench.operators.node import operator_node
from levelbench.operators.probes import check_gradient, check_operator

F = np.float32


def draw(*shape, seed=0, low=None):
    random = np.random.default_rng((seed, *shape))
    return (random.standard_normal(shape) if low is None else random.uniform(low, low + 1, shape)).astype(F)


def ints(*values):
    return np.array(values, np.int64)


def _shapes(inputs):
    return ",".join("none" if each is None else "x".join(map(str, each.shape)) or "scalar" for each in inputs)


def case(op_type, *inputs, title="", outputs=None, **attributes):
    """An operator and the inputs to check it on."""
    names = [f"x{at}" if each is not None else "" for at, each in enumerate(inputs)]
    settings = "-".join(f"{name}={value}" for name, value in attributes.items())
    node = operator_node(op_type, names, outputs, **attributes)
    return pytest.param(node, list(inputs), id=f"{op_type}-{title}-{settings}-{_shapes(inputs)}".replace(" ", ""))


X, Y = draw(4, 6), draw(4, 6, seed=1)
IMAGE, LINE, VOLUME = draw(2, 4, 7, 6), draw(2, 4, 9), draw(1, 2, 4, 5, 6)
UNARY = (
    "Abs Atan Ceil Celu Cos Elu Erf Exp Floor Gelu HardSigmoid HardSwish Identity LeakyRelu LogSoftmax Mish Neg Relu "
    "Round Selu Sigmoid Sign Sin Sinh Softmax Softplus Softsign Tan Tanh Asinh Cosh ThresholdedRelu Flatten"
)
POSITIVE = "Log Sqrt Reciprocal"
BINARY = "Add Sub Mul Div Max Min"
REDUCTIONS = "ReduceSum ReduceMean ReduceMax ReduceMin ReduceProd ReduceL1 ReduceL2 ReduceLogSumExp ReduceSumSquare"

ELEMENTWISE = [
    *(case(op, X) for op in UNARY.split()),
    *(case(op, draw(2, 3, 4, low=0.5)) for op in POSITIVE.split()),
    *(case(op, X, Y + F(4) * np.sign(Y), title="same") for op in BINARY.split()),
    *(case(op, draw(2, 3, 4), draw(4, low=1.0), title="broadcast") for op in BINARY.split()),
    *(case(op, draw(3, 1, 4), draw(2, 1, low=1.0), title="both") for op in BINARY.split()),
    case("Pow", draw(3, 4, low=0.5), np.array(3, F)),
    case("Clip", X, np.array(-0.5, F), np.array(0.7, F)),
    case("PRelu", X, draw(6, low=0.1)),
    case("Where", X > 0, X, Y),
    case("Sum", X, Y, X),
    case("Mean", X, Y),
    case("Cast", X, to=1),
    case("Not", X > 0),
    case("Greater", X, Y),
    case("Equal", ints(1, 2, 3), ints(1, 5, 3)),
    case("LeakyRelu", X, alpha=0.3),
    case("Elu", X, alpha=2.0),
    case("Gelu", X, approximate="tanh"),
]
REDUCED = [
    *(case(op, draw(3, 4, 5), ints(1), keepdims=keep) for op in REDUCTIONS.split() for keep in (0, 1)),
    *(case(op, draw(3, 4, 5), ints(0, -1), title="two", keepdims=0) for op in REDUCTIONS.split()),
    *(case("Softmax", draw(3, 4, 5), axis=axis) for axis in (0, 1, -1)),
    *(case("LogSoftmax", draw(3, 4, 5), axis=axis) for axis in (0, 1, -1)),
    *(case("ArgMax", draw(3, 5), axis=axis, keepdims=0) for axis in (0, 1)),
    *(case("CumSum", draw(3, 5), np.array(1), exclusive=e, reverse=r) for e in (0, 1) for r in (0, 1)),
    case("TopK", draw(3, 7), ints(2), outputs=["v", "i"]),
    case("GlobalAveragePool", IMAGE),
    case("GlobalMaxPool", IMAGE),
]
LINEAR = [
    case("MatMul", draw(4, 6), draw(6, 3), title="matrix"),
    case("MatMul", draw(2, 4, 6), draw(6, 3), title="batch"),
    case("MatMul", draw(2, 1, 4, 6), draw(3, 6, 5), title="both"),
    case("MatMul", draw(6), draw(6), title="vectors"),
    *(case("Gemm", draw(*((6, 4) if a else (4, 6))), draw(*((3, 6) if b else (6, 3))), draw(3), transA=a, transB=b)
      for a in (0, 1) for b in (0, 1)),
    case("Gemm", draw(4, 6), draw(6, 3), alpha=0.5),
    case("Einsum", draw(2, 3), draw(3, 4), equation="ij,jk->ik"),
    case("Einsum", draw(2, 3, 5), draw(2, 5, 4), equation="bij,bjk->bik"),
    case("Einsum", draw(3, 4), equation="ij->j"),
    *(case("Conv", IMAGE, draw(6, 4, 3, 2), **attributes)
      for attributes in ({}, {"pads": [1, 0, 2, 1]}, {"strides": [2, 1]}, {"dilations": [2, 2]})),
    case("Conv", IMAGE, draw(6, 2, 3, 3), draw(6), group=2),
    case("Conv", IMAGE, draw(4, 1, 3, 3), group=4),
    case("Conv", LINE, draw(3, 4, 5), pads=[2, 2]),
    case("Conv", VOLUME, draw(3, 2, 2, 3, 2)),
    case("ConvTranspose", draw(2, 3, 4, 5), draw(3, 2, 3, 3), strides=[2, 2]),
    case("ConvTranspose", draw(2, 3, 6), draw(3, 2, 4), draw(2), pads=[1, 1]),
]  # fmt: skip
POOLED = [
    *(case(op, IMAGE, kernel_shape=[2, 2], strides=strides, pads=pads)
      for op in ("MaxPool", "AveragePool") for strides in ([1, 1], [2, 2]) for pads in ([0] * 4, [1, 0, 1, 0])),
    case("MaxPool", LINE, kernel_shape=[3]),
    case("AveragePool", LINE, kernel_shape=[3], count_include_pad=1, pads=[1, 1]),
    case("MaxPool", IMAGE, kernel_shape=[3, 3], strides=[2, 2], ceil_mode=1),
    case("LpPool", IMAGE, kernel_shape=[2, 2]),
]  # fmt: skip
NORMALISED = [
    case("BatchNormalization", IMAGE, draw(4), draw(4), draw(4), draw(4, low=0.5)),
    case("LayerNormalization", draw(3, 8), draw(8), draw(8)),
    case("LayerNormalization", draw(2, 3, 8), draw(8), axis=-1),
    case("InstanceNormalization", IMAGE, draw(4), draw(4)),
    case("GroupNormalization", IMAGE, draw(4), draw(4), num_groups=2),
    case("LpNormalization", draw(3, 5), axis=1, p=2),
    case("LRN", IMAGE, size=3),
    case("MeanVarianceNormalization", IMAGE),
]
SHAPED = [
    case("Transpose", draw(2, 3, 4), perm=[2, 0, 1]),
    case("Reshape", draw(2, 3, 4), ints(4, -1)),
    case("Squeeze", draw(2, 1, 4), ints(1)),
    case("Unsqueeze", draw(2, 4), ints(1)),
    case("Concat", X, Y, axis=1),
    case("Concat", X, Y, X, axis=0),
    case("Split", draw(6, 4), ints(2, 4), outputs=["a", "b"], axis=0),
    case("Slice", draw(6, 8), ints(1, 6), ints(5, 0), ints(0, 1), ints(1, -2)),
    *(case("Pad", draw(4, 5), ints(1, 0, 2, 3), mode=mode) for mode in ("constant", "reflect", "edge")),
    case("Expand", draw(3, 1), ints(2, 3, 4)),
    case("Tile", draw(2, 3), ints(2, 2)),
    case("Gather", draw(5, 4), ints(0, 3, 3), axis=0),
    case("Gather", draw(5, 4), ints(1, -1), axis=1),
    case("GatherElements", draw(3, 3), np.array([[0, 1, 2], [2, 0, 0]]), axis=0),
    case("ScatterElements", draw(3, 3), np.array([[0, 1, 2]]), draw(1, 3), axis=0),
    case("DepthToSpace", draw(1, 8, 2, 3), blocksize=2),
    case("Trilu", draw(4, 4), upper=0),
    case("Resize", draw(1, 2, 4, 4), None, np.array([1, 1, 2, 2], F), mode="nearest"),
    case("Resize", draw(1, 2, 4, 4), None, np.array([1, 1, 2, 1.5], F), mode="linear"),
]
RECURRENT = [
    case("RNN", draw(3, 2, 4), draw(1, 5, 4), draw(1, 5, 5), hidden_size=5, outputs=["y", "h"]),
    case("GRU", draw(3, 2, 4), draw(1, 15, 4), draw(1, 15, 5), hidden_size=5, outputs=["y", "h"]),
    case("LSTM", draw(3, 2, 4), draw(1, 20, 4), draw(1, 20, 5), hidden_size=5, outputs=["y", "h", "c"]),
    case("SoftmaxCrossEntropyLoss", draw(4, 5), ints(0, 4, 2, 2), reduction="mean"),
    case("SoftmaxCrossEntropyLoss", draw(4, 5), ints(0, 4, 2, 2), reduction="none"),
    case("NegativeLogLikelihoodLoss", draw(4, 5), ints(0, 4, 2, 2), reduction="sum"),
]
OPERATORS = [*ELEMENTWISE, *REDUCED, *LINEAR, *POOLED, *NORMALISED, *SHAPED, *RECURRENT]


def faults(report):
    return [f"{each.probe} [{each.case}]: {each.found}" for each in report.failed]


@pytest.mark.sampled(4)
@pytest.mark.parametrize(("node", "inputs"), OPERATORS[1::2])
def test_a_reference_operator_passes(node, inputs):
    backend = open_framework("numpy")
    operator = backend.operator(node)
    assert not faults(check_operator(operator, [inputs], backend=backend, reference=operator))


@pytest.mark.parametrize("at", range(len(OPERATORS)))
def test_gradients_of_the_reference_pass_with_any_seed(at):
    node, inputs = OPERATORS[at].values
    backend = open_framework("numpy")
    try:
        # Each operator has another seed.
        check_gradient(backend.operator(node), inputs, backend=backend, seed=1 + at, directions=2)
    except UnsupportedError:
        pytest.skip("it has no gradient")


@pytest.mark.slow
@pytest.mark.parametrize(("node", "inputs"), OPERATORS[::4])
def test_an_operator_of_pytorch_passes(node, inputs):
    pytest.importorskip("torch")
    backend = open_framework("torch")
    reference = open_framework("numpy").operator(node)
    assert not faults(check_operator(backend.operator(node), [inputs], backend=backend, reference=reference))


def test_there_are_more_than_150_operators_and_no_two_are_the_same():
    assert len({each.id for each in OPERATORS}) == len(OPERATORS) > 150


def softmax(x):
    e = np.exp(x - x.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)


def softmax_back(g, i, o):
    return (o[0] * (g[0] - (g[0] * o[0]).sum(axis=-1, keepdims=True)),)


def sort_back(g, i, o):
    back = np.zeros_like(i[0])
    np.put_along_axis(back, np.argsort(i[0], axis=-1, kind="stable"), g[0], axis=-1)
    return (back,)


def max_back(g, i, o):
    first = i[0] >= i[1]
    return g[0] * first, g[0] * ~first


def shared_back(g, i, o):
    share = np.where(i[0] == i[1], 0.5, i[0] > i[1]).astype(i[0].dtype)
    return g[0] * share, g[0] * (1 - share)


def mean_in_float32(x):
    return x.mean(axis=-1, dtype=np.float64 if x.dtype == np.float64 else np.float32).astype(x.dtype)


def sum_in_float32(x):
    # NumPy's own sum of float16 along the first axis is wrong: it gets stuck at 128 of 225.
    return x.sum(axis=0, dtype=np.promote_types(x.dtype, F)).astype(x.dtype)


def log_sum_exp(x):
    most = x.max(axis=-1, keepdims=True)
    return (most + np.log(np.exp(x - most).sum(axis=-1, keepdims=True)))[..., 0]


def two(x):
    return x * 2, x.sum(axis=-1)


def two_back(g, i, o):
    first = 0 if g[0] is None else 2 * g[0]
    second = 0 if g[1] is None else g[1][..., None]
    return ((first + second + np.zeros_like(i[0])).astype(i[0].dtype),)


BY_HAND = {
    "relu": (lambda x: np.maximum(x, 0), lambda g, i, o: (g[0] * (i[0] > 0),), 1),
    "relu with slope 1 at 0": (lambda x: np.maximum(x, 0), lambda g, i, o: (g[0] * (i[0] >= 0),), 1),
    "abs": (np.abs, lambda g, i, o: (g[0] * np.sign(i[0]),), 1),
    "maximum, ties to the first": (np.maximum, max_back, 2),
    "maximum, ties shared": (np.maximum, shared_back, 2),
    "sort": (lambda x: np.sort(x, axis=-1), sort_back, 1),
    "softmax": (softmax, softmax_back, 1),
    "log-sum-exp": (log_sum_exp, lambda g, i, o: (g[0][..., None] * softmax(i[0]),), 1),
    "tanh": (np.tanh, lambda g, i, o: (g[0] * (1 - o[0] ** 2),), 1),
    "square": (np.square, lambda g, i, o: (2 * g[0] * i[0],), 1),
    "round": (np.round, lambda g, i, o: (np.zeros_like(g[0]),), 1),
    "floor": (np.floor, None, 1),
    "mean": (mean_in_float32, None, 1),
    "product": (np.multiply, lambda g, i, o: (g[0] * i[1], g[0] * i[0]), 2),
    "two outputs": (two, two_back, 1),
    "argument of the maximum": (lambda x: x.argmax(axis=-1), None, 1),
    "sine": (np.sin, lambda g, i, o: (g[0] * np.cos(i[0]),), 1),
    "exponential": (np.exp, lambda g, i, o: (g[0] * o[0],), 1),
    "clip": (lambda x: np.clip(x, -1, 1), lambda g, i, o: (g[0] * (np.abs(i[0]) <= 1),), 1),
    "hard sigmoid": (lambda x: np.clip(x / 4 + x.dtype.type(0.5), 0, 1),
                     lambda g, i, o: (g[0] * ((o[0] > 0) & (o[0] < 1)) / 4,), 1),
    "sum": (sum_in_float32, lambda g, i, o: (np.repeat(g[0][None], len(i[0]), 0),), 1),
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize(("seed", "name"), list(enumerate(BY_HAND)))
def test_a_correct_operator_written_by_hand_passes(name, seed):
    forward, backward, count = BY_HAND[name]
    samples = [
        [draw(5, 8, seed=seed + 10 * at) for at in range(count)],
        [draw(7, seed=seed + at) for at in range(count)],
    ]
    report = check_operator(forward, samples, reference=forward, backward=backward, seed=seed)
    assert not faults(report)

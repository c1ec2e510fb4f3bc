"""Operators with one planted fault in what they compute or how they treat memory, each found by the right check."""

import itertools

import numpy as np
import pytest

from levelbench.operators.probes import check_operator

RANDOM = np.random.default_rng(7)
X = RANDOM.standard_normal((6, 10)).astype(np.float32)
W = RANDOM.standard_normal((10, 5)).astype(np.float32)
IMAGE = RANDOM.standard_normal((1, 4, 5, 7)).astype(np.float32)
KERNEL = RANDOM.standard_normal((2, 4, 3, 2)).astype(np.float32)
HALVES = RANDOM.standard_normal((2, 2, 3, 2)).astype(np.float32)


def softmax(x):
    e = np.exp(x - x.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)


def conv(x, w, pad=1, dilation=1, group=1, flip=False):
    """Plain convolution, (batch, channels, height, width)."""
    x = np.pad(x, ((0, 0), (0, 0), (pad, pad), (pad, pad)))
    if flip:
        w = w[..., ::-1, ::-1]
    out, per, high, wide = w.shape
    height, width = x.shape[2] - dilation * (high - 1), x.shape[3] - dilation * (wide - 1)
    y = np.zeros((len(x), out, height, width), np.result_type(x, w, np.float32))
    dtype, x = np.result_type(x, w), x.astype(y.dtype)
    for o, i, j in itertools.product(range(out), range(high), range(wide)):
        start = o * group // out * per
        part = x[:, start : start + per, i * dilation : i * dilation + height, j * dilation : j * dilation + width]
        y[:, o] += np.einsum("nchw,c->nhw", part, w[o, :, i, j])
    return y.astype(dtype)


def dilated(x, w):
    return conv(x, w, dilation=2)


def layer_norm(x):
    return (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + x.dtype.type(1e-3))


def epsilon_outside_the_root(x):
    return (x - x.mean(-1, keepdims=True)) / (np.sqrt(x.var(-1, keepdims=True)) + x.dtype.type(1e-3))


def variance_over_n_minus_one(x):
    return (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True, ddof=1) + x.dtype.type(1e-3))


def variance_by_moments(x):
    mean = x.mean(-1, keepdims=True)
    return (x - mean) / np.sqrt((x * x).mean(-1, keepdims=True) - mean * mean + x.dtype.type(1e-3))


def half_accumulator(x):
    total = np.zeros(x.shape[0], x.dtype)
    for column in x.T:
        total = (total + column).astype(x.dtype)
    return total


def unwritten_border(x):
    y = np.empty_like(x)
    y[1:-1] = 2 * x[1:-1]
    y[:1] = 2 * x[:1]
    return y


class Counter:
    """A running mean that should not be there."""

    def __init__(self):
        self.mean = 0.0

    def __call__(self, x):
        self.mean = 0.9 * self.mean + 0.1 * float(np.abs(x).mean())
        return (x + self.mean).astype(x.dtype)


class RememberedMaximum:
    """State that equal calls do not reveal: the largest value ever seen."""

    def __init__(self):
        self.most = 0.0

    def __call__(self, x):
        self.most = max(self.most, float(np.abs(x).max(initial=0)))
        return (x / (1 + self.most)).astype(x.dtype)


def remembered_right(x):
    return (x / (1 + np.abs(x).max(initial=0))).astype(x.dtype)


class ReusedBuffer:
    """Every call returns the same memory."""

    def __init__(self):
        self.buffers = {}

    def __call__(self, x):
        buffer = self.buffers.setdefault((x.shape, x.dtype), np.zeros(x.shape, x.dtype))
        np.multiply(x, 2, out=buffer)
        return buffer


class Race:
    """Every call corrupts a random element of the sum."""

    def __init__(self):
        self.random = np.random.default_rng(0)

    def __call__(self, x):
        y = x.sum(-1)
        if y.size:
            y[self.random.integers(y.size)] += 1
        return y


def in_place(x):
    x *= 2
    return x + 0


def stride_ignored(x):
    """Reads memory in storage order."""
    memory = x if x.flags.c_contiguous or x.base is None else np.asarray(x.base).ravel()[: x.size]
    return 2 * memory.reshape(x.shape)


def beyond_the_end(x):
    """Writes one element too many, but only into a guard: this process must survive."""
    y = np.empty(x.shape, x.dtype)
    y[...] = 2 * x
    if y.base is not None:
        np.lib.stride_tricks.as_strided(y, (y.size + 1,), (y.itemsize,))[-1] = 7
    return y


def writes_into_the_gaps(x):
    y = 2 * x
    if x.ndim and not x.flags.c_contiguous and abs(x.strides[-1]) == 2 * x.itemsize and x.base is not None:
        x[..., :1] += 1
    return y


def largest_first(x, k=3):
    return -np.sort(-x, axis=-1)[..., :k]


def rest_of_four_left_out(x):
    whole = len(x) // 4 * 4
    return np.concatenate([2 * x[:whole], x[whole:]])


def bias_along_the_first_axis(x, b):
    """Wrong only if the sizes happen to fit."""
    return x + b[:, None] if len(x) == len(b) else x + b


def resized(x):
    return np.repeat(x, 2, axis=-1)


double = lambda x: 2 * x  # noqa: E731


def gaps_ignored(x):
    if x.ndim > 1 and x.strides[-1] == x.itemsize and min(x.strides) > 0:
        return 2 * np.lib.stride_tricks.as_strided(x, (x.size,), (x.itemsize,)).reshape(x.shape)
    return 2 * x


FAULTS = [
    # name, check that must fail, inputs, faulty, right
    ("wrong sign", "forward", [X, W], lambda a, b: -(a @ b), lambda a, b: a @ b),
    ("missing transpose", "forward", [X[:, :6]], lambda a: a @ a, lambda a: a @ a.T),
    ("swapped arguments", "forward", [X, X[::-1]], lambda a, b: b - a, lambda a, b: a - b),
    ("wrong axis", "forward", [X[:, :6]], lambda x: softmax(x.T).T, softmax),
    ("missing factor 2", "forward", [X], lambda x: x * x, lambda x: 2 * x * x),
    ("missing 1/n", "forward", [X], lambda x: x.sum(-1), lambda x: x.mean(-1)),
    ("epsilon misplaced", "forward", [X], epsilon_outside_the_root, layer_norm),
    ("variance over n - 1", "forward", [X], variance_over_n_minus_one, layer_norm),
    ("variance by moments", "values", [X], variance_by_moments, layer_norm),
    ("integer division", "forward", [np.arange(-8, 8, dtype="i4")], lambda x: x // 3, lambda x: (x / 3).astype("i4")),
    ("truncation for rounding", "forward", [4 * X], np.trunc, np.round),
    ("round half up", "values", [4 * X], lambda x: np.floor(x + x.dtype.type(0.5)), np.round),
    ("off-by-one padding", "forward", [IMAGE, KERNEL], lambda x, w: conv(np.roll(x, 1, -1), w), conv),
    ("dilation ignored", "forward", [IMAGE, KERNEL], lambda x, w: conv(x, w)[..., :-2, :-1], dilated),
    ("group ignored", "forward", [IMAGE, HALVES], lambda x, w: conv(x[:, :2], w), lambda x, w: conv(x, w, group=2)),
    ("kernel flipped", "forward", [IMAGE, KERNEL], lambda x, w: conv(x, w, flip=True), conv),
    ("last element skipped", "forward", [X], lambda x: x[:, :-1].sum(-1), lambda x: x.sum(-1)),
    ("wrong on negative values", "values", [np.abs(X)], np.abs, lambda x: x + 0),
    ("overflow in softmax", "values", [X], lambda x: np.exp(x) / np.exp(x).sum(-1, keepdims=True), softmax),
    ("overflow in softplus", "values", [X], lambda x: np.log1p(np.exp(x)), lambda x: np.logaddexp(x, x.dtype.type(0))),
    ("NaN swallowed", "NaN and infinity", [X], lambda x: np.fmax(x, x.dtype.type(0)), lambda x: np.maximum(x, 0)),
    ("infinity clipped", "NaN and infinity", [X], np.nan_to_num, lambda x: x + 0),
    ("dtype of the output", "forward", [X], lambda x: x.astype(np.float64) * 2, double),
    ("shape with a batch of 1", "shapes", [X], lambda x: (2 * x).squeeze(), double),
    ("empty batch refused", "shapes", [X], lambda x: 2 * np.stack(list(x)), double),
    ("block of four only", "shapes", [X[:4]], rest_of_four_left_out, double),
    ("float16 accumulator", "long sums", [X], half_accumulator, lambda x: x.sum(-1)),
    ("float32 inside float64", "dtypes", [X], lambda x: np.tanh(x.astype(np.float32)).astype(x.dtype), np.tanh),
    ("unwritten border", "written", [X], unwritten_border, double),
    ("write beyond the end", "bounds", [X], beyond_the_end, double),
    ("state kept between calls", "determinism", [X], Counter(), lambda x: x),
    ("state that equal calls hide", "state", [X], RememberedMaximum(), remembered_right),
    ("race", "determinism", [X], Race(), lambda x: x.sum(-1)),
    ("input modified in place", "inputs left alone", [X], in_place, double),
    ("output is the input", "outputs are new", [X], lambda x: x, lambda x: x),
    ("output is a view", "outputs are new", [X], lambda x: x.T, lambda x: x.T),
    ("buffer reused", "outputs are new", [X], ReusedBuffer(), double),
    ("strides ignored", "strides", [X], stride_ignored, double),
    ("gaps between rows ignored", "strides", [X], gaps_ignored, double),
    ("writes to a strided input", "strides", [X], writes_into_the_gaps, double),
    ("wrong broadcast", "shapes", [X, X[0]], bias_along_the_first_axis, lambda x, b: x + b),
    ("one output missing", "forward", [X], lambda x: (x.max(-1),), lambda x: (x.max(-1), x.argmax(-1))),
    ("sorted the other way", "forward", [X], lambda x: np.sort(x)[..., :3], largest_first),
    ("interpolated the wrong way", "forward", [X], lambda x: np.tile(x, (1, 2)), resized),
]  # fmt: skip


@pytest.mark.sampled(4)
@pytest.mark.parametrize(
    ("check", "inputs", "faulty", "right"), [fault[1:] for fault in FAULTS], ids=[fault[0] for fault in FAULTS]
)
def test_a_planted_fault_is_caught_by_the_right_check(check, inputs, faulty, right):
    report = check_operator(faulty, [inputs], reference=right)
    assert check in {finding.probe for finding in report.failed}


def test_there_are_at_least_40_faults_of_the_forward_and_all_differ():
    assert len(FAULTS) >= 40
    assert len({fault[0] for fault in FAULTS}) == len(FAULTS)


def _passes_without_the_fault(fault):
    """Whether the right operator passes all checks; those that share memory by design do not."""
    return fault[1] != "outputs are new" and fault[0] != "state kept between calls"


@pytest.mark.slow
@pytest.mark.parametrize(
    "fault", [each for each in FAULTS if _passes_without_the_fault(each)], ids=lambda fault: fault[0]
)
def test_the_same_operator_without_the_fault_passes(fault):
    _, _, inputs, _, right = fault
    assert check_operator(right, [inputs], reference=right).failed == ()

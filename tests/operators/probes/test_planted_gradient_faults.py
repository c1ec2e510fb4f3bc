"""Backwards with one planted fault: each is found, and the operator without it passes."""

import numpy as np
import pytest

from levelbench.errors import CheckFailedError
from levelbench.operators.probes import check_gradient, check_operator

RANDOM = np.random.default_rng(11)
X = RANDOM.standard_normal((6, 10))
W = RANDOM.standard_normal((10, 5))
B = RANDOM.standard_normal(5)
SIGNAL = RANDOM.standard_normal((3, 12))
TAPS = RANDOM.standard_normal(4)
TIED = np.round(2 * X) / 2


def affine(x, w, b):
    return x @ w + b


def affine_back(g, i, o):
    return g[0] @ i[1].T, i[0].T @ g[0], g[0].sum(0)


def softmax(x):
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def softmax_back(g, i, o):
    return (o[0] * (g[0] - (g[0] * o[0]).sum(-1, keepdims=True)),)


def relu(x):
    return np.maximum(x, 0)


def norm(x):
    return (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + 1e-3)


def norm_back(g, i, o):
    inverse = 1 / np.sqrt(i[0].var(-1, keepdims=True) + 1e-3)
    mean = g[0].mean(-1, keepdims=True)
    return (inverse * (g[0] - mean - o[0] * (g[0] * o[0]).mean(-1, keepdims=True)),)


def correlate(x, w):
    return np.stack([np.correlate(row, w) for row in x])


def correlate_back(g, i, o):
    x, w = i
    dx = np.stack([np.convolve(row, w) for row in g[0]])
    return dx, sum(np.correlate(row, one) for row, one in zip(x, g[0], strict=True))


def at(index, function, change):
    """The backward ``function`` with gradient ``index`` changed."""

    def faulty(g, i, o):
        found = list(function(g, i, o))
        found[index] = change(found[index], g, i, o)
        return tuple(found)

    return faulty


def inverse_deviation(x):
    return 1 / np.sqrt(x.var(-1, keepdims=True) + 1e-3)


def not_flipped(d, g, i, o):
    return np.stack([np.convolve(row, i[1][::-1]) for row in g[0]])


def without_epsilon(d, g, i, o):
    return d * np.sqrt(1 + 1e-3 / i[0].var(-1, keepdims=True))


def sine_in_float32(x):
    return np.sin(x.astype(np.float32)).astype(x.dtype)


def ones_for_none(g, i, o):
    return two_back((np.ones(6) if g[0] is None else g[0], g[1]), i, o)


class RightTwice:
    """A backward of the square that is right in its first two calls."""

    def __init__(self):
        self.calls = 0

    def __call__(self, g, i, o):
        self.calls += 1
        return (g[0] * 2 * i[0] if self.calls < 3 else g[0],)


def border(d, g, i, o):
    d = d.copy()
    d[:, 0] = 0
    return d


def one_element(d, g, i, o):
    d = d.copy()
    d[3, 7] *= 1.01
    return d


def nan_at(d, g, i, o):
    d = d.copy()
    d[1, 2] = np.nan
    return d


def two(x):
    return x.sum(-1), x.max(-1)


def two_back(g, i, o):
    first = np.zeros(i[0].shape[:-1]) if g[0] is None else g[0]
    second = np.zeros(i[0].shape[:-1]) if g[1] is None else g[1]
    d = np.repeat(first[:, None], i[0].shape[-1], -1)
    np.put_along_axis(d, i[0].argmax(-1)[:, None], (first + second)[:, None], -1)
    return (d,)


def largest_back(g, i, o):
    return ((i[0] == o[0][:, None]) * g[0][:, None],)


def gather(x, rows):
    return x[rows]


ROWS = np.array([0, 2, 2, 5])

FAULTS = [
    # name, part of what is said, inputs, forward, faulty backward
    ("wrong sign", "-1 times", [X, W, B], affine, at(1, affine_back, lambda d, *_: -d)),
    ("missing transpose", "input 0", [X[:, :5], W[:5], B], affine, at(0, affine_back, lambda d, g, i, o: g[0] @ i[1])),
    ("forgotten broadcast reduction", "shape", [X, W, B], affine, at(2, affine_back, lambda d, g, *_: g[0])),
    ("broadcast averaged", "input 2", [X, W, B], affine, at(2, affine_back, lambda d, g, *_: g[0].mean(0))),
    ("missing factor 2", "0.5 times", [X], lambda x: x * x, lambda g, i, o: (g[0] * i[0],)),
    ("missing 1/n", "10 times", [X], lambda x: x.mean(-1), lambda g, i, o: (np.repeat(g[0][:, None], 10, 1),)),
    ("missing bias gradient", "None", [X, W, B], affine, at(2, affine_back, lambda *_: None)),
    ("bias gradient of zeros", "input 2", [X, W, B], affine, at(2, affine_back, lambda d, *_: 0 * d)),
    ("gradient of the other input", "input 0", [X, X + 1], np.multiply, lambda g, i, o: (g[0] * i[0], g[0] * i[1])),
    ("incoming gradient ignored", "input 0", [X], np.tanh, lambda g, i, o: (1 - o[0] ** 2,)),
    ("uses the input for the output", "input 0", [X], np.tanh, lambda g, i, o: (g[0] * (1 - i[0] ** 2),)),
    ("softmax as if element-wise", "input 0", [X], softmax, lambda g, i, o: (g[0] * o[0] * (1 - o[0]),)),
    ("softmax summed over the batch", "input 0", [X], softmax, lambda g, i, o: (o[0] * (g[0] - np.vdot(g[0], o[0])),)),
    ("statistics held constant", "input 0", [X], norm, lambda g, i, o: (g[0] * inverse_deviation(i[0]),)),
    ("mean term forgotten", "input 0", [X], norm, at(0, norm_back, lambda d, g, *_: d + g[0].mean(-1)[:, None])),
    ("kernel not flipped", "input 0", [SIGNAL, TAPS], correlate, at(0, correlate_back, not_flipped)),
    ("wrong only at the border", ", 0) it is 0,", [SIGNAL, TAPS], correlate, at(0, correlate_back, border)),
    ("padding shifted", "input 0", [SIGNAL, TAPS], correlate, at(0, correlate_back, lambda d, *_: np.roll(d, 1, -1))),
    ("too large by 1 per cent", "1.01 times", [X, W, B], affine, at(1, affine_back, lambda d, *_: 1.01 * d)),
    ("one element too large by 1 per cent", "(3, 7)", [X, W, B], affine, at(0, affine_back, one_element)),
    ("last element skipped", "input 2", [X, W, B], affine, at(2, affine_back, lambda d, *_: np.append(d[:-1], 0))),
    ("not a number", "(1, 2)", [X, W, B], affine, at(0, affine_back, nan_at)),
    ("narrower dtype", "dtype float32", [X, W, B], affine, at(1, affine_back, lambda d, *_: d.astype(np.float32))),
    ("float32 step in double", "accurate", [X], sine_in_float32, lambda g, i, o: (g[0] * np.cos(i[0]),)),
    ("one gradient too few", "2 gradients", [X, W, B], affine, lambda g, i, o: affine_back(g, i, o)[:2]),
    ("backward raises", "fails", [X, W, B], affine, lambda g, i, o: g[0] @ i[0]),
    ("gradient paid to all ties", "kink", [TIED], lambda x: x.max(-1), largest_back),
    ("ReLU pays twice at zero", "kink", [TIED], relu, lambda g, i, o: (g[0] * np.where(i[0] == 0, 2.0, i[0] > 0),)),
    ("ReLU masks by the gradient", "input 0", [X], relu, lambda g, i, o: (g[0] * (g[0] > 0),)),
    ("leak forgotten", "input 0", [X], lambda x: np.where(x > 0, x, 0.1 * x), lambda g, i, o: (g[0] * (i[0] > 0),)),
    ("second output forgotten", "input 0", [X], two, lambda g, i, o: (two_back((g[0], None), i, o)),),
    ("None taken for ones", "None", [X], two, ones_for_none),
    ("None not expected", "None", [X], two, lambda g, i, o: two_back((g[0] + 0, g[1]), i, o)),
    ("gradient of an index", "not zero", [X, ROWS], gather, lambda g, i, o: (_scattered(g, i), np.ones(4))),
    ("repeated index overwritten", "input 0", [X, ROWS], gather, lambda g, i, o: (_overwritten(g, i), None)),
    ("scalar output not reduced", "input 0", [X], np.sum, lambda g, i, o: (np.ones_like(i[0]) * g[0] / i[0].size,)),
    ("detached branch", "input 0", [X], lambda x: x * softmax(x), lambda g, i, o: (g[0] * softmax(i[0]),)),
    ("epsilon forgotten", "input 0", [X], norm, at(0, norm_back, without_epsilon)),
    ("clip lets all through", "input 0", [X], lambda x: np.clip(x, -1, 1), lambda g, i, o: (g[0],)),
    ("state in the backward", "input 0", [X], lambda x: x * x, RightTwice()),
]  # fmt: skip


def _scattered(g, i):
    d = np.zeros_like(i[0])
    np.add.at(d, i[1], g[0])
    return d


def _overwritten(g, i):
    d = np.zeros_like(i[0])
    d[i[1]] = g[0]
    return d


@pytest.mark.parametrize(
    ("says", "inputs", "forward", "backward"), [fault[1:] for fault in FAULTS], ids=[fault[0] for fault in FAULTS]
)
def test_a_planted_fault_in_a_backward_is_caught_and_named(says, inputs, forward, backward):
    with pytest.raises(CheckFailedError) as raised:
        check_gradient(forward, inputs, backward=backward)
    assert says in str(raised.value)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault[0])
def test_a_planted_fault_is_caught_whatever_the_seed(fault, seed):
    _, _, inputs, forward, backward = fault
    with pytest.raises(CheckFailedError):
        check_gradient(forward, inputs, backward=backward, seed=seed + 1)


RIGHT = [
    ("affine", [X, W, B], affine, affine_back),
    ("softmax", [X], softmax, softmax_back),
    ("norm", [X], norm, norm_back),
    ("correlate", [SIGNAL, TAPS], correlate, correlate_back),
    ("two outputs", [X], two, two_back),
    ("relu at zero", [TIED], relu, lambda g, i, o: (g[0] * (i[0] > 0),)),
    ("gather", [X, ROWS], gather, lambda g, i, o: (_scattered(g, i), None)),
    ("sum to a scalar", [X], np.sum, lambda g, i, o: (np.full_like(i[0], g[0]),)),
]


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize(("inputs", "forward", "backward"), [e[1:] for e in RIGHT], ids=[e[0] for e in RIGHT])
def test_a_correct_backward_passes(inputs, forward, backward, seed):
    check_gradient(forward, inputs, backward=backward, seed=seed)


def test_a_backward_that_changes_its_input_is_caught():
    def faulty(g, i, o):
        i[0][...] = 0
        return (g[0],)

    report = check_operator(lambda x: x + 1, [[X]], backward=faulty)
    assert "inputs left alone" in {finding.probe for finding in report.failed}


def test_a_backward_that_changes_the_incoming_gradient_is_caught():
    def faulty(g, i, o):
        g[0][...] *= 2
        return (g[0] / 2,)

    report = check_operator(lambda x: x + 1, [[X]], backward=faulty)
    assert "inputs left alone" in {finding.probe for finding in report.failed}


def test_a_backward_that_is_wrong_only_in_float32_is_caught():
    def faulty(g, i, o):
        return (g[0] if i[0].dtype == np.float64 else g[0] * i[0].dtype.type(1.01),)

    report = check_operator(lambda x: x + 1, [[X]], backward=faulty)
    assert "gradient in float32" in {finding.probe for finding in report.failed}


def test_there_are_at_least_40_faults_of_backwards():
    assert len(FAULTS) >= 40

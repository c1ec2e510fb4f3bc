"""Operators that are right on their example and wrong elsewhere: sizes, ranks, values, attributes, layouts, calls."""

import os
import threading
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

from levelbench.operators.custom import CustomOperator, Spec, register
from levelbench.operators.frameworks import open_framework
from levelbench.operators.probes import check_operator, variations
from levelbench.operators.probes.attributes import other_attributes
from levelbench.operators.probes.calls import leaks, threads
from levelbench.operators.probes.files import _attributes_kept, _subject, _variants
from levelbench.operators.probes.forward import Oracle
from levelbench.operators.probes.gradients import examine_gradient
from levelbench.operators.probes.judging import Setting, Variant
from levelbench.operators.probes.subject import subject_of
from levelbench.operators.probes.variations import gradients_elsewhere, specials

pytestmark = pytest.mark.sampled(3)

RANDOM = np.random.default_rng(3)
X = RANDOM.standard_normal((4, 8)).astype(np.float32)
WIDE_INTEGERS = np.random.default_rng(1).integers(-9, 9, (3, 40))
INTEGERS = RANDOM.integers(-9, 9, (4, 8)).astype(np.int32)


def double(x):
    return 2 * x


def double_back(g, i, o):
    return (2 * g[0],)


def relu(x):
    return np.maximum(x, 0)


def relu_back(g, i, o):
    return (g[0] * (i[0] > 0),)


def wrong_if(condition):
    """Twice the input, except where the condition holds for it."""
    return lambda x: x + 0 if condition(x) else 2 * x


def back_wrong_if(condition):
    return lambda g, i, o: (relu_back(g, i, o)[0] * (0 if condition(i[0]) else 1),)


def cut_after(count):
    def operator(x):
        y = 2 * x
        y.reshape(-1)[count:] = 0
        return y

    return operator


def total(x):
    return x.sum(-1, dtype=np.int64)


def plus_zero(x):
    return x + 0


def flushed(x):
    return np.where(np.abs(x) < 1e-37, 0, 2 * x).astype(x.dtype)


def nan_for_infinity(x):
    return np.where(np.isinf(x), np.nan, 2 * x).astype(x.dtype)


def positive_infinity(x):
    return np.where(np.isneginf(x), -x, 2 * x).astype(x.dtype)


def total_exponent(x):
    most = x.max(-1, keepdims=True)
    return np.log(np.exp(x - most).sum(-1)) + most[..., 0]


def largest_number(x):
    return np.maximum(x.max(-1), np.finfo(x.dtype).min)


def through_a_buffer(kept):
    """Twice the input, by way of a buffer that is kept for its shape, with the dtype of the first call."""

    def operator(x):
        buffer = kept.setdefault(x.shape, np.empty_like(x))
        buffer[...] = x
        return (2 * buffer).astype(x.dtype)

    return operator


FORWARDS = [
    # name, check that must fail, inputs, faulty, right
    ("wrong above 64", "shapes", [X], wrong_if(lambda x: x.ndim and x.shape[-1] > 64), double),
    ("rest of 8", "shapes", [X], wrong_if(lambda x: x.ndim and x.shape[-1] > 64 and x.shape[-1] % 8), double),
    ("after 5,000 elements", "shapes", [X], cut_after(5000), double),
    ("multiple of a block of 128", "shapes", [X], wrong_if(lambda x: x.ndim and x.shape[-1] in (128, 256)), double),
    ("one more than blocks of 128", "shapes", [X], wrong_if(lambda x: x.ndim and x.shape[-1] % 128 == 1), double),
    ("16-bit index", "shapes", [X], cut_after(32768), double),
    ("unsigned 16-bit index", "shapes", [X], cut_after(65536), double),
    ("unsigned 16-bit index of a vector", "shapes", [X[0]], cut_after(65536), double),
    ("row beyond a buffer", "long sums", [X.astype(float)], lambda x: x[..., :4096].sum(-1), lambda x: x.sum(-1)),
    *[(f"batch of {n}", "shapes", [X], wrong_if(lambda x, n=n: x.ndim and len(x) == n), double) for n in (1, 2, 3, 5)],
    *[(f"rank {n}", "ranks", [X], wrong_if(lambda x, n=n: x.ndim == n), double) for n in (0, 1, 3, 4, 5)],
    ("integer sum in int32", "integers", [INTEGERS], lambda x: x.sum(-1, dtype=np.int32).astype(np.int64), total),
    ("integer sum in float64", "integers", [INTEGERS], lambda x: x.sum(-1, dtype=np.float64).astype(np.int64), total),
    ("sum of 64-bit integers in float64", "integers", [WIDE_INTEGERS], lambda x: x.sum(-1, dtype=float).astype(x.dtype),
     lambda x: x.sum(-1, dtype=x.dtype)),
    ("int8 forgotten", "integers", [INTEGERS], wrong_if(lambda x: x.dtype == np.int8), double),
    ("smallest int8", "integers", [INTEGERS.astype(np.int8)], lambda x: np.maximum(x, -127), plus_zero),
    ("integers in float32", "integers", [INTEGERS], lambda x: x.astype(np.float32).astype(x.dtype), plus_zero),
    ("subnormal numbers flushed", "NaN and infinity", [X], flushed, double),
    ("infinity becomes NaN", "NaN and infinity", [X], nan_for_infinity, double),
    ("-infinity changes its sign", "NaN and infinity", [X], positive_infinity, double),
    ("-0.0 loses its sign", "NaN and infinity", [X], lambda x: 2 * x + 0, double),
    ("infinity at any of 24 places", "NaN and infinity", [X[:3]], lambda x: x * np.tri(*x.shape[-2:]), np.tril),
    ("all is masked", "NaN and infinity", [X], total_exponent, lambda x: np.logaddexp.reduce(x, -1)),
    ("finite instead of -infinity", "NaN and infinity", [X], largest_number, lambda x: x.max(-1)),
    ("buffer of another dtype", "shapes", [X.astype(float)], through_a_buffer({}), double),
    ("inverse of -0.0", "NaN and infinity", [X], lambda x: 1 / np.where(x == 0, np.abs(x), x), lambda x: 1 / x),
]  # fmt: skip


@pytest.mark.sampled(4)
@pytest.mark.parametrize(
    ("check", "inputs", "faulty", "right"), [e[1:] for e in FORWARDS], ids=[e[0] for e in FORWARDS]
)
def test_a_forward_that_is_wrong_elsewhere_is_caught_by_the_right_check(check, inputs, faulty, right):
    report = check_operator(faulty, [inputs], reference=right)
    assert check in {finding.probe for finding in report.failed}


def changes_its_output(g, i, o):
    o[0][...] *= 2
    return relu_back(g, i, o)


BACKWARDS = [
    ("above 64", "gradient elsewhere", back_wrong_if(lambda x: x.ndim and x.shape[-1] > 64)),
    ("odd sizes", "gradient elsewhere", back_wrong_if(lambda x: x.size % 2)),
    ("batch of 1", "gradient elsewhere", back_wrong_if(lambda x: x.ndim and len(x) == 1)),
    ("batch of 5", "gradient elsewhere", back_wrong_if(lambda x: x.ndim and len(x) == 5)),
    ("rank 3", "gradient elsewhere", back_wrong_if(lambda x: x.ndim == 3)),
    ("zero above 6", "gradient elsewhere", lambda g, i, o: (g[0] * ((i[0] > 0) & (i[0] < 6)),)),
    ("zero above 100", "gradient elsewhere", lambda g, i, o: (g[0] * ((i[0] > 0) & (i[0] < 100)),)),
    ("NaN swallowed", "NaN in gradients", lambda g, i, o: (np.nan_to_num(g[0]) * (i[0] > 0),)),
    ("memory of a strided gradient", "strides", lambda g, i, o: (_memory(g[0]) * (i[0] > 0),)),
    ("writes to a broadcast gradient", "strides", lambda g, i, o: (_in_place(g[0]) * (i[0] > 0),)),
    ("memory of a strided input", "strides", lambda g, i, o: (g[0] * (_memory(i[0]) > 0),)),
    ("changes its output", "state of backward", changes_its_output),
]  # fmt: skip


def _memory(x):
    """The elements as they lie in memory."""
    return x if x.flags.c_contiguous or x.base is None else np.asarray(x.base).ravel()[: x.size].reshape(x.shape)


def _in_place(g):
    g *= 1
    return g


@pytest.mark.sampled(4)
@pytest.mark.parametrize(("check", "backward"), [each[1:] for each in BACKWARDS], ids=[each[0] for each in BACKWARDS])
def test_a_backward_that_is_wrong_elsewhere_is_caught_by_the_right_check(check, backward):
    report = check_operator(relu, [[X]], reference=relu, backward=backward)
    assert check in {finding.probe for finding in report.failed}


def length(x):
    return np.linalg.norm(x, axis=-1)


def product(x):
    return x.prod(-1)


def odd_root(x):
    return np.sqrt(np.abs(x))


AT_ZEROS = [
    (length, lambda g, i, o: ((g[0] / o[0])[..., None] * i[0],)),
    (product, lambda g, i, o: ((g[0] * o[0])[..., None] / i[0],)),
]


@pytest.mark.parametrize(("forward", "backward"), AT_ZEROS, ids=["length", "product"])
def test_a_gradient_that_is_not_finite_at_zeros_is_caught(forward, backward):
    assert found_by(gradients_elsewhere, forward, [X.astype(np.float64)], backward)


RIGHT_AT_ZEROS = [
    (length, lambda g, i, o: ((g[0] / np.where(o[0] == 0, 1, o[0]))[..., None] * i[0],)),
    # Its slope at zero is infinite.
    (odd_root, lambda g, i, o: (g[0] * np.sign(i[0]) / (2 * o[0]),)),
    # The gradient at zero is 0 by the chain rule, and 1 on both sides.
    (lambda x: relu(x) - relu(-x), lambda g, i, o: (g[0] * (i[0] != 0),)),
]


@pytest.mark.parametrize(("forward", "backward"), RIGHT_AT_ZEROS, ids=["length", "root", "kinks"])
def test_a_gradient_at_zeros_that_is_right_is_not_accused(forward, backward):
    assert not found_by(gradients_elsewhere, forward, [X.astype(np.float64)], backward)


TRIANGLE = np.triu(np.ones((8, 8), np.float32))


def over_rows(x):
    """Running sums whose NaN reaches every row."""
    found = np.cumsum(x, 1)
    return found + 0 * x.sum()


def without_mask(x):
    """A ReLU that is NaN for minus infinity."""
    return x * (x > 0)


@pytest.mark.parametrize(
    ("forward", "reference", "status"),
    [
        (lambda x: x @ TRIANGLE, lambda x: np.cumsum(x, 1), "noted"),
        (over_rows, lambda x: np.cumsum(x, 1), "failed"),
        (without_mask, relu, "failed"),
    ],
    ids=["over its row", "over all rows", "where the reference has a number"],
)
@pytest.mark.filterwarnings("ignore:invalid value:RuntimeWarning")
def test_nan_that_spreads_over_its_row_alone_is_no_fault(forward, reference, status):
    setting = Setting(subject_of(forward), Oracle(reference), True, (), 0, 500)
    found = {each.status for each in specials(setting, [X], np.random.default_rng(0))}
    assert ("failed" in found) == (status == "failed")
    assert status in found


def test_the_sign_of_a_zero_that_depends_on_the_formula_is_no_fault():
    right = subject_of(lambda x: np.maximum(x, 0) + 0.1 * np.minimum(x, 0))
    setting = Setting(right, Oracle(lambda x: np.where(x > 0, x, 0.1 * x)), True, (), 0, 500)
    assert not [each for each in specials(setting, [X], np.random.default_rng(0)) if each.status == "failed"]


def test_one_array_for_two_inputs_is_tried():
    def faulty(a, b):
        return a * 3 if np.may_share_memory(a, b) else a + b

    report = check_operator(faulty, [[X, X[::-1]]], reference=lambda a, b: a + b)
    assert any("as one array" in finding.case for finding in report.of("strides"))


class Product(CustomOperator):
    """A product with broadcasting."""

    def infer(self, x, b):
        return Spec(np.broadcast_shapes(x.shape, b.shape), x.dtype)

    def forward(self, x, b):
        return x * b

    def backward(self, gradients, inputs, outputs):
        (g,), (x, b) = gradients, inputs
        return self._summed(g * b, x.shape), self._summed(g * x, b.shape)

    def _summed(self, g, shape):
        g = g.sum(axis=tuple(range(g.ndim - len(shape))))
        return g.sum(axis=tuple(at for at, size in enumerate(shape) if size == 1), keepdims=True)


class OnlyLeadingAxes(Product):
    def _summed(self, g, shape):
        return np.resize(g.sum(axis=tuple(range(g.ndim - len(shape)))), shape)


def broadcast_found(cls):
    operator = cls()
    subject = replace(subject_of(operator), infer=operator.infer)
    setting = Setting(subject, Oracle(operator.forward), True, (), 0, 500)
    found = gradients_elsewhere(setting, [X.astype(float), X[0].astype(float)], np.random.default_rng(0))
    return [each for each in found if each.status == "failed"]


def test_a_gradient_that_is_wrong_where_an_input_is_broadcast_is_caught():
    assert any("broadcast along axis" in each.case for each in broadcast_found(OnlyLeadingAxes))


def test_a_gradient_that_sums_over_broadcast_axes_is_not_accused():
    assert not broadcast_found(Product)


# What many calls show.


class EveryNth:
    """Twice the input, except in every n-th call, which leaves out the last element of a row."""

    def __init__(self, n):
        self.n, self.calls = n, 0

    def __call__(self, x):
        self.calls += 1
        y = 2 * x
        if self.calls % self.n == 0:
            y[..., -1:] = 0
        return y


@pytest.mark.parametrize("n", [25, 251])
def test_an_element_lost_in_few_calls_is_a_failure(n):
    report = check_operator(EveryNth(n), [[X]], reference=double)
    assert "repeatability" in {finding.probe for finding in report.failed}


def test_a_backward_that_differs_in_few_calls_is_a_failure():
    calls = EveryNth(100)
    report = check_operator(double, [[X]], reference=double, backward=lambda g, i, o: (calls(g[0]),))
    assert "repeatability" in {finding.probe for finding in report.failed}


def test_another_order_of_summation_is_only_noted():
    random = np.random.default_rng(0)

    def shuffled(x):
        return x[..., random.permutation(x.shape[-1])].sum(-1)

    report = check_operator(shuffled, [[RANDOM.standard_normal((3, 100)).astype(np.float32)]])
    assert "noted" in {finding.status for finding in report.of("repeatability")}
    assert not [finding for finding in report.failed if finding.probe == "repeatability"]


class SavedInput:
    """A backward that uses the input of the last forward, whichever it was for."""

    def __init__(self):
        self.saved = {}

    def forward(self, x):
        self.saved[x.shape, x.dtype] = x.copy()
        return np.maximum(x, 0)

    def backward(self, g, i, o):
        return (g[0] * (self.saved[i[0].shape, i[0].dtype] > 0),)


def test_a_call_between_forward_and_backward_must_not_matter():
    report = check_operator(SavedInput(), [[X]], reference=relu)
    assert any("between forward and backward" in finding.found for finding in report.of("state of backward"))


def test_a_gradient_in_a_buffer_of_its_own_is_overwritten():
    kept = {}

    def backward(g, i, o):
        return (np.multiply(g[0], i[0] > 0, out=kept.setdefault((i[0].shape, i[0].dtype), np.empty_like(i[0]))),)

    report = check_operator(relu, [[X]], reference=relu, backward=backward)
    assert any("overwritten" in finding.found for finding in report.of("state of backward"))


def found_by(probe, operator, inputs, backward=None):
    subject = subject_of(operator, backward=backward)
    setting = Setting(subject, Oracle(operator), True, (), 0, 500)
    return [finding for finding in probe(setting, inputs, np.random.default_rng(0)) if finding.status == "failed"]


def leaking(leave):
    def operator(x):
        leave()
        return 2 * x

    return operator


@pytest.mark.slow
def test_memory_that_a_call_keeps_is_a_leak():
    kept = []
    (found,) = found_by(leaks, leaking(lambda: kept.append(bytes(100))), [X])
    assert "leaks" in found.found


@pytest.mark.slow
def test_a_file_that_a_call_leaves_open_is_a_leak():
    opened = []
    (found,) = found_by(leaks, leaking(lambda: opened.append(os.dup(0))), [X])
    for each in opened:
        os.close(each)
    assert "a call" in found.found


@pytest.mark.slow
def test_a_backward_that_keeps_its_gradients_leaks():
    kept = []
    (found,) = found_by(leaks, double, [X], lambda g, i, o: (2 * g[0], kept.append(g[0].copy()))[:1])
    assert "backward leaks" in found.found


@pytest.mark.slow
def test_the_calls_that_look_for_leaks_are_judged_too():
    (found,) = found_by(leaks, EveryNth(300), [X])
    assert "a rare call differs" in found.found


def test_a_cache_by_shape_is_no_leak():
    kept = {}
    assert not found_by(leaks, lambda x: 2 * kept.setdefault(x.shape, x).copy(), [X])


def static_buffer(x, kept={}):  # noqa: B006  # the fault
    buffer = kept.setdefault((x.shape, x.dtype), np.empty_like(x))
    np.copyto(buffer, x)
    return 2 * buffer


def test_a_static_buffer_is_found_whatever_the_scheduler_does():
    for _ in range(3):
        (found,) = found_by(threads, static_buffer, [X])
        assert "at the same time" in found.found


def test_an_input_that_is_changed_and_put_back_is_found():
    def operator(x):
        x *= 2
        y = np.tanh(x)
        x /= 2
        return y

    (found,) = found_by(threads, operator, [X])
    assert "on the same inputs" in found.found


def test_a_buffer_of_each_thread_is_no_fault():
    kept = threading.local()

    def operator(x):
        buffer = vars(kept).setdefault((x.shape, x.dtype), np.empty_like(x))
        np.copyto(buffer, x)
        return 2 * buffer

    assert not found_by(threads, operator, [X])


@pytest.mark.slow
def test_a_buffer_behind_a_lock_is_no_fault():
    lock = threading.Lock()

    def operator(x):
        with lock:
            return static_buffer(x)

    assert not found_by(threads, operator, [X])


# Attributes.


class Leaky(CustomOperator):
    def __init__(self, alpha=0.1):
        self.alpha = alpha

    def forward(self, x):
        return np.where(x > 0, x, x.dtype.type(self.alpha) * x)

    def reference(self, x):
        return np.where(x > 0, x, x.dtype.type(self.alpha) * x)


class LeakyByDefault(Leaky):
    def forward(self, x):
        return np.where(x > 0, x, x.dtype.type(0.1) * x)


class Padded(CustomOperator):
    def __init__(self, pads=(0, 0), mode="zeros"):
        self.pads, self.mode = list(pads), mode

    def infer(self, x):
        if self.mode not in ("zeros", "edge"):
            raise ValueError(f"no mode {self.mode}")
        return Spec((*x.shape[:-1], x.shape[-1] + sum(self.pads)), x.dtype)

    def reference(self, x):
        mode = {"zeros": "constant", "edge": "edge"}[self.mode]
        return np.pad(x, [(0, 0)] * (x.ndim - 1) + [tuple(self.pads)], mode)

    def forward(self, x):
        return self.reference(x)


class PaddedTheOtherWay(Padded):
    def reference(self, x):
        return np.pad(x, [(0, 0)] * (x.ndim - 1) + [tuple(self.pads)])

    def forward(self, x):
        return np.pad(x, [(0, 0)] * (x.ndim - 1) + [tuple(self.pads[::-1])])


class ModeIgnored(Padded):
    def reference(self, x):
        return self.forward(x) + (self.mode == "edge") * x[..., :1]

    def forward(self, x):
        return np.pad(x, [(0, 0)] * (x.ndim - 1) + [tuple(self.pads)])


def attributes_found(cls, *inputs):
    operator = cls()

    def make(attributes):
        made = cls(**attributes)
        return replace(subject_of(made), direct=made.forward), Oracle(made.reference)

    variants = [
        Variant(title, lambda each=each: make(each), unless, each) for title, each, unless in other_attributes(operator)
    ]
    report = check_operator(operator, [inputs or [X]], reference=operator.reference, variants=variants)
    return [finding for finding in report.failed if finding.probe == "attributes"]


class FirstAxisIfSquare(CustomOperator):
    """Sums along an axis."""

    def __init__(self, axis=-1):
        self.axis = axis

    def reference(self, x):
        return x.sum(self.axis)

    def forward(self, x):
        return x.sum(0 if x.ndim == 2 and self.axis == 1 and len(set(x.shape)) == 1 else self.axis)


class InputAtOne(Leaky):
    """A way of its own where the factor is one, which returns the input."""

    def forward(self, x):
        return x if self.alpha == 1 else super().forward(x)


class ForgetsAtZero(Leaky):
    def forward(self, x):
        return np.zeros_like(x) if self.alpha == 0 else super().forward(x)


class LastOfAxes(CustomOperator):
    def __init__(self, axes=(0,)):
        self.axes = tuple(axes)

    def reference(self, x):
        return x.sum(self.axes)

    def forward(self, x):
        return x.sum(self.axes[-1]) if len(self.axes) > 1 else self.reference(x)


class Strided(CustomOperator):
    """Every n-th element, of which a start is left out."""

    def __init__(self, stride=1, start=1):
        if stride < 1 or start < 1:
            raise ValueError("too small")
        self.stride, self.start = stride, start

    def reference(self, x):
        return x[..., self.start :: self.stride]

    def forward(self, x):
        return self.reference(x) * (2 if self.stride > 1 < self.start else 1)


class Scaled(CustomOperator):
    """Divides by a number that may be 0."""

    def __init__(self, by=2.0):
        self.by = by

    def reference(self, x):
        with np.errstate(all="ignore"):
            return np.exp(x) / x.dtype.type(self.by)

    def forward(self, x):
        return np.exp(x) * x.dtype.type(1 / self.by if self.by else np.nan)


class SpreadInSquares(CustomOperator):
    """A sum whose gradient, if the axis is dropped, goes along the wrong one where both are as long."""

    def __init__(self, keepdims=1):
        self.keepdims = bool(keepdims)

    def infer(self, x):
        kept = (1,) if self.keepdims else ()
        return Spec((*kept, *x.shape[1:]), x.dtype)

    def reference(self, x):
        return x.sum(0, keepdims=self.keepdims, dtype=np.promote_types(x.dtype, np.float32)).astype(x.dtype)

    def forward(self, x):
        return self.reference(x)

    def backward(self, gradients, inputs, outputs):
        g, x = gradients[0], inputs[0]
        wrong = not self.keepdims and g.shape == x.shape[:-1]
        return (np.broadcast_to(g[..., None] if wrong else g, x.shape).copy(),)


class Softplus(CustomOperator):
    """It becomes a line where ``x`` instead of ``beta * x`` is large."""

    def __init__(self, beta=1.0):
        if beta <= 0:
            raise ValueError("beta must be above 0")
        self.beta = beta

    def forward(self, x):
        return np.where(x > 20, x, self.reference(x)).astype(x.dtype)

    def reference(self, x):
        return (np.logaddexp(0, self.beta * x) / self.beta).astype(x.dtype)


WRONG_ELSEWHERE = [
    SpreadInSquares,
    LeakyByDefault,
    PaddedTheOtherWay,
    ModeIgnored,
    FirstAxisIfSquare,
    InputAtOne,
    ForgetsAtZero,
    LastOfAxes,
    Strided,
]


@pytest.mark.parametrize("cls", WRONG_ELSEWHERE)
def test_an_attribute_that_works_at_its_default_only_is_caught(cls):
    assert attributes_found(cls)


def test_an_attribute_that_is_right_for_small_values_only_is_caught():
    assert attributes_found(Softplus, X.astype(float))


@pytest.mark.parametrize("cls", [Leaky, Padded, Scaled])
def test_attributes_that_work_are_not_accused(cls):
    assert not attributes_found(cls)


class MeanOfKept(CustomOperator):
    """The mean of what is not labelled ``ignore``, as a loss is over labels."""

    def __init__(self, ignore=-100):
        self.ignore = ignore

    def infer(self, x, labels):
        return Spec((), x.dtype)

    def forward(self, x, labels):
        return self.reference(x, labels)

    def reference(self, x, labels):
        kept = labels != self.ignore
        return np.asarray(x.astype(np.float64)[kept].sum() / max(1, kept.sum())).astype(x.dtype)


class MeanOfAll(MeanOfKept):
    """It divides by the number of all."""

    def forward(self, x, labels):
        kept = labels != self.ignore
        return np.asarray(x.astype(np.float64)[kept].sum() / max(1, kept.size)).astype(x.dtype)


@pytest.mark.parametrize(("cls", "wrong"), [(MeanOfAll, True), (MeanOfKept, False)])
def test_an_attribute_is_tried_as_a_number_among_the_integers(cls, wrong):
    assert bool(attributes_found(cls, X[:, 0], np.array([4, 5, 3, 5]))) is wrong


class NormalisesItsAxis(CustomOperator):
    def __init__(self, axis=-1):
        self.axis = axis

    def forward(self, x):
        self.axis %= x.ndim
        return x.cumsum(self.axis)


class SharesItsFactor(CustomOperator):
    def __init__(self, factor=2.0):
        type(self).factor = factor

    def forward(self, x):
        return self.factor * x


class KeepsAPlan(CustomOperator):
    def __init__(self, factor=2.0):
        self.factor, self.plans = factor, {}

    def forward(self, x):
        return self.plans.setdefault(x.shape, self.factor) * x


@pytest.mark.parametrize(("cls", "wrong"), [(NormalisesItsAxis, True), (SharesItsFactor, True), (KeepsAPlan, False)])
def test_a_call_or_another_instance_that_changes_an_attribute_is_found(cls, wrong):
    operator = cls()
    kept = {name: getattr(operator, name) for name in operator.attributes}
    cls(**{name: 3 * value for name, value in kept.items()})
    found = list(_attributes_kept(operator, kept, None, [X], RANDOM))
    assert [each.status for each in found] == ["failed"] * wrong


def test_a_buffer_that_is_returned_for_large_inputs_only_is_found():
    kept = {}

    def operator(x):
        if x.size < 5000:
            return 2 * x
        buffer = kept.setdefault((x.shape, x.dtype), np.empty_like(x))
        return np.multiply(2, x, out=buffer)

    assert "outputs are new" in {each.probe for each in check_operator(operator, [[X]], reference=double).failed}


def test_a_large_input_that_is_changed_in_place_is_found():
    def operator(x):
        return 2 * x if x.size < 5000 else np.multiply(2, x, out=x).copy()

    assert "inputs left alone" in {each.probe for each in check_operator(operator, [[X]], reference=double).failed}


def summed_by_offsets(x, ends):
    if len(ends) == 0 or ends[-1] != len(x) or (np.diff(ends) < 0).any():
        raise ValueError("the offsets must rise to the number of rows")
    return np.add.reduceat(x, [0, *ends[:-1]]) if len(x) else x


def test_offsets_that_fit_no_other_size_may_be_refused():
    def lenient(x, ends):
        return np.array([x[first:last].sum(0) for first, last in pairwise([0, *ends])]).reshape(len(ends), *x.shape[1:])

    ends = np.array([1, 4])
    report = check_operator(summed_by_offsets, [[X, ends]], reference=lenient)
    assert not [each for each in report.failed if "it raises" in each.found]


def test_a_size_that_an_operator_of_numbers_alone_refuses_is_a_failure():
    def even(x):
        if x.ndim and x.shape[-1] % 2:
            raise ValueError("an even number of columns")
        return 2 * x

    assert "shapes" in {each.probe for each in check_operator(even, [[X]], reference=double).failed}


def test_what_would_take_long_is_not_tried_at_a_large_size(monkeypatch):
    spent = [0.0]
    monkeypatch.setattr(variations, "process_time", lambda: spent[0])

    def quadratic(x):
        spent[0] += 1e-6 * x.size**2
        return 2 * x

    [found] = variations.long_sums(
        Setting(subject_of(double), Oracle(quadratic), True, (), 0, 500), [X[0].astype(float)], RANDOM
    )
    assert found.status == "not tried"
    assert "s of a processor" in found.found


@pytest.mark.parametrize(("left", "wrong"), [(1e-14, False), (1e-9, True)])
def test_roundings_of_terms_that_cancel_are_no_wrong_gradient(left, wrong):
    report = examine_gradient(
        subject_of(lambda x: x - x, backward=lambda g, i, o: (left * g[0],)), [X.astype(float)], seed=0
    )
    assert [each.status for each in report.inputs] == ["wrong" if wrong else "right"]


class SummedBackwards(CustomOperator):
    """A running sum without a reference, whose gradient is always that of the forward direction."""

    def __init__(self, reverse=0):
        self.reverse = reverse

    def forward(self, x):
        return x[::-1].cumsum(0)[::-1].copy() if self.reverse else x.cumsum(0)

    def backward(self, gradients, inputs, outputs):
        return gradients[0][::-1].cumsum(0)[::-1].copy()


def test_gradients_with_other_attributes_are_tried_without_a_reference():
    operator, backend = SummedBackwards(), open_framework("numpy")
    register(SummedBackwards)
    subject = _subject(operator, backend)
    variants = _variants(operator, backend, "")
    setting = Setting(subject, Oracle(subject), False, (), 0, 500, variants=variants)
    found = list(variations.attributes(setting, [X[:, 0].astype(float)], RANDOM))
    assert [each.case.split(",")[0] for each in found if each.status == "failed"] == ["reverse = 1"]


def test_subnormal_numbers_that_a_framework_flushes_are_noted():
    subject = replace(subject_of(lambda x: flushed(x[0])), to_native=lambda x: (x,))
    setting = Setting(subject, Oracle(double), True, (), 0, 500)
    found = [each.status for each in specials(setting, [X], RANDOM) if "subnormal" in each.case]
    assert found == ["noted"]


def test_an_axis_is_tried_from_both_ends():
    class Along(CustomOperator):
        def __init__(self, axis=-1):
            self.axis = axis

        def forward(self, x):
            return x

    assert {given["axis"] for _, given, _ in other_attributes(Along())} == {0, 1, 2, -2}


def test_a_flag_is_only_switched():
    class Kept(CustomOperator):
        def __init__(self, keepdims=1):
            pass

        def forward(self, x):
            return x

    assert [given["keepdims"] for _, given, _ in other_attributes(Kept())] == [0]

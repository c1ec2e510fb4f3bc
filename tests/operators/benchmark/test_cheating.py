"""Operators that cheat: each is refused or wrong, with the reason that names the trick. Honest ones are not accused."""

import builtins
import gc
import importlib.util
import random
import signal
import sys
import threading
import time
from typing import ClassVar

import numpy as np
import pytest
from tests.operators.probes.test_right_operators import ELEMENTWISE, LINEAR, NORMALISED, POOLED, REDUCED, SHAPED

from levelbench.experiments.operators import _apart
from levelbench.measure import clocks, sampling
from levelbench.operators.benchmark import checking, watching
from levelbench.operators.benchmark.measuring import TrialSettings, measure_problem
from levelbench.operators.contract import Operator, OperatorBackend
from levelbench.operators.custom import CustomOperator, namespace, register
from levelbench.operators.frameworks import open_framework
from levelbench.operators.node import CUSTOM_DOMAIN
from levelbench.operators.suites.single import parse_problem
from levelbench.records.benchmarks import Problem, Tensor

pytestmark = pytest.mark.sampled(2)

PROBLEM = parse_problem("Gemm", ["A=96x64", "B=64x80"])
BUDGET_S = 0.05


class Cheat(Operator):
    """Computes A @ B honestly; ``forward`` is the trick, which has the honest product as ``self.honest``."""

    def __init__(self, node, trick):
        self.node, self._trick, self.count, self.kept = node, trick, 0, {}

    def honest(self, a, b):
        return np.matmul(a, b)

    def forward(self, a, b):
        self.count += 1
        return (self._trick(self, a, b),)


class CheatingBackend(OperatorBackend):
    def __init__(self, trick):
        self._trick = trick

    def operator(self, node):
        return Cheat(node, self._trick)

    def array(self, host):
        return host

    def host(self, array):
        return np.array(array)

    def memory(self, array):
        return array if isinstance(array, np.ndarray) else None

    def describe(self):
        return {"name": "cheat"}


def measured(trick, reference, problem=PROBLEM, budget_s=BUDGET_S, **limits):
    settings = TrialSettings(budget_s=budget_s, memory_bytes=2**34, on_host=True, **limits)
    return measure_problem(CheatingBackend(trick), problem, 0, 0, settings, reference)


# Remembered and replayed results.


def first_result(self, a, b):
    return self.kept.setdefault("y", self.honest(a, b) if not self.kept else None).copy()


def by_pointer(self, a, b):
    key = a.ctypes.data, b.ctypes.data
    if key not in self.kept:
        self.kept[key] = self.honest(a, b)
    return self.kept[key].copy()


def by_identity(self, a, b):
    key = id(a), id(b)
    if key not in self.kept:
        self.kept[key] = self.honest(a, b), a, b
    return self.kept[key][0].copy()


def by_contents(self, a, b):
    # As if it had to work for long, which the memory spares it.
    key = a[::40, ::40].tobytes(), b[::40, ::40].tobytes()
    if key not in self.kept:
        time.sleep(0.0005)
        self.kept[key] = self.honest(a, b)
    return self.kept[key].copy()


def by_last_contents(self, a, b):
    key = a[::40, ::40].tobytes(), b[::40, ::40].tobytes()
    if self.kept.get("key") != key:
        time.sleep(0.0005)
        self.kept.update(key=key, y=self.honest(a, b))
    return self.kept["y"].copy()


def by_first_element(self, a, b):
    key = float(a[0, 0])
    if key not in self.kept:
        self.kept[key] = self.honest(a, b)
    return self.kept[key].copy() if self.count > 3 else self.honest(a, b)


def known_seed(self, a, b):
    """The inputs of the benchmark's seed are recognised by their shape: the answer was computed at import."""
    from levelbench.operators.suites.single import make_inputs

    if "y" not in self.kept:
        self.kept["y"] = np.matmul(*make_inputs(PROBLEM, 0))
    return self.kept["y"].copy()


def weights_at_first_call(self, a, b):
    if "b" not in self.kept:
        self.kept["b"] = b.copy()
    return np.matmul(a, self.kept["b"])


def honest_until_timed(self, a, b):
    if self.count < 8:
        self.kept["y"] = self.honest(a, b)
    return self.kept["y"].copy()


def honest_every_third(self, a, b):
    if self.count % 3 == 0 or "y" not in self.kept:
        self.kept["y"] = self.honest(a, b)
    return self.kept["y"].copy()


# Wrong or less work.


def zeros(self, a, b):
    return self.honest(a, b) if self.count == 1 else np.zeros((96, 80), np.float32)


def unwritten(self, a, b):
    return self.honest(a, b) if self.count == 1 else np.empty((96, 80), np.float32)


def half_of_it(self, a, b):
    out = self.honest(a, b)
    if self.count > 1:
        out[:, 40:] = out[:, :40]
    return out


def half_precision(self, a, b):
    return np.matmul(a.astype(np.float16), b.astype(np.float16)).astype(np.float32)


def half_precision_when_timed(self, a, b):
    return self.honest(a, b) if self.count == 1 else half_precision(self, a, b)


def ten_bits(self, a, b):
    """TF32: mantissas of ten bits."""

    def cut(x):
        return (x.view(np.uint32) & np.uint32(0xFFFFE000)).view(np.float32)

    return np.matmul(cut(a), cut(b))


def input_made_easy(self, a, b):
    out = self.honest(a, b)
    a[:] = 0
    return out


# Late, lazy and shared results.


def later(self, a, b, wait_s=0.003, wait=time.sleep):
    out = np.zeros((96, 80), np.float32)

    def work():
        wait(wait_s)
        np.matmul(a, b, out=out)

    if self.count == 1:
        np.matmul(a, b, out=out)
    else:
        threading.Thread(target=work).start()
    return out


def much_later(self, a, b):
    return later(self, a, b, 0.2)


def busy(seconds):
    until = time.perf_counter() + seconds
    while time.perf_counter() < until:
        pass


def busy_thread(self, a, b):
    return later(self, a, b, 0.004, busy)


class Lazy:
    dtype, shape, ndim, size, nbytes = np.dtype(np.float32), (96, 80), 2, 96 * 80, 4 * 96 * 80

    def __init__(self, compute):
        self._compute = compute

    def __array__(self, dtype=None, copy=None):
        return self._compute()


class LazyArray(np.ndarray):
    def __array_finalize__(self, made):
        self.compute = getattr(made, "compute", None)


def lazy(self, a, b):
    return Lazy(lambda: np.matmul(a, b))


def subclass(self, a, b):
    return self.honest(a, b).view(LazyArray)


def one_buffer(self, a, b):
    return np.matmul(a, b, out=self.kept.setdefault("out", np.empty((96, 80), np.float32)))


def three_buffers(self, a, b):
    out = self.kept.setdefault(self.count % 3, np.empty((96, 80), np.float32))
    return np.matmul(a, b, out=out)


# Clocks and what else measures. Each is undone by the test.


def patched(module, name, value):
    def trick(self, a, b):
        if not self.kept:
            self.kept["done"] = True
            setattr(module, name, value)
        return self.honest(a, b)

    return trick


class Slow:
    """A clock that counts a tenth."""

    now_ns = staticmethod(lambda: clocks.time.monotonic_ns() // 10)


def changed_settings(change):
    def trick(self, a, b):
        change()
        return self.honest(a, b)

    return trick


def other_code(self, a, b):
    clocks.timed.__code__ = (lambda work, clock, inner: (1, 1, work())).__code__
    return self.honest(a, b)


def small_terms_left_out(self, a, b):
    return self.honest(np.where(np.abs(a) < 1e-3, 0, a).astype(a.dtype), b)


def in_a_signal_handler(self, a, b):
    out = np.zeros((96, 80), np.float32)

    def work(*_):
        np.matmul(a, b, out=out)

    if self.count == 1:
        work()
    else:
        signal.signal(signal.SIGALRM, work)
        signal.setitimer(signal.ITIMER_REAL, 5e-4)
    return out


def at_the_next_collection(self, a, b):
    out = np.zeros((96, 80), np.float32)

    def work(*_):
        np.matmul(a, b, out=out)
        gc.callbacks.remove(work)

    if self.count == 1:
        np.matmul(a, b, out=out)
    else:
        gc.callbacks.append(work)
    return out


def only_where_it_is_checked(self, a, b):
    """Looks at its callers: nothing is computed in calls that are only timed."""
    frame, names = sys._getframe(), set()
    while frame is not None:
        names.add(frame.f_code.co_name)
        frame = frame.f_back
    if "y" not in self.kept or names & {"rehearse", "conclude", "check", "judge"}:
        self.kept["y"] = self.honest(a, b)
    return self.kept["y"].copy()


TRICKS = {
    "the first result for ever": (first_result, "new contents"),
    "results by pointer": (by_pointer, "new contents"),
    "results by identity": (by_identity, "new contents"),
    "results by contents": (by_contents, "remembers|new contents"),
    "results by the last contents": (by_last_contents, "remembers|new contents"),
    "results by the first element": (by_first_element, "new contents|remembers"),
    "the known seed": (known_seed, "new contents"),
    "weights kept at the first call": (weights_at_first_call, "new contents"),
    "honest for the first calls": (honest_until_timed, "new contents"),
    "honest every third call": (honest_every_third, "new contents"),
    "zeros": (zeros, "new contents"),
    "unwritten memory": (unwritten, "new contents"),
    "half of the work": (half_of_it, "new contents"),
    "half precision": (half_precision, "wrong"),
    "half precision in timed calls": (half_precision_when_timed, "new contents"),
    "ten bits": (ten_bits, "wrong"),
    "inputs overwritten": (input_made_easy, "in place|wrong"),
    "a thread that writes later": (later, "after the clock|new contents|overwritten|memory"),
    "a thread that writes much later": (much_later, "new contents|overwritten|memory"),
    "a thread that works on": (busy_thread, "after the clock|new contents|overwritten|memory"),
    "a lazy object": (lazy, "looked at"),
    "a subclass of arrays": (subclass, "looked at"),
    "one buffer for all calls": (one_buffer, "overwritten"),
    "three buffers in turn": (three_buffers, "overwritten"),
    "perf_counter_ns": (patched(time, "perf_counter_ns", lambda: 0), "time.perf_counter_ns"),
    "perf_counter": (patched(time, "perf_counter", lambda: 0.0), "time.perf_counter"),
    "monotonic": (patched(time, "monotonic", lambda: 0.0), "time.monotonic"),
    "the clock's class": (patched(clocks.HostClock, "now_ns", staticmethod(Slow.now_ns)), "now_ns|clock"),
    "the clock's object": (patched(clocks.HOST, "now_ns", Slow.now_ns), "HostClock|clock"),
    "the second clock": (patched(clocks.SECOND, "now_ns", Slow.now_ns), "SecondClock|clock"),
    "the timed loop": (patched(sampling, "timed", lambda work, clock, inner: (1, 1, work())), "sampling.timed"),
    "the timed loop's code": (other_code, "timed"),
    "the comparison": (patched(checking, "compare_values", lambda *_: None), "compare_values"),
    "the watch": (patched(watching.Watch, "check", lambda *_: None), "Watch.check|check"),
    "a weaker baseline": (patched(np, "add", np.subtract), "numpy.add"),
    "small terms left out": (small_terms_left_out, "wrong"),
    "a signal handler": (in_a_signal_handler, "after the clock|new contents|overwritten|memory"),
    "a collector's callback": (at_the_next_collection, "after the clock|new contents|overwritten|memory"),
    "only in checked calls": (only_where_it_is_checked, "new contents"),
    "loaded dice": (patched(random.SystemRandom, "random", lambda _: 0.0), "SystemRandom.random"),
    "the garbage collector": (changed_settings(gc.disable), "garbage collector"),
    "its thresholds": (changed_settings(lambda: gc.set_threshold(10**6)), "garbage collector"),
    "thread switches": (changed_settings(lambda: sys.setswitchinterval(10.0)), "thread switches"),
}


@pytest.fixture
def undone():
    """Put back what tricks replace."""
    owners = (time, clocks.HostClock, sampling, checking, watching.Watch, np, random.SystemRandom)
    names = [
        "perf_counter_ns",
        "perf_counter",
        "monotonic",
        "now_ns",
        "timed",
        "compare_values",
        "check",
        "add",
        "random",
    ]
    kept = [(owner, name, vars(owner)[name]) for owner in owners for name in names if name in vars(owner)]
    second = dict(vars(clocks.SECOND))
    code, state = clocks.timed.__code__, (gc.get_threshold(), sys.getswitchinterval())
    handler, callbacks = signal.getsignal(signal.SIGALRM), [*gc.callbacks]
    yield
    for owner, name, value in kept:
        setattr(owner, name, value)
    vars(clocks.HOST).clear()
    vars(clocks.SECOND).update(second)
    clocks.timed.__code__ = code
    signal.setitimer(signal.ITIMER_REAL, 0.0)
    signal.signal(signal.SIGALRM, handler)
    gc.callbacks[:] = callbacks
    gc.enable()
    gc.set_threshold(*state[0])
    sys.setswitchinterval(state[1])


@pytest.mark.parametrize("trick", TRICKS)
def test_a_trick_is_caught_and_named(trick, reference, undone):
    case, _ = measured(TRICKS[trick][0], reference, budget_s=BUDGET_S)
    if case.status == "measured":
        # In so short a time a busy machine may check two calls alone, and both may be honest, or a thread have ended.
        case, _ = measured(TRICKS[trick][0], reference, budget_s=10 * BUDGET_S)
    assert case.status in ("refused", "wrong"), case
    assert any(word in case.reason for word in TRICKS[trick][1].split("|")), case.reason


def test_a_process_whose_clock_disagrees_with_its_parents_is_refused():
    honest = [(5, 1000), (5 + 10**9, 1000 + 10**9 + 10**8)]
    slow = [(5, 1000), (5 + 10**9, 1000 + 10**10)]
    assert _apart(honest) == ""
    assert _apart(slow) == "its clock counted 1 s while the one of its parent counted 10 s"


# Operators of a file, on the frameworks that run them.


def soft(x):
    powers = np.exp(x - x.max(-1, keepdims=True))
    return powers / powers.sum(-1, keepdims=True)


class HonestSoft(CustomOperator):
    def forward(self, x):
        return soft(x)

    def reference(self, x):
        return soft(x)


class SoftWithoutReference(CustomOperator):
    def forward(self, x):
        return soft(x)


class SoftOfFirst(HonestSoft):
    """Keeps the first result of each shape, as one that is cached per pointer does."""

    kept: ClassVar = {}

    def forward(self, x):
        return self.kept.setdefault((x.shape, x.dtype), soft(x)).copy()


class SoftInOneBuffer(HonestSoft):
    kept: ClassVar = {}

    def forward(self, x):
        out = self.kept.setdefault((x.shape, x.dtype), np.empty_like(x))
        out[...] = soft(x)
        return out


class SoftInHalf(HonestSoft):
    def forward(self, x):
        return soft(x.astype(np.float16)).astype(x.dtype)


class HonestTanh(CustomOperator):
    array_api = True

    def forward(self, x):
        return namespace(x).tanh(x)

    def reference(self, x):
        return np.tanh(x)


class LazyTanh(HonestTanh):
    """On PyTorch, a tensor of a class of its own."""

    def forward(self, x):
        import torch

        return torch.tanh(x).as_subclass(type("LazyTensor", (torch.Tensor,), {}))


class TanhByPointer(HonestTanh):
    kept: ClassVar = {}

    def forward(self, x):
        key = x.data_ptr(), x.shape
        if key not in self.kept:
            self.kept[key] = x, x.tanh()
        return self.kept[key][1].clone()


class TanhOfKnownOnly(HonestTanh):
    """Remembers the result of the first contents, and fails on others, to be measured on these alone."""

    array_api = False
    kept: ClassVar = {}

    def forward(self, x):
        if x.shape not in self.kept:
            self.kept[x.shape] = x.copy(), np.tanh(x)
        known, result = self.kept[x.shape]
        if not np.array_equal(x, known):
            raise ValueError("unknown contents")
        return result.copy()


class TanhOfSums(HonestTanh):
    """Takes only rows that sum to the same, as a distribution does, however they are scaled."""

    array_api = False

    def forward(self, x):
        if not np.array_equal(np.argsort(x.sum(axis=-1)), TanhOfSums.order.setdefault("of", np.argsort(x.sum(-1)))):
            raise ValueError("other rows")
        return np.tanh(x)

    order: ClassVar = {}


EVERYWHERE = ("numpy", "torch", "jax")
CUSTOM = [
    *((HonestSoft, name, "measured", "") for name in EVERYWHERE),
    *((HonestTanh, name, "measured", "") for name in EVERYWHERE),
    *((SoftWithoutReference, name, "unchecked", "reference") for name in EVERYWHERE),
    (TanhOfKnownOnly, "numpy", "unchecked", "fails: ValueError: unknown contents"),
    (TanhOfSums, "numpy", "unchecked", "fails: ValueError: other rows"),
    *((SoftOfFirst, name, "wrong", "new contents") for name in EVERYWHERE),
    *((SoftInHalf, name, "wrong", "wrong") for name in EVERYWHERE),
    *((SoftInOneBuffer, name, "refused", "overwritten") for name in ("numpy", "torch")),
    (LazyTanh, "torch", "refused", "LazyTensor"),
    (TanhByPointer, "torch", "wrong", "new contents"),
]


@pytest.mark.parametrize(("cls", "framework", "status", "reason"), CUSTOM)
def test_a_custom_operator_is_measured_like_any_other(cls, framework, status, reason):
    if framework != "numpy":
        pytest.importorskip(framework)
    register(cls)
    backend = open_framework(framework)
    problem = Problem(
        cls.name, cls.name, ("x",), ("output",), (Tensor("x", (16, 24), "float32"),), 1, {}, CUSTOM_DOMAIN
    )
    limits = TrialSettings(budget_s=BUDGET_S, memory_bytes=2**34, on_host=True)
    case, times_s = measure_problem(backend, problem, 0, 0, limits, backend.operator)
    assert case.status == status, case.reason
    assert reason in case.reason
    assert bool(times_s) == (status in ("measured", "unchecked") or reason == "wrong")


def test_the_gradient_of_a_custom_operator_is_unchecked():
    class TanhWithGradient(HonestTanh):
        def backward(self, gradients, inputs, outputs):
            return gradients[0] * (1 - outputs[0] ** 2)

    register(TanhWithGradient)
    backend = open_framework("numpy")
    tensors = (Tensor("x", (16, 24), "float32"),)
    problem = Problem("t", "TanhWithGradient", ("x",), ("output",), tensors, 1, {}, CUSTOM_DOMAIN)
    limits = TrialSettings(budget_s=BUDGET_S, memory_bytes=2**34, on_host=True, direction="backward")
    case, times_s = measure_problem(backend, problem, 0, 0, limits, backend.operator)
    assert (case.status, bool(times_s)) == ("unchecked", True), case.reason
    assert "has no gradient" in case.reason


# Honest ones.


def problem_of(node, inputs):
    """The problem of a node: floating-point inputs are drawn, all others are given."""
    tensors = []
    for name, value in zip(node.inputs, inputs, strict=False):
        if value is not None:
            drawn = value.dtype.kind == "f" and value.ndim > 0
            fill = "given" if not drawn else "positive" if value.size and value.min() > 0 else "normal"
            values = None if drawn else tuple(value.reshape(-1).tolist())
            tensors.append(Tensor(name, value.shape, value.dtype.name, fill, values=values))
    attributes = dict(node.attributes)
    return Problem(node.title, node.op_type, node.inputs, node.outputs, tuple(tensors), node.opset, attributes)


@pytest.mark.sampled(4)
@pytest.mark.parametrize(("node", "inputs"), [*ELEMENTWISE, *REDUCED, *LINEAR, *POOLED, *NORMALISED, *SHAPED])
def test_no_honest_operator_is_accused(node, inputs, reference):
    problem = problem_of(node, inputs)
    limits = TrialSettings(budget_s=0.005, memory_bytes=2**34, on_host=True)
    for framework in ("numpy", "torch"):
        if framework != "numpy" and importlib.util.find_spec(framework) is None:
            continue
        case, _ = measure_problem(open_framework(framework), problem, 0, 0, limits, reference)
        # A busy machine may take longer than the budget for one call.
        assert case.status in ("measured", "skipped"), (framework, case.reason)


def test_what_a_library_adds_to_the_builtins_breaks_no_seal(monkeypatch):
    monkeypatch.setattr(builtins, "__pybind11_internals__", object(), raising=False)
    assert watching.SEAL.broken() == ""


def test_threads_of_a_blas_that_its_own_functions_set_are_refused(monkeypatch):
    threads = {"libopenblas": 1}
    monkeypatch.setattr(watching, "_blas_threads", lambda: dict(threads))
    seal = watching.Seal()
    seal.add(np, np.random, np.linalg)
    seal.add_framework(open_framework("numpy"))
    threads["liblater"] = 8
    assert "a BLAS" not in seal.broken()
    threads["libopenblas"] = 2
    assert "it changed the threads of a BLAS" in seal.broken()

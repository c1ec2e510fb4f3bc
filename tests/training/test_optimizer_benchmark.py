"""An optimizer's updates and steps: measured, compared with NumPy, refused where their time is not that of the work."""

import threading
import time
from dataclasses import dataclass
from functools import partial

import numpy as np
import pytest

from levelbench.operators.benchmark.measuring import TrialSettings
from levelbench.operators.frameworks import open_framework
from levelbench.training import optimizer_benchmark
from levelbench.training.optimizer_benchmark import measure_optimizer, step_problem, update_problem
from levelbench.training.optimizers import SGD, Momentum
from levelbench.training.optimizers.base import Optimizer, Stepper
from levelbench.training.optimizers.wrappers import Native

LIMITS = TrialSettings(budget_s=0.05, memory_bytes=2**34, on_host=True)
SHAPES = {"w": (8, 4), "b": (4,), "scale": ()}


def words(name, **settings):
    return {"name": name, "settings": settings}


def measured(problem, framework="numpy", file=""):
    return measure_optimizer(open_framework(framework), problem, 0, 0, LIMITS, None, file=file)


@pytest.fixture
def planted(monkeypatch):
    """Measures an optimizer that a file would define."""

    def measure(optimizer, problem=None):
        monkeypatch.setattr(optimizer_benchmark, "loaded", lambda file: {"mine": optimizer})
        return measured(problem or update_problem("ours", SHAPES, words("mine")), file="mine.py")

    return measure


@pytest.mark.parametrize("framework", ["numpy", "torch", "jax"])
@pytest.mark.parametrize("name", ["Adam", "Momentum", "LAMB", "ScheduleFreeSGD"])
def test_an_update_is_measured_and_is_that_of_numpy(framework, name):
    if framework != "numpy":
        pytest.importorskip(framework)
    case, times_s = measured(update_problem("ours", SHAPES, words(name, lr=0.01)), framework)
    assert case.status == "measured", case.reason
    assert case.errors["relative"] < 1e-2
    assert min(times_s) > 0


class Counting(Stepper):
    """Plain steps, which are counted."""

    steps = 0

    def __init__(self, parameters):
        self.parameters = parameters

    def step(self, gradients, step, factor):
        Counting.steps += 1
        time.sleep(0.5 if Counting.steps == 2 else 0.002)
        for name, each in gradients.items():
            self.parameters[name] -= 0.01 * each

    def state(self):
        return {}

    def restore(self, state):
        pass


@dataclass(frozen=True)
class Counted(Optimizer):
    def start(self, backend, parameters):
        return Counting(parameters)


def test_the_second_update_is_no_value_because_compilers_may_work_again_for_it(planted, monkeypatch):
    monkeypatch.setattr(Counting, "steps", 0)
    case, times_s = planted(Counted())
    assert case.status == "measured", case.reason
    assert max(times_s) < 0.5


def test_the_bytes_of_an_update_are_gradients_parameters_and_state():
    case, _ = measured(update_problem("ours", {"w": (10,)}, words("Momentum", lr=0.01)))
    assert case.bytes == 4 * 10 * (1 + 2 + 2)
    assert case.flops == 0


def test_a_frameworks_own_optimizer_is_measured_and_not_compared():
    pytest.importorskip("torch")
    case, _ = measured(update_problem("ours", SHAPES, words("torch.optim.AdamW", lr=0.01)), "torch")
    assert (case.status, case.errors) == ("measured", {}), case.reason
    assert "of the framework" in case.checked


def test_a_step_trains_the_network():
    case, times_s = measured(step_problem("mlp", 16, words("Adam", lr=0.001)))
    assert case.status == "measured", case.reason
    assert min(times_s) > 0


def test_an_optimizer_of_another_framework_is_unsupported():
    pytest.importorskip("optax")
    case, times_s = measured(update_problem("ours", SHAPES, words("optax.adamw", lr=0.01)))
    assert (case.status, times_s) == ("unsupported", [])


def test_a_rate_at_which_training_diverges_is_told():
    with np.errstate(all="ignore"):
        case, _ = measured(step_problem("mlp", 16, words("SGD", lr=1e9)))
    assert case.status == "failed"
    assert "try a smaller lr" in case.reason


@dataclass(frozen=True)
class Nothing(SGD):
    def update(self, parameter, gradient, state, step, lr):
        return parameter, state


@dataclass(frozen=True)
class OnlyInTheFaster(Momentum):
    """Right one tensor after another, wrong in the stepper that is used."""

    def start(self, backend, parameters):
        return Momentum(self.lr * 1.01, self.momentum).start(backend, parameters)


@dataclass(frozen=True)
class Fails(SGD):
    def update(self, parameter, gradient, state, step, lr):
        raise ValueError("no updates today")


class Saves(Momentum):
    """Right in the first updates; later it leaves most of them out."""

    def start(self, backend, parameters):
        return SavesSteps(super().start(backend, parameters))


class SavesSteps(Stepper):
    def __init__(self, inside):
        self._inside = inside

    def step(self, gradients, step, factor):
        if step < 10 or step % 7 == 0:
            self._inside.step(gradients, step, factor)

    def state(self):
        return self._inside.state()

    def restore(self, state):
        self._inside.restore(state)


class Late(Optimizer):
    """Its updates are done by another thread, after the call."""

    lr = 0.01

    def start(self, backend, parameters):
        return LateStepper(parameters)


class LateStepper(Stepper):
    def __init__(self, parameters):
        self._parameters = parameters

    def step(self, gradients, step, factor):
        def work():
            end = time.thread_time() + 0.1
            while time.thread_time() < end:
                pass
            for name, gradient in gradients.items():
                self._parameters[name] -= 0.01 * gradient

        threading.Thread(target=work).start()

    def state(self):
        return {}

    def restore(self, state):
        pass


@pytest.mark.parametrize(
    ("optimizer", "status", "reason"),
    [
        (Nothing(0.01), "failed", "changed no parameter"),
        (OnlyInTheFaster(0.01), "wrong", "of its way from NumPy's"),
        (Fails(0.01), "failed", "no updates today"),
        (Saves(0.01), "wrong", "in one of the last timed updates"),
    ],
)
def test_updates_that_are_none_are_found(planted, optimizer, status, reason):
    case, times_s = planted(optimizer)
    assert (case.status, times_s) == (status, []), case.reason
    assert reason in case.reason


def test_updates_that_another_thread_does_after_the_call_are_not_timed(planted):
    case, times_s = planted(Late())
    # On a busy machine the thread may not have begun when the parameters are looked at.
    assert case.status in ("refused", "failed")
    assert times_s == []
    assert "after the clock had stopped" in case.reason or "changed no parameter" in case.reason


def test_an_optimizer_that_replaces_the_clock_is_refused(planted, monkeypatch):
    monkeypatch.setattr(time, "perf_counter_ns", lambda: 0)
    case, _ = planted(Momentum(0.01))
    assert case.status == "refused"
    assert "perf_counter_ns" in case.reason


def test_the_title_of_an_update_counts_its_numbers():
    assert update_problem("mlp", SHAPES, words("Adam")).name == "update of mlp: 3 tensors, 37 numbers"
    assert step_problem("lenet5", 8, words("Adam")).name == "step of lenet5, batch 8"


def test_an_optimizer_that_stops_after_many_updates_is_refused(monkeypatch):
    torch = pytest.importorskip("torch")

    class Stops(torch.optim.SGD):
        count = 0

        def step(self, closure=None):
            self.count += 1
            if self.count < 10:
                super().step()

    monkeypatch.setattr(optimizer_benchmark, "loaded", lambda file: {"mine": Native.of(partial(Stops, lr=0.01))})
    case, times_s = measured(update_problem("own", SHAPES, words("mine")), "torch", file="mine.py")
    assert (case.status, times_s) == ("refused", [])
    assert "changed no parameter" in case.reason


def test_an_optimizer_that_adds_up_gradients_between_its_updates_is_measured(monkeypatch):
    torch = pytest.importorskip("torch")

    class EveryFourth(torch.optim.SGD):
        count = 0

        def step(self, closure=None):
            self.count += 1
            if self.count % 4 == 0:
                super().step()

    monkeypatch.setattr(optimizer_benchmark, "loaded", lambda file: {"mine": Native.of(partial(EveryFourth, lr=0.01))})
    assert measured(update_problem("own", SHAPES, words("mine")), "torch", file="mine.py")[0].status == "measured"

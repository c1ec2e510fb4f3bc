"""Faults planted in optimizers, gradients and their accumulation, each found by its probe."""

from dataclasses import dataclass

import numpy as np
import pytest
from tests.training.probes.recipes import DATA, NUMPY, checked, found, recipe, regularised

from levelbench.errors import UsageError
from levelbench.measure.clocks import FakeClock
from levelbench.training import EMA, SGD, AdamW, Clip, Momentum, Top1
from levelbench.training.optimizers.base import Stepper
from levelbench.training.probes import recipe as recipe_module
from levelbench.training.probes import recipe_parts
from levelbench.training.probes.bench import Bench


@dataclass(frozen=True)
class Uphill(SGD):
    """The sign is wrong."""

    def update(self, parameter, gradient, state, step, lr):
        return super().update(parameter, -gradient, state, step, lr)


def test_an_optimizer_that_climbs_is_found_by_a_loss_that_does_not_fall():
    assert "the loss of 16 examples falls from" in found(recipe(optimizer=Uphill(0.1)))["one batch"]


@dataclass(frozen=True)
class Idle(SGD):
    def update(self, parameter, gradient, state, step, lr):
        return parameter, state


@pytest.mark.parametrize(
    ("optimizer", "steps", "status"),
    [(SGD(0.002), 60, "noted"), (Uphill(0.1), 60, "failed"), (Uphill(0.1), 5, "noted")],
    ids=["falling", "climbing", "climbing for too few steps to tell"],
)
def test_if_time_runs_out_only_a_constant_loss_fails(optimizer, steps, status, monkeypatch):
    monkeypatch.setattr(recipe_module, "HOST", FakeClock(tick_ns=1_000_000))
    bench = Bench(recipe(optimizer=optimizer), DATA, NUMPY, Top1(0.9))
    (seen,) = recipe_module.one_batch(bench, 0, steps * 1e-3)
    assert seen.status == status
    assert ("no time for more" in seen.found) == (status == "noted")


def test_an_optimizer_that_moves_nothing_is_found():
    assert "no parameter moves" in found(recipe(optimizer=Idle(0.1)))["updates"]


@dataclass(frozen=True)
class Frozen(SGD):
    def update(self, parameter, gradient, state, step, lr):
        return (parameter, state) if parameter.ndim == 1 else super().update(parameter, gradient, state, step, lr)


def test_parameters_that_are_frozen_by_mistake_are_named():
    assert "2 of 4 parameters do not move" in found(recipe(optimizer=Frozen(0.1)))["updates"]


@dataclass(frozen=True)
class Noisy(SGD):
    def update(self, parameter, gradient, state, step, lr):
        gradient = gradient + 1e-3 * np.random.default_rng().standard_normal(gradient.shape).astype(gradient.dtype)
        return super().update(parameter, gradient, state, step, lr)


def test_an_optimizer_that_draws_without_a_seed_is_found():
    assert "two runs of seed 0 differ" in found(recipe(optimizer=Noisy(0.1)))["determinism"]


class Forgetful(Momentum):
    """Its stepper says that it has no state."""

    def start(self, backend, parameters):
        inner = super().start(backend, parameters)

        class Wrapped(Stepper):
            def step(self, gradients, step, factor):
                inner.step(gradients, step, factor)

            def state(self):
                return {}

            def restore(self, state):
                pass

        return Wrapped()


def test_an_optimizer_whose_state_is_lost_in_a_checkpoint_is_found():
    assert "after restore(state()) the next step" in found(recipe(optimizer=Forgetful(0.05)))["optimizer state"]


def test_a_rate_at_which_the_loss_explodes_at_once_is_found():
    with np.errstate(all="ignore"):
        assert "the losses of the first steps are" in found(recipe(optimizer=SGD(1e30)))["updates"]


def test_a_wrong_gradient_is_found_by_differences_of_the_loss(monkeypatch):
    from levelbench.frameworks.numpy.backend import NumpyExecutor

    backward = NumpyExecutor.backward

    def doubled(self):
        gradients = dict(backward(self))
        name = max(gradients, key=lambda each: gradients[each].size)
        return {**gradients, name: 2 * gradients[name]}

    monkeypatch.setattr(NumpyExecutor, "backward", doubled)
    assert "differs from the gradient's norm" in found(recipe())["gradient"]


def accumulated(**changes):
    (seen,) = recipe_module.accumulation(Bench(recipe(**{"accumulate": 3} | changes), DATA, NUMPY, Top1(0.9)), 0)
    return seen


def test_gradients_left_over_from_the_previous_batch_are_found(monkeypatch):
    from levelbench.frameworks.numpy.backend import NumpyExecutor

    backward = NumpyExecutor.backward

    def added_up(self):
        kept = getattr(self, "kept", {})
        self.kept = {name: each + kept.get(name, 0) for name, each in backward(self).items()}
        return self.kept

    assert accumulated().status == "passed"
    monkeypatch.setattr(NumpyExecutor, "backward", added_up)
    assert "batches of 6, 7, 3" in accumulated().found
    assert accumulated().status == "failed"


def test_equal_weights_for_batches_of_any_size_are_found(monkeypatch):
    from levelbench.training.trainer import Accumulating

    add = Accumulating._add

    def alike(self):
        # Three batches, or all in one.
        self._share = 1.0 if self._share == 1.0 else 1 / 3
        add(self)

    monkeypatch.setattr(Accumulating, "_add", alike)
    assert accumulated().status == "failed"


def test_accumulation_with_batch_statistics_is_noted():
    seen = accumulated(network=regularised(0.2))
    assert seen.status == "noted"
    assert "BatchNormalization and Dropout" in seen.found


@dataclass(frozen=True)
class NoBiases(SGD):
    def init(self, parameter):
        if parameter.ndim < 2:
            raise UsageError("an optimizer of matrices", "a parameter of one axis", "use another for biases")
        return super().init(parameter)


def test_an_optimizer_that_refuses_biases_is_reported_once():
    (only,) = checked(recipe(optimizer=NoBiases(0.1))).failed
    assert only.probe == "updates"
    assert "(also in: determinism, evaluation, optimizer state" in only.found


@pytest.mark.parametrize(
    ("optimizer", "status"),
    [
        (EMA(Momentum(0.05), decay=0.9999), "failed"),
        (Clip(EMA(Momentum(0.05), decay=0.999), norm=1.0), "failed"),
        (EMA(Momentum(0.05), decay=0.9), "passed"),
        (EMA(Momentum(0.05), decay=0.9999, warm_up=True), "passed"),
    ],
    ids=["slow", "inside another", "fast", "warm-up"],
)
def test_an_average_that_still_is_the_initial_weights_at_the_end_is_found(optimizer, status):
    (finding,) = recipe_parts.averaged(recipe(optimizer=optimizer), DATA.train)
    assert finding.status == status


@pytest.mark.parametrize(("decay", "probes"), [(10.0, {"weight decay"}), (0.1, set())])
def test_a_decay_that_leaves_gradients_no_time_is_found(decay, probes):
    assert found(recipe(optimizer=AdamW(0.01, weight_decay=decay))).keys() == probes

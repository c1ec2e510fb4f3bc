"""A rule applied to all parameters of a network, and its state saved and restored."""

import numpy as np
import pytest

from levelbench.errors import DataError
from levelbench.frameworks.numpy.backend import NumpyBackend
from levelbench.training.optimizers import SGD, AcceleGrad, Adam, Momentum, ScheduleFreeSGD


def started(rule, **parameters):
    live = {name: np.array(value, np.float64) for name, value in parameters.items()}
    return rule.start(NumpyBackend(), live), live


def test_a_schedules_factor_multiplies_the_rate():
    stepper, live = started(SGD(0.5), w=[0.0])
    stepper.step({"w": np.ones(1)}, 1, 0.1)
    assert live["w"] == pytest.approx(-0.05)


def test_a_parameter_without_a_gradient_does_not_change():
    stepper, live = started(Momentum(0.5), w=[1.0], untouched=[1.0])
    stepper.step({"w": np.ones(1)}, 1, 1.0)
    assert (live["w"], live["untouched"]) == (0.5, 1.0)


def test_each_parameter_has_its_own_state():
    stepper, live = started(Momentum(1.0, 0.5), a=[0.0], b=[0.0])
    stepper.step({"a": np.ones(1), "b": np.zeros(1)}, 1, 1.0)
    stepper.step({"a": np.zeros(1), "b": np.zeros(1)}, 2, 1.0)
    assert (live["a"], live["b"]) == (-1.5, 0.0)


def test_the_state_is_made_of_arrays_on_the_host_by_flat_names():
    stepper, _ = started(ScheduleFreeSGD(0.5), **{"first.weight": [[1.0, 2.0]]})
    stepper.step({"first.weight": np.ones((1, 2))}, 1, 1.0)
    state = stepper.state()
    assert {name: each.shape for name, each in state.items()} == {
        "first.weight/0": (1, 2),
        "first.weight/1": (),
        "first.weight/2": (),
    }
    assert all(isinstance(each, np.ndarray) for each in state.values())


@pytest.mark.parametrize("rule", [SGD(0.1), Adam(0.1), AcceleGrad()], ids=lambda rule: type(rule).__name__)
def test_a_state_may_be_saved_before_the_first_step(rule):
    stepper, _ = started(rule, w=[1.0])
    again, live = started(rule, w=[1.0])
    again.restore(stepper.state())
    again.step({"w": np.ones(1)}, 1, 1.0)
    assert live["w"] < 1.0


@pytest.mark.parametrize(
    "kept",
    [
        {"w": np.zeros(2)},
        {"w/0": np.zeros(2)},
        {"w/0": np.zeros(2), "w/1": np.zeros(3)},
        {"w/0": np.zeros(2), "w/1": np.zeros(2), "v/0": np.zeros(2)},
    ],
    ids=["of another rule", "in part", "of another shape", "of another network"],
)
def test_a_state_that_does_not_fit_is_refused(kept):
    stepper, _ = started(Adam(0.1), w=[1.0, 1.0])
    with pytest.raises(DataError, match="state of"):
        stepper.restore(kept)

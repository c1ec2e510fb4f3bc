"""Wrappers of optimizers: decay, clipping, averages, groups; all can be saved and resumed."""

import numpy as np
import pytest

from levelbench.errors import DataError, DefinitionError
from levelbench.frameworks.numpy.backend import NumpyBackend
from levelbench.training.optimizers import (
    EMA,
    SGD,
    Adam,
    AdamW,
    Clip,
    ClipValue,
    Decay,
    Groups,
    Momentum,
    ScheduleFreeSGD,
)
from levelbench.training.optimizers.wrappers import clipped


def started(optimizer, **parameters):
    """A stepper on NumPy, and its parameters."""
    live = {name: np.array(value, np.float64) for name, value in parameters.items()}
    return optimizer.start(NumpyBackend(), live), live


def test_decay_around_adam_is_adamw(problem, assert_same_path):
    given = problem(50)
    decayed, _ = given.run_with(Decay(Adam(0.01), 0.1))
    assert_same_path(decayed, given.run(AdamW(0.01, weight_decay=0.1)), 1e-15)


def test_decay_follows_the_schedule():
    stepper, live = started(Decay(SGD(0.5), 0.1), w=[2.0])
    stepper.step({"w": np.zeros(1)}, 1, 0.5)
    assert live["w"] == pytest.approx(2.0 * (1 - 0.5 * 0.5 * 0.1))


@pytest.mark.parametrize("limit", [0.5, 100.0], ids=["above the limit", "below it"])
def test_gradients_are_clipped_together_as_torch_does(problem, limit):
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    gradients = problem(1).start
    tensors = [torch.nn.Parameter(torch.from_numpy(each.copy())) for each in gradients.values()]
    for tensor in tensors:
        tensor.grad = tensor.detach().clone()
    torch.nn.utils.clip_grad_norm_(tensors, limit)
    ours = clipped({name: each.copy() for name, each in gradients.items()}, limit)
    for tensor, each in zip(tensors, ours.values(), strict=True):
        np.testing.assert_allclose(each, tensor.grad.numpy(), rtol=1e-14)


def test_the_norm_that_is_clipped_is_that_of_all_gradients():
    stepper, live = started(Clip(SGD(1.0), norm=5.0), a=[0.0], b=[0.0])
    stepper.step({"a": np.array([6.0]), "b": np.array([8.0])}, 1, 1.0)
    assert [float(live["a"][0]), float(live["b"][0])] == pytest.approx([-3.0, -4.0], rel=1e-6)


def test_clipping_accepts_no_gradients():
    stepper, live = started(Clip(SGD(1.0)), a=[1.0])
    stepper.step({}, 1, 1.0)
    assert live["a"] == 1.0


def test_elements_are_clipped_at_a_value():
    stepper, live = started(ClipValue(SGD(1.0), 2.0), w=[0.0, 0.0, 0.0])
    stepper.step({"w": np.array([-7.0, 1.0, 3.0])}, 1, 1.0)
    assert list(live["w"]) == [2.0, -1.0, -2.0]


def test_the_average_follows_the_weights_and_leaves_them_alone(problem):
    given = problem(30, names=("bias",))
    path, stepper = given.run_with(EMA(SGD(0.1), 0.9))
    assert np.array_equal(path, given.run(SGD(0.1)))
    average = given.start["bias"]
    for weight in path:
        average = 0.9 * average + 0.1 * weight
    np.testing.assert_allclose(stepper.averaged()["bias"], average, rtol=1e-12)


def test_an_average_that_warms_up_soon_forgets_the_start():
    stepper, live = started(EMA(SGD(1.0), 0.999, warm_up=True), w=[100.0])
    stepper.step({"w": np.array([100.0])}, 1, 1.0)
    assert live["w"] == 0.0
    assert stepper.averaged()["w"] == pytest.approx(100.0 * 2 / 11)


def test_an_optimizer_without_average_is_evaluated_as_it_is():
    assert started(Clip(Decay(SGD(0.1))), w=[1.0])[0].averaged() is None


def test_a_wrapper_passes_on_the_inner_average():
    stepper, live = started(Clip(ScheduleFreeSGD(0.1, 0.5), 10.0), w=[1.0], untouched=[7.0])
    for step in (1, 2, 3):
        stepper.step({"w": np.array([1.0])}, step, 1.0)
    averaged = stepper.averaged()
    assert averaged["w"] == pytest.approx(np.mean([0.9, 0.8, 0.7]))
    assert averaged["w"] != live["w"]
    assert averaged["untouched"] == 7.0


def test_a_wrappers_rate_is_the_inner_rate():
    assert EMA(Clip(Decay(Momentum(0.3)))).lr == 0.3
    assert Groups(SGD(0.2), {"*": SGD(0.1)}).lr == 0.2


def test_groups_give_each_parameter_the_first_optimizer_whose_pattern_matches():
    stepper, live = started(
        Groups(SGD(1.0), {"*.bias": SGD(0.1), "first.*": SGD(0.01)}),
        **{"first.bias": 0.0, "first.weight": 0.0, "second.weight": 0.0},
    )
    stepper.step({name: np.array(1.0) for name in live}, 1, 0.5)
    assert {name: float(each) for name, each in live.items()} == pytest.approx(
        {"first.bias": -0.05, "first.weight": -0.005, "second.weight": -0.5}
    )


def test_groups_equal_the_parameter_groups_of_torch(problem, assert_same_path):
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    given = problem(40, names=("weight", "bias"))
    ours, _ = given.run_with(Groups(AdamW(0.01, weight_decay=0.1), {"bias": AdamW(0.05, weight_decay=0.0)}))
    live = {name: torch.nn.Parameter(torch.from_numpy(each.copy())) for name, each in given.start.items()}
    native = torch.optim.AdamW(
        [{"params": [live["weight"]]}, {"params": [live["bias"]], "lr": 0.05, "weight_decay": 0.0}],
        lr=0.01,
        weight_decay=0.1,
    )
    path = []
    for step in range(1, 41):
        host = {name: each.detach().numpy() for name, each in live.items()}
        for name, gradient in given.gradients(host, step).items():
            live[name].grad = torch.from_numpy(gradient)
        native.step()
        path.append(given.flat({name: each.detach().numpy() for name, each in live.items()}))
    assert_same_path(ours, np.array(path), 1e-13)


def test_parameters_on_immutable_arrays_are_put_back_through_groups_and_wrappers():
    jax = pytest.importorskip("jax", reason="JAX is not installed")
    live = {"a.bias": jax.numpy.ones(2), "a.weight": jax.numpy.ones(2)}
    optimizer = EMA(Clip(Groups(Decay(SGD(0.5), 1.0), {"*.bias": SGD(0.25)}), 100.0), 0.5)
    stepper = optimizer.start(NumpyBackend(), live)
    stepper.step({name: jax.numpy.ones(2) for name in live}, 1, 1.0)
    np.testing.assert_allclose(live["a.bias"], 0.75)
    np.testing.assert_allclose(live["a.weight"], 0.0)
    np.testing.assert_allclose(stepper.averaged()["a.weight"], 0.5)


@pytest.mark.parametrize(
    ("patterns", "what"),
    [
        ({"*.bais": SGD(0.1)}, r"'\*\.bais'.*matches no.*first.bias"),
        ({"*": SGD(0.1), "*.bias": SGD(0.1)}, "earlier patterns take everything.*Put it first"),
    ],
)
def test_a_pattern_that_takes_no_parameter_is_refused(patterns, what):
    with pytest.raises(DefinitionError, match=what):
        started(Groups(SGD(1.0), patterns), **{"first.bias": 0.0, "first.weight": 0.0})


NESTED = EMA(Clip(Groups(Decay(Adam(0.01)), {"bias": ScheduleFreeSGD(0.05), "scale": Momentum(0.1)}), 1.0), 0.9)


def test_wrappers_resume_from_a_saved_state_bitwise(problem):
    given = problem(9)
    whole, finished = given.run_with(NESTED)
    parameters = {name: each.copy() for name, each in given.start.items()}
    first = NESTED.start(NumpyBackend(), parameters)
    for step in range(1, 6):
        first.step(given.gradients(parameters, step), step, 1.0)
    kept, parameters = first.state(), {name: each.copy() for name, each in parameters.items()}
    second = NESTED.start(NumpyBackend(), parameters)
    second.restore(kept)
    for step in range(6, 10):
        second.step(given.gradients(parameters, step), step, 1.0)
    assert np.array_equal(given.flat(parameters), whole[-1])
    for name, average in finished.averaged().items():
        assert np.array_equal(second.averaged()[name], average)


def test_a_saved_state_is_a_copy(problem):
    given = problem(3)
    _, stepper = given.run_with(NESTED)
    kept = stepper.state()
    before = {name: each.copy() for name, each in kept.items()}
    stepper.step(given.gradients(given.start, 1), 4, 1.0)
    assert all(np.array_equal(kept[name], before[name]) for name in kept)


@pytest.mark.parametrize("optimizer", [EMA(SGD(0.1)), Groups(Adam(0.1), {"bias": SGD(0.1)})], ids=["EMA", "Groups"])
def test_the_state_of_another_optimizer_is_refused(optimizer):
    stepper, _ = started(optimizer, weight=[1.0], bias=[1.0])
    with pytest.raises(DataError, match=r"[Uu]se the|was saved"):
        stepper.restore({"7:weight/0": np.ones(1), "7:weight/1": np.ones(1)})

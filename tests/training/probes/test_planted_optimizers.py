"""Every planted fault is found by the probe that it is for, and no right optimizer is accused."""

from dataclasses import dataclass
from functools import partial
from typing import ClassVar

import pytest

torch = pytest.importorskip("torch", reason="some of the optimizers are PyTorch's")

from levelbench.planted.optimizers_known import BY, FAULTY, RIGHT, TORCH, Case  # noqa: E402  # references need torch
from levelbench.training.optimizers import Native  # noqa: E402
from levelbench.training.optimizers.arrays import where, zeros_like  # noqa: E402
from levelbench.training.optimizers.base import Optimizer, UpdateRule  # noqa: E402
from levelbench.training.probes.optimizers import check_optimizer  # noqa: E402

STEPS = 16
"""Few, but the long comparison still passes the 128th."""


def cases(of, chosen=lambda case: True):
    """The names; checks that take seconds are marked slow."""

    def takes_long(case):
        return case.frameworks != ("numpy", "torch") or str(case.reference).startswith("optax")

    return [
        pytest.param(name, marks=[pytest.mark.slow] if takes_long(case) else [])
        for name, case in of.items()
        if chosen(case)
    ]


def failures(case, reference):
    made = case.make()
    optimizer = made if isinstance(made, Optimizer) else Native.of(made)
    if "jax" in case.frameworks or str(reference).startswith("optax"):
        pytest.importorskip("optax")
    frameworks = case.frameworks if case.frameworks == TORCH else case.frameworks[:1]
    return {
        each.probe: each.found
        for each in check_optimizer(optimizer, reference, frameworks=frameworks, steps=STEPS).report.failed
    }


@pytest.mark.sampled(4)
@pytest.mark.parametrize("name", cases(FAULTY, lambda case: case.alone))
def test_a_fault_is_found_without_a_reference(name):
    assert BY[name] in failures(FAULTY[name], None)


@pytest.mark.sampled(4)
@pytest.mark.parametrize("name", cases(FAULTY, lambda case: case.reference is not None))
def test_a_fault_is_found_beside_a_reference(name):
    assert BY[name] in failures(FAULTY[name], FAULTY[name].reference)


@pytest.mark.slow
@pytest.mark.parametrize("name", cases(RIGHT))
def test_a_right_optimizer_is_not_accused(name):
    assert failures(RIGHT[name], None) == {}


@pytest.mark.slow
@pytest.mark.parametrize("name", cases(RIGHT, lambda case: case.reference is not None))
def test_a_right_optimizer_is_not_accused_beside_its_reference(name):
    assert failures(RIGHT[name], RIGHT[name].reference) == {}


@dataclass(frozen=True)
class Decayed(UpdateRule):
    """Adam's first moment with a decay that would move parameters if the gradients did not."""

    lr: float = 0.01
    elementwise: ClassVar[bool] = False

    def init(self, parameter):
        return zeros_like(parameter)

    def update(self, parameter, gradient, state, step, lr):
        state = 0.5 * state + 0.5 * gradient
        return parameter * (1 - 0.1 * lr) - self.moved(parameter, state, step, lr), state

    def moved(self, parameter, state, step, lr):
        return lr * state


class EndsEarly(Decayed):
    def moved(self, parameter, state, step, lr):
        return lr * state * max(0.0, 1 - step / 5000)


class RateCapped(Decayed):
    def moved(self, parameter, state, step, lr):
        return min(lr, 0.05) * state


class TailLeftOut(Decayed):
    def moved(self, parameter, state, step, lr):
        if state.size > 65_536:
            state = state.copy()
            state.reshape(-1)[65_536:] = 0
        return lr * state


@pytest.mark.parametrize(
    ("faulty", "probe"), [(EndsEarly, "late steps"), (RateCapped, "high rates"), (TailLeftOut, "large arrays")]
)
def test_weight_decay_does_not_hide_that_gradients_have_no_effect(faulty, probe):
    assert probe in failures(Case(faulty), None)


def test_a_right_optimizer_with_weight_decay_is_not_accused():
    assert failures(Case(Decayed), None) == {}


class SharedByShape(torch.optim.Optimizer):
    """Parameters of one shape share their momentum, which is saved with each."""

    def __init__(self, params, lr=0.01):
        super().__init__(params, {"lr": lr})

    @torch.no_grad()
    def step(self, closure=None):
        (group,) = self.param_groups
        for each in group["params"]:
            first = next(other for other in group["params"] if other.shape == each.shape)
            momentum = self.state[first].setdefault("momentum", torch.zeros_like(each))
            self.state[each]["momentum"] = momentum.mul_(0.9).add_(each.grad)
            each.sub_(momentum, alpha=group["lr"])


def test_state_shared_by_parameters_of_one_shape_is_a_fault():
    assert "order of parameters" in failures(Case(lambda: partial(SharedByShape, lr=0.01), frameworks=TORCH), None)


class Signs(torch.optim.Optimizer):
    """Lion as published: PyTorch's sign of NaN is 0."""

    def __init__(self, params, lr=1e-3, decay=0.1):
        super().__init__(params, {"lr": lr, "decay": decay})

    @torch.no_grad()
    def step(self, closure=None):
        (group,) = self.param_groups
        for each in group["params"]:
            momentum = self.state[each].setdefault("momentum", torch.zeros_like(each))
            each.mul_(1 - group["lr"] * group["decay"])
            each.sub_((0.9 * momentum + 0.1 * each.grad).sign_(), alpha=group["lr"])
            momentum.mul_(0.99).add_(each.grad, alpha=0.01)


def test_the_sign_of_nan_is_noted_and_not_accused():
    assert failures(Case(lambda: partial(Signs, lr=1e-3), frameworks=TORCH), None) == {}


@dataclass(frozen=True)
class LeavesOutNaN(UpdateRule):
    lr: float = 0.01

    def init(self, parameter):
        return {}

    def update(self, parameter, gradient, state, step, lr):
        return parameter - lr * where(gradient == gradient, gradient, 0.0), state


def test_an_element_alone_that_is_left_out_for_a_nan_is_a_fault():
    assert "not finite" in failures(Case(LeavesOutNaN), None)


class DropsSmallGradients(Decayed):
    def update(self, parameter, gradient, state, step, lr):
        return super().update(parameter, where(abs(gradient) < 1e-6, 0 * gradient, gradient), state, step, lr)


class DropsSmallSteps(Decayed):
    def moved(self, parameter, state, step, lr):
        return where(abs(lr * state) < 1e-6, 0 * state, lr * state)


@pytest.mark.parametrize("faulty", [DropsSmallGradients, DropsSmallSteps])
def test_a_threshold_below_which_nothing_moves_is_a_fault(faulty):
    assert "scale of gradients" in failures(Case(faulty), None)


class LowRateLeftOut(Decayed):
    """Signs, which have one length whatever the gradients."""

    def moved(self, parameter, state, step, lr):
        return where(state < 0, -lr + 0 * state, lr) if lr > 1e-6 else 0 * state


def test_a_rate_below_which_nothing_moves_is_a_fault():
    assert "times the rate gradients move nothing" in failures(Case(LowRateLeftOut), None)["scale of gradients"]


@dataclass(frozen=True)
class Sums(Decayed):
    kept: float = 1.0

    def update(self, parameter, gradient, state, step, lr):
        state = self.kept * state + gradient
        return parameter - lr * state, state


@pytest.mark.parametrize(("kept", "found"), [(1.0, {"old gradients"}), (0.999, set())])
def test_gradients_that_are_summed_for_ever_are_a_fault(kept, found):
    assert failures(Case(partial(Sums, kept=kept)), None).keys() == found


class TorchVelocity(torch.optim.Optimizer):
    def __init__(self, params, lr=0.01, seeds=False, groups=None, half=False):
        super().__init__(params, {"lr": lr, "seeds": seeds, "groups": groups, "half": half})

    @torch.no_grad()
    def step(self, closure=None):
        if self.defaults["seeds"]:
            torch.manual_seed(0)
        for group in self.param_groups[: self.defaults["groups"]]:
            for each in group["params"]:
                dtype = torch.bfloat16 if self.defaults["half"] and each.numel() > 4096 else each.dtype
                velocity = self.state[each].setdefault("velocity", torch.zeros_like(each, dtype=dtype))
                velocity.copy_(0.9 * velocity.to(each.dtype) + each.grad)
                each.sub_(velocity, alpha=group["lr"])


@pytest.mark.parametrize(
    ("settings", "found"),
    [
        ({}, set()),
        pytest.param({"seeds": True}, {"process"}, marks=pytest.mark.slow),
        ({"groups": 1}, {"groups"}),
        ({"half": True}, {"large arrays"}),
    ],
)
def test_a_fault_of_an_optimizer_of_pytorch_is_found_by_its_probe(settings, found):
    assert failures(Case(lambda: partial(TorchVelocity, **settings), frameworks=TORCH), None).keys() == found


def test_an_optimizer_that_adapts_the_length_of_its_steps_is_not_accused_of_ignoring_the_rate():
    assert failures(Case(lambda: partial(torch.optim.Rprop, lr=0.01), frameworks=TORCH), None) == {}

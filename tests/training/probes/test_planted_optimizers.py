"""Every planted fault is found by the probe that it is for, and no right optimizer is accused."""

from dataclasses import dataclass

import pytest

torch = pytest.importorskip("torch", reason="some of the optimizers are PyTorch's")

from levelbench.planted.optimizers_known import BY, FAULTY, RIGHT, TORCH, Case  # noqa: E402  # references need torch
from levelbench.training.optimizers import Native  # noqa: E402
from levelbench.training.optimizers.arrays import where  # noqa: E402
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
class LeavesOutNaN(UpdateRule):
    lr: float = 0.01

    def init(self, parameter):
        return {}

    def update(self, parameter, gradient, state, step, lr):
        return parameter - lr * where(gradient == gradient, gradient, 0.0), state


def test_an_element_alone_that_is_left_out_for_a_nan_is_a_fault():
    assert "not finite" in failures(Case(LeavesOutNaN), None)

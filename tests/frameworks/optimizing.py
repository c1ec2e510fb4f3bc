"""Shared by the optimizer tests: parameters and gradients from a seed, and a few steps with them."""

import numpy as np
import pytest

from levelbench.operators.frameworks import load_framework
from levelbench.training.optimizers import AveragingRule
from levelbench.training.optimizers.base import RuleStepper
from levelbench.training.optimizers.rules import AveragingStepper

SHAPES = {"matrix": (5, 3), "vector": (7,), "scalar": (), "empty": (0, 4)}


def opened(framework):
    found = load_framework(framework)
    if found.lacks() is not None:
        pytest.skip(f"{framework} is not installed")
    return found.open("cpu")


def plain(rule, backend, parameters):
    return (AveragingStepper if isinstance(rule, AveragingRule) else RuleStepper)(rule, backend, parameters)


def arrays(backend, shapes=SHAPES, seed=0, dtype=np.float64):
    random = np.random.default_rng(seed)
    return {name: backend.array(np.asarray(random.standard_normal(shape), dtype)) for name, shape in shapes.items()}


def on_host(backend, given):
    return {name: backend.host(each) for name, each in given.items()}


def train(backend, stepper, steps, first=1, shapes=SHAPES, dtype=np.float64):
    for step in range(first, first + steps):
        stepper.step(arrays(backend, shapes, seed=step, dtype=dtype), step, 1 / step)


def assert_close(left, right, tolerance=1e-12):
    assert left.keys() == right.keys()
    for name in left:
        np.testing.assert_allclose(left[name], right[name], rtol=tolerance, atol=tolerance, err_msg=name)

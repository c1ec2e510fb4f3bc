"""The toy networks of the scheme checks: correct gradients, and gradients that are passed on early."""

import numpy as np
import pytest

from levelbench.distributed.probes.doubles import (
    SHAPES,
    Regression,
    Scripted,
    beginning,
    loss_and_gradients,
    scripted_gradient,
)
from levelbench.distributed.probes.runs import batch, part_of
from levelbench.frameworks.numpy.backend import NumpyBackend


@pytest.mark.parametrize("name", SHAPES)
def test_gradients_are_the_slopes_of_the_loss(name):
    held, step = beginning(0)[0], 1e-6
    inputs, targets = batch(0, 0, 6)
    _, gradients = loss_and_gradients(held, inputs, targets)
    for place in np.ndindex(SHAPES[name]):
        losses = []
        for sign in (1, -1):
            moved = {each: array.copy() for each, array in held.items()}
            moved[name][place] += sign * step
            losses.append(loss_and_gradients(moved, inputs, targets)[0])
        assert gradients[name][place] == pytest.approx((losses[0] - losses[1]) / (2 * step), abs=1e-8)


def test_gradients_of_parts_weighted_by_their_shares_sum_to_the_whole():
    held, (inputs, targets) = beginning(0)[0], batch(0, 0, 7)
    whole = loss_and_gradients(held, inputs, targets)[1]
    parts = [part_of(7, rank, 3) for rank in range(3)]
    for name in SHAPES:
        total = sum(
            loss_and_gradients(held, inputs[part], targets[part])[1][name] * (part.stop - part.start) / 7
            for part in parts
        )
        np.testing.assert_allclose(total, whole[name], atol=1e-14)


def test_early_gradients_arrive_last_parameter_first_and_may_be_replaced():
    model, seen = Scripted(NumpyBackend(), 0, 0, "float64", early=True), []

    def replace(name, gradient):
        seen.append(name)
        return gradient * 2

    assert model.on_gradient(replace)
    model.step = 1
    model.forward()
    gradients = model.backward()
    assert seen == list(reversed(SHAPES))
    np.testing.assert_array_equal(gradients["gain"], 2 * scripted_gradient(0, 0, 1)["gain"])


def test_unused_parameters_have_no_early_gradient():
    model, seen = Regression(NumpyBackend(), 0, "float64", early=True), []
    model.on_gradient(lambda name, gradient: seen.append(name))
    model.forward(*batch(0, 0, 3))
    assert "unused" in model.backward()
    assert "unused" not in seen

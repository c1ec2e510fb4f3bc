"""Accumulated gradients are those of the larger batch."""

import numpy as np
import pytest

from levelbench.frameworks.numpy import framework
from levelbench.measure.clocks import FakeClock
from levelbench.measure.timeline import Phase, Timeline
from levelbench.networks import Builder
from levelbench.training.trainer import Accumulating, grouped, grouped_sizes


def executor():
    network = Builder("linear", (3,)).gemm(4).relu().gemm(2).build().with_loss()
    return framework.open().executor(network, network.initialise(0))


def batch(count, seed):
    random = np.random.default_rng(seed)
    return random.standard_normal((count, 3)).astype(np.float32), random.integers(0, 2, count)


@pytest.mark.parametrize("counts", [(8, 8, 8), (8, 8, 3), (5,)])
def test_the_gradients_of_a_group_are_those_of_one_large_batch(counts):
    group = [batch(count, seed) for seed, count in enumerate(counts)]
    together = tuple(np.concatenate(columns) for columns in zip(*group, strict=True))
    expected_loss, expected = executor().infer_and_backprop(*together)
    turn = Accumulating(executor(), Timeline(FakeClock()))
    loss = turn.forward(*group)
    gradients = turn.backward()
    assert loss == pytest.approx(expected_loss, rel=1e-6)
    for name, gradient in expected.items():
        np.testing.assert_allclose(gradients[name], gradient, rtol=1e-5, atol=1e-7)


def test_forward_and_backward_of_each_batch_are_on_their_own_phases():
    timeline = Timeline(FakeClock(tick_ns=10))
    turn = Accumulating(executor(), timeline)
    turn.forward(batch(4, 0), batch(4, 1))
    turn.backward()
    totals = timeline.totals_ns()
    assert totals[Phase.FORWARD.label] > 0
    assert totals[Phase.BACKWARD.label] > 0


def test_batches_are_grouped_and_the_last_group_may_be_smaller():
    assert [len(group) for group in grouped(iter([(1,)] * 7), 3)] == [3, 3, 1]
    assert grouped_sizes([4, 4, 4, 4, 2], 2) == [8, 8, 2]

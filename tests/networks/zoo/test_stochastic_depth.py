"""Stochastic depth (Huang et al. 2016): what its branches do in training and outside of it, and how deep it is."""

import math

import numpy as np
import pytest

from levelbench.errors import DefinitionError
from levelbench.networks.zoo.blocks import ONES, ImageBuilder, survivals
from levelbench.networks.zoo.convolutional import cifar_resnet
from levelbench.networks.zoo.small import quick, resnet9
from levelbench.operators.frameworks import open_framework


def branch(survival):
    """A residual branch that is a scale of 1, on an image of 2 x 2: its four pixels are the logits."""
    g = ImageBuilder("branch")
    x = g.node("Mul", g.image(1, 2), g.parameter("scale", (1,), ONES))
    g.output(g.flatten(g.survive(g.shaped(x, (1, 2, 2)), survival)), "logits")
    return g.build()


def test_the_expected_depth_is_the_papers():
    # Section 3: with p_L = 0.5 the expected number of blocks is (3 L - 1) / 4, about 40 of 54.
    assert sum(survivals(54, 0.5)) == pytest.approx((3 * 54 - 1) / 4)
    assert survivals(54, 0.5)[-1] == 0.5
    assert survivals(3, 1.0) == [1.0] * 3


@pytest.mark.parametrize("framework", ["numpy", "torch", "jax", "tensorflow"])
def test_in_training_a_branch_is_there_or_not_and_else_it_is_scaled(framework):
    pytest.importorskip(framework, reason=f"{framework} is not installed")
    backend, parameters = open_framework(framework), {"scale": np.ones(1, np.float32)}
    network, x = branch(0.8), np.array([[[[1.0, 2.0], [3.0, 4.0]]]] * 3, np.float32)
    (outside,) = backend.executor(network, parameters, trains=False).infer(backend.array(x))
    # Equation 5.
    assert np.asarray(outside) == pytest.approx(0.8 * x.reshape(3, 4))
    executor = backend.executor(network.with_loss("cross-entropy").training(), parameters)
    inputs = backend.array(x), backend.array(np.array([3, 3, 3]))
    there, gone = math.log(sum(map(math.exp, [1, 2, 3, 4]))) - 4, math.log(4)
    kept = []
    for _ in range(200):
        loss, gradients = executor.infer_and_backprop(*inputs)
        kept.append(bool(abs(float(loss) - there) < 1e-5))
        # One draw for the whole batch (equation 2): all examples are there, or none; nothing is learned then.
        assert kept[-1] or float(loss) == pytest.approx(gone, rel=1e-5)
        assert kept[-1] == bool(np.asarray(gradients["scale"]).any())
    # Five standard deviations of a binomial share.
    assert np.mean(kept) == pytest.approx(0.8, abs=5 * (0.8 * 0.2 / 200) ** 0.5)


def test_a_survival_of_one_changes_no_network_and_less_adds_no_parameter():
    for make in (lambda p: cifar_resnet(20, survival=p), lambda p: resnet9(survival=p)):
        assert len(make(1.0).model.graph.node) < len(make(0.5).model.graph.node)
        assert [each.name for each in make(1.0).parameters] == [each.name for each in make(0.5).parameters]
    assert not any(node.op_type == "Dropout" for node in quick(residuals=(0, 1, 1)).model.graph.node)
    dropped = quick(residuals=(0, 1, 1), survival=0.5).model.graph.node
    assert sum(node.op_type == "Dropout" for node in dropped) == 2


@pytest.mark.parametrize("survival", [0.0, -0.1, 1.5])
def test_an_impossible_probability_is_refused(survival):
    with pytest.raises(DefinitionError, match="survives with probability"):
        branch(survival)

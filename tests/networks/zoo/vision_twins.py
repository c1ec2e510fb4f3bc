"""PyTorch twins of image networks, with the network's own parameters, and their comparison in float64."""

import numpy as np
import pytest
from tests.networks.zoo import compared

from levelbench.operators.frameworks import open_framework

torch = pytest.importorskip("torch")
F = torch.nn.functional


# Attributes and constants of a network are float32: an epsilon of 1e-5 is 9.9999997e-6.
RELATIVE = 1e-6


def inputs_of(network, batch):
    made = network.make_inputs(batch, seed=1).values()
    return [each.astype(np.float64) if each.dtype == np.float32 else each for each in made]


def assert_close(ours, theirs, floor=0.0):
    assert ours.dtype == np.float64
    compared.assert_close(ours, theirs, RELATIVE, floor)


class Twin:
    """Layers by name on a network's own parameters."""

    def __init__(self, parameters):
        self.p = {name: torch.tensor(array, requires_grad="running" not in name) for name, array in parameters.items()}
        self.training = False

    def conv(self, name, x, **options):
        return F.conv2d(x, self.p[f"{name}.weight"], self.p.get(f"{name}.bias"), **options)

    def linear(self, name, x):
        return F.linear(x, self.p[f"{name}.weight"], self.p[f"{name}.bias"])

    def norm(self, name, x):
        mean, variance = self.p[f"{name}.running_mean"], self.p[f"{name}.running_var"]
        return F.batch_norm(x, mean, variance, self.p[f"{name}.weight"], self.p[f"{name}.bias"], self.training, 0.1)


def assert_twins(network, forward, *, batch=3):
    """``forward(twin, x)`` gives the network's output, and the gradients and running means of a training step."""
    parameters = compared.shaken(network, 0.1, dtype=np.float64)
    twin = Twin(parameters)
    (x,) = inputs_of(network, batch)
    backend = open_framework("numpy")
    assert_close(backend.executor(network, parameters).infer(x)[0], forward(twin, torch.tensor(x)))
    trained = network.with_loss().training()
    x, labels = inputs_of(trained, batch)
    executor = backend.executor(trained, parameters)
    loss, gradients = executor.infer_and_backprop(x, labels)
    twin.training = True
    wanted = F.cross_entropy(forward(twin, torch.tensor(x)), torch.tensor(labels))
    assert float(loss) == pytest.approx(wanted.item(), rel=RELATIVE)
    wanted.backward()
    leaves = {name: leaf for name, leaf in twin.p.items() if leaf.requires_grad}
    # The gradient of values before a batch normalisation can be zero up to rounding.
    floor = 1e-12 * max(float(leaf.grad.abs().max()) for leaf in leaves.values())
    assert set(gradients) == set(leaves)
    for name, leaf in leaves.items():
        assert_close(gradients[name], leaf.grad, floor)
    for name, mean in twin.p.items():
        if name.endswith("running_mean"):
            assert_close(executor.buffers[name], mean)

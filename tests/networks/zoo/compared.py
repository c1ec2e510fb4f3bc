"""Parameters with which to compare networks, and the tolerance of equality."""

import numpy as np

from levelbench.operators.frameworks import open_framework


def shaken(network, scale=0.2, *, least=0.1, dtype=None):
    """Parameters other than the initial ones, whose zero biases and unit scales would hide mistakes.

    Running variances are ``least`` or more; without a ``dtype`` each parameter keeps its own.
    """
    generator = np.random.default_rng(0)
    return {
        name: (np.abs(noisy) + least if name.endswith("running_var") else noisy).astype(dtype or array.dtype)
        for name, array in network.initialise(0).items()
        for noisy in [array.astype(np.float64) + scale * generator.standard_normal(array.shape)]
    }


def run(network, parameters, *inputs):
    """The outputs of the reference."""
    return open_framework("numpy").executor(network, parameters).infer(*inputs)


def assert_close(ours, theirs, relative, floor=0.0):
    """Equal within ``relative`` of the largest value; ``theirs`` may be a tensor of PyTorch."""
    theirs = theirs.detach().numpy() if hasattr(theirs, "detach") else theirs
    assert ours.shape == theirs.shape
    assert np.abs(ours - theirs).max() <= max(relative * np.abs(theirs).max(), floor)

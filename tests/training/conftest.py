import numpy as np
import pytest

from levelbench.training.datasets.base import Split


@pytest.fixture(scope="session")
def split():
    """``split(n, classes=3)``: tokens of random lengths, padded with 0, and labels in every class."""

    def make(n, classes=3, seed=0):
        generator = np.random.default_rng(seed)
        lengths = generator.integers(1, 13, n)
        tokens = np.where(np.arange(12) < lengths[:, None], generator.integers(1, 9, (n, 12)), 0)
        return Split.of(tokens, generator.permutation(np.arange(n) % classes))

    return make

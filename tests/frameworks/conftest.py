import importlib.util

import pytest


@pytest.fixture
def torch_backend():
    if importlib.util.find_spec("torch") is None:
        pytest.skip("PyTorch is not installed")
    from levelbench.frameworks.torch import framework

    return framework.open("cpu")


@pytest.fixture
def numpy_backend():
    from levelbench.frameworks.numpy import framework

    return framework.open("cpu")

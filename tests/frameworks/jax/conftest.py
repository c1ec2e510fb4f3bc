import pytest


@pytest.fixture(scope="session")
def backend():
    pytest.importorskip("jax")
    from levelbench.frameworks.jax import framework

    return framework.open("cpu")

import pytest

from levelbench.operators.frameworks import load_framework


@pytest.fixture(scope="session")
def backend():
    framework = load_framework("tensorflow")
    if lacking := framework.lacks():
        pytest.skip(lacking)
    return framework.open("cpu")

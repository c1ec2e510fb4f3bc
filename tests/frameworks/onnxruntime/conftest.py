import pytest


@pytest.fixture
def backend():
    pytest.importorskip("onnxruntime")
    from levelbench.frameworks.onnxruntime import framework

    return framework.open("cpu")

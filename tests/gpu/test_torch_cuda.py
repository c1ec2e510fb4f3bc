"""PyTorch on a CUDA device: the same assertions as on the CPU, where there is one."""

import numpy as np
import pytest

from levelbench.measure.clocks import check_synchronised
from levelbench.networks import zoo

pytestmark = pytest.mark.gpu
torch = pytest.importorskip("torch", reason="PyTorch is not installed")
if not torch.cuda.is_available():
    pytest.skip("no CUDA device", allow_module_level=True)


@pytest.fixture
def backend():
    from levelbench.frameworks.torch import framework

    return framework.open("cuda")


def test_logits_equal_those_of_the_reference(backend):
    from levelbench.frameworks.numpy import framework

    network = zoo.cnn((1, 8, 8), 4, 8, 3)
    parameters = network.initialise(0)
    inputs = np.random.default_rng(0).standard_normal((5, 1, 8, 8)).astype(np.float32)
    (reference,) = framework.open().executor(network, parameters).infer(inputs)
    logits = backend.host(backend.executor(network, parameters).infer(backend.array(inputs))[0])
    np.testing.assert_allclose(logits, reference, rtol=1e-2, atol=1e-3)


def test_the_clock_waits_for_the_work_that_was_launched(backend):
    matrix = torch.ones((8192, 8192), device="cuda")
    assert check_synchronised(backend.clock(), lambda: matrix @ matrix, torch.cuda.synchronize)

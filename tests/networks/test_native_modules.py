"""A PyTorch module runs, trains and is timed unchanged."""

import numpy as np
import pytest

from levelbench.errors import DefinitionError, UnsupportedError
from levelbench.networks.native import load_native

MODULE = """
    import torch

    class Small(torch.nn.Module):
        def __init__(self, width=3, classes=4):
            super().__init__()
            self.embed = torch.nn.Linear(width, width)
            self.norm = torch.nn.BatchNorm1d(width)
            self.head = torch.nn.Linear(width, classes)

        def forward(self, x):
            return self.head(torch.relu(self.norm(self.embed(x))))

    def build(width=3):
        torch.manual_seed(0)
        return Small(width), {"x": ("batch", width)}
"""


@pytest.fixture
def module(write):
    """The executor of a small module, and its backend."""
    pytest.importorskip("torch", reason="PyTorch is not installed")
    from levelbench.frameworks.torch import framework

    backend = framework.open()
    return backend.native(load_native(write(MODULE))), backend


def arrays(backend, *shape):
    return backend.array(np.random.default_rng(0).standard_normal(shape).astype(np.float32))


def test_a_module_is_distinguished_from_a_function(write):
    pytest.importorskip("torch", reason="PyTorch is not installed")
    assert load_native(write(MODULE), {"width": 5}).framework == "torch"


def test_a_modules_output_is_its_own(module):
    executor, backend = module
    x = arrays(backend, 6, 3)
    own = executor._model.model.eval()
    np.testing.assert_array_equal(backend.host(executor.infer(x)[0]), backend.host(own(x)))
    assert not executor.infer(x)[0].requires_grad


def test_a_modules_operations_are_those_of_its_products(module):
    executor, backend = module
    assert executor.operations(arrays(backend, 6, 3)) == (2 * 6 * (3 * 3 + 3 * 4), "float32")


def test_a_modules_gradients_are_those_of_autograd(module):
    import torch

    executor, backend = module
    x, labels = arrays(backend, 6, 3), backend.array(np.array([0, 1, 2, 3, 0, 1]))
    loss, gradients = executor.infer_and_backprop(x, labels)
    own = executor._model.model
    expected = torch.nn.functional.cross_entropy(own(x), labels)
    expected.backward()
    assert float(loss) == pytest.approx(float(expected.detach()))
    assert set(gradients) == {name for name, _ in own.named_parameters()}
    for name, each in own.named_parameters():
        torch.testing.assert_close(gradients[name], each.grad)


def test_a_module_trains_in_training_mode_and_infers_in_evaluation_mode(module):
    executor, backend = module
    x, labels = arrays(backend, 6, 3), backend.array(np.zeros(6, np.int64))
    before = backend.host(executor.buffers["norm.running_mean"])
    executor.infer(x)
    assert (backend.host(executor.buffers["norm.running_mean"]) == before).all()
    executor.forward(x, labels)
    assert (backend.host(executor.buffers["norm.running_mean"]) != before).any()


def test_a_modules_parameters_are_live(module):
    executor, backend = module
    x = arrays(backend, 2, 3)
    before = backend.host(executor.infer(x)[0])
    executor.parameters["head.bias"] += 1
    executor.parameters["head.bias"] = executor.parameters["head.bias"] + 1
    np.testing.assert_allclose(backend.host(executor.infer(x)[0]), before + 2, rtol=1e-5)


@pytest.mark.slow
def test_a_module_is_compiled_on_request(write):
    pytest.importorskip("torch", reason="PyTorch is not installed")
    from levelbench.frameworks.torch import framework

    backend, model = framework.open(), load_native(write(MODULE))
    x = arrays(backend, 2, 3)
    expected = backend.native(model).infer(x)[0]
    compiled = backend.native(model, mode="compiled")
    np.testing.assert_allclose(backend.host(compiled.infer(x)[0]), backend.host(expected), rtol=1e-5)
    with pytest.raises(UnsupportedError, match="fuses them"):
        compiled.operator_times(x)


def test_each_innermost_module_has_its_times(module):
    executor, backend = module
    times = executor.operator_times(arrays(backend, 2, 3), repeats=2)
    assert [(each.index, each.title, each.output) for each in times] == [
        (-1, "Linear", "embed"),
        (-1, "BatchNorm1d", "norm"),
        (-1, "Linear", "head"),
    ]
    assert all(len(each.times_s) == 2 and min(each.times_s) > 0 for each in times)


def test_the_times_of_a_module_that_runs_twice_are_summed(write):
    pytest.importorskip("torch", reason="PyTorch is not installed")
    from levelbench.frameworks.torch import framework

    text = """
        import torch
        class Twice(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.layer = torch.nn.Linear(3, 3)
            def forward(self, x): return {"y": self.layer(self.layer(x)), "n": 3}
        inputs = {"x": ("batch", 3)}
        build = Twice
    """
    backend = framework.open()
    executor = backend.native(load_native(write(text)))
    (entry,) = executor.operator_times(arrays(backend, 2, 3), repeats=2)
    assert (entry.output, len(entry.times_s)) == ("layer", 2)
    assert len(executor.infer(arrays(backend, 2, 3))) == 1


def test_a_module_can_bring_its_own_loss(write):
    pytest.importorskip("torch", reason="PyTorch is not installed")
    from levelbench.frameworks.torch import framework

    text = MODULE + "\n    def loss(found, targets, scale): return ((found - targets) ** 2).mean() * scale.mean()\n"
    backend = framework.open()
    executor = backend.native(load_native(write(text)))
    x, targets = arrays(backend, 2, 3), arrays(backend, 2, 4)
    one, ten = (float(executor.forward(x, targets, backend.array(np.full(1, s, np.float32)))) for s in (1, 10))
    assert ten == pytest.approx(10 * one, rel=1e-5)


def test_a_loss_that_is_not_a_scalar_is_an_error(write):
    pytest.importorskip("torch", reason="PyTorch is not installed")
    from levelbench.frameworks.torch import framework

    backend = framework.open()
    executor = backend.native(load_native(write(MODULE + "\n    def loss(found, labels): return found\n")))
    with pytest.raises(DefinitionError, match="not a scalar"):
        executor.forward(arrays(backend, 2, 3), arrays(backend, 2, 4))

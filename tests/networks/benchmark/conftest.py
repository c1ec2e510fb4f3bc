import numpy as np
import pytest
from msgspec.structs import replace

from levelbench.frameworks.numpy.backend import NumpyBackend
from levelbench.networks.benchmark import reference
from levelbench.networks.benchmark.measuring import measure_network
from levelbench.networks.files import save
from levelbench.networks.zoo import cnn
from levelbench.records.networks import NetworkArm, NetworkCase, NetworkSpecification


@pytest.fixture(scope="session")
def model_file(tmp_path_factory):
    """A small convolutional network as an ONNX file."""
    path = tmp_path_factory.mktemp("models") / "small.onnx"
    network = cnn((1, 8, 8), 4, 8, 3)
    save(network.stored(network.initialise(0)), path)
    return path


@pytest.fixture
def make_specification(model_file):
    """A specification that is quick to measure: the small network on NumPy, with parts replaced."""

    def make(framework="numpy", batch=2, *, transforms=(), mode="", case=None, **parts):
        case = case or NetworkCase("small", "file", batch, path=str(model_file))
        arm = NetworkArm(framework, mode, "cpu", tuple(transforms))
        base = NetworkSpecification("small", case, arm, budget_s=0.1, samples=20)
        return replace(base, **parts)

    return make


class Altered(NumpyBackend):
    """NumPy, with outputs that a test may alter."""

    def __init__(self, alter):
        super().__init__()
        self._alter = alter

    def executor(self, network, parameters=None, **given):
        executor = super().executor(network, parameters, **given)
        infer, step = executor.infer, executor.infer_and_backprop
        executor.infer = lambda *inputs: tuple(self._alter(np.array(each)) for each in infer(*inputs))

        def altered(*inputs):
            loss, gradients = step(*inputs)
            return loss, {name: self._alter(np.array(each)) for name, each in gradients.items()}

        executor.infer_and_backprop = altered
        return executor


@pytest.fixture
def measured():
    """Measures a specification here: returns the outcome and the events; ``alter`` changes what NumPy computes."""

    def measure(specification, alter=None, wanted=None, **more):
        events = []
        if alter is not None:
            more["open_backend"] = lambda name, device: Altered(alter)
        found = reference.make(specification) if wanted is None else wanted
        outcome = measure_network(specification, found, events.append, **more)
        return outcome, events

    return measure

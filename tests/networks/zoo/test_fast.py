"""Networks designed for time to accuracy: their first kernels, which are fixed."""

import numpy as np
import pytest

from levelbench.errors import DefinitionError
from levelbench.networks.cost import network_cost
from levelbench.networks.zoo.blocks import ImageBuilder
from levelbench.networks.zoo.small import cosine_kernels, quick
from levelbench.operators.frameworks import open_framework
from levelbench.training.optimizers import Momentum


@pytest.mark.parametrize("size", [2, 3, 5])
def test_the_kernels_are_the_impulses_of_scipys_inverse_cosine_transform(size):
    fft = pytest.importorskip("scipy.fft", reason="SciPy is not installed")
    wanted = []
    for place in np.ndindex(size, size):
        impulse = np.zeros((size, size))
        impulse[place] = 1
        wanted.append(fft.idctn(impulse, norm="ortho"))
    found = cosine_kernels(2 * size * size, size)[: size * size, 0]
    apart = np.abs(found[:, None] - np.array(wanted)[None]).max((2, 3))
    assert (apart.min(1) < 1e-6).all()
    assert sorted(apart.argmin(1)) == list(range(size * size))


def test_the_lowest_frequencies_come_first_each_with_both_signs():
    mean, *edges = cosine_kernels(6)[:3, 0]
    np.testing.assert_allclose(mean, 1 / 3, rtol=1e-6)
    across, down = edges
    assert np.ptp(across, axis=0).max() < 1e-6
    assert np.ptp(down, axis=1).max() < 1e-6
    np.testing.assert_array_equal(cosine_kernels(6)[3:], -cosine_kernels(6)[:3])


@pytest.mark.parametrize("count", [0, 5, 20])
def test_an_impossible_number_of_kernels_is_refused(count):
    with pytest.raises(DefinitionError, match="9 cosines, each with two signs"):
        cosine_kernels(count)


def test_fixed_kernels_of_the_wrong_shape_are_refused():
    g = ImageBuilder("one")
    with pytest.raises(DefinitionError, match=r"fixed kernels have shape \(4, 1, 3, 3\), expected \(4, 3, 3, 3\)"):
        g.conv(g.image(3, 8), 4, 3, name="first", fixed=cosine_kernels(4))


@pytest.mark.parametrize("framework", ["numpy", "torch", "jax", "tensorflow"])
def test_fixed_kernels_are_not_parameters_and_stay_while_the_rest_is_trained(framework):
    pytest.importorskip(framework, reason=f"{framework} is not installed")
    backend = open_framework(framework)
    network = quick(size=8, widths=(4, 8), residuals=(0, 1), cosines=True)
    learned = quick(size=8, widths=(4, 8), residuals=(0, 1))
    assert {each.name for each in learned.parameters} - {each.name for each in network.parameters} == {
        "layer0.conv.weight"
    }
    assert network_cost(network).multiply_adds == network_cost(learned).multiply_adds
    executor = backend.executor(network.with_loss().training(), network.initialise(0))
    generator = np.random.default_rng(0)
    images = backend.array(generator.standard_normal((8, 1, 8, 8)).astype(np.float32))
    labels = backend.array(np.arange(8) % 10)
    stepper = Momentum(0.1, 0.9).start(backend, executor.parameters)
    for step in range(1, 4):
        _, gradients = executor.infer_and_backprop(images, labels)
        stepper.step(gradients, step, 1.0)
    assert set(gradients) == {each.name for each in network.parameters if each.trainable}
    trained = {name: backend.host(each) for name, each in {**executor.parameters, **executor.buffers}.items()}
    untrained = network.initialise(0)
    assert all(np.any(trained[name] != untrained[name]) for name in gradients)
    # The same function with the cosines as a parameter gives these outputs.
    given = {**trained, "layer0.conv.weight": cosine_kernels(4)}
    (wanted,) = backend.executor(learned, given, trains=False).infer(images)
    (found,) = executor.infer(images)
    np.testing.assert_allclose(backend.host(found), backend.host(wanted), rtol=1e-4, atol=1e-5)


def test_each_width_has_a_branch_with_the_requested_number_of_convolutions():
    made = quick(widths=(4, 8, 16), residuals=(0, 1, 2))
    kernels = [(each.name, each.shape[0]) for each in made.parameters if each.name.endswith("conv.weight")]
    assert [channels for name, channels in kernels if "residual" in name] == [8, 16, 16]
    assert sum(node.op_type == "Add" for node in made.nodes) == 2


def test_residuals_that_are_not_one_for_each_width_are_refused():
    with pytest.raises(DefinitionError, match="2 residuals for 3 widths"):
        quick(widths=(4, 8, 16), residuals=(0, 1))


def test_the_gain_applies_to_every_kernel_and_nothing_else():
    plain, small = (quick(widths=(4, 8), residuals=(0, 1), gain=gain).initialise(3) for gain in (1.0, 0.25))
    for name, wanted in plain.items():
        np.testing.assert_allclose(small[name], wanted * (0.25 if "conv" in name else 1), rtol=1e-6)


@pytest.mark.parametrize("gain", [0.0, -0.5, float("nan")])
def test_kernels_without_a_size_are_refused(gain):
    with pytest.raises(DefinitionError, match="learn nothing"):
        quick(gain=gain)

"""A network that takes its own minibatches computes the same as a loop that passes them in."""

import numpy as np
import pytest

from levelbench.errors import DefinitionError, UnsupportedError
from levelbench.networks import zoo
from levelbench.operators.frameworks import load_framework
from levelbench.training.datasets.base import Dataset, Normalisation, Split
from levelbench.training.input import make_loader
from levelbench.training.sampled import epoch_inputs, sampled
from levelbench.training.samplers import Bucketed, Shuffled

NORMALISATION = Normalisation((0.3, 0.5), (0.4, 0.2))
EVEN, UNEVEN = Shuffled(8, drop_last=True), Shuffled(8)


@pytest.fixture(scope="module")
def images():
    generator = np.random.default_rng(0)
    pixels = generator.integers(0, 256, (22, 2, 8, 8)).astype(np.uint8)
    return Split.of(pixels, generator.integers(0, 5, 22))


@pytest.fixture(scope="module")
def rows(images):
    return Split.of(images.inputs.reshape(22, -1), images.labels)


@pytest.fixture(scope="module")
def network():
    return zoo.cnn((2, 8, 8), 2, 8, 5).with_loss().training()


@pytest.fixture(scope="module")
def small():
    return zoo.mlp(128, 4, 5).with_loss().training()


def backend(name):
    framework = load_framework(name)
    if lacking := framework.lacks():
        pytest.skip(lacking)
    return framework.open("cpu")


def loss_and_gradients(on, executor, inputs):
    loss = executor.forward(*inputs)
    return float(on.host(loss)), {name: on.host(each) for name, each in executor.backward().items()}


def agree(on, mode, network, split, sampler, normalisation):
    """The last step of an epoch, with the loader's batch and with the same one taken inside the network."""
    inside = sampled(network, split, sampler, normalisation=normalisation)
    ours = on.executor(inside, inside.initialise(3), mode=mode)
    theirs = on.executor(network, network.initialise(3), mode=mode)
    data = Dataset("made", split, split, split, 5, {}, "", "", "made here", True, normalisation)
    loader = make_loader(on, data, split, sampler, seed=1)
    last = loader.steps - 1
    batch = next(iter(loader.batches(0, first=last)))
    wanted, gradients = loss_and_gradients(on, theirs, batch)
    given = [*epoch_inputs(inside, sampler.epoch(split, 1, 0)), np.array(last)]
    found, mine = loss_and_gradients(on, ours, [on.array(each) for each in given])
    assert found == pytest.approx(wanted, rel=1e-6)
    assert mine.keys() == gradients.keys()
    for name, gradient in gradients.items():
        assert np.allclose(mine[name], gradient, rtol=1e-5, atol=1e-6), name


@pytest.mark.parametrize("sampler", [EVEN, UNEVEN], ids=repr)
def test_loss_and_gradients_are_those_of_the_loaders_batches(images, network, sampler):
    agree(backend("numpy"), None, network, images, sampler, NORMALISATION)


@pytest.mark.parametrize(
    ("framework", "mode", "sampler"),
    [("torch", "eager", EVEN), ("torch", "eager", UNEVEN), ("jax", "eager", UNEVEN), ("jax", "jit", EVEN)],
)
def test_they_are_the_same_in_every_framework(framework, mode, sampler, rows, small):
    agree(backend(framework), mode, small, rows, sampler, Normalisation((0.3,), (0.4,)))


def test_onnx_runtime_infers_a_step(images, network):
    on = backend("onnxruntime")
    inside = sampled(network, images, UNEVEN, normalisation=NORMALISATION)
    drawn = UNEVEN.epoch(images, 0, 0)
    given = (*epoch_inputs(inside, drawn), np.array(2))
    found = on.executor(inside, inside.initialise(3), trains=False).infer(*map(on.array, given))
    reference = load_framework("numpy").open("cpu")
    wanted = reference.executor(inside, inside.initialise(3)).infer(*given)
    assert np.shape(wanted[0]) == (6, 5)
    assert np.allclose(on.host(found[0]), wanted[0], atol=1e-5)


def test_batches_of_one_size_have_static_shapes_and_others_need_bounds(images, network):
    even, uneven = (sampled(network, images, each) for each in (EVEN, UNEVEN))
    assert [each.name for each in even.inputs] == ["sampler.order", "sampler.step"]
    assert [each.name for each in uneven.inputs] == ["sampler.order", "sampler.bounds", "sampler.step"]


def test_a_program_compiled_as_a_whole_refuses_batches_of_several_sizes(rows, small):
    on = backend("jax")
    inside = sampled(small, rows, UNEVEN)
    executor = on.executor(inside, inside.initialise(0), mode="jit")
    given = (*epoch_inputs(inside, UNEVEN.epoch(rows, 0, 0)), np.array(0))
    with pytest.raises(UnsupportedError, match="depends on values"):
        executor.forward(*map(on.array, given))


def test_the_data_keeps_its_dtype_and_is_not_trained(images, network):
    inside = sampled(network, images, EVEN, normalisation=NORMALISATION)
    kept = {each.name: (each.dtype, each.trainable) for each in inside.parameters if each.name.startswith("data.")}
    assert kept == {"data.input": ("uint8", False), "data.labels": ("int64", False)}
    assert inside.parameter_count() == network.parameter_count()


def test_initial_weights_of_a_seed_stay_the_same(images, network):
    before, after = network.initialise(7), sampled(network, images, EVEN).initialise(7)
    assert all(np.array_equal(before[name], after[name]) for name in before)


def test_generated_inputs_are_an_order_of_examples_and_a_step(images, network):
    inside = sampled(network, images, EVEN)
    made = inside.make_inputs(batch=1)
    assert made["sampler.order"].max() < 22
    assert made["sampler.step"].shape == ()


def test_a_network_without_a_loss_lacks_inputs(images):
    with pytest.raises(DefinitionError, match="2 columns"):
        sampled(zoo.cnn((2, 8, 8), 2, 8, 5), images, EVEN)


def test_data_of_another_shape_is_refused(images, network):
    wrong = Split.of(images.inputs[:, :1], images.labels)
    with pytest.raises(DefinitionError, match=r"the data's rows are \(1, 8, 8\)"):
        sampled(network, wrong, EVEN)


def test_bucketed_batches_of_tokens_work_too(split):
    data = split(30, classes=2)
    network = zoo.mlp(12, 4, 2).with_loss()
    sampler = Bucketed(7)
    inside = sampled(network, Split.of(data.inputs.astype(np.float32), data.labels), sampler)
    on = backend("numpy")
    drawn = sampler.epoch(data, 0, 0)
    executor, alone = (on.executor(each, inside.initialise(1)) for each in (inside, network))
    for step in range(len(drawn.sizes)):
        rows = drawn.batch(step)
        found = executor.forward(*epoch_inputs(inside, drawn), np.array(step))
        assert found == pytest.approx(alone.forward(data.inputs[rows].astype(np.float32), data.labels[rows]))
